"""The HTML page of a report: its contents as records that a template renders, and its style.

Everything comes from the saved report. The page is one file: it loads nothing, and a policy in its head makes browsers
enforce that. All of a report's contents are text there: cleaned of control sequences, then escaped.
"""
