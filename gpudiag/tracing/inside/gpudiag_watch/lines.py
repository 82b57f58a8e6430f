"""Where in the program: the line that called TensorFlow, and tracebacks without the lines of the watcher."""

import os
import sys

from .notes import guarded, note

_MOST = 4000
"""The most characters that are kept of the beginning and of the end of a traceback."""
_ours = os.path.dirname(__file__) + "/"
_stdlib = os.path.dirname(os.__file__) + "/"
_kinds: dict = {}  # file of code -> "ours", "tensorflow", "keras", "library" or "program"


def kind_of(file: str) -> str:
    """Return whose code a file has."""
    kind = _kinds.get(file)
    if kind is None:
        parts = file.replace("\\", "/").split("/")
        installed = "site-packages" in parts or "dist-packages" in parts
        if parts[-1].startswith("__autograph_generated_file"):
            kind = "tensorflow"  # a copy of a function of the program, whose own line is not known
        elif (installed and ("keras" in parts or "tf_keras" in parts)) or _is_in(file, "keras", "tf_keras"):
            kind = "keras"
        elif file.startswith(_ours) or parts[-1] == "gpudiag_notebook.py":
            kind = "ours"
        elif (installed and "tensorflow" in parts) or _is_in(file, "tensorflow"):
            kind = "tensorflow"
        elif installed or file.startswith(("<frozen", _stdlib)) or "/gpudiag/tracing/" in file:
            kind = "library"
        else:
            kind = "program"
        if len(_kinds) < 10_000:
            _kinds[file] = kind
    return kind


def _is_in(file: str, *packages: str) -> bool:
    """Return whether a file belongs to a package that was imported from anywhere, as ``pip install --target`` does."""
    for name in packages:
        first = getattr(sys.modules.get(name), "__file__", None)
        if first and file.startswith(os.path.dirname(first) + "/"):
            return True
    return False


def line_of_program(depth: int = 2) -> str:
    """Return ``file:line`` of the innermost line of the program itself, or of a library that is not TensorFlow's."""
    return line_and_caller(depth + 1)[0]


def line_and_caller(depth):
    """Return the same line, and whether it is what called TensorFlow: not Keras or another library."""
    frame = sys._getframe(depth)
    library = ""
    direct = True
    while frame is not None:
        file = frame.f_code.co_filename
        kind = _kinds.get(file) or kind_of(file)
        if kind == "program":
            return "%s:%d" % (file, frame.f_lineno), direct
        if kind == "library" and not library and not file.startswith("<frozen"):
            library = "%s:%d" % (file, frame.f_lineno)
        direct = direct and kind in ("tensorflow", "ours")
        frame = frame.f_back
    return library, False


def is_by_strategy(files) -> bool:
    """Return whether code of TensorFlow's strategies is among the innermost files, which are TensorFlow's."""
    for file in files:
        if "/tensorflow/python/distribute/" in file:
            return True
        if kind_of(file) not in ("tensorflow", "ours"):
            break
    return False


def text_of(frame) -> str:
    """Return the text of the line that a frame is at."""
    import linecache

    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()


def importing(depth) -> str:
    """Return the line of the program whose import runs what calls this; "" if it is not run by an import."""
    frame = sys._getframe(depth)
    by_import = False
    while frame is not None:
        name = frame.f_code.co_filename
        if by_import and kind_of(name) == "program":
            return "%s:%d" % (name, frame.f_lineno)
        by_import = by_import or name.startswith("<frozen importlib")
        frame = frame.f_back
    return ""


def line_of_operation(operation) -> str:
    """Return the line of the program that made an operation."""
    for entry in reversed(operation.traceback) if operation is not None else ():
        if kind_of(entry.filename) == "program":
            return "%s:%d" % (entry.filename, entry.lineno)
    return ""


def _without_our_frames(kind, error, trace):
    """Print an exception that nobody caught as without the watcher: its own frames are taken out."""
    while trace is not None and kind_of(trace.tb_frame.f_code.co_filename) == "ours":
        trace = trace.tb_next
    entry = trace
    while entry is not None:
        while entry.tb_next is not None and kind_of(entry.tb_next.tb_frame.f_code.co_filename) == "ours":
            entry.tb_next = entry.tb_next.tb_next
        entry = entry.tb_next
    if error is not None:
        error.__traceback__ = trace
        guarded(_note_end, kind, error, trace)
    sys.__excepthook__(kind, error, trace)


def _note_end(kind, error, trace) -> None:
    """Write the exception that ends the process into the notes, in the words in which Python prints it."""
    import traceback

    if issubclass(kind, Exception):
        text = "".join(traceback.format_exception(kind, error, trace))
        note("raised", text=text if len(text) <= 2 * _MOST else text[:_MOST] + "\n" + text[-_MOST:])


def hide_our_frames() -> None:
    """Let an exception that nobody catches be noted, and printed without the watcher's frames."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _without_our_frames
