"""The page of a report, by its structure: what is shown, that it is text, and that the page needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import itertools
import math
import re
from collections import Counter
from functools import cache
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

import gpudiag.report.page
from gpudiag.comparison.reports import ComparedReport, compare
from gpudiag.fix import note
from gpudiag.knowledge.placement import Placement
from gpudiag.model import codec
from gpudiag.model.diagnosis import Confidence, Diagnosis, RootCause, Stage, Step, StepStatus
from gpudiag.model.facts import DeviceNodeFacts, GpuProcess, NvmlFacts, ProcessIdentity, SystemFacts
from gpudiag.model.reading import SavedReading
from gpudiag.model.report import Finding, Judged, Limit, Report, Row, Severity, Timeline
from gpudiag.probes import listing
from gpudiag.report import comparison, render, words
from gpudiag.report.masking import mask
from gpudiag.report.page import machine, operations, pictures, probe_sections
from gpudiag.run import why
from reports import CAP_IGNORED, GPUS, HOSTILE, MISSPELT, hostile, passed, report, row, sample

ROOT = Path(__file__).parents[2]
SAVED = {name: codec.load(ROOT / "reports" / f"{name}.json") for name in ("eight-gpus", "diagnosis-library", "trace")}


def many_gpus(number: int) -> Report:
    """Return a report on many GPUs that use the same memory, and fail on the last."""
    gpus = tuple(
        msgspec.structs.replace(GPUS[0], index=index, uuid=f"GPU-{index}", pci_bus_id=f"0000:{index:02x}:00.0")
        for index in range(number)
    )
    rows = [
        msgspec.structs.replace(
            row("memory.growth", passed("", *([CAP_IGNORED] if gpu is gpus[-1] else []), on=(gpu,)), gpu),
            timelines=(Timeline(gpu.uuid, 1.0, ((0, 0), (500, (100 + gpu.index) << 20))),),
            began_s=1.0,
        )
        for gpu in gpus
    ]
    return report(*rows, gpus=gpus)


REPORTS = {
    **SAVED,
    "sample": sample(),
    "hostile": hostile(),
    "empty": report(),
    "frozen": codec.load(ROOT / "tests" / "data" / "report-v1.json"),
    "interrupted": report(row("a.b", passed(on=GPUS[:1]), GPUS[0]), gpus=GPUS, signal=2),
    "no GPU": codec.load(ROOT / "reports" / "cpu-only.json"),
    "32 GPUs": many_gpus(32),
}
COMPARISONS = {
    "two machines": (SAVED["eight-gpus"], REPORTS["no GPU"]),
    "two hostile machines": (REPORTS["no GPU"], REPORTS["hostile"]),
    "nothing": (SAVED["eight-gpus"], SAVED["eight-gpus"]),
}
PAGES = [*REPORTS, *COMPARISONS]
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
        self.title = ""
        self.folded: list[dict[str, str]] = []
        """The attributes of the elements in what is folded."""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add(tag, attrs)
        if tag not in VOID or (tag == "path" and self.get_starttag_text()[-2:] != "/>"):  # type: ignore[index]
            self._open.append("fold" if ("class", "fold") in attrs else tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add(tag, attrs)

    def _add(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.elements.append((tag, attributes))
        if "fold" in self._open:
            self.folded.append(attributes)

    def handle_endtag(self, tag: str) -> None:
        if tag == "rect" and self._open[-1] != "rect":  # with a title in it
            return
        assert self._open.pop().replace("fold", "details") == tag, (tag, self._open[-3:])

    def handle_data(self, data: str) -> None:
        if self._open[-2:] == ["head", "title"]:
            self.title += data
        elif self._open and self._open[-1] not in ("script", "style"):
            self.text.append(data)

    def values(self, name: str) -> list[str]:
        return [attributes[name] for _, attributes in self.elements if name in attributes]

    @property
    def shown(self) -> str:
        return " ".join(" ".join(self.text).split())


@cache
def html(name: str) -> str:
    if name in COMPARISONS:
        old, new = (ComparedReport(shown, f"{ATTACK}.json") for shown in COMPARISONS[name])
        return comparison.render(compare(old, new), "html", width=80, color=False)
    return render(REPORTS[name], "html", width=80, color=False)


@cache
def page(name: str) -> Page:
    return Page(html(name))


@pytest.mark.parametrize("name", PAGES)
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


@pytest.mark.parametrize("name", PAGES)
def test_names_are_unique_and_links_lead_somewhere(name: str) -> None:
    found = page(name)
    names = found.values("id")
    assert [anchor for anchor, number in Counter(names).items() if number > 1] == []
    assert {link[1:] for link in found.values("href") if link.startswith("#")} <= set(names)
    assert set(found.values("aria-labelledby")) <= set(names)


@pytest.mark.parametrize("name", PAGES)
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


@pytest.mark.parametrize("name", PAGES)
def test_without_javascript_nothing_is_hidden_but_what_needs_it(name: str) -> None:
    hidden = [(tag, attributes.get("class")) for tag, attributes in page(name).elements if "hidden" in attributes]
    assert set(hidden) <= {("button", "copy"), ("form", "filter")}


def test_the_first_words_are_the_answer() -> None:
    shown = page("diagnosis-library").shown
    cause, fix = SAVED["diagnosis-library"].diagnosis.causes[0].cause, "pip install 'tensorflow[and-cuda]==2.21.0'"
    assert "FAIL " + cause in shown
    assert shown.index(cause) < shown.index(fix) < shown.index("What was looked at") < shown.index("Probes")
    assert "library check failed" in shown
    assert "Fix what failed, then: gpudiag check" in page("sample").shown


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("diagnosis-library", f"{SAVED['diagnosis-library'].diagnosis.causes[0].cause} · FAIL"),
        ("eight-gpus", "PASS: 8 of 8 simulated GPUs verified"),  # made with --mask: without its host
        ("no GPU", "No NVIDIA GPU in this machine: nothing to fix · NOT VERIFIED"),
        ("32 GPUs", f"memory.growth: {CAP_IGNORED.message} · FAIL"),
        ("interrupted", "The run was stopped before all probes had run · NOT VERIFIED"),
        ("trace", "3 findings on how the program uses its GPUs; 3 settings: 3 had no effect · program"),
        ("two machines", "Worse: the verdict, 8 GPUs · gpudiag diff"),
        ("nothing", "Nothing has changed · gpudiag diff"),
    ],
)
def test_the_title_is_the_answer(name: str, title: str) -> None:
    found = page(name)
    assert found.title == title
    (heading,) = re.findall(r"<h1[^>]*>(.*?)</h1>", html(name))
    assert title.startswith(unescape(heading).rstrip("."))


def test_a_pass_names_its_host_unless_the_report_is_masked() -> None:
    shown = report(row("a.b", passed("", MISSPELT, on=GPUS), *GPUS), gpus=GPUS)
    assert isinstance(shown.facts.system, SystemFacts)
    host = shown.facts.system.hostname
    sentence = "PASS: 2 of 2 GPUs verified, with 1 warning"
    assert Page(render(shown, "html", width=80, color=False)).title == f"{sentence} · {host}"
    assert Page(render(mask(shown), "html", width=80, color=False)).title == sentence


def test_a_cause_that_explains_nothing_does_not_name_the_page() -> None:
    failed = report(row("a.b", passed("", CAP_IGNORED, on=GPUS), *GPUS), gpus=GPUS)
    cause = RootCause("x", Stage.CONFIGURATION, Confidence.POSSIBLE, "x may be so", (), (note("Do it."),), "")
    shown = msgspec.structs.replace(failed, diagnosis=Diagnosis(causes=(cause,)))
    found = Page(render(shown, "html", width=80, color=False))
    assert found.title == f"a.b: {CAP_IGNORED.message} · FAIL"
    assert found.shown.count(CAP_IGNORED.message) == 2  # at the top, and in the probe's section
    assert f"FAIL a.b: {CAP_IGNORED.message} Do this {CAP_IGNORED.fix[0].note} found by a.b" in found.shown
    assert "Also found x may be so Do this Do it." in found.shown
    proved = msgspec.structs.replace(cause, stage=Stage.DRIVER, confidence=Confidence.PROVED)
    for diagnosis in (Diagnosis((Step(Stage.DRIVER, StepStatus.FAILED),), (cause,)), Diagnosis(causes=(proved,))):
        named = msgspec.structs.replace(shown, diagnosis=diagnosis)
        assert Page(render(named, "html", width=80, color=False)).title == "x may be so · FAIL"


def test_what_passed_is_folded_and_what_did_not_is_open() -> None:
    assert [row.probe for row in SAVED["eight-gpus"].rows if row.status in ("fail", "warning", "broken")] == []
    for name in ("eight-gpus", "diagnosis-library", "32 GPUs", "sample"):
        found = page(name)
        articles = [
            attributes for _, attributes in found.elements if "data-outcomes" in attributes and "id" in attributes
        ]
        for attributes in articles:
            is_wrong = bool({"fail", "warning", "broken"} & {*attributes["data-outcomes"].split()})
            assert (attributes in found.folded) is not is_wrong, attributes
    assert {"class": "chart"} in page("eight-gpus").folded
    assert "8 probes: 8 pass" in page("diagnosis-library").shown
    assert {"class": "chart"} not in page("32 GPUs").folded


@pytest.mark.parametrize("name", REPORTS)
def test_a_line_to_copy_is_a_command_and_nothing_else(name: str) -> None:
    copied = re.findall(r'<div class="command"><pre><code>(.*?)</code></pre>', html(name), re.DOTALL)
    shown = REPORTS[name]
    fixes = [cause.fix for cause in shown.diagnosis.causes]
    fixes += [finding.fix for row in shown.rows for finding in row.findings]
    actions = [action.command for fix in fixes for action in fix]
    commands = {" ".join(command.split()) for command in (*actions, words.next_of(shown).command)}
    assert {" ".join(unescape(text).split()) for text in copied} <= commands
    assert [text for text in copied if "\n" in text or " # " in text] == []


def test_of_a_log_the_cause_is_said_once() -> None:
    explained = why.explained(("libcudart.so.12: cannot open shared object file: No such file or directory",), ())
    found = Page(render(explained, "html", width=80, color=False, head=True))
    (cause, *_) = explained.diagnosis.causes
    assert found.shown.count(cause.cause) == 1
    assert found.title == f"{cause.cause} · log"
    assert "The log does not say why; one possible cause" in found.shown
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


def linear_of(color: str) -> list[float]:
    """Return red, green and blue of a colour such as ``#1d5b9f``, in linear light."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def contrast(color: str, other: str) -> float:
    """Return the contrast of two colours as WCAG 2 defines it: 1 to 21."""

    def luminance(color: str) -> float:
        weights = (0.2126, 0.7152, 0.0722)
        return sum(weight * part for weight, part in zip(weights, linear_of(color), strict=True))

    dark, light = sorted(map(luminance, (color, other)))
    return (light + 0.05) / (dark + 0.05)


CONES = (
    ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
)
"""What is seen with all cones, and without those for long, middle and short waves (Machado 2009), in linear RGB."""


def lab(color: str, cones: tuple[tuple[float, ...], ...]) -> tuple[float, float, float]:
    """Return a colour in CIELAB, as it is seen with these cones."""
    linear = linear_of(color)
    red, green, blue = (
        min(1, max(0, sum(weight * part for weight, part in zip(line, linear, strict=True)))) for line in cones
    )
    space = (
        (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505,
        0.2126 * red + 0.7152 * green + 0.0722 * blue,
        (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089,
    )
    x, y, z = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in space)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


OUTCOMES = ("pass", "note", "warning", "fail", "broken", "skipped")


@pytest.mark.parametrize("name", ["light", "dark", "print"])
def test_texts_can_be_read(name: str) -> None:
    """WCAG AA asks for 4.5."""
    colors = palettes()[name]
    pairs = [(text, on) for text in ("ink", "muted", "accent") for on in ("page", "card", "code")]
    pairs += [(outcome, on) for outcome in OUTCOMES for on in ("page", "card", f"{outcome}-tint")]
    low = {f"{text} on {on}": round(contrast(colors[text], colors[on]), 2) for text, on in pairs}
    assert {pair: ratio for pair, ratio in low.items() if ratio < 4.5} == {}


@pytest.mark.parametrize("name", ["light", "dark", "print"])
def test_the_lines_of_gpus_can_be_told_apart(name: str) -> None:
    """WCAG asks for a contrast of 3 for a line; a difference of 20 in CIELAB is plain, whichever cones are missing."""
    colors = palettes()[name]
    lines = [colors[f"gpu-{number}"] for number in range(pictures.COLORS)]
    assert min(contrast(color, colors["card"]) for color in lines) >= 3
    for cones in CONES:
        seen = [lab(color, cones) for color in lines]
        assert min(math.dist(*pair) for pair in itertools.combinations(seen, 2)) >= 20


def test_every_gpu_has_a_line_of_its_own_and_its_name_below_the_chart() -> None:
    (chart,) = (pictures.of_probe(REPORTS["32 GPUs"], REPORTS["32 GPUs"].rows),)
    assert chart is not None
    assert [name for name, _ in chart.legend] == [f"GPU {number}" for number in range(32)]
    assert len({style for _, style in chart.legend}) == 32
    style = (PAGE / "style.css").read_text(encoding="utf-8")
    classes = {name for _, classes in chart.legend for name in classes.split()} - {"d0"}  # drawn through
    assert [name for name in classes if not re.search(rf"\.{name} \{{", style)] == []


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
    chart = pictures.chart("x", [("GPU 0", [(0.0, 1 << 20)], (), 0)], [("memory_limit", 1 << 40)], 1.0)
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
