"""Strategies that leave a GPU out, and reductions that do something else."""

from __future__ import annotations

from typing import Any

from sabotages import found_as
from sabotages.tools import (
    PRODUCTS,
    SECOND_GPU,
    SUMS,
    around_ops,
    current_device,
    falsify,
    module,
    on,
    refused,
    run_on,
    wrap,
)

CROSS = "tensorflow.python.distribute.cross_device_ops"
LIBRARY = "tensorflow.python.distribute.distribute_lib"
MIRRORED = "tensorflow.python.distribute.mirrored_strategy"


def _in_reductions(change: Any) -> None:
    """Let ``change(op)`` choose another operation for each reduction between devices."""
    cross = module(CROSS).CrossDeviceOps
    wrap(cross, "reduce", lambda original, self, op, *rest, **named: original(self, change(op), *rest, **named))
    wrap(cross, "batch_reduce", lambda original, self, op, *rest, **named: original(self, change(op), *rest, **named))
    wrap(
        module(CROSS).CollectiveAllReduce,
        "_all_reduce",
        lambda original, self, op, *rest, **named: original(self, change(op), *rest, **named),
    )


@found_as(distribution__collective_matches="wrong_sum", distribution__mirrored_strategy="wrong_step")
def sums_are_means() -> None:
    op = module("tensorflow").distribute.ReduceOp
    _in_reductions(lambda asked: op.MEAN)


@found_as(distribution__dataset="wrong_sum")
def means_are_sums() -> None:
    op = module("tensorflow").distribute.ReduceOp
    _in_reductions(lambda asked: op.SUM)


@found_as(
    distribution__mirrored_strategy="other_replicas",
    distribution__dataset="other_replicas",
    distribution__mirrored_without_gpus="other_replicas",
    distribution__reduction="sum_elsewhere",
)
def a_strategy_uses_one_gpu() -> None:
    extended = module(MIRRORED).MirroredExtended
    wrap(extended, "_initialize_strategy", lambda original, self, devices: original(self, devices[:1]))


@found_as(
    distribution__mirrored_strategy="wrong_step",
    distribution__manual_replicas="wrong_result",
    distribution__towers="wrong_gradient",
)
def products_are_wrong_on_the_second_gpu() -> None:
    falsify(PRODUCTS, SECOND_GPU)


@found_as(distribution__mirrored_strategy="wrong_step")
def an_update_is_made_twice() -> None:
    def around(compute: Any) -> Any:
        if current_device().endswith(SECOND_GPU):
            compute()
        return compute()

    around_ops("AssignSubVariableOp AssignAddVariableOp ResourceApplyGradientDescent", around)


@found_as(distribution__mirrored_strategy="not_mirrored")
def copies_of_variables_are_on_the_first_gpu() -> None:
    run_on("VarHandleOp", "GPU:0")


@found_as(distribution__collective_matches="wrong_sum")
def every_replica_keeps_its_own_value() -> None:
    wrap(
        module(LIBRARY).ReplicaContextBase,
        "all_reduce",
        lambda original, self, op, value, options=None: value,
    )


@found_as(distribution__mirrored_strategy="other_collective")
def the_collective_is_a_ring() -> None:
    ring = module("tensorflow").distribute.experimental.CommunicationImplementation.RING

    def around(original: Any, self: Any, *given: Any, **named: Any) -> None:
        original(self, *given, **named)
        self._communication_options = type(self._communication_options)(implementation=ring)

    wrap(module(MIRRORED).MirroredExtended, "__init__", around)


@found_as(distribution__collective_matches="wrong_sum")
def the_last_element_is_not_added() -> None:
    def how(value: Any) -> Any:
        tf = module("tensorflow")
        if value.shape.num_elements() is None or value.shape.num_elements() % 2 == 0:
            return value
        flat = tf.reshape(value, [-1])
        return tf.reshape(tf.concat([flat[:-1], flat[-1:] - 1], 0), value.shape)

    falsify(SUMS, SECOND_GPU, how)


@found_as(distribution__collective_matches="wrong_sum")
def large_sums_are_wrong() -> None:
    def how(value: Any) -> Any:
        return value * 2 if (value.shape.num_elements() or 0) >= 1 << 20 else value

    falsify(SUMS, SECOND_GPU, how)


@found_as(distribution__dataset="wrong_parts")
def every_replica_gets_the_whole_batch() -> None:
    dataset = module("tensorflow").data.Dataset

    def around(original: Any, self: Any, *given: Any, **named: Any) -> Any:
        return self.flat_map(lambda batch: dataset.from_tensors(batch).repeat(2))

    wrap(module("tensorflow.python.data.ops.dataset_ops").DatasetV2, "rebatch", around)


@found_as(distribution__dataset="wrong_parts")
def short_batches_are_dropped() -> None:
    def around(original: Any, self: Any, dataset: Any, *given: Any, **named: Any) -> Any:
        return original(self, dataset.take(2), *given, **named)

    wrap(module(MIRRORED).MirroredExtended, "_experimental_distribute_dataset", around)


@found_as(distribution__dataset="wrong_gather")
def gathers_are_in_reverse() -> None:
    def around(original: Any, self: Any, value: Any, axis: Any) -> Any:
        return module("tensorflow").reverse(original(self, value, axis), [axis])

    wrap(module("tensorflow").distribute.Strategy, "gather", around)


@found_as(distribution__dataset="part_elsewhere")
def parts_stay_on_the_cpu() -> None:
    falsify("OptionalGetValue IteratorGetNext", how=_on_the_cpu)


def _on_the_cpu(value: Any) -> Any:
    with on("CPU:0"):
        return module("tensorflow").identity(value)


@found_as(distribution__manual_replicas="sum_elsewhere")
def sums_are_on_a_gpu() -> None:
    run_on("AddN AddV2", "GPU:0", asked="CPU:0")


@found_as(distribution__towers="wrong_gradient")
def gradients_are_added_wrongly() -> None:
    falsify("AddN")


@found_as(distribution__towers="variable_elsewhere")
def variables_are_on_a_gpu() -> None:
    run_on("VarHandleOp VariableV2", "GPU:0")


@found_as(distribution__reduction="op_raised")
def one_way_to_reduce_raises() -> None:
    def around(original: Any, *given: Any, **named: Any) -> Any:
        raise refused()

    wrap(module(CROSS).ReductionToOneDevice, "reduce_implementation", around)
    wrap(module(CROSS).ReductionToOneDevice, "batch_reduce_implementation", around)


@found_as(distribution__reduction="none_works")
def no_way_to_reduce_works() -> None:
    def around(original: Any, *given: Any, **named: Any) -> Any:
        raise refused()

    wrap(module(CROSS).CrossDeviceOps, "reduce", around)
    wrap(module(CROSS).CrossDeviceOps, "batch_reduce", around)


@found_as(distribution__reduction="wrong_sum")
def one_way_to_reduce_averages() -> None:
    op = module("tensorflow").distribute.ReduceOp

    def around(original: Any, self: Any, asked: Any, *given: Any, **named: Any) -> Any:
        return original(self, op.MEAN, *given, **named)

    wrap(module(CROSS).AllReduceCrossDeviceOps, "reduce_implementation", around)
    wrap(module(CROSS).AllReduceCrossDeviceOps, "batch_reduce_implementation", around)
