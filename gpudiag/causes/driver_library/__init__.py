"""The driver's library ``libcuda.so.1``."""
