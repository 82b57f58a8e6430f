"""Packs ``gpudiag.pyz``, for hosts without pip: gpudiag and all that it needs, for several Pythons, in one file.

``scripts/release.py`` calls it. The archive is a zipapp whose program, ``pyz_main.py``, unpacks it once. One folder
holds what is compiled for several Pythons, because the names of such files carry the version.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from python_matrix import StepFailed

MAIN = Path(__file__).with_name("pyz_main.py")
FIRST = b"#!/usr/bin/env python3\n# This file is not complete: get it again. "
"""Python reads a file without its end as a program, and from 3.11 on shows the second line with its error."""
_OF_ITS_PYTHON = re.compile(r"[^/]+\.dist-info/(?:RECORD|WHEEL)$")
"""Files that differ between the wheels of a package: they are joined line by line."""
_UNUSED = re.compile(
    r"[^/]+\.data/(?:scripts|data|headers)/|[^/]+\.dist-info/(?:direct_url\.json|INSTALLER|REQUESTED)$"
)
_COMPILED = re.compile(r"/[^/.]+(\.cpython-\d+-[\w-]+\.so)$")


def merge(packages: Iterable[Mapping[str, bytes]]) -> dict[str, bytes]:
    """Return the files of all packages; StepFailed if two have different files of the same name."""
    merged: dict[str, bytes] = {}
    for package in packages:
        for name, content in package.items():
            if name.endswith("/") or _UNUSED.match(name):
                continue
            if _OF_ITS_PYTHON.match(name):
                lines = {*merged.get(name, b"").splitlines(), *content.splitlines()}
                merged[name] = b"".join(line + b"\n" for line in sorted(filter(None, lines)))
            elif merged.setdefault(name, content) != content:
                raise StepFailed(f"the wheels of a package for two Pythons have different files {name}")
    return merged


def versions(names: Iterable[str]) -> dict[str, str]:
    """Return the version of each package, by the names of its files."""
    found = (re.match(r"([\w.]+)-([^/]+)\.dist-info/METADATA$", name) for name in names)
    return {match[1].lower().replace("_", "-"): match[2] for match in found if match}


def modules(names: Iterable[str]) -> list[str]:
    """Return the top-level modules, apart from gpudiag."""
    tops = {re.split(r"[./]", name)[0] for name in names if re.match(r"[a-zA-Z_]\w*(/|\.py$|\.[\w-]+\.so$)", name)}
    return sorted(tops - {"gpudiag", "__pycache__"})


def suffixes(names: Collection[str]) -> list[str]:
    """Return how the compiled modules end that each Python which can run all packages has, oldest Python first."""
    by_module: dict[str, set[str]] = {}
    for name in names:
        if found := _COMPILED.search(name):
            by_module.setdefault(name.removesuffix(found[1]), set()).add(found[1])
    common = set.intersection(*by_module.values()) if by_module else set()
    return sorted(common, key=lambda suffix: (len(suffix), suffix))


def write(files: Mapping[str, bytes], version: str, archive: Path) -> None:
    """Write the archive; the same files give the same bytes."""
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    ends = suffixes(files)
    if not ends:
        raise StepFailed("no Python can import all compiled modules of gpudiag.pyz")
    pythons = [f"3.{found[1]}" for end in ends if (found := re.match(r"\.cpython-3(\d+)-", end))]
    machine = ends[0].split("-")[2]
    main = MAIN.read_text()
    for line, value in {
        'FOLDER = ""': f"pyz-{version}-{digest.hexdigest()[:12]}",
        "SUFFIXES = ()": tuple(ends),
        "PACKAGES = ()": tuple(modules(files)),
        'FITTING = ""': f"Python {' to '.join(dict.fromkeys([pythons[0], pythons[-1]]))} on {machine} Linux with glibc",
    }.items():
        assert main.count(f"\n{line}\n") == 1, line
        main = main.replace(f"\n{line}\n", f"\n{line.split(' = ')[0]} = {value!r}\n")
    packed = io.BytesIO()
    packed.write(FIRST)
    with zipfile.ZipFile(packed, "a", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
        for name, content in sorted({**files, "__main__.py": main.encode()}.items()):
            member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = 0o644 << 16
            out.writestr(member, content, compresslevel=9)
    archive.write_bytes(packed.getvalue())
    archive.chmod(0o755)


def strangers(files: Mapping[str, bytes]) -> Iterator[str]:
    """Yield each file that no record of a package names, and each that a record names and that is missing."""
    records = (content.decode() for name, content in files.items() if name.endswith(".dist-info/RECORD"))
    recorded = {row[0] for record in records for row in csv.reader(record.splitlines())}
    yield from (f"{name} is of no package" for name in sorted(files.keys() - recorded))
    yield from (f"{name} is missing" for name in sorted(recorded - files.keys()) if not _UNUSED.match(name))
