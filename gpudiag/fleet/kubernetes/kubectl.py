"""The user's own kubectl, and its errors in words that say what to do."""

from __future__ import annotations

from collections.abc import Sequence

from gpudiag.fleet.launcher import Done, launch
from gpudiag.text import one_line

_PATIENCE_S = 60.0
"""The most time of one command; a list of 10,000 nodes takes seconds."""
_ROLE = "'gpudiag fleet manifest rbac' prints the role that is needed"
_FAULTS = (
    ("localhost:8080", "kubectl knows no cluster: set KUBECONFIG, or give --engine-option=--context=NAME"),
    ("(Forbidden)", f"this user lacks a permission; {_ROLE}"),
    (" is forbidden:", f"this user lacks a permission; {_ROLE}"),
    ("(Unauthorized)", "the API server does not accept the credentials of kubectl: log in again"),
    ("provide credentials", "the API server does not accept the credentials of kubectl: log in again"),
    ("was refused", "the API server does not answer: 'kubectl cluster-info' shows which one is asked"),
    ("Unable to connect", "the API server does not answer: 'kubectl cluster-info' shows which one is asked"),
)
"""What stands in an error of kubectl, and what that means."""


class Kubectl:
    """Runs kubectl with the user's options, such as ``--context=NAME`` or ``-n`` and ``NAMESPACE``."""

    def __init__(self, options: Sequence[str] = ()) -> None:
        self._words = ("kubectl", *options)

    async def __call__(self, *arguments: str, given: bytes | None = None, deadline_s: float = _PATIENCE_S) -> Done:
        """Run a command of kubectl; raises nothing."""
        return await launch((*self._words, *arguments), deadline_s, given=given)


def fault_of(done: Done) -> str:
    """Return why a command of kubectl failed, and what to do; "" if it did not fail."""
    if done.status == 0 and not done.timed_out:
        return ""
    if done.status is None:
        return (
            f"{done.errors}: install kubectl, such as by 'apt-get install kubernetes-client', or see "
            "https://kubernetes.io/docs/tasks/tools/"
        )
    if done.timed_out:
        return f"kubectl was ended after {done.seconds:.0f} s: {done.last_line or 'it wrote nothing'}"
    return explained(done.last_line or f"kubectl ended with {done.status}")


def explained(line: str) -> str:
    """Return a line of kubectl, after what it means, if that is known."""
    line = one_line(line)
    return next((f"{meaning}: {line}" for words, meaning in _FAULTS if words in line), line)
