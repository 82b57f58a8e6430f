"""Messages about the device that an operation was meant for."""

from __future__ import annotations

from gpudiag.fix import ask, edit, edit_note
from gpudiag.knowledge.fault import Stage
from gpudiag.knowledge.message import MessageFamily

FAMILY = MessageFamily("placement", stage=Stage.CONFIGURATION)

MIRRORED_DEVICES = FAMILY.sign(
    "mirrored_devices",
    "Using MirroredStrategy with devices ({devices:l})",
    "Using MirroredStrategy with remote devices ({devices:l})",
)
NON_GPU_REPLICAS = FAMILY.fault(
    "non_gpu_replicas",
    "There are non-GPU devices in `tf.distribute.Strategy`",
    "There is non-GPU devices in `tf.distribute.Strategy`",
)
FAMILY.fault(
    "replicas_not_visible",
    "Some requested devices in `tf.distribute.Strategy` are not visible to TensorFlow: {asked}",
    meaning="a strategy is given GPUs that TensorFlow does not have: it sees none, or fewer than requested",
    fix=(
        ask(
            "python -c 'import tensorflow as tf; print(tf.config.list_physical_devices())'",
            "lists the GPUs that TensorFlow has",
        ),
        ask("gpudiag check", "if TensorFlow has no GPU, or fewer than nvidia-smi -L lists, says why"),
        edit("tf.distribute.MirroredStrategy()", "uses the available GPUs; or lower num_gpus in the program"),
    ),
    seen="2.0-2.21",
)
FAMILY.fault(
    "made_before_the_cluster",
    "was explicitly assigned to /job:localhost/{:s} but available devices are [ /job:{job:w}/{:l}]",
    meaning="a tensor or variable was created before the program joined its cluster: it is on a "
    "device of job localhost, but the devices now belong to job {job}",
    in_general="a tensor or variable was created before the program joined its cluster, and is on a "
    "device of job localhost",
    fix=(
        edit_note(
            "create the strategy (MultiWorkerMirroredStrategy) at the start of the program, before "
            "any dataset, tensor or model"
        ),
        edit_note("build model, optimizer and metrics inside strategy.scope()"),
    ),
    seen="2.0-2.21",
)
NO_KERNEL_FOR_GPU = FAMILY.fault(
    "no_kernel_for_gpu",
    "because no supported kernel for GPU devices is available",
    "Could not satisfy device specification '{:q}GPU{:q}'. enable_soft_placement=0. Supported device types [CPU].",
    "No OpKernel was registered to support Op '{:q}' with these attrs{}device='CPU'",
    meaning="the program puts an operation on the GPU that TensorFlow supports only on the CPU",
    fix=(
        edit(
            "tf.config.set_soft_device_placement(True)",
            "in TensorFlow 1: tf.ConfigProto(allow_soft_placement=True) for the session",
        ),
        edit_note("or put it on the CPU: with tf.device('/CPU:0')"),
    ),
    seen="0.6-2.21",
)
FAMILY.fault(
    "no_kernel_for_cpu",
    "because no supported kernel for CPU devices is available",
    meaning="the program puts an operation on the CPU, for which TensorFlow has a kernel only on other devices",
    fix=(
        edit(
            "tf.config.set_soft_device_placement(True)",
            "in TensorFlow 1: tf.ConfigProto(allow_soft_placement=True) for the session",
        ),
        edit_note("or take the operation out of with tf.device('/CPU:0')"),
        ask("gpudiag check", "if it needs a GPU and TensorFlow lists none: says why"),
    ),
    seen="0.6-2.21",
)
FAMILY.fault(
    "assigned_to_missing_device",
    "Cannot assign a device for operation {operation:s} Operation was explicitly assigned to {device:s}",
    "Cannot assign a device for operation {operation:s} {}was explicitly assigned to {device:s}",
    meaning="the program assigns an operation to {device}, which TensorFlow does not have where it runs",
    in_general="the program assigns an operation to a device that TensorFlow does not have where it runs",
    fix=(
        edit(
            "tf.config.set_soft_device_placement(True)",
            "uses another device; in TensorFlow 1: tf.ConfigProto(allow_soft_placement=True) for the session",
        ),
        ask(
            "python -c 'import tensorflow as tf; print(tf.config.list_physical_devices())'",
            "lists the devices that there are",
        ),
        ask("gpudiag check", "if a GPU is missing from that list: says why"),
    ),
    symptom=True,
    seen="0.6-2.21",
)
NEEDS_GPU = FAMILY.fault(
    "needs_gpu",
    pattern=r"No OpKernel was registered to support Op '?(?P<op>Cudnn\w{1,60})",
    words=("opkernel",),
    seen="1.x-2.21",
)
REGISTERED_DEVICES = FAMILY.sign(
    "registered_devices",
    "Registered devices: [{devices:l}]",
    seen="1.x-2.21",
)
DEVICE_NOT_AVAILABLE = FAMILY.fault(
    "device_not_available",
    "assigned to {:s}device:GPU:{number:d}{:s} but available devices are [{devices:l}]",
)
DEVICE_NOT_SATISFIED = FAMILY.fault(
    "device_not_satisfied",
    "Could not satisfy device specification '{:q}device:GPU:{number:d}'{} All available devices [{devices:l}]",
    "Could not satisfy explicit device specification '{:q}device:GPU:{number:d}'{}available devices: {devices}",
    "Could not satisfy device specification '{:q}device:GPU:{number:d}'",
    "Could not satisfy explicit device specification '{:q}device:GPU:{number:d}'",
)
DEVICE_UNKNOWN = FAMILY.fault("device_unknown", "GPU:{number:d}{} unknown device")
NO_DEVICE_FOR_SPEC = FAMILY.fault(
    "no_device_for_spec",
    "Unable to find any devices for spec {:s}device:GPU:{number:d}",
)
INDEX_NOT_VISIBLE = FAMILY.fault(
    "index_not_visible",
    "'visible_device_list' listed an invalid Device id '{asked:q}'",
    "'visible_device_list' listed an invalid GPU id '{asked:q}'",
    "Could not parse entry in 'visible_device_list': '{asked:q}'",
)
NO_SUCH_ELEMENT = FAMILY.fault(
    "no_such_element",
    "IndexError: list index out of range",
    "IndexError: tuple index out of range",
    seen="Python",
)
