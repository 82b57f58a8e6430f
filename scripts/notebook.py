"""Runs the sample notebook of the Python interface again, in a kernel that holds a (simulated) GPU, and saves it.

Needs ``pip install nbclient ipykernel`` beside TensorFlow. ``--screenshot FILE`` opens it in Chromium as well, as
nbconvert shows notebooks, and needs ``pip install nbconvert``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from docs import CHROMIUM, SAMPLES_FOLDER

SAMPLE = SAMPLES_FOLDER / "notebook.ipynb"
MACHINE = "2x2GiB"
_INSIDE = "--inside"

CELLS = (
    """
    # gpudiag in a notebook

    The kernel of this notebook uses the first of two GPUs (simulated ones: `gpudiag simulate 2x2GiB -- jupyter lab`).
    `gpudiag.check()` looks at the machine from processes of its own: the kernel keeps its TensorFlow and its GPU.
    """,
    """
    import tensorflow as tf

    first, second = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices(first, "GPU")
    weights = tf.random.uniform((64, 64), seed=1)
    weights.device
    """,
    """
    import gpudiag

    report = gpudiag.check()
    report
    """,
    "The report is a record, the same as `gpudiag check --format json` writes:",
    """
    print(report.verdict.value, report.counts)
    for cause in report.causes:
        print(f"{cause.cause_id}: {cause.cause}")
        for action in cause.fix:
            print(f"  {action.role.value}: {action.text}")
    """,
    """
    for row in report.rows:
        for finding in row.findings:
            print(row.probe, report.device_label(row), finding.severity.value, finding.message, sep=" | ")
    """,
    "A log, or the text of an exception, from any machine:",
    """
    answer = gpudiag.why(\"\"\"
    E0000 cuda_dnn.cc:522] Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.3.0.
    CuDNN library needs to have matching major version and equal or higher minor version.
    \"\"\")
    print(answer)
    """,
    "What is different on the second GPU, which nobody uses:",
    """
    import os

    os.environ["CUDA_VISIBLE_DEVICES"] = "1"  # for the processes that the next check starts, not for this kernel
    free = gpudiag.check("discovery", level="quick")
    print(repr(free))
    print(gpudiag.diff(report, free))
    """,
    "The kernel works as before:",
    """
    (weights @ weights).device
    """,
)
"""The cells: those with code have no blank line before a comment, and begin with a statement."""


def cells() -> list[tuple[str, str]]:
    """Return the kind and the source of each cell."""
    texts = [textwrap.dedent(cell).strip() for cell in CELLS]
    return [("markdown" if text.startswith("#") or text.endswith((".", ":")) else "code", text) for text in texts]


def execute() -> None:
    """Run the cells in a kernel of this interpreter, and save the notebook."""
    import nbformat
    from nbclient import NotebookClient

    makers = {"markdown": nbformat.v4.new_markdown_cell, "code": nbformat.v4.new_code_cell}
    made = [makers[kind](text, id=f"cell-{number}") for number, (kind, text) in enumerate(cells())]
    notebook = nbformat.v4.new_notebook(cells=made)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder  # no run is kept, and none that this machine has kept is compared with
        NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times
        # What TensorFlow logs in the kernel: times, processes, and the processor of this machine.
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    nbformat.validate(notebook)
    SAMPLE.write_text(nbformat.writes(notebook), encoding="utf-8")


def take_screenshot(file: Path) -> None:
    """Write what Chromium shows of the notebook."""
    with tempfile.TemporaryDirectory() as folder:
        convert = (sys.executable, "-m", "nbconvert", "--to", "html", "--output-dir", folder, "--output", "notebook")
        subprocess.run([*convert, str(SAMPLE)], timeout=120, check=True)
        options = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1100,2600")
        page = Path(folder, "notebook.html").as_uri()
        subprocess.run([CHROMIUM, *options, f"--screenshot={file.absolute()}", page], timeout=120, check=True)


def main() -> int:
    """Run the notebook on a simulated machine; with ``--inside`` this process is on that machine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--screenshot", type=Path)
    parser.add_argument(_INSIDE, action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside:
        execute()
        return 0
    environment = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ} | {
        "GPUDIAG_MASK": "1"
    }
    command = ("-m", "gpudiag", "simulate", MACHINE, "--", sys.executable, __file__, _INSIDE)
    status = subprocess.run([sys.executable, *command], env=environment, timeout=900, check=False).returncode
    if status == 0 and asked.screenshot:
        take_screenshot(asked.screenshot)
    return status


if __name__ == "__main__":
    sys.exit(main())
