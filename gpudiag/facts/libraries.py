"""The family ``libraries``: the dynamic libraries that TensorFlow opens, as the loader finds them for it here.

TensorFlow opens them by name from ``libtensorflow_framework.so.2``, so glibc looks in ``LD_LIBRARY_PATH``, in that
file's own ``DT_RUNPATH``, in ``ld.so.cache`` and in its default folders, in this order (ld.so(8)). TensorFlow is not
loaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import re
import signal
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import PathDistribution
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import msgspec

from gpudiag import trust
from gpudiag.facts import printable, start_files
from gpudiag.facts.asked_loader import asked
from gpudiag.facts.driver_search import Search
from gpudiag.facts.loader_cache import cached, configured
from gpudiag.facts.requirements import recorded_libraries
from gpudiag.hardware import cuda, elf, file_state
from gpudiag.model.facts import FileFault, FileState, Library, LibraryCopy, LibraryFacts

SONAMES = (
    "libcuda.so.1",
    "libcudart.so.12",
    "libnvidia-ml.so.1",
    "libcublas.so.12",
    "libcublasLt.so.12",
    "libcufft.so.11",
    "libcusolver.so.11",
    "libcusparse.so.12",
    "libcudnn.so.9",
    "libnccl.so.2",
    "libcupti.so.12",
)
"""The libraries that TensorFlow 2.18-2.21 opens, in its order; the last two only at their first use."""

_MOST_CRASHES = 4
_PIECES = 64
_PIECE_BYTES = 64 << 10
_VARIABLE = "LD_LIBRARY_PATH"
_RUNPATH = "RUNPATH"
_CACHE = "ld.so.cache"
_DEFAULT_FOLDER = "default folder"
_SIMULATED = "simulated machine"
_OPENER = "libtensorflow_framework.so.2"
_DEFAULT = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
_DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1")
_TOOLKITS = (
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_ROOT",
    "CUDADIR",
    "EBROOTCUDA",
    "EBROOTCUDNN",
    "CUDNN_HOME",
    "CONDA_PREFIX",
)
"""Variables of NVIDIA, environment modules and EasyBuild that name an installed toolkit."""
_INSTALLED = (
    "usr/lib/cuda/lib64",  # Debian's own packages
    "opt/nvidia/hpc_sdk/Linux_*/*/cuda/*/lib64",
    "opt/nvidia/hpc_sdk/Linux_*/*/math_libs/*/lib64",
    "opt/nvidia/hpc_sdk/Linux_*/*/comm_libs/*/nccl/lib",
    "opt/cudnn*/lib*",
    "opt/conda/lib",
    "opt/conda/envs/*/lib",
    "opt/spack/opt/spack/*/*/cud*/lib*",
    "opt/apps/cuda/*/lib64",
    "apps/cuda/*/lib64",
    "cm/shared/apps/cuda*/*/lib64",
    "sw/cuda/*/lib64",
)
_IN_HOME = (
    "miniconda3/lib",
    "miniconda3/envs/*/lib",
    "anaconda3/lib",
    "anaconda3/envs/*/lib",
    "spack/opt/spack/*/*/cud*/lib*",
)
"""Folders of toolkits on shared machines (NVIDIA's HPC SDK, conda, spack, modules); the loader searches none of
them."""
_LIBDEVICE = "nvvm/libdevice/libdevice.10.bc"


def gather(root: Path = Path("/")) -> LibraryFacts:
    """Open each library as TensorFlow would, in a child process, and return the results.

    Opening a library runs its code and maps its file: if that ends the child, the library that it was about to open is
    named in the results, and the others are opened in another child.

    CUDA toolkits are searched for under ``root``; the loader itself always uses /. Another root belongs to a simulated
    machine, whose libraries are beside it. If the loader takes one of these, other copies and the system's folders
    belong to another machine and are ignored.
    """
    crashed: dict[str, str] = {}
    for _ in range(_MOST_CRASHES if hasattr(os, "fork") else 0):
        record, name, signal_name = _in_child(lambda announce: _gather(root, crashed, announce))
        if record is not None:
            return record
        if not name or not signal_name:
            break  # it raised, and does so again here
        crashed[name] = signal_name
    return _gather(root, crashed)


def _in_child(gather: Callable[[Callable[[str], object]], LibraryFacts]) -> tuple[LibraryFacts | None, str, str]:
    """Return the record that ``gather`` returns in a child, or None with the name that it announced last and the
    signal that ended the child."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.close(reader)
            with open(writer, "wb", buffering=0) as stream:  # noqa: PTH123  # a descriptor
                record = gather(lambda name: stream.write(os.fsencode(name) + b"\n"))
                stream.write(b"\n" + msgspec.json.encode(record))
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as stream:  # noqa: PTH123  # a descriptor
        announced, _, encoded = stream.read().partition(b"\n\n")
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        names = announced.split()
        return None, os.fsdecode(names[-1]) if names else "", signal.Signals(os.WTERMSIG(status)).name
    return (msgspec.json.decode(encoded, type=LibraryFacts), "", "") if encoded else (None, "", "")


def _gather(root: Path, crashed: Mapping[str, str], announce: Callable[[str], object] = bool) -> LibraryFacts:
    simulated = None if root == Path("/") else root.parent / "lib"
    package = _tensorflow()
    opener = package / _OPENER if package else None
    loader = _Loader(opener if opener and opener.exists() else None, crashed, announce)
    packaged = _Packaged()
    folders = list(_folders(root))
    searched = [*folders, *map(Path, loader.configured)]
    names = SONAMES if os.name == "posix" else ()
    loader.ask([name for name in names if not _is_loaded(name)])
    libraries = tuple(_library(name, loader, packaged, searched, simulated) for name in names)
    search = Search(root, [library.soname for library in libraries if library.error and library.soname in _DRIVER])
    libraries = tuple(
        _found_elsewhere(library, search.files[library.soname], loader, packaged)
        if library.soname in search.files
        else library
        for library in libraries
    )
    # Last, because a library that was opened serves those that need it.
    sources = (_VARIABLE, _RUNPATH, *((_CACHE, _DEFAULT_FOLDER) if simulated is None else ()))
    libraries = tuple(
        library if library.source == _SIMULATED else _with_damaged(library, loader, packaged, sources)
        for library in libraries
    )
    libdevice, elsewhere = _libdevice(package, root, folders)
    return LibraryFacts(
        opener=None if loader.opener is None else printable(str(loader.opener)),
        runpath=tuple(map(printable, loader.runpath)),
        search_path=tuple(map(printable, loader.search_path)),
        libraries=libraries,
        libdevice=libdevice,
        libdevice_elsewhere=elsewhere,
        corrected=dict(loader.corrected),
        incomplete=packaged.incomplete,
        damaged=tuple(packaged.damaged(loader)),
        plugins_lack={name: file for plugin in _plugins() for name, file in loader.lacking(plugin).items()},
        configured=loader.configured,
        secure=_secure(Path(sys.executable)),
        walked=search.walked,
        closed=tuple(search.closed),
    )


def _secure(program: Path) -> str:
    """Return why the loader ignores variables for ``program`` (AT_SECURE, see ld.so(8)); "" if it does not."""
    try:
        mode = program.stat().st_mode
        special = {"setuid": mode & stat.S_ISUID, "setgid": mode & stat.S_ISGID}
        special["file capabilities"] = "security.capability" in os.listxattr(program)
    except (OSError, AttributeError):
        return ""
    return next((name for name, is_set in special.items() if is_set), "")


class _Loader:
    """Finds libraries as glibc's ``dlopen`` does, for the file ``opener``."""

    def __init__(
        self, opener: Path | None, crashed: Mapping[str, str], announce: Callable[[str], object] = bool
    ) -> None:
        self.opener = opener
        self.crashed = crashed
        self.announce = announce
        """Called with the name of each library before it is opened."""
        self._header = elf.read(opener) if opener else None
        self._machine = elf.machine_of_python()
        value = os.environ.get(_VARIABLE, "")
        # An empty entry is the current folder; a variable that is empty as a whole is none.
        self.search_path = tuple(entry or "." for entry in re.split("[:;]", value)) if value else ()
        self.runpath = _expanded(self._header.runpath, opener) if self._header and opener else ()
        self._answers: dict[str, Path | None] = {}
        self.corrected: dict[str, str] = {}

    def ask(self, names: list[str]) -> None:
        """Ask the loader itself where it finds ``names``; its answer overrides the rules of this file."""
        rpath = self._rpath
        self._answers = asked(names, rpath or self.runpath, inherited=bool(rpath))

    def find(self, name: str) -> tuple[Path, str] | None:
        """Return the file that TensorFlow gets for ``name``, and the place where the loader finds it."""
        if self._rpath:
            places = [(_RUNPATH, self._rpath), *self._environment]
        else:
            places = [*self._environment, (_RUNPATH, self.runpath)]
        by_rules = next(self._find(name, places), None)
        answer = self._answers.get(name, by_rules and by_rules[0])
        if answer == (by_rules and by_rules[0]) or (answer and by_rules and answer.resolve() == by_rules[0].resolve()):
            return by_rules
        self.corrected[name] = printable(str(by_rules[0])) if by_rules else ""
        return None if answer is None else (answer, self._source(answer))

    @property
    def _rpath(self) -> tuple[str, ...]:
        if self._header is None or self.opener is None or self._header.runpath:
            return ()
        return _expanded(self._header.rpath, self.opener)

    def _source(self, file: Path) -> str:
        """Return the place in which the loader found ``file``: one of its folders or a folder below it
        (glibc-hwcaps)."""
        for source, folders in ((_VARIABLE, self.search_path), (_RUNPATH, self._rpath or self.runpath)):
            if any(file.is_relative_to(folder) for folder in folders):
                return source
        return _CACHE

    def stops_at(self, library: Path, error: str) -> Iterator[tuple[Path, str]]:
        """Yield the file at which opening ``library`` failed, its own or one that it needs, then the files after it.

        The loader's message begins with the path of a damaged file; of a missing file it has only the name.
        """
        named = re.search(r"\(required by ((?:(?!\(required by ).)+)\)$", error) or re.match(r"([^:]*/[^:/]+): ", error)
        header = elf.read(library)
        own = _expanded(header.runpath or header.rpath, library) if header else ()
        places = [*self._environment, (_RUNPATH, (*own, *self.runpath))]
        yield from self._find(Path(named[1]).name if named else library.name, places)

    def lacking(self, file: Path, seen: set[str] | None = None) -> dict[str, str]:
        """Return the dependencies of ``file`` that the loader does not find, each with the file that needs it."""
        seen = set() if seen is None else seen
        header = elf.read(file)
        lacks: dict[str, str] = {}
        for name in header.needed if header else ():
            if name in seen or _is_loaded(name):
                continue
            seen.add(name)
            assert header is not None
            places = [*self._environment, (_RUNPATH, _expanded(header.runpath or header.rpath, file))]
            location = next(self._find(name, places), None)
            if location is None:
                lacks[name] = printable(str(file))
            else:
                lacks |= self.lacking(location[0], seen)
        return lacks

    def faults(self, name: str, packaged: _Packaged, but: Path | None) -> dict[str, FileState]:
        """Return the files of this name that do not serve, by path, in the order in which the loader meets them.

        The folder ``but`` is not searched: it is a simulated machine's, with links to its libraries. A file that a
        package has installed is looked at even if its folder cannot be entered.
        """
        states = {}
        folders = (*self.search_path, *(self._rpath or self.runpath), *self.configured, *_DEFAULT)
        for file in dict.fromkeys(Path(folder) / name for folder in folders):
            if file.parent == but or not (os.path.lexists(file) or packaged.owner(file)):
                continue
            if (state := self.look(file, packaged)) is not None:
                states[state.path] = state
        return states

    def look(self, file: Path, packaged: _Packaged) -> FileState | None:
        """Return the fault of ``file``, with the distribution that has installed it."""
        state = file_state.look(file, self._machine, packaged.size(file))
        owner = packaged.owner(file)
        return state if state is None or owner is None else msgspec.structs.replace(state, owner=owner)

    def needed_by(self, file: Path) -> Iterator[Path]:
        """Yield the file that the loader takes for each library that ``file`` names as needed."""
        if (header := elf.read(file)) is None:
            return
        places = [*self._environment, (_RUNPATH, _expanded(header.runpath or header.rpath, file))]
        for name in header.needed:
            yield from (found for found, _ in islice(self._find(name, places), 1))

    def from_variable(self, name: str) -> Iterator[Path]:
        """Yield the files of this name in the folders of ``LD_LIBRARY_PATH`` that the loader takes."""
        yield from (file for folder in self.search_path if self._fits(file := Path(folder) / name))

    def open(self, name: str) -> tuple[ctypes.CDLL | None, str | None]:
        """Open a library; return it, or the loader's message. One that has ended a process before is not opened."""
        if reason := self.crashed.get(name):
            return None, f"{name}: opening it ended the process with {reason}"
        self.announce(name)
        return _open(name)

    @property
    def _environment(self) -> list[tuple[str, tuple[str, ...]]]:
        return [(_VARIABLE, self.search_path)]

    def _find(self, name: str, places: list[tuple[str, tuple[str, ...]]]) -> Iterator[tuple[Path, str]]:
        """Yield the files of this name in the loader's search order; the loader takes the first."""
        for source, folders in places:
            for folder in folders:
                if self._fits(file := Path(folder) / name):
                    yield file, source
        for file in self._cache.get(name, ()):
            if self._fits(file):
                yield file, _CACHE
        for folder in _DEFAULT:
            if self._fits(file := Path(folder) / name):
                yield file, _DEFAULT_FOLDER

    def _fits(self, file: Path) -> bool:
        """Return True unless the loader passes over ``file``; it stops at one that is damaged, and at a folder.

        Docker creates a folder in place of a file to mount that the host lacks.
        """
        if not (_is_file(file) or _is_folder(file)):  # to open a pipe would wait for ever
            return False
        if not os.access(file, os.R_OK):
            return False
        header = elf.read(file)
        return header is None or self._machine is None or header.machine == self._machine

    @cached_property
    def _cache(self) -> dict[str, list[Path]]:
        return cached()

    @cached_property
    def configured(self) -> dict[str, str]:
        return configured()


class _Packaged:
    """Files of the distributions ``nvidia-*`` on ``sys.path``."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._sizes: dict[str, int] = {}
        self.incomplete: dict[str, str] = {}
        """The first missing library of each distribution's record."""
        self._sites = [Path(entry) for entry in dict.fromkeys(sys.path) if entry]
        for site in self._sites:
            for folder in site.glob("nvidia[-_]*.dist-info"):
                match = re.fullmatch(r"(?P<name>.+)-(?P<version>[^-]+)\.dist-info", folder.name)
                try:
                    record = PathDistribution(folder).read_text("RECORD") if match else None
                except (OSError, ValueError):
                    continue  # the family ``tensorflow`` names it
                for file, size in recorded_libraries(record or ""):
                    assert match is not None
                    if size:
                        self._sizes[str(site / file)] = size
                    owner = f"{match['name'].replace('_', '-')} {match['version']}"
                    self._owners[str(site / file)] = owner
                    if owner not in self.incomplete and _is_absent(site / file):
                        self.incomplete[owner] = printable(str(site / file))
        self._owners |= {str(Path(path).resolve()): owner for path, owner in list(self._owners.items())}

    def owner(self, file: Path) -> str | None:
        return self._owners.get(str(file)) or self._owners.get(str(file.resolve()))

    def size(self, file: Path) -> int | None:
        """Return the size that the record of the file's distribution has."""
        return self._sizes.get(str(file))

    def damaged(self, loader: _Loader) -> Iterator[FileState]:
        """Yield the recorded libraries that are smaller than recorded, or links to nothing, each as it is."""
        for path, size in self._sizes.items():
            try:
                whole = os.stat(path).st_size >= size  # noqa: PTH116  # as texts: there may be hundreds
            except OSError:
                whole = not os.path.lexists(path)  # then :attr:`incomplete` names it
            if not whole and (state := loader.look(Path(path), self)) is not None:
                yield state

    def copies(self, name: str) -> Iterator[Path]:
        for site in self._sites:
            yield from sorted(site.glob(f"nvidia/*/lib/{name}"))


def _plugins() -> Iterator[Path]:
    """Yield the libraries that ``import tensorflow`` loads as plug-ins."""
    for entry in dict.fromkeys(entry for entry in sys.path if "site-packages" in entry):
        yield from sorted(Path(entry).glob("tensorflow-plugins/*.so"))


def _is_file(path: Path) -> bool:
    """Return whether this is a plain file, as far as this user sees: ``Path.is_file`` raises behind a closed folder."""
    return os.path.isfile(path)  # noqa: PTH113


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112


def _is_absent(path: Path) -> bool:
    """Return True only if there is no such file: behind a closed folder, nobody knows."""
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ENOENT
    return False


def _is_in(file: Path | str | None, folder: Path | None) -> bool:
    return file is not None and Path(file).parent == folder


def _library(name: str, loader: _Loader, packaged: _Packaged, folders: list[Path], simulated: Path | None) -> Library:
    found = None if _is_loaded(name) else loader.find(name)
    handle, error = loader.open(name if found is None else str(found[0]))
    if found is None and handle is not None:
        # A link to a library that is loaded under its own name counts as loaded, too, and has no mapping of this name.
        mapped = _mapped(name)
        found = loader.find(name) if mapped is None else (mapped, "loaded already")
    path = None if found is None else found[0]
    source = "" if found is None else _SIMULATED if _is_in(path, simulated) else found[1]
    header = elf.read(path) if path else None
    places = () if source == _SIMULATED else (*packaged.copies(name), *(folder / name for folder in folders))
    others = (copy for copy in places if _is_file(copy))
    known = {path.resolve()} if path else set()
    copies: dict[Path, LibraryCopy] = {}
    for copy in others:
        if copy.resolve() not in known:
            owner = packaged.owner(copy)
            # Where the right one opens, a second of the same name would only cost time.
            words = _why_not_opened(copy, loader, on_path=owner is not None) if error else None
            known.add(copy.resolve())
            copies[copy] = LibraryCopy(printable(str(copy)), _version(copy, owner), owner, words)
    owner = packaged.owner(path) if path else None
    return Library(
        soname=name,
        path=None if path is None else printable(str(path)),
        source=source,
        file=None if path is None else printable(str(path.resolve())),
        own_soname=header.soname if header else None,
        version=_cudnn(handle) or (_version(path, owner) if path else None),
        owner=owner,
        error=error,
        lacks=loader.lacking(path) if path and error else {},
        copies=tuple(copies.values()),
        digest=digest(path) if path else None,
        crash=loader.crashed.get(str(path) if path else name, ""),
        files=tuple(_faults(name, path, loader, packaged, simulated)) if error else _parts(path, loader),
    )


def _found_elsewhere(library: Library, files: Mapping[Path, str], loader: _Loader, packaged: _Packaged) -> Library:
    """Return a library of the driver that was not opened, with the ``files`` of it where the loader does not look."""
    known = {os.path.realpath(path) for path in (library.path, *(copy.path for copy in library.copies)) if path}
    copies, states = list(library.copies), {state.path: state for state in library.files}
    for file, place in files.items():
        if (real := os.path.realpath(file)) in known:
            continue
        known.add(real)
        if not _is_file(file):
            if (state := loader.look(file, packaged)) is not None:
                states.setdefault(state.path, state)
            continue
        words = _why_not_opened(file, loader, on_path=False)
        copies.append(LibraryCopy(printable(str(file)), _version(file, None), None, words, place))
    return msgspec.structs.replace(library, copies=tuple(copies), files=tuple(states.values()))


def _faults(
    name: str, path: Path | None, loader: _Loader, packaged: _Packaged, simulated: Path | None
) -> Iterator[FileState]:
    """Yield the files of this name that do not serve, and those that the library needs if opening it crashed."""
    states = loader.faults(name, packaged, but=simulated)
    if path is not None and path.parent != simulated and (state := loader.look(path, packaged)) is not None:
        states.setdefault(state.path, state)
    reason = loader.crashed.get(str(path)) if path else None
    if path is not None and reason and path.parent != simulated:
        for needed in loader.needed_by(path):
            if (state := loader.look(needed, packaged)) is not None:
                states[state.path] = state
        words = f"ends the process with {reason} when it is opened"
        crash = FileState(printable(str(path)), FileFault.CRASH, words, owner=packaged.owner(path) or "")
        states.setdefault(crash.path, crash)
    yield from states.values()


def _parts(path: Path | None, loader: _Loader) -> tuple[FileState, ...]:
    """Return the parts of cuDNN that the loader takes from another folder than ``path``, and that are of another build.

    ``libcudnn.so.9`` opens them by name when they are needed, so that ``LD_LIBRARY_PATH`` comes before its own folder.
    """
    if path is None or not path.name.startswith("libcudnn.") or not loader.search_path:
        return ()
    strays = []
    real = path.resolve()
    for own in sorted(real.parent.glob("libcudnn_*" + path.name.removeprefix("libcudnn"))):
        taken = next(loader.from_variable(own.name), None)
        if taken is None or taken.resolve() == own.resolve() or digest(taken) == digest(own):
            continue
        words = f"is loaded with {real} in place of {own}, and is another build"
        place = printable(str(taken.parent))
        strays.append(FileState(printable(str(taken)), FileFault.OTHER_BUILD, printable(words), place))
    return tuple(strays)


def _why_not_opened(copy: Path, loader: _Loader, *, on_path: bool) -> str | None:
    """Open a copy of a library; return why that cannot be, or must not be. None if it opens.

    Opening a library runs its code, so a library that another user can write is not opened. An example is one named by
    files of another user's home folder. ``on_path``: Python loads modules from there anyway.
    """
    if not on_path and (reason := trust.distrust(copy)):
        return f"not opened: {reason}"
    return loader.open(str(copy))[1]


def digest(file: Path) -> str | None:
    """Return a digest of the size of ``file`` and of 64 pieces of it, from its first byte to its last.

    For a cached library of 1 GiB this took 0.004 s, and the whole file 0.83 s. The file's modification time is no
    substitute: it changes when a package is installed again.
    """
    try:
        size = file.stat().st_size
        found = hashlib.sha256(str(size).encode())
        with file.open("rb", buffering=0) as stream:
            for number in range(_PIECES):
                stream.seek(max(0, size - _PIECE_BYTES) * number // (_PIECES - 1))
                found.update(stream.read(_PIECE_BYTES))
    except OSError:
        return None
    return f"0x{found.hexdigest()[:16]}"


def _with_damaged(library: Library, loader: _Loader, packaged: _Packaged, sources: tuple[str, ...]) -> Library:
    """Return ``library`` with the damaged files that ``LD_LIBRARY_PATH`` puts first, and the good one after them."""
    if library.path is None or library.error is None:
        return library
    damaged: list[str] = []
    files = {state.path: state for state in library.files}
    for file, source in loader.stops_at(Path(library.path), library.error):
        if damaged and source in sources and loader.open(str(file))[0] is not None:
            instead = printable(str(file))
            return msgspec.structs.replace(
                library, damaged=tuple(damaged), instead=instead, files=tuple(files.values())
            )
        if (state := loader.look(file, packaged)) is not None:
            files.setdefault(state.path, state)
        if source != _VARIABLE:
            break
        damaged.append(printable(str(file)))
    return msgspec.structs.replace(library, damaged=tuple(damaged), files=tuple(files.values()))


def _open(name: str) -> tuple[ctypes.CDLL | None, str | None]:
    try:
        return ctypes.CDLL(name), None
    except OSError as error:
        return None, printable(str(error))


def _is_loaded(name: str) -> bool:
    """Return True if this process has loaded a library of this name: the loader then does not search."""
    try:
        ctypes.CDLL(name, mode=os.RTLD_NOLOAD)
    except (OSError, AttributeError):
        return False
    return True


def _mapped(name: str) -> Path | None:
    stem = name.partition(".so")[0] + ".so"
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return None
    paths = (Path(line.split(maxsplit=5)[5]) for line in lines if "/" in line)
    return next((path for path in paths if path.name.startswith(stem)), None)


def _version(file: Path, owner: str | None) -> str | None:
    in_name = re.search(r"\.so\.(\d+(\.\d+)+)$", file.resolve().name)
    if in_name:
        return in_name[1]
    return owner.partition(" ")[2] if owner else None


def _cudnn(handle: ctypes.CDLL | None) -> str | None:
    """Return the version that cuDNN itself reports; its file name has only the major version."""
    if handle is None or not Path(handle._name).name.startswith("libcudnn."):
        return None
    return cuda.cudnn_version(handle)


def _expanded(path: str, file: Path) -> tuple[str, ...]:
    """Return the folders of a ``DT_RUNPATH``, each once; ``$ORIGIN`` is the folder of ``file``."""
    texts = dict.fromkeys(path.split(":"))  # TensorFlow's has 668 entries, 18 of them different
    entries = (re.sub(r"\$ORIGIN\b|\$\{ORIGIN\}", lambda _: str(file.parent), entry) for entry in texts)
    return tuple(dict.fromkeys(os.path.realpath(entry) for entry in entries if entry))


def _tensorflow() -> Path | None:
    spec = find_spec("tensorflow")
    return Path(spec.origin).parent if spec and spec.origin else None


def _release(package: Path) -> tuple[int, int]:
    """Return TensorFlow's release from the metadata beside its ``package``; (0, 0) if there is none."""
    names = (folder.name for folder in package.parent.glob("t*-*.dist-info"))
    found = (re.match(r"(?:tensorflow(?:_(?:cpu|gpu|intel))?|tf_nightly)-(\d+)\.(\d+)", name) for name in names)
    return max(((int(match[1]), int(match[2])) for match in found if match), default=(0, 0))


def _folders(root: Path) -> Iterator[Path]:
    """Yield common folders of CUDA libraries, whether the loader searches them or not."""
    for base in (*(Path(os.environ[name]) for name in _TOOLKITS if os.environ.get(name)), Path(sys.prefix)):
        yield from (base / "lib64", base / "lib", base / "targets/x86_64-linux/lib")
    for base in (*sorted(root.glob("usr/local/cuda*"), reverse=True), root / "opt/cuda"):
        yield from (base / "lib64", base / "targets/x86_64-linux/lib")
    for pattern in _INSTALLED:
        yield from sorted(root.glob(pattern), reverse=True)
    home = os.environ.get("HOME")
    for pattern in _IN_HOME if home else ():
        yield from sorted((root / f".{home}").glob(pattern))
    yield from _of_shells(root / f".{home}") if home else ()
    yield from _meant(os.environ.get(_VARIABLE, ""), home or "~")


def _meant(value: str, home: str) -> Iterator[Path]:
    """Yield the folders that search-path entries were meant to name but do not as written.

    The loader expands no ``~`` and no variable, and takes quotes as part of a name. These remain in values that no
    shell reads, such as a file for ``docker --env-file`` or a unit of systemd.
    """
    for entry in filter(None, re.split("[:;]", value)):
        meant = entry.strip("\"' \t\r\n")
        meant = re.sub(r"^~(?=/|$)", lambda _: home, meant)
        meant = re.sub(r"^\$?\{?([A-Z_]+)\}?(?=/)", lambda found: os.environ.get(found[1], found[0]), meant)
        if meant != entry and meant.startswith("/") and not _is_folder(Path(entry)) and _is_folder(Path(meant)):
            yield Path(meant)


def _of_shells(home: Path) -> Iterator[Path]:
    """Yield the folders that start-up files in ``home`` add to ``LD_LIBRARY_PATH``, if that can be read without a
    shell: programs that no shell starts, such as those of an IDE, lack their settings."""
    for setting in start_files.of_user(home, os.environ, frozenset({_VARIABLE})):
        yield from (Path(entry) for entry in setting.added.split(":") if entry.startswith("/"))


def _libdevice(package: Path | None, root: Path, folders: list[Path]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the files ``libdevice.10.bc`` that XLA finds, and those that it does not find."""
    named = re.findall(r"--xla_gpu_cuda_data_dir[= ]['\"]?([^\s'\"]+)", os.environ.get("XLA_FLAGS", ""))
    beside = [package.parent / "nvidia/cuda_nvcc"] if package else []
    if package and _release(package) >= (2, 21):  # measured there: TF_CPP_VMODULE=cuda_root_path=3 prints the folders
        beside = [
            Path(os.environ.get("CUDA_HOME") or package / "cuda"),
            *beside,
            package / "cuda",
            *package.parents[3:5],
        ]
    looked_in = [*map(Path, named[-1:]), root / "usr/local/cuda", root / "opt/cuda", *beside]
    toolkits = [folder.parent for folder in folders if folder.name.startswith("lib")]
    elsewhere = [*toolkits, *(Path(site) / "nvidia/cuda_nvcc" for site in sys.path if site)]

    def files(bases: list[Path]) -> dict[Path, str]:
        return {file.resolve(): printable(str(file)) for base in bases if _is_file(file := base / _LIBDEVICE)}

    paths = files(looked_in)
    return tuple(paths.values()), tuple(file for path, file in files(elsewhere).items() if path not in paths)
