"""Shared by causes: a driver that has two versions, is too old, or is not ready."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath
from shlex import quote

from gpudiag.cause import Evidence, Fix, Match
from gpudiag.causes.shared.libraries import COMPUTE, PATH
from gpudiag.causes.shared.machine import WholeDriver, container, install_command, stage_of_driver
from gpudiag.causes.shared.signs import Signs
from gpudiag.causes.shared.steps import cuinit_error
from gpudiag.fix import Action, Kind, Role, check, configure, export, note, run, unset
from gpudiag.knowledge.messages.programs_and_drivers import TWO_VERSIONS
from gpudiag.knowledge.releases import numbers
from gpudiag.knowledge.variables import PRELOAD, PRELOAD_FILE
from gpudiag.model.diagnosis import Confidence, Stage
from gpudiag.model.facts import DriverFacts, Facts, NvmlFacts, Unknown
from gpudiag.provenance import off_the_loaders_path, sentence

IN_PACKAGE = re.compile(r"(?:\d+:)?(\d+\.[\d.]+)")
_FIRST_BRANCH = 100
"""The lowest branch of the driver: all since 2008 are above it. A package with a lower version has none."""
COMPAT = "/compat"
"""Part of the folder of CUDA's forward compatibility package: a newer libcuda than the kernel module's."""


def versions(driver: DriverFacts, nvml: NvmlFacts) -> tuple[str, str]:
    """Return the versions of the kernel module and of the driver's libraries, "not known" if they are not."""
    in_name = (driver.libcuda_path or "").rpartition(".so.")[2]
    library = (
        nvml.driver_version
        or (in_name if IN_PACKAGE.fullmatch(in_name) else None)
        or next(iter(_packaged(driver, "lib").values()), None)
    )
    return driver.kernel_module or "not known", library or "not known"


def preloads(driver: DriverFacts) -> list[str]:
    """Return which files define functions of the driver in every program, and what names them, as evidence."""
    by = dict.fromkeys(driver.preloaded, f", which {PRELOAD_FILE} names")
    return [f"a function of the driver comes from {file}{by.get(file, '')}" for file in driver.interposed]


def take_out_preloads(driver: DriverFacts, facts: Facts) -> tuple[Action, ...]:
    """Return how a program is started without the files that define functions of the driver."""
    named = [file for file in driver.interposed if file in driver.preloaded]
    by_variable = PRELOAD in facts.variables and len(named) < len(driver.interposed)
    if container(facts) and named:
        line = note(f"where the container is started: {PRELOAD_FILE} is given to it", kind=Kind.START_CONTAINER)
        return (*([unset(PRELOAD)] if by_variable else []), line)
    return (
        *([unset(PRELOAD)] if by_variable else []),
        *(configure(f"sudo sed -i '\\#{file}#d' {PRELOAD_FILE}", "takes it out of every program") for file in named),
        *([] if named or by_variable else [check(f"cat {PRELOAD_FILE}", "remove its line if it is not meant")]),
    )


def _packaged(driver: DriverFacts, start: str = "") -> dict[str, str]:
    """Return the releases of the driver that its packages are of, by the names of those that begin with ``start``."""
    found = {name: IN_PACKAGE.match(version) for name, version in driver.packages.items() if name.startswith(start)}
    return {name: release[1] for name, release in found.items() if release and numbers(release[1])[0] >= _FIRST_BRANCH}


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
        """True if this is a container, and its libraries of the driver are its own: no mount brings them in."""
        mounted = self.driver.libcuda_mounted
        return bool(container(self.facts)) and (bool(self.driver.packages) if mounted is None else not mounted)

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
        return configure(f"sudo apt-mark hold {packages}", role=Role.PREVENT) if packages else None

    @property
    def half_done(self) -> tuple[str, ...]:
        """The evidence that an upgrade was not completed: the next start would load the old module again."""
        if container(self.facts):
            return ()
        releases = dict(sorted(_packaged(self.driver).items(), key=lambda item: numbers(item[1])))
        rebuilt = self.driver.rebuilt
        unfinished = [f"dpkg: {name} is {state}" for name, state in self.driver.unfinished.items()]
        if len(set(releases.values())) > 1:
            unfinished.append(f"two releases are installed: {', '.join(map(' '.join, releases.items()))}")
        if rebuilt and rebuilt == self.module != self.library:
            unfinished.append(f"DKMS has built {rebuilt} for this kernel: a restart loads it again")
        return tuple(unfinished)

    @property
    def completed(self) -> tuple[Action, ...]:
        """How the upgrade is brought to its end."""
        change = Kind.CHANGE_DRIVER
        if not self.driver.packages:
            return (install_command(self.facts),)
        library = next((name for name in self.driver.packages if name.startswith("libnvidia-compute-")), "")
        package = library.replace("libnvidia-compute-", "nvidia-driver-") or "nvidia-driver"
        finish = "sudo dpkg --configure -a && sudo apt install --fix-broken"
        is_whole = len(set(_packaged(self.driver).values())) == 1 and not self.driver.rebuilt
        return (run(finish if is_whole else f"{finish} {package}", "brings all of it to one release", kind=change),)

    def match(self, fix: Fix = ()) -> Match:
        module, library, packages = self.module, self.library, self.driver.packages
        return Match(
            evidence=(*self.seen, *self._where_from, *self.half_done),
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

    @property
    def _where_from(self) -> tuple[str, ...]:
        """Whose the libraries in a container are, as evidence."""
        if not self.in_image:
            return ()
        installed = ", ".join(f"{name} {version}" for name, version in self.driver.packages.items())
        if installed:
            return (f"packages in this container: {installed}",)
        return (f"{self.driver.libcuda_path} is the image's: no mount brings it in (/proc/self/mountinfo)",)


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
