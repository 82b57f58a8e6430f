"""Messages of Python about packages that do not fit TensorFlow, or the machine."""

from __future__ import annotations

from gpudiag.fix import Kind, Role, install, note, run
from gpudiag.knowledge.fault import Stage
from gpudiag.knowledge.message import MessageFamily

FAMILY = MessageFamily("packages and Python", stage=Stage.PACKAGE, seen="Python")

NUMPY_2 = FAMILY.fault(
    "numpy_2",
    "A module that was compiled using NumPy 1.x cannot be run in",
    "AttributeError: _ARRAY_API not found",
    meaning="numpy 2 is installed, and a module was compiled for numpy 1",
)
NUMPY_OLDER = FAMILY.fault(
    "numpy_older",
    "module compiled against API version {wanted:w} but this version of numpy is {found:w}",
    "module compiled against ABI version {wanted:w} but this version of numpy is {found:w}",
    ("module was compiled against NumPy C-API version {wanted:w} {} but the running NumPy has C-API version {found:w}"),
    "numpy.core.multiarray failed to import",
    "numpy.core.umath failed to import",
    "numpy.ndarray size changed, may indicate binary incompatibility",
    "numpy.dtype size changed, may indicate binary incompatibility",
    meaning="a module was compiled for another numpy than the one that is installed",
)
NUMPY_NAME_GONE = FAMILY.fault(
    "numpy_name_gone",
    "module 'numpy' has no attribute '{name:w}'",
)
PROTOBUF = FAMILY.fault(
    "protobuf_of_another_release",
    "Descriptors cannot not be created directly",
    "Descriptors cannot be created directly",
    "If you cannot immediately regenerate your protos",
    "'MessageFactory' object has no attribute 'GetPrototype'",
    (
        "This program requires version {needed:v} of the Protocol Buffer runtime library, but the installed "
        "version is {found:v}"
    ),
    "'FieldDescriptor' object has no attribute 'label'",
    "cannot import name 'builder' from 'google.protobuf.internal'",
    "cannot import name 'runtime_version' from 'google.protobuf'",
    "Detected incompatible Protobuf Gencode/Runtime versions when loading {file:s}: gencode {gencode:v} "
    "runtime {runtime:v}",
    "Detected mismatched Protobuf Gencode/Runtime {} versions when loading {file:s}: gencode {gencode:v} "
    "runtime {runtime:v}",
    "This program was compiled against version {needed:v} of the Protocol Buffer runtime library",
)
PROTOBUF_ARGUMENT = FAMILY.fault(
    "protobuf_argument",
    "got an unexpected keyword argument 'serialized_options'",
    "got an unexpected keyword argument 'file'",
)
SYSTEM_LIBRARY_OLD = FAMILY.fault(
    "system_library_old",
    pattern=r"(?:(?<![^\s:])(?P<file>/[^\s:]{1,300}): )?version [`'](?P<what>GLIBC|GLIBCXX|CXXABI)_"
    r"(?P<version>[\d.]{1,20})' not found"
    r"(?: \(required by (?P<by>[^)]{0,300})\))?",
    words=("glibc_", "glibcxx_", "cxxabi_"),
)
NO_INSTRUCTIONS = FAMILY.fault(
    "no_instructions",
    "was compiled to use {name:w} instructions, but these aren't available on your machine",
    "was compiled to use SSE4.{:d} instructions, but these aren't available on your machine",
)
ILLEGAL_INSTRUCTION = FAMILY.fault(
    "illegal_instruction",
    "Illegal instruction",
    "DLL load failed with error code -1073741795",
    "exit code: -1073741795",
    "exit code -1073741795 (0xC000001D)",
    seen="all",
)
DLL_NOT_LOADED = FAMILY.fault(
    "dll_not_loaded",
    "DLL load failed while importing {module:w}",
    "ImportError: DLL load failed:",
    seen="Windows",
)
DLL_NOT_FOUND = FAMILY.fault(
    "dll_not_found",
    "Could not find '{dll:q}'. TensorFlow requires that this DLL be installed",
    "Could not find the DLL(s) '{dll:q}'. TensorFlow requires that these DLLs be installed",
    seen="up to 2.10, Windows",
)
NAME_OF_ANOTHER_FILE = FAMILY.fault(
    "name_of_another_file",
    pattern=r"(?i)cannot import name '(?P<lacks>[^']{0,100})' from (?:partially initialized module )?"
    r"'(?P<module>[\w.]{1,100})'[^(]{0,20}(?:\(most likely[^)]{0,60}\) )?\((?P<file>(?:[A-Za-z]:)?[\\/][^()]{1,300})\)",
    words=("cannot",),
)
PARTIAL_MODULE = FAMILY.fault(
    "partial_module",
    "partially initialized module '{module:q}' has no attribute '{lacks:q}'",
)
NAME_OF_TENSORFLOW_1 = FAMILY.fault(
    "name_of_tensorflow_1",
    pattern=r"module 'tensorflow(?:\._api\.v2\.\w+)?' has no attribute '(?P<name>"
    r"Session|InteractiveSession|ConfigProto|GPUOptions|placeholder|placeholder_with_default|"
    r"get_default_graph|reset_default_graph|contrib|app|flags|set_random_seed|get_variable|variable_scope|"
    r"global_variables|global_variables_initializer|initialize_all_variables|trainable_variables|logging|"
    r"truncated_normal|random_normal|random_uniform|layers|get_default_session|to_float|log|"
    r"enable_eager_execution|disable_eager_execution|gfile|Summary|GraphDef|FixedLenFeature|py_func|Print|"
    r"AUTO_REUSE|get_collection|assign|rnn_cell|dynamic_rnn|AdamOptimizer|GradientDescentOptimizer|"
    r"FileWriter|resize_bilinear|resize_images|train\.AdamOptimizer"
    r")'|No module named '(?P<module>tensorflow\.contrib)[\w.]*'",
    words=("attribute", "named"),
)
EMPTY_TENSORFLOW = FAMILY.fault(
    "empty_tensorflow",
    pattern=r"module 'tensorflow' has no attribute '(?P<name>__version__|constant|keras|Variable|test|compat)'",
    words=("attribute",),
)
FRAMEWORK_NOT_THERE = FAMILY.fault(
    "framework_not_there",
    pattern=r"(?:(?<![^\s:'\"(,])(?P<file>[^\s:'\"(,]{1,300}\.so)[,:][^:]{0,20}:? )?"
    r"(?:Library not loaded: [^\s:]{0,100}/|)"
    r"libtensorflow_(?:framework|cc)\.(?:so(?=:)|(?:so\.)?\d[\w.]{0,20})(?:: cannot open shared object file|\.dylib|$)",
    words=("libtensorflow_framework", "libtensorflow_cc"),
)
FAMILY.fault(
    "operations_not_built",
    pattern=r"NotFoundError: (?P<file>[^\s:'\"]{0,300}/_\w{1,60}_ops?\.so): cannot open shared object file",
    words=("notfounderror",),
    meaning="a package's compiled operations were not found in the folder that it was imported from, "
    "most likely its source folder",
    fix=(
        note("start Python in another folder: it imports what is in the folder where it starts"),
        install(
            "--force-reinstall",
            "--no-cache-dir",
            "tensorflow-addons",
            note="or reinstall the package that the path in site-packages names",
            role=Role.ALTERNATIVE,
        ),
    ),
)
UNDEFINED_OF_TENSORFLOW = FAMILY.fault(
    "undefined_of_tensorflow",
    pattern=r"(?<![^\s:'\"])(?P<file>[^\s:'\"]{1,300}\.so[.\d]{0,20}): undefined symbol: "
    r"(?P<symbol>_Z\w{0,300}?(?:tensorflow|4absl|3tsl|9perftools8gputools|15stream_executor)\w{0,300}|TF_\w{1,100}|TFE_\w{1,100})",
    words=("symbol",),
)
NO_WHEEL = FAMILY.fault(
    "no_wheel",
    pattern=r"(?:No matching distribution found for|Could not find a version that satisfies the requirement|An error "
    r"occurred while installing) (?P<what>tensorflow(?:-gpu|-cpu|-intel)?(?:\[[\w,-]+\])?"
    r"(?:[=<>!~]=?[\w*]+(?:\.[\w*]+){0,5})?)(?![\w-])",
    words=("matching", "satisfies", "installing"),
    seen="pip",
)
NO_CANDIDATE = FAMILY.fault(
    "no_candidate",
    pattern=r"Unable to find installation candidates for (?P<name>[A-Za-z][\w.-]{0,80}) \((?P<range>[^()]{1,40})\)|"
    r"[Dd]istribution `(?P<locked>[A-Za-z][\w.-]{0,80})==(?P<pinned>[\w.]{1,40})[^`]{0,200}` can't be "
    r"installed because|"
    r"(?<![\w.-])(?P<of>[A-Za-z][\w.-]{0,80})(?P<versions>[=<>]{1,2}[\w.]{1,40}) "
    r"(?:has no wheels|is unusable because no wheels)",
    words=("candidates", "distribution", "wheels"),
    seen="Poetry, uv",
)
NO_WHEEL_OF_ANOTHER = FAMILY.fault(
    "no_wheel_of_another",
    pattern=r"(?:No matching distribution found for|Could not find a version that satisfies the requirement) "
    r"(?!tensorflow(?:-gpu|-cpu|-intel)?(?![\w-])|nvidia|tensorrt)(?P<name>[A-Za-z][\w.-]{0,80})(?:\[[\w,-]{0,60}\])?"
    r"(?P<range>(?:[=<>!~]=?[\w.*]{1,40},?){0,4})",
    words=("satisfies", "matching"),
    seen="pip",
)
REFUSED_WHEEL = FAMILY.fault(
    "refused_wheel",
    pattern=r"tensorflow\w{0,20}-(?P<release>\d[\w.]{0,20})-cp3(?P<minor>\d{1,2})-\w{1,20}-(?P<platform>\w{1,40})\.whl "
    r"is not a supported wheel on this platform",
    words=("whl",),
    seen="pip",
)
GPU_PACKAGE_GONE = FAMILY.fault(
    "gpu_package_gone",
    'The "tensorflow-gpu" package has been removed',
    "tensorflow-gpu-2.12.0.tar.gz",
    seen="pip, from December 2022 on",
)
NAME_NOT_THERE = FAMILY.fault(
    "name_not_there",
    pattern=r"cannot import name '?(?P<name>[A-Za-z_]\w{0,100})'?(?: from (?:partially initialized module )?"
    r"'?(?P<module>[A-Za-z_][\w.]{0,200}))?|"
    r"module '(?P<of>[A-Za-z_][\w.]{0,200})' has no attribute '(?P<attribute>\w{1,100})'|"
    r"'module' object has no attribute '(?P<lacked>\w{1,100})'",
    words=("cannot", "attribute"),
)
MODULE_NOT_THERE = FAMILY.fault(
    "module_not_there",
    pattern=r"No module named ['\"]?(?P<module>[A-Za-z_][\w.]{0,200})",
    words=("module",),
)
SYMBOL_NOT_THERE = FAMILY.fault(
    "symbol_not_there",
    pattern=r"(?:undefined symbol|[Ss]ymbol not found): (?P<symbol>_Z\w{1,400})",
    words=("symbol",),
)
NO_TENSORFLOW = FAMILY.fault(
    "no_tensorflow",
    pattern=r"No module named '?tensorflow'?(?![.\w])",
    words=("named",),
)
INSTALLED_TWICE = FAMILY.fault(
    "installed_twice",
    "Duplicate plugins for name {plugin:w}",
    "Not a TBLoader or TBPlugin subclass",
    "module 'tensorboard.{:q}' has no attribute",
    "cannot import name '{:q}' from 'tensorboard{:q}'",
    meaning="several releases of TensorBoard are installed over one another (tensorboard, tb-nightly, "
    "tensorflow-tensorboard)",
    fix=(
        run(
            "python -m pip uninstall -y tensorboard tb-nightly tensorflow-tensorboard "
            "tensorboard-plugin-wit; python -m "
            "pip "
            "install tensorboard",
            kind=Kind.REMOVE,
        ),
        note(
            "and delete what is left of it in site-packages: folders tensorboard, ~ensorboard and "
            "tensorboard-*.dist-info",
            kind=Kind.REMOVE,
        ),
        run("conda remove tensorboard", "if conda installed another TensorBoard", kind=Kind.REMOVE),
    ),
)
MACOS_OLDER = FAMILY.fault(
    "macos_older",
    pattern=r"[Ee]xpected in: (?:<[^>]{1,60}> )?'?(?P<file>/(?:usr/lib|System/Library)/[^\s']{1,300})",
    words=("expected",),
    meaning="this macOS is too old for the library: {file} lacks a function that it needs",
    in_general="this macOS is too old for a library, which needs a function that it lacks",
    fix=(
        note(
            "a newer macOS; TensorFlow 2.5 to 2.12 needs 10.14 or later, 2.13 and newer 12.0, 2.1 to 2.4 10.12.6",
            kind=Kind.INSTALL,
        ),
        run(
            "conda install -c conda-forge tensorflow",
            "installs a build for older releases of macOS; or install an older release of the package",
            kind=Kind.INSTALL,
        ),
    ),
    seen="macOS",
)
