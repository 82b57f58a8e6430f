"""Writes ``reports/screens/``: what a person sees above the prompt after ``gpudiag check`` on each of a few machines.

Each machine is broken in one way: a fault of simulated GPUs, a variable, an environment without TensorFlow. The command
is typed into a terminal of 80 columns and 24 lines (tmux), in a new home. A file has the last screen, and how far above
the prompt the command that mends the machine is. Reports are masked, by a variable that the screens do not show.

``--as before --gpudiag OTHER/bin/gpudiag`` writes the screens of another installation; ``README.md`` compares the two.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "reports" / "screens"
HEIGHT = 24
WIDTH = 80
WIDE = 200
DEADLINE_S = 900
TMUX = shutil.which("tmux") or ""
PROMPT = "$ "
RULE = "-" * WIDTH
HEAD = f"""# What is on the screen after a check

Each row is one `gpudiag check`, typed into a terminal of {WIDTH} columns and {HEIGHT} lines on a machine that is
broken in one way. *Fix* is the command that mends it, or what takes its place if no command does. *Lines to the prompt*
are those from it down to the prompt: up to {HEIGHT - 1} it is on the screen. *Lines* are those of the whole output.
Seconds were taken under very different load: do not compare them. Two values are before and after.
Written by `python scripts/screens.py`.

| machine | fix | lines to the prompt | lines | exit status | s | screens |
| --- | --- | --- | --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Machine:
    """A machine, and how a check is typed on it."""

    name: str
    arguments: str
    fix: str
    """A pattern of what mends it, as a cause shows it; "" if the machine is not broken."""
    variable: str = ""
    """NAME=VALUE, exported before."""
    has_tensorflow: bool = True
    is_shown_wide: bool = False

    @property
    def typed(self) -> list[str]:
        """The lines that are typed."""
        export = [f"export {self.variable}"] if self.variable else []
        return [*export, f"gpudiag check {self.arguments}".strip()]

    @property
    def file(self) -> str:
        """The name of its screen."""
        return f"{self.name.replace(' ', '-')}.txt"


def _faulty(name: str, faults: str, fix: str, *, is_shown_wide: bool = False) -> Machine:
    options = "".join(f" --fault {fault}" for fault in faults.split())
    return Machine(name, f"--simulate 2{options}", fix, is_shown_wide=is_shown_wide)


def _set(name: str, variable: str, fix: str, *, is_shown_wide: bool = False) -> Machine:
    return Machine(name, "--simulate 2", fix, variable, is_shown_wide=is_shown_wide)


UNSET_MASK = r"unset CUDA_VISIBLE_DEVICES|export CUDA_VISIBLE_DEVICES=\S"
MACHINES = (
    Machine("pass", "--simulate 2", ""),
    _faulty(
        "library missing", "library_missing=libcudnn.so.9", r"pip install \S*tensorflow\[and-cuda\]", is_shown_wide=True
    ),
    _set("mask without such index", "CUDA_VISIBLE_DEVICES=7", UNSET_MASK, is_shown_wide=True),
    _set("mask empty", "CUDA_VISIBLE_DEVICES=", UNSET_MASK),
    _set("mask of a word", "CUDA_VISIBLE_DEVICES=gpu0", UNSET_MASK),
    _set("mask with an index twice", "CUDA_VISIBLE_DEVICES=0,0", UNSET_MASK),
    _faulty("nvml missing", "nvml_missing", r"libnvidia-ml|NVIDIA_DRIVER_CAPABILITIES"),
    _faulty("driver and library differ", "nvml_init=18 cuinit=803", r"reboot|rmmod"),
    _faulty("cuinit 999", "cuinit=999", r"dmesg|modprobe|reboot"),
    _faulty("driver too old", "driver_too_old=11.4", r"driver"),
    _faulty("cudnn version", "cudnn_version=8.9.7", r"pip install \S*nvidia-cudnn"),
    _faulty("context refused", "context_creation=46", r"nvidia-smi"),
    _faulty("gpu lost", "device_lost_after=200@1", r"reboot|reset|dmesg", is_shown_wide=True),
    _faulty("memory corrupted", "memory_corrupted@1", r"CUDA_VISIBLE_DEVICES"),
    _faulty("no allocatable memory", "allocation_from=1", r"ulimit|nvidia-smi"),
    _faulty("slow driver", "slow_call=cuInit:11", r"persistence|dmesg"),
    _set("growth misspelt", "TF_FORCE_GPU_ALLOW_GROWHT=true", r"TF_FORCE_GPU_ALLOW_GROWTH"),
    _set("xla flag unknown", "XLA_FLAGS=--xla_gpu_no_such_flag=1", r"unset XLA_FLAGS"),
    _faulty("cudnn broken", "call_fails=cudnnCreate:1001", r"pip install .*nvidia-cudnn", is_shown_wide=True),
    Machine("too few gpus", "--simulate 2 --require-gpus 4", r"--require-gpus|CUDA_VISIBLE_DEVICES"),
    Machine("no gpu", "", ""),
    Machine("no tensorflow", "", r"pip install \S*tensorflow", has_tensorflow=False),
)


class Terminal:
    """A shell in a terminal, with a home of its own."""

    def __init__(self, folder: Path, width: int, path: Path, variables: dict[str, str]) -> None:
        self._statuses = folder / "statuses"
        self._socket = str(folder / "tmux")
        settings, startup = folder / "tmux.conf", folder / "bashrc"
        settings.write_text("set -g status off\nset -g history-limit 50000\n", "utf-8")
        startup.write_text(f"PS1={PROMPT!r}\nunset HISTFILE\nPROMPT_COMMAND='echo $? >> {self._statuses}'\n", "utf-8")
        environment = {"HOME": str(folder), "PATH": f"{path}:{os.defpath}", "LANG": "C.UTF-8", **variables}
        shell = shlex.join(["bash", "--noprofile", "--rcfile", str(startup), "-i"])
        session = ["new-session", "-d", "-x", str(width), "-y", str(HEIGHT), "-c", str(folder), shell]
        subprocess.run([TMUX, "-S", self._socket, "-f", settings, *session], env=environment, check=True)
        self._wait(1)

    def type(self, line: str) -> int:
        """Type a line and return its exit status."""
        before = len(self._ended())
        self._tmux("send-keys", "-l", line)
        self._tmux("send-keys", "Enter")
        return self._wait(before + 1)

    def rows(self) -> list[str]:
        """Return every row of the terminal from the first on; the last one is the prompt."""
        return self._tmux("capture-pane", "-p", "-S", "-").rstrip("\n ").split("\n")

    def close(self) -> None:
        """End the shell and what runs in it."""
        self._tmux("kill-server")

    def _wait(self, number: int) -> int:
        until = time.monotonic() + DEADLINE_S
        while len(self._ended()) < number:
            if time.monotonic() > until:
                raise TimeoutError(f"no prompt after {DEADLINE_S} s; the screen:\n" + "\n".join(self.rows()[-HEIGHT:]))
            time.sleep(0.1)
        time.sleep(0.3)  # the status is written before the prompt
        return int(self._ended()[-1])

    def _ended(self) -> list[str]:
        return self._statuses.read_text("utf-8").split() if self._statuses.exists() else []

    def _tmux(self, *words: str) -> str:
        done = subprocess.run([TMUX, "-S", self._socket, *words], check=True, capture_output=True, text=True)
        return done.stdout


def shoot(machine: Machine, width: int, gpudiag: Path, *, masked: bool) -> str:
    """Return the text of a file: what was typed, what came of it, and the last screen."""
    with tempfile.TemporaryDirectory(prefix="screens-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        path = gpudiag.parent if machine.has_tensorflow else without_tensorflow(gpudiag, folder / "venv")
        terminal = Terminal(folder, width, path, {"GPUDIAG_MASK": "1"} if masked else {})
        try:
            for line in machine.typed:
                began = time.monotonic()
                status = terminal.type(line)
            seconds = time.monotonic() - began
            rows = [row.replace(platform.release(), "<kernel>") if masked else row for row in terminal.rows()]
        finally:
            terminal.close()
    output = rows[1 + max(at for at, row in enumerate(rows) if row.startswith(f"{PROMPT}gpudiag ")) : -1]
    distance = fix_distance(machine, output)
    facts = {
        "machine": machine.name,
        "typed": "; ".join(machine.typed),
        "exit status": status,
        "seconds": f"{seconds:.0f}",
        "lines": len(output),
        "fix": output[-distance].split(maxsplit=1)[1] if distance else "",
        "lines to the prompt": distance or "",
    }
    head = "".join(f"{key:<20}  {value}".rstrip() + "\n" for key, value in facts.items())
    return f"{head}{'-' * width}\n" + "".join(f"{row}\n" for row in rows[-HEIGHT:])


def fix_distance(machine: Machine, output: list[str]) -> int:
    """Return how many rows above the prompt the line that mends the machine is; 0: nowhere."""
    line = re.compile(rf"\s+(fix|do|or|check|note)\s.*({machine.fix})")
    rows = [at for at, row in enumerate(output) if machine.fix and line.match(row)]
    return len(output) - rows[0] if rows else 0


def without_tensorflow(gpudiag: Path, folder: Path) -> Path:
    """Make an environment that has all of that of ``gpudiag`` but TensorFlow, and return the folder of its commands."""
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    python = gpudiag.with_name("python")
    packages = Path(subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.strip())
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    [own] = folder.glob("lib/python*/site-packages")
    for entry in packages.iterdir():
        if not entry.name.startswith("tensorflow"):
            (own / entry.name).symlink_to(entry)
    command = folder / "bin" / "gpudiag"
    command.write_text(f"#!{folder}/bin/python\nfrom gpudiag.__main__ import main\nmain()\n", "utf-8")
    command.chmod(0o755)
    return command.parent


def facts(file: Path) -> dict[str, str]:
    """Return what the head of a screen's file says."""
    lines = file.read_text("utf-8").split("\n---", 1)[0].split("\n") if file.exists() else []
    return {line[:20].strip(): line[20:].strip() for line in lines}


def index() -> str:
    """Return the table of all screens that there are."""
    lines = []
    for machine in MACHINES:
        files = {folder: REPORTS / folder / machine.file for folder in ("before", "after")}
        heads = [facts(file) for file in files.values() if file.exists()]
        if not heads:
            continue
        links = [f"[{folder}]({folder}/{machine.file})" for folder, file in files.items() if file.exists()]
        figures = (
            " → ".join(dict.fromkeys(head[key] or "none" for head in heads))
            if machine.fix or key != "lines to the prompt"
            else ""
            for key in ("lines to the prompt", "lines", "exit status", "seconds")
        )
        fix = heads[-1]["fix"].replace("|", "\\|")
        lines.append(f"| {machine.name} | {f'`{fix}`' if fix else ''} | {' | '.join(figures)} | {', '.join(links)} |\n")
    wide = sorted(file.relative_to(REPORTS).as_posix() for file in REPORTS.glob(f"*-{WIDE}/*.txt"))
    return f"{HEAD}{''.join(lines)}\nOf {WIDE} columns: {', '.join(f'[{file}]({file})' for file in wide)}\n"


def main() -> int:
    """Make the screens and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(machine.name for machine in MACHINES)}; all by default"
    )
    parser.add_argument("--as", dest="kind", choices=("before", "after"), default="after")
    parser.add_argument("--gpudiag", type=Path, default=Path(sys.executable).with_name("gpudiag"), metavar="PATH")
    parser.add_argument("--unmasked", action="store_true", help="print the screens as a user has them; write nothing")
    parser.add_argument("--index", action="store_true", help="only write the table again")
    options = parser.parse_args()
    if not TMUX:
        parser.error("tmux is not installed, and the screens need a terminal: apt-get install tmux")
    if unknown := set(options.names) - {machine.name for machine in MACHINES}:
        parser.error(f"no machine {', '.join(sorted(unknown))}")
    for machine in () if options.index else MACHINES:
        if options.names and machine.name not in options.names:
            continue
        for width in (WIDTH, WIDE) if machine.is_shown_wide else (WIDTH,):
            text = shoot(machine, width, options.gpudiag.absolute(), masked=not options.unmasked)
            if options.unmasked:
                print(text, flush=True)
                continue
            file = REPORTS / (options.kind if width == WIDTH else f"{options.kind}-{width}") / machine.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
            print(
                "  ".join(facts(file)[key] for key in ("machine", "lines to the prompt", "lines", "seconds")),
                flush=True,
            )
    if not options.unmasked:
        (REPORTS / "README.md").write_text(index(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
