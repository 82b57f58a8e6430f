"""Texts of the account of all GPUs: how many are used, and what became of the others."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.fate import Fate, GpuAccount
from gpudiag.model.report import Report
from gpudiag.text import counted, one_line

_IN_SCOPE_UNUSABLE = (Fate.UNFIT, Fate.REFUSED, Fate.NO_KERNEL)


def summary(report: Report, *, without: str = "") -> str:
    """Return how many GPUs are verified, and the fate of the others: ``2 of 4 GPUs verified; 2 hidden by ...``; ""
    without any. The reason ``without`` is left out, for a place below it."""
    if report.accounts is None or all(account.fate is Fate.OTHER_MAKER for account in report.accounts):
        return ""
    rest = [
        f"{len(same)} {same[0].fate.value if same[0].why == without else fate(same[0])}"
        for same in _alike(unused(report))
    ]
    return one_line("; ".join([verified(report), *rest]))


def unused(report: Report) -> list[GpuAccount]:
    """Return the NVIDIA GPUs of the machine that TensorFlow does not use, whatever the reason."""
    return [account for account in report.accounts or () if account.fate not in (Fate.USED, Fate.OTHER_MAKER)]


def verified(report: Report) -> str:
    """Return on how many GPUs a kernel was verified and nothing failed: ``1 of 2 GPUs verified``; "" without any."""
    failed = report.failed_gpus
    own = [account for account in report.accounts or () if account.fate is not Fate.OTHER_MAKER]
    used = [account.pci_bus_id for account in own if account.fate is Fate.USED]
    if report.accounts is None:
        used = [gpu.pci_bus_id for gpu in report.gpus if gpu not in report.unverified]
    number = len(report.gpus if report.accounts is None else own)
    return f"{sum(pci.lower() not in failed for pci in used)} of {counted(number, 'GPU')} verified" if number else ""


def of_each(report: Report, *, in_scope: bool = True) -> Iterator[tuple[str, str]]:
    """Yield the fate of the GPUs that cannot be used, as pairs of a heading and its text; ``in_scope``: of those in
    scope, too.

    GPUs in scope have a line elsewhere, and so has a report without any; only other facts are yielded.
    """
    scope = {gpu.uuid for gpu in report.gpus}
    shown = [
        account
        for account in report.accounts or ()
        if (in_scope and account.fate in _IN_SCOPE_UNUSABLE)
        or (account.uuid not in scope and (report.gpus or account.fate is not Fate.HIDDEN))
    ]
    for same in _alike(shown):
        yield _heading(same), f"{_names(same)}: {fate(same[0])}"


def _alike(accounts: Iterator[GpuAccount] | list[GpuAccount]) -> list[list[GpuAccount]]:
    groups: dict[tuple[Fate, str, str], list[GpuAccount]] = {}
    for account in accounts:
        groups.setdefault((account.fate, account.why, account.maker), []).append(account)
    return list(groups.values())


def fate(gpu: GpuAccount) -> str:
    """Return the fate in words: ``hidden by ...``, ``lost: ...``."""
    joint = " " if gpu.why.startswith("by ") else ": " if gpu.why else ""
    return one_line(f"{gpu.fate.value}{joint}{gpu.why}")


def _heading(same: list[GpuAccount]) -> str:
    numbers = [str(account.nvml) for account in same if account.nvml is not None]
    return f"GPU {','.join(numbers)}" if numbers else "GPU"


def _names(same: list[GpuAccount]) -> str:
    """Return the names and PCI bus ids of the GPUs."""
    names = dict.fromkeys(account.name or (account.maker if account.maker != "NVIDIA" else "") for account in same)
    places = [account.pci_bus_id for account in same if account.pci_bus_id]
    return ", ".join([*filter(None, names), *(["PCI " + " ".join(places)] if places else [])]) or "not described"
