"""a custom operation was built for another release of TensorFlow, or with other options, than the installed one

An extension in C++ (custom operations, tensorflow-text, tensorflow-addons, Horovod) calls TensorFlow's functions by
their names in the machine's code, which change with each release and compiler.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.imports import ImportLog
from gpudiag.fix import Action, Kind, Role, install, note, run
from gpudiag.knowledge.messages.python_packages import FRAMEWORK_NOT_THERE, MACOS_OLDER, UNDEFINED_OF_TENSORFLOW
from gpudiag.knowledge.names import distribution_of
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.requirements import companion, newest_pair
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="{file} was built for another release of TensorFlow, or with other options, than the one that is installed",
    fix=(
        install("tensorflow-text==2.15.*", note="installs the release for the installed TensorFlow"),
        install(
            "--force-reinstall",
            "--no-cache-dir",
            "--no-binary",
            ":all:",
            "PACKAGE",
            note="or build it again",
            role=Role.ALTERNATIVE,
        ),
    ),
    url="https://www.tensorflow.org/guide/create_op",
    needs_gpu=False,
)
_INSTALLED = re.compile(r"(?:(?:site|dist)-packages[\\/]|^)(?P<package>[A-Za-z]\w{1,100})[\\/]")
_OF_TENSORFLOW = re.compile(
    r"(?:site|dist)-packages[\\/]tensorflow(?:_core)?[\\/]|(?:^|[\\/])(?:_pywrap_tensorflow|libtensorflow_(?!io)|libtfkernel_)"
)
_LEFT_OVER = (
    install("--force-reinstall", "--no-cache-dir", "tensorflow", note="puts all files of one release there; or"),
    note("make a new environment for TensorFlow: this one has files of two releases, or of pip and conda"),
)
_OF_NO_PACKAGE = ("tensorflow", "tensorflow_core", "nvidia", "usr", "home", "opt")


def find(program: ImportLog, origin: Origin) -> Matches:
    if program.first(MACOS_OLDER):  # the library that lacks the symbol is the system's
        return
    if said := program.first(UNDEFINED_OF_TENSORFLOW, FRAMEWORK_NOT_THERE):
        file = said["file"].rpartition("/")[2]
        inside = [name for name in _INSTALLED.findall(said["file"]) if name not in _OF_NO_PACKAGE]
        inside = inside or ["tensorflow_io"] * file.startswith("libtensorflow_io")
        if _OF_TENSORFLOW.search(said["file"]):
            yield Match(
                program.said(UNDEFINED_OF_TENSORFLOW, FRAMEWORK_NOT_THERE),
                Confidence.LIKELY,
                {"file": f"TensorFlow's own {file}"},
                fix=_LEFT_OVER,
            )
            return
        file = file or "an extension of TensorFlow"
        first, second = _fix(distribution_of(inside[-1]) if inside else "PACKAGE", file, origin)
        yield Match(
            program.said(UNDEFINED_OF_TENSORFLOW, FRAMEWORK_NOT_THERE),
            Confidence.LIKELY,
            {"file": file},
            fix=(first, second),
        )


def _fix(package: str, file: str, origin: Origin) -> tuple[Action, Action]:
    build = install(
        "--force-reinstall", "--no-cache-dir", "--no-binary", ":all:", package, note=f"build {file} again, or"
    )
    if origin.releases[0] == origin.releases[1] and (fits := companion(package, origin.releases[1])):
        return install(f"{package}=={fits}", note=f"the release of it for TensorFlow {origin.releases[1]}, or"), build
    if pair := newest_pair(package):
        both = install(f"{package}=={pair[0]}", f"tensorflow=={pair[1]}.*", note="the newest pair, or")
        return both, install(f"{package}==VERSION", note="installs the release for the installed TensorFlow")
    if package == "PACKAGE":  # compiled here, and not installed by pip
        flags = "python -c 'from tensorflow import sysconfig as c; print(*c.get_compile_flags(), *c.get_link_flags())'"
        built = file if file.endswith(".so") else "NAME.so"
        return (
            run(flags, "put these into the command that compiles it: the same _GLIBCXX_USE_CXX11_ABI and C++"),
            run(
                f"rm -f {built}",
                "and the folder that caches it; then compile it again with the installed TensorFlow",
                kind=Kind.REMOVE,
            ),
        )
    return build, install(f"{package}==VERSION", note="the release of it that was made for the installed TensorFlow")
