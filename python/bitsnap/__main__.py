"""`python -m bitsnap` is the command `bitsnap`."""

import os
import sys

from bitsnap.agents import find_program

program = str(find_program())
os.execv(program, [program, *sys.argv[1:]])
