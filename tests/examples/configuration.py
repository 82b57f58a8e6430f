"""Examples of causes: settings of a program, and variables, that have not the effect that was meant."""

from __future__ import annotations

from dataclasses import replace

from examples import Example
from examples.facts import example, example_with_gpus
from gpudiag.cause import TRACE, Evidence
from gpudiag.causes.configuration.log_level_hides_reason import _LOG_LEVEL
from gpudiag.causes.configuration.settings_exclude_each_other import _EXCLUSIVE
from gpudiag.knowledge.log_lines import Line
from gpudiag.model.facts import EnvironmentFacts, Facts, MpsFacts, PathAttempt, TriedFacts
from gpudiag.model.program import ProgramTrace, Setting, SettingFate
from gpudiag.model.report import Broken, Judged, NoReading, Row
from gpudiag.probes.discovery import trace


def _log(*log: str, facts: Facts | None = None, listed: int | None = 1, said: tuple[Line, ...] = ()) -> Evidence:
    """Return a machine on which TensorFlow lists so many GPUs, and the log of a program."""
    rows = () if listed is None else (_trace_row(listed, said),)
    return Evidence(facts or example_with_gpus(1), rows=rows, lines=log)


def _trace_row(listed: int, said: tuple[Line, ...] = ()) -> Row:
    reading = trace.Reading(listed, None, (), {}, said)
    return Row(TRACE, (), Judged(), 0.0, reading)


def _by_mps(error: str | None = None, share: float | None = None, **variables: str) -> Evidence:
    daemon = MpsFacts(share, {}, "", "nvidia-cuda-mps-control")
    tried = TriedFacts(connected=(PathAttempt("/run/nvidia-mps/control", error),), mps=None if error else daemon)
    return Evidence(example_with_gpus(1, environment=EnvironmentFacts(variables), tried=tried))


def _set(**variables: str) -> Evidence:
    return Evidence(example_with_gpus(1, environment=EnvironmentFacts(variables)))


_TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/home/someone/train.py", line 4, in <module>',
    "    tf.config.experimental.set_memory_growth(gpus[0], True)",
    '  File "/venv/site-packages/tensorflow/python/framework/config.py", line 766, in set_memory_growth',
    "    context.context().set_memory_growth(device, enable)",
)
_LATE = "RuntimeError: Physical devices cannot be modified after being initialized"
_TOO_LATE = Setting("memory_growth", "GPU:0=True", "/train.py:3", SettingFate.TOO_LATE, f"at train.py:2: {_LATE}")
_WATCHED = ProgramTrace(("python", "train.py"), "exit status 1", 1.0, settings=(_TOO_LATE,))
_GROWTH_AND_LIMIT = "ValueError: Cannot set memory growth on device when virtual devices configured"
_EMPTY = "IndexError: list index out of range"
_CUINIT = Line("E", "cuda_platform.cc", "failed call to cuInit: INTERNAL: CUDA error: no device")
_DLOPEN = Line("W", "gpu_device.cc", "Cannot dlopen some GPU libraries. Skipping registering GPU devices...")
_MIRRORED = "INFO:tensorflow:Using MirroredStrategy with devices ('/job:localhost/replica:0/task:0/device:%s:0',)"
_EXECUTED = "I0 1 7 execute.cc:7] Executing op MatMul in device /job:localhost/replica:0/task:0/device:%s:0"
_UNREAD = (
    "E0000 00:00:1.2 7 gpu_bfc_allocator.cc:53] The TF_FORCE_GPU_ALLOW_GROWTH environment variable is set but could "
    'not be parsed: "True". Valid values are "true" or "false". Using original config value of false.'
)
_ABORTED = (
    "F0000 00:00:1.2 7 gpu_cudamallocasync_allocator.cc:168] TF_GPU_ALLOCATOR=cuda_malloc_async isn't currently "
    "supported on GPU id 0: Possible causes: device not supported (request SM60+), driver too old"
)
_GUARD = "I0000 00:00:1.2 7 gpu_process_state.cc:195] Using memory guard allocator for GPU."
_MISALIGNED = "F0000 00:00:1.2 7 tensor.h:947] Check failed: IsAligned() ptr = 0x7fb890000610"


def _aborted(*log: str, **variables: str) -> Evidence:
    row = Row("discovery.logical_devices", (), Broken(NoReading.SIGNAL, "killed by SIGABRT"), 0.0, log=log)
    return Evidence(example_with_gpus(1, environment=EnvironmentFacts(variables)), rows=(row,))


def _provoked(*log: str) -> Evidence:
    return Evidence(example_with_gpus(1), rows=(Row("memory.allocator", (), Judged(), 0.0, log=log),))


def _level(value: str, *said: Line, listed: int = 0) -> Evidence:
    return _log(facts=example_with_gpus(1, environment=EnvironmentFacts({_LOG_LEVEL: value})), listed=listed, said=said)


EXAMPLES: dict[str, tuple[Example, ...]] = {
    "setting_limits_gpu": (
        Example("a limit of a test", _set(TF_PER_DEVICE_MEMORY_LIMIT_MB="512")),
        Example("a large reserve", _set(TF_DEVICE_MIN_SYS_MEMORY_IN_MB="30000")),
        Example("each kernel is waited for", _set(CUDA_LAUNCH_BLOCKING="1")),
        Example("few multiprocessors by MPS", _by_mps(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="10")),
        Example("few by its daemon, which no variable shows", _by_mps(share=25.0)),
        Example("most of them by its daemon", _by_mps(share=100.0), fires=False),
        Example("most of them", _by_mps(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="90"), fires=False),
        Example("without MPS, whose socket is not there", _set(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="10")),
        Example(
            "without MPS, as in https://github.com/NVIDIA/nvidia-docker/issues/987",
            _by_mps("ENOENT", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="90"),
        ),
        Example("MPS of another user", _by_mps("EACCES", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="90"), fires=False),
        Example("a limit above half", _set(TF_PER_DEVICE_MEMORY_LIMIT_MB="30000"), fires=False),
        Example("no limit", _set(TF_PER_DEVICE_MEMORY_LIMIT_MB="0"), fires=False),
        Example("no number", _set(TF_PER_DEVICE_MEMORY_LIMIT_MB="all"), fires=False),
        Example(
            "a worker of pytest", _set(TF_PER_DEVICE_MEMORY_LIMIT_MB="512", PYTEST_XDIST_WORKER="gw0"), fires=False
        ),
        Example("kernels run on", _set(CUDA_LAUNCH_BLOCKING="0", TF_FORCE_UNIFIED_MEMORY="1"), fires=False),
    ),
    "configured_too_late": (
        Example("growth", _log(*_TRACEBACK, _LATE)),
        Example("growth, as pytest prints it", _log(f">   {_TRACEBACK[2].strip()}", f"E   {_LATE}")),
        Example("visible devices", _log(_LATE.replace("Physical", "Visible"))),
        Example("logical devices", _log(_LATE.replace("Physical", "Virtual"))),
        Example("threads", _log("RuntimeError: Intra op parallelism cannot be modified after initialization.")),
        Example("the line came first", _log(*_TRACEBACK[1:3]), fires=False),
        Example("the trace names the line that made the devices", replace(_log(_LATE), traced=_WATCHED), fires=False),
    ),
    "settings_exclude_each_other": (
        Example("growth after a limit", _log(*_TRACEBACK, _GROWTH_AND_LIMIT)),
        Example("fraction and virtual devices", _log(f"InvalidArgumentError: {list(_EXCLUSIVE)[1]}.")),
        Example("growth too late", _log(*_TRACEBACK, _LATE), fires=False),
    ),
    "element_of_no_gpus": (
        Example("gpus[0]", _log(*_TRACEBACK[:3], _EMPTY, listed=0)),
        Example("of the call itself", _log("    gpu = tf.config.list_physical_devices('GPU')[0]", _EMPTY)),
        Example("without a GPU", _log(*_TRACEBACK[:3], _EMPTY, facts=example(), listed=0)),
        Example("another list", _log(_TRACEBACK[0], "    x = rows[0]", _EMPTY, listed=0), fires=False),
        Example("another error", _log(*_TRACEBACK, _LATE, listed=0), fires=False),
    ),
    "cpu_instead_of_gpu": (
        Example("strategy on the CPU", _log(_MIRRORED % "CPU", listed=0)),
        Example("explicit device", _log("assigned to /device:GPU:0 but available devices are [ /device:CPU:0 ]")),
        Example("products on the CPU", _log(_EXECUTED % "CPU")),
        Example("strategy on the GPU", _log(_MIRRORED % "GPU"), fires=False),
        Example(
            "products on both",
            _log(_EXECUTED % "CPU", _EXECUTED % "GPU"),
            fires=False,
        ),
        Example(
            "too high an index",
            _log("assigned to /device:GPU:7 but available devices are [ /device:CPU:0, /device:GPU:0 ]"),
            fires=False,
        ),
    ),
    "program_ran_elsewhere": (
        Example("no device there", _log(f"E cuda_platform.cc:52] {_CUINIT.text}")),
        Example("libraries missing there", _log(f"W gpu_device.cc:9] {_DLOPEN.text}")),
        Example("no device here either", _log(f"E cuda_platform.cc:52] {_CUINIT.text}", listed=0), fires=False),
        Example("not known here", _log(f"E cuda_platform.cc:52] {_CUINIT.text}", listed=None), fires=False),
        Example("a GPU in both", _log("Created device /device:GPU:0 with 9000 MB memory"), fires=False),
    ),
    "growth_not_read": (
        Example("True", _set(TF_FORCE_GPU_ALLOW_GROWTH="True")),
        Example("0", _set(TF_FORCE_GPU_ALLOW_GROWTH="0")),
        Example("in the program", _log(_UNREAD)),
        Example("true", _set(TF_FORCE_GPU_ALLOW_GROWTH="true"), fires=False),
    ),
    "allocator_not_known": (
        Example("case", _set(TF_GPU_ALLOCATOR="cuda_malloc_Async")),
        Example("a word", _set(TF_GPU_ALLOCATOR="best")),
        Example("correct", _set(TF_GPU_ALLOCATOR="cuda_malloc_async"), fires=False),
    ),
    "allocator_not_supported": (
        Example("in the check", _aborted(_ABORTED, TF_GPU_ALLOCATOR="cuda_malloc_async")),
        Example("in the program", _log(_ABORTED)),
        Example("provoked by a probe", _provoked(_ABORTED), fires=False),
        Example("supported", _aborted("Using CUDA malloc Async allocator for GPU: 0"), fires=False),
    ),
    "guard_misaligned": (
        Example("in the check", _aborted(_MISALIGNED, TF_GPU_ALLOCATOR="memory_guard")),
        Example("in the program", _log(_GUARD, _MISALIGNED)),
        Example("provoked by a probe", _provoked(_GUARD, _MISALIGNED), fires=False),
        Example("another allocator", _aborted(_MISALIGNED, TF_GPU_ALLOCATOR="cuda_malloc"), fires=False),
        Example("nothing refused", _aborted(_GUARD, TF_GPU_ALLOCATOR="memory_guard"), fires=False),
    ),
    "log_level_hides_reason": (
        Example("3, cuInit failed", _level("3", _CUINIT)),
        Example("2, libraries missing", _level("2", _DLOPEN)),
        Example("2, cuInit failed", _level("2", _CUINIT), fires=False),
        Example("0, cuInit failed", _level("0", _CUINIT), fires=False),
        Example("3, nothing was said", _level("3"), fires=False),
        Example("3, a GPU is listed", _level("3", _CUINIT, listed=1), fires=False),
    ),
    "variable_misspelt": (
        Example(
            "two letters",
            _set(CUDA_VISIBLE_DEVCIES="0"),
        ),
        Example("known", _set(CUDA_VISIBLE_DEVICES="0"), fires=False),
    ),
}
