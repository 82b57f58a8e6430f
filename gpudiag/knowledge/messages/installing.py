"""Messages of pip, conda, apt and the driver's installer when TensorFlow, CUDA or the driver cannot be installed."""

from __future__ import annotations

from gpudiag.fix import (
    Kind,
    Role,
    Where,
    ask,
    check,
    conda_environment,
    install,
    new_environment,
    note,
    run,
    run_container,
)
from gpudiag.knowledge.fault import Confidence, Stage
from gpudiag.knowledge.message import MessageFamily

FAMILY = MessageFamily(
    "installing",
    stage=Stage.PACKAGE,
    seen="pip, conda, apt, NVIDIA's installers",
    url="https://www.tensorflow.org/install/pip",
)

_FRESH = new_environment(
    "tensorflow[and-cuda]", note="makes an environment with nothing else in it", python="python3.12", folder="tf"
)
_CONDA = conda_environment("tensorflow[and-cuda]", note="installs pip's TensorFlow in a conda environment")

FAMILY.fault(
    "shell_expands_extra",
    "no matches found: {:s}tensorflow[{extra:w}",
    "no matches found: {what:s}[and-cuda]",
    meaning="the shell (zsh) takes the brackets of tensorflow[and-cuda] for a pattern of file names",
    fix=(
        install(
            "tensorflow[and-cuda]",
            note="needs the quotes; NVIDIA's libraries are for Linux: on a Mac run pip install tensorflow",
        ),
    ),
)
FAMILY.fault(
    "extra_for_linux_alone",
    "Could not find a version that satisfies the requirement nvidia-{what:s}",
    "No matching distribution found for nvidia-{what:s}",
    "Could not find a version that satisfies the requirement nvidia_{what:s}",
    meaning="NVIDIA's CUDA packages do not exist for this system: tensorflow[and-cuda] is for Linux "
    "(x86_64, and aarch64 in newer releases)",
    fix=(
        note(
            "Windows: wsl --install, then in WSL 2: pip install 'tensorflow[and-cuda]'; TensorFlow 2.10 was "
            "the last "
            "with a GPU on Windows itself",
            kind=Kind.INSTALL,
        ),
        install("tensorflow", "tensorflow-metal", note="on a Mac, which has no NVIDIA GPU"),
        install("--upgrade", "pip", note="on Linux: an old pip does not find them", python="python"),
    ),
)
FAMILY.fault(
    "extra_wants_tensorrt",
    "Could not find a version that satisfies the requirement tensorrt{what:s}",
    "No matching distribution found for tensorrt{what:s}",
    "Failed building wheel for tensorrt",
    "Failed to build tensorrt",
    meaning="tensorflow[and-cuda] 2.14.0 and 2.15.0 require TensorRT by a name under which pip cannot install it",
    fix=(
        install("tensorflow[and-cuda]==2.15.1", note="or a newer release: it does not require TensorRT"),
        install("tensorflow[and-cuda]==2.14.1", role=Role.ALTERNATIVE),
        install(
            "--extra-index-url",
            "https://pypi.nvidia.com",
            "tensorflow[and-cuda]==2.15.0",
            note="adds the index that has those packages",
        ),
    ),
)
FAMILY.fault(
    "conda_sees_no_driver",
    "nothing provides __cuda {range}needed by {by:s}",
    "nothing provides requested __cuda",
    "__cuda {range}, which is missing on the system",
    "__cuda, which is missing on the system",
    meaning="conda found no NVIDIA driver here (the package __cuda stands for it), so it refuses "
    "builds with CUDA: this is a login node, a container or an image build",
    fix=(
        run(
            "CONDA_OVERRIDE_CUDA=12.4 conda install -c conda-forge 'tensorflow=*=cuda*'",
            "set the CUDA that nvidia-smi shows where the program will run; for older builds 11.8",
            kind=Kind.INSTALL,
        ),
        check("conda info | grep __cuda", "must show a CUDA if the program will run here"),
        _CONDA,
    ),
    seen="conda, mamba",
)
CONDA_NOT_SOLVED = FAMILY.fault(
    "conda_not_solved",
    "UnsatisfiableError",
    "The following specifications were found to be incompatible with",
    "SolverProblemError",
    "PackagesNotFoundError: The following packages are",
    "ResolvePackageNotFound",
    "nothing provides {needed} needed by {by}",
    "Could not solve for environment specs",
    "but there are no viable options",
    "which conflicts with any installable versions previously reported",
    "which cannot be installed (as previously explained)",
    "is not installable because",
    "package {package:s} requires {needed}, but none of the providers can be installed",
    "LibMambaUnsatisfiableError",
    "feature:/linux-64::__glibc",
    "feature:|@/linux-64::__cuda",
    meaning="conda found no packages of TensorFlow, CUDA and Python that fit together: it does not "
    "have that release, or Python is too new for it",
    fix=(
        _CONDA,
        run(
            "conda create -n tf -c conda-forge 'tensorflow=*=cuda*'",
            "or use conda-forge's own build",
            kind=Kind.NEW_ENVIRONMENT,
            role=Role.ALTERNATIVE,
        ),
        ask(
            "conda search -c conda-forge tensorflow-gpu",
            "the releases that there are: another one, without its build "
            "string "
            "(tensorflow=2.10, not tensorflow=2.10=gpu_py39...), with a Python of its time",
        ),
    ),
)
REQUIREMENTS_CONFLICT = FAMILY.fault(
    "requirements_conflict",
    "ERROR: Cannot install {what} because these package versions have conflicting dependencies",
    "because these package versions have conflicting dependencies",
    "ResolutionImpossible",
    "No solution found when resolving dependencies",
    "Because no versions of {what} match",
    "version solving failed",
    "The conflict is caused by:",
    meaning="packages to be installed together require different releases of another package",
    fix=(
        _FRESH.replaced(note="use makes an environment with nothing else in it, and add the other packages one by one"),
        install("PACKAGE1", "PACKAGE2", note="name no versions, so that pip can choose ones that fit"),
    ),
)
FAMILY.fault(
    "requirement_broken",
    pattern=r"(?<![\w.-])(?P<package>[\w.-]{1,100}) (?P<release>\d[\w.+-]{0,60}) "
    r"(?:requires|depends on|has requirement) "
    r"(?P<needs>[\w.-]{1,100}(?:\[[\w,-]{1,40}\])?)(?P<range>[^\s;]{0,100})[^:]{0,100}?, "
    r"but you(?:'ll)? have (?P<has>[^\s]{1,100}) (?P<found>\d[\w.+-]{0,60}) which is incompatible",
    words=("incompatible",),
    meaning="{package} {release} needs {needs}{range}, and {has} {found} is installed",
    in_general="a package needs another version of a package than the one that is installed",
    symptom=True,
    seen="pip",
)
FAMILY.fault(
    "requirement_missing",
    "{package:s} {release:v} requires {needs:s}, which is not installed",
    meaning="{package} {release} needs {needs}, which is not installed",
    in_general="a package needs another one that is not installed",
    fix=(install("{needs}"), ask("pip check", "must report no broken requirements")),
    symptom=True,
    seen="pip",
)
FAMILY.fault(
    "another_python_required",
    "Ignored the following versions that require a different python version",
    "Requires-Python {range:s}",
    "requires a different Python: {has:v} not in '{range:q}'",
    "requires Python '{range:q}' but the running Python is {has:v}",
    meaning="the package needs another Python than the one that pip runs in",
    fix=(
        ask(
            "python --version",
            "shows your Python; TensorFlow 2.21 needs 3.10-3.13; 2.16-2.19: 3.9-3.12; 2.10: 3.7-3.10;"
            " 2.4: 3.6-3.8; 1.15: up to 3.7",
        ),
        conda_environment("tensorflow", note="use a Python that it has wheels for"),
    ),
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "paths_too_long",
    "does not have Windows Long Path support enabled",
    "The filename or extension is too long",
    "[WinError 206]",
    meaning="Windows refuses the long paths of TensorFlow's files: long paths are disabled",
    fix=(
        run(
            "reg add HKLM\\SYSTEM\\CurrentControlSet\\Control\\FileSystem /v LongPathsEnabled /t REG_DWORD /d 1 /f",
            "run it as administrator; then open a new window and install again",
        ),
        note(
            "or use a Python in a short folder (C:\\Python312) instead of the Microsoft Store's",
            kind=Kind.INSTALL,
        ),
    ),
    seen="Windows",
)
FAMILY.fault(
    "disk_full",
    "No space left on device",
    "Disk quota exceeded",
    "There is not enough space on the disk",
    "no space left on device: unknown",
    is_reason=True,
    meaning="the disk is full, or your quota is used up",
    fix=(
        check("df -h . ~ /tmp; quota -s", "shows which disk or quota is full; in a container: docker system df"),
        run("pip cache purge", "frees space"),
        run("conda clean --all", "frees space, too"),
        run("export TMPDIR=/path/with/room", "TensorFlow with CUDA needs about 6 GB", kind=Kind.SET_VARIABLE),
        install("--no-cache-dir", "...", note="keeps no second copy of each package"),
    ),
    symptom=True,
    seen="Linux, Windows",
)
FAMILY.fault(
    "managed_environment",
    "externally-managed-environment",
    "This environment is externally managed",
    meaning="this Python is managed by the system, so pip may not change it",
    fix=(_FRESH, run("sudo apt install python3-venv", "if the module venv is missing", kind=Kind.INSTALL_AS_ROOT)),
    seen="Debian 12, Ubuntu 23.04 and newer, Homebrew",
)
FAMILY.fault(
    "distutils_package",
    "Cannot uninstall {what:s} It is a distutils installed project",
    "It is a distutils installed project and thus we cannot accurately determine",
    "Cannot uninstall {what:s}, RECORD file not found",
    "uninstall-no-record-file",
    meaning="pip cannot replace a package that the system or conda installed",
    fix=(
        install("--ignore-installed", "tensorflow", note="installs pip's copy beside it; add that package's name"),
        _FRESH,
    ),
    seen="pip",
)
FAMILY.fault(
    "download_damaged",
    "THESE PACKAGES DO NOT MATCH THE HASHES",
    "DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE",
    "IncompleteRead({} bytes read, {} more expected)",
    "Bad CRC-32 for file",
    "Connection broken: {}",
    "CondaHTTPError: HTTP 000 CONNECTION FAILED",
    "ChecksumMismatchError",
    "zipfile.BadZipFile: {}",
    "ReadTimeoutError: HTTPSConnectionPool",
    'ReadTimeoutError("HTTPSConnectionPool',
    meaning="the download was interrupted: the file is large, and the connection broke or timed out",
    fix=(
        install(
            "--no-cache-dir",
            "--default-timeout=1000",
            "tensorflow",
            note="downloads again, without the cached part",
        ),
        run(
            "pip download tensorflow",
            "download on another machine, and copy the files; or use a mirror near you: --index-url",
            kind=Kind.INSTALL,
        ),
    ),
    seen="pip, conda",
)
FAMILY.fault(
    "no_connection",
    "Failed to establish a new connection: {reason}",
    "CERTIFICATE_VERIFY_FAILED",
    "certificate verify failed",
    "Cannot connect to proxy",
    "ProxyError('",
    "Temporary failure in name resolution",
    "Could not fetch URL {url:s}",
    "Name or service not known",
    meaning="a server cannot be reached: no network here, a proxy that is not set, or one that replaces certificates",
    fix=(
        check("curl -I https://pypi.org", "its error names the fault; on a cluster, install on the login node"),
        run(
            "export HTTPS_PROXY=http://PROXY:PORT; pip config set global.cert /path/of/its/certificate.pem",
            kind=Kind.SET_VARIABLE,
        ),
    ),
    symptom=True,
    seen="pip, Python",
)
FAMILY.fault(
    "file_in_use",
    "Consider using the `--user` option or check the permissions",
    "EnvironmentNotWritableError",
    "[WinError 5] Access is denied{}",
    "[WinError 32] The process cannot access the file because it is being used",
    "[Errno 13] Permission denied: '{file:q}site-packages{:q}'",
    "[Errno 13] Permission denied: '{file:q}dist-packages{:q}'",
    "EnvironmentError: [Errno 13] Permission denied: '{file:q}'",
    meaning="pip may not write to that folder: it belongs to another user, or a running program holds the file",
    fix=(
        _FRESH,
        note("Windows: close all programs of Python, notebooks too, and install again", kind=Kind.END_PROCESS),
        install("--user", "tensorflow", role=Role.ALTERNATIVE),
    ),
    seen="pip, conda",
)
NO_WHEEL_TO_BUILD = FAMILY.fault(
    "no_wheel_to_build",
    "error: subprocess-exited-with-error",
    "error: legacy-install-failure",
    "pip subprocess to install build dependencies did not run successfully",
    "Encountered error while trying to install package",
    "Failed building wheel for {what:s}",
    "Could not build wheels for {what:s}",
    "Failed to build {what:w}",
    "Unable to load dependency HDF5",
    "metadata-generation-failed",
    "Command python setup.py egg_info failed with error code",
    "python setup.py egg_info did not run successfully",
    "Microsoft Visual C++ 14.0 or greater is required",
    "Microsoft Visual C++ 14.0 is required",
    "fatal error: Python.h: No such file or directory",
    "Building wheel for {what:s} (pyproject.toml) did not run successfully",
    "error: pkg-config probably not installed",
    "Getting requirements to build wheel did not run successfully",
    'Command "python setup.py egg_info" failed with error code',
    "unable to execute '{:q}gcc': No such file or directory",
    meaning="pip found no wheel of a package for this Python and system, and cannot compile it: most "
    "often Python is too new or too old for that release",
    fix=(
        install(
            "--upgrade", "pip", "setuptools", "wheel", note="an old pip does not find newer wheels", python="python"
        ),
        conda_environment("tensorflow", note="uses a Python that wheels are made for", python="3.11"),
        run(
            "sudo apt install build-essential python3-dev libhdf5-dev pkg-config",
            "if you must compile (Jetson, Raspberry Pi); conda install h5py grpcio numpy brings them compiled",
            kind=Kind.INSTALL_AS_ROOT,
        ),
    ),
    confidence=Confidence.POSSIBLE,
    seen="pip",
)
FAMILY.fault(
    "pip_knows_no_wheels",
    "No such file or directory: '{:q}pip-{:q}-build/setup.py'",
    "unsupported wheel",
    "Could not find any downloads that satisfy the requirement {:s}",
    "No distributions at all found for {:s}",
    "Wheel installs require setuptools",
    meaning="this pip is too old for the wheel: it does not find it, or treats it as source code",
    fix=(install("--upgrade", "pip", "setuptools", "wheel", note="then install again", python="python"),),
    seen="pip",
)
FAMILY.fault(
    "no_pip",
    "No module named 'pip'",
    "No module named pip",
    "No module named 'ensurepip'",
    "ensurepip is not available",
    meaning="this Python has no pip",
    fix=(
        run("sudo apt install python3-pip python3-venv", kind=Kind.INSTALL_AS_ROOT),
        run("python -m ensurepip --upgrade", kind=Kind.INSTALL),
    ),
    seen="Python",
)
FAMILY.fault(
    "apt_held",
    "Unable to correct problems, you have held broken packages",
    "The following packages have unmet dependencies",
    "pkgProblemResolver::Resolve generated breaks",
    "trying to overwrite '{file:q}', which is also in package {package}",
    "dpkg: error processing archive {}",
    "dpkg: error processing package {}",
    meaning="packages of the driver or of CUDA conflict: they come from both NVIDIA's and the "
    "system's repository, or an older driver is left",
    fix=(
        run(
            "sudo apt purge '*nvidia*' '*cuda*' 'libcudnn*'; sudo apt autoremove; sudo apt update",
            "remove all of them, then:",
            kind=Kind.CHANGE_DRIVER,
        ),
        run(
            "sudo ubuntu-drivers install; sudo reboot",
            "installs only the driver: pip install 'tensorflow[and-cuda]' brings CUDA",
            kind=Kind.CHANGE_DRIVER,
        ),
    ),
    confidence=Confidence.POSSIBLE,
    stage=Stage.DRIVER,
    seen="apt",
)
FAMILY.fault(
    "apt_key",
    "NO_PUBKEY A4B469963BF863CC",
    "cuda/repos/{:s} InRelease{}public key is not available",
    "GPG error: https://developer.download.nvidia.com{}",
    "NO_PUBKEY F60F4B3D7FA2AF80",
    "cuda/repos/{:s} Release' is not signed",
    "GPG error: http://developer.download.nvidia.com{}",
    meaning="NVIDIA's repository has had another key since April 2022",
    fix=(
        run(
            "sudo apt-key del 7fa2af80; wget "
            "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2204/x86_64/"
            "cuda-keyring_1.1-1_all.deb",
            "take the one for your system",
        ),
        run("sudo dpkg -i cuda-keyring_1.1-1_all.deb; sudo apt update", kind=Kind.INSTALL_AS_ROOT),
        run(
            "RUN rm -f /etc/apt/sources.list.d/cuda.list /etc/apt/sources.list.d/nvidia-ml.list",
            "in a Dockerfile, put it before apt-get update; or use a newer image",
            kind=Kind.REMOVE,
            where=Where.IMAGE,
        ),
    ),
    stage=Stage.DRIVER,
    seen="apt, images from before May 2022",
    url="https://developer.nvidia.com/blog/updating-the-cuda-linux-gpg-repository-key/",
)
FAMILY.fault(
    "apt_no_package",
    "Package {package:s} has no installation candidate",
    "E: Unable to locate package {package:s}",
    "E: Version '{:q}' for '{package:q}' was not found",
    "E: Couldn't find any package by regex '{package:q}'",
    meaning="package {package} was not found by apt: its repository is not configured, or has another release",
    in_general="apt did not find the package: its repository is not configured, or has another release",
    fix=(
        run(
            "sudo apt update; apt-cache policy {package}",
            "if it lists nothing, add NVIDIA's repository: https://developer.nvidia.com/cuda-downloads",
        ),
        install("tensorflow[and-cuda]", note="brings CUDA and cuDNN without apt: only the driver is needed"),
    ),
    confidence=Confidence.POSSIBLE,
    stage=Stage.LIBRARIES,
    seen="apt",
)
FAMILY.fault(
    "compiler_too_new",
    "unsupported GNU version! gcc versions later than {newest:d} are not supported",
    meaning="nvcc refuses the compiler: it is newer than this CUDA supports",
    fix=(
        run(
            "sudo apt install gcc-{newest} g++-{newest}; export NVCC_PREPEND_FLAGS='-ccbin /usr/bin/g++-{newest}'",
            kind=Kind.INSTALL_AS_ROOT,
        ),
        note("or install a newer CUDA toolkit, which supports it", kind=Kind.INSTALL),
    ),
    stage=Stage.BUILD,
    seen="nvcc",
)
FAMILY.fault(
    "image_of_another_processor",
    "platform ({image:s}) does not match the detected host platform ({host:s})",
    "exec format error",
    "Exec format error: {}",
    "qemu-x86_64: {}",
    "rosetta error: {}",
    meaning="the image is built for another processor than this machine's: it is emulated, without "
    "AVX and without a GPU, or does not start",
    fix=(
        run_container(
            "--platform linux/arm64",
            note="runs an image for this processor; TensorFlow 2.13 and newer has aarch64 wheels: pip "
            "install tensorflow in a python image",
        ),
        check(
            "uname -m; docker image inspect --format '{{{{.Architecture}}}}' IMAGE",
            "shows the processor of the machine and of the image",
        ),
    ),
    confidence=Confidence.POSSIBLE,
    seen="Docker",
)
FAMILY.fault(
    "module_not_known",
    'The following module(s) are unknown: "{module:q}"',
    'These module(s) or extension(s) exist but cannot be loaded as requested: "{module:q}"',
    "Unable to locate a modulefile for '{module:q}'",
    meaning="this cluster has no module {module}, or it requires other modules first",
    in_general="this cluster has no such module, or it requires other modules first",
    fix=(
        check(
            "module spider cuda; module spider {module}", "shows the available modules, and which must be loaded before"
        ),
        install("tensorflow[and-cuda]", note="run it in a virtual environment: it needs no CUDA module"),
    ),
    stage=Stage.LIBRARIES,
    seen="Lmod, Environment Modules",
)
FAMILY.fault(
    "toolkit_installer",
    "Existing package manager installation of the driver found",
    "[ERROR]: Install of driver component failed",
    "Installation failed. See log at /var/log/cuda-installer.log",
    "Failed to verify gcc version. See log at /var/log/cuda-installer.log",
    meaning="the CUDA toolkit's installer stops at the driver or the compiler, which it need not install",
    fix=(
        run(
            "sudo sh cuda_*.run --silent --toolkit --override",
            "installs only the toolkit; for the driver: sudo ubuntu-drivers install",
            kind=Kind.CHANGE_DRIVER,
        ),
        install(
            "tensorflow[and-cuda]", note="or use no toolkit at all: pip brings the libraries", role=Role.ALTERNATIVE
        ),
    ),
    stage=Stage.DRIVER,
    seen="CUDA's installer (.run)",
)
