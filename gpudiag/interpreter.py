"""How gpudiag starts new interpreters."""

from __future__ import annotations

import sys

SAFE_PATH = ("-P",) if sys.version_info >= (3, 11) else ()
"""The option without which ``-c`` puts the working directory first on the path.

Anybody may have left a ``json.py`` there. To delete the entry in the first line is not enough: since 3.13 Python
imports ``linecache`` before that line (of the working directory, or ending with a SystemError if that is gone).
Python 3.10 knows no such option, and imports nothing before the line.
"""
