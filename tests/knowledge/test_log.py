"""The table of messages: each text is recognised as it is printed, and none costs more than it must."""

from __future__ import annotations

import re
import string
from collections import defaultdict
from pathlib import Path

import pytest

from counting import lines_run
from examples.facts import example_with_gpus
from gpudiag.cause import Evidence
from gpudiag.causes import messages
from gpudiag.knowledge import log
from gpudiag.knowledge.expressions import needed_parts
from gpudiag.knowledge.log import recognised
from gpudiag.knowledge.message import Event, Message, Worth
from gpudiag.knowledge.messages import MESSAGES
from gpudiag.knowledge.messages.memory import DEVICE_FULL, NO_HANDLE
from gpudiag.knowledge.messages.way import DEVICE_CREATED
from gpudiag.run import diagnosis
from gpudiag.text import one_line

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
AROUND = (
    "{}",
    "W0000 00:00:1.2 7 file.cc:9] {}",
    "2026-01-31 12:00:00.5: E a/file.cc:9] {}",
    "\x1b[31m{}\x1b[0m",
    "E   {}.",
)


def event_of(message: Message, line: str) -> Event | None:
    return next((event for event in recognised(line) if event.message is message), None)


def composed(text: str) -> tuple[str, dict[str, str]]:
    """Return a line that is made of this text, and its fields."""
    line = ""
    fields: dict[str, str] = {}
    for literal, name, kind, _ in string.Formatter().parse(text):
        line += literal
        if name is not None:
            line += SAMPLES[kind or ""]
            fields |= {name: SAMPLES[kind or ""]} if name else {}
    return line, fields


PRINTED: dict[str, list[tuple[str, str]]] = defaultdict(list)
"""By a text of the table, or by the name of a message that has a pattern: its witnesses, with a line that each prints.

A witness is a program, its release, and the file and line that print the text, or the library that has it
(``tensorflow 2.21 xla/...`` is XLA's own folder), or the address of a public thread. In a line of a source something is
put in where it varies.
"""
for _row in Path(__file__).with_name("witnesses.tsv").read_text("utf-8").splitlines():
    _text, _witness, _line = _row.split("\t")
    PRINTED[_text].append((_witness, _line))
TEXTS = [(message, text) for message in MESSAGES for text in message.texts]
PATTERNS = [message for message in MESSAGES if message.pattern]
LINES = [(message, text, line) for message, text in TEXTS for _, line in PRINTED[text][:1]]
"""Of each text a line of its witness."""


WITHOUT_WITNESS = 14
"""Texts that no witness was found for yet. None is added: a new text comes with its witness."""


def test_each_text_names_a_witness_and_each_witness_has_a_text() -> None:
    names = {text for _, text in TEXTS} | {message.name for message in PATTERNS}
    witnessed = {text for text, lines in PRINTED.items() if lines}
    assert len(names - witnessed) <= WITHOUT_WITNESS
    assert witnessed - names == set()


def test_each_witness_is_a_thread_or_a_place_in_a_release() -> None:
    witnesses = {witness for lines in PRINTED.values() for witness, _ in lines}
    assert [each for each in witnesses if not each.startswith("https://") and len(each.split()) < 3] == []


@pytest.mark.parametrize("around", AROUND)
def test_a_text_is_recognised_as_its_witness_prints_it(around: str) -> None:
    lost = []
    for message, text, line in LINES:
        meant = {message, *message.codes.values()}
        if not meant & {event.message for event in recognised(around.format(line))}:
            lost.append((text, line))
    assert lost == []


def test_a_pattern_is_recognised_as_its_witness_prints_it() -> None:
    lost = []
    for message in PATTERNS:
        meant = {message, *message.codes.values()}
        if not any(meant & {event.message for event in recognised(line)} for _, line in PRINTED[message.name]):
            lost.append(message.name)
    assert lost == []


def test_a_text_gives_its_fields() -> None:
    """A text without a witness is tested here as well."""
    wrong = []
    for message, text in TEXTS:
        line, fields = composed(text)
        event = event_of(message, line)
        if event is None or any(event[name] != value for name, value in fields.items()):
            wrong.append((text, event and event.fields))
        elif text == message.texts[0] and event.fields.keys() > fields.keys():
            wrong.append((text, event.fields))
    assert wrong == []


def test_a_line_of_a_witness_gives_the_fields_of_the_first_text_that_it_matches() -> None:
    wrong = []
    for message, text, line in LINES:
        event = event_of(message, line)
        first = next(each for each in message.texts if log._prepared(message, 0, each).pattern.search(one_line(line)))
        names = {name for _, name, _, _ in string.Formatter().parse(first) if name}
        if event is not None and not names <= event.fields.keys():
            wrong.append((text, line, event.fields))
    assert wrong == []


@pytest.mark.parametrize("message", PATTERNS, ids=lambda message: message.name)
def test_a_pattern_is_looked_up_by_words_that_a_line_can_have(message: Message) -> None:
    assert message.words
    assert message.texts == ()
    assert all(log._words(word) == {word} for word in message.words)


def test_names_are_given_once_and_what_is_shown_has_a_meaning() -> None:
    names = [message.name for message in MESSAGES]
    assert len(names) == len(set(names))
    assert [
        message.name
        for message in MESSAGES
        if message.worth in (Worth.HARMLESS, Worth.MISLEADING) and not message.meaning
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
    names = {event.message.name for event in recognised(line)}
    assert names == {NO_HANDLE.name, DEVICE_FULL.name, "cublas_alloc_failed", "blas_failed"}


def test_lines_without_a_message_cost_next_to_nothing() -> None:
    lines = [f"Epoch {number}: 125/1875 - loss: 0.{number} - accuracy: 0.91" for number in range(2_000)]
    recognised("CUDA error: failed")  # the table is made once
    assert lines_run(lambda: [recognised(line) for line in lines]) < 20 * len(lines)
    assert not any(map(recognised, lines))


def named(*lines: str) -> list[str]:
    """Return the causes that these lines name by themselves."""
    evidence = Evidence(example_with_gpus(1), lines=lines)
    matches = messages.matches(evidence.program, evidence.origin)
    return [known.cause_of(match, evidence).cause for known, match in matches]


def test_a_message_that_explains_itself_is_told_and_no_other() -> None:
    wrong = {}
    for message, text, line in LINES:
        events = recognised(line)
        explained = [event for event in events if event.message.fix]
        causes = {event.message.meaning.format_map(defaultdict(str, event.fields)) for event in explained}
        if not set(named(line)) <= causes or (message.fix and len(events) == 1 and not named(line)):
            wrong[text] = named(line)
    assert wrong == {}


def test_a_harmless_line_is_no_cause() -> None:
    told = {text: named(line) for message, text, line in LINES if message.worth is Worth.HARMLESS}
    assert len(told) > 100
    assert {text: causes for text, causes in told.items() if causes} == {}


def test_what_explains_itself_is_whole() -> None:
    for message in (known for known in MESSAGES if known.fix):
        assert message.worth in (Worth.FAULT, Worth.MISLEADING), message.name
        assert message.url.startswith("https://") or not message.url, message.name
        texts = (message.meaning, *(text for action in message.fix for text in (action.command, action.note)))
        used = {name for text in texts for _, name, _, _ in string.Formatter().parse(text) if name}
        used -= {"release_of_both", "file"}
        for text in message.texts:
            assert used <= {name for _, name, _, _ in string.Formatter().parse(text)}, text


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected", "cuda_no_device"),
        ("CUDA failure: 100", "cuda_no_device"),
        ("CUDA error code (700)", "stray_access"),
        ("cudaErrorInsufficientDriver", "old_driver"),
        ("UNKNOWN ERROR (303)", "cuda_shared_object_init_failed"),
        ("CUDA error 4711", "cuda_number"),
        ("NVRM: Xid (PCI:0000:0b:00): 79, pid='<unknown>', GPU has fallen off the bus.", "xid_79"),
        ("NVRM: Xid (PCI:0000:0b:00): 145, RLW_CTRL", "xid_74"),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", "xid"),
        ("NVML_ERROR_GPU_IS_LOST", "device_handle_lost"),
        ("CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH", "cudnn_version_mismatch"),
        ("CUBLAS_STATUS_ARCH_MISMATCH", "cublas_arch_mismatch"),
        ("failed to run cuFFT routine: 2", "cufft_alloc_failed"),
    ],
)
def test_a_code_is_known_in_every_spelling(line: str, name: str) -> None:
    assert name in [event.message.name for event in recognised(line)]


def test_a_fault_that_another_line_names_is_not_told_twice() -> None:
    follows = "failed to query event: CUDA_X"
    assert len(named(follows)) == 1
    assert named(follows, "NVRM: Xid (PCI:0000:0b:00): 79, GPU has fallen off the bus.") == [
        "Xid 79: the GPU does not answer any more: it has fallen off the PCIe bus"
    ]


def test_what_another_cause_explains_is_left_to_it() -> None:
    lines = (
        "cuda_dnn.cc:522] Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.3.0.",
        "DNN library initialization failed. Look at the errors above for more details.",
    )
    diagnosed = diagnosis.diagnose(Evidence(example_with_gpus(1), lines=lines))
    assert [cause.cause_id for cause in (*diagnosed.causes, *diagnosed.folded)] == ["cudnn_too_old"]


def test_lines_with_words_of_messages_cost_little_more_than_others() -> None:
    """By how much is done, which the table's length must not change."""

    def cost(line: str) -> int:
        return lines_run(lambda: [recognised(line.format(number)) for number in range(2_000)])

    recognised("CUDA error: failed")  # the table is made once
    without = "Epoch {0}: 125/1875 - loss: 0.{0} - accuracy: 0.91 - a number of words that no message has"
    words = "step {0}: could not allocate memory for the device: failed to create a stream, cuda error"
    assert cost(words) < 20 * cost(without)


def test_every_match_has_the_parts_that_its_pattern_needs() -> None:
    lines = [one_line(line) for printed in PRINTED.values() for _, line in printed]
    for message in PATTERNS:
        needed = needed_parts(message.pattern)
        matches = [found[0].lower() for found in map(re.compile(message.pattern).search, lines) if found]
        assert matches, message.name
        assert all(any(part in match for part in parts) for match in matches for parts in needed), message.name


def test_lines_that_differ_only_in_figures_keep_their_own_fields_and_codes() -> None:
    lines = [
        f"CUDA error {code}, after libcudart.so.{code}: cannot open shared object file" for code in (700, 100, 999)
    ]
    events = [{(event.message.name, *event.fields.values()) for event in recognised(line)} for line in lines]
    for line, found in zip(lines, events, strict=True):
        log.recognised.cache_clear()
        assert found == {(event.message.name, *event.fields.values()) for event in recognised(line)} != set()
    assert len({frozenset(found) for found in events}) == len(lines)
