"""`python -m bitsnap.report` is `bitsnap report`."""

import sys

from bitsnap.report.report_page import main

sys.exit(main())
