"""Lists the parts of the environment that can be removed, and what remains without them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gpudiag.knowledge.settings_of_files import FLAGS, KEPT, SUSPECT, entries

LIBRARY_PATH = "LD_LIBRARY_PATH"
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"

VARIABLE, ENTRY, FILE, USER_SITE, FOLDER, GROUP = "variable", "entry", "file", "user site", "folder", "group"
GPU, LIMIT = "gpu", "limit"
MASK = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class EnvironmentPart:
    """A removable part of the environment; all its own parts go with it."""

    kind: str
    name: str
    """The name of the variable, of the file, of the limit or of the group."""
    value: str = field(default="", repr=False)
    number: int = 0
    """The number of an entry, counted from 1."""
    parts: tuple[EnvironmentPart, ...] = ()

    @property
    def leaves(self) -> tuple[EnvironmentPart, ...]:
        return tuple(leaf for part in self.parts for leaf in part.leaves) if self.parts else (self,)


@dataclass(frozen=True)
class StartFiles:
    """The files that Python runs or reads whenever it starts."""

    customize: tuple[str, ...] = ()
    """The sitecustomize and usercustomize files."""
    pth: tuple[str, ...] = ()
    """The ``.pth`` files in the folders of packages."""
    user_site: str = ""
    """The folder of the user's own packages, if this interpreter uses it."""


@dataclass(frozen=True)
class Surroundings:
    """The environment that a program is started in."""

    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    start: StartFiles = StartFiles()
    on_path: bool = False
    """True if the working directory is on ``sys.path``, as with ``python -m``."""
    folder: str = ""
    own_library_path: str = ""
    """The entry of ``LD_LIBRARY_PATH`` that a simulated machine needs; "" on a real one."""
    gpus: Mapping[str, int] = field(default_factory=dict)
    """UUID to number of each GPU, if one of them may stop TensorFlow from using the others; otherwise empty."""
    driver: bool = False
    """True if the driver may refuse to start or to make a context, so that it is asked before TensorFlow is
    imported."""
    libraries: bool = False
    """True if one of NVIDIA's libraries fails at an operation, so that each library is tried."""
    limits: tuple[str, ...] = ()
    """The limits of this process (``ulimit``) that are unusually low and that it may raise."""


@dataclass(frozen=True)
class Variant:
    """The environment that a new interpreter is started with."""

    variables: dict[str, str] = field(repr=False)
    skipped: tuple[str, ...] = ()
    """Start-up files that this interpreter must not run or read."""
    user_site: bool = True
    elsewhere: bool = False
    """True if the interpreter starts in an empty working directory."""
    on_path: bool = False
    driver: bool = False
    libraries: bool = False
    raised: tuple[str, ...] = ()
    """The limits that are raised as far as this user may."""


def suspects(around: Surroundings) -> tuple[EnvironmentPart, ...]:
    """Return the variables whose names suggest that they matter."""
    return tuple(part for part in _variables(around) if SUSPECT.fullmatch(part.name))


def everything(around: Surroundings) -> tuple[EnvironmentPart, ...]:
    """Return all removable parts in groups, those that Python starts with first."""
    start = around.start
    groups = (
        EnvironmentPart(GROUP, "variables of Python, CUDA and TensorFlow", parts=suspects(around)),
        EnvironmentPart(
            GROUP,
            "the files that Python starts with",
            parts=tuple(EnvironmentPart(FILE, file) for file in start.customize),
        ),
        EnvironmentPart(GROUP, "the files .pth", parts=tuple(EnvironmentPart(FILE, file) for file in start.pth)),
        *(EnvironmentPart(LIMIT, name) for name in around.limits),
        *([EnvironmentPart(USER_SITE, start.user_site)] if start.user_site else []),
        *([EnvironmentPart(FOLDER, around.folder)] if around.folder else []),
        EnvironmentPart(
            GROUP,
            "the other variables",
            parts=tuple(part for part in _variables(around) if not SUSPECT.fullmatch(part.name)),
        ),
    )
    return tuple(part for part in groups if part.kind is not GROUP or part.parts)


def without_path_files(parts: Iterable[EnvironmentPart]) -> tuple[EnvironmentPart, ...]:
    """Return ``parts`` without ``.pth`` files: TensorFlow itself may be found through one."""
    return tuple(part for part in parts if not part.leaves[0].name.endswith(".pth"))


def expanded(parts: Iterable[EnvironmentPart]) -> tuple[EnvironmentPart, ...]:
    """Return the smaller parts that ``parts`` consist of, one level down."""
    return tuple(inner for part in parts for inner in (part.parts or (part,)))


def whole(parts: Iterable[EnvironmentPart], around: Surroundings) -> tuple[EnvironmentPart, ...]:
    """Return ``parts`` with a variable in place of its entries, if all of its entries are in ``parts``."""
    given = tuple(parts)
    for variable in _variables(around):
        complete = len(variable.parts) == len(entries(variable.name, variable.value))
        if variable.parts and complete and all(entry in given for entry in variable.parts):
            given = tuple(dict.fromkeys(variable if part in variable.parts else part for part in given))
    return given


def variant(around: Surroundings, taken: Iterable[EnvironmentPart], added: Mapping[str, str] | None = None) -> Variant:
    """Return ``around`` without the parts in ``taken``, and with the variables in ``added``."""
    leaves = [leaf for part in taken for leaf in part.leaves]
    variables = dict(around.variables)
    for name in {leaf.name for leaf in leaves if leaf.kind in (VARIABLE, ENTRY)}:
        left = remaining(name, around, leaves)
        if left is None:
            variables.pop(name, None)
        else:
            variables[name] = left
    variables.update(added or {})
    own, rest = around.own_library_path, variables.get(LIBRARY_PATH, "")
    if own and own not in rest.split(":"):
        variables[LIBRARY_PATH] = f"{own}:{rest}" if rest else own
    kinds = {leaf.kind for leaf in leaves}
    return Variant(
        variables=variables,
        skipped=tuple(sorted(leaf.name for leaf in leaves if leaf.kind == FILE)),
        user_site=USER_SITE not in kinds,
        elsewhere=FOLDER in kinds,
        on_path=around.on_path,
        driver=around.driver,
        libraries=around.libraries,
        raised=tuple(leaf.name for leaf in leaves if leaf.kind == LIMIT),
    )


def remaining(name: str, around: Surroundings, taken: Iterable[EnvironmentPart]) -> str | None:
    """Return the value of a variable without the entries in ``taken``; None if no entry remains."""
    gone = {leaf.number for leaf in taken if leaf.name == name and leaf.kind == ENTRY}
    kept = [entry for number, entry in entries(name, around.variables.get(name, "")) if number not in gone]
    if any(leaf.name == name and leaf.kind == VARIABLE for leaf in taken) or not kept:
        return _DEFAULT_PATH if name == "PATH" else None
    return (" " if name in FLAGS else ":").join(kept)


def _variables(around: Surroundings) -> Iterator[EnvironmentPart]:
    """Yield the variables and entries that can be removed, except the entry that a simulated machine needs."""
    for name, value in sorted(around.variables.items()):
        if KEPT.fullmatch(name) or _is_own(name, value, around):
            continue
        all_of_them = entries(name, value)
        inner = tuple(
            EnvironmentPart(ENTRY, name, entry, number)
            for number, entry in all_of_them
            if not _is_own(name, entry, around)
        )
        yield EnvironmentPart(VARIABLE, name, value, parts=inner if len(all_of_them) > 1 else ())


def _is_own(name: str, entry: str, around: Surroundings) -> bool:
    """Return whether an entry is the one that the simulated machine needs."""
    return bool(entry) and name == LIBRARY_PATH and entry == around.own_library_path
