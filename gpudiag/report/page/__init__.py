"""The page of a report: what it shows, as records that a template writes down, and how it looks.

Everything is made from the saved report. The page is one file: it loads nothing, and a policy in its head says so to
browsers. Whatever a report holds is text there: cleaned of what a terminal or a browser obeys, then escaped.
"""
