"""Tries gpudiag on the GPUs of this machine, and beside it on the same machine simulated.

    python scripts/acceptance.py --minutes 30            # results in build/acceptance
    python scripts/acceptance.py --minutes 9             # for calls of ten minutes: again, until none is left
    python scripts/acceptance.py --fetch                 # what to fetch for a machine without a network
    gpudiag simulate H100 -- python scripts/acceptance.py    # a simulated machine in the role of the real one

The results with the most to tell come first: the whole catalogue on the real GPUs, the same on simulated ones, how they
differ. Then faults that are safe to provoke on a card that works (nothing of the card is changed), the other isolation,
times, the tests that need a real GPU, and some of TensorFlow's own tests. Each step is kept when it has ended, so a run
that was stopped goes on where it was. Everything in the folder is masked: it can be shared as it is. README.md there is
the page to read.

Exit status: 0 all is done and as expected, 1 all is done and something is not as expected, 2 it could not run here,
3 some steps are left: run the same command again.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import filelock
import msgspec
import tf_suite

import gpudiag
from gpudiag.comparison import reports
from gpudiag.isolate import linux
from gpudiag.model import codec
from gpudiag.model.change import Change, ChangeSubject
from gpudiag.model.facts import NvmlDevice, NvmlFacts, Unknown
from gpudiag.model.report import SIMULATED, Broken, Report, Verdict
from gpudiag.report.masking import mask
from gpudiag.simulator.spec import PRESETS, STATES
from gpudiag.text import counted

ROOT = Path(__file__).resolve().parent.parent
TF_SUITE = Path(tf_suite.__file__)
OUTPUT_CAP = 32 << 20
"""Bytes that a child may print before it is ended."""
GRACE_S = 20.0
"""Seconds that a child has to end after SIGTERM, and in which a check writes its report after its deadline."""
LEAST_S = 30.0
"""Seconds with which a step is still worth beginning."""
BUSY_BYTES = 1 << 30
"""Memory in use from which a GPU is not idle: a driver alone takes a few hundred MiB."""
SHOWN = 60
"""Differences that the page lists; the reports hold all of them."""

TENSORFLOW_TESTS = (
    "tensorflow/python/framework/config_test.py",
    "tensorflow/python/kernel_tests/nn_ops/bias_op_test.py",
    "tensorflow/python/kernel_tests/nn_ops/softmax_op_test.py",
    "tensorflow/python/kernel_tests/nn_ops/lrn_op_test.py",
    "tensorflow/python/kernel_tests/math_ops/batch_matmul_op_test.py",
)
"""Of TensorFlow's own tests those that need little time and much of a GPU."""


NOT_RUN = "not run"
"""How the record of a step begins that lacked something; the next call tries it again."""
NO_CAUSE = "no cause"
"""What is said where a setting must not raise an alarm."""


@dataclass(frozen=True)
class Provocation:
    """A fault that is safe on a card that works: a setting of one process, or a file in a folder of its own."""

    name: str
    expected: str
    """The cause that must be named, or :data:`NO_CAUSE`."""
    variables: dict[str, str] = field(default_factory=dict)
    """``{folder}`` stands for the folder of ``files``; ``LD_LIBRARY_PATH`` is put before what it was."""
    program: str = ""
    """A program that runs first, and whose output the check reads."""
    files: dict[str, str] = field(default_factory=dict)
    gpus: int = 1


_GPUS = "import tensorflow as tf\ngpus = tf.config.list_physical_devices('GPU')\n"
_HIDDEN = {"CUDA_VISIBLE_DEVICES": "-1"}
_OTHER_CARD = "GPU-00000000-1111-2222-3333-444444444444"
_PRODUCT = (
    "tf.debugging.set_log_device_placement(True)\nwith tf.device('/GPU:0'):\n    tf.ones([2, 2]) @ tf.ones([2, 2])\n"
)
_RAY = {"CUDA_VISIBLE_DEVICES": "", "RAY_JOB_ID": "01000000", "RAY_RAYLET_PID": "4711", "RAY_NODE_ID": "ab" * 28}

PROVOCATIONS = (
    Provocation("mask-minus-one", "mask_hides_all", _HIDDEN),
    Provocation("mask-empty", "mask_hides_all", {"CUDA_VISIBLE_DEVICES": ""}),
    Provocation("mask-index-too-high", "mask_hides_all", {"CUDA_VISIBLE_DEVICES": "99"}),
    Provocation("mask-of-another-machine", "mask_hides_all", {"CUDA_VISIBLE_DEVICES": _OTHER_CARD}),
    Provocation("mask-in-quotes", "mask_hides_all", {"CUDA_VISIBLE_DEVICES": '"0"'}),
    Provocation("mask-misspelt", "variable_misspelt", {"CUDA_VISIBLE-DEVICES": "0"}),
    Provocation("order-names-gpus", "device_order_names_gpus", {"CUDA_DEVICE_ORDER": "1"}, gpus=2),
    Provocation("slurm-gave-none", "slurm_gave_no_gpu", {"CUDA_VISIBLE_DEVICES": "NoDevFiles", "SLURM_JOB_ID": "17"}),
    Provocation("ray-gave-none", "ray_gave_no_gpu", _RAY),
    Provocation("rank-too-high", "local_rank_beyond_gpus", {"OMPI_COMM_WORLD_LOCAL_RANK": "99"}),
    Provocation("growth-value", "growth_not_read", {"TF_FORCE_GPU_ALLOW_GROWTH": "True"}),
    Provocation("allocator-value", "allocator_not_known", {"TF_GPU_ALLOCATOR": "cuda_malloc_Async"}),
    Provocation("log-level", "log_level_hides_reason", {"TF_CPP_MIN_LOG_LEVEL": "3", **_HIDDEN}),
    Provocation("xla-flag", "flags_refused", {"XLA_FLAGS": "--xla_gpu_no_such_flag=false"}),
    Provocation("tf-xla-flag", "flags_refused", {"TF_XLA_FLAGS": "--tf_xla_no_such_flag=8"}),
    Provocation(
        "library-broken",
        "damaged_library_first",
        {"LD_LIBRARY_PATH": "{folder}"},
        files={"libcudnn.so.9": "this is not a library"},
    ),
    Provocation(
        "driver-library-broken",
        "damaged_library_first",
        {"LD_LIBRARY_PATH": "{folder}"},
        files={"libcuda.so.1": "this is not a library"},
    ),
    Provocation(
        "preload-broken",
        NO_CAUSE,  # the loader leaves it out, and everything works
        {"LD_PRELOAD": "{folder}/libpreloaded.so"},
        files={"libpreloaded.so": "this is not a library"},
    ),
    Provocation(
        "tensorflow-shadowed",
        "tensorflow_shadowed",
        {"PYTHONPATH": "{folder}"},
        files={"tensorflow.py": "import tensorflow as tf\ntf.Variable(1.0)\n"},
    ),
    Provocation(
        "growth-too-late",
        "configured_too_late",
        program=f"{_GPUS}tf.zeros([4, 4])\ntf.config.experimental.set_memory_growth(gpus[0], True)\n",
    ),
    Provocation(
        "growth-and-limit",
        "settings_exclude_each_other",
        program=f"{_GPUS}limit = tf.config.LogicalDeviceConfiguration(memory_limit=100)\n"
        "tf.config.set_logical_device_configuration(gpus[0], [limit])\n"
        "tf.config.experimental.set_memory_growth(gpus[0], True)\n",
    ),
    Provocation(
        "program-hides-gpus",
        "program_ran_elsewhere",
        program=f"import os\nos.environ['CUDA_VISIBLE_DEVICES'] = ''\n{_GPUS}{_PRODUCT}",
    ),
    Provocation("first-of-no-gpus", "element_of_no_gpus", _HIDDEN, program=f"{_GPUS}gpus[0]\n"),
)


class CannotRunError(Exception):
    """The run cannot go on; the message is a sentence for the user."""


class Ended(msgspec.Struct, frozen=True):
    """How a child ended."""

    code: int | None
    """None: it had no end before its deadline, or printed too much."""
    output: str
    """The end of what it printed; not masked."""
    seconds: float


def run_child(command: list[str], environment: dict[str, str], limit_s: float, cwd: Path = ROOT) -> Ended:
    """Run a command that ends with this process, within a time and with an output that are limited."""
    began = time.monotonic()
    prepare = partial(linux.die_with_parent, os.getpid(), signal.SIGTERM)
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            command,
            env=environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509  this process has one thread
        )
        code = None
        while code is None and time.monotonic() - began < limit_s and os.fstat(output.fileno()).st_size < OUTPUT_CAP:
            time.sleep(0.1)
            code = child.poll()
        for number, wait_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, 5)):
            try:
                os.killpg(child.pid, number)  # with what it has left behind
                child.wait(wait_s)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        output.seek(max(0, os.fstat(output.fileno()).st_size - (1 << 20)))
        return Ended(code, output.read().decode(errors="replace"), time.monotonic() - began)


def check_command(*arguments: str) -> list[str]:
    return [sys.executable, "-P" if sys.version_info >= (3, 11) else "-s", "-m", "gpudiag", "check", *arguments]


def own_environment() -> dict[str, str]:
    """Return this process's environment without the options of gpudiag, but for those of a simulated machine."""
    return {key: value for key, value in os.environ.items() if not key.startswith("GPUDIAG_") or "_SIM_" in key}


def look() -> Report:
    """Return the report of the host's own rows: which GPUs there are. It is not masked, and never written."""
    ended = run_child(check_command("host", "--format", "json", "-q", "--no-keep-last-pass"), own_environment(), 300)
    if ended.code not in (0, 1, 3, 5):
        raise CannotRunError(f"gpudiag check host ended with {ended.code}: {ended.output.strip()[-300:]}")
    report = codec.decode(ended.output[ended.output.find("{") :], "gpudiag check host")
    if not report.gpus:
        nvml = report.facts.nvml
        why = nvml.reason if isinstance(nvml, Unknown) else nvml.error or "no GPU is in CUDA_VISIBLE_DEVICES"
        raise CannotRunError(
            f"no NVIDIA GPU can be used here (NVML: {why}). Run it on a machine with one, or try it on a simulated "
            "machine: gpudiag simulate H100 -- python scripts/acceptance.py"
        )
    return report


class Acceptance:
    """One run of this script: the folder of results, the machine, and the time that is left."""

    def __init__(self, folder: Path, end: float, sources: Path | None, machine: Report) -> None:
        self.folder = folder
        self.end = end
        self.sources = sources
        self.machine = machine
        self.environment = own_environment()
        self.simulated = any(gpu.simulated for gpu in machine.gpus)

    def masked(self, text: str) -> str:
        """Return a text without names, paths and UUIDs of this machine, on one line."""
        return mask(msgspec.structs.replace(self.machine, notes=(" ".join(text.split())[:400],))).notes[0]

    # ---- What is kept ----

    def open(self) -> None:
        """Make the folder, or make sure that it is of this machine and this commit."""
        file = self.folder / "acceptance.json"
        kept = read(file)
        salt = kept.get("salt") or secrets.token_hex(8)
        devices = [(gpu.uuid, gpu.pci_bus_id, gpu.memory_total_bytes) for gpu in self.machine.gpus]
        driver = getattr(self.machine.facts.nvml, "driver_version", "")
        identity = hashlib.sha256(repr((salt, devices, driver)).encode()).hexdigest()[:16]
        now = {"commit": commit(), "machine": identity, "salt": salt, "simulated": self.simulated}
        for name, value in now.items():
            if kept and kept.get(name) != value:
                raise CannotRunError(
                    f"{self.folder} holds the results of another {name} ({kept.get(name)}; here: {value}). "
                    "Give another folder, or remove it."
                )
        if not kept:
            self.write("acceptance.json", now | {"began": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")})
        self.write("machine.json", codec.encode(mask(self.machine)))
        self.write("simulated.toml", simulation_of(self.machine))

    def write(self, name: str, content: dict[str, Any] | str) -> None:
        """Write a file whole or not at all."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.new")
        new.write_text(content if isinstance(content, str) else json.dumps(content, indent=1) + "\n", encoding="utf-8")
        new.replace(path)

    def record(self, name: str) -> dict[str, Any]:
        return read(self.folder / "steps" / f"{name}.json")

    def report(self, name: str) -> Path | None:
        path = self.folder / f"{name}.json"
        return path if path.exists() else None

    # ---- Steps ----

    def check(self, name: str, options: tuple[str, ...], limit_s: float) -> dict[str, Any]:
        """Run the whole catalogue, or what is selected, and keep its masked report."""
        environment = self.environment
        if "--simulate" in options:  # the simulated machine has only the GPUs that the mask leaves
            environment = {key: value for key, value in environment.items() if key != "CUDA_VISIBLE_DEVICES"}
        with tempfile.TemporaryDirectory(prefix="acceptance-") as folder:
            file = Path(folder) / "report.json"
            deadline = ("--deadline", f"{max(limit_s - GRACE_S, 10):.0f}")
            fixed = ("--mask", "-q", "--no-keep-last-pass", "-o", str(file), "--bisect", "0", *deadline)
            ended = run_child(check_command(*options, *fixed), environment, limit_s)
            text = file.read_text(encoding="utf-8") if file.exists() else ""
        if not text:
            last = (ended.output.strip().splitlines() or [""])[-1]
            return {"ok": False, "said": "no report: " + self.masked(last), **seconds_of(ended)}
        self.write(f"{name}.json", text)
        report = codec.decode(text, name)
        counts = Counter(row.status for row in report.rows)
        said = f"{report.verdict.value}: {', '.join(f'{count} {status}' for status, count in sorted(counts.items()))}"
        cut = any(isinstance(row.outcome, Broken) and row.outcome.by_the_run for row in report.rows)
        return {
            "ok": report.verdict is Verdict.PASS,
            "said": said,
            "cut": cut or ended.code is None or report.signal is not None,
            **seconds_of(ended),
        }

    def provoke(self, provocation: Provocation, limit_s: float) -> dict[str, Any]:
        """Run a check with a fault, and compare the causes that it names with the one that is expected."""
        if len(self.machine.gpus) < provocation.gpus:
            return skipped(f"needs {provocation.gpus} GPUs")
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="acceptance-") as name:
            folder = Path(name)
            for file, text in provocation.files.items():
                (folder / file).write_text(text)
            environment = dict(self.environment)
            for key, value in provocation.variables.items():
                before = environment.get(key, "") if key == "LD_LIBRARY_PATH" else ""
                environment[key] = ":".join(filter(None, (value.format(folder=folder), before)))
            log = folder / "program.log"
            if provocation.program:
                (folder / "program.py").write_text(provocation.program)
                ended = run_child([sys.executable, "program.py"], environment, limit_s / 2, cwd=folder)
                log.write_text(ended.output)
            options = ("host", "discovery", *(("--log", str(log)) if provocation.program else ()))
            fixed = ("--format", "json", "-q", "--no-keep-last-pass", "--bisect", "0")
            left_s = limit_s - (time.monotonic() - began)
            ended = run_child(check_command(*options, *fixed), environment, left_s)
        found = {"expected": provocation.expected, "seconds": round(time.monotonic() - began, 1)}
        try:
            report = codec.decode(ended.output[max(ended.output.find("\n{\n"), 0) :].lstrip(), provocation.name)
        except gpudiag.errors.GpudiagError as error:
            return {"ok": False, "said": "no report: " + self.masked(str(error)), "cut": ended.code is None, **found}
        diagnosis = report.diagnosis
        causes = [cause.cause_id for cause in (*diagnosis.causes, *diagnosis.folded)] or [NO_CAUSE]
        return {"ok": provocation.expected in causes, "said": ", ".join(causes), **found}

    def times(self, limit_s: float) -> dict[str, Any]:
        """Measure the import of TensorFlow, a quick check, and what the whole checks took beside them."""
        seconds = []
        for _ in range(3):
            ended = run_child([sys.executable, "-c", "import tensorflow"], self.environment, limit_s / 4)
            if ended.code != 0:
                return {"ok": False, "said": "import tensorflow failed", **seconds_of(ended)}
            seconds.append(ended.seconds)
        imported = statistics.median(seconds)
        took = {"import tensorflow": imported}
        quick = run_child(check_command("--level", "quick", "-q", "--no-keep-last-pass"), self.environment, limit_s / 4)
        if quick.code is not None:
            took["check --level quick"] = quick.seconds
        for name in ("real-fork", "real-spawn", "simulated-fork"):
            if self.record(name).get("said") and not self.record(name).get("cut"):
                took[name] = self.record(name)["seconds"]
        said = "; ".join(f"{name} {value:.1f} s = {value / imported:.1f} imports" for name, value in took.items())
        said += f"; load {os.getloadavg()[0]:.0f} on {os.cpu_count()} processors"
        return {"ok": True, "said": said, "seconds": round(sum(seconds) + quick.seconds, 1)}

    def real_gpu_tests(self, limit_s: float) -> dict[str, Any]:
        """Run the project's tests that need a real GPU; where it is simulated, only collect them."""
        options = ("-m", "real_gpu", "-q", "-rA", "-p", "no:cacheprovider", *(["--collect-only"] * self.simulated))
        ended = run_child(
            [sys.executable, "-m", "pytest", "tests/test_real_gpu.py", *options], self.environment, limit_s
        )
        if self.simulated:
            tests = re.findall(r"^\S+::(\S+)", ended.output, re.MULTILINE)
            return skipped(f"{len(tests)} tests found; these GPUs are simulated", ok=ended.code == 0 and bool(tests))
        results = re.findall(r"^(PASSED|FAILED|ERROR) \S+::(\S+)", ended.output, re.MULTILINE)
        said = ", ".join(f"{name} {status.lower()}" for status, name in results) or "no test ended"
        return {"ok": ended.code == 0, "said": said, "cut": ended.code is None, **seconds_of(ended)}

    def tensorflow_tests(self, file: str, limit_s: float) -> dict[str, Any]:
        """Run a file of TensorFlow's own tests on the GPU, and what fails there on the CPU."""
        if self.sources is None or not (self.sources / file).exists():
            return skipped("no sources of TensorFlow: give --sources (see --fetch)")
        with tempfile.TemporaryDirectory(prefix="acceptance-") as folder:
            results, report = Path(folder) / "results.json", Path(folder) / "report.md"
            where = ("--sources", str(self.sources), "--results", str(results), "--report", str(report))
            how = ("--simulate", "", "--limit", f"{limit_s / 3:.0f}")  # the GPU's side, the CPU's, and two imports
            ended = run_child([sys.executable, str(TF_SUITE), *where, *how, file], self.environment, limit_s)
            sides: dict[str, Any] = next(iter(read(results).values()), {"cpu": {}, "gpu": {}})
        tests = list(tf_suite.judged(sides["cpu"], sides["gpu"]))
        bad = [f"{name} ({tf_suite.class_of(f'{name}: {what}')})" for name, what in tests if what != "passed"]
        said = f"{len(tests) - len(bad)} of {len(tests)} pass" + (f"; not: {', '.join(bad[:8])}" if bad else "")
        return {"ok": bool(tests) and not bad, "said": said, "cut": ended.code is None, **seconds_of(ended)}

    def steps(self) -> Iterator[tuple[str, float, Callable[[float], dict[str, Any]]]]:
        """Yield each step: its name, the most seconds that it may take, and what it does within some seconds."""
        simulate = ("--simulate", str(self.folder / "simulated.toml"))
        if importlib.util.find_spec("tensorflow") is None:  # still, what the driver and NVML say is of worth
            yield "real-host", 120, partial(self.check, "real-host", ("host",))
            return
        fork, spawn = (("--level", "full", "--isolation", isolation) for isolation in ("fork", "spawn"))
        yield "real-fork", 1200, partial(self.check, "real-fork", fork)
        yield "simulated-fork", 1200, partial(self.check, "simulated-fork", (*fork, *simulate))
        for provocation in PROVOCATIONS:
            yield f"provoke-{provocation.name}", 180, partial(self.provoke, provocation)
        yield "real-spawn", 1200, partial(self.check, "real-spawn", spawn)
        yield "times", 400, self.times
        yield "real-gpu-tests", 1800, self.real_gpu_tests
        for file in TENSORFLOW_TESTS:
            yield f"tensorflow-{Path(file).stem}", 300, partial(self.tensorflow_tests, file)

    def run(self, only: str) -> int:
        """Run the steps that are left; return how many there still are."""
        remaining = 0
        whole_s = self.end - time.monotonic()
        for name, most_s, do in self.steps():
            kept = self.record(name)
            limit_s = min(most_s, self.end - time.monotonic())
            is_cut = kept.get("cut") and limit_s > 1.5 * kept["limit"]
            is_done = bool(kept) and not is_cut and not kept["said"].startswith(NOT_RUN)
            if is_done or not re.search(only, name):
                continue
            if limit_s < min(LEAST_S, most_s):
                remaining += 1
                continue
            print(f"{name} ...", end=" ", file=sys.stderr, flush=True)
            result = do(limit_s)
            self.write(f"steps/{name}.json", result | {"limit": round(limit_s)})
            print(result["said"], file=sys.stderr, flush=True)
            remaining += (
                bool(result.get("cut")) and limit_s < most_s and 1.5 * limit_s < whole_s
            )  # as the next call asks
            self.write("README.md", page(self))
        self.write("README.md", page(self))
        return remaining


def read(file: Path) -> dict[str, Any]:
    """Return the JSON of a file; {} if it is not there, or not whole."""
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def seconds_of(ended: Ended) -> dict[str, float]:
    return {"seconds": round(ended.seconds, 1)}


def skipped(why: str, *, ok: bool = True) -> dict[str, Any]:
    return {"ok": ok, "said": f"{NOT_RUN}: {why}", "seconds": 0}


def commit() -> str:
    """Return the commit that last changed gpudiag, and whether it was changed since; its version if there is no Git."""
    git = ("git", "-C", str(ROOT))
    measured = ("--", "gpudiag", ":!gpudiag/docs")
    try:
        name = subprocess.check_output(
            [*git, "log", "-1", "--format=%h", "--abbrev=12", *measured], text=True, stderr=subprocess.DEVNULL
        )
        changed = subprocess.check_output([*git, "status", "--porcelain", *measured], text=True)
    except (OSError, subprocess.CalledProcessError):
        return f"version {gpudiag.__version__}"
    return name.strip() + (", changed" if changed else "")


def simulation_of(report: Report) -> str:
    """Return the TOML of a simulated machine with the GPUs in scope of a report, their memory and driver."""
    nvml = report.facts.nvml
    lines = []
    if isinstance(nvml, NvmlFacts):
        versions = (("driver_version", nvml.driver_version), ("cuda_version", nvml.cuda_version))
        lines += [f'{key} = "{value}"' for key, value in versions if value]
    devices = {device.pci_bus_id: device for device in report.facts.nvml_devices}
    for place in dict.fromkeys(gpu.pci_bus_id for gpu in report.gpus):
        lines += ["", "[[gpu]]", *_gpu_lines(devices[place])]
    return "\n".join(lines) + "\n"


def _gpu_lines(device: NvmlDevice) -> Iterator[str]:
    name = device.name.removeprefix(SIMULATED)
    preset = next((key for key, card in PRESETS.items() if card.name == name), None)
    yield f'preset = "{preset}"' if preset else f"name = {json.dumps(name)}"
    if device.memory_total_bytes:
        yield f'memory = "{device.memory_total_bytes >> 20}MiB"'
    if device.compute_capability and not preset:
        yield f'compute_capability = "{device.compute_capability}"'
    yield f'pci_bus_id = "{device.pci_bus_id}"'
    if device.compute_mode:
        yield f'compute_mode = "{device.compute_mode}"'
    if device.mig_uuids:
        yield f"mig = {len(device.mig_uuids)}"
    if device.memory_used_bytes >= BUSY_BYTES:
        yield f'taken = "{device.memory_used_bytes >> 20}MiB"'
    values = {key: getattr(device.state, key, None) for key in STATES}
    state = ", ".join(f"{key} = {int(value)}" for key, value in values.items() if isinstance(value, int))
    yield f"state = {{{state}}}"


# ---- The page ----


def page(run: Acceptance) -> str:
    """Return the page of what is known by now."""
    kept = read(run.folder / "acceptance.json")
    on = "SIMULATED GPUs in the role of real ones" if run.simulated else "real GPUs"
    names = [name for name, _, _ in run.steps()]
    records = {name: run.record(name) for name in names}
    done = [name for name in names if records[name]]
    lines = [
        f"# Acceptance on {on}",
        "",
        f"By `scripts/acceptance.py`, commit {kept.get('commit')}, begun {kept.get('began')}. "
        f"{len(done)} of {len(names)} steps are done.",
        "",
        *(f"**{text}**\n" for text in cautions(run)),
        "## Machine",
        "",
        "| | |",
        "| --- | --- |",
        *(f"| {name} | {value} |" for name, value in environment(run.machine)),
        "",
        "## Differences, the most important first",
        "",
        *differences(run),
        "",
        "## Steps",
        "",
        "| step | as expected | what it said | s |",
        "| --- | --- | --- | --- |",
    ]
    for name in done:
        record = records[name]
        expected = f", expected {record['expected']}" if record.get("expected") and not record["ok"] else ""
        word = "yes" if record["ok"] else "**no**"
        if record["said"].startswith(NOT_RUN):
            word = NOT_RUN if record["ok"] else "**no**"
        cut = f" (cut off after {record['limit']} s)" if record.get("cut") else ""
        lines.append(f"| {name} | {word} | {_cell(record['said'])}{expected}{cut} | {record['seconds']:.0f} |")
    return "\n".join([*lines, "", "## Row by row", "", *row_by_row(run), ""])


def cautions(run: Acceptance) -> Iterator[str]:
    """Yield what a reader must know before he believes a number."""
    if run.simulated:
        yield "No real GPU was used: this shows that the script works, and nothing about a card."
    if importlib.util.find_spec("tensorflow") is None:
        yield "TensorFlow is not installed: only the driver and the GPUs were looked at. See --fetch."
    devices = {device.pci_bus_id: device for device in run.machine.facts.nvml_devices}
    for gpu in run.machine.gpus:
        device = devices[gpu.pci_bus_id]
        if device.memory_used_bytes >= BUSY_BYTES or device.processes:
            used = f"{device.memory_used_bytes >> 20} MiB of GPU {gpu.index}"
            yield f"{used} were in use by others before the run: memory and times may differ for that reason."
        if device.mig_mode == "enabled":
            yield f"GPU {gpu.index} has MIG on, with {len(device.mig_uuids)} instances."
    if len({gpu.name for gpu in run.machine.gpus}) > 1:
        yield "The GPUs are of different models."


def environment(report: Report) -> Iterator[tuple[str, object]]:
    masked = mask(report)
    for gpu in masked.gpus:
        yield f"GPU {gpu.index}", f"{gpu.name}, {gpu.memory_total_bytes >> 20} MiB"
    facts = masked.facts
    if isinstance(facts.nvml, NvmlFacts):
        yield "driver", f"{facts.nvml.driver_version}, CUDA {facts.nvml.cuda_version}"
    if importlib.util.find_spec("tensorflow"):
        build = None if isinstance(facts.tensorflow, Unknown) else facts.tensorflow.build
        version = importlib.metadata.version("tensorflow")
        yield "TensorFlow", f"{version}, built for CUDA {build.cuda_version if build else 'unknown'}"
    if not isinstance(facts.system, Unknown):
        yield "system", f"{facts.system.os}, {facts.system.machine}, Python {facts.system.python}"
        yield "processors", facts.system.cpus
        yield "memory", f"{facts.system.memory_bytes >> 30} GiB"
    if not isinstance(facts.container, Unknown):
        yield "container", facts.container.runtime or "none"


def rank(change: Change) -> tuple[bool, int]:
    """What is worse on the real GPUs comes first, then the order of subjects: verdict, GPUs, causes, rows, facts."""
    return not change.worse, list(ChangeSubject).index(change.subject)


def differences(run: Acceptance) -> Iterator[str]:
    """Yield the table of what differs, from the simulated machine to the real one."""
    both = [path for name in ("simulated-fork", "real-fork") if (path := run.report(name))]
    if len(both) < 2:
        yield "Not known yet: the catalogue must have run on both."
        return
    found = reports.compare(*map(reports.ComparedReport.load, both)).changes
    if not found:
        yield "None: every row and every fact is the same."
        return
    yield from ("| what | simulated | real | |", "| --- | --- | --- | --- |")
    for change in sorted(found, key=rank)[:SHOWN]:
        cells = (f"{change.subject.value}: {change.name}", change.old or "", change.new or "")
        yield f"| {' | '.join(_cell(cell) for cell in cells)} | {'worse' if change.worse else ''} |"
    if len(found) > SHOWN:
        yield f"\nAnd {len(found) - SHOWN} more: gpudiag diff simulated-fork.json real-fork.json"


def row_by_row(run: Acceptance) -> Iterator[str]:
    """Yield the table of every row on the real GPUs, in each isolation, and on simulated ones."""
    columns = ("real-host", "real-fork", "real-spawn", "simulated-fork")
    sides = {name: codec.load(path) for name in columns if (path := run.report(name))}
    cells = {
        name: {(row.probe, report.device_label(row)): row for row in report.rows} for name, report in sides.items()
    }
    yield f"| row | {' | '.join(sides)} |"
    yield f"| --- |{' --- |' * len(sides)}"
    for place in dict.fromkeys(place for rows in cells.values() for place in rows):
        texts = []
        for rows in cells.values():
            row = rows.get(place)
            outcome = row.outcome if row else None
            figure = getattr(outcome, "figure", "") or getattr(outcome, "reason", "") or getattr(outcome, "detail", "")
            texts.append(f"{row.status}, {row.duration_s:.1f} s{f', {figure}' if figure else ''}" if row else "")
        marks = len({text.split(",")[0] for text in texts}) > 1
        name = " ".join(filter(None, place))
        yield f"| {f'**{name}**' if marks else name} | {' | '.join(map(_cell, texts))} |"


def _cell(text: str) -> str:
    text = " ".join(text.split()).replace("|", "/")
    return text if len(text) <= 300 else f"{text[:300]} ..."


def fetch_lines() -> str:
    """Return what to type where there is a network, and then on the machine without."""
    version = importlib.metadata.version("tensorflow") if importlib.util.find_spec("tensorflow") else "2.21.0"
    tests = " ".join(sorted({str(Path(file).parent) for file in TENSORFLOW_TESTS}))
    return f"""\
# With a network, in this checkout; the same Python and processor as there, about 3 GB:
pip wheel --no-deps -w wheels .
pip download -d wheels --find-links wheels 'gpudiag[cuda,test]' tensorflow=={version}
git clone --depth 1 --branch v{version} --filter=blob:none --sparse https://github.com/tensorflow/tensorflow
git -C tensorflow sparse-checkout set {tests} tensorflow/python/kernel_tests tensorflow/python/framework

# On the machine, with this checkout, wheels/ and tensorflow/:
python3 -m venv venv && . venv/bin/activate
pip install --no-index --find-links wheels 'gpudiag[cuda,test]'
python scripts/acceptance.py --minutes 30 --sources tensorflow"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build" / "acceptance", help="of the results")
    parser.add_argument("--minutes", type=float, default=30, help="how long this call may take")
    parser.add_argument("--sources", type=Path, help="a checkout of TensorFlow's sources, for its tests")
    parser.add_argument("--only", default="", metavar="PATTERN", help="run only the steps that match, such as provoke")
    parser.add_argument(
        "--fetch", action="store_true", help="print how to fetch what a machine without a network needs"
    )
    options = parser.parse_args()
    if options.fetch:
        print(fetch_lines())
        return 0
    end = time.monotonic() + 60 * options.minutes
    folder = options.folder.resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder / ".lock", timeout=0):
            run = Acceptance(folder, end, options.sources and options.sources.resolve(), look())
            run.open()
            remaining = run.run(options.only)
    except CannotRunError as stop:
        print(f"acceptance: {stop}", file=sys.stderr)
        return 2
    except filelock.Timeout:
        print(f"acceptance: another run works in {folder}.", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        print(
            f"acceptance: the disk is full. Free some space and run it again: it goes on in {folder}.", file=sys.stderr
        )
        return 2
    wrong = [name for name, _, _ in run.steps() if run.record(name) and not run.record(name)["ok"]]
    steps = f"{counted(len(wrong), 'step')} not as expected, {remaining} left"
    print(f"{folder / 'README.md'}: {steps}{' of those chosen' if options.only else ''}")
    return 3 if remaining else int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
