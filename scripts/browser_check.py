"""Opens pages of reports in a real browser: takes screenshots, and fails on what is wrong in them.

    pip install playwright axe-playwright-python; apt-get install chromium
    python scripts/browser_check.py FOLDER [REPORT.json ...]

It writes to FOLDER, for each report (those of ``reports/`` if none is named), and for a comparison of two of them, the
page and screenshots: 1440 and 360 pixels wide, dark, without JavaScript, printed. It fails on errors of the console, on
anything that a page loads, on a page that is wider than the window, and on serious findings of axe-core. A hostile
report is among them. A report of a fleet (``gpudiag fleet merge RUN -o fleet.json``) is opened in the same way, and
its map and list are used by keys. The gate does without: it needs no browser.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from gpudiag.comparison.reports import ComparedReport, compare
from gpudiag.model import codec
from gpudiag.model.fleet import FleetReport
from gpudiag.model.report import Broken, NoReading, Report, Row, conclude
from gpudiag.report import comparison, render
from gpudiag.report import fleet as fleet_formats

REPORTS = Path(__file__).resolve().parent.parent / "reports"
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
WINDOWS = {"wide": (1440, "light", True), "narrow": (360, "light", True), "dark": (1440, "dark", True)}
"""Width, colours and whether there is JavaScript."""
BAD = ("serious", "critical")
MOST_FOR_AXE = 500_000
"""The largest page in bytes that axe-core reads: it took five minutes for the 20,000 elements of a fleet's page."""
LOG_BYTES = 10 << 20
ATTACK = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title = 'owned'\">"
NOISE = "\x1b[31mred\x1b[0m \x1b]0;title\x07 \u202ereversed שלום مرحبا </style></script></pre> {{ 7*7 }} " + "x" * 400


def hostile(report: Report) -> Report:
    """Return ``report`` with markup, scripts, escape sequences and text from right to left wherever others write."""
    text = f"{ATTACK} {NOISE}"

    def changed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: changed(item) for key, item in value.items()}
        return (
            [changed(item) for item in value] if isinstance(value, list) else text if isinstance(value, str) else value
        )

    rows = tuple(
        msgspec.structs.replace(
            row,
            probe=f"{row.area}.{row.name}{ATTACK}" if number % 9 == 0 else row.probe,
            outcome=Broken(NoReading.EXCEPTION, text) if number % 5 == 0 else row.outcome,
            log=(text,) * 20,
            reading=changed(row.reading),
        )
        for number, row in enumerate(report.rows)
    )
    rows += (Row("placement.log", (), Broken(NoReading.OUTPUT_FLOOD, text), 1.0, log=("line of a log " * 700_000,)),)
    lines = tuple(f"{text} {number}" for number in range(LOG_BYTES // len(text)))
    named = tuple(msgspec.structs.replace(gpu, name=f"{gpu.name}{ATTACK}") for gpu in report.gpus)
    return conclude(msgspec.structs.replace(report, rows=rows, lines=lines, notes=(text,), gpus=named))


def fleet_in(path: Path) -> FleetReport | None:
    """Return the report of a fleet in a file; None if the file has another report."""
    content = path.read_bytes()
    try:
        return msgspec.json.decode(content, type=FleetReport)
    except msgspec.ValidationError:
        return None


def misused(page: Any) -> Iterator[str]:
    """Use the map and the list of a fleet's page by keys, and yield what does not follow."""
    squares = page.locator("#squares")
    squares.focus()
    page.keyboard.press("ArrowDown")
    bad = page.locator("#squares i:not(.p)")
    if bad.count():
        name = bad.first.get_attribute("title").split(": ")[0]
        if name not in page.locator("#readout").inner_text():
            yield f"the arrow key does not lead to {name!r}, the first that did not pass"
        page.keyboard.press("Enter")
        shown = page.locator("#list tbody tr:visible").all_inner_texts()
        if not shown or not all(name in row for row in shown):
            yield f"Enter does not show {name!r} in the list, but {len(shown)} rows"
    page.locator("#find").fill("no such node anywhere")
    page.locator("#list tbody tr:visible").first.wait_for(state="hidden", timeout=30_000)


def faults(browser: Any, page_file: Path, name: str) -> Iterator[str]:
    """Open a page in each window, take its screenshots, and yield what is wrong."""
    from axe_playwright_python.sync_playwright import Axe

    url = page_file.as_uri()
    for window, (width, colors, script) in {**WINDOWS, "noscript": (1440, "light", False)}.items():
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=colors,
            java_script_enabled=script,
            bypass_csp=False,
        )
        page = context.new_page()
        said: list[str] = []
        page.on("console", lambda message, said=said: said.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error, said=said: said.append(str(error)))
        page.on("request", lambda request, said=said: said.append(request.url) if request.url != url else None)
        page.goto(url)
        page.screenshot(path=page_file.with_name(f"{name}-{window}-first.png"))
        if script and name != "hostile":
            page.screenshot(path=page_file.with_name(f"{name}-{window}.png"), full_page=True)
        if script:
            if page.title() == "owned":
                said.append(f"a script of the report ran: the title is {page.title()!r}")
            beyond = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            if beyond > 0:
                said.append(f"it is {beyond} pixels wider than the window")
            if page.locator("#squares").count():
                said += misused(page)
        if window == "wide":
            page.emulate_media(media="print")
            page.pdf(path=page_file.with_name(f"{name}-print.pdf"))
        context.close()
        yield from (f"{name}, {window}: {message}" for message in dict.fromkeys(said))
        if (
            script and width > 1000 and page_file.stat().st_size <= MOST_FOR_AXE
        ):  # in a page without the policy, under which no script but gpudiag's runs
            context = browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme=colors, bypass_csp=True
            )
            page = context.new_page()
            page.goto(url)
            page.evaluate("document.querySelectorAll('details').forEach((one, at) => { if (at < 12) one.open = true })")
            for found in Axe().run(page).response["violations"]:
                if found["impact"] in BAD:
                    where = found["nodes"][0]["target"]
                    yield f"{name}, {window}: axe {found['id']} ({found['impact']}, {len(found['nodes'])}): {where}"
            context.close()


def main() -> int:
    """Write pages and screenshots, say what is wrong, and return 1 if anything is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("reports", type=Path, nargs="*")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    options.folder.mkdir(parents=True, exist_ok=True)
    named = options.reports or [
        path for path in REPORTS.glob("*.json") if b'"schema_version"' in path.read_bytes()[:99]
    ]
    fleets = {path: fleet for path in named if (fleet := fleet_in(path)) is not None}
    pages = {path.stem: fleet_formats.render(fleet, "html", width=80, color=False) for path, fleet in fleets.items()}
    loaded = {path.stem: codec.load(path) for path in named if path not in fleets}
    if loaded:
        loaded["hostile"] = hostile(max(loaded.values(), key=lambda report: len(report.rows)))
        pages |= {name: render(report, "html", width=80, color=False) for name, report in loaded.items()}
        old, new = (ComparedReport(report, name) for name, report in (*loaded.items(),)[-2:])
        pages["diff"] = comparison.render(compare(old, new), "html", width=80, color=False)
    wrong = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, text in pages.items():
            page_file = (options.folder / f"{name}.html").resolve()
            page_file.write_text(text, encoding="utf-8")
            print(f"{name}: {page_file.stat().st_size >> 10} KiB", flush=True)
            wrong += list(faults(browser, page_file, name))
        browser.close()
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
