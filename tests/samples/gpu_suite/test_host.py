"""Tests that need no GPU."""

import os


def test_the_worker_was_given_its_devices_before_this_module_was_imported():
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == GIVEN


GIVEN = os.environ.get("CUDA_VISIBLE_DEVICES")
