"""the driver's first calls are slow: each program waits for them before it can use a GPU

The first call of the driver in a process sets up every GPU that no other process holds open. Without persistence mode
the driver unloads a GPU's state when its last user leaves, so that the next program waits again: seconds for each GPU,
more with ECC memory that is cleared or NVLink that is trained. A GPU that fails and is reset, a hypervisor, or a
folder of libraries on a slow network does the same. gpudiag measured it in a process that did nothing else.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Gpus, Match, Matches
from gpudiag.causes.shared.libraries import slowest
from gpudiag.fix import Role, configure, kernel_log
from gpudiag.model.facts import SLOW_S, CallFacts, Facts
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{calls}, in every process: each program waits for it before it can use a GPU",
    severity=Severity.WARNING,
    fix=(
        configure("sudo nvidia-smi -pm 1", "switches persistence mode on: the driver stays loaded"),
        configure(
            "sudo systemctl enable --now nvidia-persistenced",
            "does the same, also after a reboot",
            role=Role.ALTERNATIVE,
        ),
        kernel_log("if persistence mode is already on, shows whether a GPU fails"),
    ),
    url="https://docs.nvidia.com/deploy/driver-persistence/index.html",
    finding="host.driver.call_slow",
    views=("discovery.first_op.slow_driver",),
)


def find(calls: CallFacts, facts: Facts, gpus: Gpus) -> Matches:
    known = [call for call in calls.calls if call.of_driver and call.seconds is not None]
    if slow := slowest(known, gpus):
        kept = [device.state.persistence for device in facts.nvml_devices]
        quick = {call.name: call.seconds or 0.0 for call in known if (call.seconds or 0.0) < SLOW_S}
        others = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in quick.items())
        yield Match(
            evidence=(
                *(f"{name} took {seconds:.1f} s" for name, seconds in slow.items()),
                *([f"the other first calls: {others}"] if others else []),
            ),
            figures={"calls": " and ".join(f"{name} takes {seconds:.0f} s" for name, seconds in slow.items())},
            fix=CAUSE.fix[2:] if kept and all(kept) else (),
        )
