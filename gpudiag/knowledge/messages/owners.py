"""Libraries that the loader does not find; the name alone shows which package provides each."""

from __future__ import annotations

from gpudiag.fix import Action, Kind, Role, check, install, prepend, run
from gpudiag.knowledge.fault import Stage
from gpudiag.knowledge.message import MessageFamily

FAMILY = MessageFamily("libraries of others, which the loader does not find", stage=Stage.PACKAGE, seen="Linux")

_OWNERS: tuple[tuple[str, str, str, tuple[Action, ...]], ...] = (
    (
        "rocm",
        r"lib(?:hip|amdhip64|rocblas|rocsolver|rocsparse|rocfft|rocrand|roctracer|rocm|MIOpen|miopen|rccl|hsa-runtime)",
        "AMD's ROCm: it is not installed, or of another release than this tensorflow-rocm is made for",
        (
            check(
                "pip list | grep -i rocm; cat /opt/rocm/.info/version",
                "compare the releases: each tensorflow-rocm 2.X is made for one ROCm; install that ROCm, "
                "or the tensorflow-rocm for yours",
            ),
            prepend("LD_LIBRARY_PATH", "/opt/rocm/lib:/opt/rocm/lib64", "if the library is in one of these folders"),
            check(
                "ls -d /opt/rocm*; ls /opt/rocm/lib | grep -i hip",
                "shows which library ROCm has: 3.5 and newer has libamdhip64.so instead of libhip_hcc.so",
            ),
        ),
    ),
    (
        "opencv_system",
        r"lib(?:GL|GLU|EGL|gthread-2\.0|glib-2\.0|SM|ICE|Xext|Xrender|X11|xcb)",
        "the system's graphics, which OpenCV and viewers ask for, and images without a screen lack",
        (
            run("sudo apt install -y libgl1 libglib2.0-0 libsm6 libxext6 libxrender1", kind=Kind.INSTALL_AS_ROOT),
            run(
                "pip uninstall -y opencv-python; pip install opencv-python-headless",
                "needs none of these libraries",
                kind=Kind.REMOVE,
                role=Role.ALTERNATIVE,
            ),
        ),
    ),
    (
        "intel_gpus",
        r"lib(?:ze_loader|ze_intel_gpu|sycl|pi_level_zero|mkl_sycl)",
        "Intel's GPUs (Level Zero, oneAPI), which intel-extension-for-tensorflow and -pytorch ask for",
        (
            run("source /opt/intel/oneapi/setvars.sh", "if oneAPI is installed there", kind=Kind.SET_VARIABLE),
            run(
                "sudo apt install intel-opencl-icd intel-level-zero-gpu level-zero",
                "from Intel's package repository for GPUs",
                kind=Kind.INSTALL_AS_ROOT,
            ),
            run(
                "pip uninstall -y intel-extension-for-tensorflow",
                "if no GPU of Intel is to be used",
                kind=Kind.REMOVE,
                role=Role.ALTERNATIVE,
            ),
        ),
    ),
    (
        "directml",
        r"lib(?:d3d12|d3d12core|dxcore|directml)",
        "Windows (Direct3D 12), which DirectML asks for and only WSL 2 has",
        (
            check("ls /usr/lib/wsl/lib", "if it has the library, put this folder on LD_LIBRARY_PATH"),
            run(
                "wsl.exe --update",
                "in WSL, if it has not; the GPU's driver for Windows brings the library",
                kind=Kind.CONFIGURE,
            ),
            run(
                "pip uninstall -y tensorflow-directml-plugin tensorflow-directml torch-directml",
                "on any other Linux, where DirectML cannot run",
                kind=Kind.REMOVE,
                role=Role.ALTERNATIVE,
            ),
        ),
    ),
    (
        "mpi",
        r"lib(?:mpi|mpi_cxx|open-rte|open-pal|pmix)",
        "MPI: it is not loaded, or of another release than the program was built with",
        (
            run(
                "module load openmpi",
                "or run: apt install libopenmpi-dev; conda install -c conda-forge openmpi",
                kind=Kind.SET_VARIABLE,
            ),
            install("--force-reinstall", "--no-cache-dir", "horovod", "mpi4py", note="rebuilds them with that MPI"),
        ),
    ),
    (
        "nccl",
        r"libnccl",
        "NVIDIA's NCCL",
        (
            install(
                "nvidia-nccl-cu12",
                note="installs NCCL for CUDA 12; for CUDA 11 it is nvidia-nccl-cu11, with apt libnccl2",
            ),
            check(
                "export LD_LIBRARY_PATH=$(python -c 'import nvidia.nccl as n; "
                "print(n.__path__[0])')/lib:$LD_LIBRARY_PATH"
            ),
        ),
    ),
    (
        "of_cuda_packages",
        r"lib(?:nvToolsExt|nvrtc|nvrtc-builtins|nvJitLink|npp\w{0,6}|nvjpeg|cufile|cutensor|cusparseLt|cudss|nvshmem_host|"
        r"cudadevrt|OpenCL|nvvm)",
        "the CUDA toolkit, or a package of NVIDIA's",
        (
            check(
                "ldconfig -p | grep -i {library}; ls -d /usr/local/cuda*",
                "if the library is in a toolkit, put the toolkit's lib64 on LD_LIBRARY_PATH",
            ),
            check(
                "pip list | grep -i nvidia",
                "if it is not, install the package of that name for the CUDA in its number: nvidia-...-cu12",
            ),
            run("conda install -c nvidia cuda-toolkit", "brings all of them", kind=Kind.INSTALL),
        ),
    ),
    (
        "linear_algebra",
        r"lib(?:openblas|blas|lapack|cblas|f77blas|atlas|mkl_(?!sycl)\w{1,20}|gfortran|quadmath|iomp5|gomp|tbb)",
        "linear algebra (BLAS), Fortran or OpenMP, which NumPy, SciPy and TensorFlow of conda ask for",
        (
            run(
                "conda install -c conda-forge numpy scipy mkl libgfortran",
                "if you use a conda environment",
                kind=Kind.INSTALL,
            ),
            run(
                "sudo apt install libopenblas0 libatlas3-base libgfortran5 libgomp1",
                "use it without conda, and on a Raspberry Pi",
                kind=Kind.INSTALL_AS_ROOT,
            ),
        ),
    ),
    (
        "python_library",
        r"libpython[23]\.\d{1,2}\w?",
        "Python itself, built as a library: this Python was not, or lies where the loader does not look",
        (
            check(
                "export LD_LIBRARY_PATH=$(python -c 'import sysconfig; "
                'print(sysconfig.get_config_var("LIBDIR"))\')'
                ":$LD_LIBRARY_PATH"
            ),
            run(
                "sudo apt install libpython3-dev",
                "or, with pyenv: PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install",
                kind=Kind.INSTALL_AS_ROOT,
            ),
        ),
    ),
)

LIBRARIES = {
    _name: FAMILY.fault(
        f"library_of_{_name}",
        pattern=r"(?:Could not (?:load dynamic library|dlopen library|load library) '?)?"
        rf"(?<![\w./-])(?P<library>{_stems}(?:[_-]\w{{1,30}}){{0,3}}\.so[.\d]{{0,20}})"
        r"(?:'; dlerror: .{0,300}|: cannot open shared object file.{0,60}|"
        r"'? (?:does not exist|is missing|not found)\b)",
        words=("so",),
        meaning=f"the loader does not find {{library}}, which is of {_owner}",
        in_general=f"the loader does not find a library of {_owner}",
        fix=_fix,
    )
    for _name, _stems, _owner, _fix in _OWNERS
}
"""The messages by the owners of the libraries."""
OF_OTHER_GPUS = (LIBRARIES["rocm"], LIBRARIES["intel_gpus"], LIBRARIES["directml"])
"""A plug-in for other GPUs, or one that does not use CUDA, lacks a library: a missing CUDA means nothing then."""
