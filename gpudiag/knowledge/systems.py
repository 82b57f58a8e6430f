"""Distributions of Linux: how each installs NVIDIA's driver, builds its module and changes its start, as one table.

Fixes are written in the words of Debian and Ubuntu; those of the others are here, as their own pages give them.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpudiag.fix import Action, Kind, note, run


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
    build: str = ""
    """How the driver's module is built for the kernel ``{kernel}``."""
    ramdisk: str = ""
    """How the initial RAM disk is made again."""
    menu: str = ""
    """How GRUB's menu is written again."""


def _driver(command: str, note_: str = "") -> Action:
    return run(command, note_, kind=Kind.CHANGE_DRIVER)


_REPOSITORY = "from NVIDIA's repository"
_OF_DNF = "sudo dnf install kernel-devel-{kernel} && sudo dkms autoinstall -k {kernel}"
_OF_RPM = ("rpm", "dracut", "grubby", "grub2-mkconfig")

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
        build="sudo apt install linux-headers-{kernel} && sudo dkms autoinstall -k {kernel}",
        ramdisk="update-initramfs -u",
        menu="update-grub",
    ),
    System(
        "Fedora",
        ("Fedora", "Nobara"),
        ("dnf", "akmods", *_OF_RPM),
        _driver("sudo dnf install akmod-nvidia xorg-x11-drv-nvidia-cuda", "from RPM Fusion"),
        _OF_DNF,
        "dracut --force",
    ),
    System(
        "RHEL 7",
        ("CentOS Linux 7", "Scientific Linux 7", "Red Hat Enterprise Linux Server 7", "Oracle Linux Server 7"),
        ("yum", *_OF_RPM),
        _driver("sudo yum install nvidia-driver-latest-dkms", _REPOSITORY),
        _OF_DNF.replace("dnf", "yum"),
        "dracut --force",
    ),
    System(
        "Amazon Linux 2",
        ("Amazon Linux 2 ", "Amazon Linux release 2 "),
        ("yum", *_OF_RPM),
        note(
            "install the driver with NVIDIA's .run file: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/"
            "install-nvidia-driver.html",
            kind=Kind.CHANGE_DRIVER,
        ),
        _OF_DNF.replace("dnf", "yum"),
        "dracut --force",
    ),
    System(
        "RHEL",
        ("Red Hat", "Rocky", "Alma", "CentOS", "Oracle", "Amazon"),
        ("dnf", "yum", *_OF_RPM),
        _driver("sudo dnf module install nvidia-driver:latest-dkms", _REPOSITORY),
        _OF_DNF,
        "dracut --force",
    ),
    System(
        "Arch",
        ("Arch", "CachyOS", "Manjaro", "EndeavourOS", "Garuda"),
        ("pacman", "mkinitcpio"),
        _driver("sudo pacman -S nvidia-open-dkms nvidia-utils"),
        "sudo pacman -S nvidia-dkms {headers} && sudo dkms autoinstall -k {kernel}",
        "mkinitcpio -P",
        "grub-mkconfig -o /boot/grub/grub.cfg",
    ),
    System(
        "SUSE",
        ("SUSE",),
        ("zypper", "rpm", "dracut", "grub2-mkconfig"),
        _driver("sudo zypper install nvidia-open-driver-G06-signed-kmp-meta nvidia-compute-utils-G06"),
        "sudo zypper install --force nvidia-open-driver-G06-signed-kmp-default",
        "dracut --force",
        "grub2-mkconfig -o /boot/grub2/grub.cfg",
    ),
    System(
        "Void",
        ("Void",),
        ("xbps-install", "xbps-reconfigure", "dracut"),
        _driver("sudo xbps-install -S nvidia", "from void-repo-nonfree"),
        "sudo xbps-install -S linux-headers && sudo xbps-reconfigure -f nvidia",
        "dracut --force",
        "grub-mkconfig -o /boot/grub/grub.cfg",
    ),
    System(
        "Gentoo",
        ("Gentoo",),
        ("emerge",),
        _driver("sudo emerge x11-drivers/nvidia-drivers"),
        "sudo emerge @module-rebuild",
        menu="grub-mkconfig -o /boot/grub/grub.cfg",
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
    ),
    System("Alpine", ("Alpine",), ("apk",)),
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
