"""a value is not what TensorFlow expects

Each argument, field of ConfigProto and variable has values, keys, a type and a unit that are accepted. Most other
values are ignored without a warning: TensorFlow and CUDA compare the value of a variable with a few words, letter by
letter, and treat any other value as not set. A misspelled key of a dictionary of options is never looked for.

A limit of memory is a number of MiB. With more than the GPU has, it limits nothing. A logical device with 8 MiB holds
two million numbers of float32, and a larger tensor ends with ResourceExhaustedError; with 0.5 the first operation fails
(2.21, simulated GPUs).

per_process_gpu_memory_fraction is a fraction. Above 1 TensorFlow takes managed memory, which is moved between the GPU
and the host. The field allocator_type takes BFC, in upper case, or nothing. Keys of device_count are CPU and GPU:
{'gpu': 0} and {'GPU:0': 0} hide no GPU.

set_memory_growth takes one physical GPU: the errors are "Unrecognized device" and "Cannot set memory growth
on non-GPU and non-Pluggable devices" (2.21). Inside of try and except the error is often not seen.

os.putenv does not change os.environ, in which TensorFlow looks for TF_CONFIG. In a branch that is seldom run, or inside
of try and except, the TypeError of a variable that is not a text is met late or never.

Bad
    import os

    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "1"
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"auto_mixed_precison": True})

Good
    import os

    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"auto_mixed_precision": True})
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpudiag.fix import edit, edit_note
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.knowledge.variables import READ_BY_PYTHON
from gpudiag.lint import contracts
from gpudiag.lint.program import Call, LintedProgram, Option, ProgramEvent, Variable
from gpudiag.lint.rule import Edit, Matches, Rule, Violation, quoted, replace
from gpudiag.lint.settings import is_of_tests
from gpudiag.lint.values import UNKNOWN, Value, of_gpus
from gpudiag.model.report import Severity

RULE = Rule(
    message="{given} is not what TensorFlow expects: {why}",
    severity=Severity.WARNING,
    fix=(edit_note("write a value that is accepted"),),
    words=(
        *(name.rpartition(".")[2] for name in contracts.ARGUMENTS),
        *("VirtualDeviceConfiguration", "set_virtual_device_configuration"),
        *contracts.FIELDS,
        *contracts.VARIABLES,
    ),
    url="https://www.tensorflow.org/api_docs/python/tf/config",
    raises=("TypeError", "ValueError"),
)


def find(program: LintedProgram) -> Matches:
    for event in program.events:
        for name, value, contract in _judged(event):
            for breach in contract(value):
                if name == "memory_limit" and not breach.cause and is_of_tests(program):
                    continue  # tests take little on purpose
                if breach.shown.startswith(contracts.EVERY_DEVICE) and event.module.mentions(_SORTED):
                    continue
                yield _match(event, name, breach, value)
        if isinstance(event, Variable) and event.how == "putenv" and event.name in READ_BY_PYTHON:
            why = "os.putenv does not change os.environ, and TensorFlow looks for it there"
            fix = (edit(f"os.environ[{event.name!r}] = value"),)
            yield Violation(event, {"given": f"{event.name} by os.putenv", "why": why}, fix=fix)


_SORTED = re.compile(r"device_type|[\"']GPU[\"']\s*(?:in\b|==)|\.name\b[^\n]{0,80}(?:GPU|gpu)")
"""Signs of code that checks the type of each device."""


def _judged(event: ProgramEvent) -> Iterator[tuple[str, Value, contracts.Contract]]:
    """Yield each setting of an event for which there is a contract: its name, the value, and the contract."""
    if isinstance(event, Variable):
        for contract in contracts.VARIABLES.get(event.name, ()):
            yield event.name, event.value, contract
    elif isinstance(event, Option):
        name = event.path.rpartition(".")[2]
        if name in contracts.FIELDS:
            yield name, event.value, contracts.FIELDS[name]
    elif isinstance(event, Call):
        if event.api in contracts.ARGUMENTS:
            at, name, contract = contracts.ARGUMENTS[event.api]
            if event.api == api.LOGICAL and not of_gpus(event.made.argument(0, "device")):
                return
            yield name, event.made.argument(at, name) or UNKNOWN, contract
        elif event.api.endswith(("ConfigProto", "GPUOptions", "VirtualDevices", "virtual_devices.add")):
            yield from (
                (name, value, contracts.FIELDS[name])
                for name, value in event.made.kwargs.items()
                if name in contracts.FIELDS
            )


def _match(event: ProgramEvent, name: str, breach: contracts.Breach, value: Value) -> Violation:
    """Return the match of a breach, located at its constant if the statement has exactly one such constant."""
    literals = [
        node
        for node in ast.walk(event.node)
        if isinstance(node, ast.Constant)
        and breach.literal is not None
        and node.value == breach.literal
        and type(node.value) is type(breach.literal)
    ]
    node = literals[0] if len(literals) == 1 else None
    edits: tuple[Edit, ...] = ()
    if node is not None and breach.right:
        as_text = quoted(event, node, breach.right) if isinstance(breach.literal, str) else repr(breach.right)
        edits = (replace(node, as_text),)
    shown = getattr(value, "value", None)
    given = breach.shown if breach.shown[:1].isalpha() else f"{name}={breach.shown or repr(shown)}"
    return Violation(
        event,
        {"given": given, "why": breach.why},
        node=node if isinstance(event, Variable) else None,
        fix=breach.fix,
        edits=edits,
        severity=breach.severity,
        cause=breach.cause,
    )
