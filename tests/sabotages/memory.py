"""Growth, caps and limits that do not hold."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from sabotages import found_as
from sabotages.tools import (
    MIB,
    PRODUCTS,
    address,
    around_ops,
    context,
    current_device,
    falsify,
    gpus_lead_to_the_cpu,
    ignore,
    in_device_scopes,
    in_eager_mode,
    in_environment,
    in_options,
    in_sessions,
    is_full,
    log_nothing,
    module,
    on,
    refuse,
    refuse_ops,
    refused,
    run_on,
    session,
    take_memory,
    wrap,
)

FORCED = "TF_FORCE_GPU_ALLOW_GROWTH"


@found_as(
    memory__fraction="cap_ignored",
    memory__growth_with_fraction="other_ceiling",
    memory__shared_gpu="fraction_of_free",
)
def fractions_are_ignored() -> None:
    in_sessions(lambda config: config.gpu_options.ClearField("per_process_gpu_memory_fraction"))


@found_as(memory__fraction="not_at_once")
def sessions_always_grow() -> None:
    in_environment(lambda name, value: None if name == FORCED else value)
    in_sessions(lambda config: setattr(config.gpu_options, "allow_growth", True))


@found_as(
    memory__growth_with_fraction="taken_at_once",
    memory__fraction_above_one="refused",  # simulated: the driver does not manage so much at once
)
def sessions_never_grow() -> None:
    in_sessions(lambda config: config.gpu_options.ClearField("allow_growth"))


@found_as(memory__fraction="other_error")
def a_full_gpu_raises_another_error() -> None:
    def around(original: Any, self: Any, node: Any, op: Any, message: str, *rest: Any) -> None:
        raise ValueError(message)

    wrap(module("tensorflow.python.framework.errors_impl").ResourceExhaustedError, "__init__", around)


@found_as(memory__fraction="cap_ignored", memory__growth_with_fraction="ceiling_ignored")
def more_is_taken_than_the_cap() -> None:
    def around(original: Any, self: Any, *given: Any, **named: Any) -> Any:
        done = original(self, *given, **named)
        take_memory(0, 512 * MIB)
        return done

    wrap(session(), "run", around)


@found_as(memory__growth_with_fraction="not_given")
def only_a_part_of_the_cap_is_given_out() -> None:
    def around(original: Any, self: Any, fetches: Any, feed_dict: Any = None, *given: Any) -> Any:
        numbers = [value[0] for value in (feed_dict or {}).values() if isinstance(value[0], int)]
        if any(4 * number > 64 * MIB for number in numbers):
            raise module("tensorflow").errors.ResourceExhaustedError(None, None, "OOM")
        return original(self, fetches, feed_dict, *given)

    wrap(session(), "run", around)


@found_as(memory__fraction_above_one="refused")
def fractions_above_one_are_refused() -> None:
    def change(config: Any) -> None:
        if config.gpu_options.per_process_gpu_memory_fraction > 1:
            raise refused()

    in_sessions(change)


@found_as(memory__fraction_above_one="other_ceiling")
def fractions_end_at_one() -> None:
    def change(config: Any) -> None:
        options = config.gpu_options
        options.per_process_gpu_memory_fraction = min(1.0, options.per_process_gpu_memory_fraction)

    in_sessions(change)


@found_as(memory__fraction_above_one="no_oversubscription")
def nothing_is_larger_than_the_gpu() -> None:
    error = module("tensorflow").errors.ResourceExhaustedError

    def around(original: Any, self: Any, fetches: Any, feed_dict: Any = None, *given: Any) -> Any:
        if getattr(fetches, "type", "") == "Empty":
            raise error(None, None, "OOM")
        return original(self, fetches, feed_dict, *given)

    wrap(session(), "run", around)


@found_as(memory__growth_mismatch="growth_ignored")
def growth_is_ignored() -> None:
    in_eager_mode(lambda config: config.gpu_options.ClearField("allow_growth"))


@found_as(memory__growth="growth_ignored")
def set_memory_growth_does_nothing() -> None:
    ignore(context(), "set_memory_growth")


@found_as(memory__growth="late_change_accepted")
def late_growth_is_accepted() -> None:
    def around(original: Any, self: Any, device: Any, enable: bool) -> Any:
        return None if self._context_handle is not None else original(self, device, enable)

    wrap(context(), "set_memory_growth", around)


@found_as(memory__growth="given_back")
def memory_is_given_back() -> None:
    os.environ["TF_GPU_ALLOCATOR"] = "cuda_malloc_async"


@found_as(memory__growth="not_on_device")
def large_tensors_are_in_host_memory() -> None:
    run_on("Fill", "CPU:0")


@found_as(memory__growth_lost="wrong_result")
def products_are_wrong() -> None:
    falsify(PRODUCTS)


@found_as(memory__allocator="ignored")
def the_allocator_is_ignored() -> None:
    os.environ.pop("TF_GPU_ALLOCATOR", None)
    in_environment(lambda name, value: None if name == "TF_GPU_ALLOCATOR" else value)


@found_as(memory__allocator="typo_noticed")
def the_allocator_may_be_misspelt() -> None:
    value = os.environ.get("TF_GPU_ALLOCATOR")
    if value:
        os.environ["TF_GPU_ALLOCATOR"] = value.lower()
    in_environment(lambda name, value: value.lower() if name == "TF_GPU_ALLOCATOR" else value)


@found_as(memory__allocator="not_named", memory__growth_forced="silent")
def nothing_is_logged() -> None:
    log_nothing()


@found_as(memory__default_takes_all="other_ceiling")
def half_of_the_memory_is_left() -> None:
    in_options(lambda options: setattr(options, "per_process_gpu_memory_fraction", 0.5))


@found_as(memory__capacity="corrupted")
def two_addresses_are_the_same_memory() -> None:
    parts: list[int] = []

    def around(compute: Any) -> Any:
        made = compute()
        (tensor,) = made if isinstance(made, list | tuple) else [made]
        parts.append(address(tensor))
        if len(parts) == 3:  # what is written to the third part is in the first one, too
            ctypes.memmove(parts[0], parts[2], tensor.shape[0] * tensor.dtype.size)
        return made

    around_ops("StatelessRandomUniformFullInt", around)


@found_as(memory__capacity="raised")
def a_write_to_memory_fails() -> None:
    refuse_ops("StatelessRandomUniformFullInt")


@found_as(memory__capacity="not_given_back")
def memory_stays_taken() -> None:
    def around(original: Any, self: Any, *given: Any) -> Any:
        answer = original(self, *given)
        take_memory(0, 256 * MIB)
        return answer

    wrap(module("gpudiag.run.context").ChildContext, "apart", around)


@found_as(memory__capacity="not_taken", memory__default_takes_all="not_all")
def growth_is_the_default() -> None:
    in_options(lambda options: setattr(options, "allow_growth", True))


@found_as(memory__default_takes_all="limit_ignored")
def the_limit_of_the_environment_is_ignored() -> None:
    os.environ.pop("TF_PER_DEVICE_MEMORY_LIMIT_MB", None)
    in_environment(lambda name, value: None if name == "TF_PER_DEVICE_MEMORY_LIMIT_MB" else value)


@found_as(memory__growth_forced="not_forced")
def forced_growth_is_ignored() -> None:
    in_environment(lambda name, value: None if name == FORCED else value)


@found_as(memory__growth_forced="obeyed")
def other_spellings_of_true_count() -> None:
    in_environment(lambda name, value: {"True": "true", "1": "true"}.get(value, value) if name == FORCED else value)


@found_as(memory__growth_lost="kept")
def growth_outlives_logical_devices() -> None:
    in_options(lambda options: setattr(options, "allow_growth", True))


@found_as(memory__growth_lost="admitted")
def the_getter_knows_of_the_split() -> None:
    def around(original: Any, self: Any, device: Any) -> Any:
        return original(self, device) and not self._virtual_device_map

    wrap(context(), "get_memory_growth", around)


@found_as(memory__growth_mismatch="no_error")
def growth_of_one_gpu_is_that_of_all() -> None:
    def around(original: Any, self: Any, device: Any, enable: bool) -> Any:
        for physical in self._physical_devices:
            if physical.device_type == "GPU":
                original(self, physical, enable)

    wrap(context(), "set_memory_growth", around)


@found_as(memory__growth_mismatch="other_error")
def a_mismatch_raises_another_error() -> None:
    def around(original: Any, self: Any, *given: Any, **named: Any) -> Any:
        try:
            return original(self, *given, **named)
        except ValueError:
            raise refused() from None

    wrap(context(), "_compute_device_options", around)


@found_as(memory__growth_mismatch="taken")
def a_mismatch_takes_memory() -> None:
    def around(original: Any, self: Any, *given: Any, **named: Any) -> Any:
        try:
            return original(self, *given, **named)
        except ValueError:
            take_memory(0, 512 * MIB)
            raise

    wrap(context(), "_compute_device_options", around)


@found_as(memory__growth_mismatch="not_cured")
def a_mismatch_stays() -> None:
    met: list[bool] = []

    def around(original: Any, self: Any, *given: Any, **named: Any) -> Any:
        if met:
            raise ValueError("Memory growth cannot differ between GPU devices")
        try:
            return original(self, *given, **named)
        except ValueError:
            met.append(True)
            raise

    wrap(context(), "_compute_device_options", around)


def _takes_with_the_session(number: int) -> None:
    made: list[Any] = []

    def around(original: Any, self: Any, *given: Any, **named: Any) -> Any:
        done = original(self, *given, **named)
        made.append(self)
        if len(made) == number:
            take_memory(1, 1024 * MIB)
        return done

    wrap(session(), "__init__", around)


@found_as(memory__idle_gpu_taken="hidden_taken")
def a_hidden_gpu_loses_memory() -> None:
    _takes_with_the_session(1)


@found_as(memory__idle_gpu_taken="much_taken")
def a_context_takes_much() -> None:
    _takes_with_the_session(2)


@found_as(memory__idle_gpu_taken="pool_taken")
def an_idle_gpu_gets_a_pool() -> None:
    made: list[Any] = []

    def opened(original: Any, self: Any, *given: Any, **named: Any) -> Any:
        done = original(self, *given, **named)
        made.append(self)
        return done

    def around(original: Any, self: Any, *given: Any, **named: Any) -> Any:
        done = original(self, *given, **named)
        if len(made) == 2:
            take_memory(1, 1024 * MIB)
        return done

    wrap(session(), "__init__", opened)
    wrap(session(), "run", around)


@found_as(memory__limit="not_survived", memory__limits_overcommitted="not_survived")
def a_device_works_no_more_after_an_error() -> None:
    failed: set[str] = set()

    def around(compute: Any) -> Any:
        device = current_device()
        if device in failed:
            raise refused()
        try:
            return compute()
        except Exception as error:
            if is_full(error):
                failed.add(device)
            raise

    around_ops("Fill Identity MatMul ZerosLike _EagerConst Cast", around)


@found_as(memory__limits_overcommitted="refused")
def limits_are_added_up() -> None:
    def around(original: Any, self: Any, device: Any, parts: Any) -> Any:
        if sum(part.memory_limit or 0 for part in parts) > 17000:
            raise ValueError("more than the GPU has")
        return original(self, device, parts)

    wrap(context(), "set_logical_device_configuration", around)


@found_as(memory__limits_overcommitted="no_failure")
def tensors_that_do_not_fit_are_made_elsewhere() -> None:
    def around(compute: Any) -> Any:
        try:
            return compute()
        except Exception as error:
            if not is_full(error):
                raise
            return module("tensorflow").constant(0.0)

    around_ops("Fill", around)


@found_as(memory__several_models="over_plan")
def models_take_more() -> None:
    def around(compute: Any) -> Any:
        take_memory(0, 256 * MIB)
        return compute()

    around_ops("VarHandleOp", around)


@found_as(memory__several_models="elsewhere")
def variables_are_on_the_first_gpu() -> None:
    variable = module("tensorflow.python.ops.resource_variable_ops").ResourceVariable

    def around(original: Any, self: Any, *given: Any, **named: Any) -> Any:
        with on("GPU:0"):
            return original(self, *given, **named)

    wrap(variable, "__init__", around)


@found_as(memory__shared_gpu="more_than_free")
def the_default_counts_on_all_memory() -> None:
    def change(config: Any) -> None:
        if not config.gpu_options.per_process_gpu_memory_fraction:
            config.gpu_options.per_process_gpu_memory_fraction = 1.0

    in_sessions(change)


@found_as(memory__shared_gpu="not_held")
def the_other_process_is_on_the_cpu() -> None:
    in_device_scopes(gpus_lead_to_the_cpu)


@found_as(memory__shared_gpu="not_shareable")
def a_gpu_in_use_is_refused() -> None:
    refuse(session(), "run", refused)
