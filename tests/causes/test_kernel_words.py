"""What the kernel's log and the settings of modules say decides the cause and its fix; machines are staged as files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from examples.machines import NO_DEVICE, example_evidence, example_facts
from examples.senses import BUSY, Seen, card, devices
from gpudiag.facts import device_nodes, driver, kernel
from gpudiag.fix import Kind
from gpudiag.model.diagnosis import RootCause
from gpudiag.model.facts import CallFacts, KernelFacts, NvmlFacts, TimedCall, Unknown
from gpudiag.model.report import Limits
from gpudiag.run.diagnosis import diagnose
from reports import fix_line

NOT_LOADED = NvmlFacts("Driver Not Loaded", None, None, ())
NO_GPU = NvmlFacts(None, "570.158.01", "12.8", ())
BUILT = {"lib/modules/6.1.0/modules.dep": "updates/dkms/nvidia.ko: \n"}
THREADS = "https://github.com/"
ISSUES = f"{THREADS}NVIDIA/open-gpu-kernel-modules/issues/"


def kmsg(*messages: str) -> dict[str, str]:
    escaped = [message.replace("\n", "\\x0a") for message in messages]
    return {"dev/kmsg": "".join(f"3,{number},5140900,-;{text}\n" for number, text in enumerate(escaped))}


def pci(address: str, device: str, bound: str = "") -> dict[str, str]:
    folder = f"sys/bus/pci/devices/{address}/"
    resource = "0x00000000fb000000 0x00000000fbffffff 0x40200\n" * 2
    files = {"vendor": "0x10de\n", "class": "0x030000\n", "device": f"{device}\n", "resource": resource}
    return {folder + name: text for name, text in {**files, "uevent": f"DRIVER={bound}\n" if bound else ""}.items()}


def loaded(version: str = "570.158.01", kind: str = "Open Kernel Module for x86_64") -> dict[str, str]:
    nodes = dict.fromkeys(("dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia0"), "")
    return {**nodes, "proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX {kind}  {version}  Release Build\n"}


def examine(
    root: Path,
    files: dict[str, str],
    nvml: NvmlFacts | Unknown,
    *,
    os: str = "Ubuntu 22.04.3 LTS",
    cuinit: str = NO_DEVICE,
    required: int = 0,
    **families: Any,
) -> list[RootCause]:
    """Gather the facts of the machine with these files and return its causes."""
    for name, text in {"proc/sys/kernel/osrelease": "6.1.0\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o666)
    of_driver = driver.gather(root, "libno.so.1")
    version = of_driver.kernel_module or "570.158.01"
    of_driver = replace(of_driver, libcuda_path=f"/usr/lib/libcuda.so.{version}", libcuda_error=None)
    if isinstance(nvml, NvmlFacts) and nvml.driver_version:
        nvml = replace(nvml, driver_version=version)
    gathered = {"driver": of_driver, "device_nodes": device_nodes.gather(root), "kernel": kernel.gather(root)}
    count = len(nvml.devices) if isinstance(nvml, NvmlFacts) else 0
    facts = example_facts(count, os, nvml=nvml, **{**gathered, **families})
    evidence = example_evidence(facts, cuinit=cuinit, listed=0 if cuinit else count)
    return list(diagnose(dataclasses.replace(evidence, limits=Limits(require_gpus=required))).causes)


_OPEN_REFUSES = (
    "nvidia-nvlink: Nvlink Core is being initialized, major device number 508",
    "NVRM: The NVIDIA GPU 0000:2c:00.0 (PCI ID: 10de:1d16)\nNVRM: installed in this system is not supported by open\n"
    "NVRM: nvidia.ko because it does not include the required GPU\nNVRM: System Processor (GSP).",
    "nvidia 0000:2c:00.0: probe with driver nvidia failed with error -1",
    "NVRM: The NVIDIA probe routine failed for 1 device(s).",
    "NVRM: None of the NVIDIA devices were initialized.",
)
_INIT_FAILED = "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x65:1792)"
_GSP = "NVRM: RmInitAdapter: Cannot initialize GSP firmware RM"
_K80 = (
    "Nov 20 10:00:01 h kernel: NVRM: The NVIDIA Tesla K80 GPU installed in this system is#012NVRM:  supported through "
    "the NVIDIA 470.xx Legacy drivers. Please#012NVRM:  information.  The 560.35.05 NVIDIA driver will ignore\n"
)

MET: dict[str, tuple[dict[str, str], NvmlFacts, str, str, str]] = {
    # thread or matter: files, NVML, cause, words of its sentence, words of its fix
    f"{THREADS}pop-os/cosmic-epoch/issues/3411": (
        {**BUILT, **pci("0000:2c:00.0", "0x1d16"), **kmsg(*_OPEN_REFUSES)},
        NOT_LOADED,
        "kernel_module_of_wrong_kind",
        "needs NVIDIA's proprietary kernel module, but the open one is installed",
        "nvidia-driver-580",
    ),
    f"{ISSUES}230": (
        {
            **pci("0000:01:00.0", "0x2484", "nvidia"),
            **loaded("515.43.04"),
            **kmsg("NVRM: Open nvidia.ko is only ready for use on Data Center GPUs.", _INIT_FAILED),
        },
        NO_GPU,
        "gpu_refused_by_driver",
        "only if it is told to",
        "NVreg_OpenRmEnableUnsupportedGpus=1",
    ),
    f"{ISSUES}789": (
        {**pci("0000:01:00.0", "0x2204", "nvidia"), **loaded(), **kmsg(_GSP, _INIT_FAILED)},
        NO_GPU,
        "gpu_refused_by_driver",
        "the firmware of the GPU (GSP) does not start",
        "switch the machine off",
    ),
    f"{ISSUES}263": (
        {
            **pci("0000:01:00.0", "0x2504", "nvidia"),
            **loaded(),
            **kmsg(
                "nvidia 0000:01:00.0: Direct firmware load for nvidia/515.43.04/gsp.bin failed with error -2",
                _GSP,
                _INIT_FAILED,
            ),
        },
        NO_GPU,
        "gpu_refused_by_driver",
        "firmware in /lib/firmware/nvidia is missing",
        "install the driver's firmware",
    ),
    "power cables": (
        {
            **pci("0000:01:00.0", "0x2235", "nvidia"),
            **loaded(),
            **kmsg("NVRM: GPU 0000:01:00.0: GPU does not have the necessary power cables connected.", _INIT_FAILED),
        },
        NO_GPU,
        "gpu_refused_by_driver",
        "gets no power",
        "connect every power socket",
    ),
    f"{ISSUES}862": (
        {
            **pci("0000:01:00.0", "0x2c02", "nvidia"),
            **loaded("575.51.03"),
            **kmsg(
                "pci 0000:01:00.0: BAR 1 [mem size 0x800000000 64bit pref]: can't assign; no space",
                "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x22:0x56:884)",
            ),
        },
        NvmlFacts("Not Found", "575.51.03", None, ()),
        "gpu_refused_by_driver",
        "gave the GPU no address range (BAR)",
        "Above 4G Decoding",
    ),
    f"{THREADS}linux-surface/surface-aggregator-module/issues/54": (
        {
            **pci("0000:01:00.0", "0x1f91", "nvidia"),
            **{name: text for name, text in loaded().items() if "uvm" not in name},
            "etc/modprobe.d/dgpu-off.conf": "install nvidia_uvm /bin/false\nblacklist nvidia_uvm\n",
        },
        devices(card()),
        "uvm_missing",
        "/dev/nvidia-uvm is missing",
        "sudo sed -i '1d;2d' /etc/modprobe.d/dgpu-off.conf",
    ),
    "only a file of syslog may be read": (
        {**BUILT, **pci("0000:01:00.0", "0x102d"), "var/log/messages": _K80},
        NOT_LOADED,
        "gpu_needs_legacy_driver",
        "Tesla K80 needs the legacy driver 470.xx",
        "nvidia-driver-470",
    ),
    f"{THREADS}canonical/nvidia-prime/issues/20": (
        {
            **BUILT,
            **pci("0000:01:00.0", "0x1f91"),
            "etc/modprobe.d/blacklist-nvidia.conf": "# x\nblacklist nvidia\nalias nvidia off\nalias nvidia-drm off\n",
        },
        NOT_LOADED,
        "module_not_loaded",
        "/etc/modprobe.d/blacklist-nvidia.conf:3 forbids it",
        "sudo sed -i '3d;2d' /etc/modprobe.d/blacklist-nvidia.conf",
    ),
    f"{THREADS}Bumblebee-Project/Bumblebee/issues/822": (
        {**BUILT, **pci("0000:01:00.0", "0x1f91"), "etc/modprobe.d/bumblebee.conf": "\nblacklist nvidia\n"},
        NOT_LOADED,
        "module_not_loaded",
        "/etc/modprobe.d/bumblebee.conf:2 forbids it",
        "optirun python PROGRAM",
    ),
    "an option of the kernel": (
        {
            **BUILT,
            **pci("0000:01:00.0", "0x1f91"),
            **kmsg("Module nvidia is blacklisted"),
            "proc/cmdline": "root=/dev/sda1 module_blacklist=nvidia,nvidia_drm quiet\n",
        },
        NOT_LOADED,
        "module_not_loaded",
        "the kernel's option module_blacklist=nvidia,nvidia_drm forbids it",
        "/etc/default/grub",
    ),
    f"{THREADS}negativo17/nvidia-driver/issues/97": (
        {**BUILT, **pci("0000:01:00.0", "0x1f91"), **kmsg("nvidia: version magic '6.0.9 ' should be '6.1.0 '")},
        NOT_LOADED,
        "module_not_loaded",
        "was built for another kernel",
        "dkms autoinstall",
    ),
    f"{THREADS}CachyOS/linux-cachyos/issues/118": (
        {**pci("0000:01:00.0", "0x1f91"), "lib/modules/6.9.0/updates/dkms/nvidia.ko.zst": ""},
        NOT_LOADED,
        "module_not_built",
        "was not built for the running kernel",
        "dkms autoinstall -k 6.1.0",
    ),
    "a signature is refused, and the variables of UEFI may not be read": (
        {**BUILT, **pci("0000:01:00.0", "0x2204"), **kmsg("Loading of module with unavailable key is rejected")},
        NOT_LOADED,
        "module_refused_by_secure_boot",
        "the kernel refuses a module whose signature it does not know",
        "mokutil --import",
    ),
    "a GPU for virtual machines by its number": (
        {
            **pci("0000:01:00.0", "0x2204", "vfio-pci"),
            "etc/modprobe.d/vfio.conf": "options vfio-pci ids=10de:2204,10de:1aef\n",
        },
        NOT_LOADED,
        "gpu_kept_for_others",
        "is reserved by the kernel driver vfio-pci",
        "sudo sed -i '1d' /etc/modprobe.d/vfio.conf",
    ),
    f"{THREADS}OpenMandrivaAssociation/distribution/issues/2169": (
        {
            **pci("0000:01:00.0", "0x1c03", "nouveau"),
            "proc/modules": "nouveau 1 0 - Live 0x0\n",
            "etc/modprobe.d/blacklist.conf": "blacklist nouveau\n",
        },
        NOT_LOADED,
        "nouveau_in_use",
        "with nouveau instead of NVIDIA's module",
        "sudo update-initramfs -u",
    ),
}


@pytest.mark.parametrize("thread", MET)
def test_the_first_cause_is_what_the_kernel_says(thread: str, tmp_path: Path) -> None:
    files, nvml, cause_id, words, fix = MET[thread]
    first = examine(tmp_path, files, nvml)[0]
    assert (first.cause_id, words in first.cause) == (cause_id, True), first.cause
    assert any(fix in fix_line(action) for action in first.fix)


def test_nothing_is_asked_for_that_is_already_so(tmp_path: Path) -> None:
    files, nvml, *_ = MET[f"{THREADS}OpenMandrivaAssociation/distribution/issues/2169"]
    assert not any("blacklist nouveau" in action.command for action in examine(tmp_path, files, nvml)[0].fix)


OF_ONE_OF_SEVERAL = {
    f"{ISSUES}1230": (
        "NVRM: GPU6 _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP",
        "(GSP)",
    ),
    f"{THREADS}NVIDIA/NVSentinel/issues/155": (
        "NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: (PCI ID: 10de:26b5) installed in this system has\n"
        "NVRM: fallen off the bus and is not responding to commands.",
        "fallen off the PCIe bus",
    ),
}


@pytest.mark.parametrize("thread", OF_ONE_OF_SEVERAL)
def test_a_gpu_that_does_not_start_is_named_while_others_work(thread: str, tmp_path: Path) -> None:
    message, words = OF_ONE_OF_SEVERAL[thread]
    nvml = devices(*[card() for _ in range(3)])
    on_bus = [pci(device.pci_bus_id, "0x20b0", "nvidia") for device in nvml.devices]
    files = {
        name: text for one in (*on_bus, pci("0000:b3:00.0", "0x20b0", "nvidia"), loaded()) for name, text in one.items()
    }
    (cause,) = examine(tmp_path, {**files, **kmsg(message)}, nvml, cuinit="")
    assert (cause.cause_id, cause.gpus) == ("gpu_refused_by_driver", ("0000:b3:00.0",))
    assert "GPU 0000:b3:00.0" in cause.cause
    assert words in cause.cause


def test_the_driver_that_runs_the_other_gpus_is_not_changed(tmp_path: Path) -> None:
    def kinds(number: int, model: str = "0x20b0") -> list[Kind]:
        nvml = devices(*[card() for _ in range(number)])
        on_bus = [pci(device.pci_bus_id, "0x20b0", "nvidia") for device in nvml.devices]
        refused = pci("0000:b3:00.0", model, "nvidia")
        files = {name: text for one in (*on_bus, refused, loaded()) for name, text in one.items()}
        log = kmsg("NVRM: GPU 0000:b3:00.0: RmInitAdapter failed! (0x26:0x56:1463)")
        (cause,) = examine(tmp_path / f"{number} {model}", {**files, **log}, nvml, cuinit="")
        assert cause.cause_id == "gpu_refused_by_driver"
        return [action.kind for action in cause.fix]

    assert Kind.CHANGE_DRIVER not in kinds(3)
    assert Kind.REPLACE_HARDWARE in kinds(3)
    assert Kind.CHANGE_DRIVER not in kinds(1)
    assert Kind.CHANGE_DRIVER in kinds(1, "0x2330")


def test_a_line_about_another_gpu_explains_nothing(tmp_path: Path) -> None:
    nvml = devices(card())
    address = nvml.devices[0].pci_bus_id
    files = {**pci(address, "0x20b0", "nvidia"), **pci("0000:b3:00.0", "0x20b0", "nvidia"), **loaded()}
    log = kmsg(f"NVRM: Xid (PCI:{address[:-2]}): 79, pid=1, GPU has fallen off the bus.")
    assert examine(tmp_path, {**files, **log}, nvml, cuinit="") == []


def test_the_log_is_read_even_if_the_driver_hangs(tmp_path: Path) -> None:
    xid = "NVRM: Xid (PCI:0000:c1:00): 119, pid=1, Timeout after 6s of waiting for RPC response from GPU0 GSP!"
    causes = examine(
        tmp_path,
        {**pci("0000:c1:00.0", "0x2330", "nvidia"), **kmsg(xid)},
        Unknown("no answer within 40 s"),
        cuinit="",
        driver=Unknown("no answer within 40 s"),
        calls=CallFacts((TimedCall("cuInit", None, waited_s=40.0),)),
    )
    assert causes[0].cause_id == "driver_call_hangs"
    assert "Xid 119: the GPU's system processor (GSP) does not answer the driver" in causes[0].cause
    assert any(action.command == "sudo nvidia-smi --gpu-reset -i 0000:c1:00.0" for action in causes[0].fix)


def test_a_module_that_only_the_list_of_modules_lacks_was_built(tmp_path: Path) -> None:
    files = {**pci("0000:c1:00.0", "0x2330"), "lib/modules/6.1.0/modules.dep": "kernel/fs/ext4.ko:\n"}
    (cause, *_) = examine(tmp_path / "absent", files, NOT_LOADED)
    assert cause.cause_id == "module_not_built"
    files["lib/modules/6.1.0/extra/nvidia.ko"] = ""
    (cause, *_) = examine(tmp_path / "unlisted", files, NOT_LOADED)
    assert (cause.cause_id, cause.fix[0].command) == ("module_not_loaded", "sudo depmod -a && sudo modprobe nvidia")
    assert "modules.dep does not list /lib/modules/6.1.0/extra/nvidia.ko" in cause.cause


def test_a_gpu_that_is_excluded_on_purpose_is_not_missing(tmp_path: Path) -> None:
    nvml = devices(card())
    information = {"proc/driver/nvidia/gpus/0000:b3:00.0/information": "Model: \t NVIDIA A100\nGPU Excluded:\t Yes\n"}
    on_bus = {**pci(nvml.devices[0].pci_bus_id, "0x20b0", "nvidia"), **pci("0000:b3:00.0", "0x20b0", "nvidia")}
    log = kmsg("NVRM: GPU 0000:b3:00.0: RmInitAdapter failed! (0x62:0x65:1792)")
    assert examine(tmp_path, {**on_bus, **loaded(), **information, **log}, nvml, cuinit="") == []


def test_a_gpu_that_waits_for_a_reset_is_not_called_busy() -> None:
    """As in https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/issues/982."""
    log = ("NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062)",)
    (cause,) = diagnose(Seen(raised=BUSY).on(nvml=devices(card()), kernel=KernelFacts(log=log))).causes
    assert cause.cause.endswith("its compute mode is not the reason: the driver refuses the GPU until it is reset")
    assert cause.fix[0].kind is Kind.RESET_GPU


@pytest.mark.parametrize(("maker", "fix"), [("0x1002", "pip install tensorflow-rocm"), ("0x8086", "")])
def test_a_gpu_of_another_maker_alone_is_said_if_a_gpu_is_required(maker: str, fix: str, tmp_path: Path) -> None:
    folder = "sys/bus/pci/devices/0000:03:00.0/"
    files = {f"{folder}vendor": f"{maker}\n", f"{folder}class": "0x030000\n"}
    log = kmsg("NVRM: No NVIDIA graphics adapter found!", "NVRM: NVIDIA init module failed!")
    (cause,) = examine(tmp_path / "required", {**files, **log}, NOT_LOADED, required=1)
    assert cause.cause_id == "fewer_gpus_than_required"
    assert any("TensorFlow for CUDA uses NVIDIA's GPUs alone" in line for line in cause.evidence)
    assert cause.fix[0].command.startswith(fix)
    assert (
        examine(tmp_path / "none", files, NvmlFacts("NVML Shared Library Not Found", None, None, ()), cuinit="") == []
    )


_START = (
    "nvidia-nvlink: Nvlink Core is being initialized, major device number 234",
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01  Release Build",
)
ODD: dict[str, dict[str, str]] = {
    "an Xid of a program": kmsg(*_START, "NVRM: Xid (PCI:0000:01:00): 31, pid=77, name=python, Ch 00000008"),
    "a GPU was lost before the module was loaded again": kmsg(
        "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.", *_START
    ),
    "lost, and works again without a trace in the log": kmsg(
        *_START, "NVRM: GPU 0000:01:00.0: GPU has fallen off the bus."
    ),
    "blacklisted, and loaded by nvidia-modprobe": {"etc/modprobe.d/bumblebee.conf": "blacklist nvidia\n"},
    "nouveau is blacklisted": {"usr/lib/modprobe.d/nvidia.conf": "blacklist nouveau\noptions nouveau modeset=0\n"},
    "options of the module": {"etc/modprobe.d/nvidia.conf": "options nvidia NVreg_PreserveVideoMemoryAllocations=1\n"},
    "the other card is for a virtual machine": {
        **pci("0000:b3:00.0", "0x1b06", "vfio-pci"),
        "proc/cmdline": "vfio-pci.ids=10de:1b06 intel_iommu=on\n",
    },
    "it slept": kmsg(*_START, "PM: suspend entry (deep)", "PM: suspend exit"),
    "a GPU of Intel draws": {
        "sys/bus/pci/devices/0000:00:02.0/vendor": "0x8086\n",
        "sys/bus/pci/devices/0000:00:02.0/class": "0x030000\n",
    },
    "the chipset is not known": kmsg(*_START, "NVRM objClInitPcieChipset: *** Chipset Setup Function Error!"),
    "a port without a device": kmsg(*_START, "nvidia-gpu 0000:01:00.3: i2c timeout error e0000000"),
    "an unsigned module of somebody else": kmsg("Loading of unsigned module is rejected", *_START),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_and_healthy(name: str, tmp_path: Path) -> None:
    nvml = devices(card())
    on_bus = pci(nvml.devices[0].pci_bus_id, "0x20b0", "nvidia")
    assert examine(tmp_path, {**loaded(), **on_bus, **ODD[name]}, nvml, cuinit="") == []


UNKNOWN_ERROR = "CUDA_ERROR_UNKNOWN: unknown error"


def gpu_lost(*log: str) -> RootCause:
    """Return the cause on a machine whose first GPU gives no context, by such a kernel's log."""
    causes = diagnose(Seen(raised=UNKNOWN_ERROR).on(nvml=devices(card()), kernel=KernelFacts(log=log))).causes
    return next(cause for cause in causes if cause.cause_id == "gpu_lost")


def test_a_gpu_that_failed_and_that_the_log_names_is_the_head() -> None:
    address = devices(card()).devices[0].pci_bus_id
    found = gpu_lost(f"NVRM: GPU {address}: RmInitAdapter failed! (0x26:0x56:1463)")
    assert found.cause.startswith("the kernel's log names a fault of GPU 0: ")
    assert found.confidence.value == "likely"
    assert any("RmInitAdapter" in line for line in found.evidence)
    other = gpu_lost("NVRM: GPU 0000:b3:00.0: RmInitAdapter failed! (0x26:0x56:1463)")
    assert other.confidence.value == "possible"
    assert "the kernel's log names" not in other.cause


def test_a_suspend_before_the_error_is_said_with_what_loads_the_module_again() -> None:
    found = gpu_lost("PM: suspend exit")
    assert "this machine was suspended" in found.cause
    assert found.fix[0].kind is Kind.RELOAD_DRIVER
    assert not any(action.kind in (Kind.RESET_GPU, Kind.REBOOT) for action in found.fix)


OFF_THE_BUS = (
    "NVRM: The NVIDIA GPU 0000:01:00.0",
    "NVRM: (PCI ID: 10de:2204) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
)
ONLY = {**loaded(kind="x86_64 Kernel Module"), **pci("0000:01:00.0", "0x2204", "nvidia")}
GSP = (
    "NVRM: Xid (PCI:0000:01:00): 119, pid=17, name=python, Timeout after 6s of waiting for RPC response from GPU0 GSP! "
    "Expected function 103 (GSP_RM_CONTROL) (0x20802a02 0x4)."
)


def test_lines_of_one_message_that_were_logged_one_by_one_are_read_as_one(tmp_path: Path) -> None:
    (cause, *_) = examine(tmp_path, {**ONLY, **kmsg(*OFF_THE_BUS)}, NO_GPU)
    assert "it has fallen off the PCIe bus" in cause.cause
    assert any("installed in this system has fallen off the bus" in line for line in cause.evidence)
    two = kernel.relevant(("NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x26:0x56:1463)", *OFF_THE_BUS[:1]))
    assert len(two) == 2  # each begins a message of its own


def test_a_line_that_names_no_gpu_is_about_the_only_one(tmp_path: Path) -> None:
    unnamed = kmsg("NVRM: RmInitAdapter failed! (0x26:0xffff:1096)")
    unreachable = replace(NO_GPU, error="Unknown Error")
    (cause, *_) = examine(tmp_path / "one", {**ONLY, **unnamed}, unreachable)
    assert "RmInitAdapter failed" in cause.cause
    assert cause.confidence.value == "likely"
    assert not any("nvidia-modprobe" in action.command for action in cause.fix)
    second = pci("0000:02:00.0", "0x2204", "nvidia")
    (other, *_) = examine(tmp_path / "two", {**ONLY, **second, **unnamed}, unreachable)
    assert other.confidence.value == "possible"


def test_the_kernels_words_are_the_head_where_no_gpu_can_be_asked(tmp_path: Path) -> None:
    files, failed = {**ONLY, **kmsg(GSP)}, "CUDA error: : CUDA_ERROR_UNKNOWN: unknown error"
    (cause, *_) = examine(tmp_path / "counted", files, devices(card()), cuinit=failed)
    assert cause.cause.startswith("the kernel's log names a fault of GPU 0: Xid 119: ")
    (unasked, *_) = examine(tmp_path / "unasked", files, Unknown("it hangs"), cuinit=failed)
    assert unasked.cause.startswith("the kernel's log names a fault of GPU 0000:01:00.0: Xid 119: ")
    elsewhere = {**ONLY, **kmsg(GSP.replace("01:00", "b3:00"))}
    assert all("Xid 119" not in found.cause for found in examine(tmp_path / "b3", elsewhere, devices(card())))


def test_errors_of_memory_are_called_so() -> None:
    ecc = "CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered"
    machine = Seen(raised=ecc).on(nvml=devices(card(uncorrected_errors=2)), kernel=KernelFacts(log=()))
    (cause, *_) = diagnose(machine).causes
    assert cause.cause == "GPU 0 fails when it is used: its memory has errors that cannot be corrected (ECC)"
    assert "NVML: GPU 0: 2 errors of its memory that were not corrected" in cause.evidence
