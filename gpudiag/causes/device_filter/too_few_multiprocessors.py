"""TensorFlow ignores a GPU that has fewer multiprocessors than it requires

TensorFlow takes no GPU with fewer multiprocessors than the best one of the machine or 8, whichever is less: a small
card for the screens beside a large one is left out, with a line at level I as the only sign. Alone, the same card is
taken. TF_MIN_GPU_MULTIPROCESSOR_COUNT sets the bar.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Gpus, Listing, Match, Matches, Program, Variables
from gpudiag.causes.shared.devices import MASK
from gpudiag.causes.shared.machine import said
from gpudiag.fix import Role, export, unset
from gpudiag.knowledge.messages.way import TOO_FEW_CORES

CAUSE = Cause(
    title="TensorFlow ignores {names}: {cores} multiprocessors are fewer than the {least} that it requires",
    fix=(
        export("TF_MIN_GPU_MULTIPROCESSOR_COUNT", "{cores}"),
        export("CUDA_VISIBLE_DEVICES", "GPU-00000000-0000-4000-8000-000000000000", "hides it", role=Role.ALTERNATIVE),
    ),
    url="https://www.tensorflow.org/api_docs/python/tf/config/list_physical_devices",
)
_USUAL = "8"
_LEAST = "TF_MIN_GPU_MULTIPROCESSOR_COUNT"


def find(variables: Variables, gpus: Gpus, listing: Listing, program: Program) -> Matches:
    found = said(listing, program, TOO_FEW_CORES)
    if not found:
        return
    left_out = {event["pci"].lower() for event in found}
    rest = [gpu.uuid for gpu in gpus if gpu.pci_bus_id not in left_out]
    cores = str(min(int(event["cores"]) for event in found))
    bar = variables.get(_LEAST)
    yield Match(
        evidence=(*(event.text for event in found), *([f"{_LEAST}={bar}"] if bar is not None else [])),
        figures={
            "names": " and ".join(f"{event['name']} ({event['pci']})" if event["name"] else "a GPU" for event in found),
            "cores": cores,
            "least": found[0]["least"] or _USUAL,
        },
        fix=(
            CAUSE.fix[0],
            export(MASK, ",".join(rest), "hides it", role=Role.ALTERNATIVE)
            if rest
            else unset(_LEAST, role=Role.ALTERNATIVE),
        ),
        tried=CAUSE.fix[0],
    )
