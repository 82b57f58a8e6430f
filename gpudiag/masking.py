"""A report without what tells whose machine it is from: for reports that are shared.

Replaced wherever they stand, in log lines, readings, figures and the command too: the home folder, the user, the host,
the environment that Python runs in, the UUIDs of GPUs and MIG instances, and the paths that the command line and search
paths (``PYTHONPATH`` ...) name outside the system's own folders. Equal things get equal placeholders, so
rows still name their GPUs.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from gpudiag.hostfacts import Facts, Unknown
from gpudiag.model import Report

HOME = "~"
USER = "<user>"
HOST = "<host>"
ENVIRONMENT = "<env>"
PACKAGE = "<gpudiag>"
MACHINE = "<machine>"
PYTHON = "<python>"

_OWN_FIELDS = frozenset({"gpudiag_version", "started_at", "isolation", "probe", "kind", "rule", "url"})
"""Fields that gpudiag fills with names of its own: a user called ``fork`` must not change them."""

_COMMON_NAME = re.compile(
    r"\d+|admin|bench|build|builder|centos|container|cpu|cuda|data|debian|default|dev|docker|example|fedora|gpu|gpudiag|"
    r"guest|host|jenkins|jovyan|linux|local|localhost|memory|nobody|node|nvidia|python|root|runner|server|system|"
    r"tensorflow|test|ubuntu|unknown|user|vagrant|worker",
    re.IGNORECASE,
)
"""Names of users and hosts that say nothing about whose they are, and that texts use as words."""

_COMMON_FOLDERS = frozenset({"/", "/home", "/nonexistent", "/tmp", "/usr", "/usr/local"})  # noqa: S108  (nothing is written there)

_SEARCH_PATHS = ("PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD")
_OF_THE_SYSTEM = re.compile(r"/(?:bin|boot|dev|etc|lib\w*|opt|proc|run|sbin|sys|usr)(?:/|$)")
"""What lies there is named as everywhere."""

_SIMULATED_MACHINE = r"/[\w./-]{0,200}/gpudiag-sim-\w+"
"""The private folder of a simulated machine; its name is random."""

_BARE_UUID = r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
_UUID = re.compile(f"(?:GPU|MIG)-{_BARE_UUID}")
_UUID_CUT_SHORT = r"\b(?:GPU|MIG)-[0-9A-Fa-f][0-9A-Fa-f-]*(?![\w-])"
_PLACEHOLDER = re.compile(r"(?:GPU|MIG)-\d{1,3}|[<~].*", re.DOTALL)

_Rule = tuple[str, Callable[[str], str]]
"""A regular expression without groups, and what becomes of a text that it matches."""


def mask(report: Report) -> Report:
    """Return ``report`` with placeholders for names, paths and UUIDs. Its verdict stays; masking it again is idle.

    What to replace is taken from ``report.facts``. Where the family ``system`` is unknown, home folders are known by
    their usual places, and users and hosts are not known.
    """
    machine: _Rule = (_SIMULATED_MACHINE, _always(MACHINE))
    own = _path_rules(report.facts)
    rules = [*_uuid_rules(report), machine, *own, *_named_path_rules(report, own), *_name_rules(report.facts)]
    pattern = re.compile("|".join(f"({expression})" for expression, _ in rules))

    def replacement(match: re.Match[str]) -> str:
        return rules[(match.lastindex or 0) - 1][1](match[0])

    # In one pass over each text, so that no placeholder is taken for something to replace.
    masked: Report = _mapped(report, lambda text: pattern.sub(replacement, text))
    system = masked.facts.system
    if isinstance(system, Unknown):
        return masked
    system = msgspec.structs.replace(system, user=USER, hostname=HOST)
    return msgspec.structs.replace(masked, facts=msgspec.structs.replace(masked.facts, system=system))


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Return ``value`` with every string in it changed, except names of variables and what gpudiag named itself."""
    if isinstance(value, str) and not isinstance(value, Enum):
        return change(value)
    if isinstance(value, msgspec.Struct):
        names = [name for name in value.__struct_fields__ if name not in _OWN_FIELDS]
        return msgspec.structs.replace(value, **{name: _mapped(getattr(value, name), change) for name in names})
    if isinstance(value, dict):
        return {
            key if re.fullmatch(r"[A-Z][A-Z0-9_]*", key) else change(key): _mapped(item, change)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(_mapped(item, change) for item in value)
    return value


def _uuid_rules(report: Report) -> list[_Rule]:
    """Return the rules for UUIDs: as they are, as bare hexadecimal digits, and cut short."""
    devices = report.facts.nvml_devices
    named = [uuid for device in devices for uuid in (device.uuid, *device.mig_uuids)]
    named += [gpu.uuid for gpu in report.gpus]
    found = _UUID.findall(msgspec.json.encode(report).decode())
    uuids = dict.fromkeys(uuid.lower() for uuid in named + found if uuid and not _PLACEHOLDER.fullmatch(uuid))
    # Numbers of one length: CUDA takes beginnings of UUIDs, and GPU-1 would be one of GPU-10.
    digits = len(str(len(uuids)))
    numbers = Counter[str]()
    placeholders: dict[str, str] = {}
    spellings: dict[str, str] = {}
    for uuid in uuids:
        kind = "MIG" if uuid.startswith("mig-") else "GPU"
        numbers[kind] += 1
        placeholder = f"{kind}-{numbers[kind]:0{digits}}"
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
        str(Path(__file__).parent): PACKAGE,  # outside the environment in a checkout
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
    """Return the rules for the paths that the command line and the search paths name, the longest first."""
    words = (word.partition("=")[2] if word.startswith("-") and "=" in word else word for word in report.command)
    listed = (re.split("[: ]", report.facts.variables.get(name, "")) for name in _SEARCH_PATHS)
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
    """Return the rules for the host and the user: as words, or where that would tear ordinary texts, in paths alone."""
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
