"""CUDA is set to use an MPS daemon, but none answers

If a control daemon of MPS is found in CUDA_MPS_PIPE_DIRECTORY, or in /tmp/nvidia-mps, every CUDA program goes through
it, and none works if it does not answer: it was killed and its socket is still there, belongs to another user, or is on
the host while this is a container that shares its folder and not its IPC namespace. cuInit fails with 805 and the like:
"MPS client failed to connect to the MPS control daemon or the MPS server".
"""

from __future__ import annotations

import re
from shlex import quote

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.gpu_state import meaning
from gpudiag.causes.shared.machine import container
from gpudiag.causes.shared.steps import CuInitFailed
from gpudiag.fix import Action, Kind, Role, Where, check, configure, note, run, run_container, unset
from gpudiag.knowledge.variables import MPS_CONTROL, MPS_FOLDER, MPS_PIPES, mps_folder
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts, MpsFacts, PathAttempt, TriedFacts, Unknown

CAUSE = Cause(
    title="CUDA {uses} an MPS daemon, but {why}",
    fix=(
        configure("nvidia-cuda-mps-control -d", "starts the daemon"),
        unset(MPS_PIPES, note="runs programs without the daemon", role=Role.ALTERNATIVE),
        run(f"rm -r {MPS_FOLDER}", "removes what a killed daemon left", kind=Kind.REMOVE),
    ),
    url="https://docs.nvidia.com/deploy/mps/index.html",
)


def find(failed: CuInitFailed, tried: TriedFacts, facts: Facts) -> Matches:
    if not re.search(r"\bCUDA_ERROR_MPS_|MPS client", failed):
        return
    control = next((attempt for attempt in tried.connected if attempt.path.endswith("/control")), None)
    folder = control.path.rpartition("/")[0] if control else mps_folder(facts.variables)
    is_absolute = folder.startswith("/")
    refused = control is not None and control.error is not None
    if full := re.search(r"CUDA_ERROR_MPS_MAX_(CLIENTS|CONNECTIONS)_REACHED", failed):
        what = "processes" if full[1] == "CLIENTS" else "connections"
        yield Match(
            evidence=(f"cuInit: {failed}",),
            confidence=Confidence.LIKELY,
            figures={"uses": _uses(facts), "why": f"the daemon serves as many {what} as it can"},
            fix=(
                note("start fewer programs at once, or wait until one of them ends", kind=Kind.NONE),
                check(f"echo ps | {MPS_CONTROL}", "lists the clients"),
                CAUSE.fix[1] if MPS_PIPES in facts.variables else None,
            ),
        )
        return
    if control is not None and control.error in ("EACCES", "EPERM"):
        yield _kept_by_owner(control, failed, facts)
        return
    why = (
        f"nobody answers at {folder}/control: {meaning(control.error)}"
        if control is not None and refused
        else f"its server ends: {tried.mps.failure}"
        if tried.mps is not None and tried.mps.failure
        else f"the daemon at {folder} answers but does not serve this program"
        if control is not None
        else "it cannot be reached"
    )
    yield Match(
        evidence=(
            f"cuInit: {failed}",
            *([f"connect {control.path}: {meaning(control.error)}"] if control is not None and refused else []),
            *([f"{tried.mps.known_by}: {tried.mps.failure}"] if tried.mps is not None and tried.mps.failure else []),
        ),
        confidence=Confidence.PROVED if refused else Confidence.LIKELY,
        figures={"why": why, "uses": _uses(facts)},
        fix=(
            # Without a variable that names no folder the machine's own daemon is asked.
            None if is_absolute else CAUSE.fix[1].replaced(role=Role.FIX),
            _of_the_daemon(tried.mps, facts)
            if tried.mps is not None and tried.mps.failure
            else run_container("--ipc=host", f"-v {MPS_FOLDER}:{MPS_FOLDER}", note="shares the host's daemon")
            if container(facts)
            else configure(
                "echo quit | nvidia-cuda-mps-control; nvidia-cuda-mps-control -d", "as the user whose programs use it"
            ),
            CAUSE.fix[1] if MPS_PIPES in facts.variables and is_absolute else None,
            run(f"rm -r {quote(folder)}", "removes what a killed daemon left", kind=Kind.REMOVE)
            if refused and is_absolute
            else None,
        ),
        tried=CAUSE.fix[1] if MPS_PIPES in facts.variables and is_absolute else None,
    )


def _of_the_daemon(daemon: MpsFacts, facts: Facts) -> Action:
    """Return what is done where the daemon runs, if its server ends by itself: a program cannot mend it."""
    log = f"{daemon.known_by.rpartition('/')[0]}/server.log"
    if container(facts):
        clause = f"ask the administrators to start the daemon of this node again, and to look into {log}"
        return note(clause, kind=Kind.ASK_ADMIN)
    return check(f"tail -n 30 {quote(log)}", "shows why the server ends; then start the daemon again")


def _uses(facts: Facts) -> str:
    return "is set to use" if MPS_PIPES in facts.variables else "looks for"


def _kept_by_owner(control: PathAttempt, failed: str, facts: Facts) -> Match:
    """Return the match if the daemon's folder belongs to another user and is closed to this one."""
    folder, owner = control.path.rpartition("/")[0], control.owner or "another user"
    user = "this user" if isinstance(facts.system, Unknown) else facts.system.user
    inside = container(facts)
    kubernetes = not isinstance(facts.container, Unknown) and facts.container.kubernetes
    return Match(
        evidence=(f"cuInit: {failed}", f"connect {control.path}: {meaning(control.error)}; it belongs to {owner}"),
        confidence=Confidence.PROVED,
        figures={"why": f"{folder} belongs to {owner} and is closed to user {user}", "uses": _uses(facts)},
        fix=(
            configure(
                f"sudo chmod a+rx {quote(folder)}",
                "lets other users connect; the folders above it must let them through, too",
                where=Where.HOST if inside else Where.HERE,
            ),
            note(f"or in the pod: securityContext.runAsUser, with the number of {owner}", kind=Kind.START_CONTAINER)
            if kubernetes
            else run_container(f"--user $(id -u {owner})", "--ipc=host", note="or runs as its owner")
            if inside
            else configure("CUDA_MPS_PIPE_DIRECTORY=$HOME/mps nvidia-cuda-mps-control -d", "or a daemon of one's own"),
            CAUSE.fix[1] if MPS_PIPES in facts.variables else None,
        ),
        tried=CAUSE.fix[1] if MPS_PIPES in facts.variables else None,
    )
