"""Examples of causes: what `gpudiag trace` noted of programs."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from examples import Example
from examples.facts import example
from gpudiag.cause import Evidence
from gpudiag.fix import Action, edit
from gpudiag.knowledge.variables import FORCE_GROWTH
from gpudiag.model.facts import Distribution, EnvironmentFacts, TensorflowFacts
from gpudiag.model.program import (
    WITHOUT_EFFECT,
    Booked,
    Cluster,
    ClusterTask,
    Copies,
    DeviceBlock,
    FailedLine,
    Function,
    GpuUse,
    Holder,
    MadeDevice,
    NotCompiled,
    OutOfMemory,
    Placed,
    Process,
    ProgramTrace,
    Replicas,
    Setting,
    SettingFate,
    Waited,
)

GIB = 1 << 30
GPU = MadeDevice("GPU:0", 6 * GIB, "0", GIB)
PROCESS = Process(
    7, 1, "started", ("python", "train.py"), "3.11.7", 0.1, "2.21.0", devices=(MadeDevice("CPU:0", 0), GPU), last_s=9.0
)
TRACE = ProgramTrace(("python", "train.py"), "exit status 0", 10.0, (PROCESS,))
"""A program that did nothing wrong."""
LINE = "/home/you/train.py:12"


_FAILED = FailedLine(LINE, "tf.config.set_memory_growth(gpus[1], True)", "index_beyond_mask", "GPU 1 is hidden")
_RAISED = (f'  File "{LINE[:-3]}", line 12, in <module>', "    " + _FAILED.text, "IndexError: list index out of range")


def _of(**changed: Any) -> Evidence:
    return Evidence(example(), traced=replace(TRACE, **changed))


def _setting(fate: SettingFate, instead: Action | None = None) -> Evidence:
    return _of(settings=(Setting("memory_growth", "GPU:0=True", LINE, fate, "because", instead, 7),))


def _placed(why: str, device: str = "CPU:0", **changed: Any) -> Evidence:
    return _of(placed=(Placed("MatMul", device, 5, "GPU:0", LINE, "", why, 7),), **changed)


def _chosen(backend: str, *packages: Distribution, where: str = "KERAS_BACKEND", keras: str = "3.15.0") -> Evidence:
    environment = EnvironmentFacts({}, keras_backend=backend, keras_backend_from=where)
    installed = example().tensorflow
    assert isinstance(installed, TensorflowFacts)
    companions = (Distribution("keras", keras, "/site"),)
    installed = replace(installed, companions=companions, frameworks=packages)
    return Evidence(example(environment=environment, tensorflow=installed))


_JAX, _PLUGIN = Distribution("jax", "0.8.0", "/site"), Distribution("jax-cuda12-plugin", "0.8.0", "/site")


def _silent(error: str) -> Evidence:
    cluster = '{"cluster": {"worker": 2}, "task": {"type": "worker", "index": 0}}'
    silent = {"worker 1": error} if error else {}
    return Evidence(example(environment=EnvironmentFacts({"TF_CONFIG": cluster}, silent_tasks=silent)))


_SILENT = ClusterTask("worker 1", "10.0.0.2:2222", "Connection refused")
_CLUSTER = Cluster("worker 0", LINE, 2.0, joined=False, peers=(_SILENT,), process=7)
_BESIDE = replace(
    _CLUSTER,
    joined=True,
    address="localhost:1",
    peers=(ClusterTask("worker 1", "localhost:2"), ClusterTask("ps 0", "localhost:3")),
)
_GROWTH = Setting("memory_growth", "GPU:0=True", LINE, SettingFate.TOOK_EFFECT, process=7)
_ENDED = "still running after 60 s; ended by gpudiag, killed by SIGTERM"
_FORKED = replace(PROCESS, pid=8, parent=7, how="forked", forked_when="initialised", used_after_fork=LINE, devices=())
_RANK = replace(PROCESS, pid=8, rank="LOCAL_RANK=1", mask="0")
_FULL = OutOfMemory(
    "OOM when allocating", LINE, "GPU:0", 2 * GIB, 5 * GIB, 6 * GIB, (Holder("tensor", "GPU:0", GIB, 3),)
)
_READ = Copies("to host", LINE, 5000, 20000, process=7)
_EAGERLY = Setting("run_functions_eagerly", "False", LINE, SettingFate.TOOK_EFFECT, process=7)
_LIMIT = Setting("logical_devices", "GPU:0=[6144]", LINE, SettingFate.TOOK_EFFECT, process=7)
_SHARE = Setting("session", "per_process_gpu_memory_fraction=0.5", LINE, SettingFate.TOOK_EFFECT, process=7)
_CARD = Booked(0, 12 * GIB, 0, 7 * GIB)
_IDLE = replace(_CARD, idle_s=90.0, watched_s=100.0)
_OF_STRATEGY = 'RuntimeError: Need to be inside "with strategy.scope()" for <MirroredStrategy object at 0x7f37>'
_STEP_BACK = Placed("AssignSubVariableOp", "GPU:0", 4, process=7)
_REPLICAS = Replicas("MirroredStrategy", LINE, ("GPU:0", "GPU:1"), ("CPU:0", "GPU:0", "GPU:1"), 7)
_ON_GPU = Placed("MatMul", "GPU:0", 10, "", process=7)
_ON_CPU = Placed("MatMul", "CPU:0", 500, "CPU:0", LINE, "", "scope", 7)
_ON_HOST = Placed("AddV2", "GPU:0", 50, "GPU:0", LINE, "", "host", 7, 1 << 20, "int32")
_TYPE = Placed("MatMul", "CPU:0", 50, "GPU:0", LINE, "", "type", 7, 1 << 20, "int64")
_MAP = Placed("ParallelMapDatasetV2", "CPU:0", 1, "GPU:0", LINE, "", "cpu only", 7)
_STEP = Function("step", LINE, 1, 9, {"GPU:0": 3}, process=7)
_SECOND = replace(GPU, name="GPU:1", gpu="1", peak_bytes=0)
_TWO = replace(PROCESS, devices=(*PROCESS.devices, _SECOND))
_RAN_NOTHING = replace(_REPLICAS, runs=0)
_MIXED = replace(_RAN_NOTHING, variables=2, outside=(f"{LINE[:-3]}:9",))
_MOVED = Copies("between GPUs", LINE, 200, 200 << 10, process=7)
_ELSEWHERE = replace(_STEP, scopes={"GPU:1": ("GPU:0", "CPU:0")})

_SPLIT = Setting("logical_devices", "GPU:0=[1024, 1024]", LINE, SettingFate.TOOK_EFFECT, process=7)
_ON_SECOND_PART = Placed("MatMul", "GPU:1", 5, "GPU:1", LINE, process=7)


def _with(*cards: str) -> Process:
    """Return a process with a device on each of these cards."""
    devices = tuple(MadeDevice(f"GPU:{number}", GIB, pci=f"0000:0{card}:00.0") for number, card in enumerate(cards))
    return replace(PROCESS, devices=devices)


def _moved(**changed: Any) -> Evidence:
    """Return a program whose first GPU has two parts."""
    return _of(processes=(_with("1", "1", "2"),), settings=(_SPLIT,), **changed)


_CPU_PROCESS = replace(PROCESS, devices=(MadeDevice("CPU:0", 0),), operations=9)
_HIDES = Setting(
    "CUDA_VISIBLE_DEVICES", "'-1'", "/home/you/data.py:3", SettingFate.TOOK_EFFECT, "seen", process=7, by_import=LINE
)
_HIDDEN = GpuUse(0, 7, unused="hidden by data.py:3", line="/home/you/data.py:3", is_hidden=True)
_FIRST_RANK = replace(PROCESS, mask="0", operations=9)
_SECOND_RANK = replace(_CPU_PROCESS, pid=8, mask="1")
_NONE_OF_ONE = Setting("visible_devices", "GPU=[]", LINE, SettingFate.TOOK_EFFECT, "seen", process=8)
_WEIGHTS = DeviceBlock("/CPU:0", LINE, 7, variables=8)
_COPYING = Function("step", LINE, 1, 9, {"GPU:0": 9}, copies=20, process=7, types=("MatMul",), cpu_variables=8)
EXAMPLES: dict[str, tuple[Example, ...]] = {
    "setting_without_effect": (
        *(Example(fate.value, _setting(fate)) for fate in (*WITHOUT_EFFECT, SettingFate.OTHER_EFFECT)),
        Example("instead", _setting(SettingFate.IGNORED, edit("tf.config.set_soft_device_placement(False)"))),
        Example("it took effect", _setting(SettingFate.TOOK_EFFECT), fires=False),
        Example("it was set again", _setting(SettingFate.REPLACED), fires=False),
        Example("no program was traced", Evidence(example()), fires=False),
    ),
    "gpu_asked_for_not_used": (
        Example("on the CPU", _placed("asked")),
        Example("on another GPU", _placed("asked", "GPU:0")),
        Example("there is no kernel for GPUs", _placed("cpu only"), fires=False),
        Example("the program asked for the CPU", _placed("scope"), fires=False),
        Example(
            "replicas without a GPU say more",
            _placed("asked", "GPU:0", replicas=(replace(_REPLICAS, made=("CPU:0", "GPU:0")),)),
            fires=False,
        ),
    ),
    "gpu_made_and_not_used": (
        Example("the program asks for the CPU", _placed("scope")),
        Example("the variable is on the CPU", _placed("variable")),
        Example("another cause says more", _placed("asked"), fires=False),
        Example("an error ended the program before", _placed("scope", raised=_RAISED), fires=False),
        Example("no GPU was made", _placed("scope", processes=(replace(PROCESS, devices=()),)), fires=False),
        Example(
            "a function used it",
            _placed("scope", functions=(Function("step", LINE, 1, 9, {"GPU:0": 3}, process=7),)),
            fires=False,
        ),
    ),
    "forked_after_initialisation": (
        Example("it uses TensorFlow", _of(processes=(PROCESS, _FORKED))),
        Example(
            "it does not", _of(processes=(PROCESS, replace(_FORKED, used_after_fork="", operations=0))), fires=False
        ),
        Example("before", _of(processes=(PROCESS, replace(_FORKED, forked_when="imported"))), fires=False),
        Example(
            "something else had used CUDA",
            _of(
                processes=(
                    PROCESS,
                    replace(
                        _FORKED,
                        forked_when="imported",
                        operations=0,
                        not_made="InternalError: CUDA error: Failed call to cuDeviceGet: CUDA_ERROR_NOT_INITIALIZED: ",
                    ),
                )
            ),
        ),
    ),
    "processes_on_one_gpu": (
        Example("two ranks", _of(processes=(PROCESS, _RANK))),
        Example(
            "two workers of TF_CONFIG",
            _of(processes=tuple(replace(_RANK, pid=7 + n, rank=f"TF_CONFIG: worker {n}") for n in range(2))),
        ),
        Example(
            "a GPU for each", _of(processes=(PROCESS, replace(_RANK, devices=(replace(GPU, gpu="1"),)))), fires=False
        ),
        Example("one after the other", _of(processes=(PROCESS, replace(_RANK, began_s=9.5, last_s=10.0))), fires=False),
        Example("one process", _of(), fires=False),
        Example(
            "a limit for one of them",
            _of(processes=(PROCESS, _RANK), settings=(replace(_LIMIT, process=7),)),
        ),
        Example(
            "a limit for each",
            _of(processes=(PROCESS, _RANK), settings=(replace(_LIMIT, process=7), replace(_LIMIT, process=8))),
            fires=False,
        ),
        Example(
            "growth for all, and a GPU that is free",
            _of(
                processes=(replace(PROCESS, rank="LOCAL_RANK=0"), replace(_RANK, rank="LOCAL_RANK=1")),
                settings=(Setting(FORCE_GROWTH, "'true'", "", SettingFate.TOOK_EFFECT, process=7),),
                booked=(_CARD, replace(_CARD, index=1)),
            ),
        ),
        Example(
            "growth for all",
            _of(
                processes=(PROCESS, _RANK),
                settings=(Setting(FORCE_GROWTH, "'true'", "", SettingFate.TOOK_EFFECT, process=7),),
            ),
            fires=False,
        ),
        Example(
            "a child gets what its parent left",
            _of(
                processes=(
                    replace(PROCESS, made_s=2.0, last_s=3.0),
                    replace(_RANK, parent=7, began_s=4.0, devices=(replace(GPU, total_bytes=8 * GIB, free_bytes=GIB),)),
                )
            ),
        ),
        Example(
            "the parent made its devices later",
            _of(processes=(replace(PROCESS, made_s=9.6), replace(_RANK, parent=7, began_s=9.5, last_s=9.5))),
            fires=False,
        ),
    ),
    "logical_devices_moved_gpu": (
        Example("with tf.device", _moved(placed=(_ON_SECOND_PART,))),
        Example("by a strategy", _moved(replicas=(replace(_REPLICAS, process=7),))),
        Example(
            "the second GPU is used",
            _moved(placed=(_ON_SECOND_PART, replace(_ON_SECOND_PART, device="GPU:2"))),
            fires=False,
        ),
        Example("no number was asked for", _moved(placed=(replace(_ON_SECOND_PART, asked=""),)), fires=False),
        Example("one device for each GPU", _of(placed=(_ON_SECOND_PART,), processes=(_with("1", "2"),)), fires=False),
    ),
    "tasks_do_not_answer": (
        Example("one is waited for", _of(clusters=(_CLUSTER,), ended=_ENDED)),
        Example("one does not listen, and no program waits for it", _silent("Connection refused"), fires=False),
        Example("two are waited for", _of(clusters=(replace(_CLUSTER, peers=(_SILENT, _SILENT)),), ended=_ENDED)),
        Example("one has ended since", _of(clusters=(replace(_CLUSTER, joined=True),), ended=_ENDED)),
        Example("one ended before this one", _of(clusters=(replace(_CLUSTER, joined=True),)), fires=False),
        Example(
            "all accept connections",
            _of(clusters=(replace(_CLUSTER, peers=(replace(_SILENT, answer=""),)),), ended=_ENDED),
            fires=False,
        ),
        Example(
            "none was asked",
            _of(clusters=(replace(_CLUSTER, peers=(replace(_SILENT, answer=None),)),), ended=_ENDED),
            fires=False,
        ),
    ),
    "workers_on_one_host": (
        Example("another on the same host", _of(clusters=(_BESIDE,), booked=(_CARD,))),
        Example("the address in numbers", _of(clusters=(replace(_BESIDE, address="127.0.0.1:1"),), booked=(_CARD,))),
        Example("another host", _of(clusters=(_CLUSTER,), booked=(_CARD,)), fires=False),
        Example("a GPU is left", _of(clusters=(_BESIDE,), booked=(_CARD, replace(_CARD, index=1))), fires=False),
        Example(
            "growth",
            _of(clusters=(_BESIDE,), booked=(_CARD,), settings=(_GROWTH,)),
            fires=False,
        ),
        Example("both were traced", _of(clusters=(_BESIDE, _BESIDE), booked=(_CARD,)), fires=False),
        Example("no GPU", _of(clusters=(replace(_BESIDE, process=9),), booked=(_CARD,)), fires=False),
    ),
    "replicas_without_own_gpu": (
        Example("a GPU is hidden", _of(replicas=(replace(_REPLICAS, made=("CPU:0", "GPU:0")),))),
        Example("a GPU for each", _of(replicas=(_REPLICAS,)), fires=False),
    ),
    "program_ran_out_of_memory": (
        Example("more than is free", _of(out_of_memory=(_FULL,))),
        Example("a limit of its own", _of(out_of_memory=(_FULL,), settings=(_LIMIT,), booked=(_CARD,))),
        Example("a fraction of its own", _of(out_of_memory=(_FULL,), settings=(_SHARE,), booked=(_CARD,))),
        Example("another process", _of(out_of_memory=(_FULL,), booked=(replace(_CARD, before_bytes=3 * GIB),))),
        Example("in pieces", _of(out_of_memory=(replace(_FULL, used_bytes=GIB),))),
        Example("larger than the GPU", _of(out_of_memory=(replace(_FULL, asked_bytes=9 * GIB),))),
        Example("nothing is said of sizes", _of(out_of_memory=(replace(_FULL, asked_bytes=0),))),
        Example("no error", _of(), fires=False),
    ),
    "mostly_on_cpu": (
        Example("the program asks for the CPU", _of(placed=(_ON_CPU, _ON_GPU))),
        Example(
            "in a function",
            _of(placed=(replace(_ON_CPU, count=60, function="step"), _ON_GPU), functions=(replace(_STEP, devices={}),)),
        ),
        Example("few", _of(placed=(replace(_ON_CPU, count=20), _ON_GPU)), fires=False),
        Example("more ran on a GPU", _of(placed=(_ON_CPU, replace(_ON_GPU, count=500))), fires=False),
        Example("without a kernel for GPUs", _of(placed=(replace(_ON_CPU, why="cpu only"), _ON_GPU)), fires=False),
        Example("no GPU", _of(placed=(_ON_CPU,), processes=(replace(PROCESS, devices=()),)), fires=False),
    ),
    "computed_in_host_memory": (
        Example("large integers", _of(placed=(_ON_HOST,))),
        Example("small ones", _of(placed=(replace(_ON_HOST, largest_bytes=0),)), fires=False),
        Example("by Keras", _of(placed=(replace(_ON_HOST, direct=False),)), fires=False),
        Example("one large constant", _of(placed=(replace(_ON_HOST, op="Const", count=1),))),
        Example("few", _of(placed=(replace(_ON_HOST, count=3, largest_bytes=1 << 17),)), fires=False),
    ),
    "no_kernel_for_gpu": (
        Example("of this type", _of(placed=(_TYPE,))),
        Example("of any type", _of(placed=(replace(_TYPE, op="StringLower", why="cpu only", types=""),))),
        Example("no GPU was asked for", _of(placed=(replace(_TYPE, asked=""),)), fires=False),
        Example("by Keras", _of(placed=(replace(_TYPE, direct=False),)), fires=False),
        Example("a dataset", _of(placed=(_MAP,)), fires=False),
    ),
    "dataset_on_gpu": (
        Example("a function is mapped", _of(placed=(_MAP,))),
        Example("no function", _of(placed=(replace(_MAP, op="BatchDatasetV2"),)), fires=False),
        Example("by Keras", _of(placed=(replace(_MAP, direct=False),)), fires=False),
        Example("no GPU was asked for", _of(placed=(replace(_MAP, asked=""),)), fires=False),
    ),
    "strategy_ran_nothing": (
        Example("a model outside of its scope", _of(replicas=(_RAN_NOTHING,), functions=(_STEP,))),
        Example("it ran", _of(replicas=(replace(_RAN_NOTHING, runs=1),), functions=(_STEP,)), fires=False),
        Example("not known", _of(replicas=(_REPLICAS,), functions=(_STEP,)), fires=False),
        Example("only asked", _of(replicas=(replace(_RAN_NOTHING, is_held=False),), functions=(_STEP,)), fires=False),
        Example(
            "another strategy ran",
            _of(replicas=(_RAN_NOTHING, replace(_REPLICAS, runs=2)), functions=(_STEP,)),
            fires=False,
        ),
        Example("nothing was trained", _of(replicas=(_RAN_NOTHING,)), fires=False),
        Example("an optimizer ran, without a function", _of(replicas=(_RAN_NOTHING,), placed=(_STEP_BACK,))),
        Example("variables of both meet", _of(replicas=(_MIXED,), raised=(_OF_STRATEGY,))),
        Example("all variables are its own", _of(replicas=(_REPLICAS,), raised=(_OF_STRATEGY,)), fires=False),
        Example(
            "another error", _of(replicas=(_MIXED,), raised=("ValueError: shapes (8, 4) and (3, 2)",)), fires=False
        ),
        Example("one GPU", _of(replicas=(replace(_RAN_NOTHING, devices=("GPU:0",)),), functions=(_STEP,)), fires=False),
        Example(
            "a coordinator gives work",
            _of(replicas=(replace(_RAN_NOTHING, strategy="ParameterServerStrategyV2"),), functions=(_STEP,)),
            fires=False,
        ),
    ),
    "gpu_never_used": (
        Example(
            "one of two in the mask",
            _of(
                processes=(_TWO,),
                functions=(_STEP,),
                settings=(Setting("CUDA_VISIBLE_DEVICES", "'0,1'", "", SettingFate.TOOK_EFFECT),),
            ),
        ),
        Example(
            "one of two that are visible",
            _of(
                processes=(_TWO,),
                functions=(_STEP,),
                settings=(Setting("visible_devices", "GPU=[GPU:0, GPU:1]", LINE, SettingFate.TOOK_EFFECT, process=7),),
                booked=tuple(replace(_CARD, index=index) for index in range(3)),
            ),
        ),
        Example("one of two, and none was asked for", _of(processes=(_TWO,), functions=(_STEP,)), fires=False),
        Example(
            "a strategy on one of two, and much memory of the other",
            _of(
                processes=(_TWO,),
                functions=(_STEP,),
                replicas=(replace(_REPLICAS, devices=("GPU:0",), runs=1),),
                booked=(replace(_CARD, index=1, processes=((7, 5 * GIB),)),),
            ),
        ),
        Example(
            "it holds tensors",
            _of(processes=(replace(_TWO, devices=(GPU, replace(_SECOND, peak_bytes=9))),), functions=(_STEP,)),
            fires=False,
        ),
        Example("no GPU worked", _of(processes=(_TWO,)), fires=False),
        Example("some notes are lost", _of(processes=(replace(_TWO, lost=1),), functions=(_STEP,)), fires=False),
        Example("one GPU", _of(functions=(_STEP,)), fires=False),
    ),
    "copies_between_gpus": (
        Example("one by one", _of(copies=(_MOVED,))),
        Example("large", _of(copies=(replace(_MOVED, count=2, bytes=1 << 30),))),
        Example("in a function", _of(copies=(replace(_MOVED, function="step"),))),
        Example("few", _of(copies=(replace(_MOVED, count=9),)), fires=False),
        Example("of a strategy", _of(copies=(_MOVED,), replicas=(_REPLICAS,)), fires=False),
        Example("to the host", _of(copies=(replace(_MOVED, direction="to host"),)), fires=False),
    ),
    "function_on_another_gpu": (
        Example("it names a GPU", _of(functions=(_ELSEWHERE,))),
        Example("it ran there", _of(functions=(replace(_ELSEWHERE, scopes={"GPU:0": ("GPU:0",)}),)), fires=False),
        Example(
            "partly there", _of(functions=(replace(_ELSEWHERE, scopes={"GPU:1": ("GPU:0", "GPU:1")}),)), fires=False
        ),
        Example("no GPU was asked for", _of(functions=(_STEP,)), fires=False),
    ),
    "keras_computes_elsewhere": (
        Example("torch", _of(processes=(replace(PROCESS, keras_backend="torch"),))),
        Example("JAX, on the CPU", _of(processes=(replace(PROCESS, keras_backend="jax", keras_device="cpu"),))),
        Example("TensorFlow", _of(), fires=False),
        Example("JAX for the CPU, without a program", _chosen("jax", _JAX)),
        Example("JAX with CUDA, by a file", _chosen("jax", _JAX, _PLUGIN, where="/home/someone/.keras/keras.json")),
        Example("JAX, which is not installed", _chosen("jax")),
        Example("PyTorch for the CPU", _chosen("torch", Distribution("torch", "2.9.0+cpu", "/site"))),
        Example("NumPy", _chosen("numpy")),
        Example(
            "TensorFlow, as Keras writes it", _chosen("tensorflow", where="/home/someone/.keras/keras.json"), False
        ),
        Example("Keras 2", _chosen("jax", _JAX, keras="2.15.0"), False),
    ),
    "many_small_copies": (
        Example("between GPUs", _of(copies=(replace(_READ, direction="between GPUs", count=90),)), fires=False),
        Example("a value in each step", _of(copies=(_READ,))),
        Example("data piece by piece", _of(copies=(replace(_READ, direction="to device"),))),
        Example("few", _of(copies=(replace(_READ, count=30, bytes=120),)), fires=False),
        Example("large", _of(copies=(replace(_READ, bytes=5000 << 20),)), fires=False),
        Example("by Keras", _of(copies=(replace(_READ, direct=False),)), fires=False),
        Example("in a function", _of(copies=(replace(_READ, function="step"),)), fires=False),
    ),
    "gpu_mostly_idle": (
        Example("it waits for tf.data", _of(booked=(_IDLE,), waited=(Waited(LINE, 900, 50.0, 7),))),
        Example("it waits for Python", _of(booked=(_IDLE,))),
        Example("it is busy", _of(booked=(replace(_IDLE, idle_s=20.0),)), fires=False),
        Example("a short program", _of(booked=(replace(_IDLE, idle_s=9.0, watched_s=9.0),)), fires=False),
        Example("a GPU that the program does not use", _of(booked=(replace(_IDLE, index=1),)), fires=False),
        Example("a simulated GPU", _of(booked=(replace(_IDLE, idle_s=None),)), fires=False),
    ),
    "xla_cannot_compile": (
        Example("a string", _of(not_compiled=(NotCompiled("step", LINE, "XLA_GPU_JIT", ("AsString",), 7),))),
        Example("all was compiled", _of(), fires=False),
    ),
    "functions_run_eagerly": (
        Example("on", _of(settings=(replace(_EAGERLY, value="True"),))),
        Example("a model of Keras", _of(settings=(replace(_EAGERLY, what="run_eagerly", value="True"),))),
        Example("off", _of(settings=(_EAGERLY,)), fires=False),
        Example("off again", _of(settings=(replace(_EAGERLY, value="True", fate="replaced"),)), fires=False),
    ),
    "function_traced_again_and_again": (
        Example("a graph for each run", _of(functions=(Function("step", LINE, 8, 9, process=7),))),
        Example("many runs", _of(functions=(Function("step", LINE, 8, 900, process=7),)), fires=False),
        Example("part of another function", _of(functions=(Function("inner", LINE, 8, 0, process=7),)), fires=False),
    ),
    "replicas_given_same_data": (
        Example("a batch", _of(replicas=(replace(_REPLICAS, same=((LINE, LINE, "(32, 10)"),)),))),
        Example("its own part for each", _of(replicas=(_REPLICAS,)), fires=False),
    ),
    "line_cannot_work": (
        Example("as lint explains it", _of(raised=_RAISED, failed_lines=(_FAILED,))),
        Example("lint does not know the line", _of(raised=_RAISED), fires=False),
    ),
    "every_gpu_hidden": (
        Example("by an import", _of(processes=(_CPU_PROCESS,), settings=(_HIDES,), gpus=(_HIDDEN,))),
        Example(
            "although a strategy asks for GPUs",
            _of(
                processes=(_CPU_PROCESS,),
                settings=(replace(_HIDES, by_import=""),),
                gpus=(_HIDDEN,),
                replicas=(replace(_REPLICAS, devices=("GPU:0", "GPU:1"), made=("CPU:0",)),),
            ),
        ),
        Example(
            "a strategy that takes what is visible",
            _of(
                processes=(_CPU_PROCESS,),
                settings=(replace(_HIDES, by_import=""),),
                gpus=(_HIDDEN,),
                replicas=(replace(_REPLICAS, devices=("CPU:0",), made=("CPU:0",)),),
            ),
            fires=False,
        ),
        Example(
            "by the program, which asks for none",
            _of(processes=(_CPU_PROCESS,), settings=(replace(_HIDES, by_import=""),), gpus=(_HIDDEN,)),
            fires=False,
        ),
        Example(
            "masked twice",
            _of(
                processes=(_FIRST_RANK, _SECOND_RANK),
                settings=(_NONE_OF_ONE,),
                gpus=(replace(_HIDDEN, process=8, line=LINE),),
            ),
        ),
        Example("one of two", _of(settings=(_HIDES,), gpus=(_HIDDEN, GpuUse(1, 7, ("GPU:0",), 9))), fires=False),
    ),
    "variables_on_cpu": (
        Example("a whole model", _of(scopes=(_WEIGHTS,), functions=(_COPYING,))),
        Example("a table", _of(scopes=(replace(_WEIGHTS, variables=1),), functions=(_COPYING,)), fires=False),
        Example("of another", _of(scopes=(_WEIGHTS,), functions=(replace(_COPYING, cpu_variables=0),)), fires=False),
    ),
}
