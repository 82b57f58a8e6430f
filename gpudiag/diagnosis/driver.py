"""NVIDIA's driver is there, and of two versions, too old, or not ready."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from msgspec.structs import replace

from gpudiag.diagnosis.machine import (
    DOCKER,
    HOST_DRIVER,
    LIBCUDA,
    container,
    example_driver,
    example_evidence,
    example_facts,
    example_nodes,
    install_command,
    parts,
    stage_of_driver,
    uses_apt,
)
from gpudiag.diagnosis.rule import Evidence, Match, Rule, RuleCase
from gpudiag.diagnosis.steps import cuinit_error
from gpudiag.hostfacts import (
    DriverFacts,
    EnvironmentFacts,
    Family,
    NvmlFacts,
    Unknown,
    example,
    example_gpu,
    example_with_gpus,
)
from gpudiag.knowledge.log import DRIVER_TOO_OLD, SYSTEM_NOT_READY, TWO_DRIVER_VERSIONS
from gpudiag.log import Log
from gpudiag.model import Stage, Sure

_IN_FILE_NAME = re.compile(r"\.so\.(\d+\.[\d.]+)$")
_IN_PACKAGE = re.compile(r"(?:\d+:)?(\d+\.[\d.]+)")
_COMPAT = "/compat"
"""Part of the folder of CUDA's forward compatibility package: a newer libcuda than the kernel module's."""
_STUBS = "/stubs"
"""Part of the folder of the CUDA toolkit whose libraries are for linking alone."""
_DATA_CENTRE = re.compile(r"\b(Tesla|[ABHLPTV]\d{1,3}S?|GB?\d{3}|GH\d{3})\b")
_JOINED = re.compile(r"SXM|HBM3|H200|\bG?B[23]00|HGX|DGX")
"""In the names of GPUs that NVSwitch joins, though four of them can do without one."""
_NEEDED = {11: "450.80", 12: "525.60", 13: "580.65"}
"""The oldest driver for a major version of CUDA, by minor version compatibility (release notes of the CUDA Toolkit)."""


def _versions(driver: DriverFacts, nvml: NvmlFacts) -> tuple[str, str]:
    """Return the versions of the kernel module and of the driver's libraries, "not known" where they are not."""
    in_name = _IN_FILE_NAME.search(driver.libcuda_path or "")
    in_packages = [found[1] for version in driver.packages.values() if (found := _IN_PACKAGE.match(version))]
    library = nvml.driver_version or (in_name and in_name[1]) or next(iter(in_packages), None)
    return driver.kernel_module or "not known", library or "not known"


def _two_versions(in_image: bool, evidence: Evidence) -> Iterator[Match]:
    known = parts(evidence)
    if known is None:
        return
    driver, nvml, _ = known
    module, library = _versions(driver, nvml)
    error = cuinit_error(evidence)
    found = [finding.message for finding in evidence.found(HOST_DRIVER, "version_mismatch")]
    if "DRIVER_MISMATCH" in error and _COMPAT not in (driver.libcuda_path or ""):
        found.append(f"cuInit: {error}")
    if module != library:  # else it has been mended since the log was written
        found += [event.text for event in evidence.program.all(TWO_DRIVER_VERSIONS)][:1]
    if not found or in_image is not bool(container(evidence) and driver.packages):
        return
    installed = ", ".join(f"{name} {version}" for name, version in driver.packages.items())
    yield Match(
        evidence=(*found, *([f"packages in this container: {installed}"] if in_image else [])),
        sure=Sure.LIKELY if "not known" in (module, library) or module == library else Sure.PROVED,
        figures={
            "module": module,
            "library": library,
            "libraries": f"of version {library}"
            if library not in (module, "not known")
            else "of another version, as the driver says",
            "where": "  # on the host of this container" if container(evidence) else "",
            "hold": f"sudo apt-mark hold {' '.join(driver.packages)}  # so that it does not come again"
            if driver.packages
            else "# so that it does not come again, keep unattended upgrades from the driver's packages",
            "packages": " ".join(driver.packages),
        },
        stage=stage_of_driver(evidence),
    )


def _not_the_drivers_own(evidence: Evidence, part: str) -> tuple[str, str, dict[str, str | None] | None]:
    """Return the folder with ``part`` in its name that libcuda comes from, or "", and how to take it out of the way."""
    driver = evidence.facts.driver
    path = "" if isinstance(driver, Unknown) else driver.libcuda_path or ""
    entries = evidence.facts.variables.get("LD_LIBRARY_PATH", "").split(":")
    rest = [entry for entry in entries if part not in entry]
    folder = path.rpartition("/")[0] if part in path else next((entry for entry in entries if part in entry), "")
    if len(rest) < len(entries):
        return folder, f"export LD_LIBRARY_PATH={':'.join(rest)}", {"LD_LIBRARY_PATH": ":".join(rest) or None}
    if folder:
        return folder, f"grep -rl {folder} /etc/ld.so.conf.d | xargs sudo rm; sudo ldconfig", None
    return "", f"ls -l {path}  # if it is not the driver's own: remove it, or take its folder out of the way", None


def _compat_refused(evidence: Evidence) -> Iterator[Match]:
    known = parts(evidence)
    error = cuinit_error(evidence)
    if known is None or not re.search("COMPAT_NOT_SUPPORTED|DRIVER_MISMATCH", error):
        return
    driver = known[0]
    folder, unset, change = _not_the_drivers_own(evidence, _COMPAT)
    taken = _COMPAT in (driver.libcuda_path or "")
    # Error 804 is proof by itself, except that an upgrade of the driver without a restart ends in it, too.
    if not taken and ("COMPAT_NOT_SUPPORTED" not in error or evidence.found(HOST_DRIVER, "version_mismatch")):
        return
    yield Match(
        evidence=(
            f"libcuda.so.1 is {driver.libcuda_path}",
            f"kernel module {driver.kernel_module}",
            f"cuInit: {error}",
        ),
        figures={
            "who": f"{folder} puts a libcuda before the driver's own"
            if folder
            else "libcuda.so.1 is a library for forward compatibility",
            "module": driver.kernel_module or "(not known)",
            "unset": unset,
        },
        sure=Sure.PROVED if taken or not folder else Sure.LIKELY,
        change=change,
    )


def _stub_opened(evidence: Evidence) -> Iterator[Match]:
    error = cuinit_error(evidence)
    driver = evidence.facts.driver
    if "STUB_LIBRARY" not in error:
        return
    folder, unset, change = _not_the_drivers_own(evidence, _STUBS)
    path = None if isinstance(driver, Unknown) else driver.libcuda_path
    yield Match(
        evidence=(f"libcuda.so.1 is {path or 'not known'}", f"cuInit: {error}"),
        figures={"where": f", from {folder}" if folder else "", "unset": unset},
        change=change,
    )


def _too_old(evidence: Evidence) -> Iterator[Match]:
    found = evidence.found(HOST_DRIVER, "old_driver")
    if not found:
        return
    built = str(found[0].figures["built"])
    major, minor = [*built.split("."), "0"][:2]
    said = [event.line for event in evidence.log.all(DRIVER_TOO_OLD)]
    folder = f"/usr/local/cuda-{major}.{minor}/compat"
    keep = f"sudo apt install cuda-compat-{major}-{minor}; export LD_LIBRARY_PATH={folder}:$LD_LIBRARY_PATH"
    yield Match(
        evidence=(found[0].message, *said[:1]),
        figures={
            **found[0].figures,
            "needed": _NEEDED.get(int(major) if major.isdecimal() else 0, f"for CUDA {built}"),
            "install": install_command(evidence),
            "other": f"{keep}  # instead, as this is a data-centre GPU"
            if any(_DATA_CENTRE.search(device.name) for device in evidence.facts.nvml_devices)
            else "# the package cuda-compat, which spares that, is for data-centre GPUs alone",
        },
    )


def _fabric_manager(evidence: Evidence) -> Iterator[Match]:
    known = parts(evidence)
    said = [event.line for event in Log((cuinit_error(evidence), *evidence.lines)).all(SYSTEM_NOT_READY)]
    if known is None or not said:
        return
    driver, _, nodes = known
    module = driver.kernel_module or ""
    package, version = next((one for one in driver.packages.items() if "fabricmanager" in one[0]), ("", ""))
    of_package = _IN_PACKAGE.match(version)
    switches = [node.path for node in nodes.nodes if node.path.startswith("/dev/nvidia-nvswitch")]
    joined = any(_JOINED.search(device.name) for device in evidence.facts.nvml_devices)
    sure = Sure.PROVED if switches else Sure.LIKELY if joined else Sure.POSSIBLE
    do = (
        f"sudo apt install 'nvidia-fabricmanager-{module.partition('.')[0]}={module}*'"
        if uses_apt(evidence)
        else f"sudo dnf install nvidia-fabric-manager-{module}"
    )
    if container(evidence):
        state, do = "cannot be seen from inside this container", f"{do}  # on the host"
        sure = Sure.LIKELY if switches or joined else Sure.POSSIBLE
    elif of_package and of_package[1] != module:
        state = f"is of version {of_package[1]}, and the driver of version {module}"
    elif driver.fabric_manager == "absent":
        state = "is not installed"
    elif driver.fabric_manager == "stopped":
        state, do = "is installed and does not run", "sudo journalctl -u nvidia-fabricmanager -e  # why it stopped"
    else:
        state, sure = "runs, and has not made the GPUs ready", Sure.POSSIBLE
        do = "sudo journalctl -u nvidia-fabricmanager -e; sudo systemctl restart nvidia-fabricmanager"
    yield Match(
        evidence=(
            f"the CUDA driver: {said[0]}",
            f"NVSwitch: {', '.join(switches) or 'no device file'}; kernel module {module or 'not known'}",
            f"Fabric Manager: {driver.fabric_manager or 'not known'}{f', {package} {version}' if package else ''}",
        ),
        sure=sure,
        figures={
            "waited": f"NVIDIA's Fabric Manager, which {state}"
            if switches or joined
            else "a service of the driver, and no NVSwitch is seen whose Fabric Manager that would be",
            "cc": "sudo nvidia-smi conf-compute -srs 1  # where nvidia-smi conf-compute -f says: CC status: ON"
            if not switches
            else "",
            "do": do
            if switches or joined
            else "systemctl --failed  # services of NVIDIA's, such as nvidia-persistenced",
            "enable": "sudo systemctl enable --now nvidia-fabricmanager"
            if switches or joined
            else "sudo dmesg | grep -i -e nvrm -e xid  # a GPU or firmware that did not come up; then: sudo reboot",
            "must": "nvidia-smi -q | grep -A 2 Fabric  # must say: Completed, Success"
            + ("" if switches or joined else "; N/A: there is none"),
        },
    )


_MISMATCH = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: system has unsupported display driver / cuda driver combination"
_COMPAT_ERROR = "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: forward compatibility was attempted on non supported HW"
_STUB_ERROR = "CUDA_ERROR_STUB_LIBRARY: CUDA driver is a stub library"
_STUB = "/usr/local/cuda/lib64/stubs/libcuda.so"
_NOT_READY = "CUDA_ERROR_SYSTEM_NOT_READY: system not yet initialized"
_PACKAGES = {"libnvidia-compute-535": "535.104.05-0ubuntu0.22.04.1"}
_NVML_18 = NvmlFacts("RM has detected an NVML/RM version mismatch.", None, None, ())
_OLD = example_driver("515.65.01")
_COMPAT_LIBCUDA = "/usr/local/cuda-12.5/compat/libcuda.so.555.42.06"
_SWITCH = example_nodes("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-nvswitch0")


def _upgraded(error: str = _MISMATCH, **changes: Any) -> Evidence:
    """Return the evidence of a machine whose driver was upgraded while the kernel runs the former module."""
    facts = example_facts(**{"driver": _OLD, "nvml": _NVML_18, **changes})
    return example_evidence(facts, cuinit=error)


def _compat(error: str, libcuda: str = _COMPAT_LIBCUDA, path: str = "/usr/local/cuda-12.5/compat:/opt/lib") -> Evidence:
    facts = example_facts(
        driver=example_driver(libcuda=libcuda), environment=EnvironmentFacts({"LD_LIBRARY_PATH": path})
    )
    return example_evidence(facts, cuinit=error)


def _fabric(error: str = _NOT_READY, state: str = "absent", packages: dict[str, str] | None = None) -> Evidence:
    driver = example_driver(fabric_manager=state, packages=packages or {})
    return example_evidence(example_facts(8, driver=driver, device_nodes=_SWITCH), cuinit=error)


def _without_switch(name: str, where: Family | None = None) -> Evidence:
    nvml = NvmlFacts(None, "535.104.05", "12.2", (replace(example_gpu(), name=name),))
    return example_evidence(example_facts(nvml=nvml, container=where or example().container), cuinit=_NOT_READY)


def _cuda_11(name: str = "NVIDIA A100-SXM4-40GB") -> Evidence:
    gpu = replace(example_gpu(), name=name)
    driver = replace(example_driver("470.82.01"), cuda_version="11.4")
    return example_evidence(example_facts(driver=driver, nvml=NvmlFacts(None, "470.82.01", "11.4", (gpu,))))


RULES = (
    Rule(
        id="driver_upgraded_without_reboot",
        stage=Stage.DRIVER,
        cause="the kernel still runs NVIDIA's module {module}, and the driver's libraries are {libraries}",
        why="""
        An upgrade of the driver's packages, most often an unattended one in the night, replaces the libraries at once
        and the kernel module at the next start. Until then nvidia-smi says "Driver/library version mismatch", cuInit
        fails with CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, and TensorFlow lists no GPU. Programs that started before the
        upgrade go on.
        """,
        fix=(
            "sudo reboot{where}",
            "sudo rmmod nvidia_drm nvidia_modeset nvidia_uvm nvidia; sudo modprobe nvidia  # or, no GPU being in use",
            "{hold}",
        ),
        url="https://docs.nvidia.com/deploy/cuda-compatibility/",
        find=partial(_two_versions, False),
        cases=(
            RuleCase("NVML and cuInit", _upgraded()),
            RuleCase("NVML alone", example_evidence(example_facts(driver=_OLD, nvml=_NVML_18))),
            RuleCase("cuInit alone", example_evidence(example_facts(), cuinit=_MISMATCH)),
            RuleCase("in a container that brings no driver", _upgraded(container=DOCKER)),
            RuleCase(
                "a log",
                example_evidence(
                    example_facts(driver=_OLD, nvml=NvmlFacts("Unknown Error", None, None, ())),
                    lines=("E cuda_diagnostics.cc] kernel version 515.65.1 does not match DSO version 535.104.5 --",),
                ),
            ),
            RuleCase(
                "a log from before the reboot",
                example_evidence(
                    example_facts(), lines=("Failed to initialize NVML: Driver/library version mismatch",)
                ),
                fires=False,
            ),
            RuleCase("of one version", example_evidence(example_facts(), listed=1), fires=False),
            RuleCase("another error", example_evidence(example_facts(), cuinit=_NOT_READY), fires=False),
            RuleCase("a compatibility package", _compat(_MISMATCH), fires=False),
        ),
    ),
    Rule(
        id="driver_in_image",
        stage=Stage.DRIVER,
        cause="this container's image brings a driver of its own ({library}), and the host runs module {module}",
        why="""
        The container runtime mounts the host's driver libraries into each container, of the very version of the host's
        kernel module. Where packages of the driver are installed in the image, often as a dependency of another one,
        their libraries are found first, and fit the host only as long as nobody upgrades it.
        """,
        fix=(
            "RUN apt-get purge -y {packages}  # in the Dockerfile",
            "docker run --gpus all ...  # brings the host's libraries",
        ),
        url="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html",
        find=partial(_two_versions, True),
        cases=(
            RuleCase("a package in Docker", _upgraded(driver=replace(_OLD, packages=_PACKAGES), container=DOCKER)),
            RuleCase("no package", _upgraded(container=DOCKER), fires=False),
            RuleCase("no container", _upgraded(driver=replace(_OLD, packages=_PACKAGES)), fires=False),
            RuleCase(
                "of one version",
                example_evidence(example_facts(driver=example_driver(packages=_PACKAGES), container=DOCKER)),
                fires=False,
            ),
        ),
    ),
    Rule(
        id="compat_library_refused",
        stage=Stage.DRIVER,
        cause="{who} that module {module} or this GPU does not accept",
        why="""
        The package cuda-compat brings a newer libcuda.so.1 for an older kernel module. It works on data-centre GPUs,
        with certain older drivers, and nowhere else: on a GeForce, or with a driver that is newer than the package,
        cuInit fails. NVIDIA's images contain it in /usr/local/cuda/compat. CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE
        says that much by itself; where several GPUs are there, one that is not supported is enough
        (CUDA_VISIBLE_DEVICES hides it).
        """,
        fix=("{unset}",),
        url="https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html",
        find=_compat_refused,
        cases=(
            RuleCase("not for this GPU", _compat(_COMPAT_ERROR)),
            RuleCase("older than the module", _compat(_MISMATCH)),
            RuleCase("by the loader's cache", _compat(_MISMATCH, path="")),
            RuleCase("not for this GPU, in another folder", _compat(_COMPAT_ERROR, LIBCUDA, path="")),
            RuleCase("not for this GPU, by LD_LIBRARY_PATH", _compat(_COMPAT_ERROR, LIBCUDA)),
            RuleCase("the driver was upgraded", _upgraded(error=_COMPAT_ERROR), fires=False),
            RuleCase("accepted", _compat(""), fires=False),
            RuleCase("another error", _compat(_NOT_READY), fires=False),
            RuleCase("the driver's own library", _compat(_MISMATCH, LIBCUDA), fires=False),
        ),
    ),
    Rule(
        id="stub_library_opened",
        stage=Stage.DRIVER,
        cause="libcuda.so.1 is the stub of the CUDA toolkit{where} instead of the driver's library",
        why="""
        The toolkit has a libcuda.so in its folder stubs, for linking on machines without a driver. Where that folder is
        in LD_LIBRARY_PATH or in the loader's configuration, or a Dockerfile linked libcuda.so.1 to the stub, programs
        open it, and cuInit says CUDA_ERROR_STUB_LIBRARY. The driver itself can be in order: nvidia-smi works.
        """,
        fix=("{unset}",),
        url="https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html",
        find=_stub_opened,
        cases=(
            RuleCase("by LD_LIBRARY_PATH", _compat(_STUB_ERROR, _STUB, path="/usr/local/cuda/lib64/stubs")),
            RuleCase("by the loader's cache", _compat(_STUB_ERROR, _STUB, path="")),
            RuleCase("in another folder", _compat(_STUB_ERROR, LIBCUDA, path="")),
            RuleCase("another error", _compat(_NOT_READY, _STUB), fires=False),
            RuleCase("it works", _compat("", _STUB), fires=False),
        ),
    ),
    Rule(
        id="driver_too_old",
        stage=Stage.CONTEXT,
        cause="the driver supports CUDA {supported} at most, and this TensorFlow was built with CUDA {built}",
        why="""
        A driver runs every CUDA of its own major version and older ones. TensorFlow lists the GPUs with an older driver
        too, without a warning; then creating its devices fails with "CUDA driver version is insufficient for CUDA
        runtime version". The CUDA libraries that pip installs do not help: the driver is what is too old.
        """,
        fix=("{install}  # {needed} or newer, then reboot", "{other}"),
        url="https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
        find=_too_old,
        cases=(
            RuleCase("CUDA 11.4", _cuda_11()),
            RuleCase("CUDA 11.4 on a GeForce", _cuda_11("NVIDIA GeForce RTX 3090")),
            RuleCase("an older minor version", example_evidence(example_with_gpus(1), listed=1), fires=False),
        ),
    ),
    Rule(
        id="fabric_manager_not_running",
        stage=Stage.DRIVER,
        cause="the GPUs are not ready and wait for {waited}",
        why="""
        On machines whose GPUs are joined by NVSwitch (HGX and DGX with A100, H100, H200, B200) a service must set the
        switches up before CUDA can start: nvidia-fabricmanager, of exactly the driver's version. nvidia-smi lists all
        GPUs without it, and cuInit fails with CUDA_ERROR_SYSTEM_NOT_READY: "system not yet initialized". An upgrade of
        the driver alone is enough to stop it. Without NVSwitch the same error comes from a GPU in confidential
        computing mode that is not set ready (`nvidia-smi conf-compute -srs 1`), and from one whose driver or firmware
        has not come up.
        """,
        fix=(
            "{do}",
            "{enable}",
            "{cc}",
            "{must}",
        ),
        url="https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html",
        find=_fabric_manager,
        cases=(
            RuleCase("not installed", _fabric()),
            RuleCase("stopped", _fabric(state="stopped")),
            RuleCase("running", _fabric(state="running")),
            RuleCase(
                "of another version", _fabric(state="stopped", packages={"nvidia-fabricmanager-535": "535.54.03-1"})
            ),
            RuleCase("in a container", example_evidence(example_facts(container=DOCKER), cuinit=_NOT_READY)),
            RuleCase(
                "in a log", example_evidence(example_facts(), lines=(f"E ] failed call to cuInit: {_NOT_READY}",))
            ),
            RuleCase("without NVSwitch", _without_switch("NVIDIA GeForce RTX 4090")),
            RuleCase("without NVSwitch, in a container", _without_switch("NVIDIA L4", DOCKER)),
            RuleCase("no device file, and yet of a kind that is joined", _without_switch("NVIDIA H200", DOCKER)),
            RuleCase("ready", _fabric(""), fires=False),
            RuleCase("another error", _fabric(_MISMATCH), fires=False),
        ),
    ),
)
