"""Runs the code of a notebook, cell by cell, as `gpudiag trace -- notebook.ipynb` does.

Magics need IPython: with it they are run as in a notebook, without it a line that begins with % or ! is left out, and
that is said.
"""

from __future__ import annotations

import json
import sys


def _cells(path):
    with open(path, encoding="utf-8") as file:
        notebook = json.load(file)
    for number, cell in enumerate(notebook.get("cells", ()), 1):
        if cell.get("cell_type") == "code":
            source = cell.get("source", "")
            yield number, source if isinstance(source, str) else "".join(source)


def _without_magics(source, place):
    lines = source.splitlines()
    if lines and lines[0].startswith("%%"):
        print("gpudiag: %s: left out, because %s needs IPython" % (place, lines[0].split()[0]), file=sys.stderr)
        return ""
    for number, line in enumerate(lines):
        begins = line.lstrip()
        if begins.startswith(("%", "!")):
            print(
                "gpudiag: %s, line %d: left out, because it needs IPython: %s" % (place, number + 1, begins),
                file=sys.stderr,
            )
            lines[number] = line[: len(line) - len(begins)] + "pass"
    return "\n".join(lines)


def _transformer():
    try:
        from IPython.core.inputtransformer2 import TransformerManager
        from IPython.core.interactiveshell import InteractiveShell
    except ImportError:
        return None
    shell = InteractiveShell.instance()
    return TransformerManager(), shell


def main() -> None:
    """Run the notebook that the command line names, with its own arguments."""
    import linecache
    import types

    path = sys.argv[1]
    sys.argv = sys.argv[1:]
    try:
        cells = list(_cells(path))
    except (OSError, ValueError, AttributeError) as error:
        raise SystemExit("gpudiag: %s: not a notebook: %s" % (path, error)) from None
    needs = any(line.lstrip().startswith(("%", "!")) for _, source in cells for line in source.splitlines())
    ipython = _transformer() if needs else None
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.path[0] = ""
    if ipython is not None:
        ipython[1].user_module, ipython[1].user_ns = module, module.__dict__
        module.__dict__["get_ipython"] = lambda: ipython[1]
    for number, source in cells:
        place = "%s[cell %d]" % (path, number)
        code = ipython[0].transform_cell(source) if ipython is not None else _without_magics(source, place)
        linecache.cache[place] = (len(code), None, code.splitlines(keepends=True), place)
        exec(compile(code, place, "exec", dont_inherit=True), module.__dict__)


main()
