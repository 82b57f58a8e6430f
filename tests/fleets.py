"""Fleets for tests: reports of nodes, and a command that gives each node the answer that a test prepared for it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
import pytest

from gpudiag.fix import Action
from gpudiag.fleet.summary import summarized
from gpudiag.model import frame
from gpudiag.model.codec import encoded
from gpudiag.model.diagnosis import Confidence, Diagnosis, RootCause, Stage
from gpudiag.model.fleet import Answer, NoReport
from gpudiag.model.report import Report, conclude
from reports import GPUS, passed, report, row


def require(*packages_of_commands: str) -> None:
    """Skip a test whose servers are not installed, or fail it in CI, whose script installs them.

    Each argument is ``COMMAND:PACKAGE``, the package of Debian. Debian's daemons are in /usr/sbin, which a user may
    lack in ``PATH``.
    """
    path = f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin"
    missing = [
        package
        for command, _, package in (pair.partition(":") for pair in packages_of_commands)
        if shutil.which(command, path=path) is None
    ]
    if missing:
        reason = f"needs apt-get install --no-install-recommends {' '.join(missing)}"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


def healthy() -> Report:
    """Return the report of a node that passes."""
    return report(row("placement.log", passed("8 of 8", on=GPUS), *GPUS), gpus=GPUS)


def unfit(
    cause_id: str = "mask_hides_all", cause: str = "CUDA_VISIBLE_DEVICES='7' hides all GPUs", *fix: Action
) -> Report:
    """Return the report of a node that fails for a proved cause."""
    found = RootCause(cause_id, Stage.DEVICE_FILTER, Confidence.PROVED, cause, ("the variable",), fix, "", unfit=True)
    whole = msgspec.structs.replace(healthy(), diagnosis=Diagnosis(causes=(found,)))
    return conclude(whole)


def framed(of: Report) -> str:
    """Return the line that a node writes."""
    return frame.framed(encoded(of))


def answer(node: str, of: Report | NoReport, attempt: int = 1) -> Answer:
    """Return the answer of a node: its report, or the reason why it has none."""
    if isinstance(of, NoReport):
        return Answer(node, attempt, of, f"the last line of {node}")
    return Answer(node, attempt, summary=summarized(of))


class PreparedNodes:
    """The answers of nodes, and the command that gives them, for ``--gpudiag``.

    A node's answer is a file with its name: what the command prints, or a script that it runs. The name of the node is
    in ``GPUDIAG_NODE``, or is the last word of the command line that ends with ``node=NAME``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.command = folder / "gpudiag"
        self.command.write_text(
            "#!/bin/sh\n"
            "for word do case $word in node=*) GPUDIAG_NODE=${word#node=} ;; esac; done\n"
            f'answer={folder}/"$GPUDIAG_NODE".answer\n'
            '[ -x "$answer" ] && exec "$answer" "$@"\n'
            'cat "$answer"\n'
        )
        self.command.chmod(0o755)

    def prints(self, nodes: str, text: str | Report) -> None:
        """Let these nodes, parted by blanks, print a text, or a report."""
        for node in nodes.split():
            (self.folder / f"{node}.answer").write_text(text if isinstance(text, str) else framed(text))

    def runs(self, nodes: str, script: str) -> None:
        """Let these nodes run a script of the shell; ``$REPORT`` in it is the line of a report that passes."""
        for node in nodes.split():
            file = self.folder / f"{node}.answer"
            file.write_text(f"#!/bin/sh\nREPORT='{framed(healthy()).strip()}'\n{script}\n")
            file.chmod(0o755)
