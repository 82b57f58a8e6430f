"""`gpudiag --version`: the version and, if gpudiag runs from a checkout, the commit."""

from __future__ import annotations

import os
from pathlib import Path

import click

import gpudiag

_GIT_S = 5


def print_version(ctx: click.Context, _: click.Parameter, requested: bool) -> None:
    """Print the version and exit, as a callback of the option ``--version``."""
    if requested and not ctx.resilient_parsing:
        click.echo(f"gpudiag, version {version(Path(gpudiag.__file__).resolve().parents[1])}")
        ctx.exit()


def version(root: Path) -> str:
    """Return the version of the package in ``root``, and what is known of ``root`` if it is a checkout."""
    if not (root / ".git").exists():
        return gpudiag.__version__
    return f"{gpudiag.__version__} ({', '.join(['checkout', *_state(root)])})"


def _state(root: Path) -> list[str]:
    """Return the commit and whether files differ from it; nothing if git is missing, fails or refuses the folder."""
    import subprocess

    command = ["git", "-C", str(root), "describe", "--always", "--exclude=*", "--dirty"]
    try:
        described = subprocess.run(
            command,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_GIT_S,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return []
    commit = described.removesuffix("-dirty")
    return [f"commit {commit}", *["modified"] * (commit != described)]
