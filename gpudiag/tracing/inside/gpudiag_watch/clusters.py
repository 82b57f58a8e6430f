"""The cluster that a process joins: TensorFlow waits there until its other tasks answer."""

from .lines import hide_our_frames, line_of_program
from .notes import cut, guarded, missing, note, replace, state

_MOST_TASKS = 256


def watch_joining(context_class) -> None:
    for name in ("enable_collective_ops", "set_server_def"):
        original = getattr(context_class, name, None)
        if original is None:
            missing("Context.%s" % name, "for which tasks of TF_CONFIG the program waits")
        else:
            replace(context_class, name, _joining(original))


def _joining(original):
    def join(self, server_def, *positional, **named):
        guarded(_joins, server_def)
        try:
            return original(self, server_def, *positional, **named)
        except Exception:
            hide_our_frames()
            raise

    return join


def _joins(server_def) -> None:
    """Note the tasks before TensorFlow connects to them: it may never come back."""
    state.own_devices = "/job:%s/replica:0/task:%d/device:" % (server_def.job_name, server_def.task_index)
    tasks = [
        ("%s %d" % (job.name, index), cut(address, 300))
        for job in server_def.cluster.job
        for index, address in sorted(job.tasks.items())
    ]
    own = "%s %d" % (server_def.job_name, server_def.task_index)
    note("cluster", task=own, tasks=tasks[:_MOST_TASKS], line=line_of_program(3))
