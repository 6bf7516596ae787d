"""`python -m bitsnap.report` is `bitsnap report`."""

import sys

from bitsnap.report.report_command import main

sys.exit(main())
