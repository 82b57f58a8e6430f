"""Statements beside a log: versions, the system and the GPU, as a person states or a tool prints them.

People who ask for help give them in the form of an issue (``### TensorFlow version``, ``- GPU model and memory: ...``),
or as the output of ``pip list``, ``pip freeze``, ``conda list``, ``nvidia-smi`` and ``nvcc --version``. TensorFlow's
own lines, which contain more, are read elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property

from gpudiag.knowledge.cards import NamedCard, cards
from gpudiag.record import Record
from gpudiag.text import one_line

_LONGEST = 300
"""The most letters of a line that is read: statements are short."""
_VERSION = re.compile(r"(?<![\w.])v?(\d{1,3}(?:\.\d{1,4}){0,3})(?![\d])")
_MARKS = " \t#*-_>•`|:="
_FIELD = re.compile(
    r"^(?P<label>[A-Za-z][\w /.-]{1,40}?) ?(?:\([^()]{0,120}\))? ?[*_`]{0,3} ?(?::|=|\bis\b|-(?= ))(?P<value>.{0,240})$"
)
_SHORT = re.compile(
    r"(?i)^(?P<label>cuda(?: ?toolkit)?|cudnn|python|tensorflow(?:[ -]gpu)?)[ \t=v-]{1,4}"
    r"(?P<value>\d{1,3}(?:\.\w{1,12}){1,3})(?:[ -].{0,20})?$"
)
"""A field without a colon that is alone in its line: "CUDA v10.0"."""
_HEADING = re.compile(r"^\s{0,3}(?:#{1,6} |\*\*|- |\* )|:$")
_LABELS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("tensorflow", r"(?:tensor ?flow|tf)(?:[ -]gpu)?(?: (?:docker )?version)?|tensor ?flow(?:[ -]gpu)? v"),
        ("python", r"python(?: version)?"),
        ("both", r"cuda ?/ ?cudnn(?: versions?)?|cuda and cudnn(?: versions?)?"),
        ("cuda", r"cuda(?: ?toolkit)?(?: version)?"),
        ("cudnn", r"cudnn(?: version)?"),
        ("gpu", r"gpus?(?: model)?(?: (?:and|/) memory)?|graphics? card|video card"),
        ("system", r"os(?: platform)?(?: and distribution)?|operating system|platform|system"),
        ("machine", r"mobile device"),
        ("driver", r"(?:nvidia |gpu )?driver(?: version)?"),
    )
)
_PAIR = re.compile(r"^\D{0,8}v?(\d{1,2}(?:\.\d{1,3}){0,3})\D{0,4}[/,;&]\D{0,12}(\d{1,2}(?:\.\d{1,4}){0,3})")
_CUDA = re.compile(
    r"(?i)\bcuda(?: ?toolkit)?(?: ?version)?[ =:_-]{0,4}v?(\d{1,2}(?:\.\d{1,3}){1,2})\b|\brelease (\d{1,2}\.\d)\b"
)
_CUDNN = re.compile(r"(?i)\bcu?d?u?nn(?: ?version)?[ =:_-]{0,4}v?(\d(?:\.\d{1,4}){0,3})\b")
_NVCC = re.compile(r"Cuda compilation tools, release (\d{1,2}\.\d)")
_IMAGE = re.compile(r"\bnvidia/cuda:(\d{1,2}\.\d)")
_SMI = re.compile(
    r"NVIDIA-SMI \S{1,20} {1,60}Driver Version: (?P<driver>[\d.]{1,20}) {1,60}CUDA Version: (?P<cuda>[\d.]{1,8})"
)
_PACKAGE = re.compile(
    r"^(?P<name>[A-Za-z][\w.-]{0,60})(?:==|@|[ \t]{2,40}|\t)(?P<version>\d[\w.+!]{0,30})(?:[ \t]{1,40}\S{1,60}){0,2}$"
)
_CPU_BUILD = re.compile(r"\s(?:mkl|eigen|cpu)_py|=cpu_|\scpu_")
"""The mark of a CPU build in the build string that conda lists."""
_INSTALLED = re.compile(r"^Successfully installed (?P<all>.{1,4000})$")
_ONE_INSTALLED = re.compile(r"(?P<name>[A-Za-z][\w.-]{0,60}?)-(?P<version>\d[\w.+!]{0,30})$")
_LOGGED = re.compile(r"^(?:\d{4}-\d\d-\d\d[ T]|[IWEF]\d{4} |.{0,3}[IWEF] (?:tensorflow|external)/|\s*File \"|\[)")


_NO_CUDNN = (10,)
"""Version numbers from here on are CUDA's, not cuDNN's."""

# Words that deny, verbs of finding and using, and what is meant by a GPU.
_OF_A_COMPLAINT = re.compile(
    r"(?i)(?P<n>\bnot\b|n['\u2019]t\b|\bcannot\b|\b(?:ca|do|does|is|wo)nt\b|\bunable\b|\bfail(?:s|ed|ing)?\b|\bnever\b|"
    r"\bno longer\b|\bstop(?:s|ped)?\b|\bwithout\b|\brefuses\b)|"
    r"(?P<v>\b(?:detect|recogni[sz]|found\b|find|see\b|sees\b|seen\b|seeing\b|us(?:e|es|ed|ing)\b|utili[sz]|show|list|"
    r"access|support|locat|visible|identif|pick|work|run|available|compatib|connect)\w*)|"
    r"(?P<g>\bgpus?\b|\b(?:graphics?|video) cards?\b|\bcuda\b|\b[rg]tx ?\d{4})|(?P<other>[.!?](?=\s))"
)
_COMPLAINT = re.compile(r"nv{1,3}g|gv{0,2}nv")
"""The word order of a complaint: "does not find my GPU", "GPU is not used"."""
_SHORT_COMPLAINT = re.compile(
    r"(?i)\bno (?:\w{1,12} )?gpus? (?:\w{1,10} )?(?:available|found|detected|support|usage|listed|visible)\b|"
    r"\bgpu (?:usage|utili[sz]ation) (?:is |at |of )?(?:0|zero)\b|\b(?:only|just) (?:\w{1,10} ){0,2}(?:the )?cpu\b|"
    r"\b(?:runs?|running|trains?|training|works) (?:only )?(?:on|with) (?:the |my )?cpu\b|"
    r"\b(?:cpu )?instead of (?:the |my )?gpu\b|\bmissing gpus?\b"
)
_OF_CODE = re.compile(
    r"\.(?:cc|py|h):\d|^\s*(?:>>>|import |from |if |for |def |raise |assert |[\w.]{1,40} ?= ?[\w.]{0,60}\()|"
    r"\bprint\(|\.warn\("
)
_NO_GPU_THERE = re.compile(
    r"(?i)^\W{0,4}gpu[\w /]{0,30}[:=]\W{0,4}(?:none|no|n\.?/?a\.?|-)\W{0,4}$|"
    r"(?:^|[,;(])\W{0,4}(?:no|without(?: a)?) gpus?\W{0,4}(?:$|[,;)])|"
    r"\bI (?:do not|don['\u2019]t) have (?:a |an |any )?(?:nvidia )?gpu\b|"
    r"\bcpu[- ]only (?:node|machine|server|instance|computer|system)\b"
)
_WITHIN = 60
"""The most letters between two words of a complaint."""


class Statement(Record):
    """A value, and the line that states it."""

    value: str
    line: str


class StatedFacts:
    """Statements about a machine and its software; a value that the lines do not state is None or empty."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = [_kept(line) for line in lines if len(line) <= _LONGEST or "installed" in line[:30]]

    @cached_property
    def _fields(self) -> dict[str, Statement]:
        found: dict[str, Statement] = {}
        for kind, value, line in self._labelled():
            if value and kind not in found:
                found[kind] = Statement(value, one_line(line)[:_LONGEST])
        return found

    def _labelled(self) -> Iterator[tuple[str, str, str]]:
        """Yield kind, value and line of each field of a form; a value may be in the line after its label."""
        waits, label = "", ""
        for line in self._lines:
            text = line.strip(_MARKS)
            if waits:
                if not text or text.startswith("shell"):
                    continue
                if not _HEADING.match(line) or _VERSION.search(text):
                    yield waits, text, f"{label}: {text}"
                waits = ""
            if (short := _SHORT.match(text)) and (kind := _kind(short["label"].strip())):
                yield kind, short["value"], line
            elif (kind := _kind(text)) and not _FIELD.match(text):
                if _HEADING.search(line.rstrip()):
                    waits, label = kind, text
            elif (field := _FIELD.match(line.lstrip(_MARKS))) and (kind := _kind(field["label"].strip(_MARKS))):
                value = field["value"].strip(_MARKS)
                if value:
                    yield kind, value, line
                else:
                    waits, label = kind, field["label"]

    def _version_of(self, kind: str) -> Statement | None:
        field = self._fields.get(kind)
        number = _VERSION.search(field.value) if field else None
        return Statement(number[1], field.line) if field and number else None

    @cached_property
    def tensorflow(self) -> Statement | None:
        """The stated release of TensorFlow, such as ``2.10.0``."""
        for name in ("tensorflow", "tensorflow-gpu", "tensorflow-cpu", "tensorflow-intel", "tensorflow-macos"):
            if name in self.packages:
                return self.packages[name]
        return self._version_of("tensorflow")

    @cached_property
    def python(self) -> Statement | None:
        return self.packages.get("python") or self._version_of("python")

    @cached_property
    def cuda(self) -> Statement | None:
        """The installed CUDA version; not the newest that the driver supports, which nvidia-smi prints."""
        return self._toolkit(("cudatoolkit", "cuda-toolkit"), "cuda", _CUDA, 1)

    @cached_property
    def cudnn(self) -> Statement | None:
        found = self._toolkit(("nvidia-cudnn-cu12", "nvidia-cudnn-cu11", "cudnn"), "cudnn", _CUDNN, 2)
        return found if found and _numbers(found.value) < _NO_CUDNN else None

    def _toolkit(self, packages: tuple[str, ...], kind: str, pattern: re.Pattern[str], place: int) -> Statement | None:
        for name in packages:
            if name in self.packages:
                return self.packages[name]
        for line in self._lines if kind == "cuda" else ():
            if found := _NVCC.search(line):
                return Statement(found[1], line.strip())
            if found := _IMAGE.search(line):
                return Statement(found[1], line.strip())
        if (both := self._fields.get("both")) and "driver" not in both.value.lower():
            pair = _PAIR.match(both.value)
            alone = _VERSION.search(both.value) if kind == "cuda" and not pair else None
            if found := pair or pattern.search(both.value):
                number = found[place] if pair else next(filter(None, found.groups()))
                return Statement(number, both.line)
            if alone and _numbers(alone[1]) >= _NO_CUDNN[:1] and "." in alone[1]:
                return Statement(alone[1], both.line)
        if (field := self._version_of(kind)) or self.complaint is None or kind != "cuda":
            return field
        said = re.search(r"(?i)\bcuda[ -]?v?(\d{1,2}(?:\.\d)?)\b", self.complaint)
        return Statement(said[1], self.complaint) if said else None

    @cached_property
    def complaint(self) -> str | None:
        """The first line in which a person says that a GPU is not found or used, such as the title of an issue."""
        return next((one_line(line) for line in self._lines if _complains(line)), None)

    @cached_property
    def driver(self) -> Statement | None:
        """The version of the NVIDIA driver."""
        for line in self._lines:
            if found := _SMI.search(line):
                return Statement(found["driver"], one_line(line.strip("|+ ")))
        return self._version_of("driver")

    @cached_property
    def driver_cuda(self) -> str:
        """The newest CUDA version that the driver supports, as nvidia-smi prints it; "" if it does not print it."""
        found = next(filter(None, map(_SMI.search, self._lines)), None)
        return found["cuda"] if found else ""

    @cached_property
    def cards(self) -> tuple[tuple[NamedCard, str], ...]:
        """The GPUs, each with the line that names it, the newest GPU first."""
        named = {card.name.upper(): (card, one_line(line)[:_LONGEST]) for line in self._lines for card in cards(line)}
        return tuple(sorted(named.values(), key=lambda entry: _numbers(entry[0].capability), reverse=True))

    @property
    def prose(self) -> list[str]:
        """The short lines that no program logged: prose, statements and titles."""
        return [line for line in self._lines if line and not _OF_CODE.search(line)]

    @cached_property
    def has_no_gpu(self) -> bool:
        """True if the lines state that the machine has no GPU."""
        return any(map(_NO_GPU_THERE.search, self._lines))

    @cached_property
    def system(self) -> Statement | None:
        """The operating system that the lines name."""
        return self._fields.get("system") or self._fields.get("machine")

    @cached_property
    def packages(self) -> dict[str, Statement]:
        """The distributions that pip or conda list, by their normalized names."""
        found: dict[str, Statement] = {}
        for line in self._lines:
            if match := _PACKAGE.match(line.strip()):
                found[_canonical(match["name"])] = Statement(match["version"], one_line(line))
            elif several := _INSTALLED.match(line.strip()):
                for each in several["all"].split():
                    if match := _ONE_INSTALLED.match(each):
                        found[_canonical(match["name"])] = Statement(match["version"], each)
        return found

    @property
    def is_cpu_build(self) -> bool:
        """True if the only listed TensorFlow is one without GPU support."""
        listed = [
            self.packages[name] for name in ("tensorflow", "tensorflow-gpu", "tensorflow-base") if name in self.packages
        ]
        if any(_CPU_BUILD.search(statement.line) for statement in listed):
            return True
        return not listed and "tensorflow-cpu" in self.packages


def _kept(line: str) -> str:
    """Return a line unchanged, or "" for a line that a program logged, because other code reads those better."""
    return "" if _LOGGED.match(line) and "name:" not in line else line.replace("**", "").replace("`", "")


def _complains(line: str) -> bool:
    if _OF_CODE.search(line):
        return False
    if _SHORT_COMPLAINT.search(line):
        return True
    order, end = "", 0
    for found in _OF_A_COMPLAINT.finditer(line):
        order += "-" if found.start() - end > _WITHIN else ""
        order += found.lastgroup[0] if found.lastgroup else ""
        end = found.end()
    return _COMPLAINT.search(order) is not None


def _kind(label: str) -> str:
    return next((name for name, pattern in _LABELS if pattern.fullmatch(label)), "")


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
