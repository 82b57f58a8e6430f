"""One simulated machine: a private directory with its libraries, its description and its memory
table."""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib.metadata
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from gpudiag import folders, guest
from gpudiag.errors import shortage
from gpudiag.simulator import fake_root
from gpudiag.simulator.errors import (
    FaultError,
    RealDriverMapped,
    SimulatorBroken,
    SimulatorError,
    SimulatorMissing,
    SpecError,
)
from gpudiag.simulator.faults import (
    CATALOGUE,
    PACE,
    SONAMES,
    UNNEEDED,
    Fault,
    fault_environment,
    fault_words,
    parse_faults,
    version_number,
)
from gpudiag.simulator.sizes import GIB
from gpudiag.simulator.spec import COMPUTE_MODES, MachineSpec, parse_spec
from gpudiag.text import one_line

if sys.platform != "win32":  # where the names of this module are imported, and no machine is made
    import resource

MACHINE_VARIABLE = "GPUDIAG_SIM_MACHINE"
FAULTS_VARIABLE = "GPUDIAG_SIM_FAULTS"
COMMAND_VARIABLE = "GPUDIAG_SIM_COMMAND"
"""The words of `gpudiag simulate` before the program that it runs; in its interactive shell it is not set."""
SPEC_FILE = "spec"
"""The file of a machine with the words that describe it."""

TABLE_BYTES = 2376752
"""Size in bytes of the table of memory holders: sizeof(struct table) in src/memory.c."""

CORE, KERNELS = "libgpudiag_cuda.so", "libgpudiag_kernels.so"
_COMMON = (CORE, KERNELS, "keras_on_simulated_gpu.py")

NO_REASON = "CMake did not run, or found neither make nor ninja, or this is a checkout that was not installed"
REINSTALL = (
    "build and install gpudiag again here: pip install --force-reinstall --no-cache-dir --no-deps --no-binary gpudiag "
    "gpudiag, or pip install . in a checkout"
)


def require_linux() -> None:
    """Raise SimulatorMissing on other systems: the simulation consists of files and libraries of Linux."""
    if sys.platform != "linux":
        raise SimulatorMissing(f"GPUs can be simulated on Linux only; this is {sys.platform}.")


def library_directory() -> Path:
    """Return the folder of the simulated libraries; raises SimulatorMissing with the reason and the packages to
    install."""
    places = [Path(folder) / "simulator" / "lib" for folder in guest.folders()]
    if not guest.home:  # `python -m gpudiag` in the checkout of an installed gpudiag has its Python files from there
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            places.append(Path(str(importlib.metadata.distribution("gpudiag").locate_file("gpudiag/simulator/lib"))))
    for place in places:
        if (place / CORE).exists():
            return place
    reason = next(filter(None, map(_why_not_built, places)), "")
    raise SimulatorMissing(
        f"the simulated CUDA libraries were not built when gpudiag was installed: {reason or NO_REASON}. Install CMake "
        "and a C and a C++ compiler (Debian, Ubuntu: apt-get install gcc g++ cmake make; Fedora: dnf install gcc "
        f"gcc-c++ cmake make), then {REINSTALL}."
    )


def _why_not_built(place: Path) -> str:
    """Return the decisive line of the build's output, which CMakeLists.txt left in place of the libraries."""
    log = place / "not-built.txt"
    try:
        output = log.read_text(errors="replace")
    except OSError:
        return ""
    compiler = re.search(r"^(?!-- ).*(?:\berror:|\bcannot find\b|\bnot found\b).{,200}", output, re.MULTILINE)
    cmake = re.search(r"^CMake Error.*?:\s+(.{,200})", output, re.MULTILINE | re.DOTALL)
    line = compiler[0] if compiler else re.split("It fails with|Call Stack", cmake[1])[0] if cmake else output[-200:]
    return f"{one_line(line)} (all of it: {log})"


@functools.cache
def _require_loadable(libraries: Path) -> None:
    """Raise SimulatorBroken if the loader refuses the libraries that all others need.

    Another process opens them, because this process could never close them again. If it cannot be started or is too
    slow, the libraries count as good: the next processes show the fault of this system.
    """
    files = [str(libraries / name) for name in (CORE, KERNELS)]
    script = "import ctypes, sys\nfor file in sys.argv[1:]: print(file, file=sys.stderr, flush=True), ctypes.CDLL(file)"
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", script, *files],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    if done.returncode:
        reason = one_line(done.stderr.strip().rpartition("\n")[2].removeprefix("OSError: "))
        died = f": signal {-done.returncode} kills a process that opens it" if done.returncode < 0 else ""
        raise SimulatorBroken(
            f"gpudiag's own simulated CUDA libraries cannot be opened: {reason}{died}. They are damaged, or were built "
            f"for another system, such as one with a newer C library: {REINSTALL}."
        )


class Machine:
    """A simulated machine, for as long as the `with` block lasts.

        with Machine("2x16GiB", ["context_creation=46@1"]) as machine:
            subprocess.run([sys.executable, "train.py"], env=machine.environment())

    Any number of machines may exist at a time; they share nothing.
    """

    def __init__(self, spec: str | MachineSpec, faults: Iterable[str | Fault] = ()) -> None:
        self.spec = parse_spec(spec) if isinstance(spec, str) else spec
        self.faults = (*self.spec.faults, *parse_faults(faults))
        for fault in self.faults:
            if fault.gpu is not None and fault.gpu >= len(self.spec.gpus):
                raise FaultError(f"{fault}: there is no such GPU. The GPUs are 0 to {len(self.spec.gpus) - 1}.")
        _require_pace(self.faults, [{key: getattr(gpu, key) for key in PACE} for gpu in self.spec.gpus])
        require_linux()
        refuse_too_much_memory(self.spec)
        _require_loadable(library_directory())
        self._folder: folders.Folder | None = None

    @property
    def directory(self) -> Path:
        """The folder of this machine alone; locks on its GPUs belong there, too."""
        if self._folder is None:
            raise RuntimeError("the simulated machine is not running: use it in a `with` block")
        return self._folder.path

    @property
    def root(self) -> Path:
        """Folder that replaces / when the kernel's files about GPUs are read."""
        return self.directory / "root"

    def __enter__(self) -> Machine:
        try:
            self._folder = folders.Folder("sim", must_lock=True)
            self.write(self._folder.path)
        except BaseException as error:
            self.__exit__(None, None, None)
            if isinstance(error, OSError):
                reason = shortage(error)
                room = "" if "TMPDIR" in reason or error.errno == errno.EFBIG else "; set TMPDIR to a folder with room"
                raise SimulatorError(f"cannot create the files of the simulated machine: {reason}{room}.") from error
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    def write(self, directory: Path) -> None:
        """Create the files of the machine in ``directory``, which is empty. Raises OSError if that fails."""
        # Its blocks, too: what a full disk lacks would otherwise look like a GPU that refuses contexts.
        with (directory / "memory").open("wb") as table:
            os.posix_fallocate(table.fileno(), 0, TABLE_BYTES)
        (directory / "machine.conf").write_text(self._configuration())
        (directory / SPEC_FILE).write_bytes(os.fsencode(self.words))
        link_libraries(directory / "lib", self.faults)
        write_programs(directory / "bin")
        fake_root.write(directory / "root", self.spec)

    @property
    def words(self) -> str:
        """The specification and the faults, as the command line takes them."""
        return shlex.join([self.spec.text, *fault_words(self.faults)])

    @property
    def summary(self) -> str:
        """A description of the machine in one line."""
        injected = f", with {', '.join(map(str, self.faults))}" if self.faults else ""
        return f"{self.spec.summary()}{injected}"

    def without_effect(self) -> tuple[Fault, ...]:
        """The faults that no call has met so far, such as those of a function that nobody calls.

        A version or a missing library is not a call and always has an effect, except for libraries that no program
        needs.
        """
        found = []
        first = 0
        for fault in self.faults:
            met = any((self.directory / f"met-{first + number}").exists() for number in range(len(fault.rules)))
            first += len(fault.rules)
            if (fault.rules and not met) or any(soname in UNNEEDED for soname in fault.removed):
                found.append(fault)
        return tuple(found)

    def environment(self, base: Mapping[str, str] | None = None, faults: Iterable[str | Fault] = ()) -> dict[str, str]:
        """Return the environment of a process on this machine; see :func:`environment_on`."""
        return environment_on(self.directory, base, faults)

    def _configuration(self) -> str:
        """Return the text that src/machine.c reads."""
        settings = {
            "driver_version": self.spec.driver_version,
            "cuda_version": version_number("cuda_version", self.spec.cuda_version),
            "cudnn_version": version_number("cudnn_version", self.spec.cudnn_version),
        }
        for fault in self.faults:
            settings.update(fault.settings)
        lines = [f"{key} {value}" for key, value in settings.items()]
        lines += [f"fault {rule}" for fault in self.faults for rule in fault.rules]
        for gpu in self.spec.gpus:
            major, minor = gpu.compute_capability
            lines += [
                "gpu",
                f"name {gpu.name}",
                f"uuid {gpu.uuid}",
                *(f"mig_uuid {uuid}" for uuid in gpu.mig_uuids),
                f"pci {gpu.pci_bus_id}",
                f"memory {gpu.memory}",
                f"context_overhead {gpu.context_overhead}",
                f"taken {gpu.taken}",
                f"taken_by {gpu.taken_by}",
                f"compute_capability {major}.{minor}",
                f"multiprocessors {gpu.multiprocessors}",
                f"speed {gpu.speed}",
                f"compute_mode {COMPUTE_MODES[gpu.compute_mode]}",
                f"numa_node {gpu.numa_node}",
                f"memory_pools {int(gpu.memory_pools)}",
                f"kernel_us {gpu.kernel_us}",
                f"copy_mb_s {gpu.copy_mb_s}",
                f"noise {gpu.noise}",
                f"noise_seed {gpu.noise_seed}",
                *(f"{key} {value}" for key, value in gpu.state),
            ]
        return "\n".join(lines) + "\n"


def _setting(key: str, described: str) -> str:
    return next(line for line in described.splitlines() if line.startswith(f"{key} ")).partition(" ")[2]


def _require_pace(faults: Iterable[Fault], paces: list[dict[str, int]]) -> None:
    """Raise FaultError if a fault would change the time that a GPU takes, and the GPU is as fast as the host."""
    for fault in faults:
        keys = CATALOGUE[fault.name].pace
        for number, pace in enumerate(paces):
            missing = [f"{key} = {PACE[key]}" for key in keys if not pace[key]]
            if missing and fault.gpu in (None, number):
                raise FaultError(
                    f"{fault}: GPU {number} takes no time of its own, so the fault cannot act. Give it a pace in a "
                    f".toml file, for instance {' and '.join(missing)} in [[gpu]]."
                )


def environment_on(
    directory: Path, base: Mapping[str, str] | None = None, faults: Iterable[str | Fault] = ()
) -> dict[str, str]:
    """Return the environment of a process on the machine in ``directory``: `base` (by default this process's) plus the
    machine's variables.

    The machine's libraries come first in LD_LIBRARY_PATH, so no real CUDA library is found, and
    its nvidia-smi comes first in PATH.
    `faults` are the process's own, besides the machine's. CUDA_VISIBLE_DEVICES of `base` is
    kept: it masks simulated GPUs.
    """
    environment = dict(os.environ if base is None else base)
    preloaded = re.split("[: ]+", environment.get("LD_PRELOAD", ""))
    for library in preloaded:
        if Path(library).name.startswith("libcuda.so"):
            raise RealDriverMapped(
                f"LD_PRELOAD names {library}: the real driver would be mapped into every "
                "process of the simulated machine. Unset LD_PRELOAD."
            )
    outer = environment.get(MACHINE_VARIABLE)  # a machine started inside another replaces it
    for variable, folder, default in (("LD_LIBRARY_PATH", "lib", ""), ("PATH", "bin", os.defpath)):
        path = environment.get(variable, default).split(":")
        kept = [entry for entry in path if entry and entry != (f"{outer}/{folder}" if outer else "")]
        environment[variable] = ":".join([str(directory / folder), *kept])
    environment[MACHINE_VARIABLE] = str(directory)
    environment.pop(FAULTS_VARIABLE, None)
    environment.pop(COMMAND_VARIABLE, None)
    own = parse_faults(faults)
    if own:
        described = (directory / "machine.conf").read_text().split("\ngpu\n")[1:]
        _require_pace(own, [{key: int(_setting(key, gpu)) for key in PACE} for gpu in described])
        environment.update(fault_environment(own))
    return environment


def link_libraries(directory: Path, faults: Iterable[Fault]) -> None:
    """Fill ``directory`` with symbolic links; a removed library is one that cannot be opened, so that no real one is
    found in its place."""
    libraries = library_directory()
    directory.mkdir()
    removed = {soname for fault in faults for soname in fault.removed}
    for name in (*_COMMON, *SONAMES):
        target = "libgpudiag_missing.so" if name in removed else name
        (directory / name).symlink_to((libraries / target).resolve())


def write_programs(directory: Path) -> None:
    """Write the programs of a machine with GPUs. Beside the standard library they import ``pynvml`` alone, from where
    gpudiag has it: no file of the working directory, and no start-up file of the environment."""
    directory.mkdir()
    program = directory / "nvidia-smi"
    script = Path(__file__).with_name("nvidia_smi.py")
    nvml = find_spec("pynvml")
    assert nvml is not None
    assert nvml.origin is not None
    run = f"import sys; sys.path.append({str(Path(nvml.origin).parent)!a}); sys.argv[0] = {str(script)!a}; "
    run += f"exec(compile(open({str(script)!a}, encoding='utf-8').read(), {str(script)!a}, 'exec'))"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S -c {shlex.quote(run)} "$@"\n')
    program.chmod(0o755)


def processes_on(is_meant: Callable[[Path], bool]) -> Iterator[int]:
    """Yield the processes on a machine whose folder satisfies ``is_meant``, as far as this user may see them."""
    variable = f"{MACHINE_VARIABLE}=".encode()
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            values = environment.read_bytes().split(b"\0")
        except OSError:
            continue  # gone, or somebody else's
        if any(is_meant(Path(os.fsdecode(value[len(variable) :]))) for value in values if value.startswith(variable)):
            yield int(environment.parent.name)


def refuse_too_much_memory(spec: MachineSpec) -> None:
    """Raise an error if the host does not allow enough address space: TensorFlow takes nearly all memory of every
    GPU at once."""
    asked = f"{spec.memory / GIB:.0f} GiB on {len(spec.gpus)} GPUs"
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    # 8 GiB: TensorFlow itself maps about 5 GiB (measured, 2.21.0).
    if limit != resource.RLIM_INFINITY and spec.memory + 8 * GIB > limit:
        raise SpecError(
            f"{asked} need more address space than RLIMIT_AS allows ({limit / GIB:.1f} GiB, of "
            "which TensorFlow needs 8). Ask for less memory, or raise the limit (ulimit -v)."
        )
    try:
        mode = Path("/proc/sys/vm/overcommit_memory").read_text().strip()
        figures = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines() if line)
        free = int(figures["CommitLimit"].split()[0]) - int(figures["Committed_AS"].split()[0])
    except (OSError, KeyError, ValueError):
        return
    # In mode 2 the kernel counts every mapping, touched or not; in 0 and 1 ours are free until
    # touched.
    if mode == "2" and spec.memory > free * 1024:
        raise SpecError(
            f"{asked} need more memory than the kernel commits (vm.overcommit_memory is 2, "
            f"{free / (1 << 20):.1f} GiB are left). Ask for less memory, or set it to 0 or 1."
        )
