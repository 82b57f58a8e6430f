"""Distributions of Linux: how each installs NVIDIA's driver, builds its kernel module and changes how it boots.

Fixes are written in the words of Debian and Ubuntu; those of the others are here, as their own pages give them.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpudiag.fix import Action, Kind, note, prepend, run

_BY_HAND = note("add {words} to the kernel's command line", kind=Kind.CHANGE_DRIVER)


@dataclass(frozen=True)
class System:
    """A family of distributions."""

    name: str
    distributions: tuple[str, ...] = ()
    """Parts of their names in ``/etc/os-release``."""
    programs: tuple[str, ...] = ()
    """The programs that manage its packages and its start; another system's are not there."""
    driver: Action | None = None
    """How the driver is installed."""
    libraries: Action | None = None
    """How the driver's libraries alone are installed, or found: in NixOS no loader searches their folder."""
    legacy: Action | None = None
    """How the driver ``{branch}`` for older GPUs is installed."""
    build: str = ""
    """How the driver's module is built for the kernel ``{kernel}``."""
    ramdisk: str = ""
    """How the initial RAM disk is made again."""
    boot: Action = _BY_HAND
    """How the boot loader is told ``{words}`` for the kernel's command line."""
    pip: str = ""
    """How pip is installed for the system's own Python; "" if ``ensurepip`` does it."""
    has_cache: bool = True
    """True if its loader has a cache, which ``ldconfig`` writes."""


def _driver(command: str, note_: str = "") -> Action:
    return run(command, note_, kind=Kind.CHANGE_DRIVER)


def _libraries(command: str, note_: str = "") -> Action:
    return run(command, note_, kind=Kind.INSTALL_AS_ROOT)


def _grub(menu: str) -> Action:
    """Return how GRUB gets words, and writes its menu again."""
    return _driver(f"""sudo sed -i 's/^GRUB_CMDLINE_LINUX="/&{{words}} /' /etc/default/grub && sudo {menu}""")


_OF_RPM_FUSION = _driver("sudo dnf install akmod-nvidia-{branch}xx", "from RPM Fusion")
_GRUB_MKCONFIG = _grub("grub-mkconfig -o /boot/grub/grub.cfg")
_GRUBBY = _driver("sudo grubby --update-kernel=ALL --args={words}")
_REPOSITORY = "from NVIDIA's repository"
_RUNFILE = "NVIDIA-Linux-x86_64-550.90.07.run"
_TESLA = f"https://us.download.nvidia.com/tesla/550.90.07/{_RUNFILE}"
_OF_DNF = "sudo dnf install kernel-devel-{kernel} && sudo dkms autoinstall -k {kernel}"
_OF_RPM = ("rpm", "dracut", "grubby", "grub2-mkconfig")

WINDOWS = System("Windows", ("Windows",), ("wsl", "wsl.exe"))
"""Windows itself: a distribution in WSL can start these programs of it, too."""
SYSTEMS = (
    System(
        "Debian",
        ("Debian", "Ubuntu", "Mint", "Pop!_OS", "Zorin", "elementary", "Kali"),
        (
            "apt",
            "apt-get",
            "apt-mark",
            "apt-key",
            "apt-file",
            "dpkg",
            "prime-select",
            "ubuntu-drivers",
            "update-grub",
        ),
        legacy=_driver("sudo apt install nvidia-driver-{branch}"),
        build="sudo apt install linux-headers-{kernel} && sudo dkms autoinstall -k {kernel}",
        ramdisk="update-initramfs -u",
        boot=_grub("update-grub"),
        pip="apt install python3-pip",
    ),
    System(
        "Fedora",
        ("Fedora", "Nobara"),
        ("dnf", "akmods", *_OF_RPM),
        _driver("sudo dnf install akmod-nvidia xorg-x11-drv-nvidia-cuda", "from RPM Fusion"),
        _libraries("sudo dnf install xorg-x11-drv-nvidia-cuda-libs", "from RPM Fusion"),
        _OF_RPM_FUSION,
        _OF_DNF,
        "dracut --force",
        _GRUBBY,
    ),
    System(
        "RHEL 7",
        ("CentOS Linux 7", "Scientific Linux 7", "Red Hat Enterprise Linux Server 7", "Oracle Linux Server 7"),
        ("yum", *_OF_RPM),
        _driver("sudo yum install nvidia-driver-latest-dkms", _REPOSITORY),
        _libraries("sudo yum install nvidia-driver-latest-dkms-cuda-libs", _REPOSITORY),
        _driver("sudo yum install akmod-nvidia-{branch}xx", "from RPM Fusion"),
        _OF_DNF.replace("dnf", "yum"),
        "dracut --force",
        _GRUBBY,
    ),
    System(
        "Amazon Linux 2",
        ("Amazon Linux 2 ", "Amazon Linux release 2 "),
        ("yum", *_OF_RPM),
        _driver(
            f"sudo yum install gcc kernel-devel-$(uname -r) && curl -fO {_TESLA} && sudo sh {_RUNFILE}",
            "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/install-nvidia-driver.html",
        ),
        build=_OF_DNF.replace("dnf", "yum"),
        ramdisk="dracut --force",
        boot=_GRUBBY,
    ),
    System(
        "RHEL",
        ("Red Hat", "Rocky", "Alma", "CentOS", "Oracle", "Amazon"),
        ("dnf", "yum", *_OF_RPM),
        _driver("sudo dnf module install nvidia-driver:latest-dkms", _REPOSITORY),
        _libraries("sudo dnf install nvidia-driver-cuda-libs", _REPOSITORY),
        _OF_RPM_FUSION,
        _OF_DNF,
        "dracut --force",
        _GRUBBY,
    ),
    System(
        "Arch",
        ("Arch", "CachyOS", "Manjaro", "EndeavourOS", "Garuda"),
        ("pacman", "mkinitcpio"),
        _driver("sudo pacman -S nvidia-open-dkms nvidia-utils"),
        _libraries("sudo pacman -S nvidia-utils"),
        _driver("yay -S nvidia-{branch}xx-dkms", "from the AUR"),
        "sudo pacman -S nvidia-dkms {headers} && sudo dkms autoinstall -k {kernel}",
        "mkinitcpio -P",
        _GRUB_MKCONFIG,
    ),
    System(
        "SUSE",
        ("SUSE",),
        ("zypper", "rpm", "dracut", "grub2-mkconfig"),
        _driver("sudo zypper install nvidia-open-driver-G06-signed-kmp-meta nvidia-compute-utils-G06"),
        _libraries("sudo zypper install nvidia-compute-G06"),
        None,
        "sudo zypper install --force nvidia-open-driver-G06-signed-kmp-default",
        "dracut --force",
        _grub("grub2-mkconfig -o /boot/grub2/grub.cfg"),
    ),
    System(
        "Void",
        ("Void",),
        ("xbps-install", "xbps-reconfigure", "dracut"),
        _driver("sudo xbps-install -S nvidia", "from void-repo-nonfree"),
        _libraries("sudo xbps-install -S nvidia-libs", "from void-repo-nonfree"),
        _driver("sudo xbps-install -S nvidia{branch}", "from void-repo-nonfree"),
        "sudo xbps-install -S linux-headers && sudo xbps-reconfigure -f nvidia",
        "dracut --force",
        _GRUB_MKCONFIG,
    ),
    System(
        "Gentoo",
        ("Gentoo",),
        ("emerge",),
        _driver("sudo emerge x11-drivers/nvidia-drivers"),
        build="sudo emerge @module-rebuild",
        boot=_GRUB_MKCONFIG,
    ),
    System(
        "NixOS",
        ("NixOS",),
        ("nixos-rebuild",),
        note(
            'in configuration.nix: services.xserver.videoDrivers = [ "nvidia" ]; hardware.graphics.enable = true; then '
            "run nixos-rebuild switch",
            kind=Kind.CHANGE_DRIVER,
        ),
        prepend("LD_LIBRARY_PATH", "/run/opengl-driver/lib"),
        boot=note(
            'in configuration.nix: boot.kernelParams = [ "{words}" ]; then run nixos-rebuild boot',
            kind=Kind.CHANGE_DRIVER,
        ),
        has_cache=False,
    ),
    System("Alpine", ("Alpine",), ("apk",), has_cache=False),
    WINDOWS,
)
"""Every row; a release that differs from its family comes before it."""
OTHER = System("another")
"""A distribution that no row names."""
MANAGERS = {program for system in SYSTEMS for program in system.programs}
"""The programs that manage packages and the start of some system."""


def system_of(name: str) -> System | None:
    """Return the row of a distribution by its name, such as ``Rocky Linux 9.4``; None if the name is empty."""
    if not name:
        return None
    named = (row for row in SYSTEMS if any(part in f"{name} " for part in row.distributions))
    return next(named, OTHER)
