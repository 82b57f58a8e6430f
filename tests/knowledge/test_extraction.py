"""scripts/messages.py: the texts that sources can print, and what of them the table covers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import messages

CPP = r"""
// LOG(ERROR) << "a comment, which prints nothing";
void Work() {
  LOG(WARNING) << "Unable to enable peer access between device ordinals "
               << from << " and " << to << ", status: " << status;
  VLOG(0) << "printed at every level " << 7;
  VLOG(1) << "printed at no level that users see";
  LOG_FIRST_N(INFO, 3) << "said three times \"at most\"";
  return absl::InternalError(absl::StrFormat("ptxas exited with non-zero error code %d, output: %s", code, text));
}
absl::Status Other(int bytes) {
  if (f(a, b)) return errors::ResourceExhausted("OOM when allocating tensor of ", bytes, " bytes; ", "try less");
  return xla::Internal("a text that nobody knows: %s", name);
}
"""
PYTHON = """
def work(device):
  if device:
    raise ValueError("Memory growth cannot differ between GPU devices")
  raise RuntimeError("A text of {} that nobody knows".format(device) + " and its end")
  logging.warning("a warning about %s and more", device)
"""


def test_texts_of_cpp_are_joined_and_what_varies_is_marked() -> None:
    assert [(kind, text) for _, kind, text in messages.of_cpp(CPP)] == [
        ("WARNING", "Unable to enable peer access between device ordinals {} and {}, status:"),
        ("0", "printed at every level"),
        ("INFO", 'said three times "at most"'),
        ("error", "ptxas exited with non-zero error code {}, output:"),
        ("error", "OOM when allocating tensor of {} bytes; try less"),
        ("error", "a text that nobody knows:"),
    ]


def test_texts_of_python_likewise() -> None:
    assert sorted(text for _, _, text in messages.of_python(PYTHON)) == [
        "A text of {} that nobody knows and its end",
        "Memory growth cannot differ between GPU devices",
        "a warning about {} and more",
    ]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in {
        "tensorflow/core/common_runtime/gpu/gpu_device.cc": CPP,
        "tensorflow/core/common_runtime/gpu/gpu_device_test.cc": CPP.replace("Unable", "Not able"),
        "tensorflow/python/eager/context.py": PYTHON,
    }.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_a_checkout_is_counted(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = tmp_path / "messages.md"
    nccl, nverror = tmp_path / "nccl", tmp_path / "nverror.h"
    nccl.mkdir()
    (nccl / "shm.cc").write_text('WARN("NET/Socket : no interface found"); WARN("nothing that is known %d", 3);')
    nverror.write_text("#define GPU_HAS_FALLEN_OFF_THE_BUS    (79)\n#define RESERVED   (152)\n")
    monkeypatch.setattr(messages, "RESULT", result)
    monkeypatch.setattr(sys, "argv", ["messages.py", str(checkout), "--nccl", str(nccl), "--nverror", str(nverror)])
    assert messages.main() == 0
    report = result.read_text()
    rows = {
        cells[0]: cells[1:]
        for line in report.splitlines()
        if (cells := [part.strip() for part in line.split("|")[1:-1]])
    }
    assert rows["the GPU device"][:2] == ["6", "3"]
    assert rows["Python: tf.config, eager"][:2] == ["3", "1"]
    assert rows["autotuning"] == ["0", "0", "0", "0"]
    assert "2 texts of WARN in the sources of NCCL, of which 1 have" in report
    assert "2 numbers in the driver's header, of which 1 have" in report
    assert "act on: 152." in report

    monkeypatch.setattr(sys, "argv", ["messages.py", str(checkout), "--list"])
    assert messages.main() == 0
    assert "gpu_device.cc:13\terror\ta text that nobody knows:" in capsys.readouterr().out


def test_a_folder_without_sources_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["messages.py", str(tmp_path)])
    assert messages.main() == 2
    assert "no sources of TensorFlow" in capsys.readouterr().err


def test_what_is_left_out_has_a_reason_and_is_not_covered() -> None:
    printed = messages.Printed(
        "family", "tensorflow/core/kernels/conv_ops.cc", 1, "error", "input must be 4-dimensional"
    )
    assert printed.left_out
    assert not printed.covered
