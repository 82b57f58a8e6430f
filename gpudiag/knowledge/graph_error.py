"""How TensorFlow words the error of an operation, and what of it is for a person."""

from __future__ import annotations

import re

from gpudiag.knowledge.codes import cut

FUNCTION_NODE = re.compile(r"\{\{function_node [^{}]{0,300}\}\} ?")
"""TensorFlow's internal name of an operation that was called eagerly; it adds nothing to the message."""


_ABOUT_A_GRAPH = (
    "Graph execution error:",
    "Detected at node",
    "<stack traces",
    "Node: ",
    "[[",
    "Original stack trace",
    'File "',
)


def of_a_graph(message: str) -> str:
    """Return the error of a failed graph, without the lines that locate the operation in the graph; "" if not known.

    TensorFlow wraps the error, and repeats it if several operations failed: ``2 root error(s) found.``, then
    ``(0) INTERNAL: No blas support for stream``.
    """
    if not message.startswith(_ABOUT_A_GRAPH[0]):
        return ""
    first, is_code = "", False
    for line in message.splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith(_ABOUT_A_GRAPH) or "root error(s)" in line:
            is_code = stripped.startswith('File "')
        elif is_code and line[:1] == " ":
            is_code = False  # the source line of a frame
        else:
            first = stripped
            break
    return first.partition(": ")[2] if first.startswith("(0) ") else first


def brief(type_: str, message: str) -> str:
    """Return an exception's type and message on one line of at most 200 characters; a code is never cut."""
    reason = of_a_graph(message) or FUNCTION_NODE.sub("", message)
    return cut(" ".join(f"{type_}: {reason}".split()).removesuffix(" name:"), 200)
