"""Which environment is examined: that of this interpreter, or another, whose interpreter then runs all of gpudiag.

gpudiag is often installed apart from TensorFlow, by pipx or ``uv tool``. ``--python`` names the environment to examine;
without it, that is the active one if only that has TensorFlow. Its interpreter takes the place of this process, with
gpudiag as its :mod:`~gpudiag.guest`, so that each fact, probe and try is of the Python that runs the user's programs.

Packages with parts that are compiled for one version of Python (msgspec) are installed for another one in a folder of
gpudiag's own, once; the environment itself stays as it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import join, quote
from typing import TYPE_CHECKING, Any, NoReturn

from gpudiag import folders, guest, trust
from gpudiag.errors import UsageError, shortage
from gpudiag.text import listed, one_line, printable, say

if TYPE_CHECKING:
    from importlib.metadata import Distribution

VARIABLE = "GPUDIAG_PYTHON"
ACTIVE = ("VIRTUAL_ENV", "CONDA_PREFIX")
"""The variables that name the active environment."""
_OLDEST = (3, 10)
_START_S = 30.0
_INSTALL_S = 120.0
_LONGEST = 200
"""The most characters of another program's message that are shown."""
_PROGRAMS = ("bin/python", "bin/python3", "python.exe", "Scripts/python.exe")

# It also runs in Python 2.7.
_DESCRIBE = """
import sys
if sys.path and not sys.path[0]: del sys.path[0]
import json, os
answer = {"version": list(sys.version_info[:3]), "prefix": sys.prefix}
if sys.version_info >= (3, 10):
    import importlib.machinery, importlib.util, platform, sysconfig
    def has(name):
        try: return bool(getattr(importlib.util.find_spec(name), "origin", None))
        except (ImportError, ValueError): return False
    answer.update(
        abi=sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag, system=sysconfig.get_platform(),
        suffixes=importlib.machinery.EXTENSION_SUFFIXES, has_pip=has("pip"), has_tensorflow=has("tensorflow"),
        markers=dict(
            implementation_name=sys.implementation.name, platform_machine=platform.machine(),
            platform_python_implementation=platform.python_implementation(),
            python_full_version=platform.python_version(), python_version="%d.%d" % sys.version_info[:2]))
"""
_WRITE = 'sys.stdout.write("\\n" + json.dumps(answer) + "\\n"); sys.stdout.flush(); os._exit(0)\n'


@dataclass(frozen=True)
class Examined:
    """The environment that is examined, as the report has to say it."""

    notes: tuple[str, ...] = ()
    """Which environment it is and why, if it is not gpudiag's own; or why it cannot be examined, and what to type."""
    impossible: str = ""
    """The interpreter that was chosen, if it cannot be examined: the host alone is judged."""


@dataclass(frozen=True)
class Python:
    """An interpreter, by its own answers to :data:`_DESCRIBE`."""

    path: str
    version: tuple[int, ...]
    prefix: str
    abi: str = ""
    """What compiled modules are named for, such as ``cpython-312-x86_64-linux-gnu``."""
    system: str = ""
    suffixes: tuple[str, ...] = ()
    has_pip: bool = False
    has_tensorflow: bool = False
    markers: Mapping[str, str] | None = None
    """What it gives to the markers of requirements."""

    @property
    def title(self) -> str:
        return f"{printable(self.path)} (Python {'.'.join(map(str, self.version))})"

    @property
    def is_this(self) -> bool:
        """True if it is that of gpudiag's own environment."""
        return self.version[:2] == sys.version_info[:2] and Path(self.prefix).resolve() == Path(sys.prefix).resolve()


def examine(named: str | None) -> Examined:
    """Go on in the interpreter of the environment that is to be examined.

    Returns if that is this one, or if it cannot be examined. ``named`` is what ``--python`` gives. Raises
    ``UsageError`` if that is no interpreter.
    """
    if note := guest.home.get("note"):  # gpudiag of another environment has started this interpreter
        return Examined((note, *_how_started()))
    python, reason = choose(named)
    if python is None:
        return Examined(_how_started())
    try:
        brought = _brought(python)
    except _Unavailable as error:
        return Examined((f"{python.title} cannot be examined: {error}", *_how_started()), python.path)
    brought["note"] = f"{python.title} is examined, {reason}, not the environment in which gpudiag is installed"
    return _become(python, brought)


def _how_started() -> tuple[str, ...]:
    """Return a note about the name ``gpudiag`` in commands, if no program of this name was installed."""
    if not guest.home.get("archive"):
        return ()
    start = join([guest.home["executable"], guest.home["archive"]])
    return (f"to type the commands of this report: alias gpudiag={quote(printable(start))}",)


def choose(named: str | None) -> tuple[Python | None, str]:
    """Return the interpreter of the environment to examine, and why it is chosen; None if it is this interpreter.

    Raises ``UsageError`` if ``named``, what ``--python`` gives, is no interpreter.
    """
    if "note" in guest.home or named == sys.executable:
        return None, ""
    said_by = VARIABLE if named == os.environ.get(VARIABLE) else "--python"
    python, reason = _active() if named is None else (describe(find(named)), f"as {said_by} says")
    return (None, "") if python is None or python.is_this else (python, reason)


def find(named: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the interpreter that a user means: its path or command, a folder of its environment, or a name of conda's.

    Raises ``UsageError``.
    """
    path = Path(named).expanduser() if named else Path("/dev/null")
    if path.is_file() and os.sep in named:
        return os.path.abspath(path)  # noqa: PTH100  # a link says which environment it is
    if path.is_dir() and (program := _program(path)):
        return program
    if os.sep not in named and named:
        if command := shutil.which(named):
            return os.path.abspath(command)  # noqa: PTH100
        for folder in _of_conda(named, environ):
            if program := _program(folder):
                return program
    if path.is_dir():
        raise UsageError(f"--python {quote(named)}: the folder is no environment: it has no bin/python.")
    what = "file" if os.sep in named else "command, no folder and no environment of conda"
    raise UsageError(f"--python {quote(named)}: there is no such {what}.")


def _program(environment: Path) -> str | None:
    files = (os.path.abspath(environment / name) for name in _PROGRAMS)  # noqa: PTH100
    return next((file for file in files if os.access(file, os.X_OK)), None)


def _of_conda(name: str, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the folders that an environment of conda's may have."""
    executable = environ.get("CONDA_EXE", "")
    roots = [*([str(Path(executable).parent.parent)] if executable else ()), environ.get("MAMBA_ROOT_PREFIX", "")]
    roots = [root for root in roots if root]
    if name == "base":
        yield from map(Path, roots)
    places = [
        place for variable in ("CONDA_ENVS_DIRS", "CONDA_ENVS_PATH") for place in environ.get(variable, "").split(":")
    ]
    yield from (Path(place).expanduser() / name for place in places if place)
    yield from (Path(root) / "envs" / name for root in roots)
    with contextlib.suppress(OSError, RuntimeError):  # conda lists there each environment that it has made
        for line in Path("~/.conda/environments.txt").expanduser().read_text(errors="replace").splitlines():
            if Path(line).name == name:
                yield Path(line)


def describe(path: str) -> Python:
    """Ask an interpreter about itself; raises ``UsageError`` if it does not answer."""
    try:
        done = subprocess.run(
            [path, "-c", _DESCRIBE + _WRITE],
            cwd="/",  # Python before 3.11 puts it on its path
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_START_S,
            check=False,
        )
    except OSError as error:
        raise UsageError(f"{printable(path)} cannot be started: {error.strerror}.") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"{printable(path)} did not start in {_START_S:.0f} s.") from None
    try:
        answer: dict[str, Any] = json.loads(done.stdout.strip().rpartition(b"\n")[2])
        version, suffixes = tuple(answer.pop("version")), tuple(answer.pop("suffixes", ()))
        return Python(path, version, suffixes=suffixes, **answer)
    except (ValueError, TypeError, AttributeError, LookupError):
        said = one_line(done.stderr.decode(errors="replace").strip().rpartition("\n")[2])[:_LONGEST]
        raise UsageError(f"{printable(path)} does not work as Python: {said or 'it prints nothing'}.") from None


def _active() -> tuple[Python | None, str]:
    """Return the interpreter of the active environment, if TensorFlow is there and not here; and why it is chosen."""
    from importlib.util import find_spec

    with contextlib.suppress(ImportError, ValueError):
        if (spec := find_spec("tensorflow")) is not None and spec.origin:
            return None, ""
    for variable in ACTIVE:
        folder = os.environ.get(variable, "")
        program = _program(Path(folder)) if folder else None
        if program is None or Path(folder).resolve() == Path(sys.prefix).resolve():
            continue
        with contextlib.suppress(UsageError):
            python = describe(program)
            if python.has_tensorflow:
                return python, f"because it is active ({variable}) and has TensorFlow"
    return None, ""


class _Unavailable(Exception):  # noqa: N818  # a reason, not an error of this program
    """Another interpreter cannot run gpudiag; the text says why, and what to type."""


def _brought(python: Python) -> dict[str, Any]:
    """Return what gpudiag brings along to ``python``, see :data:`gpudiag.guest.home`; raises :class:`_Unavailable`."""
    if python.version[:2] < _OLDEST:
        tensorflow = "import tensorflow as tf; print(tf.config.list_physical_devices())"
        raise _Unavailable(
            f"gpudiag needs Python {'.'.join(map(str, _OLDEST))} or newer. To explain what TensorFlow says, type: "
            f"{join([python.path, '-c', tensorflow])} 2>&1 | gpudiag why"
        )
    packages: dict[str, str] = {}
    lacking = []
    for requirement, distribution in _needed(python.markers or {}):
        if distribution is not None and _fits(distribution, python):
            packages |= dict.fromkeys(_modules(distribution), str(distribution.locate_file("")))
        else:
            lacking.append(requirement)
    if lacking:
        folder = _installed(python, sorted(lacking))
        packages |= {entry.name.partition(".")[0]: str(folder) for entry in folder.iterdir() if _is_module(entry.name)}
    return {**guest.home, "executable": sys.executable, guest.NAME: guest.folders(), "packages": packages}


def _needed(markers: Mapping[str, str]) -> Iterator[tuple[str, Distribution | None]]:
    """Yield each requirement of gpudiag, and of these, with what fulfils it here; None if nothing does."""
    from importlib.metadata import Distribution

    from packaging.requirements import Requirement

    path = sorted(set(guest.home.get("packages", {}).values())) or sys.path

    def find_distribution(name: str) -> Distribution | None:
        return next(iter(Distribution.discover(name=name, path=path)), None)

    pending, known = [guest.NAME], {guest.NAME}
    while pending:
        distribution = find_distribution(pending.pop())
        for requirement in map(Requirement, (distribution and distribution.requires) or ()):
            needed = requirement.marker is None or requirement.marker.evaluate({**markers, "extra": ""})
            if not needed or requirement.name.lower() in known:
                continue
            known.add(requirement.name.lower())
            pending.append(requirement.name)
            yield f"{requirement.name}{requirement.specifier}", find_distribution(requirement.name)


def _fits(distribution: Distribution, python: Python) -> bool:
    """Return whether the interpreter can import a distribution that is installed here."""
    import sysconfig

    from packaging.specifiers import SpecifierSet

    if python.abi == sysconfig.get_config_var("SOABI") and python.system == sysconfig.get_platform():
        return True
    if not SpecifierSet(distribution.metadata.get_all("Requires-Python", [""])[0]).contains(
        ".".join(map(str, python.version))
    ):
        return False
    compiled: dict[Path, bool] = {}  # a module may be there for several Pythons
    for file in map(Path, distribution.files or ()):
        if file.suffix in (".so", ".pyd"):
            stem, _, suffix = file.name.partition(".")
            module = file.with_name(stem)
            compiled[module] = compiled.get(module, False) or f".{suffix}" in python.suffixes
    is_same_system = python.system == sysconfig.get_platform()
    return distribution.files is not None and all(compiled.values()) and (is_same_system or not compiled)


def _modules(distribution: Distribution) -> set[str]:
    """Return the top-level modules of a distribution."""
    tops = {file.parts[0] for file in distribution.files or ()}
    return {top.partition(".")[0] for top in tops if _is_module(top)}


def _is_module(name: str) -> bool:
    stem, _, suffix = name.partition(".")
    return (stem.isidentifier() and suffix in ("", "py") and not stem.startswith("__")) or name.endswith(
        (".so", ".pyd")
    )


def _installed(python: Python, requirements: list[str]) -> Path:
    """Return a folder of gpudiag's with these packages for ``python``; raises :class:`_Unavailable`."""
    digest = hashlib.sha256("\0".join([python.abi, python.system, *requirements]).encode()).hexdigest()[:12]
    name = f"packages-{'.'.join(map(str, python.version[:2]))}-{digest}"
    failed = ""
    for place in places():
        folder = place / name
        try:
            if not folder.is_dir():
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
                with folders.new(folder) as unfinished:
                    say(f"gpudiag: installing {listed(requirements)} for {python.title} in {folder}")
                    _install(python, requirements, unfinished)
        except _Unavailable as error:
            command = join(_commands(python, requirements, folder, quietly=False)[0])
            raise _Unavailable(f"{listed(requirements)} cannot be installed for it: {error}. Type: {command}") from None
        except OSError as error:
            if not folder.is_dir():  # another run may have made it meanwhile
                failed = failed or shortage(error)
                continue
        if reason := trust.distrust(folder):
            failed = failed or f"{folder} is not used: {reason}"
        elif len(list(folder.glob("*.dist-info"))) < len(requirements):
            failed = failed or f"{folder} is not used: packages are missing in it"
        else:
            return folder
    raise _Unavailable(f"{listed(requirements)} must be installed for it, and no folder can be used: {failed}")


def places() -> Iterator[Path]:
    """Yield the folders for what gpudiag installs for other interpreters, and for what ``gpudiag.pyz`` unpacks."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    with contextlib.suppress(RuntimeError):  # there is no home folder
        yield (cache if cache.is_absolute() else Path("~/.cache").expanduser()) / "gpudiag"
    yield Path(tempfile.gettempdir()) / f"gpudiag-{os.geteuid() if hasattr(os, 'geteuid') else 'packages'}"


def _install(python: Python, requirements: list[str], folder: Path) -> None:
    """Install packages in a folder by the first installer that does; raises :class:`_Unavailable` with the reasons."""
    environment = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # in the environment of the interpreter
    reasons = []
    for command in _commands(python, requirements, folder):
        try:
            done = subprocess.run(
                command,
                env=environment,
                cwd="/",  # Python before 3.11 puts it on its path
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_INSTALL_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            reasons.append(one_line(str(error)))
            continue
        if done.returncode == 0:
            return
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {done.returncode}"]
        reasons.append(one_line(next((line for line in lines if line.startswith("ERROR:")), lines[-1])))
    raise _Unavailable("; ".join(dict.fromkeys(reasons)))


_MISLEADING = ("PIP_PREFIX", "PIP_REQUIRE_VIRTUALENV", "PIP_ROOT", "PIP_TARGET", "PIP_USER")


def _commands(python: Python, requirements: list[str], folder: Path, *, quietly: bool = True) -> list[list[str]]:
    """Return the commands that install packages for ``python`` in ``folder``: the first that works is enough."""
    from importlib.util import find_spec

    what = ["--no-deps", "--only-binary=:all:", "--target", str(folder), *requirements]
    install = ["install", *(_QUIETLY if quietly else ()), *what]
    commands = [[python.path, "-m", "pip", *install]] if python.has_pip else []
    if uv := shutil.which("uv"):
        commands.append([uv, "pip", "install", *(["--quiet"] if quietly else ()), "--python", python.path, *what])
    if find_spec("pip") is not None:
        commands.append([sys.executable, "-m", "pip", "--python", python.path, *install])
    return commands or [["pip", "--python", python.path, *install]]


_QUIETLY = ("--quiet", "--disable-pip-version-check", "--no-input", "--retries=1", "--timeout=10", "--no-compile")


def _become(python: Python, brought: dict[str, Any]) -> NoReturn:
    """Replace this process by the interpreter, which runs the same command line."""
    first = "import sys\nif sys.path and not sys.path[0]: del sys.path[0]\n"  # the working directory, in Python 3.10
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    with contextlib.suppress(OSError):  # one of them is closed
        # What its start-up files print is no part of the report.
        stdout = os.dup(1)
        os.dup2(2, 1)
        os.set_inheritable(stdout, True)
        first += f"import os; os.dup2({stdout}, 1); os.close({stdout})\n"
    program = f"{first}{guest.boot(brought)}from gpudiag.__main__ import main; main()"
    safe = ["-P"] if python.version[:2] >= (3, 11) else []
    command = [python.path, *safe, "-c", program, *sys.argv[1:]]
    if sys.platform == "win32":  # there it would be another process, for which no shell waits
        sys.exit(subprocess.run(command, check=False).returncode)
    os.execv(python.path, command)
