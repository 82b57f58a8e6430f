"""What the simulator's tests share: machines, and checks that run inside a process of one."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gpudiag.simulator import Machine, MachineSpec, SimulatedGpu
from gpudiag.simulator.spec import _placed

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
# For child processes: the modules of this one, so that the package under test is the same, installed or not.
MODULES = os.pathsep.join(entry for entry in sys.path if entry)
GIB = 1 << 30
MIB = 1 << 20
TENSORFLOW = tuple(int(part) for part in importlib.metadata.version("tensorflow").split(".")[:2])


def cards(count: int, **features: Any) -> MachineSpec:
    """A machine whose figures are exact: 8 GiB, compute capability 8.0, contexts cost nothing."""
    gpu = SimulatedGpu(**{"memory": 8 * GIB, "context_overhead": 0, **features})
    return MachineSpec(gpus=_placed([gpu] * count))


@dataclass
class Outcome:
    """What a check inside a process gave."""

    value: Any
    error: str
    text: str
    log: str
    code: int
    timed_out: bool
    seconds: float

    def check(self) -> Any:
        assert not self.timed_out, f"deadline passed\n{self.log[-3000:]}"
        assert not self.error, f"{self.error} {self.text}\n{self.log[-3000:]}"
        assert self.code == 0, f"exit code {self.code}\n{self.log[-3000:]}"
        return self.value


class ForkServer:
    """fork_server.py in a process of its own."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        machine = self._stack.enter_context(Machine(cards(1)))
        from_here, to_server = os.pipe()
        from_server, to_here = os.pipe()
        fds = [from_here, to_here]
        environment = machine.environment()
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        # A child leaves without exit handlers, and so does not remove what AutoGraph wrote.
        environment["TMPDIR"] = self._stack.enter_context(TemporaryDirectory(prefix="gpudiag-"))
        process = subprocess.Popen(
            [sys.executable, str(HERE / "fork_server.py"), *map(str, fds)],
            env={**environment, "PYTHONPATH": MODULES},
            stderr=subprocess.DEVNULL,
            pass_fds=fds,
        )
        self._stack.callback(process.wait, 400)
        for fd in fds:
            os.close(fd)
        self._answers = self._stack.enter_context(os.fdopen(from_server))
        self._requests = self._stack.enter_context(os.fdopen(to_server, "w"))

    def ask(self, request: dict[str, Any]) -> Outcome:
        self._requests.write(json.dumps(request) + "\n")
        self._requests.flush()
        line = self._answers.readline()
        assert line, "the fork server died"
        answer = json.loads(line)
        return Outcome(
            value=answer.get("value"),
            error=answer.get("error", ""),
            text=answer.get("text", ""),
            log=answer["log"],
            code=answer["code"],
            timed_out=answer["timed_out"],
            seconds=answer["seconds"],
        )

    def close(self) -> None:
        self._stack.close()


class Inside:
    """Call a function of inside.py in a fresh process of a simulated machine."""

    def __init__(self, server: ForkServer) -> None:
        self._server = server

    def __call__(
        self,
        spec: MachineSpec | str | int,
        function: str,
        *,
        faults: tuple[str, ...] = (),
        environment: Mapping[str, str | None] | None = None,
        deadline: float = 300,
        **arguments: Any,
    ) -> Outcome:
        machine_spec = cards(spec) if isinstance(spec, int) else spec
        with Machine(machine_spec, faults) as machine:
            return self.on(machine, function, environment=environment, deadline=deadline, **arguments)

    def on(
        self,
        machine: Machine,
        function: str,
        *,
        environment: Mapping[str, str | None] | None = None,
        deadline: float = 300,
        **arguments: Any,
    ) -> Outcome:
        changes = {"GPUDIAG_SIM_MACHINE": str(machine.directory), **(environment or {})}
        return self._server.ask(
            {
                "function": function,
                "arguments": arguments,
                "environment": changes,
                "deadline": deadline,
            }
        )


def run_python(
    machine: Machine, *arguments: str, deadline: float = 300, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter on the machine."""
    base = machine.environment()
    base.pop("CUDA_VISIBLE_DEVICES", None)
    base.update(environment)
    return subprocess.run(
        [sys.executable, *arguments], env=base, capture_output=True, text=True, timeout=deadline, check=False
    )
