"""A gpudiag that travels with the check: over a real sshd, to a scratch folder that does not stay."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from packed import pack_wheel, pack_zipapp
from sshd import Sshd

from conftest import Gpudiag
from gpudiag.errors import UsageError
from gpudiag.fleet.shipping import Shipped

pytestmark = pytest.mark.starts

LIMIT = ("timeout", "-k", "1", "60")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with Sshd(tmp_path_factory.mktemp("sshd")).running() as server:
        yield server


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("packages")
    return {"pyz": pack_zipapp(folder), "whl": pack_wheel(folder)}


@pytest.fixture
def scratch(server: Sshd, tmp_path: Path) -> Path:
    """The folder for temporary files on the nodes."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    for name in ("n1", "n2", "n3"):
        server.on_node(name, f"export TMPDIR={folder} HOME={folder}; echo 'a login shell prints'")
    return folder


def words(server: Sshd, nodes: str, package: Path, *python: str) -> list[str]:
    before = ["fleet", "check", nodes, *server.options, "-o", "run", "--ship", str(package), "--format", "json"]
    return [*before, *(("--gpudiag", python[0]) if python else ())]


def rows(report: str) -> dict[str, tuple[str, str]]:
    return {row["node"]: (row["reason"] or row["verdict"], row["text"]) for row in json.loads(report)["rows"]}


@pytest.mark.parametrize("kind", ["pyz", "whl"])
def test_a_shipped_gpudiag_checks_a_node_and_nothing_stays(
    gpudiag: Gpudiag, server: Sshd, packages: dict[str, Path], scratch: Path, kind: str
) -> None:
    command = words(server, "n1", packages[kind], sys.executable)
    done = gpudiag(*command, "--", "host", "--simulate", "2")
    assert rows(done.stdout)["n1"][0] == "NOT VERIFIED", done.stderr  # rows of the host alone verify no GPU
    assert list(scratch.iterdir()) == []


def test_a_node_that_cannot_run_it_says_why(
    gpudiag: Gpudiag, server: Sshd, packages: dict[str, Path], scratch: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -s "$@"\n')  # without site-packages
    bare.chmod(0o755)
    done = gpudiag(*words(server, "n1", packages["whl"], str(bare)), "--", "host")
    reason, text = rows(done.stdout)["n1"]
    assert (reason, "ship gpudiag.pyz, which has them" in text) == ("no gpudiag", True), done.stderr
    gpudiag.folder.joinpath("run").rename(gpudiag.folder / "first")
    done = gpudiag(*words(server, "n2", packages["pyz"], "/no/python3"), "--", "host")
    reason, text = rows(done.stdout)["n2"]
    assert (reason, "/no/python3" in text) == ("no gpudiag", True), done.stderr
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("ending", ["deadline", "collector"])
def test_nothing_stays_of_a_check_that_was_ended(  # noqa: PLR0917  # fixtures
    gpudiag: Gpudiag,
    server: Sshd,
    packages: dict[str, Path],
    scratch: Path,
    tmp_path: Path,
    wait_until: Callable[[Callable[[], bool]], None],
    ending: str,
) -> None:
    deaf = tmp_path / "deaf"
    deaf.write_text(f"#!/bin/sh\ntrap '' TERM INT HUP\ntouch {tmp_path}/began\nwhile :; do sleep 0.2; done\n")
    deaf.chmod(0o755)
    command = [*words(server, "n3", packages["pyz"], str(deaf)), "--deadline", "0.1" if ending == "deadline" else "60"]
    collector = gpudiag.start(*command)
    wait_until((tmp_path / "began").exists)
    assert len(list(scratch.iterdir())) == 1
    if ending == "collector":
        os.kill(collector.pid, signal.SIGKILL)
    out, errors = collector.communicate(timeout=120)
    wait_until(lambda: not list(scratch.iterdir()))
    if ending == "deadline":
        assert rows(out)["n3"][0] == "timed out", errors


async def _received(shipped: Shipped, content: bytes) -> tuple[int | None, str]:
    from gpudiag.fleet.launcher import launch

    done = await launch(shipped.command(LIMIT, ("check",), ("cat",)), 60, given=content)
    return done.status, done.errors


def test_a_file_that_came_cut_short_is_not_started(packages: dict[str, Path]) -> None:
    import asyncio

    shipped = Shipped.of(packages["pyz"])
    status, errors = asyncio.run(_received(shipped, shipped.content[:-1]))
    assert (status, "cut short" in errors) == (126, True)


def test_what_is_no_gpudiag_is_not_shipped(tmp_path: Path, packages: dict[str, Path]) -> None:
    (tmp_path / "text.pyz").write_text("#!/bin/sh\n")
    (tmp_path / "half.whl").write_bytes(packages["whl"].read_bytes()[:100_000])
    for name, message in {
        "text.pyz": "damaged",
        "half.whl": "damaged",
        "gpudiag.tar.gz": "neither a zipapp",
        "none.whl": "cannot be read",
    }.items():
        with pytest.raises(UsageError, match=message):
            Shipped.of(tmp_path / name)
