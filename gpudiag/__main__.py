"""``python -m gpudiag`` and the command ``gpudiag``."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command line; a Ctrl-C before it has been read ends this process without a traceback."""
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # as a shell does for what runs in the background
    if not ignored:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from gpudiag import cli

    if not ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.main()


if __name__ == "__main__":
    main()
