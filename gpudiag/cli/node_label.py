"""`gpudiag fleet label`: the verdict of a report, written on the Kubernetes node of this pod."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path

import click

from gpudiag.cli.help import Command
from gpudiag.cli.options import debug_option
from gpudiag.text import say


@click.command(cls=Command)
@click.argument("report", type=click.Path(path_type=Path))
@debug_option
def label(*, report: Path) -> int:
    """Write the verdict of REPORT (JSON) on the Kubernetes node of this pod: label gpudiag/verdict, annotations.

    For the pods of 'gpudiag fleet manifest daemonset'. Changes nothing else of the node: it drains and taints nothing.
    Exit status: 0 if the node has the label, 2 if not.
    """
    from gpudiag.fleet.kubernetes import node_label

    change = node_label.change_for(report, datetime.now(timezone.utc).isoformat(timespec="seconds"))
    node = node_label.write(change, os.environ)
    say(f"gpudiag: {node} has the label {node_label.VERDICT}={change['metadata']['labels'][node_label.VERDICT]}")
    return 0
