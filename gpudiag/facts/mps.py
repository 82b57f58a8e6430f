"""What a daemon of MPS says of its limits, to whoever may ask it or read its logs. Part of the family ``tried``.

NVIDIA documents the commands (https://docs.nvidia.com/deploy/mps/). It answers ``25.0`` and ``3G``. Its logs say
``Cmd:set_default_device_pinned_mem_limit 0 4606M`` (https://github.com/NVIDIA/k8s-device-plugin/issues/764), ``Active
Threads Percentage set to 33.0``, ``Device pinned memory limit for device 0 set to 0x140000000 bytes``
(https://github.com/bottlerocket-os/bottlerocket-kernel-kit/pull/415) and ``Server 95 exited with status 1``
(https://github.com/NVIDIA/k8s-device-plugin/issues/685).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpudiag.facts import printable
from gpudiag.knowledge.variables import MPS_CONTROL
from gpudiag.model.facts import MpsFacts
from gpudiag.trust import distrust

_ANSWERS_S = 1.0
"""Seconds for all answers of the daemon."""
_MOST_DEVICES = 8
_LOG_BYTES = 64 << 10
_SAID = re.compile(
    r"(?:Active Threads Percentage set to|Cmd:set_default_active_thread_percentage) (?P<share>\d{1,3}(?:\.\d{1,3})?)\b"
    r"|(?:limit for device|Cmd:set_default_device_pinned_mem_limit) (?P<device>\S{1,60}) (?:set to )?(?P<size>\w{1,20})"
    r"|(?P<failure>Server \d{1,9} exited with status [1-9]\d{0,2}|Failed to start ?:.{0,100})"
)
_UNITS = "BKMGT"


def gather(root: Path, pipes: str, devices: int, environ: Mapping[str, str] = os.environ) -> MpsFacts:
    """Return what the daemon in the folder ``pipes`` says of its limits; ``devices`` is the number of GPUs here."""
    share, failure = None, ""
    memory: dict[str, int] = {}
    known_by = ""
    for file, text in _logs(root, pipes, environ):
        for said in _SAID.finditer(text):
            share = float(said["share"]) if said["share"] else share
            if said["device"]:
                memory[printable(said["device"])] = _bytes(said["size"])
            failure = printable(said["failure"] or failure)
            known_by = file
    asked, why_not = _asked(devices) if root == Path("/") else ({}, "")
    if asked:
        share = float(asked.pop("", share or 0)) or None
        memory |= {device: _bytes(answer) for device, answer in asked.items()}
        known_by = MPS_CONTROL
    memory = {device: size for device, size in memory.items() if size}
    return MpsFacts(share, memory, failure, known_by, why_not)


def _asked(devices: int) -> tuple[dict[str, str], str]:
    """Return the daemon's share of threads, as "", and its limit of memory of each GPU; or why it was not asked."""
    program = shutil.which(MPS_CONTROL)
    if program is None:
        return {}, f"{MPS_CONTROL} is not here"
    if reason := distrust(Path(program)):
        return {}, f"{program}: {reason}"
    answers: dict[str, str] = {}
    until = time.monotonic() + _ANSWERS_S
    commands = {"": "get_default_active_thread_percentage"}
    commands |= {
        str(index): f"get_default_device_pinned_mem_limit {index}" for index in range(min(devices, _MOST_DEVICES))
    }
    for key, command in commands.items():
        try:
            done = subprocess.run(
                [program],
                input=f"{command}\n",
                capture_output=True,
                text=True,
                errors="replace",
                timeout=max(0.1, until - time.monotonic()),
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            return answers, f"{MPS_CONTROL}: {type(error).__name__}"
        answer = done.stdout.strip()
        if re.fullmatch(r"\d{1,12}(?:\.\d{1,6})?[KMGT]?B?", answer):
            answers[key] = answer
        elif not key:  # no daemon, or none that answers this user
            return {}, printable(f"{MPS_CONTROL} answers {(answer or done.stderr.strip() or 'nothing')[:100]!r}")
    return answers, ""


def _logs(root: Path, pipes: str, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the path and the end of each log of the daemon, the daemon's own first, then its servers'.

    They lie where ``CUDA_MPS_LOG_DIRECTORY`` says, by default in /var/log/nvidia-mps; the plugin of Kubernetes has them
    beside the folder of the pipes.
    """
    named = environ.get("CUDA_MPS_LOG_DIRECTORY", "")
    beside = f"{Path(pipes).parent}/log" if pipes.endswith("/pipe") else ""
    candidates = filter(None, (named, beside, "/var/log/nvidia-mps"))
    folder = next((found for found in candidates if (root / found[1:]).is_dir()), "")
    for name in ("control.log", "server.log") if folder else ():
        try:
            with (root / folder[1:] / name).open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_BYTES))
                yield f"{folder}/{name}", file.read(_LOG_BYTES).decode(errors="replace")
        except OSError:
            continue


def _bytes(text: str) -> int:
    """Return a size such as ``4606M``, ``3G`` or ``0x140000000`` in bytes; 0 if it is none."""
    digits, unit = text.rstrip("B").rstrip(_UNITS), text.rstrip("B")[-1:]
    try:
        return int(digits, 16) if digits.startswith("0x") else int(digits) << 10 * max(0, _UNITS.find(unit))
    except ValueError:
        return 0
