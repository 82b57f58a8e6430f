"""A missing library is brought by the package of its own name and release, whoever asked for it."""

from __future__ import annotations

import pytest

from gpudiag.knowledge import sonames
from gpudiag.run import why

CTRANSLATE2 = "RuntimeError: Library libcublas.so.12 is not found or cannot be loaded"
CUDNN_8 = (
    "Could not load library libcudnn_ops_infer.so.8. Error: libcudnn_ops_infer.so.8: cannot open shared object file"
)
ONNX = (
    "[E:onnxruntime:Default, provider_bridge_ort.cc:2195] Error loading "
    r'"C:\app\onnxruntime_providers_cuda.dll" which depends on "cublasLt64_13.dll" which is missing. (Error 126: "")'
)
FLASH = """2.1.0 torch
  File "/venv/lib/python3.10/site-packages/flash_attn/flash_attn_interface.py", line 8, in <module>
    import flash_attn_2_cuda as flash_attn_cuda
ImportError: libcudart.so.12: cannot open shared object file: No such file or directory"""


@pytest.mark.parametrize(
    ("name", "of", "package"),
    [
        ("libcublas.so.11", "CUDA 11", "nvidia-cublas-cu11"),
        ("cublasLt64_12.dll", "CUDA 12", "nvidia-cublas-cu12"),
        ("libcudart.so.13", "CUDA 13", "nvidia-cuda-runtime"),
        ("cudart64_110.dll", "CUDA 11", "nvidia-cuda-runtime-cu11"),
        ("nvrtc64_120_0.dll", "CUDA 12", "nvidia-cuda-nvrtc-cu12"),
        ("libcufft.so.10", "CUDA 11", "nvidia-cufft-cu11"),
        ("libcufft.so.11", "CUDA 12", "nvidia-cufft-cu12"),
        ("libcublas.so.10.0", "CUDA 10", ""),
        ("libcudnn_ops_infer.so.8", "cuDNN 8", "nvidia-cudnn-cu12==8.*"),
        ("cudnn_graph64_9.dll", "cuDNN 9", "nvidia-cudnn-cu12==9.*"),
        ("libcudnn.so.7", "cuDNN 7", ""),
        ("libnvinfer_plugin.so.10", "TensorRT 10", "tensorrt-cu12==10.*"),
        ("libnvinfer.so.8", "TensorRT 8", "tensorrt==8.6.*"),
        ("libnccl.so.2", "NCCL", "nvidia-nccl-cu12"),
    ],
)
def test_a_name_tells_the_product_the_release_and_the_package(name: str, of: str, package: str) -> None:
    (library,) = sonames.named(f"something about {name}: it is not there")
    assert (library.name, library.of) == (name, of)
    assert library.requirement(library.cuda or sonames.DEFAULT_CUDA)[0] == package


@pytest.mark.parametrize(("cuda", "says"), [("12", "for CUDA 11 nvidia-cudnn-cu11==9.*"), ("13", ""), ("11", "")])
def test_another_cuda_is_named_with_the_package_that_is_for_it(cuda: str, says: str) -> None:
    (library,) = sonames.named("libcudnn.so.9: cannot open shared object file")
    _, _, other = library.actions(cuda)[0].note.partition("; ")
    assert other == says


@pytest.mark.parametrize(
    ("log", "owner", "first"),
    [
        (CTRANSLATE2, "CTranslate2", "pip install nvidia-cublas-cu12"),
        (CUDNN_8, "", "pip install 'nvidia-cudnn-cu12==8.*'"),
        (ONNX, "ONNX Runtime", "pip install --upgrade 'onnxruntime-gpu[cuda,cudnn]'"),
        (FLASH, "PyTorch", "--no-build-isolation flash-attn"),
    ],
)
def test_the_first_line_to_type_brings_that_release_for_that_program(log: str, owner: str, first: str) -> None:
    diagnosis = why.explained(tuple(log.splitlines()), ("gpudiag", "why")).diagnosis
    assert owner in diagnosis.origin
    assert first in diagnosis.causes[0].fix[0].command
    assert "tensorflow" not in str(diagnosis.causes).lower()
