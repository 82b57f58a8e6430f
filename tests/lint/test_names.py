"""Names are followed: imports, aliases, constants, functions, classes, branches, loops."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudiag.lint import check, rule
from linting import rules_in

ASSIGNED = "{name}.set_soft_device_placement = False\n"


@pytest.mark.parametrize(
    ("imported", "name"),
    [
        ("import tensorflow as tf", "tf.config"),
        ("import tensorflow", "tensorflow.config"),
        ("from tensorflow import config as c", "c"),
        ("from tensorflow import config", "config"),
        ("from tensorflow.compat import v2 as tf", "tf.config"),
        ("import tensorflow.compat.v2 as tf", "tf.config"),
        ("import tensorflow as tf\nalias = tf\nmine = alias.config", "mine"),
        ("try:\n    import tensorflow.compat.v2 as tf\nexcept ImportError:\n    import tensorflow as tf", "tf.config"),
        ("import importlib\ntf = importlib.import_module('tensorflow')", "tf.config"),
    ],
)
def test_name_is_followed_to_tensorflow(imported: str, name: str) -> None:
    assert rules_in(f"{imported}\n{ASSIGNED.format(name=name)}") == ["assigned_not_called"]


@pytest.mark.parametrize(
    ("imported", "name"),
    [("import torch as tf", "tf.config"), ("from mine import config", "config"), ("import my.tensorflow as tf", "tf")],
)
def test_other_packages_are_left_alone(imported: str, name: str) -> None:
    assert rules_in(f"{imported}\n{ASSIGNED.format(name=name)}# tensorflow\n") == []


GROWTH = "for g in tf.config.list_physical_devices('GPU'):\n    tf.config.experimental.set_memory_growth(g, True)\n"


@pytest.mark.parametrize(
    "before",
    [
        "x = tf.constant(1)",
        "def make():\n    return tf.constant(1)\nmake()",
        "class A:\n    def __init__(self):\n        self.x = tf.Variable(1)\nA()",
        "if flag:\n    x = tf.zeros([1])\nelse:\n    x = tf.ones([1])",
        "while True:\n    x = tf.zeros([1])\n    break",
        "with tf.device('/CPU:0'):\n    pass",
        "try:\n    x = tf.zeros([1])\nexcept RuntimeError:\n    pass",
    ],
)
def test_what_surely_comes_before_counts(before: str) -> None:
    assert rules_in(f"import tensorflow as tf\n{before}\n{GROWTH}") == ["configured_after_init"]


@pytest.mark.parametrize(
    "before",
    [
        "if flag:\n    x = tf.zeros([1])",
        "for one in many:\n    x = tf.zeros([1])",
        "def make():\n    return tf.constant(1)",
        "f = lambda: tf.constant(1)",
        "tf.compat.v1.disable_eager_execution()\nx = tf.constant(1)",
        "with tf.Graph().as_default():\n    x = tf.constant(1)",
        "@tf.function\ndef f():\n    return tf.constant(1)",
        "gpus = tf.config.list_physical_devices('GPU')\nif not gpus:\n    x = tf.zeros([1])",
        "x = tf.keras.layers.Dense(2)",
    ],
)
def test_what_may_not_come_before_does_not_count(before: str) -> None:
    assert rules_in(f"import tensorflow as tf\n{before}\n{GROWTH}") == []


def findings(folder: Path, *names: str) -> list[tuple[str, str, int]]:
    run = check.check([folder / name for name in names] or [folder], rule.known())
    return [(Path(finding.file).name, finding.rule, finding.line) for finding in run.result().findings]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "core").mkdir()
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "core" / "__init__.py").write_text("")
    (tmp_path / "core" / "model.py").write_text("import tensorflow as tf\nANCHORS = tf.constant([1, 2])\n")
    (tmp_path / "core" / "setup.py").write_text(
        f"import tensorflow as tf\n\ndef growth():\n    {GROWTH[:-1]}\n".replace("\n    tf", "\n        tf")
    )
    (tmp_path / "train.py").write_text(
        "from core import model\nfrom core.setup import growth\ngrowth()\n# set_memory_growth\n"
    )
    return tmp_path


def test_an_import_of_the_project_makes_devices(project: Path) -> None:
    assert findings(project) == [("setup.py", "configured_after_init", 5)]


def test_a_finding_in_a_file_that_is_not_checked_is_shown_at_the_call(project: Path) -> None:
    assert findings(project, "train.py") == [("train.py", "configured_after_init", 3)]


def test_import_cycle_ends(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import b\nimport tensorflow as tf\ntf.config.set_soft_device_placement = 1\n")
    (tmp_path / "b.py").write_text("import a\nimport tensorflow as tf\ntf.config.set_soft_device_placement = 1\n")
    assert findings(tmp_path) == [("a.py", "assigned_not_called", 3), ("b.py", "assigned_not_called", 3)]


def test_recursion_and_loops_end() -> None:
    text = "import tensorflow as tf\ndef f(n):\n    return f(n - 1) + f(n - 2)\nwhile True:\n    f(3)\n"
    assert rules_in(f"{text}tf.config.set_soft_device_placement = 1\n") == ["assigned_not_called"]


@pytest.mark.parametrize(
    "text", ["10 ** 10 ** 10", "'a' * 10 ** 9", "1 << 10 ** 9", "'%1000000000d' % 1", "[0] * 10 ** 9"]
)
def test_no_expression_takes_long(text: str) -> None:
    assert rules_in(f"import os\nimport tensorflow as tf\nx = {text}\nos.environ['CUDA_VISIBLE_DEVICE'] = 'a'\n") == [
        "misspelt_variable"
    ]


SETTINGS = "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = ''\nos.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'\n"


@pytest.mark.parametrize(
    ("main", "line"),
    [
        ("import settings\nimport tensorflow as tf\ntf.zeros([1])\n", None),
        ("import tensorflow as tf\nimport settings\ntf.zeros([1])\n", 2),
        ("import tensorflow as tf\nfrom settings import os\ntf.zeros([1])\n", 2),
        ("import tensorflow as tf\ntf.zeros([1])\nimport mine.deep\n", 3),
        ("import tensorflow as tf\ndef later():\n    import settings\nif __name__ == '__main__':\n    later()\n", 3),
        ("import tensorflow as tf\nimport sometimes\n", None),
    ],
)
def test_import_of_a_module_that_sets_a_variable_counts(tmp_path: Path, main: str, line: int | None) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "main.py").write_text(main)
    (tmp_path / "settings.py").write_text(SETTINGS)
    (tmp_path / "mine" / "__init__.py").write_text("")
    (tmp_path / "mine" / "deep.py").write_text("import settings\n")
    (tmp_path / "sometimes.py").write_text("import os\nif print():\n    os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'\n")
    found = [
        finding
        for finding in check.check([tmp_path / "main.py"], rule.known()).result().findings
        if "late" in finding.rule
    ]
    assert {finding.line for finding in found} == ({line} if line else set())
    assert all(" of settings.py) is set after" in finding.message for finding in found)


@pytest.mark.parametrize(("count", "found"), [(8, []), (12, ["memory_limits_exceed_gpu"])])
def test_limits_of_a_long_list_are_added_up(count: int, found: list[str]) -> None:
    limit = "tf.config.LogicalDeviceConfiguration(memory_limit=1000)"
    gpu = "tf.config.list_physical_devices('GPU')[0]"
    text = f"import tensorflow as tf\ntf.config.set_logical_device_configuration({gpu}, [{limit}] * {count})\n"
    assert rules_in(text, 8 << 30) == found
