"""A report in one line of at most 4,096 bytes: what it says for people, and its summary for a fleet.

It is the termination message of a container, which stands in the status of its pod, and an annotation of a node.
"""

from __future__ import annotations

from msgspec.structs import replace

from gpudiag.fleet.nodes import labels_of
from gpudiag.fleet.summary import summarized
from gpudiag.model.codec import encoded
from gpudiag.model.fleet import FactKind, Summary
from gpudiag.model.frame import SUMMARY, framed
from gpudiag.model.report import Report
from gpudiag.text import one_line

MOST = 4096
"""The most bytes of a termination message; kubelet cuts the rest away.
https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/"""
_MOST_TEXT = 500


def digest(report: Report) -> str:
    """Return the line, with its newline. If it were too long, figures, facts and actions are left out, in that
    order."""
    summary = summarized(report)
    text = text_of(summary)
    smaller = replace(summary, figures={})
    without_facts = replace(smaller, facts={}, unread=tuple(FactKind))
    for kept in (summary, smaller, without_facts, replace(without_facts, actions=())):
        line = f"{text} {framed(encoded(kept), SUMMARY)}"
        if len(line.encode()) <= MOST:
            return line
    return f"{text}\n"


def text_of(summary: Summary) -> str:
    """Return the verdict, the first cause and the headline, at most 500 characters."""
    label = next(iter(labels_of(summary)), "")
    return one_line(": ".join(filter(None, [" ".join([summary.verdict.value, label]), summary.headline])))[:_MOST_TEXT]
