"""``gpudiag lint``: finds silent misuse of GPU settings in Python sources and notebooks, without executing them.

``sources`` finds and reads files, ``project`` knows which file another imports, ``program`` follows a program in the
order in which Python would run it, ``values`` has the possible values of an expression, ``rules`` has one file for each
rule (its contract is in ``rule``), ``check`` runs the rules, ``fixes`` writes their fixes, and ``formats`` has one file
for each output format.
"""
