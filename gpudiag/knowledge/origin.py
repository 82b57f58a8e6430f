"""The origin of a log: the release of TensorFlow that wrote it, its CUDA, and the kind of machine, read from it.

Advice that helps with TensorFlow 2.21 on Linux does not help with 2.8, or on Windows. A log rarely names its release,
but its lines differ by release: source files were moved, wordings changed, and names of libraries contain CUDA's
version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

from gpudiag.knowledge.expressions import needed_parts
from gpudiag.knowledge.owner import TENSORFLOW, Owner, owner_of_line, owner_of_log
from gpudiag.knowledge.releases import (
    GENERATIONS,
    NEWEST,
    OLDEST,
    Generation,
    Version,
    generation,
    released_by,
)
from gpudiag.knowledge.stated import StatedFacts
from gpudiag.text import plain

# Such as "tensorflow==2.8.0", "TensorFlow version: 2.4.1", "tensorflow_gpu-1.15.0.dist-info".
_NAMED = re.compile(
    r"(?i)\b(?:tensor ?flow|tf)(?:[-_ ](?:gpu|cpu|intel|macos))?(?:\.__version__)?(?:\[[\w,-]{1,40}\])?"
    r"[ \t]{0,3}(?:[-_=:>~]{1,2}|version|release|v)?[ \t:=#'\"-]{0,5}v?(?P<major>[12])\.(?P<minor>\d{1,2})(?![\d])"
)
_DESCRIBED = re.compile(r"\bv(?P<major>[12])\.(?P<minor>\d{1,2})\.\d(?:\.\d)?(?:-rc\d)?-\d{1,6}-g[0-9a-f]{8}")
"""The form of ``tf.version.GIT_VERSION``."""
_LEAST, _MOST = OLDEST, NEWEST
_LONG = 1 << 14
"""From this many letters on, to search for a pattern takes longer than to find out which parts it needs."""


def _between(first: str, last: str) -> tuple[Version, Version]:
    return (
        Version(*map(int, first.split("."))) if first else _LEAST,
        Version(*map(int, last.split("."))) if last else _MOST,
    )


_HINTS: tuple[tuple[re.Pattern[str], tuple[Version, Version]], ...] = tuple(
    (re.compile(pattern), _between(first, last))
    for pattern, first, last in (
        # Where the source files lie (tags of the repository).
        (r"(?<![\w/])(?:external/org_)?tensorflow/stream_executor/", "", "2.10"),
        (r"tensorflow/compiler/xla/stream_executor/", "2.11", "2.14"),
        (r"(?<!local_)tensorflow/tsl/", "2.11", "2.14"),
        (r"external/local_(?:xla|tsl)/", "2.15", ""),
        (r"tensorflow/compiler/xla/service/", "", "2.14"),
        (r"tensorflow/core/util/util\.cc:\d+\] oneDNN", "2.9", "2.11"),
        (r"tensorflow/core/util/port\.cc:\d+\] oneDNN", "2.12", ""),
        (r"core/platform/cpu_feature_guard\.cc:210\]", "2.16", ""),
        (r"core/platform/cpu_feature_guard\.cc:182\]", "2.12", "2.15"),
        (r"core/platform/cpu_feature_guard\.cc:193\]", "2.9", "2.12"),
        (r"core/platform/cpu_feature_guard\.cc:151\]", "2.7", "2.8"),
        (r"core/platform/cpu_feature_guard\.cc:14[0-4]\] Your CPU supports", "", "2.4"),
        (r"core[/\\]platform[/\\]cpu_feature_guard\.cc:(?:3[67]|45|137)\]", "", "1.5"),
        (r"core/platform/cpu_feature_guard\.cc:14[0-1]\] *(?:Your CPU|$)", "", "1.15"),
        # How lines and messages are worded.
        (r"device:XLA_(?:CPU|GPU):\d|\bXLA_GPU\b|'/xla_gpu:", "1.9", "2.3"),
        (r"^[IWEF]0000 \d\d:\d\d:\d+\.\d+ ", "2.17", ""),
        (r"tensorflow\[and-cuda\]", "2.14", ""),
        (r"All log messages before absl::InitializeLog", "2.17", ""),
        (r"Could not find cuda drivers on your machine", "2.12", ""),
        (r"Cannot dlopen some TensorRT libraries", "2.10", "2.13"),
        (r"TF-TRT Warning: Could not find TensorRT", "2.13", ""),
        (r"Attempting to register factory for plugin", "2.11", ""),
        (r"Could not load dynamic library '", "1.14", "2.12"),
        (r"module 'tensorflow\.compat\.v2' has no", "1.13", "1.15"),
        (r"tensorflow_core[/\\]", "1.15", "2.1"),
        (r"No module named 'tensorflow\.contrib'", "2.0", ""),
        # The CUDA whose libraries it opens.
        (r"'cudart64_80\.dll'|(?<!\w)libc(?:ublas|udart)\.so\.8\.0", "", "1.4"),
        (r"'(?:libcudart\.so\.9\.0|cudart64_90\.dll)'|(?<!\w)libcublas\.so\.9\.0", "1.5", "1.12"),
        (
            r"(?:'|library |NotFoundError: )(?:libcudart\.so\.10\.0|cudart64_100\.dll)\b|(?<!\w)libcublas\.so\.10\.0",
            "1.13",
            "2.0",
        ),
        (r"(?:'|library )(?:libcudart\.so\.10\.1|cudart64_101\.dll)\b|libcupti\.so\.10\.1", "2.1", "2.3"),
        (r"cudart64_101\.dll not found", "2.1", "2.3"),
        (r"(?:'|library |NotFoundError: )libcudart\.so\.11\.0", "2.4", "2.14"),
        (r"'cudart64_110\.dll'|cudart64_110\.dll not found", "2.4", "2.10"),
        (r"dynamic library '?(?:libcudart\.so\.12|libcublas\.so\.12)\b", "2.15", ""),
        (r"dynamic library '?(?:libcusolver\.so\.10|cusolver64_10\.dll)\b", "1.13", "2.4"),
        (
            r"dynamic library '?(?:libcublas\.so\.11|cublas64_11\.dll|libcusparse\.so\.11|cusparse64_11\.dll)\b",
            "2.4",
            "",
        ),
        (r"dynamic library '?(?:libcusolver\.so\.11|cusolver64_11\.dll)\b", "2.5", ""),
        (r"(?<!\w)libcudnn\.so\.5\b", "", "1.2"),
        (r"(?<!\w)libcudnn\.so\.6\b", "1.3", "1.4"),
        (r"dynamic library '?(?:libcudnn\.so\.7|cudnn64_7\.dll)\b", "1.5", "2.3"),
        (r"dynamic library '?(?:libcudnn\.so\.8|cudnn64_8\.dll)\b", "2.4", "2.17"),
        (r"source was compiled with: 7\.[0-4]", "", "2.0"),
        (r"source was compiled with: 7\.[56]", "1.15", "2.3"),
        (r"source was compiled with: 8\.0", "2.4", "2.4"),
        (r"source was compiled with: 8\.[12]", "2.5", "2.11"),
        (r"source was compiled with: 8\.6", "2.12", "2.13"),
        (r"source was compiled with: 8\.7", "2.14", "2.14"),
        (r"source was compiled with: 8\.9", "2.15", "2.17"),
        (r"source was compiled with: 9\.", "2.18", ""),
        # The Python that it can have.
        (r"[Pp]ython3?[./\\]?2\.7[/\\]", "", "2.1"),
        (r"python3\.4[/\\]|Python34[/\\]", "", "1.14"),
        (r"python3\.5[/\\]|Python35[/\\]", "", "2.3"),
        (r"python3\.6[/\\]|Python36[/\\]", "", "2.6"),
        (r"python3\.7[/\\]|Python37[/\\]", "1.13", "2.11"),
        (r"python3\.8[/\\]|Python38[/\\]", "2.2", "2.13"),
        (r"python3\.9[/\\]|Python39[/\\]", "2.5", "2.20"),
        (r"python3\.10[/\\]|Python310[/\\]", "2.8", ""),
        (r"python3\.11[/\\]|Python311[/\\]", "2.12", ""),
        (r"python3\.12[/\\]|Python312[/\\]", "2.16", ""),
        (r"python3\.13[/\\]|Python313[/\\]", "2.20", ""),
    )
)
_PYTHON = re.compile(
    r"\b[Pp]ython[ /\\-]?v?3\.(\d{1,2})\b|\bcp3(\d{1,2})-|[Pp]ython3(\d{1,2})[/\\]|"
    r"_py3(\d{1,2})_|\bpython=3\.(\d{1,2})\b"
)
_OLDEST_PYTHON, _NEWEST_PYTHON = 4, 16
_DATE = re.compile(r"^(20[12]\d-[01]\d-[0-3]\d)[ T]\d\d:\d\d:\d\d", re.MULTILINE)
_WINDOWS = re.compile(
    r"(?:^|[\s\"'(=])[A-Za-z]:\\\w|\.dll\b|\.\\tensorflow/|DLL load failed|\b[Ww]in(?:dows|DOWS)? ?(?:7|8|1[01])\b|"
    r"[-_]windows\b|\bwin_amd64\b|\bWDDM\b"
)
_LINUX = re.compile(r"(?:^|[\s\"'(=:])/(?:usr|home|opt|root|lib|var|etc|tmp|mnt)/|\.so\b", re.MULTILINE)
_WSL = re.compile(r"(?i)\bWSL2?\b|/usr/lib/wsl/|microsoft-standard|/mnt/[a-z]/Users/")
_WSL_1 = re.compile(r"\b4\.4\.0-\d{4,6}-Microsoft\b")
"""The kernel version that Windows itself reports in WSL 1; WSL 2 has a real, newer Linux kernel."""
_NIX = re.compile(r"(?i)\bnixos\b|/nix/store/|\bnix-shell\b|\bnixpkgs\b")
_CONDA = re.compile(
    r"(?i)[/\\](?:mini|ana|mamba|mini)?(?:conda|forge)3?[/\\]|[/\\]envs[/\\]|"
    r"\bconda (?:list|install|create|activate|env)\b"
)
_CONTAINER = re.compile(
    r"(?i)\bdocker\b|\bpodman\b|containerd|kubelet|nvidia-container|\bcontainer\b(?! ?=)|\bpod\b|root@[0-9a-f]{12}\b|"
    r"/usr/local/nvidia/lib|\bhost(?:name)?: jupyter-"
)
_POD = re.compile(r"(?i)\bkubernetes\b|\bkubectl\b|kubelet|\bkubeflow\b|\bpod\b|\bhost(?:name)?: jupyter-")
_SINGULARITY = re.compile(r"(?i)\.singularity\.d\b|\bsingularity\b|\bapptainer\b")
_MAC = re.compile(
    r"(?i)\bmacos\b|\bdarwin\b|libmetal_plugin|\bdlopen\(/(?:opt/homebrew|Users|Library)/|(?:^|[\s\"'(=])/Users/\w|"
    r"/opt/homebrew/|\bApple M[1-9]\b|METAL, pci bus id",
    re.MULTILINE,
)
_JETSON = re.compile(
    r"(?i)\bjetson\b|\bjetpack\b|\btegra\b|-tegra\b|\bl4t\b|linux_aarch64\.whl|name: (?:Orin|Xavier)\b"
)
_COLAB = re.compile(r"(?i)\bcolab\b|/content/(?:drive|sample_data)\b")
_NOTEBOOK = re.compile(r"(?i)\bjupyter|\bipykernel|\.ipynb\b|<ipython-input|\bIn \[\d+\]:|\bcolab\b|\bnotebooks?\b")
_MUSL = re.compile(
    r"(?i)\balpine\b|\bmusl\b|\bapk add\b|Error relocating /|Error loading shared library \S{1,200}: "
    r"[^(\n]{1,80}\(needed by"
)
"""Signs of Alpine Linux: its name, and messages of musl's loader, which differ from glibc's."""
_JAX = re.compile(r"\bjaxlib\b|\bjax\b[./\\]|XLA_PYTHON_CLIENT")


class Origin:
    """The origin of a log, as far as its lines show it."""

    def __init__(self, lines: Iterable[str], release: str = "") -> None:
        """``release`` is the release of TensorFlow on this machine, if the log was written here and names none."""
        self._lines = tuple(map(plain, lines))
        self._text = "\n".join(self._lines)
        self._installed = release

    @cached_property
    def _lower(self) -> str:
        return self._text.lower()

    def _has(self, pattern: re.Pattern[str]) -> bool:
        """Return whether a pattern is in the text; parts that it needs are looked for first if the text is long."""
        groups = needed_parts(pattern.pattern) if len(self._text) > _LONG else ()
        is_possible = all(any(part in self._lower for part in parts) for parts in groups)
        return is_possible and pattern.search(self._text) is not None

    @cached_property
    def stated(self) -> StatedFacts:
        """The statements beside the log."""
        return StatedFacts(self._lines)

    @cached_property
    def owner(self) -> Owner | None:
        """The framework, program or tool whose log it is; None if no line shows one."""
        return owner_of_log(self._lines)

    def owner_of(self, line: str) -> Owner | None:
        """Return the owner of one line, which may be shortened."""
        return owner_of_line(line, self._lines, self.owner)

    @property
    def is_of_another(self) -> bool:
        """True if the log is another framework's, and TensorFlow does not occur in it."""
        return self.owner is not None and self.owner is not TENSORFLOW

    @cached_property
    def named(self) -> Version | None:
        """The release that the log names, or the one installed where the log was written."""
        found = [
            Version(int(match["major"]), int(match["minor"]))
            for pattern in (_DESCRIBED, _NAMED)
            for match in pattern.finditer(self._text)
        ]
        if self.stated.tensorflow and (of_form := re.match(r"([12])\.(\d{1,2})", self.stated.tensorflow.value)):
            found.append(Version(int(of_form[1]), int(of_form[2])))
        known = [version for version in found if _LEAST <= version <= _MOST and not _contradicts(version, self._hinted)]
        if known:
            return known[-1]
        installed = re.match(r"([12])\.(\d{1,2})\.", self._installed)
        return Version(int(installed[1]), int(installed[2])) if installed else None

    @cached_property
    def _hinted(self) -> tuple[Version, Version]:
        first, last = self._printed(_HINTS)
        by_then = released_by(max(_DATE.findall(self._text), default=""))
        return first, max(first, min(last, by_then))  # a release candidate is older than its release

    def _printed(self, hints: Iterable[tuple[re.Pattern[str], tuple[Version, Version]]]) -> tuple[Version, Version]:
        """Return the oldest and the newest release that fit all hints that the log has."""
        first, last = _LEAST, _MOST
        for pattern, (oldest, newest) in hints:
            if self._has(pattern) and max(first, oldest) <= min(last, newest):
                first, last = max(first, oldest), min(last, newest)
        return first, last

    @property
    def releases(self) -> tuple[Version, Version]:
        """The oldest and the newest release that may have written the log."""
        return (self.named, self.named) if self.named else self._hinted

    @property
    def generation(self) -> Generation:
        """The newest generation of releases that may have written the log."""
        return generation(self.releases[1])

    @property
    def generations(self) -> tuple[Generation, ...]:
        """Every generation of releases that may have written the log."""
        oldest, newest = self.releases
        return tuple(
            generation for generation in GENERATIONS if generation.last >= oldest and generation.first <= newest
        )

    @property
    def is_before_12(self) -> bool:
        """True if the release was certainly built for CUDA 11 or older: NVIDIA's packages of CUDA 12 do not help."""
        return self.releases[1] <= Version(2, 14)

    @property
    def is_before_11(self) -> bool:
        """True if the release was certainly built for CUDA 10 or older, which has no code for Ampere and later GPUs."""
        return self.releases[1] <= Version(2, 3)

    @cached_property
    def python(self) -> str:
        """The version of Python that wrote the log, such as ``3.9``; "" if the log names none, or several."""
        if self.stated.python and (of_form := re.match(r"3\.(\d{1,2})(?:\.|$)", self.stated.python.value)):
            return f"3.{of_form[1]}"
        found = {int(next(filter(None, match))) for match in _PYTHON.findall(self._text)}
        known = [number for number in found if _OLDEST_PYTHON <= number <= _NEWEST_PYTHON]
        return f"3.{known[0]}" if len(known) == 1 else ""

    @property
    def system(self) -> str:
        """The kind of machine, as :mod:`gpudiag.knowledge.tensorflow_releases` names it."""
        if self.windows:
            return "windows"
        if self.mac:
            return "mac_x86_64" if "x86_64" in self._text else "mac_arm64"
        return "linux_aarch64" if self.jetson or "aarch64" in self._text else "linux_x86_64"

    @cached_property
    def windows(self) -> bool:
        said = self.stated.system
        of_form = said is not None and re.match(r"(?i)win(?:dows|10|11|\b)", said.value) is not None
        return (of_form or self._has(_WINDOWS)) and not self.wsl

    @cached_property
    def mac(self) -> bool:
        return not self.windows and not self.wsl and self._has(_MAC)

    @cached_property
    def jetson(self) -> bool:
        return self._has(_JETSON)

    @cached_property
    def linux(self) -> bool:
        return not (self.windows or self.mac) and self._has(_LINUX)

    @cached_property
    def wsl(self) -> bool:
        return self._has(_WSL)

    @cached_property
    def wsl_1(self) -> bool:
        return self._has(_WSL_1)

    @cached_property
    def nix(self) -> bool:
        return self._has(_NIX)

    @cached_property
    def conda(self) -> bool:
        return self._has(_CONDA)

    @cached_property
    def container(self) -> bool:
        return self._has(_CONTAINER)

    @cached_property
    def pod(self) -> bool:
        """True if the program ran in a pod of Kubernetes."""
        return self._has(_POD)

    @cached_property
    def singularity(self) -> bool:
        return self._has(_SINGULARITY)

    @cached_property
    def colab(self) -> bool:
        return self._has(_COLAB)

    @cached_property
    def notebook(self) -> bool:
        return self._has(_NOTEBOOK)

    @cached_property
    def musl(self) -> bool:
        return self._has(_MUSL)

    @cached_property
    def jax(self) -> bool:
        return self._has(_JAX)

    def __str__(self) -> str:
        oldest, newest = self.releases
        of_tensorflow = (hint for hint in _HINTS if "ython" not in hint[0].pattern)  # any program has a Python
        known = self.named is not None or self._printed(of_tensorflow) != (_LEAST, _MOST)
        is_tensorflow = self.owner is TENSORFLOW or (self.owner is None and known)
        if not is_tensorflow:
            what = self.owner.name if self.owner else ""
        elif (oldest, newest) == (_LEAST, _MOST):
            what = ""
        elif oldest == newest:
            what = f"TensorFlow {oldest}"
        elif newest == _MOST:
            what = f"TensorFlow {oldest} or newer"
        elif oldest == _LEAST:
            what = f"TensorFlow {newest} or older"
        else:
            what = f"TensorFlow {oldest} to {newest}"
        places = {"Windows": self.windows, "WSL": self.wsl, "macOS": self.mac, "Jetson": self.jetson}
        where = next((place for place, is_there in places.items() if is_there), "")
        built = (
            f"built for CUDA {self.generation.cuda} and cuDNN {self.generation.cudnn}"
            if self.is_one and is_tensorflow
            else ""
        )
        return ", ".join(filter(None, [what, built, where]))

    @property
    def is_one(self) -> bool:
        """True if only one generation of releases may have written the log."""
        return len(self.generations) == 1


def _contradicts(release: Version, hinted: tuple[Version, Version]) -> bool:
    """Return True if a named release cannot have written the lines; it may be an image's or another program's."""
    return not hinted[0] <= release <= hinted[1]
