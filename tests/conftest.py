"""Setup of all tests."""

import signal

# A shell that runs the tests in the background may ignore signals, and children inherit that. They would then ignore
# the signals that tests send to them.
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
