"""Stands for the catalogue where pytest collects files; see :mod:`gpudiag.suite.conftest`."""
