"""What a deployment expects of a machine: read from a file, compared with a report, written from a good one.

An expectation is an entry of :data:`gpudiag.expectations.keys.KEYS`: what is looked at, and how it is compared. Each
one that a file sets is a row of the report, ``expect.<key>``; what is not met, or not known, is a finding. So every
format shows it, and the verdict counts it, as any other finding.
"""
