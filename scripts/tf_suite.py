"""TensorFlow's own test files on a simulated machine.

    git clone https://github.com/tensorflow/tensorflow   # the release that is installed
    python scripts/tf_suite.py --sources tensorflow tensorflow/python/kernel_tests/nn_ops/pooling_ops_test.py ...

Their expectations were written on real GPUs. The test modules that the wheel lacks are imported from the sources:
nothing is copied. What fails there is run on the CPU, too. What each test gave is kept (`--results`), so that files can
be run one after the other; the page is written from all of it. The two modules that switch XLA and the MLIR bridge on
for every test (`is_xla_test_true.py`, `is_mlir_bridge_test_true.py`) are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

from gpudiag.simulator import Machine

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "reports" / "tensorflow-suite.md"
CRASHES = 8
"""How many tests of one file may end the process before the rest of the file is given up."""

REST = "(the rest)"
"""Stands for the tests of a file for which there was no time."""

Results = dict[str, dict[str, Any]]
"""By file and machine: the `file`, the `machine`, what each test gave there (`gpu`), and on the `cpu` if it failed
there; the `seconds` that took, and the `build` of the simulator."""

# A process that imported TensorFlow, and runs each test file that a line on stdin asks for in a separate child, as
# `python FILE` would. argv: sources. It never asks for a device: its children would have the same.
# With a file and arguments after the sources it is that test's program, for tests that start processes: like Bazel's,
# it is not called *.py, and runs what multiprocessing wants of a Python (`multi_process_lib.py`).
SERVER = r"""
import gc, importlib.machinery, importlib.util, json, os, pathlib, shlex, signal, sys, time, types, unittest

sources, *itself = sys.argv[1:]


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


def run_in_child(file, log, folder, left_out, arguments):
    os.setsid()
    os.chdir(folder)
    os.environ |= {"TEST_TMPDIR": folder, "TEST_SRCDIR": sources}
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    run = unittest.TestCase.run

    def run_unless_left_out(self, result=None):
        if type(self).__name__ + "." + self._testMethodName not in left_out:
            return run(self, result)

    unittest.TestCase.run = run_unless_left_out
    program = pathlib.Path(folder, pathlib.Path(file).stem)
    command = shlex.join([sys.executable, "-c", sys.orig_argv[2], sources, file])
    program.write_text(f'#!/bin/sh\nTEST_PROGRAM={program} exec {command} "$@"\n')
    program.chmod(0o755)
    run_file(file, str(program), *arguments)


def run_file(file, program, *arguments):
    sys.path[0] = os.path.dirname(file)
    sys.argv = [program, *arguments]
    code = 0
    sys.modules["__main__"] = main = types.ModuleType("__main__")  # runpy would make `file` of sys.argv[0]
    main.__file__ = file
    try:
        exec(compile(pathlib.Path(file).read_bytes(), file, "exec"), main.__dict__)
    except SystemExit as end:
        code = int(bool(end.code))
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    os._exit(code)


sys.meta_path.append(Sources)
if itself:
    run_file(itself[0], os.environ["TEST_PROGRAM"], *itself[1:])
import tensorflow
from tensorflow.python.framework import test_util
gc.freeze()
print("ready", flush=True)
for line in sys.stdin:
    limit, *request = json.loads(line)
    child = os.fork()
    if not child:
        run_in_child(*request)
    end, waited = time.monotonic() + limit, (0, 0)
    while not waited[0] and time.monotonic() < end:
        waited = os.waitpid(child, os.WNOHANG)
        time.sleep(0.05)
    try:
        os.killpg(child, signal.SIGKILL)  # with the processes that it has left
    except ProcessLookupError:
        pass
    if not waited[0]:
        os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(waited[1]) if waited[0] else "late", flush=True)
"""

OUTCOME = re.compile(r"^\[ +(RUN|OK|FAILED|SKIPPED) +\] (\S+)", re.MULTILINE)
BLOCK = re.compile(r"^(?:ERROR|FAIL): (\w+).*?\(__main__\.(\w+)", re.MULTILINE)  # absl leaves the name out there

# Why a test fails on simulated GPUs: what its name and reason say, the class, and why. The first that fits.
CLASSES = (
    (r"no supported kernel for GPU devices", "no GPU kernel", "a real GPU has none either"),
    (r"testCollectiveDeviceMismatch", "a group of CPU and GPU", "the kernels of collectives are the CPU's everywhere"),
    (r"XLA cannot run here|XLA", "XLA", "compiled code cannot run; what asks for it runs without it"),
    (r"NCHW_VECT_C|int8x4", "int8x4 (NCHW_VECT_C)", "the CPU does not know this layout"),
    (r"no CPU kernel for it|Could not find device|No registered", "no CPU kernel", "it exists for the GPU alone"),
    (r"DilatedConv|CPU implementation|on (the )?CPU|CPU kernel refuses", "not on the CPU", "its kernel does less"),
    (r"[Dd]etermin|UnimplementedError not raised", "errors about determinism", "the CPU's kernels are deterministic"),
    (r"is not in \[0|outside the valid range|out of bounds", "values no GPU checks", "the CPU's kernel refuses them"),
    (r'AssertionError: ".*" does not match', "words of an error", "they are those of the CPU's kernel"),
    (r"MatMulGradientTest.*_bfloat16_", "derivatives in bfloat16", "rounding; skipped on the CPU"),
    (r"testMaxPoolGradDirect", "NaN in the gradient of pooling", "cuDNN's numbers are its own"),
    (r"stream:|step_stats", "device tracing", "some records are not as on a GPU"),
    (r"test_tensor_float_32", "TensorFloat-32", "a simulated GPU computes in float32"),
    (r"RemapperTest", "fusions of cuDNN", "TensorFlow does not make them on a simulated GPU: float16 with GELU, tanh"),
    (r"signal \d+|ended the process", "the process ended", "TensorFlow's CPU kernel ends the process"),
    (r"no end within", "no end", "slower than the limit of time"),
)  # fmt: skip

LEFT_OUT = {
    "tensorflow/python/grappler/layout_optimizer_test.py": "TensorFlow does not run it (a comment in its BUILD). "
    "It expects names of nodes of the former layout optimizer. On a GPU of compute capability 7.5, 35 of its 56 tests "
    "pass; from 8.0 on, TensorFlow leaves convolutions of float32 without gradients as they are.",
}


def outcomes(log: str) -> dict[str, str]:
    """Return what each test that began gave: `passed`, `skipped`, or why it failed."""
    found: dict[str, str] = {}
    running = ""
    for word, test in OUTCOME.findall(log):
        name = ".".join(test.split(".")[-2:])
        running = name if word == "RUN" else ""
        found[name] = {"RUN": "ended the process", "OK": "passed", "SKIPPED": "skipped", "FAILED": "failed"}[word]
    reasons = list(BLOCK.finditer(log))
    for begin, end in zip(reasons, [*(reason.start() for reason in reasons[1:]), len(log)], strict=False):
        found[f"{begin[2]}.{begin[1]}"] = f"failed: {reason_of(log[begin.end() : end])}"
    if running and found[running] == "passed":
        found[running] = "ended the process"
    return found


def reason_of(block: str) -> str:
    """Return what the last exception of a traceback says, on one line."""
    lines = re.split(r"^(?:=|-){20,}$|^Ran \d+ tests", block, maxsplit=2, flags=re.MULTILINE)
    text = lines[1] if len(lines) > 1 else block
    begins = [match.start() for match in re.finditer(r"^[\w.]+(?:Error|Exception|Failed)\b", text, re.MULTILINE)]
    said = " ".join(text[begins[-1] :].split()) if begins else "?"
    return said if len(said) <= 4000 else f"{said[:2000]} ... {said[-2000:]}"  # in between: where the node was made


class Side:
    """Where tests run: a simulated machine, or the CPU."""

    def __init__(self, sources: Path, environment: dict[str, str], limit_s: float) -> None:
        self._sources = sources
        self._environment = environment
        self._limit_s = limit_s

    @cached_property
    def _server(self) -> subprocess.Popen[str]:
        """Started when first needed: on the CPU nothing may have to run."""
        command = [sys.executable, "-c", SERVER, str(self._sources)]
        pipe = subprocess.PIPE
        server = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=self._environment, text=True)
        assert server.stdout
        if server.stdout.readline().strip() != "ready":
            raise RuntimeError("TensorFlow cannot be imported")
        return server

    def close(self) -> None:
        if "_server" in self.__dict__:
            assert self._server.stdin
            self._server.stdin.close()
            self._server.wait()

    def once(self, file: str, limit_s: float, left_out: list[str], *arguments: str) -> tuple[str, str]:
        """Return the log, and how the process ended."""
        assert self._server.stdin
        assert self._server.stdout
        with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile() as log:
            request = [limit_s, str(self._sources / file), log.name, folder, left_out, arguments]
            self._server.stdin.write(json.dumps(request) + "\n")
            self._server.stdin.flush()
            code = self._server.stdout.readline().strip()
            if code == "late":
                why = f"failed: no end within {self._limit_s:g} s"
            elif code.startswith("-"):
                why = f"failed: signal {code[1:]} ended the process"
            else:
                why = f"failed: the process ended with {code}"
            return log.read().decode(errors="replace"), why

    def file(self, file: str, *tests: str) -> dict[str, str]:
        """Return what each test of `file` gave. One that ends the process is left out when the others run again."""
        found: dict[str, str] = {}
        left_out: list[str] = []
        end = time.monotonic() + self._limit_s
        while len(left_out) < CRASHES and time.monotonic() < end:
            text, why = self.once(file, end - time.monotonic(), left_out, *tests)
            now = outcomes(text)
            found |= now
            ended = next((name for name, what in now.items() if what == "ended the process"), None)
            if ended is None:
                break
            found[ended] = why
            left_out.append(ended)
        if not found:
            last = next((line for line in reversed(text.splitlines()) if "Error" in line), "")
            return {"(file)": f"failed: no test began: {why} {last}"[:400]}
        return found

    def alone(self, file: str, tests: dict[str, str]) -> None:
        """Run those that failed among others alone: what passes then was another test's doing."""
        for name in [name for name, what in tests.items() if what.startswith("failed") and name != "(file)"]:
            text, _ = self.once(file, self._limit_s, [], name)
            if outcomes(text).get(name) == "passed":
                if "no end within" in tests[name]:
                    tests[REST] = "not run"
                tests[name] = "passed"


def build_of_simulator() -> str:
    """Return which sources it was built from, as git names them: a tree's name does not change with a rebase."""
    git = ["git", "-C", str(ROOT)]
    tree = subprocess.check_output([*git, "rev-parse", "--short=12", "HEAD:gpudiag/simulator/src"], text=True).strip()
    changed = subprocess.check_output([*git, "status", "--porcelain", "gpudiag/simulator/src"], text=True)
    return f"{tree}, changed" if changed else tree


def measure(options: argparse.Namespace) -> Results:
    """Return, and keep, what the tests of each file gave on the simulated machine, and those that failed on the CPU."""
    results: Results = {}
    if options.results.exists():
        results = json.loads(options.results.read_text())
    quiet = dict(os.environ) | {"TF_CPP_MIN_LOG_LEVEL": "1"}
    build = build_of_simulator() if options.simulate else ""
    files = iter(options.files)

    def work() -> None:
        # Its own machine: the first process on a GPU takes nearly all of its memory.
        with contextlib.ExitStack() as stack:
            environment = quiet
            if options.simulate:
                environment = stack.enter_context(Machine(options.simulate)).environment(quiet)
                environment.pop("CUDA_VISIBLE_DEVICES", None)
            gpu = Side(options.sources, environment, options.limit)
            cpu = Side(options.sources, quiet | {"CUDA_VISIBLE_DEVICES": ""}, options.limit)
            for file in files:
                start = time.monotonic()
                tests = gpu.file(file)
                if options.alone:
                    gpu.alone(file, tests)
                failed = [name for name, what in tests.items() if what.startswith("failed")]
                whole = "(file)" in failed
                on_cpu = cpu.file(file, *([] if whole else failed)) if failed else {}
                results[f"{file} {options.simulate}"] = {
                    "file": file,
                    "machine": options.simulate,
                    "gpu": tests,
                    "cpu": on_cpu,
                    "seconds": round(time.monotonic() - start),
                    "build": build,
                }
                options.results.write_text(json.dumps(results, indent=1, sort_keys=True))
                counts = [dict(Counter(what.split(":")[0] for what in side.values())) for side in (tests, on_cpu)]
                took = round(time.monotonic() - start)
                print(f"{file}: {counts[0]} (failed ones on the CPU: {counts[1]}), {took} s", flush=True)
            gpu.close()
            cpu.close()

    with ThreadPoolExecutor(options.jobs) as pool:
        for done in [pool.submit(work) for _ in range(options.jobs)]:
            done.result()
    return results


def judged(cpu: dict[str, str], gpu: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The tests that count, and what they gave: not those that fail on the CPU, too, and those skipped."""
    for name, what in gpu.items():
        if what == "passed" or (what.startswith("failed") and cpu.get(name, "skipped") in {"passed", "skipped"}):
            yield name, what
    for name, what in cpu.items():
        if what == "passed" and name not in gpu:
            yield name, "failed: did not run"


def class_of(reason: str) -> str:
    return next((name for pattern, name, _ in CLASSES if re.search(pattern, reason)), "other")


def report(results: Results, note: str = "") -> str:
    """Return the page."""
    rows, classes, examples = [], Counter[str](), dict[str, str]()
    passed = counted = 0
    for _, sides in sorted(results.items()):
        tests = list(judged(sides["cpu"], sides["gpu"]))
        good = sum(what == "passed" for _, what in tests)
        skipped = sum(what == "skipped" for what in sides["gpu"].values())
        passed, counted = passed + good, counted + len(tests)
        part = ", not to its end" if REST in sides["gpu"] else ""
        place = f"`{sides['file']}`{part} | {sides['machine']} | {sides['build']}"
        rows.append(f"| {place} | {good} | {len(tests) - good} | {skipped} |")
        for name, what in tests:
            if what != "passed":
                kind = class_of(f"{name}: {what}")
                classes[kind] += 1
                reason = what.removeprefix("failed: ")[:160].replace("|", "/").replace("`", "'")
                examples.setdefault(kind, f"`{name}`: {reason}")
    why = {name: reason for _, name, reason in CLASSES}
    version = importlib.metadata.version("tensorflow")
    files = {result["file"] for result in results.values()}
    return "\n".join(
        [
            "# TensorFlow's own tests on simulated GPUs",
            "",
            f"By `scripts/tf_suite.py`: TensorFlow {version}, {len(files)} files.",
            "Counted are the tests that pass on the simulated machine, and those that fail there, but not on the CPU.",
            "A build is what `git rev-parse --short=12 HEAD:gpudiag/simulator/src` says of it.",
            *(["", note] if note else []),
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
            *(f"Not counted: `{file}`. {reason}\n" for file, reason in LEFT_OUT.items()),
            "| file | machine | build | passed | failed | skipped |",
            "| --- | --- | --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="test files, relative to the sources")
    parser.add_argument("--sources", type=Path, required=True, help="a checkout of TensorFlow")
    parser.add_argument("--simulate", default="1x16GiB", help="the simulated machine; '': the real one")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "tf_suite.json", help="kept between runs")
    parser.add_argument("--report", type=Path, default=REPORT)
    parser.add_argument("--note", default="", help="what else a reader of the page must know")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=600, help="seconds for a file")
    parser.add_argument("--alone", action="store_true", help="run a test that failed again, without the others")
    options = parser.parse_args()
    options.sources = options.sources.resolve()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    options.report.write_text(report(measure(options), options.note))


if __name__ == "__main__":
    main()
