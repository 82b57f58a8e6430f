"""pip has no wheel of the package for this Python

Each release of TensorFlow has wheels for a few versions of Python, 64 bit only: 2.21 for 3.10 to 3.13, 2.16 for 3.9 to
3.12, 2.10 for 3.7 to 3.10, 2.4 for 3.6 to 3.8, 1.15 for 3.5 to 3.7. The package tensorflow-gpu was removed in December
2022: since 2.1 `tensorflow` itself has GPU support. Packages that extend TensorFlow have wheels for fewer systems.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.fix import Action, Kind, ask, check, conda_environment, install, note, run
from gpudiag.knowledge.message import Event
from gpudiag.knowledge.messages.python_packages import (
    GPU_PACKAGE_GONE,
    NO_CANDIDATE,
    NO_WHEEL,
    NO_WHEEL_OF_ANOTHER,
    REFUSED_WHEEL,
)
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.releases import NEWEST, Version, pythons
from gpudiag.knowledge.requirements import TENSORFLOWS, canonical, for_python, wheels
from gpudiag.knowledge.tensorflow_releases import OTHERS
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="pip has no {what} for this Python: {why}",
    fix=(
        ask(
            "python -c 'import sys; print(sys.version)'",
            "then a Python that has wheels: conda create -n tf python=3.11",
        ),
        install("--upgrade", "pip"),
    ),
    url="https://www.tensorflow.org/install/source#gpu",
    needs_gpu=False,
    unless={
        "musl_system": "pip lists no wheel because the system has musl, not because of this Python",
    },
)

_UPGRADE = install("--upgrade", "pip", note="an old pip does not find newer wheels", python="python")
_IN_WSL = install(
    "tensorflow[and-cuda]", note="in WSL 2 (wsl --install): natively, Windows has no GPU support after 2.10"
)
_FOR_WINDOWS = install(
    "tensorflow<2.11",
    note="the last release for GPUs on Windows; it needs Python 3.10 or older, CUDA 11.2 and cuDNN 8.1",
)
_WHO_ASKS = note("if another package asks for it: a newer release of that package, or pip install --no-deps PACKAGE")
_LISTED = re.compile(r"\(from versions: (?P<versions>\d[^()]{0,4000})\)")
_LAST_GPU_PACKAGE_FOR_MACOS = Version(1, 1)
_NAMES = {
    "linux_aarch64": "Linux on ARM",
    "linux_x86_64": "Linux",
    "mac_arm64": "macOS on Apple's processors",
    "mac_x86_64": "macOS on Intel's processors",
    "windows": "Windows",
}


def find(program: Program, origin: Origin) -> Matches:
    if program.first(GPU_PACKAGE_GONE):
        yield Match(
            program.said(GPU_PACKAGE_GONE),
            figures={"what": "tensorflow-gpu", "why": "the package was removed, tensorflow itself has GPU support"},
            fix=(_IN_WSL, _FOR_WINDOWS) if origin.windows else (install("tensorflow[and-cuda]"), _WHO_ASKS),
        )
    elif wheel := program.first(REFUSED_WHEEL):
        why, first = _of_a_refused_wheel(wheel, program, origin)
        yield Match(
            program.said(REFUSED_WHEEL),
            Confidence.LIKELY,
            {"what": f"TensorFlow {wheel['release']}", "why": why},
            fix=(first, _UPGRADE),
            explains=program.all(NO_WHEEL),
        )
    elif said := program.first(NO_WHEEL):
        listed = _listed(event.line for event in program.all(NO_WHEEL))
        why, fix = _of_tensorflow(said["what"], listed, origin)
        yield Match(program.said(NO_WHEEL), figures={"what": said["what"], "why": why}, fix=fix)
    elif said := program.first(NO_CANDIDATE):
        name = said["name"] or said["locked"] or said["of"]
        version = (said["range"] or said["pinned"] or said["versions"]).lstrip("=")
        why, first, second = _of_a_lock(name, version, origin)
        yield Match(
            program.said(NO_CANDIDATE),
            figures={"what": f"{name} {version}", "why": why},
            fix=(first, second),
        )
    elif said := program.first(NO_WHEEL_OF_ANOTHER):
        listed = _listed(event.line for event in program.all(NO_WHEEL_OF_ANOTHER))
        why, first, second = _of_another(said["name"], listed, origin)
        yield Match(
            program.said(NO_WHEEL_OF_ANOTHER),
            figures={"what": f"{said['name']}{said['range']}", "why": why},
            fix=(first, second),
        )


def _of_tensorflow(what: str, listed: list[str], origin: Origin) -> tuple[str, tuple[Action, ...]]:
    """Return why pip, which lists these versions, has no wheel of a TensorFlow, and the fix."""
    if why_on_mac := _on_a_mac(what, listed, origin):
        return why_on_mac, (
            install("tensorflow", note="in place of tensorflow-gpu, in the requirements too"),
            install("tensorflow-metal", note="then Apple's GPU is used, on macOS 12 and newer"),
        )
    environment, wanted = _environment(what), _release(what)
    why = _why(wanted, listed, origin)
    if not listed:
        return why, (environment, _UPGRADE)
    newest = run(
        f"pip install 'tensorflow=={listed[-1]}'",
        "the newest that pip lists for this Python and processor",
        kind=Kind.INSTALL,
    )
    if _release(listed[-1]) == wanted:  # that release is there, in another patch
        return why, (newest, environment)
    return why, (_UPGRADE, environment) if _is_passed_over(wanted, listed) else (environment, newest)


def _of_a_refused_wheel(wheel: Event, program: Program, origin: Origin) -> tuple[str, Action]:
    """Return why pip refuses a wheel, and the fix."""
    python = Origin(line for line in program.lines if ".whl" not in line).python  # the name of the wheel has one, too
    made_for = f"3.{wheel['minor']}"
    if not python:
        return (
            f"the wheel is for Python {made_for} on {wheel['platform']}; this pip is of another Python, or the machine "
            "is another",
            run(f"python{made_for} -m pip install FILE.whl", "the pip of that Python: pip --version names its own"),
        )
    if python != made_for:
        return (
            f"the wheel is for Python {made_for}, and it is {python}",
            _environment(f"tensorflow=={wheel['release']}"),
        )
    if origin.windows and "win" not in wheel["platform"]:
        return f"the wheel is for {wheel['platform']}", run(
            f"pip install 'tensorflow=={wheel['release']}'", kind=Kind.INSTALL
        )
    return (
        f"the wheel is for Python {python}, too, so the Python has 32 bits, most likely, and TensorFlow needs 64",
        ask("python -c 'import struct; print(struct.calcsize(\"P\") * 8)'", "32: install a Python of 64 bits"),
    )


def _on_a_mac(what: str, listed: list[str], origin: Origin) -> str:
    """Return that tensorflow-gpu ended early for macOS, if that is the reason; else ""."""
    wanted, last = _release(what), _release(listed[-1]) if listed else None
    is_mac = origin.mac or last == _LAST_GPU_PACKAGE_FOR_MACOS
    if not (is_mac and what.startswith("tensorflow-gpu") and wanted and wanted > _LAST_GPU_PACKAGE_FOR_MACOS):
        return ""
    return f"for macOS the package tensorflow-gpu ended with {_LAST_GPU_PACKAGE_FOR_MACOS}: there is no CUDA on a Mac"


def _listed(lines: Iterable[str]) -> list[str]:
    """Return the versions that pip lists for this machine, the oldest first."""
    for line in lines:
        if listed := _LISTED.search(line):
            return [part.strip() for part in listed["versions"].split(",")]
    return []


def _is_passed_over(wanted: Version | None, listed: list[str]) -> bool:
    """Return whether pip lists releases before and after a release that has wheels, but not that release."""
    releases = [found for text in listed if (found := _release(text))]
    if wanted is None or not releases or wheels(wanted, "linux_x86_64") is None:
        return False
    return releases[0] < wanted < releases[-1] and wanted not in releases


def _why(wanted: Version | None, listed: list[str], origin: Origin) -> str:
    """Return in words why there is no wheel, as far as it is known."""
    first, last = (_release(listed[0]), _release(listed[-1])) if listed else (None, None)
    if wanted and first and last and not first <= wanted <= last:
        python = f"Python {origin.python}" if origin.python else "its version"
        of = " to ".join(pythons(wanted))
        kind = "newer" if wanted < first else "older, or pip is old"
        return f"there, TensorFlow is {first} to {last}; {wanted} has wheels for Python {of}, and {python} is {kind}"
    if _is_passed_over(wanted, listed):
        return f"pip lists releases before and after {wanted}, but not that one: this pip is too old to see its wheels"
    if origin.python and not listed:
        own = for_python(origin.python, origin.system)
        if own is None:
            return f"no release has wheels for Python {origin.python} on {_NAMES[origin.system]}"
        if wanted and not own[0] <= wanted <= own[1]:
            return f"for Python {origin.python} on {_NAMES[origin.system]} there are {own[0]} to {own[1]}"
    if wanted and wheels(wanted, origin.system) is None and wheels(wanted, "linux_x86_64"):
        return f"{wanted} has no wheels for {_NAMES[origin.system]}"
    return "it has none for its version, or the Python has 32 bits, or pip is old, or the system is Alpine (musl)"


def _of_a_lock(name: str, version: str, origin: Origin) -> tuple[str, Action, Action]:
    """Return why a release that Poetry or uv has chosen has no wheel: they choose before they look for wheels."""
    if canonical(name) not in TENSORFLOWS:
        return _of_another(name, [], origin)
    fit = for_python(origin.python, origin.system) if origin.python else None
    fits = f">={fit[0]},<={fit[1]}.99" if fit else ">=2.16"
    release = _release(version)
    of = f"{release} has wheels for Python {' to '.join(pythons(release))} alone" if release else "it has none for it"
    return (
        of,
        run(
            f"poetry add 'tensorflow{fits}'",
            "with uv: uv add; releases that have wheels: without a range it may choose "
            "an old one, which some other package takes",
            kind=Kind.INSTALL,
        ),
        _environment(f"tensorflow=={version}") if release else _UPGRADE,
    )


def _of_another(name: str, listed: list[str], origin: Origin) -> tuple[str, Action, Action]:
    """Return why pip has no wheel of a distribution other than TensorFlow, and the fix."""
    systems = OTHERS.get(canonical(name), {})
    if systems and (span := systems.get(origin.system)) is None:
        have = ", ".join(_NAMES[system] for system in systems)
        return (
            f"{name} has wheels for {have} alone",
            run(f"pip uninstall {name}", "take it out of the requirements: this system has none", kind=Kind.REMOVE),
            note("or run the program there: on Windows in WSL 2 (wsl --install), on a Mac in a container of Linux"),
        )
    if systems and span is not None:
        oldest, newest, first, last = span
        return (
            f"for {_NAMES[origin.system]} there are {oldest} to {newest}, for Python {first} to {last}",
            conda_environment(name, note="has wheels", python=_safe(last)),
            run(f"pip install '{name}=={listed[-1]}'", "the newest that pip lists here", kind=Kind.INSTALL)
            if listed
            else _UPGRADE,
        )
    if listed:
        return (
            f"pip lists {listed[0]} to {listed[-1]} here; others need another Python, or there is no such release",
            run(
                f"pip install '{name}=={listed[-1]}'",
                "the newest that there is for this Python: change the pin",
                kind=Kind.INSTALL,
            ),
            note("or a Python of the time of the release that is asked for: conda create -n tf python=3.10"),
        )
    return (
        "it has none for its version or system, or no distribution has that name",
        check(
            f"pip index versions {name}; python --version; uname -sm",
            "the wheels that are published must fit this Python and system",
        ),
        run(
            "conda create -n tf python=3.11; conda activate tf",
            "then install there: most packages have wheels for it",
            kind=Kind.NEW_ENVIRONMENT,
        ),
    )


def _safe(newest: str) -> str:
    """Return the second newest Python with wheels, because some releases have no wheels for the newest one."""
    major, _, minor = newest.partition(".")
    return f"{major}.{int(minor) - 1}"


def _release(text: str) -> Version | None:
    found = re.search(r"(?:^|==)(\d{1,3})\.(\d{1,3})", text)
    return Version(int(found[1]), int(found[2])) if found else None


def _environment(what: str) -> Action:
    """Return how to make an environment with a Python for which ``what`` has wheels."""
    pinned = re.search(r"(?<!>)=(\d)\.(\d{1,2})|<=?(\d)\.(\d{1,2})", what)
    release = Version(int(pinned[1] or pinned[3]), int(pinned[2] or pinned[4])) if pinned else NEWEST
    first, last = pythons(release)
    return conda_environment(what, note=f"{release} has wheels for Python {first} to {last}", python=last)
