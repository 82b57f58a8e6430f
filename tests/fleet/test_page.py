"""The page of a fleet: what is on it, that nothing of a node is markup, and its size with ten thousand nodes."""

from __future__ import annotations

from html import unescape
from html.parser import HTMLParser

import msgspec
import pytest
from merged_fleets import failed, hostile_fleet, merged_fleet, missing, passed, small_fleet

from gpudiag.model.fleet import Answer, FleetReport, NoReport
from gpudiag.report.fleet import page, render

MOST_BYTES = 2_000_000
TEN_THOUSAND = 10_000


class Reader(HTMLParser):
    """The tags of a page, the squares of its map, and the rows of its list."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.squares: list[tuple[str, str]] = []
        self.rows: list[list[str]] = []
        self.texts: list[str] = []
        self._list = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        found = {name: value or "" for name, value in attrs}
        self.attributes |= set(found)
        self._list |= tag == "table" and found.get("id") == "list"
        if tag == "i" and "title" in found:
            self.squares.append((found["class"], found["title"]))
        if self._list and tag == "tr":
            self.rows.append([])
        if self._list and tag in {"td", "th"}:
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._list &= tag != "table"

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self._list and self.rows and self.rows[-1]:
            self.rows[-1][-1] += data.strip()


def read(report: FleetReport) -> Reader:
    return Reader(render(report, "html", width=80, color=False))


def test_each_node_has_a_square_and_a_row() -> None:
    found = read(small_fleet())
    assert ("p", "n1") in found.squares
    assert ("f", "n4: FAIL mask_hides_all") in found.squares
    assert ("r", "n5: NO REPORT timed out") in found.squares
    assert len(found.squares) == 10
    head, *rows = found.rows
    assert head[:4] == ["node", "rack", "verdict", "cause or reason"]
    assert ["n5", "r1", "NO REPORT", "timed out", "[12/71] discovery.logical_devices"] in rows
    assert sorted(row[0] for row in rows) == sorted(row.node for row in small_fleet().rows)
    assert rows[0][2] == "FAIL"
    assert rows[-1][2] == "PASS"


def test_the_answer_and_what_was_found_are_on_the_page() -> None:
    text = " ".join(" ".join(read(small_fleet()).texts).split())
    for part in (
        "10 nodes: 4 failed, 1 verified nothing, 2 gave no report",
        "What the nodes with a cause have in common",
        "driver 535.10",
        "3 of 3",
        "1 of 5",
        "unset CUDA_VISIBLE_DEVICES",
        "412 TFLOP/s",
        "median 610 TFLOP/s (-32 %)",
        "Changed since before",
        "n4: its port is taken",
        "ss -ltnp",
    ):
        assert part in text


def test_racks_are_in_natural_order_and_without_them_nodes_are_together_by_hundreds() -> None:
    racks = {f"n{number}": f"r{number}" for number in (10, 9, 2)}
    report = merged_fleet(*(passed(f"n{number}") for number in (10, 9, 2, 1)), racks=racks)
    assert [block.name for block in page.blocks(report)] == ["r2", "r9", "r10", "no rack"]
    report = merged_fleet(*(passed(f"n{number:03}") for number in range(250)))
    assert [(block.name, len(block.squares)) for block in page.blocks(report)] == [
        ("n000", 100),
        ("n100", 100),
        ("n200", 50),
    ]


def test_nothing_that_a_node_says_is_markup() -> None:
    hostile, harmless = read(hostile_fleet()), read(small_fleet())
    assert hostile.tags <= harmless.tags | {"details", "summary"}
    assert hostile.attributes <= harmless.attributes
    assert len(hostile.squares) == len(harmless.squares)
    assert len(hostile.rows) == len(harmless.rows)
    assert any("<script>alert(1)</script>" in text for text in hostile.texts)


def test_it_loads_nothing() -> None:
    text = render(small_fleet(), "html", width=80, color=False)
    assert "default-src 'none'" in unescape(text)
    assert not read(small_fleet()).attributes & {"src", "srcset", "style", "onclick", "onload"}
    assert "http" not in text.replace('http-equiv="Content-Security-Policy"', "")


@pytest.mark.parametrize("kind", ["mostly passed", "all failed", "all lost"])
def test_a_page_of_ten_thousand_nodes_is_small(kind: str) -> None:
    headline = "CUDA_VISIBLE_DEVICES hides every GPU of this machine: TensorFlow sees none of the 8 that the driver has"

    def answer(node: str, number: int) -> Answer:
        if kind == "all lost":
            return missing(node, NoReport.LOST, f"{headline} ({number})")
        if kind == "mostly passed" and number % 50:
            return passed(node)
        return failed(node, "library_missing", f"{headline} ({number})")

    names = [f"node{number:05}" for number in range(TEN_THOUSAND)]
    racks = {name: f"r{number // 32}" for number, name in enumerate(names)}
    report = merged_fleet(*(answer(name, number) for number, name in enumerate(names)), racks=racks)
    text = render(report, "html", width=80, color=False)
    assert len(text.encode()) <= MOST_BYTES
    assert text.count("</i>") >= TEN_THOUSAND
    assert text.count("\n<tr") + text.count("<tbody><tr") >= TEN_THOUSAND


def test_of_more_nodes_than_fit_the_worse_ones_are_shown_and_the_rest_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page, "MOST_NODES", 3)
    report = merged_fleet(passed("n1"), passed("n2"), passed("n3"), failed("n4"), missing("n5", NoReport.LOST))
    found = read(report)
    assert sorted(title.split(":")[0] for _, title in found.squares) == ["n1", "n4", "n5"]
    assert "2 more nodes are in the JSON and in the CSV." in " ".join(found.texts)


def test_simulated_nodes_and_expectations_are_in_the_answer() -> None:
    report = msgspec.structs.replace(
        small_fleet(),
        simulated=3,
        expected_by="fleet.toml",
        met=("flaky: 0, expected 0",),
        unmet=("fail: 4, expected 0",),
    )
    text = " ".join(read(report).texts)
    assert "SIMULATED GPUs on 3 nodes" in text
    assert "Expectations of fleet.toml" in text
    assert text.index("fail: 4, expected 0") < text.index("flaky: 0, expected 0")


def test_an_empty_fleet_has_a_page() -> None:
    assert "No node was asked for" in " ".join(read(merged_fleet()).texts)
