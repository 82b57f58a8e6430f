"""CUDA_VISIBLE_DEVICES was set too late: the program uses a GPU that it should hide

The CUDA driver reads the variable once, when it is initialised (cuInit). An assignment to os.environ after that changes
nothing, and gives no message. "import tensorflow" does not initialise it yet; the first listing of devices or operation
does, and so do other packages (torch, cupy, jax, DALI) as soon as they look for a GPU.
"""

from __future__ import annotations

import msgspec

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.causes.shared.visibility import MASK, PROGRAMMING_GUIDE
from gpudiag.fix import Kind, Role, edit, edit_note, run
from gpudiag.knowledge.messages.program import MASK_PRINTED
from gpudiag.knowledge.messages.way import DEVICE_CREATED
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import EnvironmentFacts, Facts
from gpudiag.model.report import Severity
from gpudiag.model.visibility import gpus_in_scope, index_is_ambiguous

CAUSE = Cause(
    title="CUDA_VISIBLE_DEVICES={value!r} was set too late: the program uses GPU {beyond}, which it should hide",
    severity=Severity.WARNING,
    fix=(
        run("CUDA_VISIBLE_DEVICES={value} python program.py", kind=Kind.SET_VARIABLE),
        edit(
            "import os; os.environ['CUDA_VISIBLE_DEVICES'] = {value!r}",
            "put it into the program's first lines",
            role=Role.ALTERNATIVE,
        ),
        edit_note("or after the import: tf.config.set_visible_devices(...), before any other call of TensorFlow"),
    ),
    url=PROGRAMMING_GUIDE,
)


def find(facts: Facts, program: Program) -> Matches:
    used = list(dict.fromkeys(event["pci"].lower() for event in program.all(DEVICE_CREATED)))
    told = [event["value"] for event in program.all(MASK_PRINTED)]
    value = told[-1] if told else facts.variables.get(MASK)
    if value is None or not used:
        return
    meant = msgspec.structs.replace(facts, environment=EnvironmentFacts({**facts.variables, MASK: value}))
    indices = {device.pci_bus_id: device.index for device in facts.nvml_devices}
    visible = [gpu.pci_bus_id for gpu in gpus_in_scope(meant)]
    beyond = [pci for pci in used if pci in indices and pci not in visible]
    if beyond and not index_is_ambiguous(meant):
        yield Match(
            evidence=(
                f"{MASK}={value!r}, {'as the log says' if told else 'in the environment'}",
                f"the log has devices on GPU {', '.join(str(indices[pci]) for pci in used if pci in indices)}",
            ),
            confidence=Confidence.LIKELY if told else Confidence.POSSIBLE,
            figures={"value": value, "beyond": ", ".join(str(indices[pci]) for pci in beyond)},
            about=(MASK,),
        )
