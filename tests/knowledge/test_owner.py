"""Whose log it is, and that nothing of TensorFlow is said where TensorFlow does not occur."""

from __future__ import annotations

import re

import pytest

from gpudiag import causes
from gpudiag.causes import messages
from gpudiag.knowledge import owner
from gpudiag.knowledge.origin import Origin
from gpudiag.run import why

CUPY = """Traceback (most recent call last):
  File "/venv/lib64/python3.9/site-packages/cupy/__init__.py", line 17, in <module>
    from cupy import _core  # NOQA
ImportError: libcudart.so.12: cannot open shared object file: No such file or directory"""
TORCH = """/venv/lib/python3.8/site-packages/torch/cuda/__init__.py:143: UserWarning:
NVIDIA GeForce RTX 3090 with CUDA capability sm_86 is not compatible with the current PyTorch installation."""
JAX = """2024-08-20 16:26:58.037892: E external/xla/xla/stream_executor/cuda/cuda_dnn.cc:439] \
Could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR
2024-08-20 16:26:58.037952: E external/xla/xla/stream_executor/cuda/cuda_dnn.cc:443] \
Memory usage: 46637514752 bytes free, 47587131392 bytes total.
jaxlib.xla_extension.XlaRuntimeError: FAILED_PRECONDITION: DNN library initialization failed."""
TENSORFLOW = "2024-08-20 16:26:57.1: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on."


@pytest.mark.parametrize(
    ("log", "name", "word"),
    [  # cupy/cupy#8226, NVIDIA-AI-IOT/torch2trt#850, jax-ml/jax#23145
        (CUPY, "CuPy", "cupy-cuda12x"),
        (CUPY.replace("so.12", "so.11.0"), "CuPy", "cupy-cuda11x"),
        (TORCH, "PyTorch", "download.pytorch.org"),
        (JAX, "JAX", "jax[cuda12]"),
    ],
)
def test_a_cause_and_its_fix_are_those_of_the_framework_that_wrote_the_log(log: str, name: str, word: str) -> None:
    diagnosis = why.explained(tuple(log.splitlines()), ("gpudiag", "why")).diagnosis
    said = " ".join((diagnosis.origin, *(f"{each.cause} {each.fix} {each.url}" for each in diagnosis.causes)))
    assert diagnosis.origin == name
    assert word in said
    assert "tensorflow" not in said.lower()


OTHERS = [known for kind, (known, _) in owner._KINDS.items() if kind not in ("tensorflow", "lite")]
OF_TENSORFLOW = re.compile(r"(?i)tensorflow(?!\.NET)|\btf\\.|\bTF_|\bkeras\b")


@pytest.mark.parametrize("by", [*OTHERS, owner.ANYBODY], ids=lambda by: by.name)
def test_no_framework_gets_a_fix_of_tensorflow(by: owner.Owner) -> None:
    own = {action.command for action in (*by.libraries, *by.newer, *by.memory, *by.room)}
    wrong = []
    for known in (*messages.all_of_them().values(), *causes.all_of_them()):
        for action in owner.actions(by, known.declared.fix, known.stage, known.general_cause):
            is_own = action.command in own or (by.extends == "TensorFlow" and (action.change or not action.command))
            if not is_own and OF_TENSORFLOW.search(f"{action.command} {action.note}"):
                wrong.append((known.id, action.command or action.note))
    assert wrong == []


NET = """2023-01-01 10:00:00.1: I tensorflow/core/platform/cpu_feature_guard.cc:142] This TensorFlow binary is optimized
System.DllNotFoundException: Unable to load DLL 'tensorflow' or one of its dependencies
   at Tensorflow.c_api.TF_NewGraph()"""
JAVA = """Exception in thread "main" java.lang.UnsatisfiedLinkError: no jnitensorflow in java.library.path
\tat org.tensorflow.internal.c_api.global.tensorflow.<clinit>(tensorflow.java:12)"""
JULIA = """ERROR: CUDA error: no kernel image is available for execution on the device (code 209)
   @ CUDA ~/.julia/packages/CUDA/BbliS/lib/cudadrv/error.jl:91"""
FLASH = (
    "ImportError: /usr/lib/python3/dist-packages/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: "
    "_ZN3c104cuda9SetDeviceEi"
)
LAMMPS = "lmp: symbol lookup error: /opt/libpair_x.so: undefined symbol: _ZN9LAMMPS_NS6Memory7smallocElPKc"


@pytest.mark.parametrize(
    ("log", "first"),
    [
        (NET, "dotnet add package SciSharp.TensorFlow.Redist"),
        (JAVA, "org.tensorflow:tensorflow-core-platform"),
        (JULIA, "using Pkg; Pkg.update()"),
        (FLASH, "--no-build-isolation flash-attn"),
        (LAMMPS, "build the library again"),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", "use a smaller batch"),
    ],
)
def test_who_calls_a_library_decides_what_is_typed_first(log: str, first: str) -> None:
    cause = why.explained(tuple(log.splitlines()), ("gpudiag", "why")).diagnosis.causes[0]
    assert first in f"{cause.fix[0].command} {cause.fix[0].note}"


def test_the_nearest_frame_decides_where_several_frameworks_occur() -> None:
    origin = Origin((TENSORFLOW, *CUPY.splitlines()))
    assert origin.owner is not None
    assert origin.owner.name == "TensorFlow"
    by = origin.owner_of(CUPY.splitlines()[-1])
    assert by is not None
    assert by.name == "CuPy"
    assert not origin.is_of_another


def test_a_python_alone_says_nothing_of_tensorflow() -> None:
    assert str(Origin(('  File "/usr/lib/python3.10/runpy.py", line 196, in _run',))) == ""


GSP = "NVRM: Xid (PCI:0000:9b:00): 119, pid=1230, Timeout after 6s of waiting for RPC response from GPU2 GSP!"
REQUIRED = "NVRM: Xid (PCI:0000:9b:00): 154, GPU recovery action changed from 0x0 (None) to 0x{} ({})"
FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.70 GiB. GPU 0 has a total capacity of 23.64 GiB "
    "of which 1.02 GiB is free. {}Of the allocated memory 2.93 GiB is allocated by PyTorch, and {} is reserved by "
    "PyTorch but unallocated."
)
OTHER = "Process 493 has 12.02 GiB memory in use. Including non-PyTorch memory, this process has 3 GiB memory in use. "


@pytest.mark.parametrize(
    ("lines", "cause", "first"),
    [
        ((GSP,), "xid_119", "sudo nvidia-smi --gpu-reset -i 0000:9b:00.0"),
        ((GSP, REQUIRED.format(2, "Node Reboot Required")), "xid_119", "sudo reboot"),
        ((REQUIRED.format(2, "OS Reboot"),), "recovery_by_reboot", "sudo reboot"),
        ((FULL.format(OTHER, "16.91 MiB"),), "torch_full_by_another", "kill 493"),
        ((FULL.format("", "2.30 GiB"),), "torch_fragmented", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
    ],
)
def test_what_the_event_itself_says_decides_what_is_done_first(lines: tuple[str, ...], cause: str, first: str) -> None:
    (found,) = why.explained(lines, ("gpudiag", "why")).diagnosis.causes
    assert found.cause_id == cause
    assert first in found.fix[0].command
