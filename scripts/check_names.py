"""Check gpudiag/knowledge/names.py against the packages themselves: has each release the names that the table says?

    python scripts/check_names.py [--pythons FOLDER] [--kept FOLDER] [DISTRIBUTION ...]

For each row, takes the first release that the row names and the one before it, and looks whether the module defines the
name. Pip fetches the files, and they are read. What only a running module can say (it has a ``__getattr__``, say) is
asked of an installation in a separate folder; of TensorFlow and Keras, too large for that, the text is all. Names of
Python itself are asked of the Pythons here, and of mypy's stubs for a newer one. Prints each row that is wrong, with
the release found instead, and each that could not be checked; the exit status is 1 if there is one. Fetches some 3 GB.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path

from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

sys.path.insert(0, str(Path(__file__).parent.parent))

from gpudiag.knowledge import names
from gpudiag.knowledge.names import Moved

DYNAMIC = re.compile(r"__getattr__|sys\.modules\[__name__\] *=|sys\.modules\[__name__\]\.|globals\(\)|setattr\(|exec\(")
"""What makes a module have names that its text does not bind."""
SMALLEST = "win_amd64"
"""TensorFlow's wheels for it are the smallest."""
CPU_ALONE = Version("2.1")
"""From it on, wheels of tensorflow hold code for GPUs, and those of tensorflow-cpu do not."""
TOO_LARGE = Version("2.5")
"""From it on, wheels of TensorFlow are not fetched; tf.keras is looked up in those of Keras from 2.6 on."""
ELSEWHERE = {
    "tensorflow.train.": "tensorflow.python.training.training.",
    "transformers.TFAuto": "transformers.models.auto.modeling_tf_auto.TFAuto",
    "transformers.TFBert": "transformers.models.bert.modeling_tf_bert.TFBert",
    "transformers.TFDistilBert": "transformers.models.distilbert.modeling_tf_distilbert.TFDistilBert",
    "transformers.TFPre": "transformers.modeling_tf_utils.TFPre",
    "transformers.TFTrainer": "transformers.trainer_tf.TFTrainer",
}
"""Names to where the text binds them: the module takes them from there while it runs, and only beside TensorFlow."""
TEXT_IS_ALL = {"tensorflow", "tensorflow-cpu", "keras"}
"""Too large to be run for a look: the text of their modules is taken to bind all that they have."""
EXTRAS = {"jax": "[cpu]"}
"""What a distribution does not run without."""
MADE_FOR_NUMPY_1 = {"jax", "matplotlib", "pandas", "scikit-learn", "scipy"}
"""The releases in question do not run with NumPy 2, and do not say so."""
KERAS_3 = Version("2.16")
"""The first TensorFlow whose tf.keras is Keras 3."""
PROBE = """
from __future__ import print_function
import importlib, sys, warnings
warnings.simplefilter("ignore")
module, _, name = sys.argv[1].rpartition(".")
importlib.import_module(module.split(".")[0])
has = False
try:
    has = name == "*" or hasattr(importlib.import_module(module), name)
    importlib.import_module(module if name == "*" else sys.argv[1])
    has = True
except ImportError:
    has = has and name != "*"
print(int(has))
"""


class UncheckedError(Exception):
    """A name that could not be looked up, and why."""


class Contents:
    """The modules in a wheel or in an archive of sources."""

    def __init__(self, file: Path, *, is_all: bool) -> None:
        self.is_all = is_all
        self.files: dict[str, bytes] = {}
        if file.suffix == ".whl":
            with zipfile.ZipFile(file) as wheel:
                for name in wheel.namelist():
                    inside = re.sub(r"^[^/]+\.data/(purelib|platlib)/", "", name)
                    self.files[inside] = wheel.read(name) if name.endswith(".py") else b""
        else:
            with tarfile.open(file) as sources:
                for member in sources.getmembers():
                    inside = re.sub(r"^[^/]+/((src|lib)/)?", "", member.name)
                    content = sources.extractfile(member) if inside.endswith(".py") else None
                    self.files[inside] = content.read() if content else b""

    @cached_property
    def compiled(self) -> set[str]:
        return {name.split(".")[0].replace("/", ".") for name in self.files if name.endswith((".so", ".pyd"))}

    def path(self, module: str) -> str:
        """Return the file of a module; "" for none or a compiled one."""
        path = module.replace(".", "/")
        return next((one for one in (f"{path}/__init__.py", f"{path}.py") if one in self.files), "")

    def has_module(self, module: str) -> bool:
        inside = module.replace(".", "/") + "/"
        return bool(self.path(module)) or module in self.compiled or any(one.startswith(inside) for one in self.files)

    def text(self, module: str) -> str:
        return self.files[self.path(module)].decode("utf-8", "replace")

    def has(self, whole: str) -> bool | None:
        """Return whether a module or a name of a module is there; None if only the running module knows."""
        module, _, name = whole.rpartition(".")
        if name == "*" or not self.has_module(module):
            return self.has_module(module)
        return self._bound(module, name, set())

    def _starred(self, module: str, name: str) -> bool | None:
        """Return whether ``from module import *`` brings a name that the module has; None if a list is computed."""
        text = self.text(module)
        listed = re.findall(r"^__all__ *(?:=|\+=) *([\[(][^\])]*[\])])$", text, re.MULTILINE)
        if any(name in _strings(ast.parse(one)) for one in listed) or "__all__" not in text:
            return True
        is_computed = len(listed) < len(re.findall(r"\b__all__\b", text))
        return (self.is_all or None) if is_computed else False

    def _bound(self, module: str, name: str, seen: set[str]) -> bool | None:
        if module in seen:
            return False
        seen.add(module)
        if self.has_module(f"{module}.{name}"):
            return True
        if not self.path(module):
            return None
        text = self.text(module)
        try:
            tree = ast.parse(text)
        except SyntaxError:
            return None
        is_unknown = bool(DYNAMIC.search(text))
        for bound in _bindings(tree):
            if bound == name:
                return True
            if isinstance(bound, ast.ImportFrom):
                package = module if self.path(module).endswith("__init__.py") else module.rpartition(".")[0]
                parts = package.split(".")[: len(package.split(".")) - bound.level + 1] if bound.level else []
                source = ".".join([*parts, *filter(None, [bound.module])])
                found = self._bound(source, name, seen) if self.has_module(source) else None
                found = found and self._starred(source, name)
                if found:
                    return True
                is_unknown |= found is None
        return None if is_unknown else False


def _strings(node: ast.AST) -> list[str]:
    return [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]


def _bindings(tree: ast.AST) -> Iterator[str | ast.ImportFrom]:
    """Yield the names that a module binds, also under conditions, and its ``from x import *``."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, ast.Import):
            yield from (one.asname or one.name.split(".")[0] for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (node if one.name == "*" else one.asname or one.name for one in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for one in node.orelse:
                yield from _bindings(ast.Module([one], []))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif not isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            yield from _bindings(node)


def run(*command: str, folder: str = "") -> str:
    """Run a command, with a folder in which Python looks first, and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": folder}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise UncheckedError((done.stderr.strip() or done.stdout.strip()).splitlines()[-1])
    return done.stdout


class Index:
    """What the package index has, by pip."""

    def __init__(self, kept: Path, pythons: dict[str, str]) -> None:
        self.kept = kept
        self.pythons = pythons
        self.files, self.contents, self.ran = cache(self._files), cache(self._contents), cache(self._ran)

    def _files(self, distribution: str) -> dict[Version, list[str]]:
        """Return the wheels and archives of each release but previews."""
        flags = ["--no-deps", "--only-binary=:all:", "--dest", str(self.kept), "-vvv"]
        command = [sys.executable, "-m", "pip", "download", *flags, f"{distribution}==0.0.0.dev0"]
        log = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        found: dict[Version, list[str]] = {}
        for file in sorted(set(re.findall(r"/([\w.-]+(?:\.whl|\.tar\.gz|\.zip))(?=[ #])", log))):
            try:
                name, release = (parse_wheel_filename if file.endswith(".whl") else parse_sdist_filename)(file)[:2]
            except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
                continue
            if name == distribution and not release.is_prerelease:
                found.setdefault(release, []).append(file)
        return dict(sorted(found.items()))

    def first_from(self, distribution: str, release: Version) -> Version:
        """Return the first release of that number or later; the number itself for Python."""
        known = [] if distribution == "python" else self.files(distribution)
        return next((one for one in known if one >= release), release)

    def _pythons(self, file: str) -> list[str]:
        """Return the Pythons here that a wheel is for, the newest first."""
        tags = file[:-4].split("-")[-3].split(".")
        return [one for one in self.pythons if {f"cp{one.replace('.', '')}", f"py{one[0]}"} & set(tags)]

    def _order(self, file: str) -> tuple[int, ...]:
        """Wheels before archives, those that can run here before others, for a new Python before an old one."""
        if not file.endswith(".whl"):
            return (1,)
        platform = file[:-4].rsplit("-", maxsplit=1)[-1]
        runs = platform == "any" or bool(re.search("linux.*x86_64", platform))
        is_large = file.startswith("tensorflow") and platform != SMALLEST
        fit = self._pythons(file)
        return 0, is_large, not runs, list(self.pythons).index(fit[0]) if fit else len(self.pythons)

    def _contents(self, distribution: str, release: Version) -> Contents:
        file = min(self.files(distribution)[release], key=self._order)
        if not (self.kept / file).exists():
            flags = ["--no-deps", "--dest", str(self.kept), "--quiet", "--ignore-requires-python"]
            if file.endswith(".whl"):
                python, abi, platform = (one.split(".")[0] for one in file[:-4].split("-")[-3:])
                flags += ["--only-binary=:all:", "--python-version", python[2:] + ("7" if python == "py2" else "")]
                flags += ["--implementation", python[:2], "--abi", abi, "--platform", platform]
                run(sys.executable, "-m", "pip", "download", *flags, f"{distribution}=={release}")
            else:
                old = self.pythons.get("3.8", sys.executable)
                flags += ["--no-binary=:all:", "--no-build-isolation"]
                run(old, "-m", "pip", "download", *flags, f"{distribution}=={release}")
            if not (self.kept / file).exists():
                raise UncheckedError(f"pip brings another file than {file}")
        return Contents(self.kept / file, is_all=distribution in TEXT_IS_ALL)

    def installed(self, distribution: str, release: Version, python: str, *, is_wheel: bool) -> Path:
        """Return a folder with the release and all that it needs."""
        folder = self.kept / f"{distribution}-{release}-{python}"
        if not folder.exists():
            what = [f"{distribution}{EXTRAS.get(distribution, '')}=={release}"]
            what += ["numpy<2"] if distribution in MADE_FOR_NUMPY_1 else []
            flags = ["--quiet", "--only-binary=:all:" if is_wheel else "--prefer-binary", "--target", str(folder)]
            run(self.pythons[python], "-m", "pip", "install", *flags, *what)
        return folder

    def _ran(self, distribution: str, release: Version, whole: str) -> bool:
        file = min(self.files(distribution)[release], key=self._order)
        fit = (
            self._pythons(file)
            if file.endswith(".whl")
            else [one for one in self.pythons if Version(one) <= Version("3.8")]
        )
        reasons = []
        for python in fit:
            try:
                folder = self.installed(distribution, release, python, is_wheel=file.endswith(".whl"))
                return run(self.pythons[python], "-c", PROBE, whole, folder=str(folder)).strip() == "1"
            except UncheckedError as error:
                reasons.append(str(error))
        raise UncheckedError(reasons[0] if reasons else f"no Python here for {file}")

    def has(self, distribution: str, release: Version, whole: str) -> bool:
        if distribution == "tensorflow":
            if whole.startswith("tensorflow.keras") and release >= Version("2.6"):
                is_3 = release >= KERAS_3
                distribution, of = "keras", (3, release.minor - 14) if is_3 else (release.major, release.minor)
                release = max(one for one in self.files("keras") if one.release[:2] == of)
                whole = whole.replace("tensorflow", "keras._tf_keras" if is_3 else "keras.api._v2")
            elif release >= TOO_LARGE:
                raise UncheckedError(f"the wheel of TensorFlow {release} is too large")
            elif release >= CPU_ALONE:
                distribution = "tensorflow-cpu"
        for shown, place in ELSEWHERE.items():
            whole = place + whole.removeprefix(shown) if whole.startswith(shown) else whole
        contents = self.contents(distribution, release)
        if distribution.startswith("tensorflow"):
            api = f"_api.v{release.major}"
            roots = ("tensorflow", "tensorflow_core", f"tensorflow.{api}", f"tensorflow_core.{api}")
            return any(contents.has(root + whole.removeprefix("tensorflow")) for root in roots)
        if distribution == "keras":
            return bool(contents.has(whole) or contents.has(whole.replace("keras", "keras.api", 1)))
        found = contents.has(whole)
        return self.ran(distribution, release, whole) if found is None else found


def first(index: Index, whole: str, row: Moved) -> Version | None:
    """Return the first release that has a name, or that has it no more; None if no release is such a one."""
    releases = list(index.files(row.distribution))
    said = Version(row.came or row.went)
    if row.distribution == "tensorflow":
        releases = [one for before, one in pairwise([Version("0"), *releases]) if before.release[:2] != one.release[:2]]
        releases = [one for one in releases if one < TOO_LARGE or (".keras" in whole and one >= Version("2.6"))]

    def is_after(release: Version) -> bool:
        return index.has(row.distribution, release, whole) is bool(row.came)

    at = next((number for number, one in enumerate(releases) if one >= said), len(releases))
    low, high = -1, len(releases)
    if at < high and is_after(releases[at]):
        high = at
        if at and not is_after(releases[at - 1]):
            low = at - 1
    else:
        low = at
    while high - low > 1:
        middle = (low + high) // 2
        if is_after(releases[middle]):
            high = middle
        else:
            low = middle
    if high == len(releases) or high == 0:
        return None
    return releases[high]


def of_python(pythons: dict[str, str], whole: str, row: Moved) -> Version | None:
    """Return the same for Python itself; what is newer than each Python here is known to mypy's stubs."""
    said = Version(row.came or row.went)
    known = {}
    for one, path in pythons.items():
        try:
            known[Version(one)] = run(path, "-S", "-c", PROBE, whole).strip() == "1"
        except UncheckedError:
            known[Version(one)] = False
    if said > max(known):
        module, _, name = whole.rpartition(".")
        code = f"import {module}" if name == "*" else f"from {module} import {name}"
        command = [sys.executable, "-m", "mypy", f"--python-version={said}", "-c", code]
        known[said] = not subprocess.run(command, capture_output=True, check=False).returncode
    after = [release for release, has in sorted(known.items()) if has is bool(row.came)]
    if len(after) == len(known):
        raise UncheckedError("no Python here is on the other side")
    return after[0] if after else None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("distribution", nargs="*", help="those to check; all if none is given")
    parser.add_argument("--pythons", type=Path, default=Path.home() / ".pyenv/versions", help="folder of Pythons")
    parser.add_argument("--kept", type=Path, help="folder in which the files stay for the next time")
    options = parser.parse_args(arguments)
    folders = sorted(options.pythons.glob("*.*.*"), key=lambda one: Version(one.name), reverse=True)
    pythons = {".".join(one.name.split(".")[:2]): str(one / "bin/python") for one in folders if one.name[0] == "3"}
    with tempfile.TemporaryDirectory() as scratch:
        kept = options.kept or Path(scratch)
        index = Index(kept, pythons)
        right = wrong = unchecked = 0
        rows = [(one, True) for one in names._CAME] + [(one, False) for one in names._WENT]
        for (distribution, release, module, of_module), is_new in rows:
            if options.distribution and distribution not in options.distribution:
                continue
            row = Moved(distribution, came=release if is_new else "", went="" if is_new else release)
            for name in of_module.split():
                whole = f"{module}.{name}"
                line = f"{distribution} {'came' if is_new else 'went'} {release}: {whole}"
                try:
                    found = of_python(pythons, whole, row) if distribution == "python" else first(index, whole, row)
                except UncheckedError as error:
                    unchecked += 1
                    print(f"not checked: {line} ({error})", flush=True)
                    continue
                is_right = found is not None and found == index.first_from(distribution, Version(release))
                right += is_right
                wrong += not is_right
                if not is_right:
                    print(f"wrong: {line}; found {found or 'no such release'}", flush=True)
    print(f"{right} right, {wrong} wrong, {unchecked} not checked")
    return 1 if wrong or unchecked else 0


if __name__ == "__main__":
    sys.exit(main())
