"""A placement that is not obeyed, not logged, or obeyed too well."""

from __future__ import annotations

from typing import Any

from sabotages import found_as
from sabotages.tools import (
    PRODUCTS,
    around_ops,
    context,
    current_device,
    falsify,
    gpus_lead_to_the_cpu,
    in_device_scopes,
    in_sessions,
    module,
    on,
    other_gpus_lead_to_the_first,
    refuse,
    run_on,
    wrap,
)


@found_as(
    placement__default="not_logged",
    placement__fallback_causes="not_logged",
    placement__log="op_not_logged",
    placement__silent_cpu="not_logged",
    placement__soft_fallback="not_logged",
    logical__cpu_split="ran_elsewhere",
)
def placements_are_not_logged() -> None:
    kept = context().log_device_placement
    context().log_device_placement = property(kept.fget, lambda self, enable: None)
    in_sessions(lambda config: setattr(config, "log_device_placement", False))


def _soft_placement_stays(enabled: bool) -> None:
    kept = context().soft_device_placement
    context().soft_device_placement = property(lambda self: enabled, lambda self, _: kept.fset(self, enabled))


@found_as(
    placement__fallback_causes="cause_not_told",
    placement__hard_error="no_error",
    placement__soft_switch_ignored="behaviour_changed",
    distribution__mirrored_without_gpus="accepted",
)
def soft_placement_stays_on() -> None:
    _soft_placement_stays(True)


@found_as(
    placement__fallback_causes="raised_instead",
    placement__silent_cpu="raised_instead",
    placement__soft_fallback="raised_instead",
    placement__soft_switch_ignored="behaviour_changed",
    distribution__mirrored_without_gpus="refused",
)
def soft_placement_stays_off() -> None:
    _soft_placement_stays(False)


@found_as(placement__default="wrong_result", placement__log="wrong_result", placement__soft_fallback="wrong_result")
def products_are_wrong() -> None:
    falsify(PRODUCTS)


@found_as(placement__silent_cpu="wrong_value")
def sums_are_wrong() -> None:
    falsify("Sum")


@found_as(placement__manual="wrong_sum", distribution__manual_replicas="wrong_sum")
def additions_lose_a_term() -> None:
    falsify("AddN AddV2 Add", how=lambda value: value // 2 if value.dtype.is_integer else value / 2)


@found_as(placement__default="on_cpu")
def the_cpu_is_the_default() -> None:
    def around(compute: Any) -> Any:
        if "GPU" in current_device():
            return compute()
        with on("CPU:0"):
            return compute()

    around_ops(PRODUCTS, around)


@found_as(placement__default="not_the_first")
def the_last_gpu_is_the_default() -> None:
    def around(compute: Any) -> Any:
        if "GPU" in current_device():
            return compute()
        with on("GPU:1"):
            return compute()

    around_ops(PRODUCTS, around)


@found_as(
    placement__manual="ran_elsewhere",
    distribution__manual_replicas="other_gpu",
    distribution__towers="tower_elsewhere",
    memory__several_models="elsewhere",
    logical__index_shift="ran_elsewhere",
    logical__gpu_split="other_gpu",
    visibility__graphs_on_devices="other_device",
    visibility__graph_import_on_device="other_device",
)
def other_gpus_are_the_first() -> None:
    in_device_scopes(other_gpus_lead_to_the_first)


@found_as(placement__silent_cpu="ran_elsewhere", libraries__cublas="elsewhere")
def gpus_are_the_cpu() -> None:
    in_device_scopes(gpus_lead_to_the_cpu)


@found_as(placement__log="op_elsewhere", logical__cpu_split="ran_elsewhere", logical__after_init="devices_changed")
def other_cpus_are_the_first() -> None:
    in_device_scopes(lambda name: name.replace("CPU:1", "CPU:0").replace("CPU:2", "CPU:0"))


@found_as(placement__fallback_causes="fell_elsewhere")
def a_missing_gpu_is_the_second() -> None:
    in_device_scopes(lambda name: name.replace("GPU:99", "GPU:1"))


@found_as(placement__hard_error="other_text")
def errors_do_not_name_the_device() -> None:
    errors = module("tensorflow.python.framework.errors_impl").OpError
    wrap(errors, "__init__", lambda original, self, node, op, message, *rest: original(self, node, op, "no", *rest))


@found_as(placement__hard_error="other_type", distribution__mirrored_without_gpus="other_error")
def errors_have_another_type() -> None:
    def around(original: Any, self: Any, node: Any, op: Any, message: str, *rest: Any) -> None:
        raise RuntimeError(message)

    wrap(module("tensorflow.python.framework.errors_impl").InvalidArgumentError, "__init__", around)


@found_as(placement__manual="held_elsewhere", placement__silent_cpu="held_elsewhere")
def products_are_moved_afterwards() -> None:
    def around(compute: Any) -> Any:
        made = compute()
        if not hasattr(made, "_copy"):
            return made
        return made._copy(device_name="CPU:0" if "GPU" in made.device else "GPU:0")

    around_ops(PRODUCTS, around)


@found_as(placement__soft_fallback="log_disagrees")
def products_end_on_another_cpu() -> None:
    tf = module("tensorflow")
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    falsify(PRODUCTS, how=_on_the_second_cpu)


def _on_the_second_cpu(value: Any) -> Any:
    with on("CPU:1"):
        return module("tensorflow").identity(value)


@found_as(placement__manual="int32_on_device")
def integers_are_on_the_device() -> None:
    def around(compute: Any) -> Any:
        made = compute()
        tf = module("tensorflow")
        if made.dtype != tf.int32 or not hasattr(made, "numpy"):
            return made
        return tf.bitcast(tf.zeros([*made.shape], tf.float32) + 0.0, tf.int32)

    around_ops("AddV2 Add", around)


@found_as(placement__silent_cpu="ran_elsewhere")
def one_operation_has_no_gpu_kernel() -> None:
    run_on("Relu Softmax Sum Mul", "CPU:0")


@found_as(placement__soft_switch_ignored="behaviour_changed")
def made_up_types_are_refused() -> None:
    eager = module("tensorflow.python.eager.context")._EagerDeviceContext
    refuse(eager, "__init__", lambda: ValueError("no such type"), lambda self, ctx, name: "FOO" in str(name))


@found_as(placement__soft_switch_ignored="behaviour_changed")
def eager_config_is_obeyed() -> None:
    def around(original: Any, config: Any = None, *given: Any) -> Any:
        done = original(config, *given)
        if config is not None and not config.allow_soft_placement:
            module("tensorflow").config.set_soft_device_placement(False)
        return done

    wrap(module("tensorflow").compat.v1, "enable_eager_execution", around)
