"""The settings of the plugin, from options, ``GPUDIAG_PYTEST*`` variables and ini keys, in this order."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from gpudiag.hardware import lending

ASSIGNMENTS = ("device", "share", "none")
PREFIX = "GPUDIAG_PYTEST"


@dataclass(frozen=True)
class PluginSettings:
    """All settings of a session."""

    check: bool = False
    """Whether to check the GPUs before the first test."""
    warn: bool = False
    """Whether to run the tests even if the check failed."""
    require_gpus: int = 0
    """The number of GPUs that must exist; a GPU test must also run."""
    simulate: str | None = None
    """The specification of a simulated machine; None: use the real machine."""
    simulate_asked: bool = False
    """True if the command line itself requests simulated GPUs, so that they satisfy ``require_gpus``."""
    assign: str | None = None
    """``device``, ``share`` or ``none``; None: ``share`` if the plugin is on."""
    memory_bytes: int | None = None
    """GPU memory for each worker; None: a device's memory, shared evenly by its workers."""

    expect: Path | None = None
    """The file of expectations; None: those of gpudiag's configuration file, if there is one."""
    wait_s: float = 300.0
    """Seconds to wait for GPUs that other sessions hold."""

    @property
    def on(self) -> bool:
        """True if any option is set; otherwise the plugin does not change the session."""
        return replace(self, warn=False, wait_s=PluginSettings.wait_s) != PluginSettings()

    @property
    def checks(self) -> bool:
        """True if the GPUs are checked, also because ``require_gpus`` needs verified ones."""
        return self.check or self.require_gpus > 0 or self.expect is not None

    @property
    def assigns(self) -> bool:
        """True if workers are given devices."""
        return self.on and self.assign != "none"


SETTINGS = pytest.StashKey[PluginSettings]()


def of(config: pytest.Config) -> PluginSettings:
    """Return the settings of a session."""
    if SETTINGS not in config.stash:
        config.stash[SETTINGS] = _read(config)
    return config.stash[SETTINGS]


@dataclass(frozen=True)
class PluginSetting:
    """One setting: ``--gpudiag-<name>``, ``GPUDIAG_PYTEST_<NAME>``, ``gpudiag_<name>``."""

    name: str
    help: str
    read: Callable[[str], Any]
    fix: str = ""
    """The value to write, for error messages; empty if the error says it."""
    metavar: str | None = None
    type: Literal["string", "bool", "int", "float"] = "string"
    """The type of the ini key."""
    is_file: bool = False
    """True if a relative path in the ini key starts at pytest's root folder; other paths start at the working
    directory."""

    @property
    def option(self) -> str:
        """The option without its value, such as ``--gpudiag-memory``."""
        return "-".join(filter(None, ("--gpudiag", self.name)))

    @property
    def variable(self) -> str:
        return "_".join(filter(None, (PREFIX, self.name.replace("-", "_").upper())))

    @property
    def key(self) -> str:
        return "_".join(filter(None, ("gpudiag", self.name.replace("-", "_"))))


def add_to(parser: pytest.Parser) -> None:
    """Add every setting to pytest's options and ini keys."""
    group = parser.getgroup("gpudiag", "GPUs (gpudiag)")
    for setting in ALL:
        described = f"{setting.help} (variable {setting.variable}, ini key {setting.key})"
        if setting.metavar is None:
            group.addoption(
                setting.option, dest=setting.key, action="store_const", const="true", default=None, help=described
            )
        else:
            group.addoption(setting.option, dest=setting.key, metavar=setting.metavar, default=None, help=described)
        # The types of numbers came with pytest 8.4.
        ini_type = setting.type if setting.type == "bool" or pytest.version_tuple >= (8, 4) else "string"
        parser.addini(setting.key, setting.help, type=ini_type, default=None)


def _read(config: pytest.Config) -> PluginSettings:
    values = {setting.name: _value(setting, config, os.environ) for setting in ALL}
    unknown = sorted(name for name in os.environ if name.startswith(PREFIX) and name not in _VARIABLES)
    if unknown:
        from gpudiag.errors import nearest

        raise pytest.UsageError(f"gpudiag: {unknown[0]} sets no option. {nearest(unknown[0], _VARIABLES, most=1)}")
    if values["memory"] is not None and values["assign"] == "none":
        raise pytest.UsageError(
            "gpudiag: --gpudiag-memory limits the memory of workers on the GPUs that they are given, but "
            "--gpudiag-assign=none gives them none. Remove one of the two."
        )
    option = _BY_NAME["simulate"].option
    return PluginSettings(
        check=bool(values[""]),
        warn=bool(values["warn"]),
        require_gpus=values["require-gpus"] or 0,
        simulate=values["simulate"],
        # What addopts or PYTEST_ADDOPTS say is not among these.
        simulate_asked=any(str(word).partition("=")[0] == option for word in config.invocation_params.args),
        assign=values["assign"],
        memory_bytes=values["memory"],
        expect=values["expect"],
        wait_s=PluginSettings.wait_s if values["wait"] is None else values["wait"],
    )


def _value(setting: PluginSetting, config: pytest.Config, environment: Mapping[str, str]) -> Any:
    given = (
        (setting.option, lambda: getattr(config.known_args_namespace, setting.key, None)),
        (setting.variable, lambda: environment.get(setting.variable) or None),
        (_ini_source(setting, config), lambda: _ini(setting, config)),
    )
    for source, text_of in given:
        try:
            if (text := text_of()) is not None:
                return setting.read(text)
        except (ValueError, TypeError, pytest.UsageError) as error:  # the last two of pytest, by version
            fix = f" Write {setting.fix}." if setting.fix else ""
            said = str(error).removeprefix(f"{config.inipath}: ").rstrip(".")
            raise pytest.UsageError(f"gpudiag: {source}: {said}.{fix}") from None
    return None


def _ini(setting: PluginSetting, config: pytest.Config) -> str | None:
    """Return the value of the ini key as text; raises an error of pytest if it is not of the key's type."""
    value = config.getini(setting.key)
    if value is None or value == "":
        return None
    return str(config.rootpath / value) if setting.is_file else str(value)


def _ini_source(setting: PluginSetting, config: pytest.Config) -> str:
    """Return where the ini key is set: on the command line or in pytest's configuration file."""
    overrides = getattr(config.known_args_namespace, "override_ini", None) or ()
    if any(text.partition("=")[0].strip() == setting.key for text in overrides):
        return f"-o {setting.key}"
    return f"the ini key {setting.key} in {config.inipath}"


def _flag(text: str) -> bool:
    flag_values = {
        "1": True,
        "true": True,
        "yes": True,
        "on": True,
        "0": False,
        "false": False,
        "no": False,
        "off": False,
    }
    if text.lower() not in flag_values:
        raise ValueError(f"{text!r} is neither true nor false")
    return flag_values[text.lower()]


def _count(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"{text!r} is not a number of GPUs")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise ValueError(f"{text!r} is not a number of seconds")
    return seconds


def _choice(text: str) -> str:
    if text not in ASSIGNMENTS:
        raise ValueError(f"{text!r} is not known")
    return text


def size(text: str) -> int:
    """Parse a size such as ``4GiB`` into bytes; raises ``ValueError``."""
    from gpudiag.simulator.errors import SpecError
    from gpudiag.simulator.sizes import parse_size

    try:
        return parse_size(text)
    except SpecError as error:
        raise ValueError(str(error)) from None


def _file(text: str) -> Path:
    path = Path(text).absolute()
    if not path.is_file():
        raise ValueError(f"{text}: there is no such file")
    return path


def _spec(text: str) -> str:
    from gpudiag.simulator import SimulatorError, parse_spec

    try:
        parse_spec(text)
    except SimulatorError as error:
        raise ValueError(str(error)) from None
    return text


ALL = (
    PluginSetting(
        "", "Check the GPUs before the first test, and give each worker one", _flag, "true or false", type="bool"
    ),
    PluginSetting("warn", "Run the tests even if the check failed", _flag, "true or false", type="bool"),
    PluginSetting(
        "require-gpus",
        "Fail if there are fewer than N GPUs, or if no GPU test ran",
        _count,
        "a whole number, such as 2",
        "N",
        type="int",
    ),
    PluginSetting(
        "simulate",
        "Run the whole session on simulated GPUs, such as 2x8GiB",
        _spec,
        metavar="SPEC",
    ),
    PluginSetting(
        "assign",
        "What each worker gets: a separate device, a share if there are more workers than devices, or none",
        _choice,
        "device, share or none",
        "device|share|none",
    ),
    PluginSetting(
        "expect",
        "Fail if the machine is not what this file expects, which gpudiag expect writes",
        _file,
        metavar="FILE",
        is_file=True,
    ),
    PluginSetting("memory", "GPU memory for each worker, such as 4GiB", size, metavar="SIZE"),
    PluginSetting(
        "wait",
        "How long to wait for GPUs that other runs hold, 300 by default",
        _seconds,
        "a number of seconds, such as 300",
        "SECONDS",
        type="float",
    ),
)
_BY_NAME = {setting.name: setting for setting in ALL}
RUN_VARIABLE = f"{PREFIX}_RUN"
"""Names the run's folder to its workers; set by the plugin itself."""
SESSION_VARIABLE = f"{PREFIX}_SESSION"
"""Marks every process that a session starts; set by the plugin itself."""
_VARIABLES = frozenset({*(setting.variable for setting in ALL), RUN_VARIABLE, SESSION_VARIABLE, lending.VARIABLE})
