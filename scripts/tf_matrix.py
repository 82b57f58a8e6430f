"""Runs every probe under each supported TensorFlow and writes ``reports/tensorflow-matrix.md`` and ``.json``.

Each version gets its own virtual environment (about 2 GB and a minute or two), one at a time, into which this
checkout is installed; the GPUs are simulated. With ``--environments`` the environments are kept, and used again: then
only gpudiag is installed again. ``--check`` writes nothing and compares what is measured now with the committed report;
durations, dates and the numbers of patch releases never count. Exit status 1 where an environment is broken or, with
``--check``, if something differs.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import msgspec
from tabulate import tabulate

import gpudiag
from gpudiag.errors import ReportError
from gpudiag.model import codec
from gpudiag.model.facts import SystemFacts, TensorflowFacts
from gpudiag.model.report import STATUSES, Report, Row
from gpudiag.record import Record
from gpudiag.report import words
from gpudiag.text import one_line

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "reports"
NAME = "tensorflow-matrix"
VERSIONS = ("2.18", "2.19", "2.20", "2.21")
GPUS = "2x16GiB"

INSTALL_S = 1800
CHECK_S = 900
LONGEST_IN_TABLE = 60

MEANINGS = {
    "pass": "what was asked for is what happened",
    "note": "as documented for that version, but not what everybody expects",
    "warning": "something is not as it should be, and does no harm by itself",
    "fail": "what was asked for did not happen",
    "broken": "the probe gave nothing to judge: it crashed or hung",
    "interrupted": "a signal stopped the run before the probe had ended",
    "skipped": "it does not apply there",
}
assert tuple(MEANINGS) == STATUSES

_ALIKE = {
    True: "None: every probe behaves alike under each TensorFlow.",
    False: "Not known: fewer than two versions were measured.",
}

_DURATION = re.compile(r"\b\d+(?:\.\d+)? ?(?:ms|s|seconds?|min|minutes?)\b")
_MARKUP = re.compile(r"[\\`*|<>_~\[\]]")


class Found(Record):
    """A finding, without its advice."""

    severity: str
    kind: str
    message: str


class Cell(Record):
    """What one probe came to on one device under one TensorFlow."""

    outcome: str
    """A word of ``STATUSES``."""
    figure: str
    """The key figure, why it was skipped, or what broke it."""
    found: tuple[Found, ...] = ()

    @property
    def brief(self) -> str:
        """The kinds that were found or, if nothing was, the figure: on one short line."""
        text = ", ".join(dict.fromkeys(finding.kind for finding in self.found)) or self.figure
        return text if len(text) <= LONGEST_IN_TABLE else f"{text[: LONGEST_IN_TABLE - 1]}…"

    @property
    def full(self) -> str:
        """Everything that is known of it, on one line."""
        told = [f"{finding.severity} {finding.kind}: {finding.message}" for finding in self.found]
        return "; ".join(filter(None, [f"{self.outcome} ({self.figure})" if self.figure else self.outcome, *told]))


class Column(Record):
    """One TensorFlow and what it was built for and run on."""

    version: str
    """As it was asked for, such as ``2.21``."""
    tensorflow: str = ""
    """The exact release."""
    python: str = ""
    cuda: str = ""
    cudnn: str = ""
    broken: str = ""
    """Why nothing could be measured; "" where it could."""


class Line(Record):
    """One probe on one device: a cell for each version that has one."""

    probe: str
    device: str
    cells: dict[str, Cell]

    @property
    def key(self) -> tuple[str, str]:
        """What names the line: the probe, and the GPUs it was given; a probe that is skipped was on no CPU."""
        return self.probe, self.device if self.device.startswith("GPU") else ""


class Matrix(Record):
    """The compatibility report; one line for each probe and device."""

    gpudiag: str
    gpus: str
    """The specification of the simulated machine."""
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]

    def releases(self) -> dict[str, str]:
        """Return the exact release of each version."""
        return {column.version: column.tensorflow for column in self.columns}


def join(reports: Mapping[str, Report | str]) -> Matrix:
    """Return the matrix of the reports by version; a text in place of a report says why there is none."""
    cells: dict[tuple[str, str], dict[str, Cell]] = {}
    labels: dict[tuple[str, str], str] = {}
    for version, report in reports.items():
        if isinstance(report, str):
            continue
        for row in report.rows:
            device = report.device_label(row)
            key = (row.probe, device if row.devices else "")
            cells.setdefault(key, {})[version] = _cell(row)
            labels[key] = labels.get(key) or device
    return Matrix(
        gpudiag=gpudiag.__version__,
        gpus=GPUS,
        columns=tuple(_column(version, report) for version, report in reports.items()),
        lines=tuple(Line(key[0], labels[key], found) for key, found in cells.items()),
    )


def behaviour(cell: Cell | None, release: str) -> tuple[object, ...]:
    """Return what counts where cells are compared: no duration, and not that a TensorFlow of ``release`` says so."""
    if cell is None:
        return ()
    text = _DURATION.sub("(time)", cell.figure)
    if release:
        text = text.replace(release, "(release)")
    return (cell.outcome, tuple(sorted({(finding.severity, finding.kind) for finding in cell.found})), text)


def differences(committed: Matrix, now: Matrix) -> Iterator[str]:
    """Yield a line for each cell in which ``now`` differs from ``committed``, of the versions that ``now`` has."""
    known = {column.version: column for column in committed.columns}
    old = {line.key: line.cells for line in committed.lines}
    new = {line.key: line.cells for line in now.lines}
    for column in now.columns:
        version = column.version
        if version not in known:
            yield f"{version}: not in the committed report"
        elif column.broken or known[version].broken:
            if column.broken != known[version].broken:
                yield (
                    f"{version}: committed: {known[version].broken or 'measured'}; now: {column.broken or 'measured'}"
                )
        else:
            for key in dict.fromkeys([*old, *new]):
                was, is_ = old.get(key, {}).get(version), new.get(key, {}).get(version)
                if behaviour(was, known[version].tensorflow) != behaviour(is_, column.tensorflow):
                    where = " ".join(filter(None, key))
                    yield f"{version}: {where}: committed: {_told(was)}; now: {_told(is_)}"


def markdown(matrix: Matrix) -> str:
    """Return the report for a person: legend, table, differences."""
    measured = [column for column in matrix.columns if not column.broken]
    lines = list(_joined(matrix))
    differing = [line for line in lines if _differs(line, measured)]
    used = {cell.outcome for line in lines for cell in line.cells.values()}
    blocks = [
        f"# gpudiag under TensorFlow {', '.join(column.version for column in matrix.columns)}",
        f"> **Simulated GPUs ({matrix.gpus}): nothing here was measured on a real GPU.**",
        f"Every probe of gpudiag {matrix.gpudiag} under each TensorFlow, written by `python scripts/tf_matrix.py`; its "
        "`--check` says whether this still holds. A probe in which the versions differ is **bold**, its "
        "cells say what was found or measured, and the details are below the table.",
        "\n".join(f"- {status}: {meaning}" for status, meaning in MEANINGS.items() if status in used),
        _table(lines, differing, matrix.columns),
        "## Differences",
        "\n\n".join(_difference(line, measured) for line in differing) or _ALIKE[len(measured) > 1],
    ]
    broken = [f"- {column.version}: {_text(column.broken)}" for column in matrix.columns if column.broken]
    if broken:
        blocks += ["## Not measured", "\n".join(broken)]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _cell(row: Row) -> Cell:
    found = tuple(Found(finding.severity.value, finding.kind, one_line(finding.message)) for finding in row.findings)
    return Cell(row.status, words.figure(row), found)


def _column(version: str, report: Report | str) -> Column:
    if isinstance(report, str):
        return Column(version, broken=one_line(report))
    tensorflow, system = report.facts.tensorflow, report.facts.system
    python = system.python if isinstance(system, SystemFacts) else ""
    if not isinstance(tensorflow, TensorflowFacts):
        return Column(version, python=python)
    release = tensorflow.distributions[0].version if tensorflow.distributions else ""
    build = tensorflow.build
    cuda, cudnn = (build.cuda_version, build.cudnn_version) if build else (None, None)
    return Column(version, release, python, cuda or "", cudnn or "")


def _joined(matrix: Matrix) -> Iterator[Line]:
    """Yield the lines of the matrix, those of one probe that behave alike on several devices as one."""
    releases = matrix.releases()
    joined: dict[tuple[object, ...], Line] = {}
    for line in matrix.lines:
        alike = tuple(behaviour(line.cells.get(version), release) for version, release in releases.items())
        first = joined.setdefault((line.probe, alike), line)
        if first is not line:
            device = f"{first.device}, {line.device}"
            joined[line.probe, alike] = msgspec.structs.replace(first, device=device)
    yield from joined.values()


def _differs(line: Line, columns: Iterable[Column]) -> bool:
    return len({behaviour(line.cells.get(column.version), column.tensorflow) for column in columns}) > 1


def _table(lines: Sequence[Line], differing: Sequence[Line], columns: Sequence[Column]) -> str:
    rows = [
        (
            f"**`{line.probe}`**" if line in differing else f"`{line.probe}`",
            line.device,
            *(_shown(line.cells.get(column.version), column, differs=line in differing) for column in columns),
        )
        for line in lines
    ]
    headers = ("probe", "device", *map(_header, columns))
    return tabulate(rows, headers, tablefmt="github", disable_numparse=True)


def _header(column: Column) -> str:
    if column.broken:
        return f"TensorFlow {column.version}<br>not measured"
    cuda = f"CUDA {column.cuda}, cuDNN {column.cudnn}" if column.cuda else "no CUDA"
    return f"TensorFlow {column.tensorflow}<br>Python {column.python}<br>{cuda}"


def _shown(cell: Cell | None, column: Column, *, differs: bool) -> str:
    if cell is None:
        return "" if column.broken else "no row"
    said = cell.brief if differs or cell.outcome != "pass" else ""
    return _text(f"{cell.outcome}: {said}" if said else cell.outcome)


def _difference(line: Line, columns: Iterable[Column]) -> str:
    """Return what ``line`` came to, the versions that behave alike together."""
    alike: dict[tuple[object, ...], list[Column]] = {}
    for column in columns:
        alike.setdefault(behaviour(line.cells.get(column.version), column.tensorflow), []).append(column)
    items = [f"`{line.probe}`{f' on {line.device}' if line.device else ''}:"]
    for same in alike.values():
        releases = ", ".join(column.tensorflow for column in same)
        items.append(f"- {releases}: {_text(_told(line.cells.get(same[0].version)))}")
    return f"{items[0]}\n\n" + "\n".join(items[1:])


def _told(cell: Cell | None) -> str:
    return "no row" if cell is None else cell.full


def _text(text: str) -> str:
    """Return ``text`` so written that Markdown shows it as it is, in a table too."""
    return _MARKUP.sub(r"\\\g<0>", text)


class BrokenEnvironmentError(Exception):
    """No report could be had from an environment; the text says why."""


def measure(version: str, environment: Path, python: str) -> Report:
    """Return the report under the newest release of ``version``; its environment is made if it is not there.

    Raises :class:`BrokenEnvironmentError`.
    """
    own = environment / "bin" / "python"
    if not own.exists():
        _run([python, "-m", "venv", str(environment)], INSTALL_S, _installing())
    install = [str(own), "-m", "pip", "install", "--quiet", f"{ROOT}[tensorflow]", f"tensorflow=={version}.*"]
    _run(install, INSTALL_S, _installing())  # what is there and right stays, gpudiag alone is built again
    check = [str(environment / "bin" / "gpudiag"), "check", "--simulate", GPUS, "--format", "json", "--mask", "--quiet"]
    # Probes may fail or break; the folder keeps the checkout's own package and configuration out of the way.
    done = _run(check, CHECK_S, _clean(), folder=environment, allowed=(0, 1, 3, 5))
    try:
        return codec.decode(done, "its report")
    except ReportError as error:
        raise BrokenEnvironmentError(str(error)) from None


def _run(
    command: list[str], limit_s: float, environ: dict[str, str], folder: Path = ROOT, allowed: tuple[int, ...] = (0,)
) -> str:
    """Run ``command`` and return what it wrote; raises :class:`BrokenEnvironmentError` with its own words."""
    what = " ".join(Path(word).name for word in command[:3])
    try:
        done = subprocess.run(
            command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        raise BrokenEnvironmentError(f"{what}: no end within {limit_s:g} s") from None
    except OSError as error:
        raise BrokenEnvironmentError(f"{what}: {error.strerror}") from None
    if done.returncode not in allowed:
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        errors = [line for line in said if line.startswith("ERROR:")] or said or ["no word"]
        raise BrokenEnvironmentError(f"{what}: exit status {done.returncode}: {errors[-1].replace(str(ROOT), '.')}")
    return done.stdout


def _installing() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}


def _clean() -> dict[str, str]:
    """Return an environment in which nothing configures TensorFlow, CUDA or gpudiag."""
    kept = ("PATH", "HOME", "TMPDIR", "LANG")
    return {name: os.environ[name] for name in kept if name in os.environ}


def measured(versions: Iterable[str], environments: Path | None, python: str) -> dict[str, Report | str]:
    """Return a report for each version, or why there is none."""
    reports: dict[str, Report | str] = {}
    for version in versions:
        print(f"TensorFlow {version} ...", file=sys.stderr, flush=True)
        place = nullcontext(environments) if environments else tempfile.TemporaryDirectory(prefix="gpudiag-matrix-")
        with place as folder:
            assert folder is not None
            try:
                reports[version] = measure(version, Path(folder).resolve() / version, python)
            except BrokenEnvironmentError as broken:
                reports[version] = str(broken)
                print(f"TensorFlow {version}: {broken}", file=sys.stderr, flush=True)
    return reports


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, then write or compare; return 1 where an environment is broken or a cell differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where the committed report differs")
    parser.add_argument("--versions", nargs="+", default=VERSIONS, metavar="VERSION", help="default: %(default)s")
    parser.add_argument("--environments", type=Path, help="folder that keeps the environments (default: none is kept)")
    parser.add_argument("--python", default=sys.executable, help="interpreter of new environments (default: this one)")
    parser.add_argument("-o", "--output", type=Path, default=REPORTS, help="folder of the reports (default: reports)")
    options = parser.parse_args(arguments)
    for version in options.versions:
        if not re.fullmatch(r"\d+\.\d+", version):
            parser.error(f"{version!r} is not a version such as {VERSIONS[-1]}")
    saved = options.output / f"{NAME}.json"
    committed = None
    if options.check:
        try:
            committed = msgspec.json.decode(saved.read_bytes(), type=Matrix)
        except (OSError, msgspec.DecodeError) as error:
            parser.error(f"{saved}: {error}")
    reports = measured(options.versions, options.environments, options.python)
    now = join(reports)
    if committed is not None:
        found = list(differences(committed, now))
        print("\n".join(found) or f"{saved.name}: as committed")
        return 1 if found or any(column.broken for column in now.columns) else 0
    saved.write_bytes(msgspec.json.format(msgspec.json.encode(now), indent=2) + b"\n")
    saved.with_suffix(".md").write_text(markdown(now), encoding="utf-8")
    return 1 if any(column.broken for column in now.columns) else 0


if __name__ == "__main__":
    sys.exit(main())
