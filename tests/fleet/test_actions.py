"""What has to be done in a fleet: actions summed by kind and place."""

from __future__ import annotations

from gpudiag.fix import Action, Kind, Where, ask, edit_note, export, note, reboot, reset_gpu, run
from gpudiag.fleet.actions import summed
from gpudiag.fleet.nodes import NodeTable
from gpudiag.model.fleet import ActionSum, ActionText, Answer, NoReport, Summary
from gpudiag.model.report import Verdict
from gpudiag.report.fleet import words


def sums_of(*nodes: tuple[Action, ...]) -> tuple[ActionSum, ...]:
    """Return the sums for nodes n0, n1 ... with these actions."""
    table = NodeTable()
    for number, actions in enumerate(nodes):
        summary = Summary("0.1.0", "", 1.0, "quick", Verdict.FAIL, "", actions=actions)
        table.add(Answer(f"n{number}", summary=summary))
    return summed(table)


def test_a_fleet_in_which_nothing_has_to_be_done() -> None:
    assert sums_of((), ()) == ()


def test_the_same_command_is_given_once_with_its_nodes() -> None:
    assert sums_of((reboot(),), (reboot("after the upgrade"),), ()) == (
        ActionSum("reboot", "here", "n[0-1]", 2, (ActionText("sudo reboot", True, 2),)),
    )


def test_commands_that_differ_are_summed_by_kind_the_most_frequent_first() -> None:
    (found,) = sums_of((reset_gpu("0"),), (reset_gpu("3"),), (reset_gpu("3"),))
    assert (found.kind, found.number, found.nodes) == ("reset a GPU", 3, "n[0-2]")
    assert found.texts == (
        ActionText("sudo nvidia-smi --gpu-reset -i 3", True, 2),
        ActionText("sudo nvidia-smi --gpu-reset -i 0", True, 1),
    )


def test_a_node_counts_once_in_a_kind_and_in_each_of_several_kinds() -> None:
    found = sums_of((reset_gpu("0"), reset_gpu("1"), reboot()), (reboot(),))
    assert [(one.kind, one.number) for one in found] == [("reboot", 2), ("reset a GPU", 1)]


def test_kinds_that_say_nothing_are_summed_by_command() -> None:
    found = sums_of((run("a"),), (run("b"),), (run("b"),))
    assert [(one.texts[0].text, one.number) for one in found] == [("b", 2), ("a", 1)]


def test_the_place_matters() -> None:
    here, host = run("x", kind=Kind.CONFIGURE), run("x", kind=Kind.CONFIGURE, where=Where.HOST)
    assert [(one.where, one.nodes) for one in sums_of((here,), (host,))] == [("here", "n0"), ("host", "n1")]


def test_what_has_no_command_has_its_sentence() -> None:
    found = sums_of((note("Replace the card.", kind=Kind.REPLACE_HARDWARE),), (edit_note("Ask for memory growth."),))
    assert {(one.kind, *one.texts) for one in found} == {
        ("replace hardware", ActionText("Replace the card.", False, 1)),
        ("edit the program", ActionText("Ask for memory growth.", False, 1)),
    }


def test_an_action_that_changes_variables_is_summed_too() -> None:
    (found,) = sums_of((export("CUDA_VISIBLE_DEVICES", "0"),), (export("CUDA_VISIBLE_DEVICES", "0"),))
    assert (found.kind, found.texts) == ("set a variable", (ActionText("export CUDA_VISIBLE_DEVICES=0", True, 2),))


def test_nodes_without_a_report_need_what_their_reason_says() -> None:
    table = NodeTable(["n1", "n2", "n3", "n4"])
    for node, reason in (("n1", NoReport.NO_GPUDIAG), ("n2", NoReport.NO_GPUDIAG), ("n3", NoReport.CUT_SHORT)):
        table.add(Answer(node, 1, reason))
    install = ActionText(
        "Install gpudiag there, say where it is with --gpudiag, or carry it there with --ship.", False, 2
    )
    assert summed(table) == (ActionSum("install", "here", "n[1-2]", 2, (install,)),)
    table.add(Answer("n1", 2, summary=Summary("0.1.0", "", 1.0, "quick", Verdict.PASS, "")))
    assert [found.nodes for found in summed(table)] == ["n2"]


def test_what_is_to_do_is_said_in_words() -> None:
    actions = (ask("gpudiag list"), note("It is so."), edit_note("Ask for memory growth."), run("x", where=Where.HOST))
    assert {words.action(found) for found in sums_of(actions)} == {
        "check",
        "to know",
        "edit the program",
        "run a command on the host",
    }
