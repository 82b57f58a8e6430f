"""a GPU has no room for what the program asks for

What TensorFlow's allocator may use of a GPU is limited by a setting, or by what was free when the devices were made.
A tensor needs its bytes in one piece: if more is free than was asked for, memory is in pieces, or another process
holds what the allocator wanted to add.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import Action, edit_note, export, note
from gpudiag.model.program import Booked, OutOfMemory, ProgramTrace, place
from gpudiag.model.program import SettingFate as Fate
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{device} has no room for {asked} more: {used} of {limit} are in use",
    severity=Severity.WARNING,
    fix=(
        edit_note("a batch of at most 60 % of the size fits"),
        export("TF_GPU_ALLOCATOR", "cuda_malloc_async"),
    ),
    url="https://www.tensorflow.org/api_docs/python/tf/config/experimental/get_memory_info",
    needs_gpu=False,
)
_MIB = 1 << 20
_HELD_BY_OTHERS = 0.1
_FRACTION = "per_process_gpu_memory_fraction"


def find(program: ProgramTrace) -> Matches:
    for allocation in program.out_of_memory[:1]:
        free = max(0, allocation.limit_bytes - allocation.used_bytes)
        yield Match(
            evidence=tuple(_seen(program, allocation, free)),
            figures={
                "device": allocation.device or "a device",
                "asked": _mib(allocation.asked_bytes) if allocation.asked_bytes else "what was asked for",
                "used": _mib(allocation.used_bytes),
                "limit": _mib(allocation.limit_bytes),
            },
            fix=(
                _first(program, allocation, free),
                export("TF_GPU_ALLOCATOR", "cuda_malloc_async") if 0 < allocation.asked_bytes <= free else None,
            ),
        )


def _seen(program: ProgramTrace, allocation: OutOfMemory, free: int) -> list[str]:
    """Return at most five lines of evidence: the request, its place, the free memory, its holders, the cause."""
    again = len(program.out_of_memory) - 1
    times = f"; {again} more of these errors" if again else ""
    seen = [
        f"{place(allocation.line)}: {_mib(allocation.asked_bytes)} asked for, "
        f"{_mib(free)} free of {_mib(allocation.limit_bytes)}{times}"
    ]
    mine = [holder for holder in allocation.holders if holder.device == allocation.device]
    seen += [f"{_mib(holder.bytes)} in {holder.number} x {holder.what}" for holder in mine[:3]]
    if 0 < allocation.asked_bytes <= free:
        seen.append("more is free than was asked for: memory is in pieces, or another process holds it")
    elif (card := _card(program, allocation)) is not None and card.before_bytes > _HELD_BY_OTHERS * card.total_bytes:
        held = f"{_mib(card.before_bytes)} of {_mib(card.total_bytes)}"
        seen.append(f"before the program began, {held} of card {card.index} were in use: by another process")
    return seen[:5]


def _first(program: ProgramTrace, allocation: OutOfMemory, free: int) -> Action:
    """Return the smallest change with which the request would have fitted."""
    need = allocation.asked_bytes + allocation.used_bytes
    card = _card(program, allocation)
    if need > allocation.limit_bytes > 0 and allocation.asked_bytes and (raised := _raised(program, need, card)):
        return raised
    if allocation.asked_bytes > allocation.limit_bytes > 0:
        return note(f"this tensor is larger than all of {allocation.device}: make it in parts of at most {_mib(free)}")
    if allocation.asked_bytes > free > 0:
        return edit_note(
            f"a tensor of at most {100 * free // allocation.asked_bytes} % of this size fits: a smaller batch"
        )
    return edit_note("free what is named above, or make the batch smaller")


def _raised(program: ProgramTrace, need: int, card: Booked | None) -> Action | None:
    """Return which limit of the program to raise, and to what, if it set one and the card has the room."""
    if card is not None and need > card.total_bytes - card.before_bytes:
        return None
    for setting in program.settings:
        if setting.fate not in (Fate.TOOK_EFFECT, Fate.OTHER_EFFECT):
            continue
        if setting.what == "logical_devices" and setting.instead is not None:
            return setting.instead
        if setting.what == "logical_devices":
            return edit_note(f"{place(setting.line)}: a memory_limit of {-(-need // _MIB)} MiB or more")
        if setting.what == "session" and _FRACTION in setting.value and card is not None and card.total_bytes:
            share = -(-100 * need // card.total_bytes) / 100
            return note(f"{place(setting.line)}: {_FRACTION} of {share:.2f} or more")
    return None


def _card(program: ProgramTrace, allocation: OutOfMemory) -> Booked | None:
    """Return NVML's figures for the card of the device; None if it is not known which card that is."""
    gpu = next(
        (device.gpu for process in program.processes for device in process.devices if device.name == allocation.device),
        "",
    )
    return next((card for card in program.booked if str(card.index) == gpu), None)


def _mib(number: int) -> str:
    return f"{number / _MIB:,.0f} MiB"
