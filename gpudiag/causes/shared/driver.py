"""Shared by causes: a driver that has two versions, is too old, or is not ready."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath
from shlex import quote

from gpudiag.cause import Evidence, Fix, Match
from gpudiag.causes.shared.libraries import COMPUTE, PATH
from gpudiag.causes.shared.machine import WholeDriver, container, stage_of_driver
from gpudiag.causes.shared.signs import Signs
from gpudiag.causes.shared.steps import cuinit_error
from gpudiag.fix import Action, Kind, check, export, run, unset
from gpudiag.knowledge.messages.programs_and_drivers import TWO_VERSIONS
from gpudiag.knowledge.releases import numbers
from gpudiag.model.diagnosis import Confidence, Stage
from gpudiag.model.facts import DriverFacts, Facts, NvmlFacts, Unknown
from gpudiag.provenance import off_the_loaders_path, sentence

IN_FILE_NAME = re.compile(r"\.so\.(\d+\.[\d.]+)$")
IN_PACKAGE = re.compile(r"(?:\d+:)?(\d+\.[\d.]+)")
COMPAT = "/compat"
"""Part of the folder of CUDA's forward compatibility package: a newer libcuda than the kernel module's."""


def versions(driver: DriverFacts, nvml: NvmlFacts) -> tuple[str, str]:
    """Return the versions of the kernel module and of the driver's libraries, "not known" if they are not."""
    in_name = IN_FILE_NAME.search(driver.libcuda_path or "")
    in_packages = [found[1] for version in driver.packages.values() if (found := IN_PACKAGE.match(version))]
    library = nvml.driver_version or (in_name and in_name[1]) or next(iter(in_packages), None)
    return driver.kernel_module or "not known", library or "not known"


@dataclass(frozen=True)
class TwoVersions:
    """The kernel module and the libraries of the driver are of two versions."""

    facts: Facts
    driver: DriverFacts
    module: str
    library: str
    seen: tuple[str, ...]
    """The lines of evidence that show the two versions."""
    stage: Stage

    @classmethod
    def of(cls, evidence: Evidence) -> TwoVersions | None:
        known = WholeDriver.of(evidence)
        if known is None:
            return None
        driver = known.driver
        module, library = versions(driver, known.nvml)
        error = cuinit_error(evidence.listing)
        signs = Signs.of(evidence)
        seen = [signs.two_versions] if signs is not None and signs.two_versions else []
        if "DRIVER_MISMATCH" in error and COMPAT not in (driver.libcuda_path or ""):
            seen.append(f"cuInit: {error}")
        if module != library:  # else it has been fixed since the log was written
            seen += [event.text for event in evidence.program.all(TWO_VERSIONS)][:1]
        if not seen:
            return None
        return cls(evidence.facts, driver, module, library, tuple(seen), stage_of_driver(evidence.listing))

    @property
    def in_image(self) -> bool:
        """True if this is a container whose image contains libraries of a driver."""
        return bool(container(self.facts) and self.driver.packages)

    @property
    def library_is_older(self) -> bool | None:
        """Whether the libraries are older than the module; None if one of the versions is not known."""
        if not all(map(IN_PACKAGE.fullmatch, (self.library, self.module))) or self.library == self.module:
            return None
        return numbers(self.library) < numbers(self.module)

    @property
    def hold(self) -> Action | None:
        """The command that excludes the driver's packages from upgrades; None if none is known."""
        packages = " ".join(self.driver.packages)
        return run(f"sudo apt-mark hold {packages}", "prevents it from happening again") if packages else None

    def match(self, fix: Fix = ()) -> Match:
        module, library, packages = self.module, self.library, self.driver.packages
        installed = ", ".join(f"{name} {version}" for name, version in packages.items())
        return Match(
            evidence=(*self.seen, *([f"packages in this container: {installed}"] if self.in_image else [])),
            confidence=Confidence.LIKELY
            if "not known" in (module, library) or module == library
            else Confidence.PROVED,
            figures={
                "module": module,
                "library": library,
                "versions": f"kernel module {module}, libraries "
                + (library if library not in (module, "not known") else "of another version, as the driver says"),
                "packages": " ".join(packages),
            },
            stage=self.stage,
            fix=fix,
        )


def not_the_drivers_own(facts: Facts, part: str) -> tuple[str, Action]:
    """Return libcuda's folder, "" if ``part`` is not in its name, and how to remove it from the path.

    If a link in an entry of ``LD_LIBRARY_PATH`` leads there, it is that entry, and the link is removed.
    """
    driver = facts.driver
    path = "" if isinstance(driver, Unknown) else driver.libcuda_path or ""
    entries = facts.variables.get(PATH, "").split(":")
    if (link := link_into(facts, part)) is not None:
        return str(PurePath(link).parent), run(f"rm {quote(link)}", f"a link to {path}", kind=Kind.REMOVE)
    rest = [entry for entry in entries if part not in entry]
    folder = path.rpartition("/")[0] if part in path else next((entry for entry in entries if part in entry), "")
    if len(rest) < len(entries):
        return folder, export(PATH, ":".join(rest)) if any(rest) else unset(PATH)
    if folder:
        configured = {} if isinstance(facts.libraries, Unknown) else facts.libraries.configured
        if folder in configured:
            return folder, off_the_loaders_path(folder, configured[folder])
        return folder, check(f"grep -rn {quote(folder)} /etc/ld.so.conf /etc/ld.so.conf.d", "take the folder out there")
    return "", check(f"ls -l {path}", "if it is not the driver's own: remove it, or take its folder out of the way")


def link_into(facts: Facts, part: str) -> str | None:
    """Return the link by which the loader takes libcuda.so.1 from a folder with ``part`` in its name."""
    library = facts.library(COMPUTE)
    if library is None or library.path is None or library.file is None:
        return None
    return library.path if part in library.file and part not in library.path else None


def who_names(facts: Facts, folder: str) -> tuple[str, ...]:
    """Return the lines of evidence on what makes the loader search ``folder``."""
    environment = facts.environment
    named = () if isinstance(environment, Unknown) else environment.provenance
    return tuple(sentence(found) for found in named if found.name == PATH and found.entry == folder)
