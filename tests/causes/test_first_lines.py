"""The line to type is about what the head is about: its numbers, its place, and never what is so or has just failed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from msgspec.structs import replace

from examples import found
from examples.devices import EXAMPLES as OF_DEVICES
from examples.facts import example
from examples.kernel_module import _BBSWITCH, _machine, _removed
from examples.machines import DOCKER, PCI, example_driver, example_facts, example_nodes
from examples.multi_gpu import _ENOUGH, _UNHANDLED, _two
from examples.senses import LOST_NVML, NO_GPU, opened
from gpudiag.cause import Evidence
from gpudiag.facts import kernel
from gpudiag.model.facts import ContainerFacts, DeviceNode, KernelFacts, Limit, SystemFacts
from reports import fix_lines

_ERROR = "545.29.06: nvidia-drm-drv.c:1520:27: error: DRM_UNLOCKED undeclared here (not in a function)"
_LOG = """DKMS make.log for nvidia-545.29.06 for kernel 6.8.0-rc1 (x86_64)
  CC [M]  /var/lib/dkms/nvidia/545.29.06/build/nvidia-drm/nvidia-drm-drv.o
/var/lib/dkms/nvidia/545.29.06/build/nvidia-drm/nvidia-drm-drv.c:1520:27: error: DRM_UNLOCKED undeclared here (not in a\
 function)
"""


def lines(cause: str, evidence: Evidence) -> list[str]:
    (match,) = found(cause, evidence)
    return [line.partition("  # ")[0] for line in fix_lines(match)]


def test_the_numbers_of_the_refused_drivers_are_allowed() -> None:
    """As in https://github.com/systemd/systemd/issues/38018."""
    nodes = replace(example_nodes(), majors={"nvidia": 195, "nvidiactl": 195, "nvidia-uvm": 511, "nvidia-caps": 234})
    inside = ContainerFacts("systemd-nspawn", ("container=systemd-nspawn",), False, None)
    refused = opened(ctl="EPERM", gpu="EPERM")
    evidence = NO_GPU.on(nvml=LOST_NVML, tried=refused, device_nodes=nodes, container=inside)
    system = evidence.facts.system
    assert isinstance(system, SystemFacts)
    line = lines("device_files_kept_by_control_group", evidence)[0]
    assert f"systemd-nspawn@{system.hostname}.service 'DeviceAllow=char-nvidia rw' 'DeviceAllow=char-nvidiactl" in line
    assert "frontend" not in line


def test_the_number_of_the_group_is_that_of_the_host() -> None:
    files = [f"/dev/{name}" for name in ("nvidia-uvm", "nvidia0", "nvidiactl")]
    shut = [DeviceNode(path, "crw-rw----", False, False, "39", 39, "root", 195, 0) for path in files]
    nodes = replace(example_nodes(*files), nodes=tuple(shut), groups=("ann", "video"))
    refused = opened(ctl="EACCES", uvm="EACCES", gpu="EACCES")
    for mapped, number in ((None, "39"), ("0 1000 1", "$(stat -c %g /dev/nvidiactl)")):
        inside = replace(DOCKER, user_namespace=mapped)
        evidence = NO_GPU.on(nvml=LOST_NVML, tried=refused, device_nodes=nodes, container=inside)
        assert lines("user_not_in_device_group", evidence)[0] == f"docker run --group-add {number} ..."


def test_an_option_that_is_on_is_not_advised_alone() -> None:
    inside = ContainerFacts("singularity", ("/.singularity.d",), False, None)
    nodes = replace(example_nodes(), nodes=(), pci_gpus=(PCI,))
    driver = example_driver("387.26", "/.singularity.d/libs/libcuda.so.387.26")
    facts = example_facts(0, driver=driver, nvml=LOST_NVML, device_nodes=nodes, container=inside)
    line = lines("container_without_gpu", Evidence(facts))[0]
    assert line == "singularity exec --nv --bind /dev IMAGE COMMAND"


def test_a_build_that_failed_is_not_tried_again(tmp_path: Path) -> None:
    evidence = _machine(module_installed=False)
    assert "dkms" in lines("module_not_built", evidence)[0]
    facts = replace(evidence.facts, kernel=KernelFacts(built_for=("6.7.2-arch1-1",), build_error=_ERROR))
    (match,) = found("module_not_built", Evidence(facts, rows=evidence.rows))
    assert match.cause.endswith(": the sources of 545.29.06 do not compile for it")
    assert "boot the kernel 6.7.2-arch1-1" in fix_lines(match)[0]
    assert not any("autoinstall" in line for line in fix_lines(match))
    log = tmp_path / "var/lib/dkms/nvidia/545.29.06/build/make.log"
    log.parent.mkdir(parents=True)
    log.write_text(_LOG)
    release = tmp_path / "proc/sys/kernel/osrelease"
    release.parent.mkdir(parents=True)
    for running, error in (("6.8.0-rc1", _ERROR), ("6.8.0", "")):
        release.write_text(f"{running}\n")
        assert kernel.gather(tmp_path).build_error == error


def test_a_gpu_that_is_switched_off_is_switched_on_before_its_module_is_missed() -> None:
    evidence = _removed(_BBSWITCH, pci=(PCI,))
    assert found("module_not_loaded", evidence) == []
    assert lines("integrated_gpu_chosen", evidence)[0].startswith("echo ON | ")


def test_a_low_limit_on_open_files_comes_before_guesses_about_the_network() -> None:
    few = Limit("Max open files", 128, "/proc/self/limits")
    evidence = _two(_UNHANDLED, container=replace(_ENOUGH, limits=(few,)))
    assert lines("nccl_system_error", evidence)[0].startswith("ulimit -n ")
    usual = _two(_UNHANDLED, container=replace(_ENOUGH, limits=(replace(few, value=1024),)))
    assert "NCCL_IB_DISABLE" in " ".join(lines("nccl_system_error", usual))


def test_both_exclusive_gpus_are_opened_for_several_processes() -> None:
    evidence = next(case.evidence for case in OF_DEVICES["gpu_held_exclusively"] if case.name == "processes on both")
    system = replace(example().system, root=True)
    own = dataclasses.replace(evidence, facts=replace(evidence.facts, system=system))
    assert lines("gpu_held_exclusively", own)[0].endswith("nvidia-smi -i 0,1 -c 0")
    kill = [line for line in lines("gpu_held_exclusively", evidence) if line.startswith("kill")]
    assert kill == ["kill 33 34"]
