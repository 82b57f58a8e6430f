"""``python -m gpudiag`` and the command ``gpudiag``."""

from __future__ import annotations

import os
import sys

# `python -m` puts the working directory first on the path, where anybody may have left a `json.py`. It stays if gpudiag
# itself comes from there. What Python has imported before this line is out of reach.
_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120  # pathlib imports more
if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False) and sys.path[:1] != [_HOME]:
    del sys.path[:1]

import signal  # noqa: E402


def main() -> None:
    """Run the command line; a Ctrl-C before it has been read ends this process without a traceback."""
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # as a shell does for what runs in the background
    if not ignored:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from gpudiag import cli
    except Exception as error:
        from gpudiag.interpreter import said_of

        said = said_of(error)
        if not said:
            raise
        print(f"gpudiag: error: {said}", file=sys.stderr)
        sys.exit(3)
    if not ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.main()


if __name__ == "__main__":
    main()
