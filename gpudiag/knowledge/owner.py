"""The owner of a log, or of one of its lines: the framework, program or tool that printed it.

Most lines about CUDA are not TensorFlow's. The owner is decided before a cause is worded and a fix is chosen: a line
may name its owner, or the nearest frame of the traceback above it does, or else the rest of the log. TensorFlow counts
as the owner where it occurs and nothing nearer to the line names another one, and where nothing names anybody.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gpudiag.fix import Action, Kind, Role, ask, check, distinct, edit, edit_note, export, fill_in, install, note, run
from gpudiag.knowledge import sonames
from gpudiag.knowledge.expressions import needed_parts
from gpudiag.knowledge.fault import Stage
from gpudiag.knowledge.frames import packages_in
from gpudiag.record import Record


class Owner(Record):
    """Who printed a log, and how its users install it, give it memory and get code for their GPU."""

    name: str
    """The name in sentences, such as ``PyTorch``."""
    url: str = "https://docs.nvidia.com/deploy/cuda-compatibility/"
    """A page about its installation, in place of one about TensorFlow's."""
    libraries: tuple[Action, ...] = ()
    """How to get the CUDA libraries that fit; format strings over ``cuda``, the major version that was asked for."""
    by_cuda: Mapping[str, tuple[Action, ...]] = {}
    """The same for a library of this major version of CUDA; the library's own package is next, or first for others."""
    extends: str = ""
    """The framework that it is an extension of, or whose library it calls: it must be built for that one."""
    newer: tuple[Action, ...] = ()
    """How to get a release that has machine code for the user's GPU."""
    memory: tuple[Action, ...] = ()
    """What helps if its data do not fit into the GPU's memory."""
    room: tuple[Action, ...] = ()
    """How to let it leave memory of the GPU to libraries and other programs; :attr:`memory` if it is empty."""
    without_xla: bool = True
    """True if it compiles nothing with XLA."""


_TORCH_WHEELS = "https://download.pytorch.org/whl"
_ORT_11 = "https://aiinfra.pkgs.visualstudio.com/PublicPackages/_packaging/onnxruntime-cuda-11/pypi/simple/"
TENSORFLOW = Owner("TensorFlow", without_xla=False)
_JAX_12 = install("--upgrade", "jax[cuda12]", note="brings CUDA 12 and cuDNN 9 with it; needs driver 525 or newer")
JAX = Owner(
    "JAX",
    "https://docs.jax.dev/en/latest/installation.html",
    by_cuda={
        "11": (_JAX_12,),
        "12": (_JAX_12,),
        "13": (install("--upgrade", "jax[cuda13]", note="brings CUDA 13 and cuDNN 9; needs driver 580 or newer"),),
    },
    libraries=(
        install("--upgrade", "jax[cuda12]", note="brings CUDA 12 and cuDNN for it; jax[cuda13] those of CUDA 13"),
        note("unset LD_LIBRARY_PATH if it puts another CUDA before the one that jax[cuda12] brings"),
        ask("python -c 'import jax; jax.print_environment_info()'", "the releases of jax, jaxlib and the plug-in"),
    ),
    newer=(install("--upgrade", "jax[cuda12]", note="jax[cuda13] if the driver is 580 or newer"),),
    memory=(
        export("XLA_PYTHON_CLIENT_MEM_FRACTION", ".95", "lets JAX take more than three quarters of the GPU's memory"),
        export("XLA_PYTHON_CLIENT_PREALLOCATE", "false", "if another program shares the GPU", role=Role.ALTERNATIVE),
    ),
    room=(
        export("XLA_PYTHON_CLIENT_PREALLOCATE", "false", "stops JAX from taking three quarters of the memory at once"),
        export("XLA_PYTHON_CLIENT_MEM_FRACTION", ".5", "or gives it a smaller share"),
    ),
    without_xla=False,
)
_TORCH_AGAIN = install("--force-reinstall", "torch", note="installs PyTorch with the CUDA that it was built with")
TORCH = Owner(
    "PyTorch",
    "https://pytorch.org/get-started/locally/",
    by_cuda=dict.fromkeys(("10", "11", "12", "13"), (_TORCH_AGAIN,)),
    libraries=(
        _TORCH_AGAIN,
        note("unset LD_LIBRARY_PATH if it puts another CUDA before the one that PyTorch brings"),
        ask("python -m torch.utils.collect_env", "shows which CUDA and cuDNN PyTorch was built with"),
    ),
    newer=(
        install(
            "--force-reinstall",
            "torch",
            "--index-url",
            f"{_TORCH_WHEELS}/cu128",
            note="for Turing and newer cards; for older ones try cu126 in place of cu128",
        ),
        ask("python -c 'import torch; print(torch.__version__, torch.cuda.get_arch_list())'", "must list the GPU's"),
    ),
    memory=(
        edit_note("use a smaller batch, smaller inputs, or a model of half precision"),
        export("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", "if much is reserved but unallocated"),
    ),
)
# What the extras bring was asked of pip on 2026-11-28: CUDA 12 up to 1.26.0, and CUDA 13 in 1.31.1.
_PRELOAD = "call onnxruntime.preload_dlls() before the first session"
_ORT_12 = install("onnxruntime-gpu[cuda,cudnn]==1.26.*", note=f"brings CUDA 12 and cuDNN 9; {_PRELOAD}")
_ORT_13 = install("--upgrade", "onnxruntime-gpu[cuda,cudnn]", note=f"brings CUDA 13 and cuDNN 9; {_PRELOAD}")
_ORT = Owner(
    "ONNX Runtime",
    "https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html",
    by_cuda={
        "11": (install("onnxruntime-gpu", "--extra-index-url", _ORT_11, note="the build for CUDA 11 and cuDNN 8"),),
        "12": (_ORT_12,),
        "13": (_ORT_13,),
    },
    libraries=(
        _ORT_12,
        _ORT_13.replaced(role=Role.ALTERNATIVE),
        note("the table of releases: https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html"),
    ),
    newer=(install("--upgrade", "onnxruntime-gpu"),),
)
# Asked of pip on 2026-11-28: 14.2.0 for CUDA 12 and 13 has the extra, cupy-cuda11x ended with 13.6.0 and has none.
_CUPY_WHOLE = install("cupy-cuda{cuda}x[ctk]", note="brings CUDA {cuda}; uninstall the other cupy first")
_CUPY = Owner(
    "CuPy",
    "https://docs.cupy.dev/en/stable/install.html",
    by_cuda={
        "11": (
            _CUPY_WHOLE.replaced(
                command="pip uninstall -y cupy-cuda11x; pip install 'cupy-cuda12x[ctk]'",
                note="brings CUDA 12, for driver 525 or newer; no cupy-cuda11x brings CUDA",
                pip=(),
            ),
        ),
        "12": (_CUPY_WHOLE,),
        "13": (_CUPY_WHOLE,),
    },
    libraries=(
        _CUPY_WHOLE,
        ask("python -c 'import cupy; cupy.show_config()'", "shows which CUDA CuPy was built for, and where it looks"),
    ),
    newer=(install("--upgrade", "cupy-cuda{cuda}x"),),
    memory=(edit_note("free unused blocks: cupy.get_default_memory_pool().free_all_blocks()"),),
)
_PADDLE = Owner(
    "PaddlePaddle",
    "https://www.paddlepaddle.org.cn/install/quick",
    libraries=(
        check("ldconfig -p | grep -e libcudnn -e libcublas", "put the folder of the library on LD_LIBRARY_PATH"),
        note(
            "or install the paddlepaddle-gpu for this CUDA, which brings its libraries: "
            "https://www.paddlepaddle.org.cn/install/quick",
            kind=Kind.INSTALL,
        ),
        ask("python -c 'import paddle; paddle.utils.run_check()'", "must find the GPU"),
    ),
)
_TENSORRT = Owner(
    "TensorRT",
    "https://docs.nvidia.com/deeplearning/tensorrt/latest/",
    newer=(install("--upgrade", "tensorrt", note="a release that knows this GPU"),),
)
_CTRANSLATE = Owner(
    "CTranslate2",
    "https://opennmt.net/CTranslate2/installation.html",
    libraries=(
        note(
            "or a ctranslate2 for what is there: 3.24.0 for CUDA 11 and cuDNN 8, 4.4.0 for CUDA 12 and cuDNN 8, "
            "newer ones for CUDA 12 and cuDNN 9 (https://github.com/SYSTRAN/faster-whisper)",
            kind=Kind.INSTALL,
        ),
    ),
)
_NUMBA = Owner(
    "Numba",
    "https://nvidia.github.io/numba-cuda/user/installation.html",
    libraries=(
        install("numba-cuda[cu{cuda}]", note="brings the libraries of CUDA {cuda} that Numba needs"),
        run(
            "conda install -c conda-forge numba-cuda 'cuda-version={cuda}'",
            "in an environment of conda",
            kind=Kind.INSTALL,
            role=Role.ALTERNATIVE,
        ),
        note("with a toolkit of its own, CUDA_HOME must name its folder, the one that has nvvm"),
    ),
)
_GGML_AGAIN = run(
    "cmake -B build -DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=native && cmake --build build -j",
    "in its source: builds it again, for the GPU that is there",
    kind=Kind.INSTALL,
)
_LLAMA_AGAIN = run(
    "CMAKE_ARGS='-DGGML_CUDA=on' pip install --force-reinstall --no-cache-dir llama-cpp-python",
    "builds the Python package again",
    kind=Kind.INSTALL,
    role=Role.ALTERNATIVE,
)
_FEWER_LAYERS = note("give the GPU fewer layers of the model: -ngl, or n_gpu_layers")
_LLAMA = Owner("llama.cpp", newer=(_GGML_AGAIN, _LLAMA_AGAIN), memory=(_FEWER_LAYERS,))
_LITE = Owner("TensorFlow Lite")
_NATIVE = "the library of TensorFlow itself: one package alone, of the release that this TensorFlow.NET asks for"
_DOTNET = Owner(
    "TensorFlow.NET",
    "https://github.com/SciSharp/TensorFlow.NET",
    libraries=(
        run("dotnet add package SciSharp.TensorFlow.Redist", _NATIVE, kind=Kind.INSTALL),
        note("for a GPU: SciSharp.TensorFlow.Redist-Windows-GPU or -Linux-GPU in its place, and its CUDA"),
    ),
    extends="TensorFlow",
)
_JAVA = Owner(
    "TensorFlow for Java",
    "https://github.com/tensorflow/java",
    libraries=(
        note(
            "add the native library to the build: org.tensorflow:tensorflow-core-platform, or tensorflow-core-native "
            "with the classifier of the machine (linux-x86_64-gpu for a GPU), in the version of tensorflow-core-api",
            kind=Kind.INSTALL,
        ),
        check("ldconfig -p | grep -e libcudart -e libcudnn", "it brings no CUDA: its release needs one of its own"),
    ),
    extends="TensorFlow",
)
_JULIA = Owner(
    "CUDA.jl",
    "https://cuda.juliagpu.org/stable/installation/troubleshooting/",
    libraries=(
        run("julia -e 'using Pkg; Pkg.update()'", "brings the CUDA and cuDNN that fit this CUDA.jl", kind=Kind.INSTALL),
        ask("julia -e 'using CUDA; CUDA.versioninfo()'", "shows the CUDA that it uses, and the driver"),
        note('CUDA.set_runtime_version!(v"12.6") chooses another CUDA, if the driver is too old for this one'),
    ),
    newer=(
        run("julia -e 'using Pkg; Pkg.update()'", "a CUDA.jl that knows this GPU", kind=Kind.INSTALL),
        ask("julia -e 'using CUDA; CUDA.versioninfo()'", "shows the GPU's capability, and the CUDA that is used"),
    ),
    memory=(edit("GC.gc(); CUDA.reclaim()", "in Julia: frees arrays that are no longer used"),),
)
ANYBODY = Owner("the program")
"""Whoever asked for one of NVIDIA's libraries, if a log does not say who it was."""
_ANY_LIBRARIES = (
    check("ldconfig -p | grep -e libcudart -e libcublas; ls -d /usr/local/cuda*", "shows which CUDA is there"),
    note(
        "put the lib64 of CUDA {cuda} on LD_LIBRARY_PATH, "
        "or install a release of the program for the CUDA that is there"
    ),
)
_KINDS: dict[str, tuple[Owner, str]] = {
    "dotnet": (
        _DOTNET,
        r"\bTensorflow\.(?:\w+\.)*\w+\(|\bTensorFlow\.NET\b|\bSciSharp\b|"
        r"\b(?:DLL|library) 'tensorflow'|\bMicrosoft\.ML\.\w",
    ),
    "java": (
        _JAVA,
        r"\borg\.tensorflow\.(?!lite)|\bjnitensorflow\b|\btensorflow_jni\b|\bTensorFlow native library for OS\b",
    ),
    "julia": (
        _JULIA,
        r"[/\\]\.julia[/\\]|\bCUDA\.jl\b|\bCuArrays?\b|\bCUDNNError\b|\bjulia> |^Stacktrace:$|\bERROR: LoadError\b",
    ),
    # What follows external/org_tensorflow/ is XLA inside of JAX, whose own tree has no such folder; the kernels and the
    # runtime of TensorFlow are there in TensorFlow Serving.
    "jax": (
        JAX,
        r"by rematerialization|"
        r"\bjax(?:lib|_plugins|_cuda\d+_p\w+)?\b(?!\.js)|\bJAX\b|XLA_PYTHON_CLIENT|XlaRuntimeError|JAX_PLATFORMS|"
        r"No GPU/TPU found, falling back|"
        r"external/org_tensorflow/(?!tensorflow/core/(?:common|framew|kern))\S{0,200}|external/xla/|\bxla_bridge\b",
    ),
    "torch": (
        TORCH,
        r"\btorch(?:vision|audio|_xla)?\b|\bPyTorch\b|\bc10::|THCudaCheck|PYTORCH_|TORCH_|\bvllm\b|"
        r"CUDA kernel errors might be async|CUDA out of memory\. Tried to allocate|\bcuDNN error: CUDNN_|"
        r"\bRuntimeError: CUDA error: |_ZNK?(?:2at|3c10|5torch)|\blib(?:torch|c10)(?:_\w+)?\.so|"
        r"The NVIDIA driver on your system is too old|Found no NVIDIA driver on your system",
    ),
    "onnxruntime": (_ORT, r"(?i:onnx ?runtime)|\bCUDAExecutionProvider\b"),
    "tensorrt": (_TENSORRT, r"\[TRT\]|\[TensorRT\]|\bnvinfer1?\b|tensorrt_llm|\btrtexec\b"),
    "cupy": (_CUPY, r"\bcupyx?\b(?!-cuda)|\bCuPy\b"),
    "paddle": (_PADDLE, r"\b[Pp]addle(?:[Pp]addle)?\b|\bdynamic_loader\.cc\b|\bDynamicLoader\.cpp\b"),
    "triton": (Owner("Triton"), r"\btriton[./\\]|\bPTXASError\b"),
    "numba": (_NUMBA, r"\bnumba\b|\bNvvmSupportError\b"),
    "ctranslate2": (
        _CTRANSLATE,
        r"\b(?:ctranslate2|CTranslate2|faster[-_]whisper|whisperx)\b|Library \S{1,60} is not found or cannot be loaded",
    ),
    "llama": (_LLAMA, r"\bllama[._]cpp\b|\blibllama\b"),
    "ggml": (Owner("ggml", newer=(_GGML_AGAIN,), memory=(_FEWER_LAYERS,)), r"\b(?:lib)?ggml[_-]"),
    "mxnet": (Owner("MXNet"), r"(?<!backend : )\bmxnet\b"),
    "lite": (_LITE, r"\bTfLite|\btflite|TensorFlow Lite|org\.tensorflow\.lite"),
    "tensorflow": (
        TENSORFLOW,
        r"(?i:tensor[ _]?flow)|\btf\.(?:\w+\.|[A-Z]|function|config|keras)|\bTF_(?!CPP_)|\b(?:dso_loader|gpu_device|"
        r"cpu_feature_guard|cuda_diagnostics)\.cc\b|Could not load dynamic library '|cuda drivers on your machine|"
        r"\bTF-TRT\b|external/local_(?:xla|tsl)/|\[Op:__",
    ),
}
_EVIDENCE = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, (_, pattern) in _KINDS.items()))
_PARTS = {kind: needed_parts(pattern)[0] for kind, (_, pattern) in _KINDS.items()}
"""Of the evidence of a kind, a text in lower case has one of these."""
_ALL_PARTS = tuple(part for parts in _PARTS.values() for part in parts)
_CALLERS = ("lite", "dotnet", "java")
"""Kinds of owners whose lines name TensorFlow, too."""
_BLOCK = 1000
"""Lines that are searched at once for parts of evidence, before each of them is."""
_ENOUGH = 1000
"""Pieces of evidence after which only TensorFlow is looked for: it is the owner if it occurs at all."""
_UNDEFINED = re.compile(
    r"undefined symbol: (?:_Z\w{0,4}?NK?(?P<length>\d{1,2})(?P<mangled>[A-Za-z]\w*)|(?P<name>\w+)::)"
)
_SUFFIX = re.compile(r"(?:_\d)?_(?:cuda|extensions?)$")
"""What the modules of a package have behind its name."""
_OF_TORCH = ("at", "c10", "torch")
_OF_TENSORFLOW_TOO = ("tensorflow", "tsl", "xla", "stream_executor", "google", "absl", "std", "Eigen", "llvm", "mlir")
"""C++ namespaces of TensorFlow and of what it is built from."""
_FRAME = re.compile(r'^\W{0,4}File "|^\s+at |-packages[/\\]')
_NOBODY = frozenset({"pip", "setuptools", "numpy", "scipy", "keras", "tf_keras", "IPython", "ipykernel", "nvidia"})
"""Packages whose frames do not say who asked for a GPU."""
_NOT_OPENED = "cannot open shared object file"
_MOST_LINES_BACK = 40
_BEGINNING = 80

_OF_TENSORFLOW = re.compile(r"(?i)tensor ?flow|\btf[.-]|\bTF_|\bcudatoolkit=|\bkeras\b")
_NVIDIA = re.compile(r"\bnvidia-\w")
_WORD = re.compile(r"\bTensorFlow\b(?! (?:\d|Lite|Serving))")
_MAJOR = re.compile(
    r"(?:cuda[ -]?|cu(?=1[123]\b))(1[1-3])\b|"
    r"found version (1[1-3])0\d\d"
)
_ANNOUNCES = re.compile(r":$")
"""The end of a note that belongs to the action behind it."""
_ROOM = re.compile(r"(?i)growth|per_process_gpu")
_MEMORY = re.compile(r"(?i)memory|mixed_precision|mixed_float")
"""Words of an action that lets TensorFlow do with less memory of the GPU."""
_INSTALLS = (Kind.INSTALL, Kind.NEW_ENVIRONMENT, Kind.START_CONTAINER)
_CODE = re.compile(r"\bcapability\b|\bsm_\d|for its GPU\b|kernel image|\bcode for\b")
_LIBRARY_STAGES = frozenset({Stage.PACKAGE, Stage.RUNTIME_LIBRARY, Stage.LIBRARIES})


def kinds(text: str) -> Counter[str]:
    """Count the pieces of evidence in a text by the kind of their owner."""
    return Counter(found.lastgroup for found in _EVIDENCE.finditer(text) if found.lastgroup)


def owner_of_log(lines: Sequence[str]) -> Owner | None:
    """Return the owner of a whole log: TensorFlow if it occurs, or else who occurs most; None if nobody does."""
    counted = Counter[str]()
    for start in range(0, len(lines), _BLOCK):
        block = lines[start : start + _BLOCK]
        lower = "\n".join(block).lower()
        sought = _PARTS["tensorflow"] if counted.total() > _ENOUGH else _ALL_PARTS
        parts = [part for part in sought if part in lower]
        for line in block if parts else ():
            if any(part in line.lower() for part in parts):
                counted += kinds(line)
                if counted["tensorflow"]:
                    return _caller(lines) or TENSORFLOW
    if counted:
        return _KINDS[counted.most_common(1)[0][0]][0]
    text = "\n".join(lines)
    linked = _NOT_OPENED in text and "eras" not in text
    package = next((name for name in reversed(packages_in(text)) if linked and name not in _NOBODY), "")
    return Owner(package) if package else None


def _caller(lines: Sequence[str]) -> Owner | None:
    """Return the owner of another language that calls TensorFlow's library, named near an end of a log that has it."""
    ends = lines if len(lines) <= 2 * _BLOCK else (*lines[:_BLOCK], *lines[-_BLOCK:])
    lower = "\n".join(ends).lower()
    # Not TensorFlow Lite: many trainings of TensorFlow end with an export to it.
    sought = [kind for kind in ("dotnet", "java") if any(part in lower for part in _PARTS[kind])]
    parts = [part for kind in sought for part in _PARTS[kind]]
    naming = [line for line in ends if any(part in line.lower() for part in parts)] if parts else []
    named = Counter(kind for line in naming for kind in kinds(line) if kind in sought)
    return _KINDS[named.most_common(1)[0][0]][0] if named else None


def owner_of_line(line: str, lines: Sequence[str], of_log: Owner | None) -> Owner | None:
    """Return the owner of a ``line`` of a log, or of an excerpt from one."""
    if of_log is not TENSORFLOW and (of_symbol := _of_symbol(line)):
        return of_symbol
    if named := _only(line):
        return of_log if named is TENSORFLOW and of_log is not None and of_log.extends == TENSORFLOW.name else named
    place = next((at for at, whole in enumerate(lines) if line[:_BEGINNING] in whole or whole.endswith(line)), None)
    for above in reversed(lines[max(place - _MOST_LINES_BACK, 0) : place] if place is not None else ()):
        if not _FRAME.search(above):
            continue
        if named := _only(above):
            return named
        if of_log is TORCH and _NOT_OPENED in line and (packages := packages_in(above)):
            return _extension(packages[0])
    return of_log or (ANYBODY if sonames.named(line) or "for CUDA runtime version" in line else None)


def _only(line: str) -> Owner | None:
    """Return the one owner that a line names; None if it names none or several."""
    named = kinds(line)
    for kind in _CALLERS:
        if named[kind] and set(named) <= {kind, "tensorflow"}:
            return _KINDS[kind][0]
    if named["paddle"] or named["onnxruntime"]:  # "Paddle2ONNX", and paths in an environment named after torch
        named.pop("torch", None)
    return _KINDS[next(iter(named))][0] if len(named) == 1 else None


def sentence(owner: Owner, text: str) -> str:
    """Return a sentence of a cause that was written for TensorFlow, for the owner of the log."""
    said = _WORD.sub(owner.name, text)
    return re.sub(r"\bXLA\b(?!_)", owner.name, said) if owner.without_xla else said


def actions(owner: Owner, fix: Iterable[Action], stage: Stage, evidence: str) -> tuple[Action, ...]:
    """Return a fix that was written for TensorFlow, for the owner of the log.

    What would install or configure TensorFlow goes, and the owner's own way to the same end takes its place: the order
    of the fix stays that of its cause. ``evidence`` is the sentence of the cause and its lines: it says which CUDA was
    asked for.
    """
    everything = tuple(fix)
    asks_for_code = _CODE.search(evidence) is not None
    found = _MAJOR.search(evidence)
    library = next(iter(sonames.named(evidence)), None)
    is_of_library = library is not None and not asks_for_code and stage is not Stage.MEMORY
    cuda = (library and library.cuda) or (found and next(filter(None, found.groups()), "")) or sonames.DEFAULT_CUDA

    def filled(*own: Action) -> tuple[Action, ...]:
        return tuple(fill_in(action, {"cuda": cuda}) for action in own)

    libraries = filled(*(owner.libraries or (() if owner.extends else _ANY_LIBRARIES)))
    brings = filled(*owner.newer) if asks_for_code else libraries
    kept: list[Action] = []
    leaves_room = False
    for action in everything:
        own = _kept(owner, action, stage)
        if own is None and kept and kept[-1].role is Role.NOTE and kept[-1].is_said_of(_ANNOUNCES):
            kept.pop()
        if own is None and (action.names(_ROOM) or action.is_said_of(_ROOM)):
            kept += filled(*(owner.room or owner.memory))
            leaves_room = True
        elif own is None and (action.names(_MEMORY) or action.is_said_of(_MEMORY)):
            kept += () if leaves_room else filled(*owner.memory)
        elif own is None and action.kind in _INSTALLS and not is_of_library:
            kept += brings
        elif own is not None and not (is_of_library and action.kind is Kind.INSTALL and action.names(_NVIDIA)):
            kept.append(own)
    if stage is Stage.MEMORY and kept and kept[0].role is Role.CHECK and not owner.room:
        kept = [*filled(*owner.memory), *kept]
    if library is not None and is_of_library and (stage in _LIBRARY_STAGES or stage is Stage.FIRST_OP or not kept):
        of_owner = (*library.actions(cuda), *owner.libraries)
        of_owner = (*owner.libraries, *library.actions(cuda)) if owner.extends == TORCH.name else of_owner
        kept = [*filled(*owner.by_cuda.get(cuda, ()), *of_owner), *kept]
    elif stage in _LIBRARY_STAGES and not asks_for_code:
        if any(action.kind is Kind.INSTALL and action in everything for action in kept):
            libraries = ()  # what it installs is nobody's own
        kept = [*filled(*(owner.by_cuda.get(cuda, ()) if found else ())), *libraries, *kept]
    elif asks_for_code and list(everything) != kept:
        kept = [*brings, *kept]
    elif stage is Stage.FIRST_OP and list(everything) != kept:
        kept += brings
    return distinct(kept) or (note(f"see {owner.url} for the CUDA and the driver that {owner.name} needs"),)


def _extension(package: str) -> Owner:
    """Return the owner for a package that is built for the PyTorch beside it."""
    options = ("--force-reinstall", "--no-cache-dir", "--no-deps", "--no-build-isolation")
    again = install(*options, package.replace("_", "-"), note="must be the build for the installed PyTorch")
    which = "python -c 'import torch; print(torch.__version__, torch.version.cuda)'"
    return Owner(package, extends=TORCH.name, libraries=(again, ask(which, "shows which PyTorch and CUDA that is")))


def _of_symbol(line: str) -> Owner | None:
    """Return the owner of a symbol that a library lacks, by its C++ namespace; None for TensorFlow's and for none."""
    found = _UNDEFINED.search(line)
    if found is None:
        return None
    name = found["name"] or found["mangled"][: int(found["length"])]
    if name in _OF_TORCH:
        package = next((package for package in packages_in(line) if package != "torch"), "")
        return _extension(_SUFFIX.sub("", package)) if package else TORCH
    if name in _OF_TENSORFLOW_TOO:
        return None
    return Owner(name, libraries=(note(f"build the library again that asks for it, for the {name} that loads it"),))


def _kept(owner: Owner, action: Action, stage: Stage) -> Action | None:
    if owner is _LITE:
        return action
    if action.names(_OF_TENSORFLOW):  # whoever calls TensorFlow's library, that reads its variables
        return action if action.change and owner.extends == TENSORFLOW.name else None
    own = action.replaced(note=sentence(owner, action.note))
    if own.is_said_of(_OF_TENSORFLOW):
        if not action.command or action.kind in (Kind.INSTALL, Kind.NEW_ENVIRONMENT, Kind.START_CONTAINER):
            return None
        return own.replaced(note="")
    if owner.libraries and stage in _LIBRARY_STAGES and action.kind is Kind.INSTALL and action.names(_NVIDIA):
        return None
    return own


def page(owner: Owner, url: str) -> str:
    """Return the address of a page about a cause, for the owner of the log."""
    return owner.url if "tensorflow.org" in url else url
