"""Logical devices that are not made, are not kept apart, or can be changed too late."""

from __future__ import annotations

import ctypes
from typing import Any

from sabotages import found_as
from sabotages.tools import (
    SECOND_GPU,
    around_ops,
    context,
    ignore,
    in_device_scopes,
    in_options,
    is_on,
    module,
    other_gpus_lead_to_the_first,
    refuse,
    run_on,
    wrap,
)


@found_as(
    logical__cpu_split="wrong_count",
    logical__gpu_split="wrong_count",
    logical__index_shift="wrong_count",
    placement__log="op_elsewhere",
)
def logical_devices_are_not_made() -> None:
    ignore(context(), "set_logical_device_configuration")


def _late(self: Any, *_: Any) -> bool:
    return self._context_handle is not None


def _late_is_ignored(name: str) -> None:
    def around(original: Any, self: Any, *given: Any) -> Any:
        return None if _late(self) else original(self, *given)

    wrap(context(), name, around)


@found_as(logical__after_init="no_error")
def late_logical_devices_are_accepted() -> None:
    _late_is_ignored("set_logical_device_configuration")


@found_as(logical__after_init="other_error")
def late_changes_raise_another_error() -> None:
    refuse(context(), "set_visible_devices", lambda: ValueError("no"), _late)


@found_as(logical__after_init="devices_changed")
def late_changes_are_refused_and_made() -> None:
    def around(original: Any, self: Any, device: Any, virtual: Any) -> Any:
        if _late(self):
            self._logical_devices = self._logical_devices[:1]
        return original(self, device, virtual)

    wrap(context(), "set_logical_device_configuration", around)


def _with_limits(change: Any) -> None:
    def around(original: Any, self: Any, device: Any, parts: Any) -> Any:
        changed = [part if part.memory_limit is None else _with_limit(part, change) for part in parts]
        return original(self, device, changed)

    wrap(context(), "set_logical_device_configuration", around)


def _with_limit(part: Any, change: Any) -> Any:
    return part.__class__(memory_limit=change(part.memory_limit))


@found_as(
    logical__gpu_split="limit_ignored",
    logical__split_memory="limit_ignored",
    memory__limit="limit_ignored",
)
def limits_are_four_times_as_high() -> None:
    _with_limits(lambda mib: 4 * mib)


@found_as(memory__limits_overcommitted="lowered", memory__several_models="did_not_fit")
def limits_are_half_as_high() -> None:
    _with_limits(lambda mib: mib // 2)


@found_as(
    logical__gpu_split="not_at_once",
    logical__split_against_growth="growth_kept",
    memory__limit="not_at_once",
)
def growth_reaches_logical_devices() -> None:
    in_options(lambda options: setattr(options, "allow_growth", True))


@found_as(logical__gpu_split="other_error")
def a_full_device_raises_another_error() -> None:
    def around(original: Any, self: Any, node: Any, op: Any, message: str, *rest: Any) -> None:
        raise ValueError(message)

    wrap(module("tensorflow.python.framework.errors_impl").ResourceExhaustedError, "__init__", around)


@found_as(logical__index_shift="other_number")
def parts_are_of_the_last_gpu() -> None:
    in_options(lambda options: setattr(options, "visible_device_list", "1,0"))


@found_as(logical__split_against_growth="no_error")
def growth_on_a_split_gpu_is_accepted() -> None:
    def around(original: Any, self: Any, device: Any, enable: bool) -> Any:
        return None if device in self._virtual_device_map else original(self, device, enable)

    wrap(context(), "set_memory_growth", around)


@found_as(logical__split_against_growth="other_error")
def growth_on_a_split_gpu_raises_another_error() -> None:
    refuse(
        context(),
        "set_memory_growth",
        lambda: RuntimeError("no"),
        lambda self, device, enable: device in self._virtual_device_map,
    )


@found_as(logical__split_against_growth="split_refused")
def a_split_after_growth_is_refused() -> None:
    refuse(
        context(),
        "set_logical_device_configuration",
        lambda: ValueError("no"),
        lambda self, device, parts: self._memory_growth_map.get(device),
    )


@found_as(logical__split_memory="not_apart")
def parts_share_their_memory() -> None:
    in_device_scopes(other_gpus_lead_to_the_first)


@found_as(logical__split_memory="overwritten")
def parts_overwrite_each_other() -> None:
    made: list[Any] = []

    def around(compute: Any) -> Any:
        filled = compute()
        tensor = filled[0] if isinstance(filled, list) else filled
        if is_on(tensor, "GPU:0") and not made:
            made.append(tensor)
        elif made:
            _overwrite(made[0])
            made.clear()  # or its memory is not free for what comes later
        return filled

    around_ops("Fill", around)


def _overwrite(tensor: Any) -> None:
    capsule = module("tensorflow").experimental.dlpack.to_dlpack(tensor)
    ctypes.pythonapi.PyCapsule_GetPointer.restype = ctypes.c_void_p
    ctypes.pythonapi.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    at = ctypes.pythonapi.PyCapsule_GetPointer(capsule, b"dltensor")
    data = ctypes.cast(at, ctypes.POINTER(ctypes.c_uint64))[0]
    status = ctypes.CDLL("libcuda.so.1").cuMemsetD8_v2(ctypes.c_uint64(data), 0x3C, ctypes.c_size_t(4096))
    assert status == 0, f"CUDA error {status}"


@found_as(logical__gpu_split="memory_elsewhere")
def tensors_of_the_second_part_are_on_another_gpu() -> None:
    run_on("Fill Identity Mul AddV2 _EagerConst", "GPU:2", asked=SECOND_GPU)
