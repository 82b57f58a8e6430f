"""Measures `gpudiag why LOG` on long logs of several kinds: processor seconds and peak memory of each.

With ``--against FOLDER``, another checkout, both are measured in turns, because the machine may be shared, and their
answers are compared. Exit status 1 if a log takes longer than :data:`MOST_SECONDS`, or if an answer differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

RUN = """
import runpy, sys
sys.meta_path = [finder for finder in sys.meta_path if "ScikitBuild" not in type(finder).__name__]
sys.path.insert(0, sys.argv[1])
sys.argv = ["gpudiag", *sys.argv[2:]]
runpy.run_module("gpudiag", run_name="__main__")
"""
"""Runs the gpudiag of a checkout: the finder of an editable installation would come first."""
SIZE = 20_000_000
MOST_SECONDS = 3.0
"""The most processor seconds for one log, with the start of Python."""


def training() -> Iterator[str]:
    """Keras' progress bars, which a carriage return writes over, and one warning of TensorFlow for each epoch."""
    for epoch in count(1):
        yield f"Epoch {epoch}/9000\n"
        yield f"W0000 00:00:17{epoch:08}.775117   16176 data_service.cc:7] step {epoch} took longer than usual\n"
        for step in range(1, 201):
            bar = "=" * (step // 10) + ">" + "." * (20 - step // 10)
            yield f"\r{step}/200 [{bar}] - ETA: {200 - step}s - loss: 0.{epoch * step % 9973} - accuracy: 0.{step:04}"
        yield f"\r200/200 [{'=' * 21}] - 12s 60ms/step - loss: 0.{epoch % 997} - val_loss: 0.{epoch % 991}\n"


def mixed() -> Iterator[str]:
    """The logs of public threads, one after the other, with other figures each time."""
    sys.path.insert(0, str(ROOT / "tests"))
    import settled

    logs = [entry.log for entry in settled.load()]
    for number in count():
        yield f"--- run {number}\n"
        yield logs[number % len(logs)].replace("17", str(number)).replace("00:", f"{number % 60:02}:")


def one_line() -> Iterator[str]:
    """A line that does not end."""
    for number in count():
        yield f"step {number} loss 0.{number % 997} CUDA_ERROR_OUT_OF_MEMORY "


def warnings() -> Iterator[str]:
    """One warning again and again, with other figures."""
    for number in count():
        yield (
            f"2026-01-31 12:{number % 60:02}:00.{number % 10**6:06}: W tensorflow/core/common_runtime/"
            f"bfc_allocator.cc:296] Allocator (GPU_0_bfc) ran out of memory trying to allocate {number % 97}.27"
            "GiB with freed_by_count=0. The caller indicates that this is not a failure, but this may mean that there "
            "could be performance gains if more memory were available.\n"
        )


def pytest_output() -> Iterator[str]:
    """Verbose tests, some of which fail."""
    for number in count():
        for case in range(40):
            yield f"tests/test_{number % 300}.py::test_layer[{case}-float{16 << case % 2}] PASS [{number % 100:3}%]\n"
        yield (
            f"__ test_layer[{number}] __\n    def test_layer(case):\n>       assert layer(x).shape == (1, {number})\n"
            f"E       AssertionError: assert TensorShape([1, {number % 7}]) == (1, {number})\n"
            f"tests/test_{number % 300}.py:{number % 900}: AssertionError\n"
        )


def ranks() -> Iterator[str]:
    """A Slurm job of 64 ranks; srun and the launcher put the rank before each line."""
    for step in count():
        for rank in range(64):
            prefix = f"{rank}: [1,{rank}]<stderr>:"
            yield f"{prefix}node{rank // 8:02}:{4000 + rank}:{5000 + rank} [{rank % 8}] NCCL INFO Channel {step % 32}"
            yield f"/0 : {rank}[{rank % 8}] -> {(rank + 1) % 64}[{(rank + 1) % 8}] via NET/IB/0/GDRDMA\n"
            yield f"{prefix}[step {step}] loss={step * rank % 9973 / 9973:.4f} {rank + 100:.1f} images/s\n"


def structured() -> Iterator[str]:
    """A JSON object for each line."""
    for number in count():
        level = "error" if number % 50 == 0 else "info"
        message = f"request {number} failed: deadline exceeded" if level == "error" else f"request {number} served"
        yield json.dumps({"ts": 1_700_000_000 + number, "level": level, "pod": f"serve-{number % 9}", "msg": message})
        yield "\n"


def words() -> Iterator[str]:
    """Lines that differ in their words, as a log of texts and identifiers does."""
    random_ = random.Random(1)  # noqa: S311
    letters = "abcdefghijklmnopqrstuvwxyz_"
    vocabulary = ["".join(random_.choices(letters, k=random_.randint(2, 9))) for _ in range(20_000)]
    for number in count():
        yield f"{number} " + " ".join(random_.choices(vocabulary, k=14)) + "\n"


KINDS: dict[str, Callable[[], Iterator[str]]] = {
    "training": training,
    "mixed": mixed,
    "one line": one_line,
    "warnings": warnings,
    "pytest": pytest_output,
    "64 ranks": ranks,
    "JSON lines": structured,
    "words": words,
}


def write(kind: str, path: Path, size: int) -> None:
    """Write a log of this kind and size in bytes."""
    held = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        for part in KINDS[kind]():
            file.write(part)
            held += len(part)
            if held >= size:
                return


def measure(checkout: Path, log: Path, bytecode: Path) -> tuple[float, float, str]:
    """Return processor seconds, peak memory in MiB, and the answer without times, of `gpudiag why` in a checkout.

    Python keeps compiled modules in the folder ``bytecode``, as an installation does: to compile them took a quarter of
    a second of each run.
    """
    with tempfile.TemporaryFile() as output:
        command = [sys.executable, "-c", RUN, str(checkout), "why", "--format", "json", "--quiet", str(log)]
        environment = {**os.environ, "COLUMNS": "120", "PYTHONPYCACHEPREFIX": str(bytecode)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if code not in (0, 1, 5):
            raise SystemExit(f"gpudiag why on {log.name}: exit status {code}")
        output.seek(0)
        report = json.loads(output.read())
    answer = json.dumps([report["lines"], report["diagnosis"]], sort_keys=True)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, answer


def main() -> int:
    """Measure and print a line for each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="another checkout, to compare with")
    parser.add_argument("-n", "--rounds", type=int, default=3, help="runs of each (default 3)")
    parser.add_argument("--size", type=int, default=SIZE, help="bytes of a log")
    parser.add_argument("kinds", nargs="*", default=list(KINDS), help=f"of {', '.join(KINDS)}")
    asked = parser.parse_args()
    checkouts = [ROOT, *([asked.against.resolve()] if asked.against else [])]
    is_met = True
    with tempfile.TemporaryDirectory() as folder:
        bytecode = Path(folder) / "bytecode"
        for checkout in checkouts:
            write("mixed", Path(folder) / "first.log", 1 << 20)
            measure(checkout, Path(folder) / "first.log", bytecode)
        for kind in asked.kinds:
            log = Path(folder) / f"{kind}.log"
            write(kind, log, asked.size)
            runs = [[measure(checkout, log, bytecode) for checkout in checkouts] for _ in range(asked.rounds)]
            log.unlink()
            seconds = [statistics.median(run[at][0] for run in runs) for at in range(len(checkouts))]
            memory = [max(run[at][1] for run in runs) for at in range(len(checkouts))]
            same = len({answer for run in runs for _, _, answer in run}) == 1
            is_met = is_met and same and seconds[0] <= MOST_SECONDS
            print(
                f"{kind:12}",
                *(f"{second:6.2f} s {mib:6.0f} MiB" for second, mib in zip(seconds, memory, strict=True)),
                "same answers" if same else "ANSWERS DIFFER",
                flush=True,
            )
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
