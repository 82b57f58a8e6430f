"""What a program does with its GPUs: it is started with a watcher inside, whose notes become a report.

``inside/`` is what runs in the program's processes and knows nothing of gpudiag; all else runs in gpudiag's own. The
room is not called ``trace``, because ``gpudiag.trace`` is the function for a part of a program.
"""
