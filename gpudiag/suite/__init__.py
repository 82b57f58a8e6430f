"""The catalogue as a pytest suite: ``pytest --pyargs gpudiag.suite`` gives an item for every probe and device.

All probes of a session run at once, as in ``gpudiag check``, when the first of their items does: TensorFlow is imported
once, and probes that may share a GPU run at the same time. The items report the results. With pytest-xdist the first
worker that reaches an item runs all probes for all workers. ``-k`` chooses among the probes; deselected probes do not
run. The item ``verdict`` fails unless every GPU was verified, so that a suite of skipped probes is not green.
"""
