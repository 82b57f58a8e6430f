"""Many machines: the plan (which nodes), the engine that carries the check to them, and the merge of what came back.

The list of nodes that was asked for is written down before anything starts, and is the truth: each of them has a row in
the end, with a verdict or with the reason why there is no report. The name of a node comes from the engine, never from
its report: nodes of one image may share a host name.
"""
