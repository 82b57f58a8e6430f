"""The page of a report: what it shows (:mod:`view`), its pictures (:mod:`pictures`), and how it looks (other files).

Everything is made from the saved report. The page is one file: it loads nothing, and a policy in its head says so to
browsers. Whatever a report holds is text there: cleaned of what a terminal or a browser obeys, then escaped.
"""
