"""The family ``kernel``: the log of the kernel, its module settings, and what NVIDIA's module says of each GPU.

No library of NVIDIA's is opened, so this is known even if every call into the driver hangs, or if its module is not
loaded.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from gpudiag.facts import kernel_release, printable, read_text
from gpudiag.model.facts import KernelFacts, ModuleSetting

_RECORD_BYTES = 8192
"""The longest record of the kernel log; the kernel refuses a shorter buffer (EINVAL)."""
_MOST_RECORDS = 100_000
_LOG_BYTES = 4 << 20
"""How much of the end of a log file is read, and the most that journalctl may print."""
_JOURNAL_S = 4.0
_KEPT = 60
_CHARACTERS = 600
_LOG_FILES = ("var/log/kern.log", "var/log/messages", "var/log/syslog", "var/log/dmesg")
_JOURNALS = ("/var/log/journal", "/run/log/journal")
_READ_ALL, _SIZE_BUFFER = 3, 10
"""Commands of ``syslog(2)``, which ``klogctl`` of the C library calls."""

_OF_THE_DRIVER = re.compile(r"NVRM\b|nvidia[\w-]{0,20}[ :]|nouveau[ :]|nova[\w-]{0,8}[ :]")
_OF_MODULES = re.compile(
    r"Module nvidia\w{0,20} is (?:blacklisted|blocked)|Loading of .{1,60} is rejected|module loading is restricted|"
    r"PM: (?:suspend|hibernation)(?: entry|: hibernation entry| exit)"
)
_FAILURE = re.compile(r"fail|error|no space|can't|cannot|unable|lost|not ready|reject|denied", re.IGNORECASE)
_ORDINARY = re.compile(
    r"NVRM: loading NVIDIA|vgaarb|module verification|taints kernel|NVLink Core is being initialized|"
    r"Unregistered (the )?Nvlink Core|Loaded the UVM driver|Unloaded the UVM driver|[Ll]oading NVIDIA (UNIX|Kernel)|"
    r"enabling device|i2c timeout error|NVRM: {4,}|\[drm\] \[nvidia-drm\] \[GPU ID \S+\] Loading driver|"
    r"Initialized nvidia-drm",
    re.IGNORECASE,
)
"""Lines that every ordinary start logs, and the dump of registers below a message."""
_START = "nvidia-nvlink: nvlink core is being initialized"
"""How each attempt to load the module begins, in lower case: lines before the last of them are of earlier attempts."""
_BOOT = "Linux version "
_FILE_PREFIX = re.compile(r"^.{0,120}? kernel: (?:\[ {0,8}\d+\.\d+\] ?)?|^\[ {0,8}\d+\.\d+\] ?")
_SYSLOG_PREFIX = re.compile(r"^<\d+>(?:\[ {0,8}\d+\.\d+\] ?)?")
_PREFIX = "NVRM: "
_SENTENCE_ENDS = (".", "!", ":", ")")
_NEW_LINES = ("\\x0a", "#012")
"""A line break inside of a message, as ``/dev/kmsg`` and as rsyslog write it."""
ADDRESS = re.compile(r"[\da-f]{4,8}:[\da-f]{2}:[\da-f]{2}(?:\.[0-7])?", re.IGNORECASE)
"""An address on the PCI bus, with or without the function."""
_VARYING = re.compile(r"0x[\da-f]+|\d+", re.IGNORECASE)

_MODPROBE = ("etc/modprobe.d", "run/modprobe.d", "usr/local/lib/modprobe.d", "usr/lib/modprobe.d", "lib/modprobe.d")
"""The folders of ``modprobe.d(5)``: of files with one name, that in the first folder counts."""
_MODULES = frozenset({"nvidia", "nvidia_current", "nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nouveau", "vfio_pci"})
_SETTING = re.compile(r"(?P<what>blacklist|install|alias|options|softdep)\s+(?P<module>\S+)")
_OPTIONS = re.compile(
    r"(?:modprobe\.blacklist|module_blacklist|rd\.driver\.blacklist|vfio[-_]pci\.|nouveau\.|nvidia\w*\.|pci=|"
    r"pcie_aspm=|nomodeset)"
)
_UDEV = {
    "etc/udev/rules.d": "*.rules",
    "run/udev/rules.d": "*.rules",
    "usr/lib/udev/rules.d": "*nvidia*.rules",
    "lib/udev/rules.d": "*nvidia*.rules",
}
_REMOVES = ("0x10de", 'ATTR{remove}="1"', 'ATTR{class}=="0x03')
_MOST_SETTINGS = 60
_SETTINGS_BYTES = 64 << 10
_PLACES = ("updates", "updates/dkms", "extra", "extra/nvidia", "extramodules", "kernel/drivers/video", "kernel/nvidia*")
_MODULE_FILE = ("nvidia.ko", "nvidia-current.ko")
_PARAMETERS = (
    "DeviceFileGID",
    "DeviceFileMode",
    "DeviceFileUID",
    "EnableGpuFirmware",
    "ExcludedGpus",
    "GpuBlacklist",
    "ModifyDeviceFiles",
    "OpenRmEnableUnsupportedGpus",
    "DynamicPowerManagement",
    "RegistryDwords",
)


def gather(root: Path = Path("/")) -> KernelFacts:
    """Return what the kernel of the machine under ``root`` says, as far as this user may read it."""
    addresses = _nvidia_addresses(root)
    log, source, refused = _log(root, addresses)
    information = _information(root)
    return KernelFacts(
        log=log,
        log_source=source,
        log_refused=refused,
        settings=tuple(_settings(root, addresses)),
        parameters=_parameters(root),
        excluded=tuple(pci for pci, gpu in information.items() if gpu.get("GPU Excluded") == "Yes"),
        firmware={pci: gpu["GPU Firmware"] for pci, gpu in information.items() if "GPU Firmware" in gpu},
        video_bios={pci: gpu["Video BIOS"] for pci, gpu in information.items() if "Video BIOS" in gpu},
        built_for=_built_for(root),
        build_error=_build_error(root),
    )


# ---- The log ----


def _log(root: Path, addresses: frozenset[str]) -> tuple[tuple[str, ...] | None, str, str]:
    """Return the lines of the driver, where they were read, and why they could not be read from ``/dev/kmsg``."""
    refused = ""
    for source, read in (("/dev/kmsg", _kmsg), ("syslog(2)", _syslog), ("journalctl", _journal), ("", _files)):
        try:
            name, messages = read(root)
        except OSError as error:
            refused = refused or f"{source}: {errno.errorcode.get(error.errno or 0, 'EIO')}"
            continue
        return relevant(messages, addresses), name or source, refused
    return None, "", refused


def relevant(messages: Iterable[str], addresses: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Return the last messages about NVIDIA's driver, each kind once for a GPU; every message is one line.

    ``addresses`` are PCI bus ids of GPUs: a failure of the bus that names one of them is kept, too.
    """
    kept: dict[tuple[object, ...], str] = {}
    for message in _joined(messages):
        of_the_driver = _OF_THE_DRIVER.match(message) is not None
        if of_the_driver and message.lower().startswith(_START):
            kept = {key: line for key, line in kept.items() if not line.startswith(("NVRM", "nvidia", "PM: "))}
        if of_the_driver:
            if _ORDINARY.search(message):
                continue
        elif not _OF_MODULES.search(message) and not (
            addresses and _FAILURE.search(message) and not addresses.isdisjoint(ADDRESS.findall(message))
        ):
            continue
        xid = re.search(r"Xid \([^)]{1,60}\): (\d+)", message)
        key = (tuple(ADDRESS.findall(message)), xid and xid[1], _VARYING.sub("#", message[: 40 if xid else 200]))
        kept.pop(key, None)
        kept[key] = printable(message[:_CHARACTERS])
    return tuple(list(kept.values())[-_KEPT:])


def _joined(messages: Iterable[str]) -> Iterator[str]:
    """Yield the messages; one of several lines, each of which was logged as a message of its own, as one.

    ``dmesg``, journald and ``/dev/kmsg`` of older kernels keep the lines of the module's messages apart: ``NVRM: The
    NVIDIA GPU 0000:01:00.0``, ``NVRM: (PCI ID: 10de:1c8d) installed in this system has``, ``NVRM: fallen off the bus
    and is not responding to commands.`` A line that goes on begins with a small letter or a bracket, or follows one
    that does, until a sentence ends.
    """
    before, goes_on = "", False
    for message in messages:
        rest = message.removeprefix(_PREFIX)
        continues = bool(before) and rest != message and (goes_on or rest[:1].islower() or rest[:1] == "(")
        if continues and not before.endswith(_SENTENCE_ENDS) and len(before) < _CHARACTERS:
            before, goes_on = f"{before} {rest.strip()}", True
            continue
        if before:
            yield before
        before, goes_on = ("", False) if rest == message else (message.rstrip(), False)
        if not before:
            yield message
    if before:
        yield before


def _one_line(message: str) -> str:
    """Return a message of several lines, each of which may begin with ``NVRM:``, as one."""
    for mark in _NEW_LINES:
        message = message.replace(mark, "\n")
    first, *more = message.split("\n")
    return " ".join([first.rstrip(), *(re.sub(r"^\s*NVRM:\s*", "", line).strip() for line in more)]).rstrip()


def _kmsg(root: Path) -> tuple[str, list[str]]:
    file = os.open(root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        parts = (line.partition(";") for line in _records(file))
        return "", [_one_line(text) for prefix, _, text in parts if prefix[:1].isdigit()]
    finally:
        os.close(file)


def _records(file: int) -> Iterator[str]:
    """Yield each record, ``6,339,5140900,-;NVRM: ...``; each read returns one record, on a simulated machine all."""
    for _ in range(_MOST_RECORDS):
        try:
            record = os.read(file, _RECORD_BYTES)
        except BlockingIOError:
            return
        except BrokenPipeError:  # the oldest records were overwritten meanwhile
            continue
        if not record:
            return
        yield from record.decode(errors="replace").splitlines()


def _syslog(root: Path) -> tuple[str, list[str]]:
    """Read the kernel's buffer without a device file, as ``dmesg`` does in a container."""
    if root != Path("/") or sys.platform != "linux":
        raise OSError(errno.ENOENT, "a simulated machine has files alone")
    library = ctypes.CDLL(None, use_errno=True)
    size = library.klogctl(_SIZE_BUFFER, None, 0)
    buffer = ctypes.create_string_buffer(max(size, 0))
    read = library.klogctl(_READ_ALL, buffer, size) if size > 0 else -1
    if read < 0:
        raise OSError(ctypes.get_errno(), "klogctl")
    text = buffer.raw[:read].decode(errors="replace")
    return "", _messages(_SYSLOG_PREFIX, text.splitlines())


def _journal(root: Path) -> tuple[str, list[str]]:
    """Ask systemd's journal, which members of the groups adm and systemd-journal may read."""
    if root != Path("/") or not any(os.access(folder, os.R_OK) for folder in _JOURNALS):
        raise OSError(errno.ENOENT, "no journal")
    command = ["journalctl", "-k", "-b", "--no-pager", "-q", "-o", "short-monotonic", "-n", "20000"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_JOURNAL_S, check=False)
    except subprocess.TimeoutExpired:
        raise OSError(errno.ETIMEDOUT, "journalctl") from None
    if done.returncode or not done.stdout:
        raise OSError(errno.EACCES, "journalctl")
    return "", _messages(_FILE_PREFIX, done.stdout[-_LOG_BYTES:].decode(errors="replace").splitlines())


def _files(root: Path) -> tuple[str, list[str]]:
    """Read the log files that rsyslog writes: the kernel's lines since the last boot."""
    for name in _LOG_FILES:
        with suppress(OSError), (root / name).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_BYTES))
            lines = file.read(_LOG_BYTES).decode(errors="replace").splitlines()
            messages = _messages(_FILE_PREFIX, lines)
            boots = [index for index, message in enumerate(messages) if message.startswith(_BOOT)]
            return f"/{name}", messages[boots[-1] if boots else 0 :]
    raise OSError(errno.ENOENT, "no log file that this user may read")


def _messages(prefix: re.Pattern[str], lines: Iterable[str]) -> list[str]:
    """Return the messages of these lines; a line without ``prefix`` goes on with the message before it."""
    messages: list[str] = []
    for line in lines:
        match = prefix.match(line)
        if match:
            messages.append(_one_line(line[match.end() :]))
        elif messages and line[:1].isspace() and len(messages[-1]) < _CHARACTERS:
            messages[-1] = _one_line(f"{messages[-1]}\\x0a{line}")
    return messages


# ---- Settings ----


def _settings(root: Path, addresses: frozenset[str]) -> Iterator[ModuleSetting]:
    """Yield what files, the kernel's command line and sysfs say about the modules that drive NVIDIA's GPUs."""
    options = (word for word in read_text(root / "proc/cmdline").split() if _OPTIONS.match(word))
    found = [*_of_modprobe(root), *(ModuleSetting("/proc/cmdline", printable(word)) for word in options)]
    found += _switched_off(root)
    for address in sorted(addresses):
        for name in (f"sys/bus/pci/devices/{address}/driver_override", f"etc/driverctl.d/{address}"):
            driver = read_text(root / name).strip()
            if driver and driver != "(null)":
                found.append(ModuleSetting(f"/{name}", printable(driver)))
    yield from found[:_MOST_SETTINGS]


def _switched_off(root: Path) -> Iterator[ModuleSetting]:
    """Yield the rules of udev that take NVIDIA's display controllers off the bus, and bbswitch's state if it is OFF.

    EnvyControl, optimus-manager and prime-select of Ubuntu 20.04 write such rules. Others take the USB and sound
    functions of the card away alone, which saves power and is harmless.
    """
    for folder, pattern in _UDEV.items():
        if (root / folder.partition("/")[0]).is_symlink():  # /lib is /usr/lib nearly everywhere
            continue
        for file in sorted((root / folder).glob(pattern))[:_MOST_SETTINGS]:
            for number, line in enumerate(read_text(file)[:_SETTINGS_BYTES].splitlines(), 1):
                if not line.startswith("#") and all(word in line for word in _REMOVES):
                    text = printable(" ".join(line.split())[:_CHARACTERS])
                    yield ModuleSetting(f"/{folder}/{file.name}:{number}", text)
    state = read_text(root / "proc/acpi/bbswitch").strip()
    if state.endswith("OFF"):
        yield ModuleSetting("/proc/acpi/bbswitch", printable(state))


def _of_modprobe(root: Path) -> Iterator[ModuleSetting]:
    seen: set[str] = set()
    for folder in _MODPROBE:
        for file in sorted((root / folder).glob("*.conf")):
            if file.name in seen:
                continue
            seen.add(file.name)
            for number, line in enumerate(read_text(file)[:_SETTINGS_BYTES].splitlines(), 1):
                match = _SETTING.match(line.strip())
                if match and match["module"].replace("-", "_") in _MODULES:
                    yield ModuleSetting(f"/{folder}/{file.name}:{number}", printable(" ".join(line.split())))


# ---- The module ----


def _built_for(root: Path) -> tuple[str, ...]:
    """Return the kernels for which NVIDIA's module lies in /lib/modules, where DKMS, akmods and packages put it."""
    files = (file for place in _PLACES for file in root.glob(f"lib/modules/*/{place}/nvidia*.ko*"))
    names = (file.relative_to(root / "lib/modules").parts[0] for file in files if file.name.startswith(_MODULE_FILE))
    return tuple(sorted(set(map(printable, names))))


def _build_error(root: Path) -> str:
    """Return the first error of the compiler when DKMS last built the module for the running kernel; "" if none is
    known. A build that succeeds takes its log away from there."""
    for file in sorted(root.glob("var/lib/dkms/nvidia*/*/build/make.log")):
        first, *lines = read_text(file)[:_SETTINGS_BYTES].splitlines() or [""]
        error = next((line for line in lines if ": error: " in line), "")
        if error and f"for kernel {kernel_release(root)} " in f"{first} ":
            return printable(f"{file.parts[-3]}: {error.rpartition('/')[2]}"[:_CHARACTERS])
    return ""


def _parameters(root: Path) -> dict[str, str]:
    """Return parameters of the loaded module, from lines like ``EnableGpuFirmware: 18``; empty ones are left out."""
    lines = read_text(root / "proc/driver/nvidia/params").splitlines()
    values = {name: value.strip().strip('"') for name, _, value in (line.partition(":") for line in lines)}
    return {name: printable(values[name]) for name in _PARAMETERS if values.get(name)}


def _information(root: Path) -> dict[str, dict[str, str]]:
    """Return what the module says of each GPU it has, by PCI bus id: ``Model``, ``GPU Firmware``, ``GPU Excluded``."""
    gpus = {}
    for file in sorted(root.glob("proc/driver/nvidia/gpus/*/information")):
        lines = (line.partition(":") for line in read_text(file).splitlines())
        gpus[file.parent.name] = {name.strip(): printable(value.strip()) for name, _, value in lines}
    return gpus


def _nvidia_addresses(root: Path) -> frozenset[str]:
    return frozenset(
        device.name
        for device in root.glob("sys/bus/pci/devices/*")
        if read_text(device / "vendor").strip() == "0x10de" and read_text(device / "class").startswith("0x03")
    )
