"""Counts what the table of messages covers of what TensorFlow can print, and writes ``reports/messages.md``.

    python scripts/messages.py CHECKOUT [--nccl FOLDER] [--nverror FILE] [--list]

CHECKOUT is a folder with TensorFlow's sources. Texts are taken from the calls that log (``LOG(ERROR)``, ``VLOG(0)``)
or make an error (``errors::Internal``, ``absl::InternalError``, ``raise ValueError``) in the folders that concern GPUs.
What varies in a text is ``{}`` here. With the folder ``src`` of NCCL, and ``nverror.h`` of NVIDIA's open kernel
modules, NCCL's warnings and the numbers of Xid are counted, too. ``--list`` prints each text that is neither covered
nor left out.
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
from gpudiag.knowledge.messages import FAMILIES, MESSAGES, xid

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

_CHECK = (
    r"(?i)must |should |expect|invalid|mismatch|unexpected|not match|does ?n[o']t match|cannot be|is null|nullptr|"
    r"out of (?:range|bound)|\bnot (?:found|initialized|set|registered)\b|already|requires?\b|missing|only one|empty|"
    r"unknown|inconsistent|duplicate|malformed|too (?:large|many|big)|not available|never happen|not a |no such|must$"
)
_FEATURE = (
    r"(?i)not (?:yet )?(?:implemented|support)|un(?:implemented|supported)|doesn't support|only support|not possible"
)

LEFT_OUT: tuple[tuple[str, str, str], ...] = (
    ("python/distribute", "", "a use of the API that the text itself explains, or progress of a strategy"),
    (r"\.py$", "", "a use of the API that the text itself explains"),
    (r"", _FEATURE, "names what TensorFlow cannot do, in its own words: another way to write the program is needed"),
    (
        "core/kernels|core/framework/op_kernel",
        "",
        "a check of an operation's arguments: the text itself says what is wrong with the program",
    ),
    (
        r"core/(?:common_runtime/(?:eager/|\w*(?:executor|placer|rendezvous|collective))|framework/|distributed_runtime|nccl/|"
        r"common_runtime/gpu/gpu_util)",
        "",
        "a check of TensorFlow on its own graph or cluster: nothing about a GPU leads to it",
    ),
    ("compiler/jit|grappler|kernel_gen", "", "a step of a compiler: nothing about a GPU leads to it"),
    (
        "xla/backends|xla/service|xla/pjrt|compilation_provider|stream_executor/gpu/tma|autotun",
        "",
        "a check of XLA on its own program: nothing that a user sets leads to it",
    ),
    ("stream_executor|xla/tsl", _CHECK, "a check of XLA on its own calls: nothing that a user sets leads to it"),
    (
        "",
        r"(?i)dump|debug|wrote|writing|will log|inputs for|outputs for|input #|output #|test",
        "printed for developers",
    ),
    ("", _CHECK, "a check of TensorFlow on its own calls: nothing that a user sets leads to it"),
    (
        "",
        r"(?i)(?:failed|failed setting stream|error mode|memory at \{\}|on destroy|memory pool|TensorMapEncodeTiled|"
        r"status|\(\{\} bytes\)|error message|callback thread|to NaNs,|GetGpuHostAllocator|cu\w+ factory)[: ]*$",
        "what follows it, most often a status, is the message, and has its own entry",
    ),
    ("", r"driver version|version number|PTX ISA minor", "a notice: the version of the driver is read in another way"),
    (
        "xla/stream_executor|xla/tsl/framework",
        "",
        "a check of XLA on its own calls: nothing that a user sets leads to it",
    ),
    (
        "core/common_runtime|core/platform",
        r"non-DMA|parse|DeviceLocality|in queue|counter|i=|unpack",
        "a check of TensorFlow on its own calls: nothing that a user sets leads to it",
    ),
)
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
        filled = (self.text.replace("{}", fill) for fill in _FILLS)
        return any(recognised(text) or recognised(f"{text} {fill}") for text, fill in zip(filled, _FILLS, strict=True))

    @property
    def left_out(self) -> str:
        """Why no entry is made of it; "" if there is no reason."""
        return next(
            (why for file, text, why in LEFT_OUT if re.search(file, self.file) and re.search(text, self.text)), ""
        )


def of_cpp(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, kind and text of each call in C++ that logs or makes an error."""
    source = re.sub(r"(?m)^[ \t]*//[^\n]*", "", source)
    for start in _START.finditer(source):
        text = _joined(source, start.end(), call=not start["log"])
        if len(re.sub(r"[^A-Za-z]|\{\}", "", text)) >= _LEAST_LETTERS:
            yield source.count("\n", 0, start.start()) + 1, start["level"] or "error", text


def _joined(source: str, at: int, *, call: bool) -> str:
    """Return the literals of the call or statement that goes on ``at``, joined; ``{}`` for what is between them."""
    parts: list[str] = []
    depth = int(call)
    for token in _TOKEN.finditer(source, at):
        sign = token["sign"]
        depth += (sign in ("(", "[", "{")) - (sign in (")", "]", "}"))
        if sign == ";" or depth < int(call):
            break
        if (text := token["text"]) is not None:
            parts.append(_FORMAT.sub(lambda found: "%" if found[0] == "%%" else "{}", _unescaped(text)))
        elif token["other"] and token["other"] not in ("<", ",") and (not parts or parts[-1] != "{}"):
            parts.append("{}")
    text = re.sub(r"(?:\{\}\s*){2,}", "{} ", "".join(parts)).strip()
    return " ".join(re.sub(r"^(?:\{\}\s*)+|(?:\s*\{\})+$", "", text).split())


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
        return "".join(
            _constant(expression) if isinstance(expression, ast.Constant) else "{}" for expression in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _constant(node.left) + _constant(node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return _constant(node.left)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return _constant(node.func.value)
    return "{}"


def of_nccl(folder: Path) -> list[Printed]:
    """Return the texts of NCCL's warnings."""
    found: dict[str, Printed] = {}
    for file in sorted(path for path in folder.rglob("*") if path.suffix in (".cc", ".h")):
        source = file.read_text(encoding="utf-8", errors="replace")
        for start in re.finditer(r"\bWARN\(", source):
            text = _joined(source, start.end(), call=True)
            if len(re.sub(r"[^A-Za-z]|\{\}", "", text)) >= _LEAST_LETTERS:
                line = source.count("\n", 0, start.start()) + 1
                found.setdefault(text, Printed("NCCL", file.relative_to(folder).as_posix(), line, "WARN", text))
    return list(found.values())


def of_nverror(header: str) -> dict[str, str]:
    """Return the numbers of Xid that the driver's header names, and their names."""
    return {number: name for name, number in re.findall(r"#define (\w+) +\((\d+)\)", header) if "LEVEL" not in name}


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
    for path in checkout.glob(place) if "*" in place else [checkout / place]:
        files = path.rglob("*") if path.is_dir() and "*" not in place else [path]
        yield from (file for file in files if file.is_file() and file.suffix in (".cc", ".h", ".py"))


def _with_sum(counts: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return counts | {"all": tuple(map(sum, zip(*counts.values(), strict=True)))}


def table(printed: list[Printed], others: str = "") -> str:
    """Return the report; ``others`` is what it says of other sources."""
    counts: dict[str, tuple[int, ...]] = {}
    for family in FOLDERS:
        ours = [entry for entry in printed if entry.family == family]
        covered = sum(entry.covered for entry in ours)
        left = sum(bool(entry.left_out) for entry in ours if not entry.covered)
        counts[family] = (len(ours), covered, left, len(ours) - covered - left)
    rows = [(name, *figures) for name, figures in _with_sum(counts).items()]
    reasons = Counter(entry.left_out for entry in printed if entry.left_out and not entry.covered)
    kinds = {
        name: (
            len(family.messages),
            sum(len(message.texts) + bool(message.pattern) for message in family.messages),
            *(sum(message.worth is worth for message in family.messages) for worth in Worth),
            sum(bool(message.fix) for message in family.messages),
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
            *([others, ""] if others else []),
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


def _nccl(folder: Path | None) -> list[str]:
    if folder is None:
        return []
    printed = of_nccl(folder)
    own = [entry for entry in printed if entry.covered]
    return [
        "## NCCL",
        "",
        f"{len(printed)} texts of WARN in the sources of NCCL, of which {len(own)} have their own message. Any",
        "other line with `NCCL WARN` is recognised as a warning of NCCL, without a fix: most are checks of NCCL on its",
        "own state.",
    ]


def _xid(header: Path | None) -> list[str]:
    if header is None:
        return []
    names = of_nverror(header.read_text(encoding="utf-8"))
    open_ = sorted(names.keys() - xid.BY_NUMBER.keys(), key=int)
    return [
        "",
        "## Xid",
        "",
        f"{len(names)} numbers in the driver's header, of which {len(names) - len(open_)} have a meaning and a fix of",
        "their own. The others are recognised as an Xid, and their number is shown: they are reserved, of displays and",
        f"virtual machines, or say nothing that a user can act on: {', '.join(open_)}.",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--nccl", type=Path, help="the folder src of NCCL")
    parser.add_argument("--nverror", type=Path, help="nverror.h of NVIDIA's open kernel modules")
    parser.add_argument("--list", action="store_true", help="print the open texts instead of writing the report")
    options = parser.parse_args()
    printed = extracted(options.checkout)
    if not printed:
        print(f"{options.checkout}: no sources of TensorFlow there", file=sys.stderr)
        return 2
    if options.list:
        for entry in printed:
            if not entry.covered and not entry.left_out:
                print(f"{entry.family}\t{entry.file}:{entry.line}\t{entry.kind}\t{entry.text}")
        return 0
    others = [line for lines in (_nccl(options.nccl), _xid(options.nverror)) for line in lines]
    RESULT.write_text(table(printed, "\n".join(others)), encoding="utf-8")
    covered = sum(entry.covered for entry in printed)
    print(f"{RESULT.name}: {covered} of {len(printed)} texts are covered, {len(MESSAGES)} messages")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
