"""The messages that gpudiag knows: what TensorFlow, CUDA, their libraries and test runners print, and what it means.

A file is a family, found by walking this folder; see :mod:`gpudiag.knowledge.message`. The texts are those of
TensorFlow 2.18-2.21 unless stated otherwise, and older ones that users still meet. ``scripts/messages.py`` measures how
many of the messages in TensorFlow's sources they cover.
"""

from __future__ import annotations

import importlib
import pkgutil

from gpudiag.knowledge.message import Message, MessageFamily

FAMILIES: dict[str, MessageFamily] = {
    module.name: importlib.import_module(f"{__name__}.{module.name}").FAMILY
    for module in pkgutil.iter_modules(__path__)
}
MESSAGES: tuple[Message, ...] = tuple(message for family in FAMILIES.values() for message in family.messages)
