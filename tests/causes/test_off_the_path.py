"""A library in a folder that the loader does not search: what is advised for one user, and for all."""

from __future__ import annotations

import pytest

from examples.hosts.libraries import example_absent, example_copy, example_facts
from gpudiag.cause import Evidence
from gpudiag.run.diagnosis import diagnose
from reports import fix_lines


@pytest.mark.parametrize(
    ("folder", "for_all"), [("/usr/local/cuda-12.6/lib64", True), ("/opt/conda/envs/r-reticulate/lib", False)]
)
def test_the_loader_of_all_programs_is_given_no_environment(folder: str, for_all: bool) -> None:
    """Every program of the machine would load the environment's libssl and libstdc++ in place of the system's."""
    library = example_absent("libcufft.so.11", example_copy("libcufft.so.11", folder))
    [cause] = diagnose(Evidence(example_facts(library))).causes
    assert cause.cause_id == "library_off_the_path"
    assert any("ld.so.conf.d" in line for line in fix_lines(cause)) is for_all
