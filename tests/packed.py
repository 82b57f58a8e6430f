"""Packs what is installed here: as ``gpudiag.pyz``, for this Python alone, and as a wheel."""

from __future__ import annotations

import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import gpudiag
import pyz
from gpudiag import examined
from gpudiag.simulator import library_directory


def _own_files() -> dict[str, bytes]:
    """Return the files of gpudiag, by their names in a wheel."""
    package = Path(gpudiag.__file__).parent
    files = {f"gpudiag/{path.relative_to(package)}": path for path in package.rglob("*.*") if path.is_file()}
    files |= {f"gpudiag/simulator/lib/{path.name}": path for path in library_directory().iterdir()}
    contents = {name: path.read_bytes() for name, path in files.items() if path.is_file()}
    metadata = distribution("gpudiag").read_text("METADATA")
    assert metadata is not None
    contents["gpudiag-1.dist-info/METADATA"] = metadata.encode()
    return {name: content for name, content in contents.items() if "__pycache__" not in name}


def pack_zipapp(folder: Path) -> Path:
    """Write ``gpudiag.pyz`` into a folder."""
    contents = _own_files()
    for _, found in examined._needed(examined.describe(sys.executable).markers or {}):
        assert found is not None
        for file in found.files or ():
            path = Path(str(found.locate_file(file)))
            if ".." not in file.parts and path.is_file() and "__pycache__" not in str(file):
                contents[str(file)] = path.read_bytes()
    archive = folder / "gpudiag.pyz"
    pyz.write(contents, gpudiag.__version__, archive)
    return archive


def pack_wheel(folder: Path) -> Path:
    """Write a wheel into a folder, of the same files as that which is built."""
    wheel = folder / f"gpudiag-{gpudiag.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in sorted(_own_files().items()):
            packed.writestr(name, content)
    return wheel
