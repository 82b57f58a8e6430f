"""A deployment's expectations of a machine: read from a file, compared with a report, written from a good one.

An expectation is an entry of :data:`gpudiag.expectations.keys.KEYS`: a value of the report, and its comparison. Each
one that a file sets is a row of the report, ``expect.<key>``; an unmet or unknown one is a finding. So every format
shows it, and the verdict counts it, like any other finding.
"""
