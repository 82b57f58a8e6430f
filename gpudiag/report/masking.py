"""Removes from a report the names that identify its machine, so that it can be shared.

Known names are replaced wherever they occur, also in log lines, readings, figures and the command: the home folder, the
user, the host, the environment that Python runs in, the UUIDs of GPUs and MIG instances, and the paths that the command
line, its variables (``GPUDIAG_OUTPUT`` ...) and search paths (``PYTHONPATH`` ...) name outside the system's own
folders. Of the rest, only numbers (of up to 12 digits, if no label such as "Serial Number" precedes them and they do
not look like a telephone number) and the words that gpudiag knows are kept: those in its own files, which are its own
texts, and names of libraries, of variables and of TensorFlow's messages. Any other word becomes ``<masked-1>``; a line
of a program's log in which nothing is known to matter is left out. Equal things get equal placeholders, so rows still
name their GPUs, and equal folders are still equal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from enum import Enum
from functools import cache
from itertools import count, product
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import msgspec

import gpudiag
from gpudiag.knowledge import log_lines
from gpudiag.knowledge.placement import Placement
from gpudiag.knowledge.variables import misspelling_of
from gpudiag.model.facts import Facts, NvmlDevice, Unknown
from gpudiag.model.reading import AnyReading, plain_reading
from gpudiag.model.report import Gpu, Report

HOME = "~"
USER = "<user>"
HOST = "<host>"
ENVIRONMENT = "<env>"
PACKAGE = "<gpudiag>"
MACHINE = "<machine>"
PYTHON = "<python>"

MASKED = "<masked>"
LEFT_OUT = "<left out>"

_OWN_FIELDS = frozenset({"gpudiag_version", "started_at", "isolation", "probe", "kind", "cause_id", "explains", "url"})
"""Fields that gpudiag fills with its own names: a user called ``fork`` must not change them."""

_SAFE_FIELDS: frozenset[tuple[type, str]] = frozenset(
    {(NvmlDevice, "name"), (Gpu, "name"), (Placement, "op"), (Placement, "name")}
)
"""Fields that are always kept: names of products, which come from NVIDIA's driver, and of TensorFlow's operations
and their nodes, which come from the probes' own programs. Words of the first three are also known in other texts."""

_OTHER_WORDS = (
    "aborted add adjust agnostic algo amd64 amx_bf16 amx_int8 amx_tile application appropriate approximate avx avx2 "
    "avx512_bf16 avx512_fp16 avx512_vnni avx512f avx_vnni avx_vnni_int8 benefit bfc br0 bridge builds capacity cnn "
    "configure contextlib correctly critical cudamallocasync cudart culaunchkernel cumoduleloaddata cusparselt cuvid "
    "decode diagnostic disabling docker0 doesn dynamicsegment epoch eth0 exceeding expects expf explicitly extern "
    "external fma following fork gen graph gtx ib0 identity_retval implicit infer inference initialization "
    "instructions interpreter ir libremoved lo loaded mlir nodes numerical numerically nvcuvid nvshmem optimization "
    "optimizations optimized orig_value output_retval parent partially placeholder port portability previously "
    "product_retval properly pyenv pywrap rebooted rebuild reduces refers reg registering retrieving retval round "
    "runtime serialized shmutils sigsegv slightly socket srv sse3 sse4_1 sse4_2 stack_1 stack_2 strided_slice symbol "
    "throw topo tsl tuning typ undefined unexpectedly unknown unresolved unsatisfied utilized veth warning writes "
    "x_retval xla"
)
"""Words of TensorFlow's ordinary messages and of ordinary machines, in addition to those that gpudiag itself uses."""

_WITHHELD = frozenset({"slurm_job", "SLURM_JOB_ID"})
"""Fields and variables whose value is a number that can identify a person."""

_DEEPEST = 60
"""The deepest level of a reading that is kept."""

_COMMON_NAME = re.compile(
    r"\d+|admin|bench|build|builder|centos|container|cpu|cuda|data|debian|default|dev|docker|example|fedora|gpu|gpudiag|"
    r"guest|host|jenkins|jovyan|linux|local|localhost|memory|nobody|node|nvidia|python|root|runner|server|system|"
    r"tensorflow|test|ubuntu|unknown|user|vagrant|worker",
    re.IGNORECASE,
)
"""Names of users and hosts that identify nobody and that ordinary texts use as words."""

_COMMON_FOLDERS = frozenset({"/", "/home", "/nonexistent", "/tmp", "/usr", "/usr/local"})  # noqa: S108  (nothing is written there)

_OPTIONS = ("OUTPUT", "LOG", "CONFIG", "EXPECT", "BASELINE", "SIMULATE")
_PATH_VARIABLES = ("PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD", *(f"GPUDIAG_{name}" for name in _OPTIONS))
_OF_THE_SYSTEM = re.compile(r"/(?:bin|boot|dev|etc|lib\w*|opt|proc|run|sbin|sys|usr)(?:/|$)")
"""System folders, whose contents have the same names everywhere."""

_SIMULATED_MACHINE = r"/[\w./-]{0,200}/gpudiag-sim-\w+"
"""The private folder of a simulated machine, whose name is random."""

_BARE_UUID = r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
_UUID = re.compile(f"(?:GPU|MIG)-{_BARE_UUID}")
_UUID_CUT_SHORT = r"\b(?:GPU|MIG)-[0-9A-Fa-f][0-9A-Fa-f-]*(?![\w-])"
_PLACEHOLDER = re.compile(r"(?:GPU|MIG)-uuid-[a-z]{1,3}|[<~].*", re.DOTALL)
"""That of a UUID has letters, because GPU-1 is taken for the GPU whose index is 1. A shell takes it as it is."""

_Rule = tuple[str, Callable[[str], str]]
"""A regular expression without groups, and a function that replaces its matches."""


def mask(report: Report) -> Report:
    """Return ``report`` with placeholders for names, paths and UUIDs. The verdict stays; masking twice changes nothing
    more.

    The names to replace come from ``report.facts``. If the family ``system`` is unknown, home folders are recognised by
    their usual places, and users and hosts are not replaced.
    """
    machine: _Rule = (_SIMULATED_MACHINE, _always(MACHINE))
    own = _path_rules(report.facts)
    rules = [*_uuid_rules(report), machine, *own, *_named_path_rules(report, own), *_name_rules(report.facts)]
    pattern = re.compile("|".join(f"({expression})" for expression, _ in rules))
    words = _Words(report)

    def replacement(match: re.Match[str]) -> str:
        return rules[(match.lastindex or 0) - 1][1](match[0])

    # In one pass over each text, so that no placeholder is mistaken for something to replace.
    masked: Report = _mapped(report, lambda text: words.kept(pattern.sub(replacement, text)), words.kept)
    lines = zip(report.lines, masked.lines, strict=True)
    masked = msgspec.structs.replace(masked, lines=tuple(new if _matters(old) else LEFT_OUT for old, new in lines))
    system = masked.facts.system
    if isinstance(system, Unknown):
        return masked
    system = msgspec.structs.replace(system, user=USER, hostname=HOST)
    return msgspec.structs.replace(masked, facts=msgspec.structs.replace(masked.facts, system=system))


def _matters(line: str) -> bool:
    """Return whether gpudiag may have something to say about a line of a program's log."""
    return bool(log_lines.parse([line]) or log_lines.is_telling(line) or _MASK.search(line) or _OF_DEVICES.search(line))


def _mapped(value: Any, change: Callable[[str], str], own: Callable[[str], str], depth: int = 0) -> Any:
    """Return ``value`` with every string in it changed; gpudiag's own names are changed by ``own`` instead."""
    if isinstance(value, str) and not isinstance(value, Enum):
        return change(value)
    if depth > _DEEPEST:
        return MASKED if isinstance(value, dict | list | tuple) else value
    if isinstance(value, AnyReading):  # not by its fields: they may be called as those of a report that are kept
        value = plain_reading(value)
    if isinstance(value, msgspec.Struct):
        changed = {}
        for name in value.__struct_fields__:
            item = getattr(value, name)
            if name in _WITHHELD and item is not None:
                changed[name] = MASKED
            elif (type(value), name) not in _SAFE_FIELDS:
                changed[name] = _mapped(item, own if name in _OWN_FIELDS else change, own, depth + 1)
        return msgspec.structs.replace(value, **changed)
    if isinstance(value, dict):
        return type(value)(
            {
                (own if _VARIABLE.fullmatch(key) else change)(key): (
                    MASKED if key in _WITHHELD else _mapped(item, change, own, depth + 1)
                )
                for key, item in value.items()
            }
        )
    if isinstance(value, list | tuple):
        return type(value)(_mapped(item, change, own, depth + 1) for item in value)
    return value


_OF_DEVICES = re.compile(r"(?i)gpus?(?![a-z])|devices?(?![a-z])")
"""Lines of a traceback that name a device, since the raising statement shows which operation was done on a GPU."""
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_MASK = re.compile(r"<masked-(\d+)>")
_KNOWN_SHAPE = re.compile(
    r"\d{1,12}|\d{1,16}(?:x\d{1,16}){0,4}(?:x?[kmgt]?i?b|[kmgt]|x|ms|us|ns|s)|0x[\da-f]{1,16}|[\da-f]{4}|"
    r"v\d{1,12}|v?\d{0,12}(?:a|b|rc|dev|post)\d{1,12}|"
    r"\d\dt\d\d|(?:nvidia|uverbs|copy)\d+|(?:sm|compute)_\d{2,3}[af]?|[iwef]\d{4}|gw\d{1,3}|"
    r"\d{1,3}(?:ubuntu|deb|el|fc)\d{1,3}|el\d{1,2}_\d{1,2}|wsl2",
    re.IGNORECASE,
)
"""Numbers that a diagnosis may need (serial numbers of GPUs have 13 digits, bytes of a GPU have 12), sizes, times,
addresses in memory, parts of versions, generations of GPUs, the levels of TensorFlow's lines with
their dates, workers of pytest-xdist, revisions of a distribution's packages and kernels."""
_LONGEST = 64
"""The most characters of a word that is examined."""
_SUFFIX = re.compile(r"\.(?:cc|cu|h|ipynb|json|log|md|py|pyc|sh|so|toml|txt|xml|yaml)")
_PLACEHOLDER = re.compile(
    r"<(?:user|host|env|gpudiag|machine|python|address|masked|left out|VIRTUAL_ENV|CONDA_PREFIX|(?:path|masked)-\d+)>",
    re.IGNORECASE,
)
"""What stands for a name in a masked report."""
_TEXT = re.compile(
    rf"(?P<kept>{_PLACEHOLDER.pattern}|"
    r"(?:GPU|MIG)-(?:uuid-[a-z]{1,3}(?![\w-])|\?)|\b[\da-fA-F]{4,8}:[\da-fA-F]{2}:[\da-fA-F]{2}\.[\da-f]\b)|"
    r"(?P<key>\b\w{0,40}(?:token|secret|passw(?:or)?d|api_?key|cookie|credential)\w{0,40}[\"']?\s{0,3}[=:]\s{0,3}[\"']?)"
    r"(?P<value>[^\s\"'<]+)|"
    r"(?P<label>\b(?:(?:board|chassis|module|gpu|system)[ _-]?)?(?:serial(?:[ _-]?(?:number|no\.?|num))?|s/n|"
    r"(?:board|chassis|system|module)[ _-]?(?:id|uuid|number|part[ _-]?number)|gpu[ _-]?part[ _-]?number)"
    r"[\"']?\s{0,40}[:=#]?\s{0,40}[\"']?)(?P<identity>(?=[\w-]{0,40}\d)[\w-]{4,41})|"
    r"(?P<personal>(?<![\w.])\+\d{1,3}(?:[ .-]?\(?\d{2,5}\)?){2,5}(?![\w.])|(?<![\w.-])\d{3}-\d\d-\d{4}(?![\w-]))|"
    r"(?P<address>(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\w)|\b(?:[\da-f]{2}:){5}[\da-f]{2}\b)|"
    r"(?P<home>/(?:home|Users)/)(?P<name>[^\s/\"':,;)<]+)|"
    r"(?P<run>\w+(?:[-.@+]\w+)*)",
    re.IGNORECASE,
)
"""The parts of a text; spaces and punctuation between them are kept."""
_PART = re.compile(r"[-.@+]?\w+")
_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_A-Za-z]+")
"""A part of a compound word such as ``set_memory_growth`` or ``ResourceExhaustedError``."""


@cache
def _vocabulary() -> tuple[frozenset[str], frozenset[str]]:
    """Return the words in gpudiag's own files, in lower case, and its four-part numbers."""
    folder = Path(gpudiag.__file__).parent
    texts = [file.read_text(encoding="utf-8") for suffix in ("py", "md") for file in folder.rglob(f"*.{suffix}")]
    texts += [str(file.relative_to(folder)) for file in folder.rglob("*.py")]  # probes are called as their files
    words = {word.strip("_") for text in texts for word in re.findall(r"\w+", text)}
    pieces = {piece.lower() for word in words for piece in _PIECE.findall(word)}
    versions = {version for text in texts for version in re.findall(r"\b\d+(?:\.\d+){3}\b", text)}
    return frozenset(pieces | {word.lower() for word in words} | set(_OTHER_WORDS.split())), frozenset(versions)


def is_masked(text: str) -> bool:
    """Return whether something in a text was replaced by a placeholder."""
    return _PLACEHOLDER.search(text) is not None


class _Words:
    """Keeps the words that gpudiag knows; any other word becomes ``<masked-1>``, the same wherever it occurs."""

    def __init__(self, report: Report) -> None:
        words, versions = _vocabulary()
        products = [device.name for device in report.facts.nvml_devices] + [gpu.name for gpu in report.gpus]
        named = {word.lower() for product in products for word in re.findall(r"\w+", product)}
        named |= {placement.op.lower() for row in report.rows for placement in row.placements}
        self._words = words | named
        self._versions = versions | _versions(report.facts)
        before = _MASK.findall(msgspec.json.encode(report).decode())
        self._first = 1 + max(map(int, before), default=0)
        self._masks: dict[str, str] = {}

    def kept(self, text: str) -> str:
        return _TEXT.sub(self._of, text)

    def _of(self, found: re.Match[str]) -> str:
        if found["kept"]:
            return found[0]
        if found["key"]:
            return f"{found['key']}{self._mask(found['value'])}"
        if found["label"]:
            return f"{found['label']}{self._mask(found['identity'])}"
        if found["personal"]:
            return self._mask(found[0])
        if found["address"]:
            return found[0] if found[0] in self._versions else "<address>"
        if found["home"]:
            return f"{found['home']}{self._mask(found['name'])}"
        known = ""
        for part in _PART.findall(found["run"]):
            is_fraction = re.fullmatch(r"\.\d{1,20}", part) is not None and known[-1:].isdigit()
            if not is_fraction and not self._is_known(part.lstrip("-.@+")):
                break
            known += part
        rest = found["run"][len(known) :]
        if not rest:
            return known
        sign = "" if re.match(r"\w", rest) else rest[0]
        suffix = re.search(rf"(?:{_SUFFIX.pattern})$", rest)
        return f"{known}{sign}{self._mask(rest.lstrip('-.@+'))}{suffix[0] if suffix else ''}"

    def _is_known(self, word: str) -> bool:
        plain = word.strip("_")
        if not plain or plain.lower() in self._words:
            return True
        if len(plain) > _LONGEST:
            return False
        if _KNOWN_SHAPE.fullmatch(plain):
            return True
        pieces = [piece for piece in _PIECE.findall(plain) if not piece.isdigit()]
        # A name with a number at its end is one of many of its kind: of computers, of customers.
        whole = "".join(pieces) == re.sub(r"_|(?<=_)\d+|(?<!\d)\d+(?=_)", "", plain)
        if whole and len(pieces) > 1 and all(piece.lower() in self._words and len(piece) > 1 for piece in pieces):
            return True
        return word.isupper() and misspelling_of(word) is not None

    def _mask(self, text: str) -> str:
        return self._masks.setdefault(text, f"<masked-{self._first + len(self._masks)}>")


def _versions(facts: Facts) -> set[str]:
    """Return the four-part versions of packages and of the kernel, which look like network addresses."""
    versions: list[str | None] = [] if isinstance(facts.system, Unknown) else [facts.system.kernel]
    if not isinstance(facts.tensorflow, Unknown):
        tensorflow = facts.tensorflow
        versions += [
            distribution.version
            for distribution in (*tensorflow.distributions, *tensorflow.companions, *tensorflow.frameworks)
        ]
        versions += tensorflow.ranges.values()
    if not isinstance(facts.libraries, Unknown):
        versions += [library.version for library in facts.libraries.libraries]
        versions += [copy.version for library in facts.libraries.libraries for copy in library.copies]
    return {version for text in versions if text for version in re.findall(r"\b\d+(?:\.\d+){3}\b", text)}


def _uuid_rules(report: Report) -> list[_Rule]:
    """Return the rules for UUIDs: complete, as bare hexadecimal digits, and cut short."""
    devices = report.facts.nvml_devices
    named = [uuid for device in devices for uuid in (device.uuid, *device.mig_uuids)]
    named += [gpu.uuid for gpu in report.gpus]
    found = _UUID.findall(msgspec.json.encode(report).decode())
    uuids = dict.fromkeys(uuid.lower() for uuid in named + found if uuid and not _PLACEHOLDER.fullmatch(uuid))
    # Names of one length: CUDA takes beginnings of UUIDs, and GPU-uuid-a would be one of GPU-uuid-aa.
    length = next(length for length in count(1) if len(ascii_lowercase) ** length >= len(uuids))
    names = {kind: map("".join, product(ascii_lowercase, repeat=length)) for kind in ("GPU", "MIG")}
    placeholders: dict[str, str] = {}
    spellings: dict[str, str] = {}
    for uuid in uuids:
        kind = "MIG" if uuid.startswith("mig-") else "GPU"
        placeholder = f"{kind}-uuid-{next(names[kind])}"
        placeholders[uuid] = spellings[uuid] = placeholder
        bare = uuid.partition("-")[2]
        if re.fullmatch(_BARE_UUID, bare):
            spellings.setdefault(bare, placeholder)
            spellings.setdefault(bare.replace("-", ""), placeholder)

    def completed(text: str) -> str:
        meant = [placeholder for uuid, placeholder in placeholders.items() if uuid.startswith(text.lower())]
        if len(meant) == 1:
            return meant[0]
        return f"{text[:3]}-?" if meant or len(text) >= len("GPU-01234567") else text

    whole = "|".join(map(re.escape, sorted(spellings, key=len, reverse=True)))
    rules: list[_Rule] = [(f"(?i:{whole})", lambda text: spellings[text.lower()])] if whole else []
    return [*rules, (_UUID_CUT_SHORT, completed)]


def _path_rules(facts: Facts) -> list[_Rule]:
    """Return the rules for folders, the longest path first."""
    if isinstance(facts.system, Unknown):
        return [(r"/(?:home|Users)/[\w.-]+|/root(?![\w-]|\.\w)", lambda _: HOME)]
    system, variables = facts.system, facts.variables
    paths = {
        system.home: HOME,
        system.executable: PYTHON,
        system.prefix: ENVIRONMENT,
        str(Path(gpudiag.__file__).parent): PACKAGE,  # outside the environment in a checkout
    }
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        paths.setdefault(variables.get(name, ""), f"<{name}>")
    if system.executable.startswith(system.prefix):
        del paths[system.executable]
    for path, placeholder in list(paths.items()):
        if Path(path).is_absolute():  # programs also write where it leads to; known on the machine of the report alone
            paths.setdefault(os.path.realpath(path), placeholder)
    spellings = {
        spelling: placeholder
        for path, placeholder in paths.items()
        for spelling in (
            path.rstrip("/\\"),
            path.rstrip("/\\").replace("\\", "/"),
            path.rstrip("/\\").replace("\\", "\\\\"),
        )
        if re.match(r"/|[A-Za-z]:|\\\\", spelling) and spelling not in _COMMON_FOLDERS
    }
    return [
        (rf"{re.escape(path)}(?![\w-]|\.\w)", _always(spellings[path]))
        for path in sorted(spellings, key=len, reverse=True)
    ]


def _named_path_rules(report: Report, known: list[_Rule]) -> list[_Rule]:
    """Return the rules for the paths that the command line, its variables and the search paths name, the longest
    first."""
    words = (word.partition("=")[2] if word.startswith("-") and "=" in word else word for word in report.command)
    listed = (re.split("[: ]", report.facts.variables.get(name, "")) for name in _PATH_VARIABLES)
    named = [word for word in words if "/" in word] + [path for paths in listed for path in paths if "/" in path]
    others = re.compile("|".join(["[<~-]", r".*://", _SIMULATED_MACHINE, *(rule for rule, _ in known)]))
    placeholders: dict[str, str] = {}
    for path in (word.rstrip("/") for word in named):
        if path and path not in placeholders and not others.match(path) and not _OF_THE_SYSTEM.match(path):
            placeholders[path] = f"<path-{len(placeholders) + 1}>{Path(path).suffix}"
    return [
        (rf"(?<![\w/.-]){re.escape(path)}(?![\w-]|\.\w)", _always(placeholders[path]))
        for path in sorted(placeholders, key=len, reverse=True)
        if path not in _COMMON_FOLDERS
    ]


def _name_rules(facts: Facts) -> list[_Rule]:
    """Return the rules for the host and the user: as words, or only in paths if that would damage ordinary texts."""
    if isinstance(facts.system, Unknown):
        return []
    host = facts.system.hostname
    names = dict.fromkeys((host, host.lower(), host.partition(".")[0], host.partition(".")[0].lower()), HOST)
    names[facts.system.user] = USER
    rules: list[_Rule] = []
    for name in sorted(names, key=len, reverse=True):
        if not name or _COMMON_NAME.fullmatch(name) or _PLACEHOLDER.fullmatch(name):
            continue
        before, after = (r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])") if len(name) > 2 else (r"(?<=[/\\])", r"(?![\w.-])")
        rules.append((before + re.escape(name) + after, _always(names[name])))
    return rules


def _always(placeholder: str) -> Callable[[str], str]:
    return lambda _: placeholder
