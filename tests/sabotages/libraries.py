"""Libraries whose results are a little wrong, on one GPU or on all."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from sabotages import found_as
from sabotages.tools import PRODUCTS, SECOND_GPU, SUMS, falsify, ignore, module, refuse_ops, wrap


def _one_element(value: Any) -> Any:
    """Return it with its last element wrong, by a tenth of the largest."""
    tf = module("tensorflow")
    if value.dtype.is_integer:  # a shape
        return value
    flat = tf.reshape(value, [-1])
    largest = tf.cast(tf.reduce_max(tf.abs(flat)), value.dtype)
    wrong = tf.concat([flat[:-1], flat[-1:] + largest / 10], 0)
    return tf.reshape(wrong, tf.shape(value))


@found_as(libraries__cublas="differs", libraries__mixed_precision="differs")
def one_element_of_a_product_is_wrong() -> None:
    falsify(PRODUCTS, SECOND_GPU, _one_element)


@found_as(libraries__cublas="differs")
def large_products_are_wrong_in_float16() -> None:
    def how(value: Any) -> Any:
        return _one_element(value) if value.dtype == "float16" and value.shape[-1] >= 512 else value

    falsify(PRODUCTS, SECOND_GPU, how)


@found_as(libraries__cublas="differs")
def products_of_transposed_matrices_are_wrong() -> None:
    _falsify_with("MatMul", lambda given: ("transpose_b", True) in pairwise(given))


def _falsify_with(kind: str, has: Callable[[list[Any]], bool]) -> None:
    """Let eager operations of a type give wrong results on GPUs if they have this among their attributes."""

    def around(original: Any, ctx: Any, called: str, *given: Any, **named: Any) -> Any:
        made = original(ctx, called, *given, **named)
        attributes = [value for value in given if isinstance(value, str | bool | list | tuple)]
        return _one_element(made) if called == kind and "GPU" in made.device and has(attributes) else made

    wrap(module("tensorflow.python.pywrap_tfe"), "TFE_Py_FastPathExecute", around)


@found_as(libraries__cublas="differs")
def products_are_in_tf32_after_all() -> None:
    def rounded(value: Any) -> Any:
        tf = module("tensorflow")
        if value.dtype != tf.float32:
            return value
        kept = tf.bitwise.bitwise_and(tf.bitcast(value, tf.int32), tf.constant(-(1 << 13), tf.int32))
        return tf.bitcast(kept, tf.float32)

    falsify(PRODUCTS, "", rounded)


@found_as(libraries__cudnn="differs")
def a_convolution_is_wrong() -> None:
    falsify("Conv2D Conv3D", SECOND_GPU, _one_element)


@found_as(libraries__cudnn="differs")
def channels_first_are_wrong() -> None:
    _falsify_with("Conv2D", lambda given: "NCHW" in given)


@found_as(libraries__cudnn="differs")
def strides_are_wrong() -> None:
    _falsify_with("Conv2D", lambda given: [1, 2, 2, 1] in given)


@found_as(libraries__cudnn="differs")
def a_gradient_of_a_convolution_is_wrong() -> None:
    falsify("Conv2DBackpropFilter Conv2DBackpropFilterV2", SECOND_GPU, _one_element)


@found_as(libraries__cudnn="differs")
def the_other_gradient_of_a_convolution_is_wrong() -> None:
    falsify("Conv2DBackpropInput Conv2DBackpropInputV2", SECOND_GPU, _one_element)


@found_as(libraries__cudnn_layers="differs")
def a_normalisation_is_wrong() -> None:
    falsify("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3", SECOND_GPU, lambda value: value + 0.1)


@found_as(libraries__cudnn_layers="differs")
def the_gradient_of_a_normalisation_is_wrong() -> None:
    falsify("FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3", SECOND_GPU)


@found_as(libraries__cudnn_layers="differs")
def a_pooling_is_wrong() -> None:
    falsify("AvgPool", SECOND_GPU, _one_element)


@found_as(libraries__cufft="differs")
def a_transform_back_is_not_scaled() -> None:
    falsify("IFFT IFFT2D IFFT3D IRFFT IRFFT2D IRFFT3D", SECOND_GPU)


@found_as(libraries__cufft="differs")
def a_transform_in_three_dimensions_is_wrong() -> None:
    falsify("FFT3D", SECOND_GPU)


@found_as(libraries__cufft="differs")
def a_transform_of_real_numbers_is_wrong() -> None:
    falsify("RFFT", SECOND_GPU)


@found_as(libraries__cusolver="differs")
def a_factor_is_wrong() -> None:
    falsify("Cholesky", SECOND_GPU)


@found_as(libraries__cusolver="differs")
def singular_values_are_wrong() -> None:
    falsify("Svd", SECOND_GPU, _one_element)


@found_as(libraries__cusolver="differs")
def a_solution_is_wrong() -> None:
    falsify("MatrixSolve", SECOND_GPU, _one_element)


@found_as(libraries__cusolver="differs")
def orthogonal_factors_are_not() -> None:
    falsify("Qr", SECOND_GPU, lambda value: value + 0.1)


@found_as(libraries__cusolver="differs")
def a_determinant_is_wrong() -> None:
    falsify("MatrixDeterminant LogMatrixDeterminant", SECOND_GPU)


@found_as(libraries__cusolver="differs")
def eigenvalues_are_wrong() -> None:
    falsify("SelfAdjointEigV2 Eig", SECOND_GPU, _one_element)


@found_as(libraries__cusparse="differs")
def a_tridiagonal_solution_is_wrong() -> None:
    falsify("TridiagonalSolve", SECOND_GPU, _one_element)


@found_as(libraries__cusparse="differs")
def a_sparse_product_is_wrong() -> None:
    falsify("SparseMatrixMatMul SparseTensorDenseMatMul", SECOND_GPU, _one_element)


@found_as(libraries__cusparse="differs")
def a_product_of_sparse_matrices_is_wrong() -> None:
    falsify("CSRSparseMatrixToDense", SECOND_GPU, _one_element)


@found_as(libraries__cublas="failed", libraries__cudnn="failed")
def operations_raise_on_the_second_gpu() -> None:
    types = "Conv2D FusedBatchNormV3 FFT Cholesky TridiagonalSolve StatelessRandomNormalV2 StatelessRandomUniformV2"
    refuse_ops(f"{PRODUCTS} {types}", SECOND_GPU)


@found_as(libraries__mixed_precision="failed")
def policies_are_float32() -> None:
    def around(original: Any, self: Any, name: str) -> None:
        original(self, "float32" if name == "mixed_float16" else name)

    wrap(module("keras").mixed_precision.Policy, "__init__", around)


@found_as(libraries__mixed_precision="differs")
def the_step_is_skipped() -> None:
    ignore(module("keras").optimizers.LossScaleOptimizer, "apply")


@found_as(libraries__mixed_precision="differs")
def the_loss_scale_is_never_removed() -> None:
    optimizer = module("keras").optimizers.Optimizer
    loss_scaled = module("keras").optimizers.LossScaleOptimizer

    def around(original: Any, self: Any, grads: Any, variables: Any = None) -> Any:
        if isinstance(self, loss_scaled):
            return self.inner_optimizer.apply(grads, variables)
        return original(self, grads, variables)

    wrap(optimizer, "apply", around)
    wrap(loss_scaled, "apply", around)


@found_as(libraries__reproducible="differs")
def the_seed_is_ignored() -> None:
    ignore(module("tensorflow.python.eager.context").Context, "_set_global_seed")


@found_as(libraries__reproducible="differs")
def random_numbers_of_the_gpu_are_others() -> None:
    falsify(
        "StatelessRandomNormalV2 StatelessRandomUniformV2 StatelessRandomNormal StatelessRandomUniform",
        SECOND_GPU,
        lambda value: value + 0.25,
    )


@found_as(libraries__reproducible="differs")
def a_generator_has_no_seed() -> None:
    drawn: list[int] = []

    def from_seed(original: Any, seed: int, *given: Any) -> Any:
        drawn.append(seed)
        return original(seed + len(drawn), *given)

    wrap(module("tensorflow").random.Generator, "from_seed", from_seed)


@found_as(libraries__reproducible="differs")
def sums_are_in_any_order() -> None:
    count: list[int] = []

    def how(value: Any) -> Any:
        count.append(1)
        return value * (1 + 1e-6 * len(count))

    falsify("Conv2DBackpropFilter BiasAddGrad UnsortedSegmentSum SegmentSum SegmentSumV2", SECOND_GPU, how)


@found_as(libraries__nccl="differs")
def sums_between_gpus_are_means() -> None:
    falsify(SUMS, how=lambda value: value / 2)


@found_as(libraries__nccl="differs")
def gathers_between_gpus_are_wrong() -> None:
    falsify("CollectiveGather CollectiveGatherV2", SECOND_GPU, _one_element)


@found_as(libraries__nccl="failed")
def sums_between_gpus_raise() -> None:
    refuse_ops(SUMS)


def _inverted(value: Any) -> Any:
    return module("tensorflow").bitwise.invert(value) if value.dtype.is_integer else value


@found_as(libraries__copies="corrupted")
def copies_arrive_wrong() -> None:
    falsify("Identity", SECOND_GPU, _inverted)


@found_as(libraries__copies="copy_failed")
def copies_raise() -> None:
    refuse_ops("Identity", SECOND_GPU)
