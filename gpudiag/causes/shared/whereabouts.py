"""Shared by causes: where a library of the driver is that cannot be opened by its name, and how that is changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from shlex import quote

import msgspec

from gpudiag.causes.shared.files import repairs
from gpudiag.causes.shared.files import shown as shown_files
from gpudiag.causes.shared.libraries import (
    NVML,
    PATH,
    RENEW_CACHE,
    good_copy,
    is_in_environment,
    put_first,
    secure_loader,
    stale_cache,
)
from gpudiag.fix import Action, Kind, Role, Where, configure, note, run, run_container
from gpudiag.knowledge.releases import numbers
from gpudiag.knowledge.systems import system_of
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts, FileFault, Library, LibraryCopy, LibraryFacts, Unknown

_NEWER_LIBC = re.compile(r"version `(?P<symbol>GLIBC_(?P<release>[\d.]+))' not found")
_LIBCS = (("2.31", "Ubuntu 20.04"), ("2.35", "Ubuntu 22.04"), ("2.36", "Debian 12"), ("2.39", "Ubuntu 24.04"))
"""The glibc of images that TensorFlow's users build on, the oldest first."""
_READ_ONLY = ("apptainer", "singularity")
_TRUSTED = ("/lib", "/usr/lib", "/lib64", "/usr/lib64")
_ALTERNATIVES = run(
    "sudo update-alternatives --set glx /usr/lib/nvidia && sudo ldconfig",
    "Debian's alternative glx has the links to that folder",
    kind=Kind.CONFIGURE,
)
_FLATPAK = configure("flatpak update", "brings the driver's libraries of the kernel module's version", where=Where.HOST)
_BY_FOLDER = (
    (re.compile(r"/nvidia/(?:current|tesla[\w-]*|legacy[\w-]*)$"), _ALTERNATIVES),
    (re.compile(r"/GL/nvidia-[\d-]+/"), _FLATPAK),
)
_TOOLKIT_LINKS = configure(
    "sudo nvidia-ctk config --in-place --set nvidia-container-cli.ldconfig=@/sbin/ldconfig",
    "if every new container lacks the link: @ takes the host's program; Ubuntu's is /sbin/ldconfig.real",
    where=Where.HOST,
)


@dataclass(frozen=True)
class Whereabouts:
    """Where a library of the driver is."""

    words: str
    """The rest of a sentence that begins with its name, such as ``is in /opt/x, where the loader does not look``."""
    evidence: tuple[str, ...] = ()
    fix: tuple[Action, ...] = ()
    tried: Action | None = None
    confidence: Confidence = Confidence.PROVED
    is_absent: bool = False


def locate(facts: Facts, soname: str) -> Whereabouts:
    """Return where the driver's library ``soname`` is, which the loader did not open by its name."""
    library, libraries = facts.library(soname), facts.libraries
    if library is None or not isinstance(libraries, LibraryFacts):
        return Whereabouts("was not found", confidence=Confidence.LIKELY, is_absent=True)
    if library.source == "simulated machine":  # a fault has removed it: what is in its place stands for nothing
        library = msgspec.structs.replace(library, path=None, files=())
    files = tuple(shown_files([library]))
    copy = good_copy(library)
    if library.path is None and copy is not None:
        return (_without_link if _lacks_link(copy, soname) else _off_the_path)(facts, library, copy, files)
    broken = next((found for found in library.copies if found.error and not _is_passed_over(found.error)), None)
    damaged = next((state for state in library.files if state.fault is not FileFault.PROCESSOR), None)
    if library.path is not None and library.error:
        return _broken(facts, library, library.path, library.error, files)
    if broken is not None and not _lacks_link(broken, soname):
        return _broken(facts, library, broken.path, broken.error or "", files)
    if damaged is not None:
        return _broken(facts, library, damaged.path, "", files)
    closed = [found for found in library.copies if (found.error or "").startswith("not opened")]
    walked = [f"looked through {', '.join(libraries.walked)}: no file of it"] if libraries.walked else []
    # Root may look everywhere; a container of another user's has folders that are closed to him and empty for this.
    may_be_there = [folder for folder in libraries.closed if not folder.startswith("/root")]
    if walked and may_be_there:
        walked[0] += f", but this user may not look into {', '.join(may_be_there)}"
    return Whereabouts(
        "was not found" + (f", but for {closed[0].path}, which was not opened" if closed else ""),
        (*files, *(f"{found.path}: {found.error}" for found in library.copies), *walked),
        confidence=Confidence.PROVED if walked and not closed and not may_be_there else Confidence.LIKELY,
        is_absent=not closed,
    )


def _is_passed_over(error: str) -> bool:
    """Return whether a file says nothing of the library: it was not opened, or is for another processor."""
    return error.startswith("not opened") or "wrong ELF class" in error


def _lacks_link(copy: LibraryCopy, soname: str) -> bool:
    return PurePath(copy.path).name != soname


def _off_the_path(facts: Facts, library: Library, copy: LibraryCopy, files: tuple[str, ...]) -> Whereabouts:
    folder = str(PurePath(copy.path).parent)
    stale = stale_cache(facts, folder)
    ignored, secure = secure_loader(facts)
    add = put_first(facts, [folder])
    of_place = [action for pattern, action in _BY_FOLDER if pattern.search(folder)]
    for_all = configure(
        f"sudo ldconfig {quote(folder)}",
        "for every program here: adds the folder to the loader's cache",
        role=Role.ALTERNATIVE,
    )
    fix = (
        (RENEW_CACHE,)
        if stale
        else (
            *secure,
            *of_place,
            *(() if secure else (add,)),
            *(() if _keeps_to_itself(facts, folder) else (for_all,)),
        )
    )
    return Whereabouts(
        f"is in {folder}, where the loader does not look",
        (f"{copy.path} opens by its path", *_named(facts, copy, folder), *ignored, *([stale] if stale else []), *files),
        fix,
        None if secure or stale else add,
    )


def _keeps_to_itself(facts: Facts, folder: str) -> bool:
    """Return whether the loader's cache is not to be changed: an image that is read only, or a folder of all kinds."""
    container = None if isinstance(facts.container, Unknown) else facts.container.name
    return container in _READ_ONLY or is_in_environment(folder, facts)


def _named(facts: Facts, copy: LibraryCopy, folder: str) -> Iterator[str]:
    """Yield the place that meant the loader to look in ``folder``."""
    value = facts.variables.get(PATH)
    here = f"{PATH} is {value}" if value else f"{PATH} is not set"
    if copy.named_by and not copy.named_by.endswith("is mounted"):
        yield f"{copy.named_by} names {folder}; {here} here"


def _without_link(facts: Facts, library: Library, copy: LibraryCopy, files: tuple[str, ...]) -> Whereabouts:
    folder = str(PurePath(copy.path).parent)
    configured = {} if isinstance(facts.libraries, Unknown) else facts.libraries.configured
    is_searched = folder in configured or folder in _TRUSTED
    own = "~/.local/lib"
    container = None if isinstance(facts.container, Unknown) else facts.container.name
    return Whereabouts(
        f"is there as {copy.path} alone: the link {library.soname} to it is missing",
        (f"{copy.path} opens by its path", *files),
        (
            configure(
                "sudo ldconfig" if is_searched else f"sudo ldconfig {quote(folder)}",
                f"makes the link {library.soname} and the loader's cache",
            ),
            *([_TOOLKIT_LINKS] if container not in (None, *_READ_ONLY) else []),
            run(
                f"mkdir -p {own} && ln -sf {quote(copy.path)} {own}/{library.soname} && export {PATH}={own}:${PATH}",
                "if you are not root",
                kind=Kind.SET_VARIABLE,
                role=Role.ALTERNATIVE,
            ),
        ),
    )


def _broken(facts: Facts, library: Library, path: str, error: str, files: tuple[str, ...]) -> Whereabouts:
    """Return why a file that was found cannot be loaded as the library, and what helps."""
    state = next((state for state in library.files if state.path == path), None)
    libc = _NEWER_LIBC.search(error)
    system = "" if isinstance(facts.system, Unknown) else facts.system.libc
    container = None if isinstance(facts.container, Unknown) else facts.container.name
    if libc is not None:
        distribution = next((name for release, name in _LIBCS if numbers(release) >= numbers(libc["release"])), "")
        newer = f"with glibc {libc['release']} or newer{f', such as {distribution}' if distribution else ''}"
        what = f"make the container again from an image {newer}" if container else f"use a system {newer}"
        fix: tuple[Action, ...] = (
            note(
                f"{what}: the library is the host's",
                kind=Kind.NEW_ENVIRONMENT,
                where=Where.IMAGE if container else None,
            ),
        )
        if container in _READ_ONLY:
            fix += (
                run(
                    f"{container} exec --nvccli ...",
                    "brings NVIDIA's own libraries alone",
                    kind=Kind.START_CONTAINER,
                    role=Role.ALTERNATIVE,
                ),
            )
        words = f"needs {libc['symbol']}, which is newer than the {system or 'glibc'} here"
    else:
        lacks = next(iter(library.lacks), "") if path == library.path else ""
        words = (
            f"cannot be used: {state.sentence}"
            if state
            else f"needs {lacks}, which was not found"
            if lacks
            else f"cannot be opened: {error.removeprefix(f'{path}: ')}"
        )
        fix = _mended(facts, library, path, container)
    if state is None:
        words = (
            words.replace("cannot be opened", f"cannot be opened ({path})")
            if words.startswith("cannot")
            else f"({path}) {words}"
        )
    return Whereabouts(words, ((f"{path}: {error.removeprefix(f'{path}: ')}",) if error else ()) + files, fix)


def _mended(facts: Facts, library: Library, path: str, container: str | None) -> tuple[Action, ...]:
    """Return how a file that is damaged, closed or a link to nothing is replaced."""
    states = [state for state in library.files if state.path == path]
    if own := repairs(states):
        return own
    target = next((state.place for state in states if state.fault is FileFault.LINK), "")
    if container:
        top = "/".join(PurePath(target).parts[:3]).replace("//", "/") if target.startswith("/") else ""
        mount = (f"-v {top}:{top}:ro",) if top else ()
        why = f"and with {top}, to which the link leads" if top else "brings the host's file again"
        return (run_container("--gpus all", *mount, image="IMAGE", note=why),)
    return (installed(facts, library.soname, again=True),)


def installed(facts: Facts, soname: str, *, again: bool = False) -> Action:
    """Return how a library of the driver is installed, ``again`` or for the first time."""
    module = None if isinstance(facts.driver, Unknown) else facts.driver.kernel_module
    name = "" if isinstance(facts.system, Unknown) else facts.system.os
    system = system_of(name)
    if system is not None and system.libraries is not None:
        return system.libraries
    if system is not None and system.name == "Debian" and (module or "Debian" in name):
        branch = f"libnvidia-compute-{(module or '').partition('.')[0]}"
        package = branch if "Debian" not in name else "libnvidia-ml1" if soname == NVML else "libcuda1"
        return run(f"sudo apt-get install{' --reinstall' * again} {package}", kind=Kind.INSTALL_AS_ROOT)
    of = f"of the driver {module or ''}".strip()
    return note(f"install {soname} {of}, from where the driver was installed", kind=Kind.INSTALL)
