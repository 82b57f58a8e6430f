"""A gpudiag that travels with the check, for nodes that have none: a zipapp or a wheel, in a scratch folder there."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from gpudiag.errors import UsageError, shortage


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
            return cls(path.name, path.read_bytes())
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {shortage(error)}") from None

    def command(self, limit: tuple[str, ...], check: tuple[str, ...]) -> tuple[str, ...]:
        """Return the command that unpacks the file, runs the check within ``limit`` and removes the folder."""
        run = f'python3 "$d"/{shlex.quote(self.name)}'
        if self.name.endswith(".whl"):
            pip = f'python3 -m pip install -q --no-deps --target "$d/site" "$d"/{shlex.quote(self.name)} >&2'
            run = f'{pip} && env PYTHONPATH="$d/site${{PYTHONPATH:+:$PYTHONPATH}}" python3 -m gpudiag'
        script = (
            'd=$(mktemp -d "${TMPDIR:-/tmp}/gpudiag-fleet.XXXXXX") || exit 126\n'
            "trap 'rm -rf \"$d\"' EXIT HUP INT TERM\n"
            f'cat > "$d"/{shlex.quote(self.name)} && {run} {shlex.join(check)}'
        )
        return (*limit, "sh", "-c", script)
