"""Containers in which nothing is wrong, and those with the libraries of another driver."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from conftest import Gpudiag
from corpus.containers import NO_GPU_AT_ALL, machine
from examples import evidence
from examples.machines import example_driver, example_evidence, example_facts, example_nodes
from gpudiag.model import codec
from gpudiag.model.facts import ContainerFacts, NvmlFacts
from gpudiag.model.report import Report
from gpudiag.run.diagnosis import diagnose

HIDDEN = '"/dev/nvidiactl" = false\n"/dev/nvidia-uvm" = false\n"/dev/nvidia0" = false'
DOCKER = '"/.dockerenv" = ""'
NO_DRIVER = ("--fault", "library_missing=libcuda.so.1", "--fault", "nvml_missing")


def checked(gpudiag: Gpudiag, toml: str, *arguments: str, **variables: str) -> Report:
    (gpudiag.folder / "machine.toml").write_text(toml)
    options = ("--simulate", "machine.toml", *arguments, "host", "discovery", "--format", "json")
    done = gpudiag("check", *options, flags=(), **variables)
    return codec.decode(done.stdout, done.stderr)


@pytest.mark.parametrize("variables", [{}, {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}], ids=["docker", "pod"])
def test_where_nobody_asked_for_a_gpu_and_there_is_none_nothing_is_to_be_mended(
    gpudiag: Gpudiag, variables: dict[str, str]
) -> None:
    report = checked(gpudiag, machine(DOCKER, HIDDEN, NO_GPU_AT_ALL), *NO_DRIVER, **variables)
    assert report.facts.without_gpu
    assert (report.diagnosis.causes, report.diagnosis.folded) == ((), ())


def test_a_container_that_was_given_one_of_two_gpus_is_healthy(gpudiag: Gpudiag) -> None:
    toml = machine(DOCKER, '"/sys/bus/pci/devices/0000:02:00.0/vendor" = "0x10de"')
    toml += '\n"/sys/bus/pci/devices/0000:02:00.0/class" = "0x030200"'
    report = checked(gpudiag, toml, NVIDIA_VISIBLE_DEVICES="all")
    assert (report.diagnosis.causes, report.diagnosis.folded) == ((), ())


def test_several_gpus_that_work_have_notes_alone(gpudiag: Gpudiag) -> None:
    toml = machine(
        DOCKER,
        '"/proc/self/mountinfo" = "25 24 0:23 / /dev/shm rw - tmpfs shm rw,size=65536k"',
        '"/sys/class/iommu/ivhd0/uevent" = ""',
        gpus=2,
    )
    slurm = {"SLURM_JOB_ID": "17", "SLURM_JOB_GPUS": "0,1", "SLURM_LOCALID": "3", "CUDA_VISIBLE_DEVICES": "0,1"}
    cluster = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}'
    report = checked(gpudiag, toml, NVIDIA_VISIBLE_DEVICES="all", TF_CONFIG=cluster, **slurm)
    assert (report.diagnosis.causes, report.diagnosis.folded) == ((), ())
    found = [finding for row in report.rows for finding in row.findings]
    assert {finding.severity.value for finding in found} == {"note"}
    assert {finding.kind for finding in found} == {"small_shm", "iommu_translates", "other_workers"}


def test_a_driver_library_off_the_loaders_path_is_said_to_be_there() -> None:
    (cause,) = diagnose(evidence("devices_without_library", "off the loader's path")).causes
    assert "/.singularity.d/libs, where the loader does not look" in cause.cause
    assert cause.fix[0].command == "export LD_LIBRARY_PATH=/.singularity.d/libs:$LD_LIBRARY_PATH"


@pytest.mark.parametrize(
    ("library", "first"),
    [
        pytest.param("515.43.04", "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml", id="older"),
        pytest.param("535.104.05", "sudo reboot", id="newer"),
    ],
)
def test_a_container_is_created_again_if_its_libraries_are_older_than_the_module(library: str, first: str) -> None:
    facts = example_facts(
        driver=example_driver("515.65.01", libcuda=f"/usr/lib/x86_64-linux-gnu/libcuda.so.{library}"),
        nvml=NvmlFacts("RM has detected an NVML/RM version mismatch.", None, None, ()),
        container=ContainerFacts("podman", ("/run/.containerenv",), False, None),
    )
    causes = diagnose(example_evidence(facts, cuinit="CUDA_ERROR_SYSTEM_DRIVER_MISMATCH")).causes
    match = next(cause for cause in causes if cause.cause_id == "library_and_module_differ")
    assert next(action.command for action in match.fix if action.command) == first
    assert (first == "sudo reboot") is any(action.kind.name == "REBOOT" for action in match.fix)


@pytest.mark.parametrize(
    ("runtime", "first", "second"),
    [
        ("docker", "RUN find /usr/lib64 -name '*.so.535.104.05' -delete", ""),
        ("apptainer", "find /usr/lib64 -name '*.so.535.104.05' -delete", ""),
        ("distrobox", "sudo find /usr/lib64 -name '*.so.535.104.05' -delete", "distrobox create --nvidia"),
    ],
)
def test_a_library_of_the_image_is_cured_without_the_host(runtime: str, first: str, second: str) -> None:
    libcuda = "/usr/lib64/libcuda.so.535.104.05"
    facts = example_facts(
        driver=replace(example_driver("550.54.14", libcuda=libcuda), libcuda_mounted=False),
        nvml=NvmlFacts("RM has detected an NVML/RM version mismatch.", None, None, ()),
        container=ContainerFacts(runtime, ("a sign",), False, None),
    )
    causes = diagnose(example_evidence(facts, cuinit="CUDA_ERROR_SYSTEM_DRIVER_MISMATCH")).causes
    assert [cause.cause_id for cause in causes] == ["driver_in_image"]
    assert causes[0].fix[0].command == first
    assert any(second in action.command for action in causes[0].fix)
    assert not any(action.kind.is_of_the_host for action in causes[0].fix)


_UVM = {"nvidia": 195, "nvidia-uvm": 511}


@pytest.mark.parametrize(
    ("devices", "majors", "command"),
    [
        ("dri;", _UVM, "flatpak override --user --device=all org.example.App"),
        ("dri;", {"nvidia": 195}, "sudo nvidia-modprobe -u -c=0"),
        ("all;", {}, "sudo nvidia-modprobe -u -c=0"),
    ],
)
def test_what_a_flatpak_lacks_is_its_own_or_the_hosts(devices: str, majors: dict[str, int], command: str) -> None:
    sandbox = ContainerFacts(
        "flatpak", ("/.flatpak-info",), False, None, sandbox_name="org.example.App", flatpak_devices=devices
    )
    nodes = replace(example_nodes("/dev/nvidia0", "/dev/nvidiactl"), majors=majors)
    facts = example_facts(container=sandbox, device_nodes=nodes)
    (cause,) = diagnose(example_evidence(facts, cuinit="CUDA_ERROR_UNKNOWN: unknown error")).causes
    assert cause.cause_id == "library_without_devices"
    assert [action.command for action in cause.fix if action.command] == [command]
    assert not any("if the host" in action.note for action in cause.fix)
