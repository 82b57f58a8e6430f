"""``gpudiag lint``: silent misuse of GPU settings in Python sources and notebooks. Nothing of them is executed.

``sources`` finds and reads files, ``project`` knows which file another imports, ``program`` follows a program in the
order in which Python would run it, ``values`` is what an expression may be, ``rules`` is a rule a file (its contract is
in ``rule``), ``check`` runs them, ``fixes`` writes, and ``formats`` is a format a file.
"""
