"""Masks and lists of visible devices that choose other GPUs than they name."""

from __future__ import annotations

import os
from typing import Any

from sabotages import found_as
from sabotages.tools import (
    MIB,
    PRODUCTS,
    SECOND_GPU,
    context,
    falsify,
    ignore,
    in_device_scopes,
    in_environment,
    in_options,
    in_sessions,
    module,
    other_gpus_lead_to_the_first,
    refused,
    run_on,
    session,
    take_memory,
    wrap,
)

MASK = "CUDA_VISIBLE_DEVICES"


def _in_lists(change: Any) -> None:
    def changed(options: Any) -> None:
        options.visible_device_list = change(options.visible_device_list)

    in_sessions(lambda config: changed(config.gpu_options))


@found_as(
    visibility__list_invalid="accepted",
    visibility__list_per_process="other_gpu",
    visibility__list_remap="other_gpu",
    visibility__list_session_conflict="accepted",
    memory__idle_gpu_taken="hidden_taken",
)
def lists_of_sessions_are_ignored() -> None:
    _in_lists(lambda value: "")


@found_as(visibility__list_remap="other_gpu", visibility__list_per_process="other_gpu")
def lists_are_read_in_reverse() -> None:
    _in_lists(lambda value: {"0": "1", "1": "0"}.get(value, ",".join(reversed(value.split(",")))))


@found_as(visibility__list_invalid="accepted")
def lists_of_eager_mode_are_ignored() -> None:
    def around(original: Any, self: Any, reinitialize: bool = False) -> Any:
        if self._config is not None:
            self._config.gpu_options.ClearField("visible_device_list")
        return original(self, reinitialize)

    wrap(context(), "_initialize_physical_devices", around)


@found_as(visibility__list_invalid="not_skipped")
def minus_one_is_the_first_gpu() -> None:
    _in_lists(lambda value: "0" if value == "-1" else value)


def _errors_of_sessions(change: Any) -> None:
    def around(original: Any, self: Any, *given: Any, **named: Any) -> Any:
        try:
            return original(self, *given, **named)
        except module("tensorflow").errors.OpError as error:
            raise change(error) from None

    wrap(session(), "__init__", around)


@found_as(visibility__list_invalid="other_type", visibility__list_session_conflict="other_type")
def sessions_raise_another_error() -> None:
    _errors_of_sessions(lambda error: RuntimeError(str(error)))


@found_as(visibility__list_invalid="other_text", visibility__list_session_conflict="other_text")
def sessions_do_not_say_why() -> None:
    _errors_of_sessions(lambda error: type(error)(None, None, "no"))


@found_as(visibility__list_session_conflict="limit_changed")
def the_limit_of_the_first_session_is_higher() -> None:
    def change(config: Any) -> None:
        if 0 < config.gpu_options.per_process_gpu_memory_fraction < 0.5:
            config.gpu_options.per_process_gpu_memory_fraction *= 4

    in_sessions(change)


@found_as(visibility__list_session_conflict="growth_ignored")
def the_first_session_does_not_grow() -> None:
    in_sessions(lambda config: config.gpu_options.ClearField("allow_growth"))


@found_as(visibility__list_session_conflict="growth_changed")
def the_second_session_takes_its_limit_at_once() -> None:
    opened: list[Any] = []

    def around(original: Any, self: Any, *given: Any, **named: Any) -> Any:
        done = original(self, *given, **named)
        if self not in opened:
            opened.append(self)
            if len(opened) > 1:
                take_memory(0, 128 * MIB)
        return done

    wrap(session(), "run", around)


@found_as(visibility__list_remap="wrong_result")
def products_are_wrong_on_the_second_gpu() -> None:
    falsify(PRODUCTS, SECOND_GPU)


@found_as(visibility__graph_import_on_device="wrong_result")
def sessions_return_wrong_products() -> None:
    def around(original: Any, self: Any, fetches: Any, *given: Any, **named: Any) -> Any:
        found = original(self, fetches, *given, **named)
        return {name: value * 2 for name, value in found.items()} if isinstance(found, dict) else found

    wrap(session(), "run", around)


@found_as(visibility__list_per_process="wrong_result", visibility__mask_order="wrong_result")
def products_are_wrong_on_the_first_gpu() -> None:
    falsify(PRODUCTS, "GPU:0")


@found_as(visibility__graphs_on_devices="other_gpu")
def gpus_are_made_in_reverse() -> None:
    in_options(lambda options: setattr(options, "visible_device_list", "1,0"))


@found_as(visibility__graphs_on_devices="memory_elsewhere")
def tensors_are_on_the_first_gpu() -> None:
    run_on("Fill StridedSlice", "GPU:0", asked=SECOND_GPU)


@found_as(visibility__graph_import_on_device="other_device")
def imports_ignore_the_device() -> None:
    ignore(module("tensorflow.python.framework.ops").Graph, "_apply_device_functions")


@found_as(visibility__graph_import_on_device="node_overruled")
def nodes_lose_their_device() -> None:
    def around(original: Any, graph_def: Any, *given: Any, **named: Any) -> Any:
        bare = type(graph_def)()
        bare.CopyFrom(graph_def)
        for node in bare.node:
            node.ClearField("device")
        return original(bare, *given, **named)

    wrap(module("tensorflow").graph_util, "import_graph_def", around)


def _in_masks(change: Any) -> None:
    in_environment(lambda name, value: change(value) if name == MASK else value)


@found_as(visibility__mask="wrong_gpus", visibility__mask_order="order_ignored")
def the_order_of_a_mask_is_ignored() -> None:
    _in_masks(lambda value: ",".join(sorted(value.split(","))))


@found_as(visibility__mask="not_hidden")
def minus_one_hides_nothing() -> None:
    _in_masks(lambda value: "0" if value == "-1" else value)


@found_as(visibility__mask="list_not_cut")
def invalid_entries_are_skipped() -> None:
    def change(value: str) -> str:
        entries = value.split(",")
        return ",".join(entry for entry in entries if not entry.isdigit() or int(entry) < 2)

    _in_masks(change)


@found_as(visibility__mask="tensorflow_differs")
def tensorflow_leaves_out_a_gpu() -> None:
    def around(original: Any, self: Any, device_type: Any = None) -> Any:
        listed = original(self, device_type)
        masked = len(os.environ.get(MASK, "").split(",")) == 1
        return [device for device in listed if device.device_type != "GPU"] if masked else listed

    wrap(context(), "list_physical_devices", around)


@found_as(visibility__mask_too_late="early_ignored")
def a_mask_after_the_import_is_ignored() -> None:
    in_environment(lambda name, value: None if name == MASK else value)


@found_as(visibility__mask_too_late="late_obeyed")
def a_late_mask_is_obeyed() -> None:
    def around(original: Any, self: Any, device_type: Any = None) -> Any:
        listed = original(self, device_type)
        gpus = [device for device in listed if device.device_type == "GPU"]
        count = len([part for part in os.environ.get(MASK, "").split(",") if part not in ("", "-1")])
        return [device for device in listed if device not in gpus[count:]]

    wrap(context(), "list_physical_devices", around)


@found_as(visibility__mask_order="other_gpu", visibility__mask_too_late="late_obeyed")
def the_first_gpu_is_made_last() -> None:
    in_options(lambda options: setattr(options, "visible_device_list", "1,0"))


@found_as(visibility__mask_order="memory_elsewhere")
def tensors_are_in_host_memory() -> None:
    run_on("Fill ZerosLike Identity", "CPU:0")


@found_as(visibility__list_per_process="memory_elsewhere", visibility__list_remap="memory_elsewhere")
def tensors_of_sessions_are_in_host_memory() -> None:
    run_on("Fill StridedSlice", "CPU:0")


@found_as(visibility__set_visible_devices="other_gpu")
def visible_devices_are_ignored() -> None:
    ignore(context(), "set_visible_devices")


@found_as(visibility__set_visible_devices="hidden_used")
def memory_of_hidden_gpus_is_taken() -> None:
    taken: list[bool] = []

    def around(original: Any, self: Any, *given: Any, **named: Any) -> Any:
        done = original(self, *given, **named)
        if not taken:
            taken.append(True)
            take_memory(0, 512 * MIB)
        return done

    wrap(context(), "_initialize_logical_devices", around)


@found_as(visibility__set_visible_devices="hidden_reachable")
def hidden_gpus_can_be_named() -> None:
    in_device_scopes(other_gpus_lead_to_the_first)


@found_as(visibility__set_visible_devices="order_kept")
def the_order_of_visible_devices_counts() -> None:
    def around(original: Any, self: Any, devices: Any, device_type: Any = None) -> Any:
        done = original(self, devices, device_type)
        if isinstance(devices, list) and len(devices) == 2:
            in_options(lambda options: setattr(options, "visible_device_list", "1,0"))
        return done

    wrap(context(), "set_visible_devices", around)


@found_as(visibility__set_visible_devices="cpu_kept")
def visible_devices_without_a_type_are_gpus() -> None:
    def around(original: Any, self: Any, devices: Any, device_type: Any = None) -> Any:
        return original(self, devices, device_type or "GPU")

    wrap(context(), "set_visible_devices", around)


@found_as(visibility__set_visible_devices="other_error")
def visible_devices_without_a_type_raise_another_error() -> None:
    def around(original: Any, self: Any, devices: Any, device_type: Any = None) -> Any:
        if device_type is None:
            raise refused()
        return original(self, devices, device_type)

    wrap(context(), "set_visible_devices", around)
