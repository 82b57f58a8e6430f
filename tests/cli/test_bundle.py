"""`gpudiag bundle` as a user runs it; what is in a bundle is tested beside the formats."""

from __future__ import annotations

from conftest import Gpudiag


def test_a_bundle_is_made_of_a_run(gpudiag: Gpudiag) -> None:
    done = gpudiag("bundle", "-o", "bug.zip", "--", "host.environment", "--quiet")
    assert (done.returncode, "bug.zip: " in done.stderr) == (0, True), done.stderr
    assert gpudiag("show", "bug.zip", "--format", "table").stdout.count("environment") == 1
    assert [path.name for path in gpudiag.folder.glob("*.zip")] == ["bug.zip"]
    assert gpudiag("bundle", "--", "no.such").returncode == 2
    assert not (gpudiag.folder / "gpudiag-bundle.zip").exists()
