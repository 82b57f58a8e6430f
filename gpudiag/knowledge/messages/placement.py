"""Which device an operation was meant for."""

from __future__ import annotations

from gpudiag.knowledge.message import Family

FAMILY = Family("placement", stage="CONFIGURATION")

MIRRORED_DEVICES = FAMILY.sign(
    "mirrored_devices",
    "Using MirroredStrategy with devices ({devices:l})",
    "Using MirroredStrategy with remote devices ({devices:l})",
)
NON_GPU_REPLICAS = FAMILY.fault("non_gpu_replicas", "There are non-GPU devices in `tf.distribute.Strategy`")
DEVICE_NOT_AVAILABLE = FAMILY.fault(
    "device_not_available", "assigned to {:s}device:GPU:{number:d}{:s} but available devices are [{devices:l}]"
)
DEVICE_NOT_SATISFIED = FAMILY.fault(
    "device_not_satisfied",
    "Could not satisfy device specification '{:q}device:GPU:{number:d}'{} All available devices [{devices:l}]",
    "Could not satisfy explicit device specification '{:q}device:GPU:{number:d}'{} All available devices [{devices:l}]",
    "Could not satisfy device specification '{:q}device:GPU:{number:d}'",
    "Could not satisfy explicit device specification '{:q}device:GPU:{number:d}'",
)
DEVICE_UNKNOWN = FAMILY.fault("device_unknown", "GPU:{number:d} unknown device", "GPU:{number:d}{} unknown device")
NO_DEVICE_FOR_SPEC = FAMILY.fault("no_device_for_spec", "Unable to find any devices for spec {:s}device:GPU:{number:d}")
INDEX_NOT_VISIBLE = FAMILY.fault(
    "index_not_visible",
    "'visible_device_list' listed an invalid Device id '{asked:q}'",
    "'visible_device_list' listed an invalid GPU id '{asked:q}'",
    "Could not parse entry in 'visible_device_list': '{asked:q}'",
)
NO_SUCH_ELEMENT = FAMILY.fault(
    "no_such_element", "IndexError: list index out of range", "IndexError: tuple index out of range", seen="Python"
)
