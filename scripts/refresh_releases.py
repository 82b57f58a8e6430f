"""Refresh gpudiag/knowledge/tensorflow_releases.py: what each release of TensorFlow needs, and what it has wheels for.

    python scripts/refresh_releases.py

Asks pip, which reads them from pypi.org: nothing is installed. Takes some minutes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

OUTPUT = Path(__file__).parent.parent / "gpudiag/knowledge/tensorflow_releases.py"
OTHERS = {
    "tensorflow-addons": "3.10",
    "tensorflow-decision-forests": "3.11",
    "tensorflow-io": "3.10",
    "tensorflow-io-gcs-filesystem": "3.11",
    "tensorflow-macos": "3.10",
    "tensorflow-metal": "3.10",
    "tensorflow-text": "3.10",
}
"""Distributions that were made for few systems, with a Python that some release has wheels for."""
OLDEST_DESCRIBED = Version("2.2")
"""Older ones have no metadata that pip can read without the wheel itself."""
SYSTEMS = {
    r"manylinux.*x86_64|linux_x86_64": "linux_x86_64",
    r"manylinux.*aarch64": "linux_aarch64",
    r"win_amd64": "windows",
    r"macosx.*x86_64": "mac_x86_64",
    r"macosx.*arm64": "mac_arm64",
}
HEAD = '''"""The requirements of each TensorFlow release, and the systems and Pythons of its wheels, by pypi.org.

Written by ``scripts/refresh_releases.py``, {day}. The requirements are those of a release's last patch. Both
tables are written as what differs from the release before; None stands for what it no longer has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

_Value = TypeVar("_Value")
_Release = tuple[int, int]


def _whole(changes: Mapping[_Release, Mapping[str, _Value | None]]) -> Iterator[tuple[_Release, dict[str, _Value]]]:
    """Yield each release with all that it has, given what differs from the release before."""
    held: dict[str, _Value] = {{}}
    for release, changed in changes.items():
        kept = {{name: value for name, value in held.items() if name not in changed}}
        held = kept | {{name: value for name, value in changed.items() if value is not None}}
        yield release, dict(sorted(held.items()))


_WHEELS: dict[_Release, dict[str, tuple[str, str] | None]] = {{
{wheels}
}}
WHEELS = dict(_whole(_WHEELS))
"""For each release, the systems that it has wheels for, each with the oldest and the newest Python."""

_NEEDS: dict[_Release, dict[str, str | None]] = {{
{needs}
}}
NEEDS = dict(_whole(_NEEDS))
"""For each release, its requirements: distributions and accepted versions ("" for any); requirements of one system
alone are left out."""

OTHERS: dict[str, dict[str, tuple[str, str, str, str]]] = {{
{others}
}}
"""For other distributions, the systems that have wheels, each with the oldest and the newest release and Python."""
'''


def pip(what: str, python: str, *flags: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps"]
        command += ["--only-binary=:all:", "--python-version", python, "--target", folder, *flags]
        if "macos" in what or "metal" in what:
            command += ["--platform", "macosx_12_0_arm64"]
        done = subprocess.run([*command, what], capture_output=True, text=True, check=False)
    return done.stdout


def wheels(log: str, name: str = "tensorflow") -> dict[Version, dict[str, set[Version]]]:
    """Map releases, with their patch level, to systems and their Pythons."""
    found: dict[Version, dict[str, set[Version]]] = defaultdict(lambda: defaultdict(set))
    file = rf"/{name.replace('-', '_')}-([\d.]+)-(?:cp|py)(\d+)(?:\.py3)?-\w+-([\w.]+)\.whl"
    for release, python, system in re.findall(file, log):
        known = next((name for pattern, name in SYSTEMS.items() if re.search(pattern, system)), None)
        if known:
            found[Version(release)][known].add(Version(f"{python[0]}.{python[1:] or 0}"))
    return found


def needs(report: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in json.loads(report)["install"][0]["metadata"]["requires_dist"]:
        requirement = Requirement(text)
        if requirement.marker is None or (
            "python_version" in str(requirement.marker) and "sys" not in str(requirement.marker)
        ):
            found[canonicalize_name(requirement.name)] = str(requirement.specifier)
    return found


def spans(found: dict[Version, dict[str, set[Version]]]) -> dict[str, tuple[str, str, str, str]]:
    """Return, for each system, the oldest and the newest release, and Python."""
    known = defaultdict[str, list[tuple[Version, set[Version]]]](list)
    for release, systems in found.items():
        for system, pythons in systems.items():
            known[system].append((release, pythons))
    return {
        system: (
            str(min(release for release, _ in of)),
            str(max(release for release, _ in of)),
            str(min(python for _, pythons in of for python in pythons)),
            str(max(python for _, pythons in of for python in pythons)),
        )
        for system, of in sorted(known.items())
    }


def changes(rows: Mapping[Version, Mapping[str, object]]) -> Iterator[tuple[Version, dict[str, object]]]:
    """Yield what each row has that differs from the row before; None for what it has no longer."""
    before: Mapping[str, object] = {}
    for release, row in rows.items():
        changed = {name: what for name, what in row.items() if name not in before or before[name] != what}
        yield release, dict(sorted({**changed, **dict.fromkeys(before.keys() - row.keys())}.items()))
        before = row


def table(rows: Iterable[tuple[Version, Mapping[str, object]]]) -> str:
    return "\n".join(
        f"    ({pair.major}, {pair.minor}): {{" + ", ".join(f"{name!r}: {what!r}" for name, what in row.items()) + "},"
        for pair, row in rows
    )


def main() -> None:
    found = wheels(pip("tensorflow==2.15.1", "3.11", "-vvv"))
    systems: dict[Version, dict[str, set[Version]]] = defaultdict(lambda: defaultdict(set))
    last: dict[Version, Version] = {}
    for release in sorted(found):
        minor = Version(f"{release.major}.{release.minor}")
        last[minor] = release
        for system, pythons in found[release].items():
            systems[minor][system] |= pythons
    needed = {}
    for minor, release in last.items():
        if minor >= OLDEST_DESCRIBED:
            python = max(found[release]["linux_x86_64"])
            needed[minor] = needs(pip(f"tensorflow=={release}", str(python), "--quiet", "--report", "-"))
    ranges = {
        minor: {name: (str(min(pythons)), str(max(pythons))) for name, pythons in sorted(of.items())}
        for minor, of in systems.items()
    }
    others = {name: spans(wheels(pip(name, python, "-vvv"), name)) for name, python in OTHERS.items()}
    day = datetime.now(timezone.utc).date().isoformat()
    tables = {
        "wheels": table(changes(ranges)),
        "needs": table(changes(needed)),
        "others": "\n".join(f"    {name!r}: {of!r}," for name, of in others.items()),
    }
    OUTPUT.write_text(HEAD.format(day=day, **tables))
    subprocess.run([sys.executable, "-m", "ruff", "format", str(OUTPUT)], check=True)


if __name__ == "__main__":
    main()
