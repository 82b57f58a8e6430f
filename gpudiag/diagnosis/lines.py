"""Lines of logs: what each kind is worth, and what a program's traceback says. Matched by text and never by number.

The texts are those of TensorFlow 2.18-2.21, older ones where users still meet them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice

from gpudiag import logline
from gpudiag.plaintext import one_line, plain


@dataclass(frozen=True)
class KnownLine:
    """A line that looks like something else than it is."""

    pattern: re.Pattern[str]
    why: str


def _known(pattern: str, why: str) -> KnownLine:
    return KnownLine(re.compile(pattern), why)


HARMLESS = (
    _known(
        r"ran out of memory trying to allocate .{0,300}The caller indicates that this is not a failure",
        "TensorFlow tried a faster way that needs more memory, and took another",
    ),
    _known(
        r"Unable to register cu\w+ factory: Attempting to register factory for plugin \w+ when one has already been "
        r"registered|computation placer already registered",
        "the build registers it twice and the first one is used; a missing GPU has another cause",
    ),
    _known(
        r"TF-TRT Warning: Could not find TensorRT|Cannot dlopen some TensorRT libraries|"
        r"Could not load dynamic library 'libnvinfer\w*\.so[.\d]*'",
        "TensorRT is optional, and TensorFlow's own wheels are built without it",
    ),
    _known(
        r"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
        "it concerns the profiler alone, which needs NVreg_RestrictProfilingToAdminUsers=0 for the kernel module, or "
        "docker run --cap-add SYS_ADMIN",
    ),
    _known(
        r"successful NUMA node read from SysFS had negative value|could not open file to read NUMA node|"
        r"Your kernel may have been built without NUMA support",
        "the machine, often a virtual one, does not say which processor is nearest to the GPU; node 0 is assumed",
    ),
    _known(
        r"This TensorFlow binary is optimized (?:to use available CPU instructions|with oneAPI)|"
        r"To enable the following instructions: [A-Z]",
        "it concerns the speed of operations on the CPU",
    ),
    _known(r"oneDNN custom operations are on", "it concerns operations on the CPU; TF_ENABLE_ONEDNN_OPTS=0 ends it"),
    _known(
        r"All log messages before absl::InitializeLog\(\) is called are written to STDERR",
        "it says where the lines below it go",
    ),
    _known(
        r"Local rendezvous is aborting with status: OUT_OF_RANGE: End of sequence",
        "a data set has come to its end",
    ),
    _known(
        r"The caller indicates that this is not a failure, but this may mean that there could be performance gains",
        "an algorithm that needs less memory is used instead",
    ),
    _known(r"Skipping the delay kernel, measurement accuracy will be reduced", "it concerns the choice of algorithms"),
    _known(r"disabling MLIR crash reproducer", "it concerns reports on crashes of the compiler"),
    _known(r"Registers are spilled to local memory", "it concerns the speed of one compiled function"),
)
"""Lines that look like errors and are none."""

MISLEADING = (
    _known(
        r"Could not find cuda drivers on your machine, GPU will not be used",
        "it is not about the driver: the CUDA runtime library libcudart.so.12 could not be opened",
    ),
    _known(
        r"Failed call to cuInit: UNKNOWN ERROR \(303\)",
        "the driver's library libcuda.so.1 could not be opened",
    ),
    _known(
        r"Cannot dlopen some GPU libraries\. Please make sure the missing libraries mentioned above",
        "none is mentioned above: TF_CPP_VMODULE=dso_loader=1 makes TensorFlow name them",
    ),
    _known(
        r"Failed to determine cuDNN version .{0,300}CUDNN_STATUS_INTERNAL_ERROR",
        "the library libcudnn.so.9 could not be opened",
    ),
    _known(
        r"Overriding \w+ setting because the TF_FORCE_GPU_ALLOW_GROWTH environment variable is set",
        "the variable decides, whatever the program sets",
    ),
    _known(
        r"The requested device appears to be a GPU, but CUDA is not enabled",
        "TensorFlow found no GPU that it can use, or was built without CUDA",
    ),
)
"""Lines that name another fault than the one they follow from."""

DEVICE_FULL = re.compile(
    r"failed to allocate \S+ \(\d+ bytes\) from device|failed\. Status: out of memory|CUDA_ERROR_OUT_OF_MEMORY"
)
"""The GPU itself has no memory left."""
POOL_FULL = re.compile(r"OOM when allocating tensor|\) ran out of memory trying to allocate")
"""What TensorFlow took of the GPU's memory is used up."""
NO_HANDLE = re.compile(
    r"(?:[Ff]ailed to create|[Cc]ould not create) cu\w+ handle: "
    r"CU\w+_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED|INTERNAL_ERROR)"
)
"""A library of NVIDIA's could not start on the GPU."""
FRAMEWORK_FULL = re.compile(
    r"(?P<jax>(?:Xla|Jax)RuntimeError: RESOURCE_EXHAUSTED)|"
    r"(?P<torch>OutOfMemoryError: CUDA out of memory|RuntimeError: CUDA out of memory|"
    r"RuntimeError: CUDA error: CUBLAS_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED))"
)
"""JAX or PyTorch found no memory on the GPU."""
FRAMEWORK = re.compile(r"-packages[/\\](?:(?P<jax>jaxlib|jax)|(?P<torch>torch))[/\\]")
"""JAX or PyTorch at work, as a traceback shows it."""
CREATED = re.compile(
    r"(?:\b(?P<thread>\d+) )?gpu_device\.cc:\d+\] Created device \S*device:(?P<device>GPU:\d+) "
    r"with (?P<mib>\d+) MB memory:.{0,300}pci bus id: (?P<pci>[\da-fA-F:.]+)"
)
"""TensorFlow has made a device; ``thread`` is the process id, too, where the main thread did."""

_WORKER = re.compile(r"\[gw(\d+)\]")
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_LIBRARY = re.compile(r"[/\\](?:tensorflow|keras)[/\\]")
_MARGIN = re.compile(r"^(?:E\s+|[\s>-]+(?:\d+\s+)?)*")
"""What pytest and notebooks put before a statement in a traceback."""
_MOST_LINES_BACK = 100
_MOST_CHARACTERS = 300


def harmless(log: Iterable[str]) -> tuple[str, ...]:
    """Return, for each kind of harmless line in ``log``, the line's text and why it is harmless; each kind once."""
    return _named(HARMLESS, log)


def misleading(log: Iterable[str]) -> tuple[str, ...]:
    """Return, for each kind of misleading line in ``log``, the line's text and what it means; each kind once."""
    return _named(MISLEADING, log)


def worrying(log: Iterable[str]) -> Iterator[str]:
    """Yield the lines of ``log`` that TensorFlow wrote as warnings or errors."""
    return (line for line in log if any(one.level != "I" for one in logline.parse([line])))


def _named(known: tuple[KnownLine, ...], log: Iterable[str]) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for line in log:
        for one in known:
            if one.pattern.pattern not in found and (match := one.pattern.search(line)):
                found[one.pattern.pattern] = f"{match[0]}: {one.why}"
    return tuple(found.values())


def matching(log: Iterable[str], pattern: re.Pattern[str], most: int = 2) -> tuple[str, ...]:
    """Return the first ``most`` different texts of lines in ``log`` in which ``pattern`` is found."""
    return tuple(islice(dict.fromkeys(text(line) for line in log if pattern.search(line)), most))


def text(line: str) -> str:
    """Return a line of TensorFlow's log without level, time, thread and number; of another log the line itself."""
    parsed = logline.parse([plain(line)])
    return one_line(f"{parsed[0].file}: {parsed[0].text}" if parsed else line)[:_MOST_CHARACTERS]


def statements(
    log: Sequence[str], error: re.Pattern[str], statement: re.Pattern[str]
) -> Iterator[tuple[re.Match[str], str, str]]:
    """Yield, for each ``error`` in ``log``, where it was found, its text, and the ``statement`` that raised it.

    The statement is of the user's own program, with its place, from a traceback as Python, pytest or a notebook prints
    it; "" where the log has none. The text is for people: it is cut, and is not to be searched again.
    """

    @cache  # many errors may have the same lines above them
    def shows(number: int) -> bool:
        return statement.search(log[number]) is not None

    for number, line in enumerate(log):
        if found := error.search(line):
            said = text(_MARGIN.sub("", line, count=1))
            if found[0] not in said:  # as in a structured log, whose message comes late in the line
                said = text(line[found.start() :])
            yield found, said, _statement(log, number, shows)


_OF_AN_ERROR = re.compile(
    r"\s|Traceback |During handling |The above exception |Hint: |\[\[\{\{node |\[Op:|"
    r"E  |=+ |-+ |FAILED |ERROR |[\w.]+(?:Error|Exception)\b"
)
"""How lines begin that follow an error which ended the program: the rest of its text, a traceback, pytest's summary."""


def ended_by(log: Sequence[str], error: re.Pattern[str]) -> bool:
    """Return True where ``log`` ends with a raised ``error``: the program did not catch it and go on.

    TensorFlow logs an error, too, that the program catches: such a line shows no end.
    """
    for number in range(len(log) - 1, -1, -1):
        if not log[number].strip() or logline.parse([log[number]]):
            continue
        if error.search(log[number]):
            return True
        if not _OF_AN_ERROR.match(log[number]):
            return False
    return False


def _statement(log: Sequence[str], error: int, shows: Callable[[int], bool]) -> str:
    """Return the nearest line above the ``error`` that ``shows`` the statement, with its place; "" for none."""
    for number in range(error - 1, max(error - _MOST_LINES_BACK, 0) - 1, -1):
        if log[number].startswith("Traceback (most recent call last)"):
            return ""
        if not shows(number):
            continue
        frame = _FRAME.search(log[number - 1]) if number else None
        if frame is None:
            return one_line(_MARGIN.sub("", plain(log[number]), count=1))[:_MOST_CHARACTERS]
        if not _LIBRARY.search(frame["file"]):
            return f"{frame['file']}:{frame['line']}: {one_line(log[number])}"[:_MOST_CHARACTERS]
    return ""


def workers(log: Iterable[str]) -> int:
    """Return how many workers of pytest-xdist wrote to ``log``."""
    return len({found for line in log for found in _WORKER.findall(line)})
