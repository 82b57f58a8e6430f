"""What provokes the probes of the area placement.

Where an operation runs is decided by TensorFlow alone: a machine changes the GPUs that it has and what they compute,
the rest is shown by readings. ``memory_corrupted`` flips a bit of what is copied to a GPU: results come out wrong.
"""

from __future__ import annotations

from provocations import Altered, OnMachine

_RAISED = {"type": "InvalidArgumentError", "message": "Could not satisfy device specification"}
_OTHER = {"type": "RuntimeError", "message": "GPU:99 unknown device."}
_VAGUE = {"type": "InvalidArgumentError", "message": "no such thing"}
_NO_GPU = ("cuinit=100",)
_VERIFIED = ("discovery.logical_devices",)  # where no GPU is verified the exit status is 5, whatever else is found
_PINNING = {"TF_EAGER_ENABLE_SMALL_TENSOR_CPU_PINNING": "true"}

PROVOCATIONS: tuple[OnMachine | Altered, ...] = (
    OnMachine("placement.default", "gpu_not_seen", variables={"TF_ENABLED_DEVICE_TYPES": "CPU"}),
    OnMachine("placement.default", "program_raised", faults=("call_fails=cuMemcpyHtoDAsync_v2:700@0",)),
    OnMachine("placement.default", "wrong_result", faults=("memory_corrupted@0",)),
    Altered("placement.default", "on_cpu", {"runs.1.logged": ["CPU:0"]}),
    Altered("placement.default", "not_the_first", {"runs.2.logged": ["GPU:1"]}),
    Altered("placement.default", "not_logged", {"runs.0.logged": []}),
    Altered("placement.default", "other_gpu", {"bus_ids.GPU:0": "0000:02:00.0"}),
    OnMachine("placement.manual", "gpu_not_seen", faults=_NO_GPU),
    OnMachine("placement.manual", "wrong_result", faults=("memory_corrupted@1",)),
    OnMachine("placement.manual", "program_raised", faults=("call_fails=cuMemcpyHtoDAsync_v2:700@1",)),
    Altered("placement.manual", "ran_elsewhere", {"products.1.logged": ["GPU:0"]}),
    Altered("placement.manual", "held_elsewhere", {"products.1.held": "CPU:0"}),
    Altered("placement.manual", "held_elsewhere", {"matrix": "GPU:0"}),
    Altered("placement.manual", "wrong_sum", {"sums.0.correct": False}),
    Altered("placement.manual", "int32_on_device", {"sums.1.held": "GPU:0"}),
    Altered("placement.manual", "other_gpu", {"bus_ids.GPU:1": "0000:01:00.0"}),
    OnMachine("placement.fallback_causes", "gpu_not_seen", faults=_NO_GPU),
    Altered("placement.fallback_causes", "cause_not_told", {"runs.0.hard.raised": _VAGUE}),
    Altered("placement.fallback_causes", "cause_not_told", {"runs.2.hard.logged": ["GPU:0"]}),
    Altered("placement.fallback_causes", "fell_elsewhere", {"runs.1.soft.logged": ["GPU:0"]}),
    Altered("placement.fallback_causes", "raised_instead", {"runs.0.soft.raised": _RAISED}),
    Altered("placement.fallback_causes", "not_logged", {"runs.4.soft.logged": []}),
    Altered("placement.fallback_causes", "wrong_result", {"runs.1.soft.correct": False}),
    Altered("placement.fallback_causes", "wrong_result", {"runs.2.hard.correct": False}),
    OnMachine("placement.silent_cpu", "gpu_not_seen", faults=_NO_GPU),
    OnMachine("placement.silent_cpu", "pinned", variables=_PINNING, options=_VERIFIED),
    OnMachine("placement.silent_cpu", "wrong_value", faults=("memory_corrupted@0",)),
    Altered("placement.silent_cpu", "ran_elsewhere", {"runs.0.logged": ["CPU:0"]}),
    Altered("placement.silent_cpu", "held_elsewhere", {"runs.0.held": "CPU:0"}),
    Altered("placement.silent_cpu", "not_logged", {"runs.0.logged": []}),
    Altered("placement.silent_cpu", "raised_instead", {"runs.0.raised": _RAISED}),
    Altered("placement.silent_cpu", "wrong_value", {"runs.0.result": "[[inf, inf], [inf, 22.0]]"}),
    # No machine reaches the rest: they run on the CPU, without the GPUs, and gpudiag itself sets the level of the log.
    Altered("placement.soft_fallback", "raised_instead", {"runs.0.raised": _RAISED}),
    Altered("placement.soft_fallback", "on_missing_device", {"runs.0.device": "GPU:99", "runs.0.logged": ["GPU:99"]}),
    Altered("placement.soft_fallback", "not_logged", {"runs.1.logged": []}),
    Altered("placement.soft_fallback", "log_disagrees", {"runs.1.logged": ["CPU:1"], "present": ["CPU:0", "CPU:1"]}),
    Altered("placement.soft_fallback", "wrong_result", {"runs.0.correct": False}),
    Altered("placement.soft_switch_ignored", "behaviour_changed", {"attempts.0.raised": _RAISED}),
    Altered("placement.soft_switch_ignored", "behaviour_changed", {"attempts.1.raised": None}),
    Altered("placement.soft_switch_ignored", "behaviour_changed", {"attempts.7.raised": None}),
    Altered("placement.soft_switch_ignored", "behaviour_changed", {"attempts.8.device": "GPU:99"}),
    Altered("placement.soft_switch_ignored", "behaviour_changed", {"attempts.9.logged": ["CPU:0"]}),
    Altered("placement.hard_error", "no_error", {"runs.0.raised": None}),
    Altered("placement.hard_error", "other_type", {"runs.3.raised": _OTHER}),
    Altered("placement.hard_error", "other_text", {"runs.6.raised": _VAGUE}),
    Altered("placement.log", "op_elsewhere", {"runs.0.logged.MatMul": ["CPU:0"]}),
    Altered("placement.log", "op_not_logged", {"runs.2.logged.Sub": []}),
    Altered("placement.log", "program_raised", {"runs.1.raised": _RAISED}),
    Altered("placement.log", "wrong_result", {"runs.1.result": 3.0}),
)
