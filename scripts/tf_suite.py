"""TensorFlow's own test files on a simulated machine, beside the same files on the CPU.

    git clone https://github.com/tensorflow/tensorflow   # the release that is installed
    python scripts/tf_suite.py --sources tensorflow tensorflow/python/kernel_tests/nn_ops/pooling_ops_test.py ...

Their expectations were written on real GPUs. The test modules that the wheel lacks are imported from the sources:
nothing is copied. What each test gave is kept (`--results`), so that files can be run one after the other; the page is
written from all of it. The two modules that switch XLA and the MLIR bridge on for every test (`is_xla_test_true.py`,
`is_mlir_bridge_test_true.py`) are left out.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpudiag.simulator import Machine

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "reports" / "tensorflow-suite.md"
CRASHES = 8
"""How many tests of one file may end the process before the rest of the file is given up."""

# Runs one test file as `python FILE` would; argv: sources, file, tests to leave out (commas between), the file's own.
RUNNER = r"""
import importlib.machinery, importlib.util, pathlib, runpy, sys, unittest

sources, file, left_out, *arguments = sys.argv[1:]


class Sources:
    @staticmethod
    def find_spec(name, path=None, target=None):
        last = name.rpartition(".")[2]
        if not name.startswith("tensorflow.") or last.startswith(("is_xla_test", "is_mlir_bridge_test")):
            return None
        place = pathlib.Path(sources, *name.split("."))
        if place.with_suffix(".py").is_file():
            return importlib.util.spec_from_file_location(name, place.with_suffix(".py"))
        package = place / "__init__.py"
        if package.is_file():
            return importlib.util.spec_from_file_location(name, package, submodule_search_locations=[str(place)])
        if not place.is_dir():
            return None
        spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(place)]
        return spec


run = unittest.TestCase.run


def run_unless_left_out(self, result=None):
    if ".".join(self.id().split(".")[-2:]) not in left_out.split(","):
        return run(self, result)


sys.meta_path.append(Sources)
unittest.TestCase.run = run_unless_left_out
sys.argv = [file, *arguments]
runpy.run_path(file, run_name="__main__")
"""

OUTCOME = re.compile(r"^\[ +(RUN|OK|FAILED|SKIPPED) +\] (\S+)", re.MULTILINE)
BLOCK = re.compile(r"^(?:ERROR|FAIL): (\S+).*\(([\w.]+)\)$", re.MULTILINE)

# Why a test fails on simulated GPUs: what its reason says, the class, and the reason in words. The first that fits.
CLASSES = (
    (r"CudnnRNN", "cuDNN's recurrent layers", "they have no kernel on the CPU"),
    (r"XLA cannot run here|XLA", "XLA", "compiled code cannot run; what asks for it runs without it"),
    (r"NCHW_VECT_C|int8x4", "int8x4 (NCHW_VECT_C)", "the CPU does not know this layout"),
    (r"CPU implementation|on (the )?CPU|CPU kernel refuses", "not on the CPU", "the CPU's kernel does less"),
    (r"[Dd]etermini|UnimplementedError not raised", "errors about determinism", "the CPU's kernels are deterministic"),
    (r"no CPU kernel for it|Could not find device|No registered", "no CPU kernel", "it exists for the GPU alone"),
    (r"signal \d+|ended the process", "the process ended", "TensorFlow's CPU kernel ends the process"),
    (r"no end within", "no end", "slower than the limit of time of a file"),
)  # fmt: skip


def outcomes(log: str) -> dict[str, str]:
    """Return what each test that began gave: `passed`, `skipped`, or why it failed."""
    found: dict[str, str] = {}
    running = ""
    for word, test in OUTCOME.findall(log):
        name = ".".join(test.split(".")[-2:])
        running = name if word == "RUN" else ""
        found[name] = {"RUN": "ended the process", "OK": "passed", "SKIPPED": "skipped", "FAILED": "failed"}[word]
    reasons = list(BLOCK.finditer(log))
    for begin, end in zip(reasons, [*(one.start() for one in reasons[1:]), len(log)], strict=False):
        text = log[begin.end() : end]
        name = ".".join((begin[2] if begin[2].endswith(f".{begin[1]}") else f"{begin[2]}.{begin[1]}").split(".")[-2:])
        found[name] = f"failed: {reason_of(text)}"
    if running and found[running] == "passed":
        found[running] = "ended the process"
    return found


def reason_of(block: str) -> str:
    """Return what the last exception of a traceback says, on one line."""
    lines = re.split(r"^(?:=|-){20,}$|^Ran \d+ tests", block, maxsplit=2, flags=re.MULTILINE)
    text = lines[1] if len(lines) > 1 else block
    begins = [one.start() for one in re.finditer(r"^[\w.]+(?:Error|Exception|Failed)\b", text, re.MULTILINE)]
    return " ".join(text[begins[-1] :].split())[:600] if begins else "?"


def run_file(sources: Path, file: str, environment: dict[str, str], limit_s: float) -> dict[str, str]:
    """Return what each test of `file` gave. A test that ends the process is left out when the others are run again."""
    found: dict[str, str] = {}
    left_out: list[str] = []
    for _ in range(CRASHES):
        text, why = run_once(sources, file, environment, limit_s, left_out)
        now = outcomes(text)
        found = {**found, **now}
        ended = next((name for name, what in now.items() if what == "ended the process"), None)
        if ended is None:
            break
        found[ended] = why
        left_out = [*left_out, ended]
    if not found:
        last = next((line for line in reversed(text.splitlines()) if "Error" in line), "")
        return {"(file)": f"failed: no test began: {why} {last}"[:400]}
    return found


def run_once(
    sources: Path, file: str, environment: dict[str, str], limit_s: float, left_out: list[str], *arguments: str
) -> tuple[str, str]:
    """Return the log, and how the process ended."""
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "-c", RUNNER, str(sources), str(sources / file), ",".join(left_out), *arguments],
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**environment, "TEST_TMPDIR": scratch, "TEST_SRCDIR": str(sources)},
            cwd=scratch,
            start_new_session=True,
        )
        try:
            code = process.wait(limit_s)
            why = f"failed: signal {-code} ended the process" if code < 0 else f"failed: the process ended with {code}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            why = f"failed: no end within {limit_s:g} s"
        log.seek(0)
        return log.read().decode(errors="replace"), why


def again(sources: Path, file: str, tests: dict[str, str], environment: dict[str, str], limit_s: float) -> None:
    """Run those that failed among others alone: what passes then was another test's doing."""
    for name in [name for name, what in tests.items() if what.startswith("failed") and name != "(file)"]:
        text, _ = run_once(sources, file, environment, limit_s, [], name)
        if outcomes(text).get(name) == "passed":
            tests[name] = "passed"


def measure(options: argparse.Namespace) -> dict[str, dict[str, dict[str, str]]]:
    """Return, and keep, what the tests of each file gave on the CPU and on the simulated machine."""
    results: dict[str, dict[str, dict[str, str]]] = {}
    if options.results.exists():
        results = json.loads(options.results.read_text())
    plain = dict(os.environ) | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "1"}

    def one(file: str) -> None:
        cpu = results.get(file, {}).get("cpu") or run_file(options.sources, file, plain, options.limit)
        with Machine(options.simulate) as machine:  # its own: the first process on a GPU takes nearly all of its memory
            simulated = machine.environment(dict(os.environ) | {"TF_CPP_MIN_LOG_LEVEL": "1"})
            simulated.pop("CUDA_VISIBLE_DEVICES", None)
            gpu = run_file(options.sources, file, simulated, options.limit)
            if options.alone:
                worse = {name: what for name, what in gpu.items() if cpu.get(name) != what}
                again(options.sources, file, worse, simulated, options.limit)
                gpu |= worse
        results[file] = {"cpu": cpu, "gpu": gpu}
        options.results.write_text(json.dumps(results, indent=1, sort_keys=True))
        counts = [dict(Counter(what.split(":")[0] for what in side.values())) for side in (gpu, cpu)]
        print(f"{file}: {counts[0]} (CPU: {counts[1]})", flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(one, options.files))
    return results


def judged(cpu: dict[str, str], gpu: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The tests that count, and what they gave: those that pass on the CPU, and those that only run on a GPU."""
    for name, what in gpu.items():
        on_cpu = cpu.get(name, "skipped")
        if "passed" in {on_cpu, what} or (on_cpu == "skipped" and what != "skipped"):
            yield name, what
    for name, what in cpu.items():
        if what == "passed" and name not in gpu:
            yield name, "failed: did not run"


def class_of(reason: str) -> str:
    return next((name for pattern, name, _ in CLASSES if re.search(pattern, reason)), "other")


def report(results: dict[str, dict[str, dict[str, str]]], spec: str) -> str:
    """Return the page."""
    rows, classes, examples = [], Counter[str](), dict[str, str]()
    passed = counted = 0
    for file, sides in sorted(results.items()):
        tests = list(judged(sides["cpu"], sides["gpu"]))
        good = sum(what == "passed" for _, what in tests)
        skipped = sum(what == "skipped" for _, what in tests)
        on_cpu = sum(what == "passed" for what in sides["cpu"].values())
        passed, counted = passed + good, counted + len(tests) - skipped
        rows.append(f"| `{file}` | {on_cpu} | {good} | {len(tests) - good - skipped} | {skipped} |")
        for name, what in tests:
            if what not in {"passed", "skipped"}:
                classes[class_of(what)] += 1
                examples.setdefault(
                    class_of(what), f"`{name}`: {what.removeprefix('failed: ')[:160]}".replace("|", "/")
                )
    why = {name: reason for _, name, reason in CLASSES}
    version = importlib.metadata.version("tensorflow")
    return "\n".join(
        [
            "# TensorFlow's own tests on simulated GPUs",
            "",
            f"By `scripts/tf_suite.py`: TensorFlow {version}, simulated machine `{spec}`, {len(results)} files.",
            "Counted are the tests that pass on the CPU, and those that need a GPU.",
            "",
            f"**{passed} of {counted} pass ({100 * passed / max(counted, 1):.1f} %).**",
            "",
            "| failures | class | reason | example |",
            "| --- | --- | --- | --- |",
            *(
                f"| {n} | {name} | {why.get(name, 'see the example')} | {examples[name]} |"
                for name, n in classes.most_common()
            ),
            "",
            "| file | passed on the CPU | passed | failed | skipped |",
            "| --- | --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="test files, relative to the sources")
    parser.add_argument("--sources", type=Path, required=True, help="a checkout of TensorFlow")
    parser.add_argument("--simulate", default="1x16GiB", help="the simulated machine")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "tf_suite.json", help="kept between runs")
    parser.add_argument("--report", type=Path, default=REPORT)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=600, help="seconds for a file")
    parser.add_argument("--alone", action="store_true", help="run a test that failed again, without the others")
    options = parser.parse_args()
    options.sources = options.sources.resolve()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    options.report.write_text(report(measure(options), options.simulate))


if __name__ == "__main__":
    main()
