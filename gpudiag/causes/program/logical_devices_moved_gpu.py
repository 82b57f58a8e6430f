"""a GPU was split, so the numbers of the GPUs after it changed, and one of them computes nothing

tf.config.set_logical_device_configuration makes several devices of one GPU, and TensorFlow numbers all devices in one
row: with GPU 0 in two parts, GPU:1 is its second part, and the second GPU is GPU:2. A program that still asks for GPU:1
puts all its work on the first GPU. TensorFlow takes the memory of the second GPU, too.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.traced import GUIDE
from gpudiag.fix import edit
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.program import Process, ProgramTrace, place
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{asked} is a part of another GPU, and {unused}, the GPU that would have this number, computes nothing",
    severity=Severity.WARNING,
    fix=(
        edit("with tf.device('/GPU:2'):"),
        edit("tf.config.list_logical_devices('GPU')", "the devices by their numbers"),
    ),
    url=f"{GUIDE}#virtual_gpus",
    needs_gpu=False,
)


def find(program: ProgramTrace) -> Matches:
    for process in program.processes:
        used, asked, cards = set(program.operations(process)), program.asked(process), _cards(process)
        split = next((setting for setting in program.settings if setting.what == "logical_devices"), None)
        for number, (card, names) in enumerate(cards.items()):
            meant = f"GPU:{number}"
            if split is None or meant in names or meant not in asked or used.intersection(names):
                continue
            other = next(other for other, devices in cards.items() if meant in devices)
            yield Match(
                evidence=(
                    f"{place(split.line)}: logical_devices {split.value}",
                    f"{', '.join(cards[other])} on {other}; {', '.join(names)} on {card}",
                    f"{meant} was asked for, and no operation ran on {', '.join(names)}",
                ),
                confidence=Confidence.LIKELY,
                figures={"asked": meant, "unused": ", ".join(names)},
                fix=(edit(f"with tf.device('/{names[0]}'):", f"the GPU {card}"), CAUSE.fix[1]),
            )


def _cards(process: Process) -> dict[str, list[str]]:
    """Return the GPUs by PCI bus id, in the order in which TensorFlow numbers them, each with its devices."""
    cards: dict[str, list[str]] = {}
    for device in process.devices:
        if device.pci:
            cards.setdefault(device.pci, []).append(device.name)
    return cards
