"""Examples of causes that a program's log shows by itself, whatever machine wrote it."""

from __future__ import annotations

import msgspec

from examples import Example
from examples.hosts.libraries import example_facts, example_library
from gpudiag.cause import Evidence
from gpudiag.model.facts import FileFault, FileState, LibraryFacts
from gpudiag.run.why import NO_MACHINE


def _log(*lines: str) -> Evidence:
    return Evidence(NO_MACHINE, lines=lines)


def _both(fires: dict[str, tuple[str, ...]], near: dict[str, tuple[str, ...]]) -> tuple[Example, ...]:
    return (
        *(Example(name, _log(*lines)) for name, lines in fires.items()),
        *(Example(name, _log(*lines), fires=False) for name, lines in near.items()),
    )


def _not_opened(library: str) -> str:
    return (
        "2021-05-01 10:00:00.1: W tensorflow/stream_executor/platform/default/dso_loader.cc:60] Could not load dynamic "
        f"library '{library}'; dlerror: {library}: cannot open shared object file: No such file or directory"
    )


_NO_DRIVER = (
    _not_opened("libcuda.so.1"),
    "W tensorflow/stream_executor/cuda/cuda_driver.cc:269] failed call to cuInit: UNKNOWN ERROR (303)",
)
_SKIPPED = "W tensorflow/core/common_runtime/gpu/gpu_device.cc:1850] Cannot dlopen some GPU libraries."
_MADE = (
    "I0000 00:00:1.1 1 gpu_device.cc:2022] Created device /job:localhost/replica:0/task:0/device:GPU:0 with 38197 MB "
    "memory:  -> device: 0, name: NVIDIA A100-SXM4-40GB, pci bus id: 0000:07:00.0, compute capability: 8.0"
)
_PLACED = (
    "InvalidArgumentError: Cannot assign a device for operation init: Operation was explicitly assigned to "
    "/device:GPU:0 but available devices are [ /job:localhost/replica:0/task:0/device:CPU:0{} ]. Make sure"
)
_CREATED = (
    "I tensorflow/core/common_runtime/gpu_device.cc:1525] Created device /job:localhost/replica:0/task:0/device:GPU:0"
    " with 3071 MB memory:  -> device: 0, name: GeForce GTX 1060, pci bus id: 0000:01:00.0, compute capability: 6.1"
)

_CUDNN_FOLDER = "/home/someone/venv/lib/python3.11/site-packages/nvidia/cudnn/lib"
_CUDNN_PACKAGE = "nvidia-cudnn-cu12 9.3.0.75"
_STRAY = FileState(
    "/opt/old/libcudnn_ops.so.9",
    FileFault.OTHER_BUILD,
    "is loaded with libcudnn.so.9, and is another build",
    "/opt/old",
)
_CUT = FileState(
    f"{_CUDNN_FOLDER}/libcudnn_cnn.so.9", FileFault.CUT, "is cut short", owner="nvidia-cudnn-cu12 9.3.0.75"
)
_OTHER = FileState("/x/libcufft.so.11", FileFault.CUT, "is cut short", owner="nvidia-cufft-cu12 11.3.0.4")
_CUDNN_LOGS = _both(
    {
        "a part": (
            "Could not load library libcudnn_cnn_train.so.8. Error: /usr/lib/libcudnn_cnn_train.so.8: undefined "
            "symbol: _ZN5cudnn3cnn5inferE, version libcudnn_cnn_infer.so.8",
        ),
        "cuDNN 9": ("Unable to load any of {libcudnn_cnn.so.9.1.0, libcudnn_cnn.so.9.1, libcudnn_cnn.so.9}",),
        "Windows": ("Could not locate zlibwapi.dll. Please make sure it is in your library path!",),
    },
    {
        "no link of the driver": (
            "Could not load library libcudnn_cnn_infer.so.8. Error: libcuda.so: cannot open shared object file: No "
            "such file or directory",
        ),
    },
)


def _cudnn(files: tuple[FileState, ...] = (), **changes: object) -> Evidence:
    facts = example_facts(example_library("libcudnn.so.9", files=files))
    assert isinstance(facts.libraries, LibraryFacts)
    changed = msgspec.structs.replace(facts.libraries, search_path=("/opt/old", "/opt/lib"), **changes)
    return Evidence(msgspec.structs.replace(facts, libraries=changed))


EXAMPLES: dict[str, tuple[Example, ...]] = {
    "numpy_of_another_release": _both(
        {
            "numpy 2": ("A module that was compiled using NumPy 1.x cannot be run in", "NumPy 2.1.2 as it may crash."),
            "numpy 2, of the user": (
                '  File "/home/user/.local/lib/python3.10/site-packages/tensorflow/python/client.py", line 19',
                "AttributeError: _ARRAY_API not found",
            ),
            "an older one": ("RuntimeError: module compiled against API version 0xe but this version of numpy is 0xd",),
            "a name": ("AttributeError: module 'numpy' has no attribute 'object'.",),
        },
        {
            "another name": ("AttributeError: module 'numpy' has no attribute 'my_function'",),
            "another module": ("AttributeError: module 'torch' has no attribute 'object'",),
        },
    ),
    "protobuf_of_another_release": _both(
        {
            "too new": ("TypeError: Descriptors cannot not be created directly.",),
            "too old": ("ImportError: cannot import name 'builder' from 'google.protobuf.internal'",),
            "older than the code": (
                "google.protobuf.runtime_version.VersionError: Detected incompatible Protobuf Gencode/Runtime versions "
                "when loading tensorflow/core/a.proto: gencode 6.31.1 runtime 5.29.5. Runtime version cannot be older",
            ),
            "without GetPrototype": ("AttributeError: 'MessageFactory' object has no attribute 'GetPrototype'",),
        },
        {"another builder": ("ImportError: cannot import name 'builder' from 'my.package'",)},
    ),
    "system_library_too_old": _both(
        {
            "glibc": (
                "ImportError: /lib/x86_64-linux-gnu/libm.so.6: version `GLIBC_2.29' not found (required by "
                "/home/user/venv/lib/python3.8/site-packages/tensorflow/python/_pywrap_tensorflow_internal.so)",
            ),
            "libstdc++": (
                "ImportError: /usr/lib/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by a.so)",
            ),
        },
        {"another symbol": ("a.so: version `OPENSSL_3.0.0' not found (required by b.so)",)},
    ),
    "cpu_lacks_instructions": _both(
        {
            "named": (
                "F tensorflow/core/platform/cpu_feature_guard.cc:37] The TensorFlow library was compiled to use AVX "
                "instructions, but these aren't available on your machine.",
            ),
            "died of it": ("Illegal instruction (core dumped)",),
        },
        {"a notice": ("Your CPU supports instructions that this TensorFlow binary was not compiled to use: AVX2 FMA",)},
    ),
    "windows_dll_not_loaded": _both(
        {
            "routine": (
                "ImportError: DLL load failed while importing _pywrap_tensorflow_internal: A dynamic link library "
                "(DLL) initialization routine failed.",
            ),
            "runtime of Visual C++": (
                "ImportError: Could not find the DLL(s) 'msvcp140_1.dll'. TensorFlow requires that these DLLs be "
                "installed in a directory that is named in your %PATH% environment variable.",
            ),
            "CUDA's": (
                "ImportError: Could not find 'cudart64_100.dll'. TensorFlow requires that this DLL be installed in a "
                "directory that is named in your %PATH% environment variable. Download and install CUDA 10.0",
            ),
        },
        {"another module": ("ImportError: DLL load failed while importing _ssl: The specified module was not found.",)},
    ),
    "file_named_as_package": _both(
        {
            "on Windows": (
                "Cannot import name 'keras' from partially initialized module 'tensorflow' (most likely due to a "
                r"circular import) (C:\Users\user\repos\tensorflow.py)",
            ),
            "by a traceback": (
                '  File "/home/user/project/random.py", line 3, in <module>',
                "AttributeError: partially initialized module 'random' has no attribute 'Random' (most likely due to a "
                "circular import)",
            ),
            "an empty folder": ("AttributeError: module 'tensorflow' has no attribute '__version__'",),
        },
        {
            "of the package itself": (
                "ImportError: cannot import name 'dtensor' from 'tensorflow.compat.v2.experimental' "
                "(/usr/lib/python3.10/site-packages/tensorflow/_api/v2/compat/v2/experimental/__init__.py)",
            ),
        },
    ),
    "program_for_tensorflow_1": _both(
        {
            "options of a session": ("AttributeError: module 'tensorflow' has no attribute 'ConfigProto'",),
            "contrib": ("ModuleNotFoundError: No module named 'tensorflow.contrib'",),
            "of a module": ("AttributeError: module 'tensorflow._api.v2.image' has no attribute 'resize_bilinear'",),
        },
        {
            "a misspelt name": ("AttributeError: module 'tensorflow' has no attribute 'kerass'",),
            "another package's": ("AttributeError: module 'tensorflow_hub' has no attribute 'Session'",),
        },
    ),
    "extension_of_another_release": _both(
        {
            "Horovod": (
                "tensorflow.python.framework.errors_impl.NotFoundError: /usr/lib/horovod/mpi_lib.so: undefined symbol: "
                "_ZN10tensorflow14kernel_factory17OpKernelRegistrar12InitInternalE",
            ),
            "a file of TensorFlow": (
                "tensorflow.python.framework.errors_impl.NotFoundError: /opt/conda/lib/python3.6/site-packages/"
                "tensorflow/core/kernels/libtfkernel_sobol_op.so: undefined symbol: _ZN10tensorflow8OpKernel5TraceEv",
            ),
        },
        {"another library": ("ImportError: /usr/lib/libfoo.so: undefined symbol: _ZN3foo3barEv",)},
    ),
    "requirements_exclude_each_other": _both(
        {
            "pip": (
                "The conflict is caused by:",
                "    The user requested numpy==2.0.1",
                "    tensorflow 2.15.0 depends on numpy<2.0.0 and >=1.23.5",
            ),
            "uv": (
                "No solution found when resolving dependencies:",
                "Because tensorflow==2.15.0 depends on numpy>=1.23.5,<2.0.0 and your project depends on numpy>=2, we",
            ),
            "two releases of TensorFlow": (
                "The conflict is caused by:",
                "    The user requested tensorflow==2.13.0",
                "    tensorflow-text 2.10.0 depends on tensorflow<2.11 and >=2.10.0",
            ),
            "conda's Python": (
                "UnsatisfiableError: The following specifications were found",
                "  - tensorflow -> python[version='3.5.*|>=3.6,<3.7.0a0|3.7.*']",
                "Your python: python=3.8",
            ),
            "Poetry, a release that is not there": (
                "So, because no versions of tensorflow-intel match 2.15.0.post1",
                " and test depends on tensorflow (^2.15.0.post1), version solving failed.",
            ),
        },
        {
            "ranges that fit": (
                "The conflict is caused by:",
                "    The user requested numpy==1.24.3",
                "    tensorflow 2.15.0 depends on numpy<2.0.0 and >=1.23.5",
            ),
            "nothing was solved": (
                "tensorflow 2.15.0 depends on numpy<2 and >=1.23.5",
                "The user requested numpy==2.0.1",
            ),
            "conda's Python that fits": (
                "UnsatisfiableError: The following specifications were found",
                "  - tensorflow -> python[version='3.5.*|>=3.6,<3.7.0a0|3.7.*']",
                "Your python: python=3.7",
            ),
        },
    ),
    "requirement_left_unmet": _both(
        {
            "pip": ("tensorflow 2.15.0 requires keras<2.16,>=2.15.0, but you have keras 3.0.2 which is incompatible.",),
            "Probability, wrapped": (
                "ImportError: This version of TensorFlow Probability requires TensorFlow",
                "version >= 2.5; Detected an installation of version 2.4.1. Please",
            ),
            "transformers": (
                "ImportError: tokenizers>=0.14,<0.19 is required for a normal functioning of this module, but found "
                "tokenizers==0.13.3.",
            ),
            "another package, of a known release": (
                "TensorFlow version: 2.15.0",
                "numba 0.53.1 requires numpy<1.21,>=1.15, but you have numpy 1.26.4 which is incompatible.",
            ),
        },
        {
            "it fits": (
                "tensorflow 2.15.0 requires keras<2.16,>=2.15.0, but you have keras 2.15.0 which is incompatible.",
            ),
            "another fault": (
                "tensorflow 2.15.0 requires keras<2.16,>=2.15.0, but you have keras 3.0.2 which is incompatible.",
                "[Errno 28] No space left on device",
                "FATAL: kernel too old",
            ),
        },
    ),
    "conda_packages_not_found": _both(
        {
            "a file of another system": (
                "ResolvePackageNotFound: ",
                "  - libgcc-ng==11.2.0=h1234567_1",
                "  - python==3.6.13=h12debd9_1",
            ),
            "builds that are gone": (
                "ResolvePackageNotFound: ",
                "  - tensorflow==2.10=gpu_py39h9bca9fa_0",
            ),
            "not in the channels": ("ResolvePackageNotFound:", "  - cudatoolkit=11.1"),
            "asked for by name": (
                "PackagesNotFoundError: The following packages are not available from current channels:",
                "",
                "  - tensorflow-gpu=2.11",
            ),
        },
        {
            "no list": ("ResolvePackageNotFound:",),
            "a list of something else": ("Installed:", "  - cudatoolkit=11.1"),
        },
    ),
    "musl_system": _both(
        {
            "no wheel": (
                "docker run --rm -it python:3.8-alpine /bin/sh",
                "ERROR: No matching distribution found for tensorflow",
            ),
            "glibc's wheel": (
                "Error loading shared library ld-linux-x86-64.so.2: No such file or directory (needed by "
                "/usr/local/lib/python3.7/site-packages/numpy/core/_multiarray_umath.cpython-37m-x86_64-linux-gnu.so)",
            ),
        },
        {
            "Debian": ("ERROR: No matching distribution found for tensorflow",),
            "Alpine, another fault": ("docker run -it python:3.8-alpine", "ModuleNotFoundError: No module named 'a'"),
        },
    ),
    "wheel_not_built": _both(
        {
            "a pinned release": (
                "Collecting numba==0.49.1",
                "  Building wheel for numba (setup.py) ... error",
                "  error: Microsoft Visual C++ 14.0 or greater is required.",
            ),
            "no release named": ("  ERROR: Failed building wheel for grpcio",),
            "another one, on Windows": (
                "C:\\Python39\\python.exe -m pip install llvmlite-0.32.1.tar.gz",
                "ERROR: Could not build wheels for llvmlite, which is required to install",
            ),
        },
        {
            "it was built": ("  Building wheel for numba (setup.py) ... done",),
            "no name": ("error: subprocess-exited-with-error",),
        },
    ),
    "releases_do_not_fit": _both(
        {
            "not installed": (
                '  File "/usr/lib/python3/dist-packages/tensorflow/core/framework/graph_pb2.py", line 6, in <module>',
                "    from google.protobuf import descriptor as _descriptor",
                "ImportError: No module named protobuf",
            ),
            "Keras 3": ("AttributeError: module 'keras._tf_keras.keras.layers' has no attribute 'experimental'",),
            "of the program itself": ("ImportError: cannot import name 'np_utils' from 'keras.utils'",),
            "a package and an older TensorFlow": (
                '  File "/usr/lib/python3.6/site-packages/kerastuner/applications/augment.py", line 34, in <module>',
                "AttributeError: module 'tensorflow.keras.layers' has no attribute 'RandomRotation'",
            ),
            "a module of TensorFlow that is none": (
                '  File "/home/you/train.py", line 3, in <module>',
                "ModuleNotFoundError: No module named 'tensorflow.compat.v1.keras'",
            ),
            "a private module of TensorFlow": (
                "ModuleNotFoundError: No module named 'tensorflow.python.keras.applications'",
            ),
            "Python 3.5, which does not name the module": (
                "    from google.protobuf import symbol_database as _symbol_database",
                "ImportError: cannot import name symbol_database",
            ),
            "a library": (
                "ImportError: /lib/a.so: undefined symbol: _ZN6google8protobuf8internal26fixed_address_stringE",
            ),
        },
        {
            "nobody knows from where": ("ImportError: cannot import name symbol_database",),
            "another cause knows more": ("AttributeError: module 'numpy' has no attribute 'complex'",),
            "of nobody that is known": ("ImportError: /usr/lib/libfoo.so: undefined symbol: _ZN3foo3barEv",),
        },
    ),
    "no_wheel_for_this_python": _both(
        {
            "no release": ("ERROR: No matching distribution found for tensorflow==2.4.0",),
            "removed": ('The "tensorflow-gpu" package has been removed!',),
            "pip is too old": (
                "Could not find a version that satisfies the requirement tensorflow==1.15.0 (from versions: 1.14.0, "
                "2.0.0b1)",
            ),
            "Python is too new": (
                "ERROR: No matching distribution found for tensorflow==2.3.0 (from versions: 2.5.0, 2.6.0)",
            ),
            "a package that has none for Windows": (
                r"C:\Users\me> pip install tensorflow-text",
                "ERROR: No matching distribution found for tensorflow-text==2.15.0",
            ),
            "a lock of Poetry": ("  Unable to find installation candidates for tensorflow (2.0.2)",),
            "another package": ("ERROR: No matching distribution found for tensorflow-foo-bar",),
        },
        {"it was found": ("Collecting tensorflow==2.4.0",)},
    ),
    "tensorflow_not_in_interpreter": _both(
        {"none": ("ModuleNotFoundError: No module named 'tensorflow'",)},
        {"a part of it": ("ModuleNotFoundError: No module named 'tensorflow.contrib'",)},
    ),
    "cuda_libraries_not_found": _both(
        {
            "named": (_not_opened("libcusolver.so.10"),),
            "several": (_not_opened("libcudart.so.11.0"), _not_opened("libcudnn.so.8"), _SKIPPED),
            "not named": (_SKIPPED, "Skipping registering GPU devices..."),
            "from 2.12 on": ("Could not find cuda drivers on your machine, GPU will not be used.",),
            "linked": (
                "ImportError: libcublas.so.10.0: cannot open shared object file: No such file or directory",
                "Failed to load the native TensorFlow runtime.",
            ),
        },
        {
            "the runtime alone": (_not_opened("cudart64_110.dll"),),
            "TensorRT": (_not_opened("libnvinfer.so.7"),),
            "another library": (_not_opened("libfoo.so.1"),),
        },
    ),
    "libcuda_not_found": _both(
        {
            "older": (*_NO_DRIVER, "Successfully opened dynamic library libcudart.so.11.0"),
            "newer": (
                "E0000 00:00:1738697930.202924 7665 cuda_driver.cc:152] failed call to cuInit: UNKNOWN ERROR (303)",
                "RuntimeError: no GPU found",
            ),
            "WSL": ("/usr/lib/wsl/lib is there", _not_opened("libcuda.so.1")),
        },
        {
            "the runtime": (_not_opened("libcudart.so.11.0"),),
            "nothing asks for a GPU": (*_NO_DRIVER, "tensorflow/core/platform/cpu_feature_guard.cc:142] AVX2 FMA"),
        },
    ),
    "profiler_library_missing": _both(
        {"named": (_not_opened("libcupti.so.10.1"),), "Windows": (_not_opened("cupti64_2020.3.0.dll"),)},
        {"another": (_not_opened("libcudnn.so.8"),)},
    ),
    "said_to_have_no_gpu": _both(
        {
            "on Windows": ("GPU could not be recognized", "- OS Platform: Windows 11", "- TensorFlow version: 2.16"),
            "another CUDA": ("tensorflow 2.11 doesn't work with CUDA 12 on Ubuntu",),
        },
        {
            "nobody says so": ("- OS Platform: Windows 11", "- TensorFlow version: 2.16"),
            "a GPU was made": ("TensorFlow does not use my GPU", _CREATED),
            "it is what TensorFlow says everywhere": ("TF-TRT Warning: Could not find TensorRT, GPU not used",),
        },
    ),
    "crash_by_order_of_imports": _both(
        {
            "in a session": (">>> import torch", ">>> import tensorflow as tf", "Segmentation fault (core dumped)"),
            "in one line": (
                'python -c "import torch; import tensorflow"',
                "free(): invalid pointer",
            ),
            "in the title": ("Segfault when importing tensorflow (gpu) after albumentations.pytorch",),
        },
        {
            "something else came between": (
                ">>> import torch",
                ">>> import tensorflow as tf",
                ">>> tf.matmul(a, b)",
                "Segmentation fault (core dumped)",
            ),
            "one import": (">>> import tensorflow as tf", "Segmentation fault (core dumped)"),
        },
    ),
    "xla_on_metal": _both(
        {
            "by its id": ("macOS 13", "NOT_FOUND: could not find registered platform with id: 0x12"),
            "no compiler": ("Apple M1", "could not find registered compiler for platform METAL"),
        },
        {"another system": ("Ubuntu 22.04", "could not find registered platform with id: 0x12")},
    ),
    "architecture_not_in_nvcc": _both(
        {
            "newer": ("nvcc fatal   : Unsupported gpu architecture 'compute_86'",),
            "older": ("CUDA version: 12.2", "nvcc fatal   : Unsupported gpu architecture 'compute_35'"),
            "none has it": ("nvcc fatal   : Unsupported gpu architecture 'compute_21'",),
        },
        {"no architecture": ("nvcc fatal   : Unsupported gpu architecture 'native'",)},
    ),
    "wsl_gpu_refused": _both(
        {
            "busy": ("WSL 2, Ubuntu 22.04", "all CUDA-capable devices are busy or unavailable"),
            "unknown": ("WSL 2, Ubuntu 22.04", "failed call to cuInit: CUDA_ERROR_UNKNOWN: unknown error"),
        },
        {"not in WSL": ("Ubuntu 22.04", "all CUDA-capable devices are busy or unavailable")},
    ),
    "mig_instance_for_each_rank": _both(
        {
            "two ranks": (
                "GPU: A100, MIG is on",
                "mpirun -np 2 -H localhost:2 python test.py",
                "Internal: no supported devices found for platform CUDA",
            ),
        },
        {
            "one process": ("GPU: A100, MIG is on", "Internal: no supported devices found for platform CUDA"),
            "nothing fails": ("GPU: A100, MIG is on", "mpirun -np 2 -H localhost:2 python test.py"),
        },
    ),
    "empty_mask_on_windows": _both(
        {"in code": (r"C:\app\run.py", ">>> os.environ['CUDA_VISIBLE_DEVICES'] = ''")},
        {
            "on Linux": ("/home/user/run.py", ">>> os.environ['CUDA_VISIBLE_DEVICES'] = ''"),
            "not empty": (r"C:\app\run.py", ">>> os.environ['CUDA_VISIBLE_DEVICES'] = '-1'"),
        },
    ),
    "layer_without_cudnn_kernel": _both(
        {
            "dropout": (
                "x = layers.GRU(32, dropout=0.2, recurrent_dropout=0.2)(x)",
                "Layer gru_4 will not use cuDNN kernel since it doesn't meet the cuDNN kernel criteria.",
            ),
        },
        {
            "usual arguments": (
                "x = layers.GRU(32, recurrent_dropout=0.0, activation='tanh')(x)",
                "Layer gru_4 will not use cuDNN kernel since it doesn't meet the cuDNN kernel criteria.",
            ),
            "no program": ("Layer gru_4 will not use cuDNN kernel since it doesn't meet the cuDNN kernel criteria.",),
        },
    ),
    "slow_adapter_first": _both(
        {
            "Intel first": (
                "DirectML: creating device on adapter 0 (Intel(R) UHD Graphics 620)",
                "DirectML: creating device on adapter 1 (Radeon (TM) RX 550X)",
            ),
        },
        {
            "the other first": (
                "DirectML: creating device on adapter 0 (NVIDIA GeForce GTX 1650)",
                "DirectML: creating device on adapter 1 (Intel(R) UHD Graphics 620)",
            ),
            "alone": ("DirectML: creating device on adapter 0 (Intel(R) UHD Graphics 620)",),
        },
    ),
    "amd_gpu_without_code": _both(
        {
            "its name": ("GPU: RX580", "hipErrorNoBinaryForGpu: Unable to find code object for all current devices!"),
            "its code": ("  Name:                    gfx1031", "hipErrorNoBinaryForGpu"),
        },
        {
            "not named": ("hipErrorNoBinaryForGpu",),
            "no error": ("GPU: RX580",),
            "only those that are supported": (
                "with AMDGPU version : gfx1150. The supported AMDGPU versions are gfx900, gfx906.",
                "hipErrorNoBinaryForGpu",
            ),
        },
    ),
    "profiling_not_permitted": _both(
        {
            "TensorFlow": (
                "E tensorflow/core/profiler/internal/gpu/cupti_tracer.cc:1441] function cupti_interface_->Subscribe( "
                "&subscriber_, (CUpti_CallbackFunc)ApiCallback, this)failed with error "
                "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
            ),
            "Windows": (r"C:\app\run.py", "failed with error CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"),
        },
        {"another status": ("function cupti_interface_->Subscribe failed with error CUPTI_ERROR_NOT_INITIALIZED",)},
    ),
    "cudnn_finds_no_libcuda": _both(
        {
            "WSL": (
                "Could not load library libcudnn_cnn_infer.so.8. Error: libcuda.so: cannot open shared object file: No "
                "such file or directory",
            ),
        },
        {"the driver itself": ("libcuda.so.1: cannot open shared object file: No such file or directory",)},
    ),
    "cudnn_incomplete": (
        Example("a part of another build comes first", _cudnn(files=(_STRAY,))),
        Example("a part is gone", _cudnn(incomplete={_CUDNN_PACKAGE: _CUT.path})),
        Example("a part is cut short", _cudnn(damaged=(_CUT,))),
        Example("a library of another package is cut short", _cudnn(damaged=(_OTHER,)), fires=False),
        Example("whole", _cudnn(), fires=False),
        *_CUDNN_LOGS,
    ),
    "cuda_libraries_mixed": _both(
        {
            "nvJitLink": (
                "ImportError: /usr/lib/libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_1, version "
                "libnvJitLink.so.12",
            ),
            "cuBLAS": ("ImportError: libcublas.so.12: undefined symbol: cublasLtGetStatusString",),
        },
        {
            "a function that it does without": (
                "Could not load symbol cublasGetSmCountTarget from libcublas.so.11. Error: "
                "/usr/local/cuda/lib/libcublas.so.11: undefined symbol: cublasGetSmCountTarget",
            ),
        },
    ),
    "library_and_module_differ": _both(
        {
            "named": (
                "E cuda_diagnostics.cc:313] kernel version 460.91.3 does not match DSO version 470.57.2 -- cannot find "
                "working devices in this configuration",
            ),
            "in a container": (
                "docker run --gpus all image",
                "Failed to initialize NVML: Driver/library version mismatch",
                "NVML library version: 565.57",
            ),
        },
        {"they agree": ("I cuda_diagnostics.cc:310] kernel version seems to match DSO: 470.57.2",)},
    ),
    "compat_library_refused": _both(
        {
            "refused": (
                "failed call to cuInit: CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: forward compatibility was attempted "
                "on non supported HW",
            ),
        },
        {
            "an upgrade": (
                "failed call to cuInit: CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
                "kernel version 460.91.3 does not match DSO version 470.57.2 -- cannot find working devices",
            ),
        },
    ),
    "kernel_module_not_running": _both(
        {
            "silent": (
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the "
                "latest NVIDIA driver is installed and running.",
            ),
            "Secure Boot": ("modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",),
        },
        {"another module": ("modprobe: ERROR: could not insert 'zfs': Key was rejected by service",)},
    ),
    "program_shown_no_gpu": _both(
        {
            "no reason": ("failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected",),
            "a mask": (
                "CUDA_VISIBLE_DEVICES=3",
                "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected",
            ),
            "no device file": (
                "I cuda_diagnostics.cc:160] no NVIDIA GPU device is present: /dev/nvidia0 does not exist",
            ),
        },
        {"no library": (_not_opened("libcuda.so.1"), "no NVIDIA GPU device is present: /dev/nvidia0 does not exist")},
    ),
    "cuinit_says_unknown": _both(
        {"cuInit": ("E cuda_driver.cc:318] failed call to cuInit: CUDA_ERROR_UNKNOWN: unknown error",)},
        {"a later call": ("failed to enqueue async memcpy: CUDA_ERROR_UNKNOWN: unknown error",)},
    ),
    "driver_too_old": _both(
        {
            "the runtime": (
                "cudaGetDevice() failed. Status: CUDA driver version is insufficient for CUDA runtime version",
            ),
            "PTX": (
                "2025-02-01 13:44:34.5: W tf_gpu_runtime_wrappers.cc:40] 'cuModuleLoadData(&module, data)' failed with "
                "'CUDA_ERROR_UNSUPPORTED_PTX_VERSION'",
            ),
        },
        {"a newer GPU": ("failed with 'CUDA_ERROR_INVALID_PTX'",)},
    ),
    "threads_refused": _both(
        {
            "by seccomp": (
                "OpenBLAS blas_thread_init: pthread_create failed for thread 1 of 2: Operation not permitted",
            ),
            "by a limit": (
                "OpenBLAS blas_thread_init: pthread_create failed for thread 7 of 64: Resource temporarily unavailable",
            ),
        },
        {"by a program": ("RuntimeError: can't start new thread",)},
    ),
    "host_memory_not_pinned": _both(
        {
            "on Windows": (
                r"W .\tensorflow/core/common_runtime/device/device_host_allocator.h:46] could not allocate pinned host "
                "memory of size: 34359738368",
            ),
            "2.21": (
                "W0000 00:00:1.2 7 stream_executor_allocator.cc:67] could not allocate pinned host of size: 2304",
            ),
        },
        {"of the GPU": ("failed to allocate 2.00G (2147483648 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY",)},
    ),
    "cudnn_call_fails": _both(
        {
            "TensorFlow": ("Failed to get convolution algorithm. This is probably because cuDNN failed to initialize",),
            "of another release": ("DNN library is not found. [Op:Conv2D]", "tensorflow: 2.8.0"),
            "JAX": ("jaxlib.xla_extension.XlaRuntimeError: UNKNOWN: CUDNN_STATUS_EXECUTION_FAILED",),
        },
        {
            "an older cuDNN": (
                "Loaded runtime CuDNN library: 8.0.4 but source was compiled with: 8.1.0.",
                "UNIMPLEMENTED:  DNN library is not found.",
            ),
        },
    ),
    "card_newer_than_release": _both(
        {
            "Ampere with TensorFlow 1": (
                "GPU: RTX 3080",
                "tensorflow-gpu 1.15",
                "failed to run cuBLAS routine: CUBLAS_STATUS_EXECUTION_FAILED",
            ),
            "Blackwell": (
                "### TensorFlow version",
                "",
                "2.20.0",
                "### GPU model and memory",
                "",
                "NVIDIA GeForce RTX 5080 Laptop GPU, 16GB",
                "CUDA_ERROR_INVALID_PTX",
            ),
            "wrong numbers": ("loss is nan on the GPU", "- TensorFlow version: 2.3.0", "- GPU model: RTX 3090"),
            "conda's build, which hangs": (
                "GPU: RTX 3070",
                "tensorflow 2.4.1",
                "Successfully opened dynamic library libcudart.so.10.1",
            ),
        },
        {
            "a GPU that it knows": ("- TensorFlow version: 2.5.0", "- GPU model: RTX 3090", "CUDA_ERROR_INVALID_PTX"),
            "no fault": ("- TensorFlow version: 1.15", "- GPU model: RTX 3090"),
            "wrong numbers of another reason": ("loss: nan", "- TensorFlow version: 2.11.0", "- GPU model: RTX 3090"),
        },
    ),
    "listed_packages_do_not_fit": _both(
        {
            "numpy": (
                "Package    Version",
                "tensorflow    2.16.1",
                "numpy         2.1.0",
                "SystemError: initialization of _odd failed",
            ),
            "a companion": (
                "tensorflow==2.15.0",
                "tensorflow-text==2.13.0",
                '  File "/lib/python3.11/site-packages/tensorflow_text/__init__.py", line 20, in <module>',
                "OddError: no",
            ),
        },
        {
            "what fits": ("tensorflow==2.15.0", "numpy==1.26.4", "OddError: no"),
            "no fault": ("tensorflow==2.16.1", "numpy==2.1.0"),
            "another fault": ("tensorflow==2.16.1", "numpy==2.1.0", "libdevice not found at ./libdevice.10.bc"),
        },
    ),
    "blas_call_fails": _both(
        {
            "any release": ("(0) Internal: Blas xGEMM launch failed : a.shape=[1,20000,3], b.shape=[1,3,20000]",),
            "of CUDA 10": (_not_opened("libcupti.so.10.1"), "InternalError: Blas GEMM launch failed : a.shape=(8, 3)"),
        },
        {"of shapes": ("InvalidArgumentError: Matrix size-incompatible: In[0]: [8,3], In[1]: [4,2]",)},
    ),
    "plugin_devices_counted": _both(
        {
            "another maker's": (
                "InvalidArgumentError: 'visible_device_list' listed an invalid Device id '2' but visible device count "
                "is 2",
                "[PhysicalDevice(name='/physical_device:VE:0', device_type='VE'), "
                "PhysicalDevice(name='/physical_device:GPU:0', device_type='GPU')]",
            ),
        },
        {
            "GPUs alone": (
                "InvalidArgumentError: 'visible_device_list' listed an invalid Device id '2' but visible device count "
                "is 2",
                "[PhysicalDevice(name='/physical_device:GPU:0', device_type='GPU')]",
            ),
        },
    ),
    "program_error": _both(
        {
            "a graph's arguments": (
                "tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:",
                "",
                "Detected at node 'model/reshape/Reshape' defined at (most recent call last):",
                '    File "train.py", line 12, in <module>',
                "      model.fit(data)",
                "Node: 'model/reshape/Reshape'",
                "only one input size may be -1, not both 0 and 1",
            ),
            "an operation's, as TensorFlow logs it": (
                "2024-03-01 10:00:00.1: W tensorflow/core/framework/op_kernel.cc:1839] OP_REQUIRES failed at "
                "xla_ops.cc:602 : INVALID_ARGUMENT: Expected size[2] in [0, 3], but got 4",
            ),
            "Python's, after the GPU was made": (
                _MADE,
                "Traceback (most recent call last):",
                '  File "/home/u/train.py", line 55, in <module>',
                '    frame = pd.DataFrame({"y": y})',
                "ValueError: Data must be 1-dimensional",
            ),
        },
        {
            "a data set has ended": (
                "W tensorflow/core/framework/local_rendezvous.cc:404] Local rendezvous is aborting with status: "
                "OUT_OF_RANGE: End of sequence",
            ),
            "an error inside of CUDA": (
                "tensorflow.python.framework.errors_impl.InternalError: CUDA runtime failed [Op:MatMul]",
            ),
            "releases that do not fit": (
                "Traceback (most recent call last):",
                '  File "/usr/lib/python3/site-packages/keras/src/x.py", line 5, in f',
                "AttributeError: 'Dense' object has no attribute 'frobnicate'",
            ),
        },
    ),
    "program_without_gpu": _both(
        {
            "of TensorFlow 1": (
                "2018-11-17 17:25:27.7: I tensorflow/core/platform/cpu_feature_guard.cc:141] Your CPU supports",
                _PLACED.format(""),
            ),
            "of any release": (_PLACED.format(""),),
            "Windows": ("TensorFlow GPU support is not available on native Windows for TensorFlow >= 2.11. Even if",),
            "an empty list": ("Num GPUs Available:  0",),
        },
        {
            "another number": (_PLACED.format(", /job:localhost/replica:0/task:0/device:GPU:0"),),
            "the cause is named": (_SKIPPED, "Num GPUs Available:  0"),
        },
    ),
}
