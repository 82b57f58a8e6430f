"""Names that packages of Python got or lost, and in which release, for "cannot import name" and "has no attribute".

It covers TensorFlow and what TensorFlow itself imports: Python, NumPy, protobuf, Keras and a few more. Each name was
looked up in the packages themselves, on 2026-11-22: in the release that added or removed it, and in the one before. One
name rests on release notes alone, and says so. ``*`` stands for a module and everything in it.
"""

from __future__ import annotations

from gpudiag.fix import Kind, install, run
from gpudiag.record import Record


class Moved(Record):
    """A name that a release of a distribution added or took away."""

    distribution: str
    """The distribution's name in pip; ``python`` for Python's own modules."""
    came: str = ""
    """The first release that has the name; "" if all earlier ones have it."""
    went: str = ""
    """The first release that no longer has the name; "" if no release removed it."""
    instead: str = ""
    """The name that a program uses instead; "" if there is no single name."""

    @property
    def range(self) -> str:
        """The releases that have the name, as a version specifier of pip."""
        return ",".join(filter(None, (f">={self.came}" if self.came else "", f"<{self.went}" if self.went else "")))


_CAME = (
    ("typing-extensions", "3.10", "typing_extensions", "ParamSpec TypeGuard Concatenate"),
    ("typing-extensions", "4.0", "typing_extensions", "Self Required NotRequired"),
    (
        "typing-extensions",
        "4.1",
        "typing_extensions",
        "Never Unpack TypeVarTuple LiteralString assert_never reveal_type is_typeddict",
    ),
    ("typing-extensions", "4.1", "typing_extensions", "dataclass_transform"),
    ("typing-extensions", "4.4", "typing_extensions", "override"),
    ("typing-extensions", "4.5", "typing_extensions", "deprecated"),
    ("typing-extensions", "4.6", "typing_extensions", "TypeAliasType Buffer get_original_bases"),
    ("typing-extensions", "4.9", "typing_extensions", "ReadOnly"),
    ("typing-extensions", "4.10", "typing_extensions", "TypeIs"),
    ("typing-extensions", "4.12", "typing_extensions", "NoDefault"),
    ("ml-dtypes", "0.5", "ml_dtypes", "float4_e2m1fn float8_e3m4 float8_e4m3 float8_e8m0fnu int2 uint2"),
    ("numpy", "1.20", "numpy", "typing"),
    ("numpy", "1.26.1", "numpy", "_core"),
    ("protobuf", "5.27", "google.protobuf", "runtime_version"),
    ("protobuf", "3.20", "google.protobuf.internal", "builder"),
    ("tensorflow", "1.14", "tensorflow", "config"),
    ("tensorflow", "2.1", "tensorflow.config", "list_physical_devices list_logical_devices set_visible_devices"),
    ("tensorflow", "2.4", "tensorflow.experimental", "numpy"),
    ("tensorflow", "1.11", "tensorflow", "init_scope"),
    ("tensorflow", "1.4", "tensorflow", "keras data"),
    ("tensorflow", "2.7", "tensorflow.keras.utils", "set_random_seed"),
    ("tensorflow", "2.9", "tensorflow.keras.optimizers", "legacy experimental"),
    ("tensorflow", "2.12", "tensorflow.keras.optimizers", "AdamW Adafactor"),
    ("keras", "2.12", "keras", "export"),
    ("keras", "3.0", "keras", "ops random KerasTensor"),
    ("keras", "3.1", "keras", "tree"),
    ("python", "3.8", "typing", "Literal Final Protocol TypedDict"),
    ("python", "3.11", "typing", "Self Never LiteralString NotRequired Required"),
    ("python", "3.8", "importlib", "metadata"),
    ("python", "3.8", "functools", "cached_property"),
    ("python", "3.9", "functools", "cache"),
)
_WENT = (
    ("numpy", "1.24", "numpy", "bool complex float int long object str typeDict unicode"),
    (
        "numpy",
        "2.0",
        "numpy",
        "Inf Infinity NaN PINF NINF float_ complex_ string_ unicode_ cast product cumproduct sometrue alltrue "
        "asfarray obj2sctype sctypes issctype find_common_type DataSource round_ set_string_function mat",
    ),
    ("numpy", "2.4", "numpy", "in1d trapz"),
    ("gast", "0.3", "gast", "Num Str Bytes Ellipsis NameConstant"),
    ("gast", "0.4", "gast", "Index"),
    ("python", "3.12", "imp", "*"),
    ("python", "3.12", "distutils", "*"),
    ("python", "3.12", "asyncore", "*"),
    ("python", "3.12", "pkgutil", "ImpImporter"),
    ("python", "3.14", "pkgutil", "find_loader get_loader"),
    ("python", "3.13", "pipes", "*"),
    ("python", "3.13", "cgi", "*"),
    ("python", "3.14", "ast", "Num Str Bytes NameConstant"),
    ("python", "3.10", "collections", "Mapping MutableMapping Iterable Sequence Callable Hashable Sized Set Iterator"),
    ("python", "3.9", "fractions", "gcd"),
    ("python", "3.11", "inspect", "getargspec formatargspec"),
    ("python", "3.11", "asyncio", "coroutine"),
    ("python", "3.8", "time", "clock"),
    ("python", "3.12", "configparser", "SafeConfigParser"),
    (
        "tensorflow",
        "1.0",
        "tensorflow",
        "scalar_summary histogram_summary image_summary audio_summary merge_summary merge_all_summaries pack unpack "
        "mul sub neg batch_matmul concat_v2 complex_abs",
    ),
    ("tensorflow", "1.0", "tensorflow.train", "SummaryWriter"),
    ("tensorflow", "2.13", "tensorflow.keras.wrappers.scikit_learn", "*"),
    ("tensorflow", "2.13", "tensorflow.keras.wrappers", "*"),
    ("tensorflow", "2.4", "tensorflow.keras.utils", "multi_gpu_model"),
    ("tensorflow", "2.16", "tensorflow.keras.layers.experimental", "preprocessing SyncBatchNormalization"),
    ("tensorflow", "2.16", "tensorflow.keras.experimental", "WideDeepModel LinearModel SequenceFeatures"),
    ("keras", "2.13", "keras.wrappers.scikit_learn", "*"),
    ("keras", "2.13", "keras.utils.np_utils", "*"),
    ("keras", "2.13", "keras.utils.generic_utils", "*"),
    ("keras", "2.4", "keras.utils", "multi_gpu_model"),
    ("keras", "1.1.2", "keras.engine.training", "collect_trainable_weights"),
    ("keras", "2.0", "keras.utils.visualize_util", "*"),
    ("keras", "2.0", "keras.utils.layer_utils", "layer_from_config"),
    ("keras", "2.2.1", "keras.applications.imagenet_utils", "_obtain_input_shape"),
    ("keras", "3.0", "keras.preprocessing.text", "*"),
)
_WENT_BY_NOTES = (
    ("tensorflow", "2.16", "tensorflow.estimator", "*"),
    ("tensorflow", "2.16", "tensorflow.python.estimator", "*"),
)
"""Known from the release notes alone, https://github.com/tensorflow/tensorflow/releases/tag/v2.16.1; no wheel was
looked at."""
_INSTEAD = {
    "collections": "collections.abc",
    "keras.preprocessing.text": "tensorflow.keras.preprocessing.text",
    "keras.utils.multi_gpu_model": "tf.distribute.MirroredStrategy",
    "keras.utils.np_utils": "keras.utils.to_categorical",
    "keras.wrappers.scikit_learn": "scikeras.wrappers, of the distribution scikeras",
    "numpy.NaN": "numpy.nan",
    "numpy.Inf": "numpy.inf",
    "tensorflow.keras.layers.experimental.preprocessing": "tensorflow.keras.layers",
    "tensorflow.keras.utils.multi_gpu_model": "tf.distribute.MirroredStrategy",
    "tensorflow.keras.wrappers": "scikeras.wrappers, of the distribution scikeras",
    "tensorflow.mul": "tf.multiply",
    "tensorflow.neg": "tf.negative",
    "tensorflow.pack": "tf.stack",
    "tensorflow.scalar_summary": "tf.summary.scalar",
    "tensorflow.sub": "tf.subtract",
    "tensorflow.train.SummaryWriter": "tf.summary.FileWriter",
    "tensorflow.unpack": "tf.unstack",
    "time.clock": "time.perf_counter",
}


def _table() -> dict[str, Moved]:
    found = dict[str, Moved]()
    for rows, is_new in ((_CAME, True), (_WENT + _WENT_BY_NOTES, False)):
        for distribution, release, module, names in rows:
            for name in names.split():
                whole = module if name == "*" else f"{module}.{name}"
                instead = _INSTEAD.get(whole) or _INSTEAD.get(module, "")
                found[whole] = Moved(
                    distribution, came=release if is_new else "", went="" if is_new else release, instead=instead
                )
    return found


MOVED = _table()


def moved(module: str, name: str) -> Moved | None:
    """Return what is known about a name in a module, or about a missing ``module``; None if nothing is."""
    if name:
        return MOVED.get(f"{module}.{name}".replace("._api.v2.", ".").replace(".api._v2.", "."))
    parts = module.split(".")
    return next((MOVED[prefix] for end in range(len(parts), 0, -1) if (prefix := ".".join(parts[:end])) in MOVED), None)


_DISTRIBUTIONS = {
    "Crypto": "pycryptodome",
    "IPython": "ipython",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "_distutils_hack": "setuptools",
    "absl": "absl-py",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "git": "gitpython",
    "google": "protobuf",
    "grpc": "grpcio",
    "mpl_toolkits": "matplotlib",
    "official": "tf-models-official",
    "pkg_resources": "setuptools",
    "retinaface": "retina-face",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "tensorflow_core": "tensorflow",
    "umap": "umap-learn",
    "yaml": "pyyaml",
}
"""Python packages whose distribution has another name, each with that distribution."""
_RESEARCH = (
    run("git clone --depth 1 https://github.com/tensorflow/models", "it is a folder of that repository"),
    run(
        "export PYTHONPATH=$PWD/models/research:$PWD/models/research/slim:$PYTHONPATH",
        "before the program starts",
        kind=Kind.SET_VARIABLE,
    ),
)
NOT_OF_PIP = {
    "deployment": _RESEARCH,
    "keras_contrib": (install("git+https://github.com/keras-team/keras-contrib.git"),),
    "mrcnn": (
        run(
            "git clone https://github.com/matterport/Mask_RCNN && pip install ./Mask_RCNN",
            "for TensorFlow 1",
            kind=Kind.INSTALL,
        ),
    ),
    "nets": _RESEARCH,
    "object_detection": _RESEARCH,
    "pycocotools._mask": (install("--force-reinstall", "--no-cache-dir", "pycocotools", note="compiles it again"),),
}
"""Packages that no distribution of that name brings, each with what does bring it."""


def distribution_of(package: str) -> str:
    """Return the distribution that brings a Python package; for most packages it has the same name."""
    return _DISTRIBUTIONS.get(package, package.replace("_", "-"))
