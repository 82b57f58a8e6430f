"""Sessions of TensorFlow 1: their options, and where their graphs ran."""

from .graphs import MOST_GRAPHS, note_graphs
from .lines import hide_our_frames, line_of_program
from .notes import LAST_OP, MOST_CALLED, cut, guarded, like, missing, new_slot, replace, state
from .operations import sample
from .processes import note_first_use
from .settings import session_options, watch_method


def in_session(module) -> None:
    cls = getattr(module, "BaseSession", None)
    if cls is None:
        missing("tensorflow.python.client.session.BaseSession", "options of sessions, and where their graphs ran")
        return
    begun = cls.__init__

    def init(self, *positional, **named):
        if state.is_unused_fork:
            guarded(note_first_use)
        begun(self, *positional, **named)

    replace(cls, "__init__", like(begun, init))
    watch_method(cls, "__init__", session_options, "options of sessions")
    run = getattr(cls, "run", None)
    if run is None:
        missing("BaseSession.run", "where the graphs of sessions ran")
        return

    def watched(self, fetches, feed_dict=None, options=None, run_metadata=None):
        try:
            slot = state.sessions[_key_of_run(self, fetches)]
            state.words[slot] += 1
            state.words[LAST_OP] = slot
            first = None
        except Exception:
            first = _first_run(self, options)
        try:
            if first is None:
                return run(self, fetches, feed_dict, options, run_metadata)
            asked, filled = first
            result = run(self, fetches, feed_dict, asked, filled)
        except Exception:
            hide_our_frames()
            raise
        wanted = options is not None and options.output_partition_graphs
        guarded(_ran_in_session, self, fetches, filled, run_metadata, wanted)
        return result

    watched.__doc__ = run.__doc__
    replace(cls, "run", watched)


def _key_of_run(session, fetches):
    """Return what one kind of run of a session has alone: its graph, and what it fetches."""
    return id(session.graph), _key_of(fetches)


def _key_of(fetches):
    if isinstance(fetches, dict):
        fetches = fetches.values()
    elif not isinstance(fetches, (list, tuple)):
        return fetches if isinstance(fetches, str) else id(fetches)
    return tuple(map(_key_of, fetches))


def _first_run(session, options):
    """Return options and metadata for a run whose graphs are wanted; None for one as it is."""
    if state.is_unused_fork:
        guarded(note_first_use)
    if state.words is None or state.looked_at >= MOST_GRAPHS or getattr(session, "_target", None):
        return None
    try:
        config = getattr(session, "_config", None)
        if config is not None and config.experimental.disable_output_partition_graphs:
            return None
        from tensorflow.core.protobuf import config_pb2

        asked = config_pb2.RunOptions()
        if options is not None:
            asked.CopyFrom(options)
        asked.output_partition_graphs = True
        return asked, config_pb2.RunMetadata()
    except Exception:  # options of another type: TensorFlow itself says what is wrong with them
        return None


def _ran_in_session(session, fetches, filled, metadata, wanted) -> None:
    """Note where the operations of a first run were placed, and give the program what it asked for itself."""
    graphs = list(filled.partition_graphs)
    if metadata is not None:
        if not wanted:
            filled.ClearField("partition_graphs")
        metadata.CopyFrom(filled)
    state.looked_at += 1
    line = line_of_program(3)
    name = "Session.run(%s)" % cut(_fetched(fetches), 60)
    slot = new_slot("session", name, "", "", line, "")
    state.words[slot] += 1
    state.words[LAST_OP] = slot
    key = _key_of_run(session, fetches)
    if len(state.sessions) < MOST_CALLED:
        state.sessions[key] = slot
    graph = session.graph

    def operation_of(node):
        try:
            return graph.get_operation_by_name(node)
        except Exception:
            return None

    def asked_of(node):
        operation = operation_of(node)
        return operation.device if operation is not None else ""

    note_graphs(name, len(state.sessions), graphs, asked_of, operation_of)
    sample()


def _fetched(fetches) -> str:
    if isinstance(fetches, dict):
        fetches = list(fetches.values())
    if isinstance(fetches, (list, tuple)):
        return ", ".join(_fetched(fetch) for fetch in fetches[:8])
    return str(getattr(fetches, "name", fetches)).partition(":")[0]
