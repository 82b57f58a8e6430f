"""The values of command-line options that the user does not give, for argparse and for absl's flags."""

from __future__ import annotations

from gpudiag.lint.folding import RESULTS, assumed
from gpudiag.lint.program import LintedProgram
from gpudiag.lint.values import Const, Items, Made, Name, Value, constants

_PARSES = ("().parse_args", "().parse_known_args")
_FLAGS = ("absl.flags.FLAGS.", "tensorflow.compat.v1.flags.FLAGS.", "tensorflow.app.flags.FLAGS.")
_HARMLESS = frozenset({"default", "type", "help", "metavar", "dest", "choices", "nargs", "action"})
"""Arguments of ``add_argument`` with which an option can still be left out."""
_SWITCHES = {"store_true": False, "store_false": True}


def declares(name: str) -> bool:
    """Return whether a call of this name declares options, or their defaults."""
    return name.endswith(("().add_argument", "().set_defaults")) or ".flags.DEFINE_" in name or name == "click.option"


def is_of_integer(option: Made, name: str) -> bool:
    """Return whether a call declares an option of this name whose type is int."""
    if option.name.endswith("().add_argument") or option.name == "click.option":
        kind = option.kwargs.get("type")
        return isinstance(kind, Name) and kind.path == "builtins.int" and _destination(option) == name
    return option.name.endswith(".flags.DEFINE_integer") and option.constant(0, "name") == name


def is_parsed(value: Value) -> bool:
    """Return whether a value is the result of ``parse_args``."""
    return isinstance(value, Made) and value.name.endswith(_PARSES)


def default_of(program: LintedProgram, parsed: Made, name: str) -> Value | None:
    """Return the default of ``args.name``, or None if it is not known."""
    for made in program.options:
        if made.name.endswith("().add_argument") and _parser(made) is _parser(parsed) and _destination(made) == name:
            return _default(made)
        if made.name.endswith("().set_defaults") and _parser(made) is _parser(parsed) and name in made.kwargs:
            return assumed(made.kwargs[name])
    return None


def flag_default(program: LintedProgram, path: str) -> Value | None:
    """Return the default of absl's ``FLAGS.name``, or None."""
    prefix = next((prefix for prefix in _FLAGS if path.startswith(prefix)), None)
    if prefix is None:
        return None
    for made in program.options:
        if ".flags.DEFINE_" in made.name and made.constant(0, "name") == path[len(prefix) :]:
            default = made.argument(1, "default")
            return None if default is None else assumed(default)
    return None


def _parser(made: Made) -> Value | None:
    """Return the parser that a method was called on, also through its groups of options."""
    owner = made.owner
    while isinstance(owner, Made) and owner.owner is not None:
        owner = owner.owner
    return owner


def _default(add_argument: Made) -> Value | None:
    action = add_argument.constant(99, "action")
    flags = [flag for flag in constants(Items(add_argument.args, 0)) if isinstance(flag, str)]
    if not add_argument.kwargs.keys() <= _HARMLESS or not any(flag.startswith("-") for flag in flags):
        return None
    if action in _SWITCHES:
        return assumed(add_argument.kwargs.get("default", Const(_SWITCHES[action])))
    default: Value | None = add_argument.kwargs.get("default", Const(None))
    kind = add_argument.kwargs.get("type")
    if "action" in add_argument.kwargs:
        return None
    if kind is not None and isinstance(default, Const) and isinstance(default.value, str):  # argparse converts texts
        convert = RESULTS.get(kind.path) if isinstance(kind, Name) else None
        default = convert([default]) if convert else None
    return None if default is None else assumed(default)


def _destination(add_argument: Made) -> object:
    """Return the attribute in which argparse stores an option."""
    flags = [flag for flag in constants(Items(add_argument.args, 0)) if isinstance(flag, str)]
    long = next((flag for flag in flags if flag.startswith("--")), flags[0] if flags else "")
    return add_argument.constant(99, "dest") or long.lstrip("-").replace("-", "_")
