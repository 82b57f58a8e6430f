"""Checks a healthy simulated machine under every setting of ``tests/settings.toml`` and writes ``reports/settings.md``.

    python scripts/settings_sweep.py [--round N ...] [--alone NAME ...] [--jobs N]

Without options: as few whole checks as cover each value, many settings in each, then one for each setting that must
change what is found. Of a round in which something is wrong, the settings that are wrong alone are found by halving.
``--round N`` tries these rounds alone and writes nothing, ``--alone 'TF_*'`` each value of these variables in a
separate check, of about 15 seconds of a processor.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from gpudiag.model import codec  # noqa: E402
from settings import TABLE, Setting, changed, culprits, environment, every, faults, rounds  # noqa: E402

RESULT = ROOT / "reports" / "settings.md"
CLEAR = {setting.variable for setting in every()} | {change.setting.variable for change in changed()}


def check(settings: Iterable[Setting], probes: Iterable[str] = ()) -> dict[str, str]:
    """Return the faults that a check of a healthy machine finds under these settings."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "of settings")
        folder.mkdir()
        own = {name: value for name, value in os.environ.items() if name not in CLEAR}
        own |= {"XDG_STATE_HOME": scratch, "GPUDIAG_BISECT": "0", **environment(settings, folder)}
        command = [sys.executable, "-m", "gpudiag", "check", *probes, "--simulate", "2", "-q", "--format", "json"]
        done = subprocess.run(command, env=own, cwd=scratch, capture_output=True, text=True, check=False)
        return faults(codec.decode(done.stdout, done.stderr))


def tried(settings: Sequence[Setting]) -> dict[Setting, str]:
    """Return what is wrong under those of the settings under which something is, one check for all if nothing is."""
    found = check(settings)
    if not found:
        return {}
    # To find which it is, only what was wrong is run.
    probes = [name for name in found if "." in name]
    return {
        setting: "; ".join(f"{name}: {said}" for name, said in (check([setting]) or found).items())
        for setting in culprits(settings, lambda some: bool(check(some, probes)))
    }


def _markdown(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose columns are not filled with blanks: some cells are very long."""
    cells = (headers, ["---"] * len(headers), *rows)
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in cells)


def _table(wrong: dict[Setting, str]) -> str:
    rows: dict[str, dict[str, list[str]]] = {}
    for setting in every():
        values = rows.setdefault(setting.reader, {}).setdefault(f"`{setting.flag or setting.variable}`", [])
        values.append(
            f"**`{setting.value}`**" if setting in wrong else f"`{setting.value}`" if setting.value else "(empty)"
        )
    parts = []
    for reader, variables in rows.items():
        source = TABLE[reader]["source"]
        cells = [(name, ", ".join(values)) for name, values in variables.items()]
        parts.append(f"## {reader}\n\nFrom: {source}.\n\n{_markdown(('variable', 'values'), cells)}\n")
    return "\n".join(parts)


def report(wrong: dict[Setting, str], otherwise: dict[Setting, list[str]]) -> str:
    """Return the page."""
    number = len({setting.name for setting in every()})
    found = [(f"`{setting}`", said) for setting, said in wrong.items()] or [("none", "")]
    reasons = [
        (
            f"`{change.setting}`",
            change.reason,
            ", ".join(f"{name}: {words}" for name, words in change.must.items() if words),
            "; ".join(otherwise[change.setting]) or "yes",
        )
        for change in changed()
    ]
    return f"""# Settings: what they change in a check of a healthy machine

Written by `python scripts/settings_sweep.py`, which ran `gpudiag check --simulate 2` under {len(every())} values of
{number} variables and flags, in {len(rounds(every()))} rounds with many settings each, and under {len(changed())}
settings that must change what is found.

What is right under all settings of a round together counts as right under each. That is not the same as each alone:
one setting may hide what another does. `--alone` tries them so.

## Settings under which a probe fails or breaks, or a cause is named

{_markdown(("setting", "what is said"), found)}

## Settings that must change what is found

{_markdown(("setting", "why", "what is said", "as it must be"), reasons)}

{_table(wrong)}"""


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _each(pool: Executor, parts: Sequence[Sequence[Setting]]) -> dict[Setting, str]:
    wrong: dict[Setting, str] = {}
    for some, found in zip(parts, pool.map(tried, parts), strict=True):
        name = str(some[0]) if len(some) == 1 else f"{len(some)} settings"
        _say(f"{name}: {'; '.join(f'{probe}: {said}' for probe, said in found.items()) or 'nothing is wrong'}")
        wrong |= found
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--round", type=int, action="append", default=[])
    parser.add_argument("--alone", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=1, help="checks at the same time")
    asked = parser.parse_args()
    made = rounds(every())
    if asked.round:
        made = tuple(made[number - 1] for number in asked.round)
    if asked.alone:
        made = tuple(
            (setting,) for setting in every() if any(fnmatchcase(setting.variable, name) for name in asked.alone)
        )
    with ThreadPoolExecutor(asked.jobs) as pool:
        wrong = _each(pool, made)
        if asked.round or asked.alone:
            return bool(wrong)
        otherwise: dict[Setting, list[str]] = {}
        for change, found in zip(changed(), pool.map(lambda change: check([change.setting]), changed()), strict=True):
            otherwise[change.setting] = change.otherwise(found)
            _say(f"{change.setting}: {otherwise[change.setting] or 'as it must be'}")
    RESULT.write_text(report(wrong, otherwise))
    return bool(wrong) or any(otherwise.values())


if __name__ == "__main__":
    sys.exit(main())
