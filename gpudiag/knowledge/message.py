"""The record of a known message: its texts as printed, its worth as evidence, its meaning, and the fix.

A text has ``{field}`` where it varies:

    {x}    anything, up to 300 characters      {x:d}  digits             {x:w}  a word
    {x:s}  anything without a space            {x:v}  a version          {x:q}  anything without a quotation mark
    {x:b}  a PCI bus id                        {x:l}  all inside brackets {x:p}  an absolute path
    {}     anything that does not matter

A message that no text can express has a ``pattern``, and ``words`` of which a line must have one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from gpudiag.fix import Action
from gpudiag.knowledge.fault import Confidence, Stage


class Worth(str, Enum):
    """The value of a message for finding a fault."""

    HARMLESS = "harmless"
    """Looks like an error but is harmless."""
    MISLEADING = "misleading"
    """Names another fault than the actual one."""
    FAULT = "fault"
    SIGN = "sign"
    """Reports an event, good or bad."""


@dataclass(frozen=True, eq=False)
class Message:
    """A kind of log line, regardless of the figures in it."""

    name: str
    worth: Worth
    meaning: str
    """The comment on a harmless or misleading message. For a fault with a fix, the cause: one sentence, a format string
    over the fields. A few words for any other message."""
    texts: tuple[str, ...]
    """The texts of the message; the first that matches gives the fields."""
    seen: str
    """The releases of TensorFlow, or the program, that print the message."""
    in_general: str = ""
    """The meaning without fields, for the manual; empty if the meaning has none."""
    pattern: str = ""
    """A regular expression for a message that no text can express; :attr:`words` are then given by hand."""
    words: tuple[str, ...] = ()
    """Words for the pattern, in lower case (letters and ``_``): a line that it matches has one of them."""
    codes: Mapping[str, Message] = field(default_factory=dict)
    """The message for each value of the field ``code``; this message itself is for unknown codes."""
    fix: tuple[Action, ...] = ()
    """For a message that is a cause by itself: the actions of the fix, the likeliest first; format strings over the
    fields."""
    confidence: Confidence = Confidence.LIKELY
    """How certain the cause is: only possible if other faults lead to the same message, or if it is a symptom."""
    symptom: bool = False
    """True if the message follows from a fault that another line names; it is a cause only if no line does."""
    is_reason: bool = False
    """True if the message is the operating system's own reason, which explains a line better than a program's
    conclusion."""
    needs_device: bool = False
    """True if TensorFlow prints the message only after it has made a GPU its device."""
    stage: Stage = Stage.FIRST_OP
    """The first stage that the fault breaks."""
    url: str = ""


@dataclass(frozen=True, eq=False)
class Event:
    """A message in a line."""

    message: Message
    fields: dict[str, str]
    line: str
    """The whole line of the log."""
    text: str
    """The part of the line that matched, with single spaces."""

    def __getitem__(self, field: str) -> str:
        """Return the value of a field; "" if the matching text does not have it."""
        return self.fields.get(field, "")


class MessageFamily:
    """The messages in one file of the table, and the values that most of them share."""

    def __init__(self, title: str, *, stage: Stage = Stage.FIRST_OP, seen: str = "2.18-2.21", url: str = "") -> None:
        self.title = title
        self.messages: list[Message] = []
        self._stage, self._seen, self._url = stage, seen, url

    def fault(
        self,
        name: str,
        *texts: str,
        worth: Worth = Worth.FAULT,
        meaning: str = "",
        in_general: str = "",
        seen: str = "",
        pattern: str = "",
        words: tuple[str, ...] = (),
        codes: Mapping[str, Message] | None = None,
        fix: tuple[Action, ...] = (),
        confidence: Confidence = Confidence.LIKELY,
        symptom: bool = False,
        is_reason: bool = False,
        needs_device: bool = False,
        stage: Stage | None = None,
        url: str = "",
    ) -> Message:
        """Add a message to the table: of a fault, unless ``worth`` says otherwise."""
        message = Message(
            name=name,
            worth=worth,
            meaning=meaning,
            in_general=in_general,
            texts=texts,
            seen=seen or self._seen,
            pattern=pattern,
            words=words,
            codes=codes or {},
            fix=fix,
            confidence=Confidence.POSSIBLE if symptom else confidence,
            symptom=symptom,
            is_reason=is_reason,
            needs_device=needs_device,
            stage=stage or self._stage,
            url=url or self._url,
        )
        self.messages.append(message)
        return message

    def harmless(
        self,
        name: str,
        *texts: str,
        meaning: str,
        seen: str = "",
        pattern: str = "",
        words: tuple[str, ...] = (),
    ) -> Message:
        return self.fault(name, *texts, worth=Worth.HARMLESS, meaning=meaning, seen=seen, pattern=pattern, words=words)

    def sign(
        self,
        name: str,
        *texts: str,
        meaning: str = "",
        seen: str = "",
        pattern: str = "",
        words: tuple[str, ...] = (),
        codes: Mapping[str, Message] | None = None,
    ) -> Message:
        return self.fault(
            name, *texts, worth=Worth.SIGN, meaning=meaning, seen=seen, pattern=pattern, words=words, codes=codes
        )

    def misleading(
        self,
        name: str,
        *texts: str,
        meaning: str,
        seen: str = "",
        fix: tuple[Action, ...] = (),
        symptom: bool = False,
        stage: Stage | None = None,
    ) -> Message:
        return self.fault(
            name, *texts, worth=Worth.MISLEADING, meaning=meaning, seen=seen, fix=fix, symptom=symptom, stage=stage
        )
