"""``python -m gpudiag`` and the command ``gpudiag``."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command line; a Ctrl-C before it has been read ends this process without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from gpudiag import cli

    signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.main()


if __name__ == "__main__":
    main()
