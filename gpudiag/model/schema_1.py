"""Fixes as schema 1 wrote them, lines of text with a comment, read as actions.

Reports of schema 1 are upgraded here when they are read. The catalogue still declares its fixes as such lines, too:
they become actions when a cause or a finding is made, and no other code reads their text.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import msgspec

from gpudiag.fix import Action, Kind, Role, Where
from gpudiag.model.reading import upgraded_reading

_COMMENT = re.compile(r"^#|(?<!\s)\s+#(?=\s)")
_ACCEPTED = re.compile(r"Accepted until \S+ by (?P<source>.*?): ", re.DOTALL)
_SEE_THE_CAUSE = re.compile(r"See the cause (?P<cause>\w+): (?P<line>.*)", re.DOTALL)
_NO_ADVICE = "See the cause at the top of the report."

_HARMFUL = (
    (
        Kind.REBOOT,
        re.compile(
            r"\b(?:sudo|and|or|then|a reset or a|often a|[:;]) reboot\b|^reboot\b|\bwsl --shutdown\b|"
            r"\brestart the computer\b|\bswitch (?:the machine|it) off and on\b"
        ),
    ),
    (Kind.RESET_GPU, re.compile(r"\bnvidia-smi (?:--gpu-reset|-r)\b|\bif a reset\b")),
    (Kind.RELOAD_DRIVER, re.compile(r"\brmmod\b|\bmodprobe -r\b")),
    (
        Kind.CHANGE_DRIVER,
        re.compile(
            r"\binstall\b[^#;&|]{0,80}\b(?:nvidia-(?:driver|dkms|open|kernel)|cuda-drivers)|\bubuntu-drivers install\b|"
            r"\binstall the driver again\b|\bmokutil --(?:import|disable)|/etc/modprobe\.d/|\bupdate-initramfs\b|"
            r"/sys/bus/pci/drivers/"
        ),
    ),
    (
        Kind.REMOVE,
        re.compile(
            r"\b(?:pip|conda|apt|apt-get|dnf|yum|zypper|snap) (?:-\S{1,20} )?"
            r"(?:uninstall|remove|erase|purge|autoremove)\b|"
            r"\bpacman -R|\bnvidia-uninstall\b|(?:^|[;&|:] ?|sudo |RUN )rm |"
            r"^# (?:and |or |in a container: )?(?:remove|delete) (?:that|the|every|its|what)\b(?!.{0,300}__pycache__)"
        ),
    ),
    (Kind.END_PROCESS, re.compile(r"(?:^|[;&|] ?|sudo )(?:kill|pkill|killall) ")),
)
"""Actions that could do harm, recognised by the command and by the comment beside it."""
_KINDS = (
    (Kind.SET_VARIABLE, re.compile(r"(?:export|unset) |ENV |conda env config vars ")),
    (Kind.START_CONTAINER, re.compile(r"(?:docker|podman|nerdctl|apptainer|singularity|srun|sbatch|salloc|kubectl) ")),
    (
        Kind.INSTALL,
        re.compile(r"(?:python3? -m |sudo )?(?:pip|conda|mamba|apt|apt-get|dnf|zypper) (?:-y )?install "),
    ),
    (Kind.EDIT_PROGRAM, re.compile(r"(?:import |from |with |@|tf\.|os\.|strategy\b|gpus\b|options\b)")),
)
_NAME = re.compile(r"[A-Za-z_]\w*")
_MADE_BY_SHELL = re.compile(r"[$`<>;&|*]|\.\.\.")
_LOOKS = re.compile(
    r"(?:sudo )?(?:nvidia-smi(?: -[qLil]\b.*|$| --query\S*.*)|dmesg|journalctl|ls|cat|grep|ldd|lspci|lsmod|ps|df|"
    r"mokutil --sb-state|modinfo|pip (?:check|list|show)|gpudiag|readelf|ldconfig -p)(?: |$)"
)
_ON_THE_HOST = re.compile(r"on the host(?: of this container)?(?:[:;,] |$)")


_OR = re.compile(r"or(?:[:,] ?|$)")


def action(line: str, change: dict[str, str | None] | None = None) -> Action:
    """Return a line of a fix as an action; its kind is guessed from its text."""
    command, *rest = _COMMENT.split(line, maxsplit=1)
    note = rest[0].strip() if rest else ""
    command = command.rstrip()
    kind = _kind(line, command)
    if change is None and kind is Kind.SET_VARIABLE:
        change = _change(command)
    role, where = _role(command, note, kind), _where(note, kind)
    if role in (Role.CHECK, Role.NOTE) and kind is Kind.COMMAND:
        kind = Kind.NONE
    if command and role is Role.ALTERNATIVE:
        note = _OR.sub("", note, count=1)
    return Action(
        command, _ON_THE_HOST.sub("", note, count=1) if where is Where.HOST else note, role, where, kind, change
    )


def _change(command: str) -> dict[str, str | None] | None:
    """Return the variables that a command sets or unsets; None if it does more, or if a shell computes the values."""
    if _MADE_BY_SHELL.search(command):
        return None
    try:
        verb, *words = shlex.split(command)
    except ValueError:  # a quote is not closed
        return None
    if verb == "unset" and all(map(_NAME.fullmatch, words)):
        return dict.fromkeys(words)
    pairs = [word.partition("=") for word in words]
    if verb == "export" and pairs and all(equals and _NAME.fullmatch(name) for name, equals, _ in pairs):
        return {name: value for name, _, value in pairs}
    return None


def advice(text: str) -> tuple[Action, ...]:
    """Return the advice of a finding, given as prose, as actions."""
    return (action(f"# {text}"),) if text else ()


def _kind(line: str, command: str) -> Kind:
    harmful = (kind for kind, pattern in _HARMFUL if pattern.search(line))
    others = (kind for kind, pattern in _KINDS if pattern.match(command))
    return next(harmful, None) or next(others, Kind.COMMAND)


def _role(command: str, note: str, kind: Kind) -> Role:
    if not command:
        return Role.NOTE
    if kind is Kind.COMMAND and _LOOKS.match(command):
        return Role.CHECK
    return Role.ALTERNATIVE if _OR.match(note) else Role.FIX


def _where(note: str, kind: Kind) -> Where:
    if _ON_THE_HOST.match(note):
        return Where.HOST
    return Where.PROGRAM if kind is Kind.EDIT_PROGRAM else Where.HERE


def upgraded(report: dict[str, Any]) -> dict[str, Any]:
    """Return the plain JSON of a report of schema 1 as one of schema 2.

    A value that schema 1 does not allow stays as it is: decoding the report then reports the fault.
    """
    for finding in _findings(report):
        _finding(finding)
    diagnosis = report.get("diagnosis")
    if isinstance(diagnosis, dict):
        for cause in (*_dicts(diagnosis.get("causes")), *_dicts(diagnosis.get("folded"))):
            _cause(cause)
        bisection = diagnosis.get("bisection")
        for change in _dicts(bisection.get("changes")) if isinstance(bisection, dict) else ():
            if isinstance(change.get("do"), str):
                line = change.pop("do")
                change["fix"] = _plain(action(line)) if line else None
    program = report.get("program")
    for setting in _dicts(program.get("settings")) if isinstance(program, dict) else ():
        if isinstance(setting.get("instead"), str):
            setting["instead"] = _plain(action(setting["instead"])) if setting["instead"] else None
    for row in _dicts(report.get("rows")):
        if row.get("devices") and isinstance(row.get("reading"), dict) and "operation_raised" not in row["reading"]:
            row["reading"] = upgraded_reading(str(row.get("probe")), row["reading"])
    report["schema_version"] = 2
    return report


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())


def _findings(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for row in _dicts(report.get("rows")):
        outcome = row.get("outcome")
        yield from _dicts(outcome.get("findings")) if isinstance(outcome, dict) else ()


def _finding(finding: dict[str, Any]) -> None:
    if not isinstance(finding.get("advice"), str):
        return
    text = finding.pop("advice")
    accepted = finding.get("accepted")
    if isinstance(accepted, dict) and isinstance(accepted.get("advice"), str):
        by = _ACCEPTED.match(text)
        accepted["source"] = by["source"] if by else ""
        text = accepted.pop("advice")
    if see := _SEE_THE_CAUSE.fullmatch(text):
        finding["cause"] = see["cause"]
        finding["fix"] = [_plain(action(see["line"]))]
    elif text.startswith(_NO_ADVICE):
        finding["fix"] = []
    else:
        finding["fix"] = [_plain(action) for action in advice(text)]


def _cause(cause: dict[str, Any]) -> None:
    """Upgrade a cause; the oldest reports do not say which line was tried: it is the one with the change."""
    for earlier, today in (("rule", "cause_id"), ("sure", "confidence")):
        if earlier in cause:
            cause[today] = cause.pop(earlier)
    lines, trial = cause.get("fix"), cause.get("trial")
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        return
    tried = trial.pop("line", "") if isinstance(trial, dict) else ""
    change = trial.get("change") if isinstance(trial, dict) else None
    cause["fix"] = [_plain(action(line, change if tried and line == tried else None)) for line in lines]


def _plain(value: Action) -> Any:
    return msgspec.to_builtins(value)
