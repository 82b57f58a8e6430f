"""The family ``environment``: variables that affect TensorFlow, CUDA or a launcher, by an allow-list."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from gpudiag.facts import printable, start_files
from gpudiag.hardware import ports, processes
from gpudiag.hardware.peers import MOST
from gpudiag.hardware.peers import asked as asked_peers
from gpudiag.interpreter import asked
from gpudiag.knowledge.variables import (
    CLUSTER,
    CONTEXT,
    NO_JSON,
    PRELOAD,
    PRELOAD_FILE,
    SETTINGS,
    WITHHELD,
    misspelling_of,
)
from gpudiag.model.facts import EnvironmentFacts, TakenPort

_RECORDED = ("CUBLAS_", "CUDA_", "CUDNN_", "GPUDIAG_", "NCCL_", "NVIDIA_", "TF_", "XLA_")
"""Prefixes of recorded variables, so that misspelt ones are recorded too; of an unknown variable only the name is
recorded."""
_VALUES_RECORDED = ("GPUDIAG_", "NCCL_", "XLA_")
_TERRAFORM = ("TF_CLI_", "TF_TOKEN_", "TF_VAR_")  # another program's variables, which often hold credentials
_SECRET = re.compile(r"AUTH|COOKIE|CREDENTIAL|KEY|PASS|PRIVATE|SECRET|TOKEN")
_LOGIN_IN_URL = re.compile(r"://[^/\s]*@")


def gather(environ: Mapping[str, str] = os.environ) -> EnvironmentFacts:
    """Return the recorded variables of ``environ``, sorted by name, without values that may be secret."""
    return EnvironmentFacts(
        {printable(name): _value(name, environ[name]) for name in sorted(environ) if _is_recorded(name.upper())},
        _set_by_python(SETTINGS & environ.keys()),
        *_keras_backend(environ),
        _silent_tasks(environ.get(CLUSTER, "")),
        _port_taken(environ.get(CLUSTER, ""), environ),
        provenance=tuple(found for found in start_files.provenance(environ) if _is_recorded(found.name.upper())),
    )


def _keras_backend(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return what Keras computes with, and the variable or file that says so, as ``keras/src/backend/config.py``."""
    if name := environ.get("KERAS_BACKEND"):
        return printable(name), "KERAS_BACKEND"
    folder = environ.get("KERAS_HOME") or f"{environ.get('HOME', '~')}/.keras"
    file = Path(folder, "keras.json")
    try:
        chosen = json.loads(file.read_text()[:_MOST_JSON])["backend"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "", ""
    return printable(str(chosen)[:100]), printable(str(file))


_MOST_JSON = 10_000
_WITHIN_S = 0.5
_NOT_JOINED = "evaluator"
"""The job whose task joins no cluster."""


def _addresses(config: str) -> tuple[str, dict[str, str]]:
    """Return the own task of ``TF_CONFIG``, such as ``worker 0``, and the address of each task; none if it has none."""
    try:
        known = json.loads(config)
        own = f"{known['task']['type']} {known['task']['index']}"
        jobs = [(job, tasks) for job, tasks in known["cluster"].items() if job != _NOT_JOINED]
        return own, {f"{job} {index}": str(task) for job, tasks in jobs for index, task in enumerate(tasks)}
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return "", {}


def _silent_tasks(config: str) -> dict[str, str]:
    """Return the other tasks of ``TF_CONFIG`` that do not accept a connection, each with the error."""
    own, tasks = _addresses(config)
    others = {task: address for task, address in list(tasks.items())[:MOST] if task != own}
    answers = asked_peers(others.values(), _WITHIN_S)
    return {printable(task): printable(answers[address]) for task, address in others.items() if answers[address]}


def _port_taken(config: str, environ: Mapping[str, str]) -> TakenPort | None:
    """Return the port of the own task of ``TF_CONFIG``, and who listens there; None if nobody does."""
    own, tasks = _addresses(config)
    port = tasks.get(own, "").rpartition(":")[2]
    if not (port.isascii() and port.isdecimal()):
        return None
    is_taken, pid = ports.listening(int(port))
    if not is_taken:
        return None
    return TakenPort(int(port), pid, None if pid is None else processes.identify(pid, environ=environ))


_STARTED = """
import site
answer = {}
def note(file):
    answer.update((name, file) for name in sys.argv[1:] if name in os.environ and name not in answer)
def noting(name, file_of):
    done = getattr(site, name)
    def run(*given, **named):
        result = done(*given, **named)
        note(file_of(*given))
        return result
    setattr(site, name, run)
note("")
noting("addpackage", lambda folder, name, *_: os.path.join(folder, name))
for module in ("sitecustomize", "usercustomize"):
    noting("exec" + module, lambda module=module: getattr(sys.modules.get(module), "__file__", None) or module)
site.main()
"""
_STARTED_S = 5


def _set_by_python(names: Collection[str]) -> dict[str, str]:
    """Return the variables in ``names`` that a new interpreter has although it started without them, with their origin.

    The origin is a file that Python runs when it starts, or a preloaded library, as :data:`PRELOAD` or
    :data:`PRELOAD_FILE`, whichever names it.
    """
    if not names or not sys.executable:
        return {}
    sources = _started_without(names)
    if before := [name for name, file in sources.items() if not file]:
        still = _started_without([*names, PRELOAD]) if PRELOAD in os.environ else sources
        sources |= {name: PRELOAD if still.get(name) != "" else PRELOAD_FILE for name in before}
    return {name: printable(file) for name, file in sources.items()}


def _started_without(names: Collection[str]) -> dict[str, str]:
    """Return the variables in ``names`` that Python sets at its start, with the file that sets each; "" if no file
    was read before."""
    without = {name: value for name, value in os.environ.items() if name not in names}
    try:
        # -S: the script starts what is left out, and looks after each file.
        found = json.loads(asked(_STARTED, *sorted(names), env=without, timeout_s=_STARTED_S, options=("-S",)))
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    return dict(found)


def _is_recorded(name: str) -> bool:
    return name in SETTINGS | CONTEXT or (name.startswith(_RECORDED) and not name.startswith(_TERRAFORM))


def recorded(name: str, value: str) -> str:
    """Return the part of a variable's value that may be shown: the value, or :data:`WITHHELD`."""
    return _value(name, value)


def _value(name: str, value: str) -> str:
    if name == CLUSTER:
        return _cluster(value)
    known = name in SETTINGS | CONTEXT or name.startswith(_VALUES_RECORDED) or misspelling_of(name) is not None
    withheld = not known or _SECRET.search(name) or _LOGIN_IN_URL.search(value)
    return WITHHELD if withheld else printable(value)


def _cluster(value: str) -> str:
    """Return ``TF_CONFIG`` with the number of each job's tasks in place of their addresses."""
    try:
        cluster = json.loads(value)
    except (ValueError, RecursionError):
        return NO_JSON
    try:
        tasks = {str(job): _tasks(addresses) for job, addresses in cluster["cluster"].items()}
        task = {"type": str(cluster["task"]["type"]), "index": int(cluster["task"]["index"])}
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return WITHHELD
    return json.dumps({"cluster": tasks, "task": task})


def _tasks(addresses: object) -> int:
    if not isinstance(addresses, list | dict):  # tf.train.ClusterSpec takes both, and not a single address
        raise TypeError
    return len(addresses)
