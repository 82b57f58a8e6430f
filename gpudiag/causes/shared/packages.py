"""Shared by causes: the installation of TensorFlow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from gpudiag.cause import TRACE, Evidence
from gpudiag.fix import Action, export, unset
from gpudiag.model import report
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Distribution, Facts, Library, Provenance, TensorflowFacts, Unknown
from gpudiag.probes.host import tensorflow as host_tensorflow
from gpudiag.provenance import off_the_module_path

INSTALLATION = "https://www.tensorflow.org/install/pip"
PATH = "PYTHONPATH"
USER_SITE = re.compile(r"/\.local/lib/python[\d.]+/site-packages$")
"""Where `pip install --user` puts packages; Python searches it before its own folder."""
OF_AN_IMPORT = (report.NoReading.EXCEPTION, report.NoReading.SIGNAL)


def has_cuda(facts: Facts) -> bool | None:
    """Return whether TensorFlow is built with CUDA; None if that is not known."""
    installed = facts.tensorflow
    return None if isinstance(installed, Unknown) or installed.build is None else installed.build.cuda


@dataclass(frozen=True)
class FailedImport:
    """``import tensorflow`` fails."""

    error: str

    @classmethod
    def of(cls, evidence: Evidence) -> FailedImport | None:
        for row in evidence.rows:
            if row.probe == TRACE and (crash := row.crash) is not None and crash.cause in OF_AN_IMPORT:
                if ends_the_process(evidence.facts, crash.detail) is not None:
                    return None
                return cls(f"{crash.cause.value}: {crash.detail}")
        return None


def ends_the_process(facts: Facts, words: str) -> Library | None:
    """Return the library that ended gpudiag's own process by the signal that ``words`` name when it was opened."""
    libraries = () if isinstance(facts.libraries, Unknown) else facts.libraries.libraries
    return next((library for library in libraries if library.crash and library.crash in words), None)


def names(installed: TensorflowFacts) -> str:
    return " ".join(dict.fromkeys(distribution.name for distribution in installed.distributions))


def chosen(installed: TensorflowFacts) -> Distribution:
    """Return the distribution to keep, one with CUDA if possible; ``tensorflow`` without a version if there is none."""
    named = [
        distribution for distribution in installed.distributions if distribution.name in ("tensorflow", "tf-nightly")
    ]
    return next(iter((*named, *installed.distributions)), Distribution("tensorflow", "", ""))


def shown(installed: TensorflowFacts) -> Iterator[str]:
    for distribution in installed.distributions:
        yield f"{distribution.name} {distribution.version} in {distribution.location}"


def reinstall(installed: TensorflowFacts) -> dict[str, str | int | float | bool | None]:
    build = chosen(installed)
    listed = host_tensorflow.providers_of(installed) or installed.distributions  # those elsewhere overwrite nothing
    name = (
        "tensorflow" if build.name.startswith(("tensorflow-cpu", "tensorflow-gpu", "tensorflow-intel")) else build.name
    )
    return {
        "names": names(installed),
        "listed": " and ".join(dict.fromkeys(f"{package.name} {package.version}" for package in listed)),
        "with_cuda": f"{name}[and-cuda]" + (f"=={build.version}" if build.version else ""),
    }


def rest_of_path(facts: Facts, folder: PurePath) -> str | None:
    """Return PYTHONPATH without ``folder``; None if the folder is not in it."""
    entries = facts.variables.get(PATH, "").split(":")
    rest = [entry for entry in entries if PurePath(entry) != folder]
    return ":".join(rest) if len(rest) < len(entries) else None


def off_the_path(facts: Facts, folder: PurePath) -> Action | None:
    rest = rest_of_path(facts, folder)
    if rest is None:
        source = _source(facts, folder)
        return None if source is None else off_the_module_path(str(folder), source)
    return export(PATH, rest, "instead") if rest else unset(PATH, note="instead")


def shown_source(facts: Facts, folder: PurePath) -> tuple[str, ...]:
    """Return a line of evidence that names the start-up file of Python which puts ``folder`` on ``sys.path``."""
    source = _source(facts, folder)
    return () if source is None else (f"{folder} is put on sys.path by {source.place}",)


def _source(facts: Facts, folder: PurePath) -> Provenance | None:
    installed = facts.tensorflow
    return None if isinstance(installed, Unknown) else installed.path_provenance.get(str(folder))


def overwritten(installed: TensorflowFacts) -> Iterator[str]:
    for name, files in installed.overwritten.items():
        yield from (f"{file} is not the file that {name} installed" for file in files)


def sure_of_mixture(installed: TensorflowFacts) -> Confidence:
    """Return how certain a mixture is: metadata may be a leftover, so the files decide, if they were compared."""
    if any(installed.overwritten.values()):
        return Confidence.PROVED
    compared = {distribution.name for distribution in installed.distributions} <= set(installed.overwritten)
    return Confidence.POSSIBLE if compared else Confidence.LIKELY


@dataclass(frozen=True)
class CpuBuild:
    """TensorFlow is one whole distribution, built without CUDA."""

    installed: TensorflowFacts
    own: Distribution

    @classmethod
    def of(cls, evidence: Evidence) -> CpuBuild | None:
        installed = evidence.facts.tensorflow
        if isinstance(installed, Unknown) or has_cuda(evidence.facts) is not False:
            return None
        if host_tensorflow.several(installed) or altered(installed):
            return None
        return cls(installed, installed.distributions[0]) if installed.distributions else None


def altered(installed: TensorflowFacts) -> bool:
    """Return True if files are not those that the only distribution of TensorFlow has installed."""
    return bool(installed.altered) and len({distribution.name for distribution in installed.distributions}) == 1


def beside(installed: TensorflowFacts) -> tuple[str, ...]:
    return tuple(
        f"{distribution.name} {distribution.version} is installed beside it" for distribution in installed.frameworks
    )
