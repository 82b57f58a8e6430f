"""Lines that nobody knows: a fault, or a warning after which the program went on."""

from __future__ import annotations

import pytest

from gpudiag.knowledge.suspicion import suspicion

_WARNED = "WARNING 01-20 18:50:42 [custom_all_reduce.py:165] Custom allreduce is disabled: the P2P test failed."
_PRINTED = "Failed to load cache.bin"
_STARTED = "(APIServer pid=7) INFO:     Application startup complete."
_TRAINED = "Epoch 3 loss: 0.25"


@pytest.mark.parametrize(
    "lines",
    [
        (_WARNED, _STARTED),
        (_PRINTED, _TRAINED),
        (_PRINTED, 'INFO:     127.0.0.1:34148 - "POST /v1/chat/completions HTTP/1.1" 200 OK'),
        ("INFO 01-20 [core.py:58] lower this value if you run out of memory", _STARTED),
        ("/lib/a.py:3: FutureWarning: np.int is deprecated", "  warnings.warn("),
        ('{"level": "warning", "msg": "cache not found"}', '{"level": "info", "msg": "served"}'),
    ],
)
def test_a_program_that_goes_on_after_a_warning_has_no_fault(lines: tuple[str, ...]) -> None:
    assert suspicion(lines).unexplained == ()


def test_what_shows_that_it_went_on_is_quoted() -> None:
    (said,) = suspicion((_PRINTED, "loading", _TRAINED)).overcome
    assert said == f'"{_PRINTED}": the program went on after it ("{_TRAINED}")'


@pytest.mark.parametrize(
    "lines",
    [
        (_STARTED, _WARNED),  # nothing comes after it
        (_PRINTED, _STARTED.replace("startup complete.", "starting")),  # what is said for information is no work
        ("ERROR 01-20 [core.py:58] engine is dead", _STARTED),
        ("FrobnicationError: no", _TRAINED),
        ("Segmentation fault (core dumped)", _TRAINED),
        ("make: *** [Makefile:7] Killed", _TRAINED),
        ("Process completed with exit code 1.", "Cleaning up done"),
        ("12 passed, 1 failed in 3.2s", "report saved"),
        ("INFO - cannot reach the licence server",),  # its last word
        # Errors without the name of their class, and without a word such as "failed".
        ("XLA requires ptxas version 11.8 or higher [Op:__inference_train_function_1234]",),
        ("data.shape = [64] does not start with segment_ids.shape = [32]",),
        ("data.shape = [64] is wrong", "\t [[{{node UnsortedSegmentSum}}]]"),
        ('  File "/a/train.py", line 7, in <module>', "    main()", "data.shape = [64] starts with [32]"),
    ],
)
def test_a_fault_stays_one_whatever_follows(lines: tuple[str, ...]) -> None:
    found = suspicion(lines)
    assert found.unexplained
    assert found.overcome == ()
