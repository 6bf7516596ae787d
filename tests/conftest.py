"""What every test of the tree starts from."""

import signal

# Whoever runs the tests in the background may have signals ignored, and children inherit that: those which tests send
# to processes that they start would be lost.
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
