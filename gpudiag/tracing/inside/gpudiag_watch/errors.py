"""The errors of TensorFlow, and what Python held when memory ran out."""

from .lines import line_of_program
from .notes import cut, guarded, missing, note, replace, short_device, state
from .operations import flush, sample

_MOST_ERRORS = 20
_MOST_WALKS = 3
_HEAVY_BYTES = 1 << 20


def in_errors(module) -> None:
    """Note the errors of TensorFlow; some are raised by Python and some by C++, and all are made here."""
    cls = getattr(module, "OpError", None)
    if cls is None:
        missing("tensorflow.python.framework.errors_impl.OpError", "errors, such as out of memory")
        return
    begun = cls.__init__

    def init(self, *positional, **named):
        begun(self, *positional, **named)
        if type(self).__name__ in _NOTED_ERRORS:
            guarded(_failed, self)

    replace(cls, "__init__", init)


_NOTED_ERRORS = frozenset(
    """
    AbortedError DataLossError FailedPreconditionError InternalError InvalidArgumentError ResourceExhaustedError
    UnavailableError UnimplementedError UnknownError
    """.split()
)
"""The others are often what a program expects: the end of a dataset, a file that is not there."""


def _failed(error) -> None:
    kind, message = type(error).__name__, error.message or ""
    if "[Op:" not in message and "{{" not in message:  # of no operation that ran: TensorFlow asks itself and catches
        return
    if message == state.last_error:  # a session makes it again, with more about the operation
        return
    state.last_error = message
    flush()
    state.errors += 1
    if state.errors > _MOST_ERRORS:
        return
    note("error", error=kind, message=cut(message, 2000), line=line_of_program(3))
    if kind == "ResourceExhaustedError" and state.walks < _MOST_WALKS:
        state.walks += 1
        sample()
        note("holders", holders=_holders(), limits=dict(state.limits))


def _holders() -> list:
    """Return the largest groups of tensors and variables that Python holds: name, device, bytes, number."""
    import gc

    from tensorflow.python.framework import ops
    from tensorflow.python.ops import resource_variable_ops

    eager = getattr(ops, "EagerTensor", None)
    variable = resource_variable_ops.BaseResourceVariable
    groups: dict = {}
    for candidate in gc.get_objects():
        kind = type(candidate)
        if kind is not eager and not issubclass(kind, variable):
            continue
        try:
            size = candidate.dtype.size * (candidate.shape.num_elements() or 0)
            if size < _HEAVY_BYTES:
                continue
            shape = "x".join(map(str, candidate.shape)) or "scalar"
            is_variable = kind is not eager
            name = "variable %s" % cut(candidate.name, 100) if is_variable else "tensor"
            key = ("%s %s %s" % (name, candidate.dtype.name, shape), short_device(candidate.device or ""))
        except Exception:  # noqa: S112  (a tensor that is half made)
            continue
        number, total = groups.get(key, (0, 0))
        groups[key] = (number + 1, total + size)
    largest = sorted(((total, number, *key) for key, (number, total) in groups.items()), reverse=True)[:8]
    return [
        {"what": what, "device": device, "bytes": total, "number": number} for total, number, what, device in largest
    ]
