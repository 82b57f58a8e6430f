"""Runs every command of the manual's shell blocks and of README.md, as printed, and says how each ended.

    python scripts/campaigns/manual_commands.py [PAGE...]

Each page has a folder of its own with a program, tests and a notebook, as a reader has them; the pages for contributors
have a copy of this checkout. A command that asks for no simulated GPUs itself is run on two: ``gpudiag check`` and
pytest, which count them only then, by an option, all others by ``gpudiag simulate``. It fails if a command is refused,
breaks, does not exist or does not end. What cannot be run is listed with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MANUAL = ROOT / "gpudiag" / "docs"
BLOCK = re.compile(r"^```(?:sh|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DEADLINE_S = 300.0
REFUSED = (2, 3, 126, 127)
"""Statuses of wrong usage, of a fault of gpudiag, and of a command that does not exist."""
NOT_RUN = {
    r"^pip install": "changes the environment; the gate runs the lines of README.md in a new one",
    r"^pytest -n auto(?: -m .*)?$": "the tests of a whole project",
    r"^pytest -n auto tests/": "the tests of this checkout, which the gate runs",
    r"^python scripts/check\.py": "the gate runs it",
    r"^python scripts/release\.py": "makes a release, which takes a quarter of an hour",
    r"/etc/systemd/|^systemctl ": "changes the machine",
    r"\bkubectl\b": "needs Kubernetes",
    r"/var/lib/": "writes to a folder of another service",
    r"\bNAME\b|thread_count_not_read": "is about a file that the page asks to write",
}
BEFORE = {"--failed": "gpudiag check discovery libraries.cudnn --simulate 2x2GiB --fault library_missing=libcudnn.so.9"}
"""What a reader has done before a command with this option."""
PROGRAM = """\
import sys

import tensorflow as tf

gpus = tf.config.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
tf.config.set_soft_device_placement = False
print(len(gpus), "GPUs", sys.argv[1:], float(tf.reduce_sum(tf.ones((64, 64)) @ tf.ones((64, 64)))))
"""
TEST = """\
import pytest


@pytest.mark.gpudiag_gpus
def test_product():
    import tensorflow as tf

    with tf.device("/GPU:0"):
        assert float(tf.reduce_sum(tf.ones((8, 8)) @ tf.ones((8, 8)))) == 512
"""
CELL: dict[str, object] = {
    "cell_type": "code",
    "source": PROGRAM,
    "metadata": {},
    "outputs": [],
    "execution_count": None,
}
FILES = {
    **dict.fromkeys(("train.py", "server.py", "models/net.py", "package/train.py"), PROGRAM),
    "package/__init__.py": "",
    "tests/test_model.py": TEST,
    "notebook.ipynb": json.dumps({"cells": [CELL], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}),
    "deploy.sh": "#!/bin/sh\necho deployed\n",
}


def commands(page: Path) -> Iterator[str]:
    """Yield each command of the page's shell blocks; a script is one."""
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        if block.startswith("#!"):
            yield block
        else:
            lines = block.replace("\\\n", " ").splitlines()
            yield from (line.partition("  #")[0] for line in lines if line and not line.startswith("#"))


def furnish(page: Path, folder: Path) -> None:
    """Put into the folder what the commands of the page work on."""
    if "contributing" in page.as_posix():
        subprocess.run(["/usr/bin/env", "git", "clone", "-q", "--shared", str(ROOT), str(folder)], check=True)
        return
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "deploy.sh").chmod(0o755)


def run(command: str, folder: Path, home: Path) -> tuple[int | None, float, str]:
    """Run a command; return its status (None if it did not end), the seconds, and what it printed."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("GPUDIAG_", "CUDA_", "TF_"))}
    variables |= {"HOME": str(home), "XDG_STATE_HOME": str(home), "XDG_RUNTIME_DIR": str(home)}
    variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{variables['PATH']}"
    machine = "4x2GiB" if "--require-gpus 4" in command else "2x2GiB"
    simulated = re.sub(r"\bgpudiag check\b", rf"\g<0> --simulate {machine}", command)
    simulated = re.sub(r"^pytest (.*?)(?=--gpudiag)", rf"\g<0>--gpudiag-simulate={machine} ", simulated)
    prefix = () if "simulate" in simulated else ("gpudiag", "simulate", machine, "--")
    words = [*prefix, "bash", "-o", "pipefail", "-c", command if "simulate" in command else simulated]
    began = time.monotonic()
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(
            words,
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = None
        printed.seek(0)
        return status, time.monotonic() - began, printed.read().decode(errors="replace")


def main() -> int:
    """Run the commands of the pages, print a line for each, and return 1 if one does not do what the manual says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="such as README or start; all if none is named")
    parser.add_argument("--lines", type=int, default=2, help="lines of each output, from its end (default: 2)")
    options = parser.parse_args()
    failed = 0
    for page in (ROOT / "README.md", *sorted(MANUAL.rglob("*.md"))):
        found = list(commands(page))
        if not found or (options.pages and page.stem not in options.pages):
            continue
        print(f"\n{page.relative_to(ROOT)}")
        with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as parent:
            folder = Path(parent, "project")
            folder.mkdir()
            furnish(page, folder)
            for command in found:
                reason = next((why for pattern, why in NOT_RUN.items() if re.search(pattern, command)), "")
                if reason:
                    print(f"  not run            {command.splitlines()[0]}: {reason}", flush=True)
                    continue
                for option, earlier in BEFORE.items():
                    if option in command:
                        run(earlier, folder, Path(home))
                status, seconds, printed = run(command, folder, Path(home))
                bad = status is None or status in REFUSED or "Traceback (most recent" in printed
                failed += bad
                word = "did not end" if status is None else f"status {status}"
                print(f"  {'FAILED' if bad else 'ran':<6} {word:<9} {seconds:4.0f} s  {' '.join(command.split())}")
                for line in [line for line in printed.splitlines() if line.strip()][-options.lines :]:
                    print(f"      {line}", flush=True)
    print(f"\n{failed} failed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
