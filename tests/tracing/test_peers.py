"""Which tasks of a cluster answer: real connections, to this machine."""

from __future__ import annotations

import socket

from gpudiag.hardware.peers import asked
from gpudiag.tracing import gather, peers
from gpudiag.tracing.notes import Note, Notes

TASKS = [("worker 0", "localhost:1"), ("worker 1", "localhost:2"), ("ps 0", "localhost:3")]
JOINS: Note = {"k": "cluster", "t": 3.0, "task": "worker 0", "tasks": TASKS, "line": "train.py:5"}
START: Note = {"k": "process", "t": 1.0, "pid": 7, "parent": 1, "how": "started", "command": ["p"], "python": "3.11.7"}
MADE: Note = {"k": "initialised", "t": 4.0, "line": "train.py:5", "devices": [], "options": {}, "gpus": []}


def _notes(*notes: Note) -> Notes:
    return Notes((START, *notes), (), 0, 0.0, 0)


def test_only_what_accepts_a_connection_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listens, socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        open_, shut = (f"127.0.0.1:{sock.getsockname()[1]}" for sock in (listens, deaf))
        answers = asked([open_, shut, "no port", "[::1]:x", "127.0.0.1:99999"])
    assert answers.pop(open_) == ""
    assert answers.pop(shut) == "Connection refused"
    assert len(answers) == 3
    assert all(answers.values())


def test_of_a_program_that_has_ended_its_own_tasks_are_not_asked() -> None:
    first, second = _notes(JOINS), _notes({**JOINS, "task": "worker 1"})
    assert peers.addresses([first], but_own=True) == ["localhost:2", "localhost:3"]
    assert peers.addresses([first, second], but_own=True) == ["localhost:3"]
    assert set(peers.addresses([first, second], but_own=False)) == {"localhost:1", "localhost:2", "localhost:3"}


def test_a_cluster_is_joined_if_its_devices_were_made_later() -> None:
    for notes, joined in (((JOINS,), False), ((MADE, JOINS), False), ((JOINS, MADE), True)):
        trace = gather.gathered([_notes(*notes)], ("p",), "", 1.0, 9.0, answers={"localhost:2": "Connection refused"})
        (cluster,) = trace.clusters
        assert (cluster.joined, cluster.line, cluster.at_s) == (joined, "train.py:5", 2.0)
        assert [(peer.task, peer.answer) for peer in cluster.peers] == [
            ("worker 1", "Connection refused"),
            ("ps 0", None),
        ]
        assert [peer.task for peer in cluster.silent] == ["worker 1"]
