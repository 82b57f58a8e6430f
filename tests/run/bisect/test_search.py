"""What is tried, in which order, and what is said of it: delta debugging over a made-up machine."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

import msgspec
import pytest
from msgspec.structs import replace

from examples.facts import example_with_gpus
from gpudiag.cause import Evidence
from gpudiag.facts import start_files
from gpudiag.facts.start_files import FileSetting
from gpudiag.fix import export, run, unset
from gpudiag.isolate import JobResult, Supervision
from gpudiag.model.codec import encoded
from gpudiag.model.diagnosis import (
    Bisection,
    BisectionOutcome,
    Confidence,
    Diagnosis,
    EnvironmentChange,
    FixAttempt,
    RootCause,
    Stage,
    Step,
    StepStatus,
    TrialOutcome,
)
from gpudiag.model.report import Gpu, NoReading
from gpudiag.report import words
from gpudiag.run import attempts
from gpudiag.run.bisect import elsewhere, here, wording
from gpudiag.run.bisect.attempt import Reached
from gpudiag.run.bisect.parts import StartFiles, Surroundings, Variant, everything, suspects, variant
from gpudiag.run.bisect.search import OutOfTime, Search
from gpudiag.run.bisect.smallest import smallest
from gpudiag.run.bisect.tries import Tries
from gpudiag.run.bisected import with_bisection
from gpudiag.run.session import Session
from reports import fix_line, fix_lines

WORKS = Reached(imported=True, listed=2, computed=True)
FAILS = Reached(imported=True)


# --- delta debugging ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("needed", [{3}, {0, 7}, {1, 2, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}])
def test_no_item_of_what_is_found_can_be_left_out(needed: set[int]) -> None:
    tried = 0

    def works(candidates: list[tuple[int, ...]]) -> int | None:
        nonlocal tried
        tried += len(candidates)
        return next((number for number, candidate in enumerate(candidates) if needed <= set(candidate)), None)

    assert set(smallest(range(10), works)) == needed
    assert tried <= 60


def test_one_of_a_thousand_takes_ten_rounds() -> None:
    rounds = 0

    def works(candidates: list[tuple[int, ...]]) -> int | None:
        nonlocal rounds
        rounds += 1
        return next((number for number, candidate in enumerate(candidates) if 777 in candidate), None)

    assert smallest(range(1000), works) == (777,)
    assert rounds <= 10


def test_one_item_needs_no_try() -> None:
    assert smallest(["only"], lambda _: pytest.fail("nothing is left to be tried")) == ("only",)


# --- the search over a made-up machine ---------------------------------------------------------------------------


class Machine:
    """TensorFlow works here if ``good`` says so of a variant."""

    def __init__(self, good: Callable[[Variant], bool], most: int = 1000) -> None:
        self.good, self.most = good, most
        self.tried: list[Variant] = []

    def __call__(self, variants: Sequence[Variant], all_of_them: bool) -> Sequence[Reached | None]:
        reached: list[Reached | None] = []
        for candidate in variants:
            if len(self.tried) == self.most:
                raise OutOfTime
            self.tried.append(candidate)
            reached.append(WORKS if self.good(candidate) else FAILS)
            if reached[-1] is WORKS and not all_of_them:
                break
        return [*reached, *[None] * (len(variants) - len(reached))]


def found(
    machine: Machine, around: Surroundings, settings: tuple[FileSetting, ...] = (), wanted: int = 1
) -> tuple[Bisection, list[str]]:
    """Return the record of a search, and the lines to type."""
    result = Search(around, settings, machine, wanted).run()
    bisection = wording.bisection(
        result, around, settings, lambda _, value: value, wanted=wanted, tried=len(machine.tried), seconds=1.0
    )
    return bisection, [fix_line(change.fix) for change in bisection.changes if change.fix]


ORDINARY = {
    "HOME": "/home/someone",
    "PATH": "/home/someone/bin:/usr/bin",
    "LANG": "C.UTF-8",
    "EDITOR": "vi",
    "CUDA_HOME": "/usr/local/cuda",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "PYTHONUNBUFFERED": "1",
    "LD_LIBRARY_PATH": "/a:/opt/x:/c:/d",
    "XLA_FLAGS": "--good=1 --bad=2 --fine=3",
}


def of(variables: dict[str, str] | None = None, **more: object) -> Surroundings:
    return Surroundings(variables=variables or ORDINARY, **more)  # type: ignore[arg-type]


def test_an_entry_of_a_list_is_named_with_the_line_that_takes_it_away() -> None:
    machine = Machine(lambda variant: "/opt/x" not in variant.variables.get("LD_LIBRARY_PATH", ""))
    bisection, lines = found(machine, of())
    (change,) = bisection.changes
    assert (bisection.outcome, change.what) == ("found", "entry 2 of LD_LIBRARY_PATH (/opt/x)")
    assert lines == ["export LD_LIBRARY_PATH=/a:/c:/d"]
    assert len(machine.tried) <= 12


def test_a_flag_is_taken_out_of_its_variable() -> None:
    bisection, lines = found(Machine(lambda variant: "--bad=2" not in variant.variables.get("XLA_FLAGS", "")), of())
    assert bisection.changes[0].what == "--bad=2 in XLA_FLAGS"
    assert lines == ["export XLA_FLAGS='--good=1 --fine=3'"]


def test_two_entries_of_one_list_have_one_line() -> None:
    machine = Machine(lambda variant: not {"/a", "/d"} & set(variant.variables.get("LD_LIBRARY_PATH", "").split(":")))
    bisection, lines = found(machine, of())
    assert [change.name for change in bisection.changes] == ["/a", "/d"]
    assert lines == ["export LD_LIBRARY_PATH=/opt/x:/c"]


def test_all_entries_are_the_variable() -> None:
    bisection, lines = found(Machine(lambda variant: "LD_LIBRARY_PATH" not in variant.variables), of())
    assert [change.name for change in bisection.changes] == ["LD_LIBRARY_PATH"]
    assert lines == ["unset LD_LIBRARY_PATH"]


def test_a_variable_that_nobody_suspects_is_found_after_the_others() -> None:
    bisection, lines = found(Machine(lambda variant: "EDITOR" not in variant.variables), of())
    assert [change.name for change in bisection.changes] == ["EDITOR"]
    assert lines == ["unset EDITOR"]


def test_an_empty_entry_is_the_working_directory() -> None:
    around = of({"LD_LIBRARY_PATH": ":/a"})
    machine = Machine(lambda variant: not variant.variables.get("LD_LIBRARY_PATH", "").startswith(":"))
    bisection, lines = found(machine, around)
    assert bisection.changes[0].what == "entry 1 of LD_LIBRARY_PATH (empty: the working directory)"
    assert lines == ["export LD_LIBRARY_PATH=/a"]


def test_an_entry_is_found_although_another_is_needed() -> None:
    def reached(variant: Variant) -> Reached:
        entries = variant.variables.get("LD_LIBRARY_PATH", "").split(":")
        if "/needed" not in entries:
            return replace(FAILS, failed="no library")
        return replace(FAILS, failed="a bad library") if "/bad" in entries else WORKS

    around = of({"LD_LIBRARY_PATH": "/needed:/bad:/c", "CUDA_HOME": "/x"})
    result = Search(around, (), lambda variants, _: [reached(variant) for variant in variants], 1).run()
    assert [part.value for part in result.taken] == ["/bad"]


def test_if_the_failure_stays_the_same_little_is_tried() -> None:
    machine = Machine(lambda _: False)
    found(machine, of(start=START))
    assert len(machine.tried) == 2


USER_SITE = "/home/someone/.local/lib/python3.11/site-packages"
START = StartFiles(("/s/sitecustomize.py", "/s/usercustomize.py"), ("/s/a.pth", "/s/b.pth"), USER_SITE)


@pytest.mark.parametrize(
    ("good", "name", "line"),
    [
        (
            lambda variant: "/s/usercustomize.py" in variant.skipped,
            "/s/usercustomize.py",
            "mv /s/usercustomize.py /s/us",
        ),
        (lambda variant: "/s/b.pth" in variant.skipped, "/s/b.pth", "mv /s/b.pth /s/b.pth.off"),
        (lambda variant: not variant.user_site, USER_SITE, "export PYTHONNOUSERSITE=1"),
        (lambda variant: variant.elsewhere, "/work", "cd /"),
        (lambda variant: "HOME" not in variant.variables, "HOME", 'export HOME="$(mktemp -d)"'),
        (
            lambda variant: "/home/someone/bin" not in variant.variables["PATH"],
            "/home/someone/bin",
            "export PATH=/usr/bin",
        ),
    ],
)
def test_what_python_starts_with_is_taken_away_too(good: Callable[[Variant], bool], name: str, line: str) -> None:
    bisection, lines = found(Machine(good), of(start=START, folder="/work"))
    assert (bisection.outcome, [change.name for change in bisection.changes]) == ("found", [name])
    assert lines[0].startswith(line)


def test_tensorflow_that_is_found_through_a_file_pth_is_kept() -> None:
    def reached(variant: Variant) -> Reached:
        if "/s/a.pth" in variant.skipped:
            return Reached(failed="ModuleNotFoundError: No module named 'tensorflow'")
        return FAILS if variant.user_site else WORKS

    result = Search(of(start=START), (), lambda variants, _: [reached(variant) for variant in variants], 1).run()
    assert [part.name for part in result.taken] == [USER_SITE]


def test_a_limit_of_the_process_is_a_part_of_the_environment() -> None:
    machine = Machine(lambda variant: variant.raised == ("Max address space",))
    bisection, lines = found(machine, of(start=START, limits=("Max address space",)))
    assert [(change.name, change.what) for change in bisection.changes] == [
        ("Max address space", "the limit on addresses (Max address space in /proc/self/limits)")
    ]
    assert lines == ["ulimit -v unlimited  # run it in the shell or job that starts the program"]


def test_what_fails_in_a_clean_environment_too_is_not_for_the_environment() -> None:
    bisection, lines = found(Machine(lambda _: False), of(start=START))
    assert (bisection.outcome, lines) == ("not the environment", [])
    assert bisection.before == "TensorFlow lists no GPU"


def test_what_works_in_a_new_interpreter_is_said_to() -> None:
    machine = Machine(lambda _: True)
    bisection, _ = found(machine, of())
    assert (bisection.outcome, bisection.changes) == ("not reproduced", ())
    assert len(machine.tried) == 2


@pytest.mark.parametrize("most", range(2, 12))
def test_when_the_time_is_up_what_is_known_is_said(most: int) -> None:
    machine = Machine(lambda variant: "/opt/x" not in variant.variables.get("LD_LIBRARY_PATH", ""), most)
    bisection, _ = found(machine, of())
    assert bisection.outcome in ("cut short", "found", "out of time")
    named = " ".join(change.what for change in bisection.changes)
    assert (bisection.outcome == "out of time") == (named == "")
    assert "LD_LIBRARY_PATH" in named or not named


@pytest.mark.parametrize(
    ("cause", "counts"),
    [
        (NoReading.NOT_STARTED, False),
        (NoReading.SERVER_LOST, False),
        (NoReading.EXCEPTION, False),
        (NoReading.TIMEOUT, True),
        (NoReading.OUTPUT_FLOOD, True),
    ],
)
def test_a_try_that_gpudiag_could_not_make_says_nothing_of_the_variant(cause: NoReading, counts: bool) -> None:
    """Else a GPU whose try finds no process, when each is tried alone, is what keeps TensorFlow from the others."""
    around = of({}, gpus={"GPU-A": 0, "GPU-B": 1})
    children = Mock(spec=Supervision)

    def ended(_: float) -> list[JobResult]:
        job = children.start.call_args.args[0]
        if job.argument["variables"].get("CUDA_VISIBLE_DEVICES") == "GPU-B":
            return [JobResult(job.key, None, cause, "why", "", "", 1.0)]
        alone = "CUDA_VISIBLE_DEVICES" in job.argument["variables"]
        return [JobResult(job.key, encoded(WORKS if alone else FAILS), None, "", "", "", 1.0)]

    children.wait.side_effect = ended
    result = Search(around, (), Tries(children, "plain", jobs=1, within_s=60.0, wanted=1), 1).run()
    assert [part.name for part in result.taken] == (["GPU-B"] if counts else [])


def test_before_the_first_try_ends_nothing_is_known() -> None:
    bisection, _ = found(Machine(lambda _: True, 0), of())
    assert (bisection.outcome, bisection.before) == ("out of time", "")


def test_the_entry_of_a_simulated_machine_always_stays() -> None:
    around = of({"LD_LIBRARY_PATH": "/junk:/sim/lib", "GPUDIAG_SIM_MACHINE": "/sim"}, own_library_path="/sim/lib")
    machine = Machine(lambda variant: "/junk" not in variant.variables["LD_LIBRARY_PATH"])
    bisection, lines = found(machine, around)
    assert [change.name for change in bisection.changes] == ["/junk"]
    assert lines == ["export LD_LIBRARY_PATH=/sim/lib"]
    assert all("/sim/lib" in variant.variables["LD_LIBRARY_PATH"] for variant in machine.tried)
    assert all("GPUDIAG_SIM_MACHINE" in variant.variables for variant in machine.tried)
    outside = of({"CUDA_VISIBLE_DEVICES": "7"}, own_library_path="/sim/lib")
    assert variant(outside, suspects(outside)).variables == {"LD_LIBRARY_PATH": "/sim/lib"}


def test_nothing_that_a_process_needs_is_taken_away() -> None:
    around = of({"TERM": "xterm", "LC_ALL": "C", "TF_CPP_VMODULE": "x=1", "GPUDIAG_BISECT": "9", "USER": "someone"})
    assert (suspects(around), everything(around)) == ((), ())


def test_without_a_gpu_the_import_has_to_work() -> None:
    assert FAILS.works(0)
    assert not FAILS.works(1)
    assert not Reached(imported=True, listed=1, computed=True).works(2)
    assert Reached(imported=True, listed=1, computed=True).text(2) == "TensorFlow lists 1 of 2 GPUs"
    assert Reached(failed="ImportError: x").text(1) == "import tensorflow: ImportError: x"
    assert Reached(driver_error="cuInit: error 999").text(1) == "cuInit: error 999"


# --- what other files set ----------------------------------------------------------------------------------------


def test_a_variable_that_a_file_sets_is_added() -> None:
    settings = (
        FileSetting("CUDA_HOME", "/usr/local/cuda", "/etc/profile.d/cuda.sh", 3, start_files.LOGIN),
        FileSetting("TF_XLA_FLAGS", "--x", "~/.bashrc", 11, start_files.SHELL),
        FileSetting("LD_LIBRARY_PATH", "/usr/local/cuda/lib64:/a", "~/.bashrc", 12, start_files.SHELL),
    )
    machine = Machine(lambda variant: "/usr/local/cuda/lib64" in variant.variables.get("LD_LIBRARY_PATH", ""))
    bisection, lines = found(machine, of({"LD_LIBRARY_PATH": "/a"}), settings)
    (change,) = bisection.changes
    assert (bisection.outcome, change.missing) == ("found", True)
    assert change.what == "/usr/local/cuda/lib64 in LD_LIBRARY_PATH"
    assert change.origin == "~/.bashrc line 12 sets it; this process was not started by a shell that read it"
    assert lines == ["export LD_LIBRARY_PATH=/usr/local/cuda/lib64:/a"]


def test_each_gpu_is_tried_alone_if_the_environment_is_not_why() -> None:
    around = of({"CUDA_HOME": "/x"}, gpus={"GPU-a": 0, "GPU-b": 1, "GPU-c": 2})
    machine = Machine(lambda variant: variant.variables.get("CUDA_VISIBLE_DEVICES") in ("GPU-a", "GPU-c"))
    bisection, lines = found(machine, around, wanted=3)
    (change,) = bisection.changes
    assert (bisection.outcome, change.what) == ("found", "GPU 1 (GPU-b)")
    assert change.origin == "GPU 1 alone: TensorFlow lists no GPU"
    assert bisection.after.startswith("GPUs listed: ")
    assert lines == ["export CUDA_VISIBLE_DEVICES=GPU-a,GPU-c"]
    scope = tuple(
        Gpu(number, "A card", f"GPU-{name}", f"0000:0{number}:00.0", 1 << 34) for number, name in enumerate("abc")
    )
    evidence = Evidence(example_with_gpus(3), scope)
    (head,) = with_bisection(diagnosis(), bisection, evidence).causes
    assert (head.cause_id, head.confidence, head.unfit) == ("gpu_fails", Confidence.PROVED, True)
    assert (head.cause, head.gpus) == ("GPU 1 fails: TensorFlow lists no GPU", ("0000:01:00.0",))
    assert fix_lines(head)[0] == "export CUDA_VISIBLE_DEVICES=GPU-a,GPU-c"
    # What says why stays the head, and gets the proof; a guess does not.
    held = replace(cause("memory_held_by_others", "process 7 holds GPU 1", "kill 7"), confidence=Confidence.LIKELY)
    (why,) = with_bisection(diagnosis(held), bisection, evidence).causes
    assert (why.cause_id, why.confidence, why.gpus) == (held.cause_id, Confidence.PROVED, head.gpus)
    assert fix_lines(why) == ("export CUDA_VISIBLE_DEVICES=GPU-a,GPU-c", "kill 7")
    assert "GPU 1 alone: TensorFlow lists no GPU" in why.evidence
    for weak in (replace(held, confidence=Confidence.POSSIBLE), cause("work_on_gpu_fails", "every library fails", "x")):
        assert with_bisection(diagnosis(weak), bisection, evidence).causes == (head,)
    # A report that was edited names a GPU that it does not have.
    assert with_bisection(diagnosis(held), bisection, Evidence(example_with_gpus(1))).causes == (held,)


def test_a_gpu_on_which_probes_failed_is_tried_before_the_environment() -> None:
    around = of({"CUDA_HOME": "/x"}, gpus={"GPU-a": 0, "GPU-b": 1, "GPU-c": 2})
    machine = Machine(lambda variant: variant.variables.get("CUDA_VISIBLE_DEVICES") == "GPU-a,GPU-c")
    result = Search(around, (), machine, 1, blamed=("GPU-b",)).run()
    assert (result.outcome, [part.name for part in result.taken]) == ("found", ["GPU-b"])
    assert [variant.variables.get("CUDA_VISIBLE_DEVICES") for variant in machine.tried] == [
        None,
        "GPU-a,GPU-c",
        "GPU-b",
    ]
    well = Machine(lambda variant: True)
    assert Search(around, (), well, 1, blamed=("GPU-b",)).run().outcome == "not reproduced"
    # The environment is searched if the blamed GPU is not the reason.
    other = Machine(lambda variant: "CUDA_HOME" not in variant.variables)
    (part,) = Search(around, (), other, 1, blamed=("GPU-b",)).run().taken
    assert part.name == "CUDA_HOME"


@pytest.mark.parametrize("good", [set[str](), {"GPU-a", "GPU-b"}])
def test_if_no_gpu_works_alone_or_all_do_none_is_named(good: set[str]) -> None:
    around = of({"CUDA_HOME": "/x"}, gpus={"GPU-a": 0, "GPU-b": 1})
    machine = Machine(lambda variant: variant.variables.get("CUDA_VISIBLE_DEVICES") in good)
    assert found(machine, around, wanted=2)[0].outcome == BisectionOutcome.NOT_THE_ENVIRONMENT


def test_of_a_library_that_is_not_found_only_the_folders_that_files_name_are_tried() -> None:
    settings = (FileSetting("LD_LIBRARY_PATH", "/opt/cuda/lib64", "~/.bashrc", 12, start_files.SHELL),)
    machine = Machine(lambda variant: "/opt/cuda/lib64" in variant.variables.get("LD_LIBRARY_PATH", ""))
    result = Search(of({"CUDA_HOME": "/x"}), settings, machine, 1, only_missing=True).run()
    assert (result.outcome, result.added) == ("found", settings)
    assert all(variant.variables["CUDA_HOME"] == "/x" for variant in machine.tried)


def test_of_a_library_that_is_proved_to_fail_only_what_chooses_another_copy_is_tried() -> None:
    around = of({"LD_LIBRARY_PATH": "/a:/opt/x", "EDITOR": "vi"}, gpus={"GPU-a": 0, "GPU-b": 1})
    broken = Machine(lambda variant: False)
    assert Search(around, (), broken, 2, only_suspects=True).run().taken == ()
    assert len(broken.tried) == 2
    other = Machine(lambda variant: "/opt/x" not in variant.variables.get("LD_LIBRARY_PATH", ""))
    (entry,) = Search(around, (), other, 2, only_suspects=True).run().taken
    assert entry.value == "/opt/x"
    assert suspects(of({"EDITOR": "vi"})) == ()


@pytest.mark.parametrize(
    ("rule", "sure", "stage", "tried", "asked"),
    [
        ("library_fails", Confidence.PROVED, Stage.FIRST_OP, None, True),  # a status proves no cause
        ("library_missing", Confidence.PROVED, Stage.LIBRARIES, None, True),  # a folder may be named elsewhere
        ("mask_hides_all", Confidence.PROVED, Stage.DRIVER, None, False),
        ("mask_hides_all", Confidence.PROVED, Stage.DRIVER, TrialOutcome.DOES_NOT_HELP, True),
        ("library_off_the_path", Confidence.LIKELY, Stage.LIBRARIES, TrialOutcome.WORKS, False),
    ],
)
def test_what_a_status_or_a_missing_library_comes_from_is_tried(
    rule: str, sure: Confidence, stage: Stage, tried: TrialOutcome | None, asked: bool
) -> None:
    refuted = cause(rule, "it fails", "x", stage)
    trial = None if tried is None else FixAttempt({"X": None}, outcome=tried)
    refuted = replace(refuted, confidence=sure, trial=trial)
    known = Diagnosis(steps=(Step(stage, StepStatus.FAILED),), causes=(refuted,))
    assert here.is_called_for(known, example_with_gpus()) is asked


def test_what_is_set_here_is_not_added() -> None:
    here = {"CUDA_HOME": "/opt/cuda", "LD_LIBRARY_PATH": "/b:/a"}
    settings = (
        FileSetting("CUDA_HOME", "/usr/local/cuda", "f", 1, start_files.SHELL),
        FileSetting("LD_LIBRARY_PATH", "/a", "f", 2, start_files.SHELL),
        FileSetting("CUDA_PATH", "/usr/local/cuda", "f", 3, start_files.SHELL),
    )
    assert [setting.name for setting in elsewhere.missing(settings, here)] == ["CUDA_PATH"]


def test_a_file_that_sets_what_is_in_the_way_is_named() -> None:
    settings = (FileSetting("CUDA_VISIBLE_DEVICES", "7", "/etc/environment", 4, start_files.LOGIN),)
    machine = Machine(lambda variant: "CUDA_VISIBLE_DEVICES" not in variant.variables)
    bisection, _ = found(machine, of({"CUDA_VISIBLE_DEVICES": "7"}), settings)
    assert bisection.changes[0].origin == "/etc/environment line 4 sets CUDA_VISIBLE_DEVICES"


FILES = {
    "etc/environment": 'PATH="/usr/bin"\nCUDA_VISIBLE_DEVICES=0\n',
    "etc/profile.d/cuda.sh": "# CUDA\nexport CUDA_HOME=/usr/local/cuda PAGER=less\n"
    'export LD_LIBRARY_PATH=$CUDA_HOME/lib64${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}\nif true; then\n  x="\nfi\n',
    "etc/systemd/system/train.service": "[Service]\nExecStart=/x CUDA_HOME=/no\n"
    'Environment="XLA_FLAGS=--a=1 --b=2" TF_X=1\n',
    "home/.bashrc": "CUDA_CACHE_PATH=~/cache\nexport CUDA_PATH=$(dirname /x)\nCUDA_HOME=/y make\nNAME=$USER\n",
    "home/.local/share/jupyter/kernels/a/kernel.json": json.dumps(
        {"argv": ["python"], "env": {"CUDA_MODULE_LOADING": "LAZY", "PS1": "$"}}, indent=1
    ),
    "home/.local/share/jupyter/kernels/b/kernel.json": "[}",
}


def test_files_are_read_as_text(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    home = f"{tmp_path}/home"
    gathered = elsewhere.gathered(tmp_path, {"HOME": home, "LD_LIBRARY_PATH": "/mine"})
    assert not gathered.ignored
    read = gathered.settings
    assert [
        (setting.name, setting.value, setting.file.removeprefix(home), setting.line, setting.kind) for setting in read
    ] == [
        ("PATH", "/usr/bin", "/etc/environment", 1, "login"),
        ("CUDA_VISIBLE_DEVICES", "0", "/etc/environment", 2, "login"),
        ("CUDA_HOME", "/usr/local/cuda", "/etc/profile.d/cuda.sh", 2, "login"),
        ("LD_LIBRARY_PATH", "/usr/local/cuda/lib64:/mine", "/etc/profile.d/cuda.sh", 3, "login"),
        ("XLA_FLAGS", "--a=1 --b=2", "/etc/systemd/system/train.service", 3, "unit"),
        ("TF_X", "1", "/etc/systemd/system/train.service", 3, "unit"),
        ("CUDA_CACHE_PATH", f"{home}/cache", "/.bashrc", 1, "shell"),
        ("CUDA_MODULE_LOADING", "LAZY", "/.local/share/jupyter/kernels/a/kernel.json", 6, "kernel"),
    ]


def test_nothing_that_another_user_can_write_is_read_or_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders are this user's; who may write to them makes the difference, and the same is done with owners."""
    home = tmp_path / "home"
    for name in ("own", "open", "holds an open file", "empty", "cwd"):
        (tmp_path / name).mkdir(mode=0o755)
    (tmp_path / "own/a.py").touch()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "holds an open file/libcuda.so.1").touch()
    (tmp_path / "holds an open file/libcuda.so.1").chmod(0o666)
    (tmp_path / "cwd").chmod(0o777)
    monkeypatch.chdir(tmp_path / "cwd")
    lines = {
        "PYTHONPATH": f"{tmp_path}/own",
        "LD_PRELOAD": f"{tmp_path}/own/a.so",
        "LD_LIBRARY_PATH": f"{tmp_path}/own:{tmp_path}/open",
        "CUDA_HOME": f"{tmp_path}/holds an open file",
        "XLA_FLAGS": f"--a=1 --xla_gpu_cuda_data_dir={tmp_path}/open/x",
        "PATH": f"{tmp_path}/empty:",
        "TF_X": "1",
    }
    home.mkdir(mode=0o755)
    (home / ".bashrc").write_text("".join(f"export {name}='{value}'\n" for name, value in lines.items()))
    (home / ".profile").write_text("export CUDA_VISIBLE_DEVICES=0\n")
    (home / ".profile").chmod(0o666)
    os.mkfifo(home / ".zshrc")
    gathered = elsewhere.gathered(tmp_path / "empty", {"HOME": str(home)})
    bashrc = f"{home}/.bashrc line"
    everybody = "everybody can write to it"
    assert elsewhere.untried(gathered) == (
        f"{home}/.profile: {everybody}",
        f"LD_PRELOAD of {bashrc} 2: it loads a library into every program",
        f"LD_LIBRARY_PATH of {bashrc} 3: {tmp_path}/open: {everybody}",
        f"CUDA_HOME of {bashrc} 4: {tmp_path}/holds an open file/libcuda.so.1: {everybody}",
        f"XLA_FLAGS of {bashrc} 5: {tmp_path}/open/x: everybody can write to its folder {tmp_path}/open",
        f"PATH of {bashrc} 6: {tmp_path}/cwd: {everybody}",
    )
    machine = Machine(lambda _: False)
    Search(of({"HOME": str(home)}), gathered.settings, machine, 1).run()
    tried = {name for variant in machine.tried for name in variant.variables}
    assert tried & {*lines, "CUDA_VISIBLE_DEVICES"} == {"PYTHONPATH", "TF_X"}


def test_no_fix_is_tried_that_loads_what_another_user_can_write(tmp_path: Path) -> None:
    """What the environment names already is this user's choice."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    there, path = {"LD_LIBRARY_PATH": f"{tmp_path}/open"}, f"/usr/lib:{tmp_path}/open"
    assert elsewhere.distrust("LD_LIBRARY_PATH", path, there) == ""
    assert elsewhere.distrust("LD_LIBRARY_PATH", path, {}) == f"{tmp_path}/open: everybody can write to it"
    machine = SimpleNamespace(environment={"LD_LIBRARY_PATH": ""})
    session = SimpleNamespace(stopped=lambda: None, options=SimpleNamespace(machine=machine))
    trial = attempts._try(cast("Session", session), "rule", FixAttempt({"LD_LIBRARY_PATH": path, "X": None}), ())
    assert (trial.outcome, trial.detail) == ("not tried", f"{tmp_path}/open: everybody can write to it")


def test_what_python_starts_with_is_named_and_not_run_again(tmp_path: Path) -> None:
    """A sitecustomize may have effects, such as a call over the network."""
    own = tmp_path / "sitecustomize.py"
    own.write_text(f"with open({f'{tmp_path}/ran'!r}, 'a') as file: file.write('once')\n")
    script = "import sys; from gpudiag.run.bisect import attempt; sys.stdout.buffer.write(attempt.start_files({}))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, timeout=60, check=True)
    assert msgspec.json.decode(done.stdout, type=StartFiles).customize == (str(own),)
    assert (tmp_path / "ran").read_text() == "once"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who can give a file to another user")
def test_of_the_home_of_another_user_nothing_is_read(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    (home / ".bashrc").write_text("export PYTHONPATH=/usr\n")
    assert elsewhere.gathered(tmp_path / "none", {"HOME": str(home)}).settings
    os.chown(home, 65534, 65534)
    gathered = elsewhere.gathered(tmp_path / "none", {"HOME": str(home)})
    assert not gathered.settings
    assert elsewhere.untried(gathered) == (f"{home}/.bashrc: its folder {home} belongs to nobody",)
    bisection = replace(
        FOUND, outcome=BisectionOutcome.NOT_THE_ENVIRONMENT, changes=(), untried=elsewhere.untried(gathered)
    )
    lines = words.others(Diagnosis(bisection=bisection))
    assert lines[-1][:2] == ("bisected", f"not tried: {home}/.bashrc: its folder {home} belongs to nobody")


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("$A/lib", "/a/lib"),
        ("${A}/lib:$B", "/a/lib:"),
        ("${B:-/b}:${A:-/c}", "/b:/a"),
        ("${B:+:$B}${A:+:${A}}", ":/a"),
        ("~/x", "/home/someone/x"),
        ("`ls`", None),
        ("$(ls)", None),
        ("${A%/*}", None),
    ],
)
def test_a_value_is_expanded_if_that_needs_no_shell(value: str, meant: str | None) -> None:
    assert start_files.expanded(value, {"A": "/a", "HOME": "/home/someone"}) == meant


# --- one voice ---------------------------------------------------------------------------------------------------

FOUND = Bisection(
    BisectionOutcome.FOUND,
    (EnvironmentChange("/opt/x", "entry 2 of LD_LIBRARY_PATH (/opt/x)", export("LD_LIBRARY_PATH", "/a")),),
    before="TensorFlow lists no GPU",
    after="GPUs listed: 2",
    wanted=2,
    tried=6,
    seconds=20.0,
)


HERE = Evidence(example_with_gpus())


def cause(rule: str, text: str, fix: str, stage: Stage = Stage.LIBRARIES) -> RootCause:
    return RootCause(rule, stage, Confidence.LIKELY, text, (text,), (run(fix),), "https://a.b")


def diagnosis(*causes: RootCause, folded: tuple[RootCause, ...] = ()) -> Diagnosis:
    return Diagnosis(steps=(Step(Stage.LIBRARIES, StepStatus.FAILED),), causes=causes, folded=folded)


def test_what_is_found_is_the_cause_and_others_are_refuted() -> None:
    other = cause("library_missing", "libcudnn.so.9 is missing", "pip install nvidia-cudnn-cu12")
    later = cause("growth_not_read", "x", "y", Stage.CONFIGURATION)
    told = with_bisection(diagnosis(other, folded=(other, later)), FOUND, HERE)
    (proved,) = told.causes
    assert (proved.cause_id, proved.confidence, proved.stage) == (
        "environment_in_the_way",
        Confidence.PROVED,
        Stage.LIBRARIES,
    )
    assert proved.cause == (
        "entry 2 of LD_LIBRARY_PATH (/opt/x) is in the way: TensorFlow gets its GPU as soon as it is gone"
    )
    assert proved.evidence == ("as it is: TensorFlow lists no GPU", "without it: GPUs listed: 2")
    assert fix_lines(proved) == ("export LD_LIBRARY_PATH=/a",)
    assert told.folded == (later,)
    assert told.bisection == FOUND


def test_a_cause_that_speaks_of_another_reason_for_what_is_missing_is_refuted() -> None:
    """Its line sets the variable for a new copy of the library."""
    added = replace(
        FOUND, changes=(EnvironmentChange("LD_LIBRARY_PATH", "/cuda in LD_LIBRARY_PATH", run("x"), missing=True),)
    )
    other = cause("library_missing", "libcudnn.so.9 is missing", "export LD_LIBRARY_PATH=/new:$LD_LIBRARY_PATH")
    assert with_bisection(diagnosis(other), added, HERE).causes[0].cause_id == "environment_in_the_way"


def test_a_cause_of_the_catalogue_that_names_the_same_gets_the_proof() -> None:
    same = cause("older_library_first", "/opt/x/libcudnn.so.9 is too old", "unset LD_LIBRARY_PATH")
    same = replace(same, about=("libcudnn.so.9", "/opt/x"))
    other = cause("library_missing", "libcudnn.so.9 is missing", "pip install nvidia-cudnn-cu12")
    (proved,) = with_bisection(diagnosis(other, same), FOUND, HERE).causes
    assert (proved.cause_id, proved.confidence, proved.cause) == ("older_library_first", Confidence.PROVED, same.cause)
    assert fix_lines(proved) == ("export LD_LIBRARY_PATH=/a", "unset LD_LIBRARY_PATH")
    assert "without it: GPUs listed: 2" in proved.evidence
    like = replace(cause("x", "/opt/x2/libcudnn.so.9 is too old", "y"), about=("libcudnn.so.9", "/opt/x2"))
    assert with_bisection(diagnosis(like), FOUND, HERE).causes[0].cause_id == "environment_in_the_way"


def test_without_a_result_the_diagnosis_stays_and_the_head_says_so() -> None:
    other = cause("library_missing", "libcudnn.so.9 is missing", "pip install nvidia-cudnn-cu12")
    for outcome, said in (
        (BisectionOutcome.NOT_THE_ENVIRONMENT, "TensorFlow also fails in a clean environment"),
        (BisectionOutcome.NOT_REPRODUCED, "TensorFlow works in a new interpreter in the same environment"),
        (BisectionOutcome.OUT_OF_TIME, "no environment was found in which TensorFlow works"),
    ):
        told = with_bisection(diagnosis(other), replace(FOUND, outcome=outcome, changes=()), HERE)
        assert told.causes == (other,)
        ((heading, text, _),) = words.others(told)
        assert heading == "bisected"
        assert text.startswith(said)


def test_a_search_that_was_cut_short_is_not_called_proved() -> None:
    short = replace(FOUND, outcome=BisectionOutcome.CUT_SHORT, changes=(replace(FOUND.changes[0], fix=None),))
    (likely,) = with_bisection(diagnosis(), short, HERE).causes
    assert likely.confidence is Confidence.LIKELY
    assert "the time was up" in likely.evidence[1]
    assert likely.fix[0].command.startswith("gpudiag why --bisect 300")


def test_many_parts_that_are_left_when_the_time_is_up_are_no_cause() -> None:
    other = cause("library_missing", "libcudnn.so.9 is missing", "pip install nvidia-cudnn-cu12")
    many = tuple(EnvironmentChange(name, f"{name}=1", unset(name)) for name in ("AWS_CA_BUNDLE", "A", "B", "C"))
    wide = replace(FOUND, outcome=BisectionOutcome.CUT_SHORT, changes=many)
    told = with_bisection(diagnosis(other), wide, HERE)
    assert told.causes == (other,)
    ((_, text, _),) = words.others(told)
    assert text.startswith("TensorFlow works without AWS_CA_BUNDLE, A, B, C; which of them matters is not known")
    assert with_bisection(diagnosis(other), replace(wide, changes=many[:3]), HERE).causes != (other,)


def test_lines_can_be_pasted() -> None:
    around = of({"PYTHONPATH": "/a b:/c'd:/opt/x"})
    _, lines = found(Machine(lambda variant: "/opt/x" not in variant.variables.get("PYTHONPATH", "")), around)
    assert shlex.split(lines[0]) == ["export", "PYTHONPATH=/a b:/c'd"]
