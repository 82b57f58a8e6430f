"""An operation on a GPU that raises an error of the GPU or its libraries is a finding, wherever it is raised."""

from __future__ import annotations

import pytest

from conftest import Gpudiag
from gpudiag.model import codec
from gpudiag.model.report import Judged, Verdict
from gpudiag.probe import Raised

PROBES = {
    "discovery.first_op": "by itself",
    "memory.fraction": "in a graph",
    "visibility.mask_order": "in a copy of the process",
    "visibility.list_invalid": "in the second process",
}


def test_a_probe_whose_operation_raised_fails_and_is_not_broken(gpudiag: Gpudiag) -> None:
    fault = "call_fails=cublasCreate_v2:1"
    done = gpudiag("check", *PROBES, "--simulate", "2", "--fault", fault, "--bisect", "0", "-q", "-o", "r.json")
    assert done.returncode == 1, done.stderr
    report = codec.load(gpudiag.folder / "r.json")
    assert report.verdict is Verdict.FAIL
    for row in report.rows:
        if row.probe in PROBES:
            assert isinstance(row.outcome, Judged), row
            assert [finding.kind for finding in row.findings] == ["operation_failed"], row
            assert "InternalError: No blas support for stream" in row.findings[0].message
            assert any("InternalError" in line for line in row.log), "the traceback stays in the log"
    again = gpudiag("show", "r.json", "--rejudge", "--format", "json")
    assert codec.decode(again.stdout, "again").rows == report.rows


@pytest.mark.parametrize(
    ("message", "brief"),
    [
        (
            "Graph execution error:\n\nDetected at node 'p' defined at (most recent call last):\nNode: 'p'\n"
            "2 root error(s) found.\n  (0) INTERNAL: No blas support for stream\n\t [[{{node p}}]]\n\t [[p/_3]]\n"
            "  (1) INTERNAL: No blas support for stream\n\t [[{{node p}}]]\n0 successful operations.\n",
            "InternalError: No blas support for stream",
        ),
        (
            "Graph execution error:\n\nDetected at node p defined at (most recent call last):\n<stack traces>\n"
            "NCCL: unhandled system error\n\t [[{{node p}}]] [Op:__inference_step_1]",
            "InternalError: NCCL: unhandled system error",
        ),
        ("Graph execution error:", "InternalError: Graph execution error:"),
        ("No blas support", "InternalError: No blas support"),
    ],
)
def test_of_a_graph_the_error_itself_is_shown(message: str, brief: str) -> None:
    assert Raised("InternalError", message).brief == brief
