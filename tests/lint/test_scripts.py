"""Scripts, container files and modules beside a program: what they set, and whether a program gets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpudiag.lint import check, rule
from gpudiag.lint.shell import assignments
from linting import rules_in

PROGRAM = "import tensorflow as tf\nmodel = tf.keras.Sequential()\nmodel.fit(tf.ones([2, 2]))\n"
REACHES_NONE = "variable_reaches_no_program"
FOLDERS: dict[str, tuple[dict[str, str], set[tuple[str, str, int]]]] = {
    "not exported": (
        {"run.sh": "#!/bin/bash\nCUDA_VISIBLE_DEVICES=1\npython main.py\n"},
        {(REACHES_NONE, "run.sh", 2)},
    ),
    "exported later, for one command, or for all": (
        {
            "run.sh": "CUDA_VISIBLE_DEVICES=${1:-0}\nexport CUDA_VISIBLE_DEVICES\nTF_FORCE_GPU_ALLOW_GROWTH=true "
            "python main.py\nset -a\nTF_CPP_MIN_LOG_LEVEL=1\nset +a\nenv CUDA_DEVICE_ORDER=PCI_BUS_ID python main.py\n"
        },
        set(),
    ),
    "a name that no line assigns": (
        {"run.sh": "GPU=${1:-1}\nexport CUDA_VISIBLE_DEVICES=$GPU_ID\npython main.py\n"},
        {("mask_names_no_gpu", "run.sh", 2)},
    ),
    "a name from outside, and one that a loop assigns": (
        {
            "run.sh": "GPU=1\nexport CUDA_VISIBLE_DEVICES=$SLURM_LOCALID\nfor GPU_ID in 0 1; do\n"
            "  CUDA_VISIBLE_DEVICES=$GPU_ID python main.py\ndone\nexport CUDA_VISIBLE_DEVICES=${GPU_NR:-0}\n"
            "python main.py\n"
        },
        set(),
    ),
    "spaces": (
        {"job.slurm": "CUDA_VISIBLE_DEVICES = 0\nexport TF_FORCE_GPU_ALLOW_GROWTH = true\nsrun python main.py\n"},
        {(REACHES_NONE, "job.slurm", 1), (REACHES_NONE, "job.slurm", 2)},
    ),
    "a document in a script": ({"run.sh": "cat > a.sh <<EOF\nCUDA_VISIBLE_DEVICES=1\nEOF\npython main.py\n"}, set()),
    "a value in a container file": (
        {"Dockerfile": "FROM a\nENV A=1 \\\n    TF_FORCE_GPU_ALLOW_GROWTH=1\nENV CUDA_DEVICE_ORDER PCI_BUS_ID\n"},
        {("value_not_accepted", "Dockerfile", 3)},
    ),
    "a step of a container file": (
        {"Dockerfile": "FROM a\nRUN export CUDA_VISIBLE_DEVICES=1\nCMD python main.py\n"},
        {(REACHES_NONE, "Dockerfile", 2)},
    ),
    "a recipe": (
        {"Makefile": "train:\n\tCUDA_VISIBLE_DEVICES=1\n\tpython main.py\n"},
        {(REACHES_NONE, "Makefile", 2)},
    ),
    "a compose file": (
        {"docker-compose.yml": "services:\n  a:\n    environment:\n      - CUDA_VISIBLE_DEVICES=cuda:0\n"},
        {("mask_names_no_gpu", "docker-compose.yml", 4)},
    ),
    "an env file": ({"gpu.env": "TF_FORCE_GPU_ALLOW_GROWTH=yes\n"}, {("value_not_accepted", "gpu.env", 1)}),
    "a module that hides the GPUs": (
        {
            "pipeline.py": "import tensorflow as tf\ntf.config.set_visible_devices([], 'GPU')\n",
            "train.py": f"import pipeline\n{PROGRAM}",
        },
        {("hidden_by_import", "train.py", 1)},
    ),
    "a module of settings that hides the GPUs on purpose": (
        {
            "settings.py": "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '-1'\n",
            "train.py": f"import settings\n{PROGRAM}",
        },
        set(),
    ),
    "a fixture that comes after the import of what is tested, and a hook that comes before": (
        {
            "scorer.py": "import tensorflow as tf\nWEIGHTS = tf.Variable(tf.ones([4, 1]))\n",
            "tests/test_scorer.py": "from scorer import WEIGHTS\ndef test_shape():\n    assert len(WEIGHTS) == 4\n",
            "tests/conftest.py": "import os\nimport pytest\n\ndef pytest_configure(config):\n"
            "    os.environ['TF_FORCE_GPU_ALLOW_GROWTH'] = 'true'\n\n@pytest.fixture(scope='session', autouse=True)\n"
            "def on_cpu():\n    os.environ['CUDA_VISIBLE_DEVICES'] = '-1'\n",
        },
        {("variable_set_too_late", "conftest.py", 9)},
    ),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_folder(tmp_path: Path, name: str) -> None:
    files, expected = FOLDERS[name]
    for file, text in {"main.py": PROGRAM, **files}.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    result = check.check([tmp_path], rule.known()).result()
    assert {(finding.rule, Path(finding.file).name, finding.line) for finding in result.findings} == expected
    assert not result.problems


@pytest.mark.parametrize(
    ("command", "reaches"),
    [
        ("CUDA_VISIBLE_DEVICES=1; python train.py", False),
        ("CUDA_VISIBLE_DEVICES=1 && python train.py", False),
        ("export CUDA_VISIBLE_DEVICES=1; python train.py", True),
        ("CUDA_VISIBLE_DEVICES=1 python train.py", True),
        ("CUDA_VISIBLE_DEVICES=1; echo $CUDA_VISIBLE_DEVICES", True),
        ("(export CUDA_VISIBLE_DEVICES=1); python train.py", False),
        ("export CUDA_VISIBLE_DEVICES=1", False),
    ],
)
def test_command_that_is_given_to_a_shell(command: str, reaches: bool) -> None:
    text = f"import subprocess\nimport tensorflow\nsubprocess.run({command!r}, shell=True)\n"
    assert rules_in(text) == ([] if reaches else [REACHES_NONE])
    call = f"subprocess.run(f{command.replace('1', '{gpu}')!r}, shell=True)"
    unknown = f"import subprocess, tensorflow\ndef run(gpu):\n    {call}\n"
    assert rules_in(unknown) == rules_in(text)


def test_a_command_with_its_parts() -> None:
    first, second = assignments("A='x y' B=$C python t.py # D=1\n")
    assert (first.name, first.value, first.reaches, first.exported) == ("A", "x y", True, True)
    assert (second.name, second.value, second.line, second.column) == ("B", None, 1, 8)


def test_lines_and_columns_are_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "gpu.env").write_text("A=1\nTF_FORCE_GPU_ALLOW_GROWTH=True\n")
    cell = {"cell_type": "code", "source": ["# GPU 1\n", "!export CUDA_VISIBLE_DEVICES=1\n", "import tensorflow"]}
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    in_notebook, in_env = check.check([tmp_path], rule.known()).result().findings
    assert (in_env.line, in_env.column, in_env.text) == (2, 1, "TF_FORCE_GPU_ALLOW_GROWTH=True")
    assert (in_notebook.line, in_notebook.column, in_notebook.text) == (2, 1, "!export CUDA_VISIBLE_DEVICES=1")
