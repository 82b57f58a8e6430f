"""GPUs that are there and hidden."""

from __future__ import annotations

from corpus import Item

ITEMS = (
    Item(
        41,
        "CUDA_VISIBLE_DEVICES hides everything",
        rule="mask_hides_all",
        fix="unset CUDA_VISIBLE_DEVICES",
        machine="2x16GiB",
        variables={"CUDA_VISIBLE_DEVICES": "7"},
        tried="works",
    ),
)
