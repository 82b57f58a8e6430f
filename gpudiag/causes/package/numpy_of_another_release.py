"""the installed numpy does not fit this TensorFlow, or a package that it loads

Compiled modules fit the numpy that they were built with and later ones of the same major version. TensorFlow up to 2.17
was built for numpy 1; from 2.18 on it works with both. `pip install` of another package may have replaced numpy, and a
copy in ~/.local is found before that of the system.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.imports import ImportLog
from gpudiag.fix import Kind, Role, ask, install, run
from gpudiag.knowledge.messages.python_packages import NUMPY_2, NUMPY_NAME_GONE, NUMPY_OLDER
from gpudiag.knowledge.origin import Origin
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="the installed numpy does not fit this TensorFlow, or a package that it loads: {what}",
    fix=(install("numpy<2"), install("--upgrade", "tensorflow>=2.18", role=Role.ALTERNATIVE)),
    url="https://numpy.org/doc/stable/user/troubleshooting-importerror.html",
    needs_gpu=False,
    unless={
        "requirement_not_met": "it names the package and the version that TensorFlow asks for",
    },
)

_FIRST_WITH = {"0xe": "1.20", "0xf": "1.22", "0x10": "1.23", "0x11": "1.25", "0x12": "2.0"}
"""For each version of numpy's C API, the first numpy that has it."""
_HOME = "/.local/lib/"
_GONE = ("bool", "complex", "float", "int", "long", "object", "str", "typeDict")
"""Names that numpy 1.24 no longer has."""


def find(program: ImportLog, origin: Origin) -> Matches:
    if said := program.said(NUMPY_2):
        own = any(_HOME in line for line in program.lines)
        yield Match(
            said,
            figures={"what": "numpy 2 is installed, and a module was built for numpy 1"},
            fix=(
                install("numpy<2"),
                install("--upgrade", "tensorflow>=2.18", note="works with numpy 2", role=Role.ALTERNATIVE),
                ask(
                    "python -m pip list --user",
                    "shows packages in ~/.local, which are found first: uninstall them there",
                )
                if own
                else None,
            ),
        )
    elif older := program.first(NUMPY_OLDER):
        least = _FIRST_WITH.get(older["wanted"], "")
        yield Match(
            program.said(NUMPY_OLDER),
            Confidence.PROVED if older["wanted"] else Confidence.LIKELY,
            {"what": f"a module was built for {f'numpy {least} or newer' if least else 'another one'}"},
            fix=(
                install("--upgrade", f"numpy>={least}") if least else install("--upgrade", "numpy"),
                install(
                    "--force-reinstall",
                    "--no-cache-dir",
                    "MODULE",
                    note="name the module of the traceback",
                    role=Role.ALTERNATIVE,
                ),
            ),
        )
    elif (gone := program.first(NUMPY_NAME_GONE)) and gone["name"] in _GONE:
        yield Match(
            program.said(NUMPY_NAME_GONE),
            Confidence.LIKELY,
            {"what": f"numpy 1.24 and later have no numpy.{gone['name']}"},
            fix=(
                run(f"pip install 'numpy<{'1.20' if origin.is_before_11 else '1.24'}'", kind=Kind.INSTALL),
                install(
                    "--upgrade",
                    "tensorflow",
                    note="installs a newer one, which does not need it",
                    role=Role.ALTERNATIVE,
                ),
            ),
        )
