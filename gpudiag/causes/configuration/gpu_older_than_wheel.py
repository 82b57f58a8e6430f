"""the GPU's compute capability is too old for this TensorFlow: no kernel runs on it

TensorFlow's wheels of 2.18 to 2.21 have code for compute capability 6.0 (Pascal) and later. An older GPU is listed;
TensorFlow even announces that it will compile kernels for it, which is not possible: PTX runs only on newer GPUs.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Gpus, Listing, Match, Matches, Program, Rows
from gpudiag.causes.shared.generations import where_kernels_fail
from gpudiag.causes.shared.machine import said
from gpudiag.fix import Action, Kind, ask, export, install, note
from gpudiag.knowledge.messages.way import TOO_LOW_CAPABILITY
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.releases import ONE_PACKAGE, generation, last_for, numbers
from gpudiag.model.diagnosis import Stage
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{name} has compute capability {capability}, which is too old for this TensorFlow: no kernel runs on it",
    unfit=True,
    severity=Severity.WARNING,
    fix=(
        export("CUDA_VISIBLE_DEVICES", "-1", "the CPU"),
        note(
            "or install an earlier TensorFlow that was built for it; this shows what the installed one was built for:",
            kind=Kind.INSTALL,
        ),
        ask("python -c 'import tensorflow as tf; print(tf.sysconfig.get_build_info()[\"cuda_compute_capabilities\"])'"),
    ),
    url="https://www.tensorflow.org/install/source#gpu",
    unless={
        "gpus_in_another_order": "the old GPU is used only because of the order",
    },
)
_MASK = "CUDA_VISIBLE_DEVICES"


def find(gpus: Gpus, rows: Rows, listing: Listing, program: Program, origin: Origin) -> Matches:
    found = rows.found("discovery.device_details", "too_old")
    ignored = said(listing, program, TOO_LOW_CAPABILITY)
    if not found and not ignored:
        return
    stated = [card for card, _ in origin.stated.cards]
    name, has = (
        (str(found[0].figures["name"]), str(found[0].figures["capability"]))
        if found
        else (ignored[0]["name"], ignored[0]["has"])
        if ignored[0]["has"]
        else (stated[-1].name, stated[-1].capability)
        if stated
        else ("the GPU", f"less than {ignored[0]['least']}")
    )
    pci = {str(finding.figures["pci_bus_id"]) for finding in found} | {event["pci"].lower() for event in ignored}
    rest = ",".join(gpu.uuid for gpu in gpus if gpu.pci_bus_id not in pci)
    fit = None if found else _that_fits(has, origin)
    mask = export(_MASK, rest, "the others") if rest else export(_MASK, "-1", "the CPU")
    yield Match(
        evidence=(*(finding.message for finding in found), *(event.text for event in ignored)),
        figures={"name": name, "capability": has},
        fix=(fit, CAUSE.fix[1], CAUSE.fix[2], mask)
        if fit
        else (
            mask,
            *CAUSE.fix[1:],
        ),
        stage=Stage.DEVICE_FILTER if ignored else where_kernels_fail(rows),
        gpus=tuple(sorted(pci)),
        unfit=None if found or listing.first(TOO_LOW_CAPABILITY) else False,  # else a log says so, of an earlier start
    )


def _that_fits(capability: str, origin: Origin) -> Action | None:
    """Return how to install a TensorFlow whose wheel runs on a compute capability; None if none is known."""
    last = last_for(capability) if numbers(capability) else None
    if last is None or origin.conda:
        return None
    if origin.named and last >= origin.named:  # another build than the wheel: that would run on it
        last = origin.named
    package = "tensorflow-gpu" if last < ONE_PACKAGE else "tensorflow"
    cuda = generation(last).cuda
    return install(f"{package}=={last}.*", note=f"its wheel of pypi.org runs on {capability}; with CUDA {cuda}")
