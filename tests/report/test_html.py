"""The page of a report, by its structure: what is shown, that it is text, and that the page needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

import gpudiag.report.page
from gpudiag.fix import note
from gpudiag.knowledge.placement import Placement
from gpudiag.model import codec
from gpudiag.model.facts import DeviceNodeFacts, GpuProcess, NvmlFacts, ProcessIdentity
from gpudiag.model.reading import SavedReading
from gpudiag.model.report import Finding, Judged, Limit, Report, Row, Severity, Timeline
from gpudiag.probes import listing
from gpudiag.report import render
from gpudiag.report.page import machine, operations, pictures, probe_sections
from gpudiag.run import why
from reports import CAP_IGNORED, GPUS, HOSTILE, hostile, passed, report, row, sample

ROOT = Path(__file__).parents[2]
SAVED = {name: codec.load(ROOT / "reports" / f"{name}.json") for name in ("eight-gpus", "diagnosis-library", "trace")}
REPORTS = {
    **SAVED,
    "sample": sample(),
    "hostile": hostile(),
    "empty": report(),
    "frozen": codec.load(ROOT / "tests" / "data" / "report-v1.json"),
}
VOID = {"meta", "br", "input", "rect", "line", "circle", "path"}
PAGE = Path(gpudiag.report.page.__path__[0])
LARGEST = 1_000_000
ATTACK = "<script>alert(1)</script><img src=x onerror=alert(1)>\" onclick='alert(1)' {{ 7*7 }}"


class Page(HTMLParser):
    """A page taken apart; it fails on an element that is not closed, or that closes another one."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID or (tag == "path" and self.get_starttag_text()[-2:] != "/>"):  # type: ignore[index]
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if tag == "rect" and self._open[-1] != "rect":  # with a title in it
            return
        assert self._open.pop() == tag, (tag, self._open[-3:])

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("script", "style"):
            self.text.append(data)

    def values(self, name: str) -> list[str]:
        return [attributes[name] for _, attributes in self.elements if name in attributes]

    @property
    def shown(self) -> str:
        return " ".join(" ".join(self.text).split())


@cache
def html(name: str) -> str:
    return render(REPORTS[name], "html", width=80, color=False)


@cache
def page(name: str) -> Page:
    return Page(html(name))


@pytest.mark.parametrize("name", REPORTS)
def test_it_loads_nothing_and_runs_nothing_else(name: str) -> None:
    text, found = html(name), page(name)
    assert {tag for tag, _ in found.elements} & {"link", "img", "iframe", "object", "embed", "base", "use"} == set()
    assert [link for link in found.values("href") if not link.startswith(("#", "https://"))] == []
    assert [
        tag for tag, attributes in found.elements if attributes.get("href", "").startswith("http") and tag != "a"
    ] == []
    assert found.values("src") == []
    assert [
        attribute
        for _, attributes in found.elements
        for attribute in attributes
        if attribute.startswith("on") or attribute == "style"
    ] == []
    assert not re.search(r"url\(|@import", text)
    (policy,) = [
        attributes["content"]
        for _, attributes in found.elements
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    for tag in ("style", "script"):
        (inline,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode() in policy
    assert policy.startswith("default-src 'none';")


def test_style_and_script_are_the_same_in_every_encoding() -> None:
    """Where standard output is not UTF-8, what is not ASCII becomes a reference, which they do not know."""
    assert all((PAGE / name).read_text(encoding="utf-8").isascii() for name in ("style.css", "script.js"))


@pytest.mark.parametrize("name", REPORTS)
def test_names_are_unique_and_links_lead_somewhere(name: str) -> None:
    found = page(name)
    names = found.values("id")
    assert [anchor for anchor, number in Counter(names).items() if number > 1] == []
    assert {link[1:] for link in found.values("href") if link.startswith("#")} <= set(names)
    assert set(found.values("aria-labelledby")) <= set(names)


@pytest.mark.parametrize("name", REPORTS)
def test_headings_are_in_order(name: str) -> None:
    levels = [int(tag[1]) for tag, _ in page(name).elements if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert [pair for pair in itertools.pairwise(levels) if pair[1] > pair[0] + 1] == []


@pytest.mark.parametrize("name", [name for name in REPORTS if name != "hostile"])
def test_every_probe_has_a_section_and_a_line_in_the_matrix(name: str) -> None:
    probes = {row.probe for row in REPORTS[name].rows}
    articles = [attributes for tag, attributes in page(name).elements if tag == "article" and "data-area" in attributes]
    lines = [
        attributes for tag, attributes in page(name).elements if tag == "tr" and attributes.get("class") == "probe"
    ]
    assert len(articles) == len(lines) == len(probes)
    assert [probe for probe in probes if probe not in page(name).shown] == []


@pytest.mark.parametrize("name", REPORTS)
def test_without_javascript_nothing_is_hidden_but_what_needs_it(name: str) -> None:
    hidden = [(tag, attributes.get("class")) for tag, attributes in page(name).elements if "hidden" in attributes]
    assert set(hidden) <= {("button", "copy"), ("form", "filter")}


def test_the_first_words_are_the_answer() -> None:
    shown = page("diagnosis-library").shown
    cause, fix = SAVED["diagnosis-library"].diagnosis.causes[0].cause, "pip install 'tensorflow[and-cuda]==2.21.0'"
    assert "FAIL This machine is not fine: 8 checks failed" in shown
    assert shown.index("This machine is not fine") < shown.index(cause) < shown.index(fix) < shown.index("Probes")
    assert "library check failed" in shown
    assert "PASS This machine is fine" in page("eight-gpus").shown
    assert "gpudiag check memory.fraction" in page("sample").shown


def test_of_a_log_the_cause_is_said_once() -> None:
    explained = why.explained(("libcudart.so.12: cannot open shared object file: No such file or directory",), ())
    found = Page(render(explained, "html", width=80, color=False, head=True))
    (cause, *_) = explained.diagnosis.causes
    assert found.shown.count(cause.cause) == 1
    assert " ".join(cause.fix[0].command.split()) in found.shown
    assert "Probes" not in found.shown


def test_what_a_report_holds_is_text() -> None:
    attacked = msgspec.structs.replace(
        hostile(), notes=(ATTACK,), lines=(ATTACK,), gpudiag_version=ATTACK, started_at=ATTACK, command=(ATTACK,)
    )
    rows = (
        *(
            msgspec.structs.replace(row, probe=ATTACK, reading=SavedReading({ATTACK: [ATTACK, {ATTACK: ATTACK}]}))
            for row in attacked.rows
        ),
        Row(
            "x.y",
            (ATTACK,),
            Judged((Finding(ATTACK, Severity.FAIL, ATTACK, (note(ATTACK),)),), (), ATTACK, ((ATTACK,), (ATTACK,))),
            1,
        ),
        Row("x.z", (), passed(), 1.0, placements=(Placement(ATTACK, ATTACK),), began_s=0.5),
        Row("x.w", (), Judged(limits=(Limit(ATTACK, 9),)), 1.0, timelines=(Timeline(ATTACK, 1.0, ((0, 1),)),)),
    )
    text = render(msgspec.structs.replace(attacked, rows=rows), "html", width=80, color=False)
    found = Page(text)
    assert [tag for tag, _ in found.elements].count("script") == 1
    assert ATTACK in found.shown
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", text)


def test_a_sequence_without_an_end_takes_no_markup_with_it() -> None:
    cut = report(row("a.b", passed("\x1b]0;never ended")), row("a.c", passed("\x07 the rest")))
    assert "the rest" in Page(render(cut, "html", width=80, color=False)).shown


def test_it_stays_small() -> None:
    long = "<word> " * 400
    rows = [
        Row(
            probe,
            (gpu.uuid,),
            Judged((msgspec.structs.replace(CAP_IGNORED, message=f"{probe} {long}", fix=(note(long),)),), (), long),
            1.0,
            reading=SavedReading({f"figure_{at}": f"{gpu.index} {at} {long}" for at in range(20)}),
            log=(long,) * 4,
            began_s=float(number),
            placements=(Placement("MatMul", "GPU:0"),) * 9,
            timelines=(Timeline(gpu.uuid, 9.0, tuple((at, at << 20) for at in range(200))),),
        )
        for number, probe in enumerate(listing.names())
        for gpu in (msgspec.structs.replace(GPUS[0], index=index, uuid=f"GPU-{index}") for index in range(8))
    ]
    gpus = tuple(msgspec.structs.replace(GPUS[0], index=index, uuid=f"GPU-{index}") for index in range(8))
    big = msgspec.structs.replace(report(*rows, gpus=gpus), lines=("x" * 1000,) * 1000, notes=(long,))
    text = render(big, "html", width=80, color=False)
    assert len(text.encode()) < LARGEST
    assert "more characters in the JSON" in text
    assert len(html("eight-gpus").encode()) < LARGEST / 4


# --- colours


def palettes() -> dict[str, dict[str, str]]:
    """Return the colours of the style: light, dark, and printed."""
    style = (PAGE / "style.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    found = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block)) for block in blocks]
    return dict(zip(("light", "dark", "print"), found, strict=True))


def contrast(color: str, other: str) -> float:
    """Return the contrast of two colours as WCAG 2 defines it: 1 to 21."""

    def luminance(color: str) -> float:
        parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    dark, light = sorted(map(luminance, (color, other)))
    return (light + 0.05) / (dark + 0.05)


OUTCOMES = ("pass", "note", "warning", "fail", "broken", "skipped")


@pytest.mark.parametrize("name", ["light", "dark", "print"])
def test_texts_can_be_read(name: str) -> None:
    """WCAG AA asks for 4.5."""
    colors = palettes()[name]
    pairs = [(text, on) for text in ("ink", "muted", "accent") for on in ("page", "card", "code")]
    pairs += [(outcome, on) for outcome in OUTCOMES for on in ("page", "card", f"{outcome}-tint")]
    low = {f"{text} on {on}": round(contrast(colors[text], colors[on]), 2) for text, on in pairs}
    assert {pair: ratio for pair, ratio in low.items() if ratio < 4.5} == {}


def test_the_style_has_one_palette_and_no_other_colour() -> None:
    style = (PAGE / "style.css").read_text(encoding="utf-8")
    outside = re.sub(r":root \{.*?\}", "", style, flags=re.DOTALL)
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b(?=[;, )])|rgba?\(|hsla?\(", outside) == []


# --- pictures


def test_memory_over_time_shows_the_use_the_limit_and_who_looked() -> None:
    mib = 1 << 20
    line = Timeline(GPUS[0].uuid, 2.0, ((0, 0), (500, 400 * mib), (1500, 800 * mib)), (600, 1500))
    disturbed = Row(
        "memory.cap", (GPUS[0].uuid,), Judged(limits=(Limit("fraction 0.5", 1000 * mib),)), 2.0, timelines=(line,)
    )
    chart = pictures.of_probe(report(disturbed, gpus=GPUS), [disturbed])
    assert chart is not None
    (course,) = chart.courses
    top = 1.15 * 1000
    assert course.path == f"M0 1000H0V1000H250V{round(1000 - 400_000 / top)}H750V{round(1000 - 800_000 / top)}H1000"
    assert course.looks == f"M300 {round(1000 - 400_000 / top)}h0M750 {round(1000 - 800_000 / top)}h0"
    (limit,) = chart.limits
    assert limit.y == pytest.approx(100 - 100_000 / top, abs=0.1)
    assert chart.text == "at most 800 MiB in use, 2.0 s; limit 1,000 MiB: fraction 0.5"


def test_a_limit_far_above_is_said_and_not_drawn() -> None:
    chart = pictures.chart("x", [("GPU 0", [(0.0, 1 << 20)], ())], [("memory_limit", 1 << 40)], 1.0)
    assert chart.limits == ()
    assert "far above it: memory_limit, 1,024 GiB" in chart.text


def test_the_run_shows_what_ran_at_the_same_time() -> None:
    rows = [
        msgspec.structs.replace(row("a.one", passed(), GPUS[0], s=2.0), began_s=1.0),
        msgspec.structs.replace(row("a.two", passed(), GPUS[0], s=1.0), began_s=2.0),
        msgspec.structs.replace(row("a.three", passed(), *GPUS, s=1.0), began_s=3.0),
    ]
    first, second = pictures.run_timeline(report(*rows, gpus=GPUS))
    assert (first.name, first.count, [bar.lane for bar in first.bars]) == ("GPU 0", 2, [0, 1, 0])
    assert (second.name, len(second.bars)) == ("GPU 1", 1)
    assert first.bars[0].x == pytest.approx(100 / 4.25, abs=0.01)
    assert first.bars[0].width == pytest.approx(200 / 4.25, abs=0.01)


def test_the_matrix_shows_on_which_devices_a_probe_ran() -> None:
    rows = (
        row("a.host", passed()),
        row("a.all", passed(), *GPUS),
        row("a.each", passed(), GPUS[0]),
        row("a.each", passed("", CAP_IGNORED), GPUS[1]),
    )
    lines = {section.name: section.cells for section in probe_sections.sections(report(*rows, gpus=GPUS))}
    assert lines["a.host"] == (probe_sections.Cell("pass"), None, None)
    assert lines["a.all"] == (None, probe_sections.Cell("pass", 2))
    assert lines["a.each"] == (None, probe_sections.Cell("pass"), probe_sections.Cell("fail"))


def test_a_machine_is_drawn_with_its_gpus_and_logical_devices() -> None:
    (bus,) = machine.buses(SAVED["eight-gpus"])
    assert [box.name for box in bus.boxes] == [f"GPU {number}" for number in range(8)]
    assert all(box.devices[0].startswith(f"GPU:{number} ") for number, box in enumerate(bus.boxes))
    peers = machine.peers(SAVED["eight-gpus"])
    assert peers is not None
    assert peers[1][0] == ("GPU 0", ("self", *["ok"] * 7))
    split = next(
        section for section in probe_sections.sections(SAVED["eight-gpus"]) if section.name == "logical.split_memory"
    )
    assert [(name, len(inside)) for name, inside in split.devices] == [("GPU 0", 2)]


def test_gpus_behind_one_switch_are_drawn_together() -> None:
    saved = SAVED["eight-gpus"]
    nodes, nvml = saved.facts.device_nodes, saved.facts.nvml
    assert isinstance(nodes, DeviceNodeFacts)
    assert isinstance(nvml, NvmlFacts)
    above = {
        device.pci_bus_id: ("0000:00:01.0", f"0000:{device.index // 6}0:00.0", f"0000:a{device.index}:00.0")
        for device in nvml.devices[:7]
    }
    process = GpuProcess(77, 20 << 30, holder=ProcessIdentity(user="anna", command="python train.py"))
    held = msgspec.structs.replace(nvml.devices[1], memory_used_bytes=40 << 30, processes=(process,))
    facts = msgspec.structs.replace(
        saved.facts,
        device_nodes=msgspec.structs.replace(nodes, bridges=above),
        nvml=msgspec.structs.replace(nvml, devices=(nvml.devices[0], held, *nvml.devices[2:])),
    )
    drawn = msgspec.structs.replace(saved, facts=facts)
    (domain,) = machine.buses(drawn)
    assert [box.name for box in domain.boxes] == ["GPU 7"]  # of which nothing is known
    (bridge,) = domain.below
    assert [box.name for box in bridge.boxes] == ["GPU 6"]  # alone behind its switch
    (switch,) = bridge.below
    assert (switch.name, len(switch.boxes)) == ("behind 0000:00:00.0", 6)
    assert [round(share.width) for share in switch.boxes[1].shares] == [25, 25]
    shown = Page(render(drawn, "html", width=80, color=False)).shown
    assert "20 GiB: process 77 (anna: python train.py)" in shown
    assert "behind 0000:00:01.0" in shown


# --- what was recorded


def test_the_recorded_timelines_show_what_the_probes_were_judged_by() -> None:
    saved = SAVED["eight-gpus"]
    growth = [row for row in saved.rows if row.probe == "memory.growth"]
    assert len(growth) == 8
    for grown in growth:
        assert isinstance(grown.reading, SavedReading)
        (line,) = grown.timelines
        assert line.gpu in grown.devices
        assert max(used for _, used in line.samples) >= grown.reading["pool"]["grown"]["used_bytes"]
        assert {grown.reading["pool"][name]["used_bytes"] for name in ("before", "grown")} <= {
            used for _, used in line.samples
        }
        assert len(line.looks) == 4  # before, first, grown, freed
        assert isinstance(grown.outcome, Judged)
        assert [limit.name for limit in grown.outcome.limits] == ["most that growth may take"]
    assert all(grown.began_s is not None for grown in saved.rows)


def test_timelines_survive_json_and_old_reports_have_none() -> None:
    saved = SAVED["eight-gpus"]
    assert codec.decode(codec.encode(saved), "test") == saved
    frozen: Report = REPORTS["frozen"]
    assert not any(row.timelines or row.began_s for row in frozen.rows)
    assert "Memory over time" not in page("frozen").shown
    assert "Memory over time" in page("eight-gpus").shown


def test_a_traced_program_is_shown_with_its_memory_and_settings() -> None:
    shown = page("trace").shown
    assert "3 findings on how the program uses its GPUs" in shown
    assert "Memory of the program" in shown
    assert "limit 1,423 MiB: what TensorFlow may take" in shown
    assert "Settings" in shown


def test_what_fell_back_is_counted_by_line() -> None:
    from gpudiag.model.program import Placed, ProgramTrace

    placed = (
        Placed("Conv2D", "CPU:0", 3, asked="GPU:0", line="/x/train.py:12", why="asked"),
        Placed("Conv2D", "CPU:0", 4, asked="GPU:0", line="/x/train.py:12", why="asked"),
        Placed("Where", "CPU:0", 2, line="/x/data.py:3", why="none"),
        Placed("MatMul", "GPU:0", 9),
    )
    traced = msgspec.structs.replace(report(), program=ProgramTrace(("python",), "exit status 0", 1.0, placed=placed))
    first, second = operations.fallbacks(traced)
    assert (first.name, first.number, first.share) == ("train.py:12", "7", 100.0)
    assert (second.name, second.text) == ("data.py:3", "Where: no device was asked for")
    assert "What ran on the CPU, by line" in Page(render(traced, "html", width=80, color=False)).shown


def test_hostile_words_are_shown_without_what_a_terminal_obeys() -> None:
    assert "red" in page("hostile").shown
    assert "\x1b" not in html("hostile")
    assert HOSTILE not in html("hostile")
