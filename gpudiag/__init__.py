"""GPU configuration diagnostics and test harness for TensorFlow.

PYTEST_DONT_REWRITE: anyone who imports gpudiag before pytest is not to be warned of it; no assertion here is a test's.
"""

__version__ = "0.1.0"
