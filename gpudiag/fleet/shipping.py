"""A gpudiag that travels with the check, for nodes that have none: a zipapp or a wheel, in a scratch folder there."""

from __future__ import annotations

import shlex
import zipfile
from dataclasses import dataclass
from pathlib import Path

from gpudiag.errors import UsageError, shortage

_START = (
    "import sys; sys.path[:] = [sys.argv.pop(1), *filter(None, sys.path)]; "
    "from gpudiag.__main__ import main\n"
    "try: main()\n"
    "except ModuleNotFoundError as error: sys.exit("
    '"gpudiag: error: %s: a wheel comes without the packages that it needs; ship gpudiag.pyz, which has them" % error)'
)
"""Starts the gpudiag of an unpacked wheel without PYTHONPATH, which is a variable of what is examined."""


@dataclass(frozen=True)
class Shipped:
    """A file that every node gets on the standard input of its command."""

    name: str
    content: bytes

    @classmethod
    def of(cls, path: Path) -> Shipped:
        """Read ``gpudiag.pyz`` or a wheel; raises :class:`UsageError` for anything else."""
        if path.suffix not in (".pyz", ".whl"):
            raise UsageError(f"{path}: cannot be shipped: it is neither a zipapp (gpudiag.pyz) nor a wheel (.whl).")
        try:
            content = path.read_bytes()
            with zipfile.ZipFile(path) as archive:
                has_gpudiag = "gpudiag/__main__.py" in archive.namelist()
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {shortage(error)}") from None
        except zipfile.BadZipFile as error:
            raise UsageError(f"{path}: cannot be shipped: it is damaged ({error}); get it again.") from None
        if not has_gpudiag:
            raise UsageError(f"{path}: cannot be shipped: it has no gpudiag.")
        return cls("gpudiag" + path.suffix, content)

    def command(self, limit: tuple[str, ...], check: tuple[str, ...], python: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the command that receives the file, runs the check within ``limit`` and removes what was unpacked.

        The shell that removes it is outside the group that ``timeout`` kills. It has no newline in what a csh may have
        to quote.
        """
        python = python or ("python3",)
        file = f'"$d"/{self.name}'
        start = (*limit, "env", 'XDG_CACHE_HOME="$d"', 'XDG_STATE_HOME="$d"', *map(shlex.quote, python))
        if self.name.endswith(".whl"):
            unpack = f'{shlex.join((*limit, *python))} -m zipfile -e {file} "$d"/site || exit'
            code = f"exec({_START!r})"
            start = (*start, "-c", shlex.quote(code), '"$d"/site')
        else:
            unpack = ""
            start = (*start, file)
        size = len(self.content)
        steps = (
            'd=$(mktemp -d "${TMPDIR:-/tmp}/gpudiag-fleet.XXXXXX") || exit 126',
            "trap 'rm -rf \"$d\"' EXIT",
            # PIPE: a shell says "Killed" of its child, where perhaps nobody listens any more.
            "trap 'kill \"$p\" 2>/dev/null || exit' HUP INT TERM PIPE",
            f"{shlex.join(limit)} head -c {size} > {file} || exit 126",
            f'[ "$(wc -c < {file})" -eq {size} ] || {{ echo "gpudiag: what was shipped is cut short" >&2; exit 126; }}',
            unpack,
            f"{' '.join(start)} {shlex.join(check)} & p=$!",
            'wait "$p"; s=$?',
            # A signal ends `wait` before the process has ended.
            'while kill -0 "$p" 2>/dev/null; do wait "$p"; s=$?; done',
            'exit "$s"',
        )
        return ("sh", "-c", "; ".join(filter(None, steps)))
