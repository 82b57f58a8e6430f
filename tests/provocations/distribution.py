"""What provokes the probes of the area distribution.

No machine of ours makes NCCL fail: simulated GPUs have none, TensorFlow's ring adds in its place. A slow copy between
the GPUs (``slow_call=cuMemcpyPeerAsync:40``) does bring ``collective_hangs``, ``step_hangs`` and ``op_hangs``; they
take as long as the probes wait, so altered readings stand here.
"""

from __future__ import annotations

from provocations import NOTHING, Altered, OnMachine

_NO_GPU = ("library_missing=libcudnn.so.9",)
_NO_COPY_BACK = ("call_fails=cuMemcpyDtoHAsync_v2:214",)
_FLIPPED = ("memory_corrupted=1@1",)
_HUNG = {"type": "TimeoutError", "message": "it had not ended after 30 s"}
_BOTH_ON_ONE = {"made": {"GPU:0": "0000:01:00.0", "GPU:1": "0000:01:00.0"}}

_ERROR = {"type": "InternalError", "message": "CUDA error"}
_OF_TWO = [3.0, 5.0, 7.0, 9.0, 11.0]
_BOTH = {"GPU:0": _OF_TWO, "GPU:1": _OF_TWO}
_WHOLE = {"device": "GPU:0", "elements": [1.0, 2.0, 3.0, 4.0]}
_THREE = {f"GPU:{number}": f"0000:0{number + 1}:00.0" for number in range(3)}

PROVOCATIONS: tuple[OnMachine | Altered, ...] = (
    OnMachine("distribution.manual_replicas", "gpu_not_seen", faults=_NO_GPU),
    OnMachine("distribution.manual_replicas", "program_raised", faults=_NO_COPY_BACK),
    OnMachine("distribution.manual_replicas", "wrong_result", faults=_FLIPPED),
    Altered("distribution.manual_replicas", "other_gpu", _BOTH_ON_ONE),
    Altered("distribution.manual_replicas", "other_gpu", {"sum.parts.1.pci_bus_id": "0000:01:00.0"}),
    Altered("distribution.manual_replicas", "sum_elsewhere", {"sum.device": "GPU:0"}),
    Altered("distribution.manual_replicas", "wrong_sum", {"sum.total": [22.0, 28.0, 49.0, 64.0]}),
    OnMachine("distribution.mirrored_strategy", "gpu_not_seen", faults=_NO_GPU),
    OnMachine("distribution.mirrored_strategy", "step_raised", faults=_NO_COPY_BACK),
    OnMachine("distribution.mirrored_strategy", "wrong_step", faults=_FLIPPED),
    Altered("distribution.mirrored_strategy", "other_gpu", _BOTH_ON_ONE),
    Altered("distribution.mirrored_strategy", "other_replicas", {"trained.replicas": 1}),
    Altered("distribution.mirrored_strategy", "not_mirrored", {"trained.copies.1.device": "GPU:0"}),
    Altered("distribution.mirrored_strategy", "wrong_step", {"trained.copies.1.weights": [1.0, 2.0]}),
    Altered("distribution.mirrored_strategy", "wrong_step", {"trained.single": [1.0, 2.0]}),
    Altered("distribution.mirrored_strategy", "other_collective", {"collective": "RING"}),
    Altered("distribution.mirrored_strategy", "step_hangs", {"raised": _HUNG, "trained": None}),
    Altered("distribution.mirrored_without_gpus", "refused", {"soft.raised": {"type": "ValueError", "message": ""}}),
    Altered("distribution.mirrored_without_gpus", "other_replicas", {"soft.replicas": 1}),
    Altered("distribution.mirrored_without_gpus", "elsewhere", {"soft.copies": ["CPU:0", "CPU:1"]}),
    Altered("distribution.mirrored_without_gpus", "accepted", {"hard.raised": None}),
    Altered("distribution.mirrored_without_gpus", "other_error", {"hard.raised.type": "RuntimeError"}),
    OnMachine("distribution.towers", "gpu_not_seen", faults=_NO_GPU),
    OnMachine("distribution.towers", "program_raised", faults=_NO_COPY_BACK),
    OnMachine("distribution.towers", "wrong_gradient", faults=_FLIPPED),
    Altered("distribution.towers", "other_gpu", _BOTH_ON_ONE),
    Altered("distribution.towers", "tower_elsewhere", {"runs.0.towers.tower_1": ["GPU:0"]}),
    Altered("distribution.towers", "tower_elsewhere", {"runs.1.towers.tower_1": []}),
    Altered("distribution.towers", "variable_elsewhere", {"runs.0.variable": ["GPU:0"]}),
    Altered("distribution.towers", "wrong_gradient", {"runs.1.average": [1.0, 2.0]}),
    Altered("distribution.towers", "wrong_gradient", {"single": [1.0, 2.0]}),
    OnMachine("distribution.dataset", "gpu_not_seen", faults=_NO_GPU),
    OnMachine("distribution.dataset", "raised", faults=_NO_COPY_BACK),
    Altered("distribution.dataset", "other_gpu", _BOTH_ON_ONE),
    Altered("distribution.dataset", "hangs", {"error": _HUNG, "batches": []}),
    Altered("distribution.dataset", "wrong_parts", {"batches.0.parts.1.elements": [1.0, 2.0]}),
    Altered("distribution.dataset", "wrong_parts", {"batches": []}),
    Altered("distribution.dataset", "other_replicas", {"batches.0.parts": [_WHOLE]}),
    Altered("distribution.dataset", "wrong_sum", {"losses": [1.5, 1.5]}),
    Altered("distribution.dataset", "wrong_sum", {"losses": [3.0, None]}),
    Altered("distribution.dataset", NOTHING, {"losses": []}),  # an older report
    Altered(
        "distribution.dataset",
        "uneven",
        {"batches.0.parts.0.elements": [1.0, 2.0, 3.0], "batches.0.parts.1.elements": [4.0]},
    ),
    Altered("distribution.dataset", "part_elsewhere", {"batches.1.parts.1.device": "GPU:0"}),
    Altered("distribution.dataset", "wrong_sum", {"batches.2.total": 17.0}),
    Altered("distribution.dataset", "wrong_sum", {"batches.2.mean": 4.5}),  # the mean of the means
    Altered("distribution.dataset", "wrong_gather", {"batches.2.gathered": []}),
    # What it is on needs no check if nothing is there.
    Altered("distribution.dataset", NOTHING, {"batches.2.parts.1.device": "CPU:0"}),
    OnMachine("distribution.reduction", "gpu_not_seen", faults=_NO_GPU),
    OnMachine("distribution.reduction", "op_raised", faults=_NO_COPY_BACK),
    OnMachine("distribution.reduction", "none_works", faults=_NO_COPY_BACK),
    # A fault of TensorFlow itself. Strict: a warning about copies alone verifies no GPU.
    OnMachine("distribution.reduction", "gpu_left_out", "3x8GiB", options=("--strict",)),
    Altered("distribution.reduction", "other_gpu", _BOTH_ON_ONE),
    Altered("distribution.reduction", "op_hangs", {"runs.ReductionToOneDevice": {"sums": {}, "raised": _HUNG}}),
    Altered("distribution.reduction", "wrong_sum", {"runs.ReductionToOneDevice.sums.GPU:1": [1.0, 2.0, 3.0, 4.0, 5.0]}),
    Altered(
        "distribution.reduction",
        "sum_elsewhere",
        {"runs.ReductionToOneDevice.sums": {"GPU:0": [3.0, 5.0, 7.0, 9.0, 11.0]}},
    ),
    OnMachine("distribution.collective_matches", "gpu_not_seen", faults=_NO_GPU),
    OnMachine("distribution.collective_matches", "collective_raised", faults=_NO_COPY_BACK),
    OnMachine("distribution.collective_matches", "wrong_sum", faults=_FLIPPED),
    Altered("distribution.collective_matches", "other_gpu", _BOTH_ON_ONE),
    Altered("distribution.collective_matches", "wrong_sum", {"sums.17.wrong": 3}),
    Altered(
        "distribution.collective_matches",
        "sum_elsewhere",
        {"sums.1.device": "GPU:0", "sums.3.device": "GPU:0", "sums.5.device": "GPU:0"},
    ),
    Altered("distribution.collective_matches", "collective_hangs", {"raised": _HUNG}),
    Altered("distribution.collective_matches", "collective_raised", {"raised": _ERROR, "sums": []}),
    Altered("distribution.manual_replicas", "program_raised", {"raised": _ERROR, "sum": None}),
    Altered("distribution.mirrored_strategy", "step_raised", {"raised": _ERROR, "trained": None}),
    Altered("distribution.mirrored_strategy", NOTHING, {"collective": ""}),  # TensorFlow does not say
    Altered("distribution.towers", "program_raised", {"runs.0.raised": _ERROR, "runs.0.average": []}),
    Altered("distribution.towers", NOTHING, {"single": [5.500001, 4.0]}),  # rounded
    Altered("distribution.reduction", "op_raised", {"runs.ReductionToOneDevice": {"sums": {}, "raised": _ERROR}}),
    Altered(
        "distribution.reduction",
        "op_raised, none_works",
        {"runs": {"ReductionToOneDevice": {"sums": {}, "raised": _ERROR}}},
    ),
    Altered("distribution.reduction", NOTHING, {"runs.NcclAllReduce": {"sums": _BOTH, "raised": None}}),
    Altered(
        "distribution.reduction",
        "gpu_left_out",
        {
            "given": list(_THREE.values()),
            "seen": 3,
            "made": _THREE,
            "runs.HierarchicalCopyAllReduce.sums": {**_BOTH, "GPU:2": _OF_TWO},
            "runs.ReductionToOneDevice.sums": {device: [6.0, 9.0, 12.0, 15.0, 18.0] for device in _THREE},
        },
    ),
)
