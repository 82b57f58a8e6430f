"""``@pytest.mark.gpudiag_gpus``: the GPUs that a test needs, checked at collection and assigned when it runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from gpudiag import folders
from gpudiag.pytest_plugin import settings
from gpudiag.pytest_plugin.assign import WORKER, Need
from gpudiag.pytest_plugin.gpus import Device, found, of, size_text

MARKER = "gpudiag_gpus"
LINES = (
    f'{MARKER}(count=1, memory="8GiB", capability=(8, 0)): needs so many GPUs, each with so much memory and at '
    "least this compute capability; skipped if the machine lacks them, failed with --gpudiag-require-gpus",
)

NEED = pytest.StashKey[Need]()
LACK = pytest.StashKey[str]()
BAD = pytest.StashKey[str]()


def need_of(item: pytest.Item) -> Need | None:
    """Return the need that a test's nearest marker states; None if there is none. Raises ``ValueError``."""
    mark = item.get_closest_marker(MARKER)
    if mark is None:
        return None
    unknown = [*map(repr, mark.args), *sorted(set(mark.kwargs) - {"count", "memory", "capability"})]
    if unknown:
        raise ValueError(f"{unknown[0]} is not an argument: write count=, memory= or capability=, by name")
    count = mark.kwargs.get("count", 1)
    if type(count) is not int or count < 1:
        raise ValueError(f"count={count!r} is not a number of GPUs above 0")
    return Need(count, _memory(mark.kwargs.get("memory")), _capability(mark.kwargs.get("capability")))


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, Any, Any]:
    """Refuse a malformed marker, where pytest reports errors of collection."""
    made = yield
    for item in made if isinstance(made, list) else [made]:
        if isinstance(item, pytest.Item):
            try:
                need_of(item)
            except ValueError as error:
                raise pytest.Collector.CollectError(f"{item.nodeid}: {MARKER}: {error}.") from None
    return made


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Decide where each test with a marker runs: here, in a later round, or nowhere if the machine lacks a GPU."""
    needs: dict[pytest.Item, Need] = {}
    for item in items:
        try:
            need = need_of(item)
        except ValueError as error:  # of a marker that a conftest file added
            item.stash[BAD] = f"{MARKER}: {error}."
            continue
        if need is not None:
            needs[item] = need
    worker = config.stash.get(WORKER, None)
    plan = None if worker is None else worker.plan
    if plan is not None and plan.needs:
        items[:] = [item for item in items if needs.get(item) in plan.needs]
    if config.option.collectonly or not needs:
        return
    devices = of(config).devices if plan is None else plan.devices
    slots = plan.slots if plan is not None and plan.slots else (of(config),)
    later: Counter[Need] = Counter()
    for item in list(items):
        if (need := needs.get(item)) is None:
            continue
        if all(len(need.of(slot.devices, slot.limit_bytes)) >= need.count for slot in slots):
            item.stash[NEED] = need
        elif plan is not None and plan.slots and len(need.of(devices)) >= need.count:
            later[need] += 1
            items.remove(item)
        else:
            lack = item.stash[LACK] = _lack(need, devices, config)
            if not settings.of(config).require_gpus:
                item.add_marker(pytest.mark.skip(reason=lack))
    if worker is not None and plan is not None and not plan.needs:
        _leave(later, worker.folder)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test with a malformed marker and, under ``--gpudiag-require-gpus``, one that lacks GPUs."""
    if BAD in item.stash:
        pytest.fail(item.stash[BAD], pytrace=False)
    if LACK in item.stash and settings.of(item.config).require_gpus:
        pytest.fail(f"{item.stash[LACK]} (--gpudiag-require-gpus makes this a failure)", pytrace=False)


def _lack(need: Need, devices: tuple[Device, ...], config: pytest.Config) -> str:
    """Say which GPUs the test needs and which ones are here."""
    from gpudiag.text import counted

    if not devices:
        worker = config.stash.get(WORKER, None)
        return f"needs {need}: {found(config).lack if worker is None else worker.plan.lack}"
    kinds = dict.fromkeys(
        ", ".join(
            filter(
                None,
                (
                    size_text(device.total_bytes) if device.total_bytes else "memory not known",
                    f"compute capability {device.capability[0]}.{device.capability[1]}" if device.capability else "",
                    "a MIG instance, of which a process can use one" if device.is_instance and need.count > 1 else "",
                ),
            )
        )
        for device in devices
    )
    here = counted(len(devices), "GPU")
    if len(need.of(devices)) < len(devices):
        return f"needs {need}; here: {here} ({'; '.join(kinds)})"
    return f"needs {need}; here: {here}"


def _leave(later: Mapping[Need, int], folder: Path) -> None:
    """Report the needs of waiting tests to the controller; every worker finds the same ones."""
    folders.write(folder / "later.json", json.dumps([(asdict(need), number) for need, number in later.items()]))


def _memory(given: object) -> int:
    if given is None:
        return 0
    try:
        return settings.size(str(given)) if type(given) in (str, int) else settings.size("")
    except ValueError:
        raise ValueError(f"memory={given!r} is not a size, such as '8GiB'") from None


def _capability(given: object) -> tuple[int, int]:
    if given is None:
        return (0, 0)
    if isinstance(given, tuple | list) and len(given) == 2 and all(type(part) is int and part >= 0 for part in given):
        return (given[0], given[1])
    raise ValueError(f"capability={given!r} is not a compute capability, such as (8, 0)")
