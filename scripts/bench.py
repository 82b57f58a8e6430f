"""Measures gpudiag against a bare ``import tensorflow`` and writes ``reports/bench.json``.

The machine may be shared and noisy: everything is measured in one run, in turns, and what counts are the ratios of the
medians. Exit status 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

import bench_simulator
import gpudiag
from gpudiag import catalogue

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "reports" / "bench.json"

PYTHON = [sys.executable]
GPUDIAG = [sys.executable, "-m", "gpudiag"]
CHECK = [*GPUDIAG, "check", "--quiet", "--allow-no-gpu"]
TENSORFLOW_PROBES = [entry.name for entry in catalogue.entries() if entry.reading is not None]

COMMANDS = {
    "import tensorflow": [*PYTHON, "-c", "import tensorflow"],
    "python -c pass": [*PYTHON, "-c", "pass"],
    "--version": [*GPUDIAG, "--version"],
    "list": [*GPUDIAG, "list"],
    "explain": [*GPUDIAG, "explain", "placement.log"],
    "check": CHECK,
    "check --simulate 2x16GiB": [*CHECK, "--simulate", "2x16GiB"],
    "check, TensorFlow probes, fork": [*CHECK, "--isolation", "fork", *TENSORFLOW_PROBES],
    "check, TensorFlow probes, spawn": [*CHECK, "--isolation", "spawn", *TENSORFLOW_PROBES],
    "check, TensorFlow probes, fork, -j 1": [*CHECK, "--isolation", "fork", "-j", "1", *TENSORFLOW_PROBES],
    "check, TensorFlow probes, spawn, -j 1": [*CHECK, "--isolation", "spawn", "-j", "1", *TENSORFLOW_PROBES],
}

Medians = dict[str, float]

TARGETS: list[tuple[str, Callable[[Medians], float], str, float]] = [
    ("check / import tensorflow", lambda s: s["check"] / s["import tensorflow"], "<=", 2.5),
    (
        "check --simulate 2x16GiB / import tensorflow",
        lambda s: s["check --simulate 2x16GiB"] / s["import tensorflow"],
        "<=",
        6.0,
    ),
    (
        "spawn / fork, TensorFlow probes",
        lambda s: s["check, TensorFlow probes, spawn"] / s["check, TensorFlow probes, fork"],
        ">=",
        2.0,
    ),
    (
        "spawn / fork, TensorFlow probes, -j 1",
        lambda s: s["check, TensorFlow probes, spawn, -j 1"] / s["check, TensorFlow probes, fork, -j 1"],
        ">=",
        4.0,
    ),
    *(
        (f"{name} - python -c pass, seconds", lambda s, name=name: s[name] - s["python -c pass"], "<=", 0.1)
        for name in ("--version", "list", "explain")
    ),
]

SIMULATOR_TARGETS = {
    "fork_to_first_matmul_16gib_per_import": 0.15,
    "fork_to_first_matmul_80gib_per_import": 0.15,
    "step_cnn_gpu_per_cpu": 1.3,
    "step_dense_gpu_per_cpu": 1.6,
}
"""At most; the names are those of ``bench_simulator.measure``."""


TRACE_TARGETS = {"fit": 1.05, "eager": 1.1}
"""Processor time with the watcher of ``gpudiag trace`` over that without it, at most; see ``bench_trace``."""
TRACE = [*GPUDIAG, "simulate", "1x8GiB", "--", *PYTHON, str(ROOT / "scripts" / "bench_trace.py")]

PLUGIN, PLUGIN_MS = "pytest --collect-only, with and without the plugin, ms", 30.0
"""The median of pairs, at most."""


def seconds(command: list[str], status: int = 0) -> float:
    """Run ``command`` to its end and return how long it took; its exit status must be ``status``."""
    began = time.perf_counter()
    done = subprocess.run(
        command, cwd=ROOT, env=_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
    )
    took = time.perf_counter() - began
    if done.returncode != status:
        raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr.decode(errors='replace')}")
    return took


def peak_mib(command: list[str]) -> float:
    """Run ``command`` and return the most memory its processes held together, in MiB of proportional set size."""
    most = 0
    with subprocess.Popen(
        command, cwd=ROOT, env=_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            held = 0
            try:
                for member in [watched, *watched.children(recursive=True)]:
                    held += member.memory_full_info().pss
            except psutil.Error:  # it ended between being listed and being asked
                pass
            most = max(most, held)
            time.sleep(0.05)
    return round(most / (1 << 20), 1)


def plugin_import_ms(pairs: int = 20) -> float:
    """Return what loading the pytest plugin adds to a session that does not use it: median of pairs, in ms."""
    switches = (["-p", "gpudiag.pytest_plugin"], ["-p", "no:gpudiag"])
    with tempfile.TemporaryDirectory() as empty:
        took: list[list[float]] = [[], []]
        for number in range(pairs + 1):
            for which in sorted((0, 1), reverse=bool(number % 2)):  # each is the first as often as the other
                command = [*PYTHON, "-m", "pytest", "--collect-only", "-q", "--rootdir", empty, *switches[which], empty]
                took[which].append(seconds(command, status=pytest.ExitCode.NO_TESTS_COLLECTED))
    return 1000 * statistics.median(
        with_it - without for with_it, without in zip(took[0][1:], took[1][1:], strict=True)
    )


def _environment() -> dict[str, str]:
    """Return that of what is measured: nothing that changes gpudiag, and bytecode is kept, as in an installation."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GPUDIAG_") and name != "PYTHONDONTWRITEBYTECODE"
    }


def main() -> int:
    """Measure, print, write, and return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", "--rounds", type=int, default=5, help="runs of each command (default 5)")
    rounds = parser.parse_args().rounds
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for command in COMMANDS.values():  # the first run fills the page cache
        seconds(command)
    for number in range(rounds):
        for name, command in COMMANDS.items():
            times[name].append(seconds(command))
        print(f"round {number + 1} of {rounds} done", file=sys.stderr, flush=True)
    medians = {name: statistics.median(values) for name, values in times.items()}
    targets = []
    for name, measure, sign, bound in TARGETS:
        value = measure(medians)
        met = value <= bound if sign == "<=" else value >= bound
        targets.append({"figure": name, "value": round(value, 3), "target": f"{sign} {bound:g}", "met": met})
    simulator = {name: round(value, 4) for name, value in bench_simulator.measure().items()}
    for name, bound in SIMULATOR_TARGETS.items():
        value = simulator[name]
        targets.append({"figure": name, "value": value, "target": f"<= {bound:g}", "met": value <= bound})
    done = subprocess.run(TRACE, env=_environment(), capture_output=True, text=True, check=True)
    trace = {name: round(value, 3) for name, value in json.loads(done.stdout.splitlines()[-1]).items()}
    for name, bound in TRACE_TARGETS.items():
        value = trace[f"{name}, ratio"]
        figure = f"{name}, traced / not traced"
        targets.append({"figure": figure, "value": value, "target": f"<= {bound:g}", "met": value <= bound})
    plugin = round(plugin_import_ms(), 1)
    targets.append({"figure": PLUGIN, "value": plugin, "target": f"<= {PLUGIN_MS:g}", "met": plugin <= PLUGIN_MS})
    result = {
        "gpudiag": gpudiag.__version__,
        "python": platform.python_version(),
        "processors": len(os.sched_getaffinity(0)),
        "rounds": rounds,
        "targets": targets,
        "seconds": {
            name: {"min": round(min(v), 3), "median": round(statistics.median(v), 3), "max": round(max(v), 3)}
            for name, v in times.items()
        },
        "simulator": simulator,
        "trace": trace,
        "peak_mib": {
            name: peak_mib(COMMANDS[name]) for name in ("import tensorflow", "check", "check --simulate 2x16GiB")
        },
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    for target in targets:
        print(f"{target['figure']}: {target['value']} ({target['target']}: {'met' if target['met'] else 'MISSED'})")
    for name, peak in result["peak_mib"].items():
        print(f"peak memory, {name}: {peak} MiB")
    return 0 if all(target["met"] for target in targets) else 1


if __name__ == "__main__":
    sys.exit(main())
