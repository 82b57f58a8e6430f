"""Which CUDA code serves which GPU."""

from __future__ import annotations

import pytest

from gpudiag.knowledge.cuda_code import code_for

BUILT = ("sm_60", "sm_70", "sm_80", "sm_89", "compute_90")


@pytest.mark.parametrize(
    ("capability", "built", "machine_code", "ptx"),
    [
        ("6.1", BUILT, True, False),
        ("7.5", BUILT, True, False),
        ("8.6", BUILT, True, False),
        ("9.0", BUILT, True, True),
        ("10.0", BUILT, False, True),
        ("12.0", BUILT, False, True),
        ("5.2", BUILT, False, False),
        ("9.0", ("sm_90a",), True, False),
        ("10.0", ("sm_90a", "compute_90a"), False, False),
        ("10.3", ("sm_100",), True, False),
        ("8.0", ("sm_86",), False, False),
        ("8.0", ("a text nobody knows",), False, False),
    ],
)
def test_which_code_runs_on_a_gpu(capability: str, built: tuple[str, ...], machine_code: bool, ptx: bool) -> None:
    assert code_for(capability, built) == (machine_code, ptx)
