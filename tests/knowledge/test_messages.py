"""Lines of logs are told apart by their text, whichever release of TensorFlow wrote them."""

from __future__ import annotations

import re

import pytest

from gpudiag.knowledge.log_lines import Log, LogExcerpt, ended_by, of_a_child, shortened, statements, text
from gpudiag.knowledge.message import Worth
from gpudiag.knowledge.messages.memory import POOL_FULL
from gpudiag.knowledge.messages.placement import NO_SUCH_ELEMENT

OLD = "2024-05-03 14:51:51.684995: {} external/local_xla/xla/stream_executor/cuda/file.cc:9261] "
NEW = "{}0000 00:00:1795217453.798889    8098 file.cc:2365] "


@pytest.mark.parametrize("prefix", [OLD, NEW], ids=["2.18", "2.21"])
@pytest.mark.parametrize(
    "text",
    [
        "Unable to register cuFFT factory: Attempting to register factory for plugin cuFFT when one has already been "
        "registered",
        "computation placer already registered. Please check linkage and avoid linking the same target more than once.",
        "TF-TRT Warning: Could not find TensorRT",
        "successful NUMA node read from SysFS had negative value (-1), but there must be at least one NUMA node, so "
        "returning NUMA node zero.",
        "could not open file to read NUMA node: /sys/bus/pci/devices/0000:01:00.0/numa_node",
        "This TensorFlow binary is optimized to use available CPU instructions in performance-critical operations.",
        "oneDNN custom operations are on. You may see slightly different numerical results",
        "Local rendezvous is aborting with status: OUT_OF_RANGE: End of sequence",
    ],
)
def test_a_harmless_line_is_named_once(prefix: str, text: str) -> None:
    line = prefix.format("W") + text
    (said,) = Log([line, line]).named(Worth.HARMLESS)
    quoted, _, meaning = said[1:].partition('": ')
    assert quoted in line
    assert meaning
    assert Log([line]).named(Worth.MISLEADING) == ()


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("Could not find cuda drivers on your machine, GPU will not be used.", "libcudart.so.12"),
        ("failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)", "libcuda.so.1"),
        (
            "Cannot dlopen some GPU libraries. Please make sure the missing libraries mentioned above are installed",
            "not named in this log",
        ),
        (
            "Failed to determine cuDNN version (Note that this is expected if the application doesn't link the cuDNN "
            "plugin): INTERNAL: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
            "libcudnn.so.9",
        ),
    ],
)
def test_a_misleading_line_is_corrected(text: str, meaning: str) -> None:
    (said,) = Log([NEW.format("W") + text]).named(Worth.MISLEADING)
    assert meaning in said
    assert Log([NEW.format("W") + text]).named(Worth.HARMLESS) == ()


def test_a_real_error_is_neither() -> None:
    log = [
        NEW.format("E") + "failed call to cuInit: INTERNAL: CUDA error: CUDA_ERROR_NO_DEVICE: no device is detected",
        NEW.format("W") + "Local rendezvous is aborting with status: RESOURCE_EXHAUSTED: OOM when allocating tensor",
        "RuntimeError: Physical devices cannot be modified after being initialized",
    ]
    assert Log(log).named(Worth.HARMLESS) == Log(log).named(Worth.MISLEADING) == ()


def test_lines_that_worry_are_warnings_and_errors() -> None:
    log = [NEW.format("I") + "oneDNN", OLD.format("W") + "TF-TRT", "WARNING: All log messages", "a line of a program"]
    assert Log(log).worrying.lines == (log[1],)


STATEMENT = re.compile(r"gpus\[")


@pytest.mark.parametrize(
    ("log", "found"),
    [
        (
            [
                "Traceback (most recent call last):",
                '  File "/home/someone/train.py", line 4, in <module>',
                "    use(gpus[0])",
                '  File "/venv/lib/site-packages/tensorflow/python/config.py", line 9, in use',
                "    _use(gpus[index])",
                "IndexError: list index out of range",
            ],
            "/home/someone/train.py:4: use(gpus[0])",
        ),
        ([">       use(gpus[0])", "E       IndexError: list index out of range"], "use(gpus[0])"),
        (["----> 3 use(gpus[0])", "IndexError: list index out of range"], "use(gpus[0])"),
        (["use(gpus[0])", "Traceback (most recent call last):", "IndexError: list index out of range"], ""),
        (["IndexError: list index out of range"], ""),
    ],
    ids=["Python", "pytest", "notebook", "of another traceback", "no traceback"],
)
def test_the_statement_that_raised_is_the_users_own(log: list[str], found: str) -> None:
    ((event, error, statement),) = statements(Log(log), NO_SUCH_ELEMENT, STATEMENT)
    assert (event.line, error, statement) == (log[-1], "IndexError: list index out of range", found)


def test_a_line_is_told_without_time_and_number() -> None:
    assert text(NEW.format("E") + "failed  call\x1b[0m") == "file.cc: failed call"
    assert text(OLD.format("W") + "Cannot dlopen") == "file.cc: Cannot dlopen"
    assert text("  a line of a program") == "a line of a program"


def test_workers_of_a_test_run_are_counted() -> None:
    assert Log(["[gw0] [ 50%] PASSED", "[gw1] linux -- Python 3.11", "[gw0] [100%] PASSED"]).workers == 2
    assert Log(["gw0 is a name"]).workers == 0


RAISED = "ResourceExhaustedError: OOM when allocating tensor with shape[8] [Op:Fill]"
LOGGED = NEW.format("W") + "Local rendezvous is aborting with status: RESOURCE_EXHAUSTED: OOM when allocating tensor"


@pytest.mark.parametrize(
    ("log", "ended"),
    [
        (["Epoch 1/10", LOGGED, "Traceback (most recent call last):", '  File "train.py", line 3', RAISED], True),
        ([RAISED, "", "Hint: If you want to see a list of allocated tensors", " [Op:Fill]", LOGGED], True),
        (["E   " + RAISED, "=========== short test summary info ====", "FAILED tests/test_fit.py::test"], True),
        ([LOGGED, "a smaller batch then", "Epoch 1/10"], False),
        (["Traceback (most recent call last):", RAISED, "Epoch 1/10"], False),
        ([LOGGED], False),
        ([], False),
    ],
    ids=["a traceback", "a hint", "pytest", "caught", "printed and caught", "a line of TensorFlow's alone", "empty"],
)
def test_what_a_program_caught_has_not_ended_it(log: list[str], ended: bool) -> None:
    assert ended_by(Log(log), POOL_FULL) is ended


TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "/home/someone/train.py", line 4, in <module>',
    "    use(gpus[0])",
    "IndexError: list index out of range",
]


def kept(lines: list[str]) -> tuple[str, ...]:
    log = LogExcerpt(5, 40, 60)
    for line in lines:
        log.add(line)
    assert log.count == len(lines)
    return log.lines


def test_a_message_is_kept_with_the_lines_before_it_however_long_the_log_is() -> None:
    lines = [*(f"Epoch {number}" for number in range(500)), *TRACEBACK, *(f"Step {number}" for number in range(500))]
    found = kept(lines)
    assert len(found) == 60
    at = found.index(TRACEBACK[0])
    assert list(found[at : at + 4]) == TRACEBACK
    assert [statement for *_, statement in statements(Log(found), NO_SUCH_ELEMENT, STATEMENT)] == [
        "/home/someone/train.py:4: use(gpus[0])"
    ]
    assert (found[0], found[-1]) == ("Epoch 0", "Step 499")


def test_a_flood_of_one_message_does_not_hide_another() -> None:
    flood = [f"{RAISED} {number}" for number in range(2000)]
    found = kept([*flood, LOGGED.replace("OOM when", "CUDA_ERROR_OUT_OF_MEMORY when"), *flood])
    assert any("CUDA_ERROR_OUT_OF_MEMORY" in line for line in found)


def test_a_short_log_is_kept_whole() -> None:
    assert kept(["a", *TRACEBACK, "b"]) == ("a", *TRACEBACK, "b")


def test_of_a_child_the_last_lines_are_kept_and_what_matters_before() -> None:
    error = NEW.format("E") + "something that nobody knows"
    lines = [NEW.format("I") + "nothing", error, RAISED, *(f"line {number}" for number in range(100))]
    found = of_a_child(lines, last=10, others=8, characters=200)
    assert found[-10:] == tuple(f"line {number}" for number in range(90, 100))
    assert error in found
    assert RAISED in found
    assert len(found) <= 26


def test_a_line_that_is_cut_keeps_its_message() -> None:
    line = "x" * 400 + " CUDA_ERROR_OUT_OF_MEMORY: out of memory"
    cut = shortened(line, 100)
    assert len(cut) < 200
    assert [event.message.name for event in Log([cut]).events] == ["device_full"]
    assert shortened("y" * 400, 100) == "y" * 100
    assert shortened("short", 100) == "short"
