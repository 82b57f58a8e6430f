"""What a known message is: its texts as they are printed, what it is worth, what it means, and what to do.

A text has ``{field}`` where it varies:

    {x}    anything, up to 300 characters      {x:d}  digits             {x:w}  a word
    {x:s}  anything without a space            {x:v}  a version          {x:q}  anything without a quotation mark
    {x:b}  a PCI bus id                        {x:l}  all inside brackets {x:p}  an absolute path
    {}     anything that does not matter

What no text can express is a ``pattern``, with ``words`` of which a line must have one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from gpudiag.fix import Action


class Worth(str, Enum):
    """What a message is worth to somebody who looks for a fault."""

    HARMLESS = "harmless"
    """Looks like an error but is harmless."""
    MISLEADING = "misleading"
    """Names another fault than the one it follows from."""
    FAULT = "fault"
    SIGN = "sign"
    """Says what happened, good or bad."""


@dataclass(frozen=True, eq=False)
class Message:
    """A kind of line, whatever its figures."""

    name: str
    worth: Worth
    meaning: str
    """For a harmless or misleading one, what is said of it. For a fault with a fix, the cause: one sentence, a format
    string over the fields. A few words on the others."""
    texts: tuple[str, ...]
    """The first that matches gives the fields."""
    seen: str
    """Releases of TensorFlow, or the program, that print it."""
    pattern: str = ""
    """In place of texts, for what no text can express; :attr:`words` are then given by hand."""
    words: tuple[str, ...] = ()
    """Of a pattern: a line that it matches has one of these words (letters and ``_``), in lower case."""
    codes: Mapping[str, Message] = field(default_factory=dict)
    """By the field ``code``: the message that a code stands for; this one is for codes not known."""
    fix: tuple[Action, ...] = ()
    """Of one that explains itself: what to type, the likeliest first; format strings over the fields. A line that
    begins with ``#`` is a sentence."""
    possible: bool = False
    """True: other faults lead to the same words."""
    follows: bool = False
    """True: it follows from a fault that another line names; it is a cause only if no line does."""
    is_reason: bool = False
    """True: the operating system's own reason. It explains a line better than what a program concludes from it."""
    needs_device: bool = False
    """True: TensorFlow prints it only after it has made a GPU its device."""
    stage: str = ""
    """The first step of TensorFlow's way to a GPU that it breaks: the name of a :class:`gpudiag.model.report.Stage`."""
    url: str = ""


@dataclass(frozen=True, eq=False)
class Event:
    """A message in a line."""

    message: Message
    fields: dict[str, str]
    line: str
    """The whole line."""
    text: str
    """The part of it that matched, each space once."""

    def __getitem__(self, field: str) -> str:
        """Return a field; "" if this text of the message has none."""
        return self.fields.get(field, "")


class Family:
    """The messages of one file of the table, and what most of them have in common."""

    def __init__(self, title: str, *, stage: str = "FIRST_OP", seen: str = "2.18-2.21", url: str = "") -> None:
        self.title = title
        self.messages: list[Message] = []
        self._stage, self._seen, self._url = stage, seen, url

    def add(
        self,
        worth: Worth,
        name: str,
        *texts: str,
        meaning: str = "",
        seen: str = "",
        pattern: str = "",
        words: tuple[str, ...] = (),
        codes: Mapping[str, Message] | None = None,
        fix: tuple[Action, ...] = (),
        possible: bool = False,
        follows: bool = False,
        is_reason: bool = False,
        needs_device: bool = False,
        stage: str = "",
        url: str = "",
    ) -> Message:
        """Add a message to the table."""
        message = Message(
            name=name,
            worth=worth,
            meaning=meaning,
            texts=texts,
            seen=seen or self._seen,
            pattern=pattern,
            words=words,
            codes=codes or {},
            fix=fix,
            possible=possible,
            follows=follows,
            is_reason=is_reason,
            needs_device=needs_device,
            stage=stage or self._stage,
            url=url or self._url,
        )
        self.messages.append(message)
        return message

    def harmless(self, name: str, *texts: str, meaning: str, seen: str = "") -> Message:
        return self.add(Worth.HARMLESS, name, *texts, meaning=meaning, seen=seen)

    def misleading(
        self,
        name: str,
        *texts: str,
        meaning: str,
        seen: str = "",
        fix: tuple[Action, ...] = (),
        follows: bool = False,
        stage: str = "",
    ) -> Message:
        return self.add(
            Worth.MISLEADING, name, *texts, meaning=meaning, seen=seen, fix=fix, follows=follows, stage=stage
        )

    def sign(self, name: str, *texts: str, meaning: str = "", seen: str = "") -> Message:
        return self.add(Worth.SIGN, name, *texts, meaning=meaning, seen=seen)

    def fault(
        self,
        name: str,
        *texts: str,
        meaning: str = "",
        seen: str = "",
        codes: Mapping[str, Message] | None = None,
        fix: tuple[Action, ...] = (),
        possible: bool = False,
        follows: bool = False,
        is_reason: bool = False,
        needs_device: bool = False,
        stage: str = "",
        url: str = "",
    ) -> Message:
        return self.add(
            Worth.FAULT,
            name,
            *texts,
            meaning=meaning,
            seen=seen,
            codes=codes,
            is_reason=is_reason,
            needs_device=needs_device,
            fix=fix,
            possible=possible,
            follows=follows,
            stage=stage,
            url=url,
        )
