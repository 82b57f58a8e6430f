"""Refresh gpudiag/knowledge/tensorflow_1.py: the names that TensorFlow 1 had and TensorFlow 2 does not have.

    python scripts/refresh_tensorflow_1_names.py

Reads the installed TensorFlow, which has the interface of TensorFlow 1 in tf.compat.v1.
"""

from __future__ import annotations

import textwrap
import types
from pathlib import Path

import tensorflow as tf

OUTPUT = Path(__file__).parent.parent / "gpudiag/knowledge/tensorflow_1.py"
LEFT_OUT = {"compat", "keras", "raw_ops"}
"""Modules that both have, with names of another kind."""
HEAD = '''"""Names of TensorFlow 1 that TensorFlow {release} does not have, without ``tf.``; tf.compat.v1 has them.

Written by ``scripts/refresh_tensorflow_1_names.py``. contrib is in neither.
"""

from __future__ import annotations

_TEXT = """
contrib
{names}
"""
NAMES = frozenset(_TEXT.split())
'''


def public(module: types.ModuleType) -> set[str]:
    return {name for name in dir(module) if not name.startswith("_")}


def main() -> None:
    old = tf.compat.v1
    names = public(old) - public(tf)
    for name in public(old) & public(tf) - LEFT_OUT:
        before, now = getattr(old, name), getattr(tf, name)
        if isinstance(before, types.ModuleType) and isinstance(now, types.ModuleType):
            names |= {f"{name}.{one}" for one in public(before) - public(now)}
    lines = textwrap.wrap(" ".join(sorted(names)), 110, break_long_words=False, break_on_hyphens=False)
    release = ".".join(tf.__version__.split(".")[:2])
    OUTPUT.write_text(HEAD.format(release=release, names="\n".join(lines)))


if __name__ == "__main__":
    main()
