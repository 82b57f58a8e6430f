"""``gpudiag check`` says why no GPU is used, ``explain`` what a cause is, as a user runs them."""

from __future__ import annotations

import time
from unittest.mock import Mock

import pytest

from conftest import Gpudiag
from gpudiag.isolate import JobResult, Supervision
from gpudiag.model import codec
from gpudiag.model.diagnosis import Diagnosis, FixAttempt
from gpudiag.model.report import RUN_ENDED, NoReading
from gpudiag.run import attempts, diagnosis
from gpudiag.run.options import Observer, Options
from gpudiag.run.session import Session
from gpudiag.run.signals import Signals

pytestmark = pytest.mark.usefixtures("no_child_left")
HIDDEN = {"CUDA_VISIBLE_DEVICES": "7"}


def diagnosed(gpudiag: Gpudiag, *arguments: str, **variables: str) -> Diagnosis:
    done = gpudiag("check", *gpudiag.simulated("2"), *arguments, "--format", "json", flags=(), **variables)
    assert list(gpudiag.temporary.iterdir()) == [], "a file was left behind"
    return codec.decode(done.stdout, done.stderr).diagnosis


def test_a_fix_is_tried_in_a_new_interpreter(gpudiag: Gpudiag) -> None:
    (cause,) = diagnosed(gpudiag, "host", "discovery", "-o", "report.json", "-o", "report.md", **HIDDEN).causes
    assert cause.trial is not None
    assert (cause.trial.outcome, cause.trial.change) == ("works", {"CUDA_VISIBLE_DEVICES": None})
    uuid = codec.load(gpudiag.folder / "report.json").facts.nvml_devices[0].uuid
    said = ["unset CUDA_VISIBLE_DEVICES", "the command above, here: works", f"export CUDA_VISIBLE_DEVICES={uuid}"]
    table = gpudiag("show", "report.json").stdout
    explained = gpudiag("explain", cause.cause_id, "--report", "report.json").stdout
    assert "hides all GPUs of this machine" in explained
    for text in (table, explained[explained.index("Found") :], (gpudiag.folder / "report.md").read_text()):
        places = [text.index(line) for line in said]
        assert places == sorted(places), "it is said below the line that was tried"
    other = gpudiag("explain", "gpu_lost", "--report", "report.json").stdout
    assert "The report does not name this cause." in other


def test_a_fix_that_does_not_help_is_said_not_to(gpudiag: Gpudiag) -> None:
    (cause, *_) = diagnosed(gpudiag, "host", "discovery", "--fault", "cuinit=802", **HIDDEN).causes
    assert cause.cause_id == "mask_hides_all"
    assert cause.trial is not None
    assert cause.trial.outcome == "does not help"


def test_a_fix_that_hangs_is_given_up(gpudiag: Gpudiag) -> None:
    slow = ("--fault", "slow_call=cuMemAlloc_v2:100", "--timeout", "15")
    (cause,) = diagnosed(gpudiag, "host", "discovery", *slow, **HIDDEN).causes
    assert cause.trial is not None
    assert cause.trial.outcome == "does not help"
    assert "no result within" in cause.trial.detail


def test_a_healthy_machine_has_no_cause(gpudiag: Gpudiag) -> None:
    found = diagnosed(gpudiag, "host", "discovery")
    assert found.causes == ()
    assert found.broken_at is None
    assert {step.status for step in found.steps} <= {"ok", "not known"}


def test_gpus_that_let_one_process_in_are_not_called_busy_because_of_gpudiag(gpudiag: Gpudiag) -> None:
    (gpudiag.folder / "machine.toml").write_text('[[gpu]]\ncompute_mode = "exclusive_process"\n')
    assert diagnosed(gpudiag, "discovery", "--simulate", "machine.toml", "--jobs", "4").causes == ()


def test_a_gpu_that_is_lost_is_named(gpudiag: Gpudiag) -> None:
    (cause, *_) = diagnosed(gpudiag, "host", "discovery", "--fault", "device_lost_after=1@0").causes
    assert (cause.cause_id, cause.confidence.value) == ("gpu_lost", "proved")


def test_a_log_is_read_and_kept_in_the_report(gpudiag: Gpudiag) -> None:
    (gpudiag.folder / "app.log").write_bytes(b"first\n\xff\n" + b"line\n" * 5000 + b"last\n")
    done = gpudiag("check", "host.gpus", "--log", "app.log", "--format", "json")
    lines = codec.decode(done.stdout, done.stderr).lines
    assert (lines[0], lines[-1]) == ("first", "last")
    assert len(lines) == 2000
    absent = gpudiag("check", "host.gpus", "--log", "absent.log")
    assert absent.returncode == 2
    assert "absent.log" in absent.stderr


LINE = "RuntimeError: Physical devices cannot be modified after being initialized"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
def test_a_log_is_read_in_the_encodings_of_windows(encoding: str, gpudiag: Gpudiag) -> None:
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    (gpudiag.folder / "app.log").write_bytes(f"{mark}{LINE}\r\nEpoch 1/10\r\n".encode(encoding))
    done = gpudiag("check", "host.gpus", "--log", "app.log", "--format", "json")
    assert codec.decode(done.stdout, done.stderr).lines == (LINE, "Epoch 1/10")


def test_a_log_that_is_empty_or_no_text_is_said_to_be(gpudiag: Gpudiag) -> None:
    (gpudiag.folder / "empty.log").write_text("\n")
    empty = gpudiag("check", "host.gpus", "--log", "empty.log")
    assert "--log empty.log is empty" in empty.stderr
    assert empty.returncode != 2
    (gpudiag.folder / "hole.log").write_text("Epoch 1/10\0\n" * 5)
    assert "hole.log" not in gpudiag("check", "host.gpus", "--log", "hole.log").stderr
    (gpudiag.folder / "model.h5").write_bytes(b"\x89HDF\r\n\x1a\n\0\0\0")
    binary = gpudiag("check", "host.gpus", "--log", "model.h5")
    assert (binary.returncode, binary.stdout) == (2, "")
    assert "--log model.h5 is not text" in binary.stderr


def test_explain_knows_every_cause(gpudiag: Gpudiag) -> None:
    printed = gpudiag("explain", "mask_hides_all").stdout
    assert "    fix    unset CUDA_VISIBLE_DEVICES\n           [set a variable]\n" in printed
    assert "https://" in printed
    nonsense = gpudiag("explain", "xyzzy")
    assert nonsense.stderr.endswith("nothing that can be explained is called 'xyzzy'. See 'gpudiag explain'.\n")
    misspelt = gpudiag("explain", "mask_hides_al")
    assert misspelt.returncode == 2
    assert "mask_hides_all" in misspelt.stderr
    assert gpudiag("explain", diagnosis.rules()[0].id).returncode == 0


@pytest.mark.parametrize(
    ("cause", "log", "said"),
    [
        (
            NoReading.NO_RESULT,
            ("F0000 00:00:1.2 7 a.cc:1] Unknown flag", "E0000 00:00:1.3 7 b.cc:1] a list"),
            "Unknown flag",
        ),
        (
            NoReading.SIGNAL,
            ("E0000 00:00:1.2 7 a.cc:1] first", "E0000 00:00:1.3 7 b.cc:1] last", "[stack]"),
            "last",
        ),
        (NoReading.NO_RESULT, ("nothing of TensorFlow's",), ""),
        (NoReading.EXCEPTION, ("E0000 00:00:1.2 7 a.cc:1] its detail says more",), ""),
    ],
)
def test_of_a_process_that_ended_without_a_word_the_last_error_is_told(
    cause: NoReading, log: tuple[str, ...], said: str
) -> None:
    assert attempts._last_error(JobResult("x", None, cause, "exited", "", "\n".join(log), 1.0)) == said


@pytest.mark.parametrize(
    ("cause", "detail", "outcome"),
    [
        (NoReading.INTERRUPTED, "stopped by SIGTERM", "not tried"),
        (NoReading.TIMEOUT, f"the deadline of 6 s {RUN_ENDED}", "not tried"),
        (NoReading.NOT_STARTED, "gpudiag could not start a process: EAGAIN", "not tried"),
        (NoReading.SERVER_LOST, "the fork server died", "not tried"),
        (NoReading.TIMEOUT, "no result within 60 s", "does not help"),
        (NoReading.SIGNAL, "killed by SIGSEGV", "does not help"),
    ],
)
def test_what_ends_a_trial_from_outside_says_nothing_of_the_fix(cause: NoReading, detail: str, outcome: str) -> None:
    children = Mock(spec=Supervision)
    children.wait.return_value = [JobResult("mask_hides_all", None, cause, detail, "", "", 1.0)]
    session = Session(Options(()), children, Mock(spec=Observer), Signals(), None)
    trial = attempts._try(session, "mask_hides_all", FixAttempt({"LD_LIBRARY_PATH": "/x"}), ())
    assert (trial.outcome, trial.detail) == (outcome, detail)
    assert children.start.call_args.args[0].fresh, "the loader reads LD_LIBRARY_PATH when a process starts"


def test_no_fix_is_tried_by_a_run_that_must_end() -> None:
    children = Mock(spec=Supervision, busy=lambda: "")
    session = Session(Options((), deadline_s=6), children, Mock(spec=Observer), Signals(), time.monotonic())
    trial = attempts._try(session, "mask_hides_all", FixAttempt({}), ())
    assert (trial.outcome, trial.detail) == ("not tried", f"the deadline of 6 s {RUN_ENDED}")
    assert not children.start.called
