"""GPUs that are not listed, are listed as others, compute wrongly or slowly."""

from __future__ import annotations

import os
import time
from typing import Any

from sabotages import found_as
from sabotages.tools import (
    PRODUCTS,
    SECOND_GPU,
    around_ops,
    context,
    falsify,
    in_device_scopes,
    in_environment,
    in_options,
    other_gpus_lead_to_the_first,
    refuse,
    refused,
    wrap,
)

UNEQUAL = "1x16GiB:T4,1x80GiB:H100"


def _without_the_last(original: Any, self: Any, device_type: str | None = None) -> Any:
    listed = original(self, device_type)
    return listed[:-1] if any(device.device_type == "GPU" for device in listed) else listed


@found_as(
    discovery__physical_devices="fewer_listed",
    discovery__trace="fewer_listed",
    discovery__device_details="gpu_not_seen",
)
def one_gpu_is_not_listed() -> None:
    wrap(context(), "list_physical_devices", _without_the_last)
    wrap(context(), "list_logical_devices", _without_the_last)


@found_as(discovery__physical_devices="listing_raised", discovery__trace="raised")
def listing_raises() -> None:
    refuse(context(), "list_physical_devices", refused)


@found_as(
    discovery__physical_devices="numbered_otherwise",
    discovery__logical_devices="other_gpu",
    discovery__first_op="other_gpu",
)
def gpus_are_made_in_reverse() -> None:
    in_options(lambda options: setattr(options, "visible_device_list", "1,0"))


@found_as(discovery__device_details="capability_differs")
def capability_is_that_of_another_gpu() -> None:
    def around(original: Any, self: Any, device: Any) -> Any:
        return {**original(self, device), "compute_capability": (9, 0)}

    wrap(context(), "get_device_details", around)


@found_as(discovery__device_details="capability_differs")
def details_are_empty() -> None:
    wrap(context(), "get_device_details", lambda *_: {})


@found_as(discovery__device_order="pci_order_differs", machine=UNEQUAL)
def pci_order_is_not_obeyed() -> None:
    in_environment(lambda name, value: None if name == "CUDA_DEVICE_ORDER" else value)
    os.environ.pop("CUDA_DEVICE_ORDER", None)


@found_as(discovery__logical_devices="wrong_result")
def products_are_wrong_on_the_second_gpu() -> None:
    falsify(PRODUCTS, SECOND_GPU)


@found_as(discovery__logical_devices="creation_failed")
def devices_cannot_be_made() -> None:
    refuse(context(), "ensure_initialized", refused)


@found_as(discovery__logical_devices="other_gpu")
def work_goes_to_the_first_gpu() -> None:
    in_device_scopes(other_gpus_lead_to_the_first)


@found_as(discovery__first_op="slow_second")
def every_product_is_slow() -> None:
    def around(compute: Any) -> Any:
        time.sleep(1.5)
        return compute()

    around_ops(PRODUCTS, around)
