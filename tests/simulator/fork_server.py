"""Imports TensorFlow once on a simulated machine, then forks a child for each check.

Reads one JSON request a line on the first descriptor named by argv, answers one JSON line on the second. A child may
live on another machine than its parent: what describes the machine is read at the first CUDA call.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any


def child(request: dict[str, Any], output: int) -> dict[str, Any]:
    os.dup2(output, 1)
    os.dup2(output, 2)
    for name, value in request["environment"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    module = importlib.import_module("inside")
    try:
        value = getattr(module, request["function"])(**request["arguments"])
        return {"value": value}
    except Exception as error:
        traceback.print_exc()
        return {"error": type(error).__name__, "text": str(error)}


def serve(request: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as output:
        reader, writer = os.pipe()
        started = time.monotonic()
        pid = os.fork()
        if not pid:
            os.setsid()
            os.close(reader)
            answer = child(request, output.fileno())
            with os.fdopen(writer, "w") as pipe:
                json.dump(answer, pipe)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
        os.close(writer)
        text = b""
        timed_out = False
        while True:
            left = started + request["deadline"] - time.monotonic()
            if not select.select([reader], [], [], max(left, 0))[0]:
                os.kill(pid, signal.SIGKILL)
                timed_out = True
                break
            chunk = os.read(reader, 1 << 16)
            if not chunk:
                break
            text += chunk
        os.close(reader)
        _, status = os.waitpid(pid, 0)
        output.seek(0)
        log = output.read(1 << 20).decode(errors="replace")
        answer = json.loads(text) if text else {}
        seconds = time.monotonic() - started
        code = os.waitstatus_to_exitcode(status)
        return {**answer, "code": code, "timed_out": timed_out, "log": log, "seconds": seconds}


def main() -> None:
    """Serve, in a process that has imported TensorFlow."""
    requests, answers = os.fdopen(int(sys.argv[1])), os.fdopen(int(sys.argv[2]), "w")
    sys.path.insert(0, str(Path(__file__).parent))
    importlib.import_module("inside")  # once; children inherit it
    for line in requests:
        answers.write(json.dumps(serve(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    import tensorflow  # noqa: F401

    from gpudiag.simulator import preload

    preload()
    main()
