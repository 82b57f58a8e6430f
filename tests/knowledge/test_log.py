"""The table of messages: each text is recognised as it is printed, and none costs more than it must."""

from __future__ import annotations

import string
import time

import pytest

from gpudiag.knowledge import log
from gpudiag.knowledge.log import DEVICE_CREATED, DEVICE_FULL, MESSAGES, NO_HANDLE, Message, recognised

SAMPLES = {
    "": "some words",
    "m": "some words",
    "d": "12",
    "w": "word",
    "s": "/job:a/",
    "v": "12.5.1",
    "q": "quoted",
    "l": "/device:CPU:0, /device:CPU:1",
    "b": "0000:01:00.0",
    "p": "/home/someone/a.py",
}
TEXTS = [pytest.param(one, text, id=f"{one.name}: {text[:40]}") for one in MESSAGES for text in one.texts]
AROUND = (
    "{}",
    "W0000 00:00:1.2 7 file.cc:9] {}",
    "2026-01-31 12:00:00.5: E a/file.cc:9] {}",
    "\x1b[31m{}\x1b[0m",
    "E   {}.",
)


def printed(text: str) -> tuple[str, dict[str, str]]:
    """Return a line as a program prints this text, and its fields."""
    line = ""
    fields: dict[str, str] = {}
    for literal, name, kind, _ in string.Formatter().parse(text):
        line += literal
        if name is not None:
            line += SAMPLES[kind or ""]
            fields |= {name: SAMPLES[kind or ""]} if name else {}
    return line, fields


@pytest.mark.parametrize(("message", "text"), TEXTS)
@pytest.mark.parametrize("around", AROUND)
def test_a_text_is_recognised_as_it_is_printed(message: Message, text: str, around: str) -> None:
    line, fields = printed(text)
    found = {event.message: event for event in recognised(around.format(line))}
    assert message in found
    assert set(fields) >= set(found[message].fields) or text != message.texts[0]
    for name, value in fields.items():
        if around == "{}":
            assert found[message][name] == value


@pytest.mark.parametrize("message", [one for one in MESSAGES if one.pattern is not None], ids=lambda one: one.name)
def test_a_pattern_is_looked_up_by_words_that_a_line_can_have(message: Message) -> None:
    assert message.words
    assert message.texts == ()
    assert all(log._words(word) == {word} for word in message.words)


def test_names_are_given_once_and_what_is_shown_has_a_meaning() -> None:
    names = [one.name for one in MESSAGES]
    assert len(names) == len(set(names))
    assert [
        one.name for one in MESSAGES if one.worth in (log.Worth.HARMLESS, log.Worth.MISLEADING) and not one.meaning
    ] == []


def test_a_text_is_not_found_inside_a_longer_word() -> None:
    assert recognised("CUDA_ERROR_OUT_OF_MEMORY_X") == ()
    assert [event.message for event in recognised("CUDA_ERROR_OUT_OF_MEMORY: out of memory")] == [DEVICE_FULL]


def test_the_first_text_that_matches_gives_the_fields() -> None:
    made = (
        "Created device /job:localhost/replica:0/task:0/device:GPU:1 with 38000 MB memory:  -> device: 1, name: NVIDIA "
        "A100, pci bus id: 0000:02:00.0, compute capability: 8.0"
    )
    fields = {"number": "1", "mib": "38000", "pci": "0000:02:00.0"}
    (bare,) = recognised(made)
    (whole,) = recognised(f"I0000 00:00:1.2 7 gpu_device.cc:2043] {made}")
    assert (bare.message, bare.fields) == (DEVICE_CREATED, fields)
    assert (whole.message, whole.fields) == (DEVICE_CREATED, {"thread": "7", **fields})
    assert bare["thread"] == ""


def test_a_line_may_have_several_messages() -> None:
    line = "failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED: CUDA_ERROR_OUT_OF_MEMORY"
    assert {event.message for event in recognised(line)} == {NO_HANDLE, DEVICE_FULL}


def test_lines_without_a_message_cost_next_to_nothing() -> None:
    lines = [f"Epoch {number}: 125/1875 - loss: 0.{number} - accuracy: 0.91" for number in range(20_000)]
    began = time.thread_time()
    assert not any(map(recognised, lines))
    assert (time.thread_time() - began) / len(lines) < 50e-6  # measured: 4e-6
