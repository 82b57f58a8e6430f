"""The family ``environment``: variables that reach TensorFlow, CUDA or a launcher, by an allow-list."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping

from gpudiag.facts import printable
from gpudiag.hostfacts import EnvironmentFacts
from gpudiag.variables import CLUSTER, CONTEXT, NO_JSON, SETTINGS, WITHHELD, misspelling_of

_RECORDED = ("CUBLAS_", "CUDA_", "CUDNN_", "GPUDIAG_", "NCCL_", "NVIDIA_", "TF_", "XLA_")
"""Variables of these beginnings are recorded, also misspelt ones; of an unknown name the name alone."""
_VALUES_RECORDED = ("GPUDIAG_", "NCCL_", "XLA_")
_TERRAFORM = ("TF_CLI_", "TF_TOKEN_", "TF_VAR_")  # another program's variables, which often hold credentials
_SECRET = re.compile(r"AUTH|COOKIE|CREDENTIAL|KEY|PASS|PRIVATE|SECRET|TOKEN")
_LOGIN_IN_URL = re.compile(r"://[^/\s]*@")


def gather(environ: Mapping[str, str] = os.environ) -> EnvironmentFacts:
    """Return the recorded variables of ``environ``, sorted by name, without values that can hold a secret."""
    return EnvironmentFacts(
        {printable(name): _value(name, environ[name]) for name in sorted(environ) if _is_recorded(name.upper())}
    )


def _is_recorded(name: str) -> bool:
    return name in SETTINGS | CONTEXT or (name.startswith(_RECORDED) and not name.startswith(_TERRAFORM))


def _value(name: str, value: str) -> str:
    if name == CLUSTER:
        return _cluster(value)
    known = name in SETTINGS | CONTEXT or name.startswith(_VALUES_RECORDED) or misspelling_of(name) is not None
    withheld = not known or _SECRET.search(name) or _LOGIN_IN_URL.search(value)
    return WITHHELD if withheld else printable(value)


def _cluster(value: str) -> str:
    """Return ``TF_CONFIG`` with the number of each job's tasks in place of their addresses."""
    try:
        told = json.loads(value)
    except ValueError:
        return NO_JSON
    try:
        tasks = {str(job): len(addresses) for job, addresses in told["cluster"].items()}
        task = {"type": str(told["task"]["type"]), "index": int(told["task"]["index"])}
    except (AttributeError, KeyError, TypeError, ValueError):
        return WITHHELD
    return json.dumps({"cluster": tasks, "task": task})
