"""Messages of TensorRT, of TensorFlow's converter for it (TF-TRT), and of model servers."""

from __future__ import annotations

from gpudiag.fix import Kind, Role, edit_note, install, note, nvidia_smi, prepend, run_container
from gpudiag.knowledge.fault import Confidence, Stage
from gpudiag.knowledge.message import MessageFamily

FAMILY = MessageFamily(
    "TensorRT and servers of models",
    stage=Stage.FIRST_OP,
    seen="TensorRT 5-10, TensorFlow 1.13-2.17, TensorFlow Serving, Triton",
    url="https://docs.nvidia.com/deeplearning/tensorrt/latest/",
)

FAMILY.fault(
    "tensorrt_older_than_gpu",
    "(Unsupported SM",
    "Assertion failed: Unsupported SM",
    meaning="this TensorRT is older than the GPU, and has no code for it",
    fix=(
        install("--upgrade", "tensorrt", note="a release that knows this GPU; then build the engine again"),
        nvidia_smi("shows the GPU's compute capability", "--query-gpu=name,compute_cap --format=csv"),
    ),
    url="https://docs.nvidia.com/deeplearning/tensorrt/latest/getting-started/support-matrix.html",
)
FAMILY.fault(
    "engine_of_another_gpu",
    "The engine plan file is generated on an incompatible device",
    "Using an engine plan file across different models of devices is not recommended",
    "Cannot deserialize engine{}",
    "The engine plan file is not compatible with this version of TensorRT",
    "Serialization assertion {} failed.Version tag does not match",
    "Version tag does not match. Note: Current Version: {has:d}, Serialized Engine Version: {needs:d}",
    meaning="the TensorRT engine was built on another kind of GPU or with another TensorRT, and runs only there",
    fix=(
        edit_note(
            "build the engine again, on this GPU with this TensorRT: trtexec --onnx=model.onnx --saveEngine=model.plan"
        ),
    ),
)
FAMILY.fault(
    "tensorrt_no_cuda",
    "CUDA initialization failure with error: {code:d}",
    "[TRT] CUDA initialization failure with error {code:d}",
    meaning="TensorRT cannot use CUDA (error {code}): there is no driver, the driver is older than "
    "its CUDA (35), or there is no GPU (100)",
    in_general="TensorRT cannot use CUDA: there is no driver, the driver is older than its CUDA (35), "
    "or there is no GPU (100)",
    fix=(
        nvidia_smi("shows the driver's version and the newest CUDA that it supports; the GPU must be listed"),
        run_container("--gpus all", note="if it runs in a container"),
    ),
    stage=Stage.DRIVER,
)
FAMILY.fault(
    "tensorrt_of_another_release",
    "TensorRT mismatch. Compiled against version {needs:v}, but loaded {has:v}",
    "Loaded TensorRT {has:v} but linked TensorFlow against TensorRT {needs:v}",
    meaning="this TensorFlow was built with TensorRT {needs}, and {has} is loaded: converted models may fail or crash",
    in_general="another TensorRT is loaded than this TensorFlow was built with: converted models may fail or crash",
    fix=(
        install("tensorrt=={needs}.*", note="works for TensorRT 8.5 and newer; for older ones use NVIDIA's archive"),
        run_container(
            "--gpus all",
            "-it",
            image="nvcr.io/nvidia/tensorflow:24.03-tf2-py3",
            note="or use NVIDIA's image, in which both fit",
            role=Role.ALTERNATIVE,
        ),
    ),
    symptom=True,
)
FAMILY.fault(
    "tensorrt_linked_and_loaded",
    "Linked TRT ver: ({needs:l})",
    meaning="this TensorFlow was built with TensorRT {needs}; if another one is loaded, as the next line says, "
    "converted models may fail or crash",
    in_general="the release of TensorRT with which this TensorFlow was built; if the next line says "
    "another one, converted models may fail or crash",
    fix=(
        install(
            "tensorrt==VERSION", note="take the major and minor number of the TensorRT that TensorFlow was built with"
        ),
        run_container(
            "--gpus all",
            "-it",
            image="nvcr.io/nvidia/tensorflow:24.03-tf2-py3",
            note="or use NVIDIA's image, in which both fit",
            role=Role.ALTERNATIVE,
        ),
    ),
    symptom=True,
)
FAMILY.fault(
    "tftrt_not_built",
    "Tensorflow has not been built with TensorRT support",
    "Tensorflow needs to be built with TensorRT support enabled to allow TF-TRT to operate",
    meaning="this TensorFlow was built without TensorRT (from 2.18 on none has it), or TensorRT is not installed",
    fix=(
        run_container(
            "--gpus all", "-it", image="nvcr.io/nvidia/tensorflow:24.03-tf2-py3", note="has TensorFlow with TensorRT"
        ),
        edit_note("or convert to ONNX (pip install tf2onnx) and build an engine with trtexec"),
    ),
)
FAMILY.fault(
    "tftrt_engine_failed",
    "Engine creation for {:s} failed. The native segment will be used instead",
    "Failed to enqueue batch for TRT engine: {}",
    "Failed to execute engine: {} Retrying with native segment for {:s}",
    "Engine retrieval for input shapes: {} failed. Running native segment for {:s}",
    "Engine creation for {} failed. The native segment will be used instead. Reason: {}",
    "TF-TRT Warning: Engine creation for {} failed",
    meaning="TF-TRT could not build or run a TensorRT engine; TensorFlow's own operations are used instead, slower",
    fix=(
        note(
            "read TensorRT's line before this one, which says why: memory (max_workspace_size_bytes),"
            " shapes, or an unsupported operation"
        ),
        edit_note("call converter.build(input_fn) with the shapes in use to build the engines beforehand"),
    ),
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "gpu_library_of_tensorflow_1",
    "Couldn't open CUDA library {library:s}",
    "could not find {symbol:w} in {library:w} DSO; dlerror: {reason}",
    "Could not load '{library:q}'",
    "Could not find '{library:q}.dll'",
    meaning="TensorFlow's CUDA libraries were not found; they must be exactly of the release that it was built for",
    fix=(
        note(
            "install what the release needs: TensorFlow 1.13-1.15, 2.0: CUDA 10.0, cuDNN 7.4; "
            "1.5-1.12: CUDA 9.0, cuDNN 7; 1.3-1.4: CUDA 8.0, cuDNN 6; older: CUDA 8.0, cuDNN 5.1"
        ),
        prepend("LD_LIBRARY_PATH", "/usr/local/cuda/lib64", "set the folder that contains them"),
        install("tensorflow[and-cuda]", note="installs a current TensorFlow, which brings its own"),
    ),
    stage=Stage.LIBRARIES,
    seen="0.5-1.14",
)
FAMILY.fault(
    "triton_no_gpu",
    "unable to get number of CUDA devices: {reason}",
    "failed to load '{:q}' version {:d}: Internal: {}CUDA{}",
    "instance group {:s} of model {:s} has kind KIND_GPU but server does not support GPUs",
    "has kind KIND_GPU but no GPUs are available",
    meaning="the model server sees no GPU",
    fix=(
        run_container("--gpus all", note="then run nvidia-smi inside the container: it must list the GPU"),
        note("or set KIND_CPU in instance_group of config.pbtxt", kind=Kind.START_CONTAINER),
    ),
    stage=Stage.DRIVER,
    seen="Triton",
)
