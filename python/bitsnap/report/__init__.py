"""A page of plots about a run, for the browser: `bitsnap report RUN -o report.html`, or write_report().

report_data asks the command what there is to know, report_figures, report_changes, report_values and report_tensors
make figures and tables of it, and report_page writes them into one HTML file that loads nothing from anywhere. Needs
plotly and Jinja2: pip install 'bitsnap[report]'. For `bitsnap report RUN --serve`, report_live watches a run, and
report_serve answers browsers; it needs starlette and uvicorn as well: pip install 'bitsnap[serve]'.
"""

from bitsnap.report.report_page import write_report

__all__ = ["write_report"]
