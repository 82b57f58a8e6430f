"""Counts what the table of messages covers of what TensorFlow can print, and writes ``reports/messages.md``.

    python scripts/messages.py CHECKOUT [--list]

CHECKOUT is a folder with TensorFlow's sources. Texts are taken from the calls that log (``LOG(ERROR)``, ``VLOG(0)``)
or make an error (``errors::Internal``, ``absl::InternalError``, ``raise ValueError``) in the folders that concern GPUs.
What varies in a text is ``{}`` here. ``--list`` prints each text that is neither covered nor left out.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

from gpudiag.knowledge.log import recognised
from gpudiag.knowledge.message import Worth
from gpudiag.knowledge.messages import FAMILIES, MESSAGES

RESULT = Path(__file__).resolve().parent.parent / "reports" / "messages.md"
XLA = "third_party/xla/xla"

FOLDERS: dict[str, tuple[str, ...]] = {
    "the GPU device": ("tensorflow/core/common_runtime/gpu", "tensorflow/core/common_runtime/device"),
    "allocators": (
        "tensorflow/core/common_runtime/bfc_allocator.cc",
        "tensorflow/core/framework/allocator.cc",
        f"{XLA}/tsl/framework",
        f"{XLA}/stream_executor/integrations",
    ),
    "driver, streams and kernels": (f"{XLA}/stream_executor/cuda", f"{XLA}/stream_executor/gpu"),
    "libraries that are opened": (
        f"{XLA}/tsl/cuda",
        f"{XLA}/tsl/platform/default/dso_loader.cc",
        f"{XLA}/stream_executor/platform",
        f"{XLA}/stream_executor/*.cc",
    ),
    "XLA's compiler for GPUs": (f"{XLA}/service/gpu/*.cc", f"{XLA}/service/gpu/llvm_gpu_backend"),
    "autotuning": (f"{XLA}/service/gpu/autotuning", f"{XLA}/backends/gpu/autotuner", f"{XLA}/backends/autotuner"),
    "XLA at run time": (f"{XLA}/backends/gpu/runtime", f"{XLA}/pjrt/gpu", f"{XLA}/service/*rendezvous*"),
    "collectives and NCCL": (
        f"{XLA}/backends/gpu/collectives",
        "tensorflow/core/nccl",
        "tensorflow/core/kernels/*nccl*",
        "tensorflow/core/kernels/*collective*",
        "tensorflow/core/common_runtime/*collective*",
        "tensorflow/core/distributed_runtime/*collective*",
    ),
    "operations on GPUs": (
        "tensorflow/core/kernels/*gpu*",
        "tensorflow/core/kernels/*cu.cc",
        "tensorflow/core/kernels/conv_*",
        "tensorflow/core/kernels/matmul*",
        "tensorflow/core/kernels/cuda_s*",
        "tensorflow/core/kernels/fft_ops*",
        "tensorflow/core/kernels/cudnn*",
        "tensorflow/core/kernels/mlir_generated",
        "tensorflow/compiler/mlir/tools/kernel_gen",
    ),
    "placement and execution": (
        "tensorflow/core/common_runtime/*placer*",
        "tensorflow/core/common_runtime/*executor*",
        "tensorflow/core/common_runtime/eager",
        "tensorflow/core/framework/device*",
        "tensorflow/core/framework/op_kernel.cc",
        "tensorflow/core/framework/local_rendezvous.cc",
        "tensorflow/core/common_runtime/*rendezvous*",
    ),
    "graph optimisers": ("tensorflow/core/grappler/optimizers/meta_optimizer.cc", "tensorflow/compiler/jit"),
    "platform and CPU": (
        "tensorflow/core/platform",
        "tensorflow/core/util/port.cc",
        "tensorflow/core/util/command_line_flags.cc",
        f"{XLA}/tsl/util/command_line_flags.cc",
        f"{XLA}/parse_flags_from_env.cc",
    ),
    "Python: tf.config, eager": (
        "tensorflow/python/eager/context.py",
        "tensorflow/python/framework/config.py",
        "tensorflow/python/pywrap_tensorflow.py",
        "tensorflow/python/platform/self_check.py",
        "tensorflow/python/platform/build_info.py",
        "tensorflow/python/framework/load_library.py",
        "tensorflow/api_template.__init__.py",
    ),
    "Python: distribution": ("tensorflow/python/distribute",),
}
"""Where to look: a family of texts, to files or folders; the first family that has a file keeps it."""

NOT_HERE = re.compile(
    r"_test\b|_test_|/tests?/|testing|test_util|benchmark|/rocm|_rocm|rocm_|/sycl|/tpu|tpu_|_tpu|oneapi|host/|mock"
)
"""Tests, and what is for other makers' devices."""

LEFT_OUT: tuple[tuple[str, str, str], ...] = ()
"""Files and texts (patterns), and why no entry is made of them; the first that fits counts."""

_START = re.compile(
    r"\b(?:(?P<log>(?:LOG|VLOG|LOG_FIRST_N|LOG_EVERY_N|LOG_EVERY_N_SEC|LOG_EVERY_POW_2|LOG_IF|DLOG)"
    r"\((?P<level>INFO|WARNING|ERROR|FATAL|QFATAL|0)\b[^;<]{0,200}?\)\s*<<)|"
    r"(?P<error>(?:(?:tsl::|tensorflow::)?errors::(?!Is|As|Code|Has)[A-Z]\w+|absl::(?!Is|As)[A-Z]\w+Error|"
    r"(?:absl|tsl)::Status|xla::(?:Internal|InvalidArgument|FailedPrecondition)|"
    r"(?<![\w:.>])(?:Internal|InvalidArgument|FailedPrecondition|ResourceExhausted|Unimplemented|NotFound|Unavailable|"
    r"Cancelled|Unknown|DeadlineExceeded))\())"
)
_TOKEN = re.compile(
    r'"(?P<text>(?:[^"\\\n]|\\.)*)"|//[^\n]*|/\*.*?\*/|\'(?:[^\'\\]|\\.)\'|(?P<sign>[()\[\]{};])|(?P<other>\w+|\S)',
    re.DOTALL,
)
_FORMAT = re.compile(r"%(?:-|\+|#|0)?[\d.*]*(?:l|ll|z|h)?[a-zA-Z]|%%|\$\d")
_LEAST_LETTERS = 8
_FILLS = ("x", "1", "1.0", "/a:b", "CUDA_X", "/job:a/device:GPU:0")


@dataclass(frozen=True)
class Printed:
    """A text that a file can print."""

    family: str
    file: str
    line: int
    kind: str
    """The level of a line of the log, or ``error``."""
    text: str

    @property
    def covered(self) -> bool:
        """Whether the table knows it, whatever stands where it varies."""
        return any(recognised(self.text.replace("{}", fill)) for fill in _FILLS)

    @property
    def left_out(self) -> str:
        """Why no entry is made of it; "" where there is no reason."""
        return next(
            (why for file, text, why in LEFT_OUT if re.search(file, self.file) and re.search(text, self.text)), ""
        )


def of_cpp(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, kind and text of each call in C++ that logs or makes an error."""
    for start in _START.finditer(source):
        text = _joined(source, start.end(), depth=0 if start["log"] else 1)
        if len(re.sub(r"[^A-Za-z]|\{\}", "", text)) >= _LEAST_LETTERS:
            yield source.count("\n", 0, start.start()) + 1, start["level"] or "error", text


def _joined(source: str, at: int, depth: int) -> str:
    """Return the literals of the statement that goes on ``at``, joined; ``{}`` for what is between them."""
    parts: list[str] = []
    for token in _TOKEN.finditer(source, at):
        sign = token["sign"]
        if sign in ("(", "[", "{"):
            depth += 1
        elif sign in (")", "]", "}"):
            depth -= 1
            if depth == 0 and not source.startswith("<<", _skip(source, token.end())) and at == 0:
                break
        if sign == ";" or depth < 0:
            break
        if (text := token["text"]) is not None:
            parts.append(_FORMAT.sub(lambda found: "%" if found[0] == "%%" else "{}", _unescaped(text)))
        elif token["other"] and token["other"] not in ("<", ",") and (not parts or parts[-1] != "{}"):
            parts.append("{}")
    text = re.sub(r"(?:\{\}\s*){2,}", "{} ", "".join(parts))
    return " ".join(re.sub(r"^(?:\{\}\s*)+|(?:\s*\{\})+$", "", text).split())


def _skip(source: str, at: int) -> int:
    return at + len(source[at:]) - len(source[at:].lstrip())


def _unescaped(text: str) -> str:
    return text.replace("\\n", " ").replace("\\t", " ").replace('\\"', '"').replace("\\'", "'").replace("\\\\", "\\")


def of_python(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, kind and text of each call in Python that raises an error or logs."""
    for node in ast.walk(ast.parse(source)):
        kind, call = "", None
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            kind, call = "error", node.exc
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            called = ast.unparse(node.func)
            if re.search(
                r"(?:logging|warnings)\.(?:warn|warning|error|info|fatal)(?:_first_n|_once)?$|self_check", called
            ):
                kind, call = called.rsplit(".", 1)[1].upper(), node
        if isinstance(node, ast.Raise | ast.Call) and call is not None and call.args:
            text = " ".join(_constant(call.args[0]).split())
            if len(re.sub(r"[^A-Za-z]|\{\}", "", text)) >= _LEAST_LETTERS:
                yield node.lineno, kind, text


def _constant(node: ast.expr) -> str:
    """Return a text of Python with ``{}`` for what varies."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"\{[^}]*\}", "{}", _FORMAT.sub("{}", node.value))
    if isinstance(node, ast.JoinedStr):
        return "".join(_constant(one) if isinstance(one, ast.Constant) else "{}" for one in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _constant(node.left) + _constant(node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return _constant(node.left)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return _constant(node.func.value)
    return "{}"


def extracted(checkout: Path) -> list[Printed]:
    """Return every text that the listed folders of a checkout can print, each once a family."""
    seen: set[Path] = set()
    found: dict[tuple[str, str], Printed] = {}
    for family, places in FOLDERS.items():
        for file in sorted(file for place in places for file in _files(checkout, place)):
            relative = file.relative_to(checkout).as_posix()
            if file in seen or NOT_HERE.search(relative):
                continue
            seen.add(file)
            source = file.read_text(encoding="utf-8", errors="replace")
            for line, kind, text in of_python(source) if file.suffix == ".py" else of_cpp(source):
                found.setdefault((family, text), Printed(family, relative, line, kind, text))
    return list(found.values())


def _files(checkout: Path, place: str) -> Iterator[Path]:
    for one in checkout.glob(place) if "*" in place else [checkout / place]:
        files = one.rglob("*") if one.is_dir() and "*" not in place else [one]
        yield from (file for file in files if file.is_file() and file.suffix in (".cc", ".h", ".py"))


def _with_sum(counts: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return counts | {"all": tuple(map(sum, zip(*counts.values(), strict=True)))}


def table(printed: list[Printed]) -> str:
    """Return the report."""
    counts: dict[str, tuple[int, ...]] = {}
    for family in FOLDERS:
        ours = [one for one in printed if one.family == family]
        covered = sum(one.covered for one in ours)
        left = sum(bool(one.left_out) for one in ours if not one.covered)
        counts[family] = (len(ours), covered, left, len(ours) - covered - left)
    rows = [(name, *figures) for name, figures in _with_sum(counts).items()]
    reasons = Counter(one.left_out for one in printed if one.left_out and not one.covered)
    kinds = {
        name: (
            len(family.messages),
            sum(len(one.texts) + bool(one.pattern) for one in family.messages),
            *(sum(one.worth is worth for one in family.messages) for worth in Worth),
            sum(bool(one.fix) for one in family.messages),
        )
        for name, family in FAMILIES.items()
    }
    titles = {name: family.title for name, family in FAMILIES.items()}
    table_rows = [(name, titles.get(name, ""), *figures) for name, figures in _with_sum(kinds).items()]
    return "\n".join(
        [
            "# Messages: what is covered of what exists",
            "",
            "Written by `scripts/messages.py` from the sources of TensorFlow 2.21.",
            "",
            "## Texts in the sources of TensorFlow",
            "",
            "A text is covered if a message of the table is recognised in it. One is left out for a reason that is",
            "counted below. What is neither is open.",
            "",
            tabulate(rows, headers=("family", "texts", "covered", "left out", "open"), tablefmt="github"),
            "",
            "### Why texts are left out",
            "",
            tabulate(reasons.most_common(), headers=("reason", "texts"), tablefmt="github"),
            "",
            "## The table",
            "",
            tabulate(
                table_rows,
                headers=("file", "matter", "messages", "texts", *(worth.value for worth in Worth), "with a fix"),
                tablefmt="github",
            ),
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--list", action="store_true", help="print the open texts instead of writing the report")
    options = parser.parse_args()
    printed = extracted(options.checkout)
    if not printed:
        print(f"{options.checkout}: no sources of TensorFlow there", file=sys.stderr)
        return 2
    if options.list:
        for one in printed:
            if not one.covered and not one.left_out:
                print(f"{one.family}\t{one.file}:{one.line}\t{one.kind}\t{one.text}")
        return 0
    RESULT.write_text(table(printed), encoding="utf-8")
    covered = sum(one.covered for one in printed)
    print(f"{RESULT.name}: {covered} of {len(printed)} texts are covered, {len(MESSAGES)} messages")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
