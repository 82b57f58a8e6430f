"""The registry of kernels: what TensorFlow could have run on a GPU."""

PLUMBING = frozenset(
    """
    Assert AssignVariableOp Const DestroyResourceOp Enter Exit Identity IdentityN If LoopCond Merge
    MergeV2Checkpoints NextIteration NoOp PartitionedCall Placeholder Range Rank ReadVariableOp RestoreV2 SaveV2
    Shape ShapeN Size StatefulPartitionedCall StatelessIf StatelessWhile StopGradient Switch VarHandleOp
    VarIsInitializedOp While _Arg _DeviceArg _DeviceRetval _EagerConst _HostRecv _HostSend _Recv _Retval _Send
    """.split()
)
"""Operations that compute nothing, or that belong on the host."""
PASSING = frozenset(
    "Const Identity NoOp _Arg _DeviceArg _DeviceRetval _EagerConst _HostRecv _HostSend _Recv _Retval _Send".split()
)
"""Nodes of a graph that only pass tensors on."""
_REAL = frozenset((1, 2, 8, 14, 18, 19))
"""Numbers of the types float32, float64, complex64, bfloat16, complex128 and float16: with others TensorFlow's kernels
for the GPU keep their data on the host."""


def gpu_kernel(op, attributes) -> str:
    """Return ``yes`` if the registry has a kernel for the GPU for these types, else why not: ``op`` or ``type``.

    Operations without data in floating point, and those that only pass data on, are not asked for: "plain".
    """
    if op in PLUMBING:
        return "plain"
    types = {}
    for name, value in attributes.items():
        number = getattr(value, "type", value) if not isinstance(value, bool) else None  # AttrValue or a number
        number = getattr(number, "as_datatype_enum", number)
        if isinstance(number, int):
            types[name] = number
    for_gpu = [constraints for device, constraints in kernels_of(op) if device == "GPU"]
    if not for_gpu:
        return "cpu only"
    fits = [
        constraints
        for constraints in for_gpu
        if all(types.get(name) in allowed for name, allowed in constraints.items() if name in types)
    ]
    if not fits:
        return "type"
    floating = [types[name] in _REAL for name in ("T", "dtype", "Tin", "SrcT", "U") if name in types]
    return "yes" if any(floating) else "plain"


_registry: dict = {}


def kernels_of(op) -> list:
    """Return the device and the constraints of types of each kernel that is registered for ``op``."""
    found = _registry.get(op)
    if found is None:
        from tensorflow.python.framework import kernels

        found = _registry[op] = [
            (
                kernel.device_type,
                {constraint.name: frozenset(constraint.allowed_values.list.type) for constraint in kernel.constraint},
            )
            for kernel in kernels.get_registered_kernels_for_op(op).kernel
        ]
    return found
