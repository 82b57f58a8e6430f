"""The pytest plugin: a check before the tests, a GPU or a share of one for each worker, markers, fixtures and reports.

Loading it must cost nothing if it is not used: nothing here, nor at the top of its modules, imports TensorFlow, pynvml,
rich or msgspec.

PYTEST_DONT_REWRITE (see gpudiag/__init__.py)
"""

from __future__ import annotations

import pytest

from gpudiag.pytest_plugin import assign, fixtures, isolated, markers, preflight, settings, summary

NAME = "gpudiag"
MARKERS = (*markers.LINES, *isolated.LINES)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and ini keys; see :mod:`gpudiag.pytest_plugin.settings`."""
    settings.add_to(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the other modules, early enough for the hooks that precede the import of conftest files."""
    if pluginmanager.get_plugin(NAME) is None:  # -p gpudiag.pytest_plugin: the entry point would be its second name
        pluginmanager.set_blocked(NAME)
    for module in (assign, preflight, markers, isolated, fixtures, summary):
        if not pluginmanager.is_registered(module):
            pluginmanager.register(module, module.__name__)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    for line in MARKERS:
        config.addinivalue_line("markers", line)
