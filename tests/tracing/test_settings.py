"""What becomes of a setting, from notes alone: why it cannot have its effect, and whether its effect was observed."""

from __future__ import annotations

from typing import Any

import pytest

from gpudiag.knowledge import tensorflow_api as api
from gpudiag.model.program import Booked, Setting
from gpudiag.tracing import settings
from gpudiag.tracing.effects import MASK
from gpudiag.tracing.notes import Note, Notes

MIB = 1 << 20
FIRST = ("0000:01:00.0", "11111111222233334444555555555555", 108, 8192 * MIB, 7792 * MIB)
SECOND = ("0000:02:00.0", "99999999222233334444555555555555", 20, 8192 * MIB, 7792 * MIB)
MACHINE = (Booked(0, 8192 * MIB, 0, 0, pci=FIRST[0]), Booked(1, 8192 * MIB, 0, 0, pci=SECOND[0]))
ONE, TWO = ("/physical_device:GPU:0",), ("/physical_device:GPU:0", "/physical_device:GPU:1")
START: Note = {"k": "process", "t": 0.0, "how": "started", "pid": 7, "parent": 1, "variables": {}}
IMPORTED: Note = {"k": "tensorflow", "t": 1.0, "version": "2.21.0"}
_AT: Note = {"line": "a.py:9", "stage": "imported", "error": ""}


def _listed(*cards: Any, names: tuple[str, ...] = ONE) -> Note:
    """Return the note of the GPUs that the driver shows; none of them is open."""
    shown = [(*card[:4], None) for card in cards]
    return {"k": "listed", "t": 2.0, "line": "a.py:3", "devices": list(names), "cards": shown}


def _made(limits: tuple[float, ...] = (6256,), cards: Any = (FIRST,), **options: Any) -> Note:
    """Return the note of devices with these limits in MiB."""
    devices = [("CPU:0", 0), *((f"GPU:{number}", int(limit * MIB)) for number, limit in enumerate(limits))]
    return {
        "k": "initialised",
        "t": 3.0,
        "line": "a.py:4",
        "devices": devices,
        "options": options,
        "cards": list(cards),
    }


def _memory(*held: int, free: tuple[int, ...] = (7700,)) -> Note:
    """Return a sample: the peak on each device, and what each card has free, in MiB."""
    peaks = [(f"GPU:{number}", 0, peak * MIB) for number, peak in enumerate(held)]
    return {"k": "memory", "t": 4.0, "held": peaks, "free": [left * MIB for left in free]}


def _set(what: str, value: Any, target: str = "", **more: Any) -> Note:
    return {"k": "setting", "t": 2.5, "what": what, "value": value, "target": target, **_AT, **more}


def _session(line: str, limits: tuple[float, ...] = (6256,), cards: Any = (FIRST,), **options: Any) -> Note:
    made = _made(limits, cards)
    return {**_set("session", options, given=True), "line": line, "devices": made["devices"], "cards": made["cards"]}


GROWTH = _set("memory_growth", True, "/physical_device:GPU:0")
LISTED = _listed(FIRST)
GREW, TOOK_ALL = _memory(2, free=(7700,)), _memory(2, free=(1536,))
HIDDEN = _set("visible_devices", [], "GPU")


def _split(*limits: int) -> tuple[Note, Note]:
    """Return the configuration of the first GPU in parts of so many MiB, and the devices that it makes."""
    return _set("logical_devices", list(limits), ONE[0]), _made(limits, virtual_devices=[list(limits)])


def _variable(name: str, value: str | None) -> Note:
    return {"k": "variable", "t": 2.0, "name": name, "value": value, "line": "a.py:9", "stage": ""}


def _ran(kernel: str, asked: str) -> Note:
    """Return the counter of an operation that ran on the CPU."""
    where = {"op": "MatMul", "device": "CPU:0", "asked": asked, "line": "a.py:9", "kernel": kernel}
    return {"k": "counter", "t": 5.0, "slot": 0, "what": "op", **where}


def _judged(*notes: Note, machine: tuple[Booked, ...] = MACHINE[:1], **variables: str) -> list[Setting]:
    started = {**START, "variables": variables}
    return list(settings.judged(Notes((started, *notes), (), 0, 0.0, 0), 7, machine))


def _fates(*notes: Note, machine: tuple[Booked, ...] = MACHINE[:1], **variables: str) -> list[str]:
    return [setting.fate for setting in _judged(*notes, machine=machine, **variables)]


@pytest.mark.parametrize(
    ("notes", "fate"),
    [
        ((IMPORTED, LISTED, GROWTH, _made()), "ignored"),
        ((IMPORTED, LISTED, GROWTH, _made(virtual_devices=[[1]])), "ignored"),
        ((IMPORTED, LISTED, GROWTH), "not reached"),
        (
            (IMPORTED, _made(), {**GROWTH, "error": "RuntimeError: X cannot be modified after being initialized"}),
            "too late",
        ),
        ((IMPORTED, {**GROWTH, "error": "ValueError: Cannot set memory growth on device"}), "refused"),
        ((IMPORTED, _set("list_local_devices", {}), GROWTH, _made(allow_growth=True)), "ignored"),
        ((IMPORTED, LISTED, _variable("CUDA_VISIBLE_DEVICES", "1")), "too late"),
        ((IMPORTED, _variable("TF_ENABLED_DEVICE_TYPES", "CPU")), "too late"),
        ((IMPORTED, LISTED, _made(), _variable("TF_FORCE_GPU_ALLOW_GROWTH", "true")), "too late"),
        ((IMPORTED, _variable("TF_FORCE_GPU_ALLOW_GROWTH", "1"), _made()), "ignored"),
        ((IMPORTED, _variable("TF_GPU_ALLOCATOR", "cuda_malloc_Async"), _made()), "ignored"),
        ((IMPORTED, _variable("TF_FORCE_GPU_ALOW_GROWTH", "true"), _made()), "misspelt"),
        ((IMPORTED, _set("assigned", "False", "tf.config.set_soft_device_placement")), "ignored"),
        ((IMPORTED, _set("session", {"device_count": {"gpu": 0}}, given=True)), "misspelt"),
        ((IMPORTED, LISTED, _set("visible_devices", list(reversed(TWO)), "GPU"), _made()), "ignored"),
        ((IMPORTED, _set("enable_eager_execution", {"allow_growth": True}), _made()), "ignored"),
    ],
)
def test_what_cannot_have_its_effect_is_said_to_have_none(notes: tuple[Note, ...], fate: str) -> None:
    assert _fates(*notes) == [fate]


@pytest.mark.parametrize(
    ("option", "seen", "fate"),
    [
        (GROWTH, (_made(allow_growth=True), GREW), "took effect"),
        (GROWTH, (_made(allow_growth=True), TOOK_ALL), "ignored"),
        (GROWTH, (_made(allow_growth=True), _memory(5000, free=(1000,))), "not checked"),
        (GROWTH, (_made(allow_growth=True),), "not checked"),
        (GROWTH, (_made(allow_growth=True), _memory(0)), "not checked"),
        (_variable("TF_FORCE_GPU_ALLOW_GROWTH", "true"), (_made(), GREW), "took effect"),
        (_variable("TF_FORCE_GPU_ALLOW_GROWTH", "true"), (_made(),), "not checked"),
        (_variable("TF_FORCE_GPU_ALLOW_GROWTH", "false"), (_made(), TOOK_ALL), "took effect"),
        (_split(1024, 512)[0], _split(1024, 512)[1:], "took effect"),
        (_split(1024)[0], (_made(),), "other effect"),
        (_split(6144, 6144)[0], _split(6144, 6144)[1:], "other effect"),
        (_split(1 << 31)[0], _split(1 << 31)[1:], "other effect"),
        (_set("visible_devices", list(ONE), "GPU"), (_made(visible_device_list="0"),), "took effect"),
        (HIDDEN, (_made((), device_count={"GPU": 0}),), "took effect"),
        ({**HIDDEN, "target": "gpu"}, (_made(),), "ignored"),
        (_session("a.py:2", (), device_count={"GPU": 0}), (_ran("plain", ""),), "not checked"),
        (_set("soft_device_placement", False), (_made(),), "not checked"),
        (_set("soft_device_placement", True), (_made(), _ran("asked", "GPU:1")), "took effect"),
        (_set("soft_device_placement", True), (_made(), _ran("type", "GPU:0")), "took effect"),
        (_set("soft_device_placement", True), (_made(), _ran("cpu only", "")), "not checked"),
        (_variable("TF_GPU_THREAD_MODE", "global"), (_made(),), "not checked"),
        (_variable("TF_DEVICE_MIN_SYS_MEMORY_IN_MB", "1000"), (_made((6792,)),), "took effect"),
        (_variable("TF_DEVICE_MIN_SYS_MEMORY_IN_MB", "20000"), (_made(),), "ignored"),
        (_variable("TF_MIN_GPU_MULTIPROCESSOR_COUNT", "foo"), (_made(),), "ignored"),
    ],
)
def test_an_effect_is_what_the_devices_show(option: Note, seen: tuple[Note, ...], fate: str) -> None:
    before = (option, LISTED) if option["k"] == "variable" else (LISTED, option)
    assert _fates(IMPORTED, *before, *seen) == [fate]


@pytest.mark.parametrize(
    ("mask", "cards", "machine", "fate"),
    [
        ("0", (FIRST,), MACHINE, "took effect"),
        ("1", (SECOND,), MACHINE, "took effect"),
        ("1,0", (SECOND, FIRST), MACHINE, "took effect"),
        (" 01, 0", (SECOND, FIRST), MACHINE, "took effect"),
        ("GPU-99999999-2222", (SECOND,), MACHINE, "took effect"),
        ("1", (FIRST,), MACHINE, "other effect"),
        ("0,2,1", (FIRST,), MACHINE, "other effect"),
        ("0,0", (), MACHINE, "other effect"),
        ("all", (), MACHINE, "other effect"),
        ("0", (FIRST, SECOND), MACHINE, "ignored"),
        ("", (), MACHINE, "took effect"),
        (",", (), MACHINE, "other effect"),
        ("1,", (SECOND,), MACHINE, "took effect"),
        ("-1", (), (), "not checked"),
        ("-1", (FIRST,), MACHINE, "ignored"),
        ("0", (FIRST,), (), "not checked"),
        ("0", (), (), "not checked"),
    ],
)
def test_a_mask_took_effect_if_the_driver_shows_the_gpus_that_it_names(
    mask: str, cards: Any, machine: tuple[Booked, ...], fate: str
) -> None:
    listed = _listed(*cards, names=TWO[: len(cards)])
    assert _fates(IMPORTED, _variable("CUDA_VISIBLE_DEVICES", mask), listed, machine=machine) == [fate]


@pytest.mark.parametrize(
    ("mask", "cards", "why"),
    [
        ("0,,,1", (FIRST,), "it names 2, and the CUDA driver shows 1 GPU: the list ends at its first empty entry"),
        ("0,0", (), "it names 2, and the CUDA driver shows no GPUs: a GPU that is named twice hides all"),
        (
            "0,7",
            (FIRST,),
            "it names 2, and the CUDA driver shows 1 GPU: the list ends at '7', which this machine does not have",
        ),
    ],
)
def test_a_mask_ends_at_the_entry_that_is_said(mask: str, cards: Any, why: str) -> None:
    order, listed = _variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID"), _listed(*cards, names=TWO[: len(cards)])
    first, second = _judged(IMPORTED, order, _variable("CUDA_VISIBLE_DEVICES", mask), listed, machine=MACHINE)
    assert second.why == why
    assert first.why == f"the CUDA driver shows {'0000:01:00.0' if cards else 'no GPU'}"


def test_a_blank_in_the_name_of_a_variable_is_seen() -> None:
    (setting,) = _judged(IMPORTED, _variable("CUDA_VISIBLE_DEVICES ", "1"), LISTED, _made())
    assert (setting.what, setting.fate) == ("'CUDA_VISIBLE_DEVICES '", "misspelt")
    assert setting.why == "nothing reads 'CUDA_VISIBLE_DEVICES ': the name has a blank at its end"
    assert setting.instead is not None
    assert setting.instead.note == "without the blank"


def test_of_several_masks_in_one_process_none_is_exported() -> None:
    masks = [_variable("CUDA_VISIBLE_DEVICES", value) for value in ("0", "1")]
    _, late = _judged(IMPORTED, masks[0], LISTED, masks[1], machine=MACHINE)
    assert late.instead is not None
    assert (late.instead.command, late.instead.note) == (
        "",
        "use tf.device for each GPU, or start a process for each: it is read once in a process",
    )
    (late,) = _judged(IMPORTED, LISTED, masks[1], machine=MACHINE)
    assert late.instead is not None
    assert late.instead.command == "export CUDA_VISIBLE_DEVICES=1"


def test_a_mask_that_no_driver_has_read_is_not_checked() -> None:
    not_loaded = {**_listed(names=()), "cards": None}
    for mask in ("-1", "0"):
        assert _fates(IMPORTED, _variable("CUDA_VISIBLE_DEVICES", mask), not_loaded) == ["not checked"]


def test_a_card_that_is_another_than_nvidia_smi_calls_so_is_named() -> None:
    (setting,) = _judged(IMPORTED, _variable("CUDA_VISIBLE_DEVICES", "1"), LISTED, machine=MACHINE)
    assert setting.why == "1 is 0000:01:00.0, which nvidia-smi calls 0: CUDA counts the fastest GPU first"
    assert setting.instead is not None
    assert setting.instead.command == "export CUDA_DEVICE_ORDER=PCI_BUS_ID"


def test_of_two_cards_each_has_its_own_limits() -> None:
    listed = _listed(FIRST, SECOND, names=TWO)
    first, second = _set("logical_devices", [1024] * 2, TWO[0]), _set("logical_devices", [2048], TWO[1])
    made = _made((1024, 1024, 2048), (FIRST, SECOND), virtual_devices=[[1024, 1024], [2048]])
    assert _fates(IMPORTED, listed, first, second, made) == ["took effect"] * 2
    assert _fates(IMPORTED, listed, second, first, _made((6256, 6256), (FIRST, SECOND))) == ["other effect"] * 2


def test_growth_that_is_set_for_each_gpu_before_one_is_chosen_is_no_mistake() -> None:
    listed, second = _listed(FIRST, SECOND, names=TWO), _set("memory_growth", True, TWO[1])
    chosen = _set("visible_devices", [TWO[0]], "GPU")
    made = _made((6256,), (FIRST, (*SECOND[:4], None)), allow_growth=True, visible_device_list="0")
    assert _fates(IMPORTED, listed, GROWTH, second, chosen, made, GREW) == ["took effect", "not checked", "took effect"]
    assert _fates(IMPORTED, listed, second, chosen, made, GREW)[0] == "ignored"


def test_the_options_of_a_second_session_are_compared_with_what_the_first_made() -> None:
    share = {"per_process_gpu_memory_fraction": 0.25}
    first = _session("a.py:4", (2048,), **share)
    on_the_same_line = _session("a.py:4", (2048,), per_process_gpu_memory_fraction=0.8)
    assert _fates(IMPORTED, first, on_the_same_line) == ["took effect", "ignored"]
    assert _fates(IMPORTED, first, _session("a.py:5", (2048,), **share)) == ["took effect"] * 2
    assert _fates(IMPORTED, _session("a.py:4", (6256,), **share)) == ["ignored"]
    full = (*FIRST[:4], 1136 * MIB)
    (taken,) = _judged(IMPORTED, _session("a.py:4", (7372.8,), (full,), per_process_gpu_memory_fraction=0.9))
    assert taken.fate == "other effect"
    assert "1,136 MiB are free" in taken.why


@pytest.mark.parametrize(
    ("options", "limits", "fates"),
    [
        ({"device_count": {"GPU": 1}}, (6256,), ["took effect"]),
        ({"device_count": {"GPU": 5}}, (6256, 6256), ["other effect"]),
        ({"visible_device_list": "0"}, (6256,), ["took effect"]),
        ({"visible_device_list": "1,0"}, (6256, 6256), ["not checked"]),
        ({"virtual_devices": [[1024], [1024]]}, (1024, 1024), ["took effect"]),
        ({"virtual_devices": [[9000], [1024]]}, (9000, 1024), ["other effect"]),
        ({"allow_soft_placement": True, "log_device_placement": True}, (6256, 6256), ["not checked"] * 2),
        ({}, (6256, 6256), []),
    ],
)
def test_each_option_of_a_session_has_its_own_end(options: Any, limits: Any, fates: list[str]) -> None:
    assert _fates(IMPORTED, _session("a.py:4", limits, (FIRST, SECOND), **options)) == fates


def test_a_session_with_a_configuration_of_its_own_does_not_read_tf_config() -> None:
    visible = {**_set("visible_devices", [TWO[1]], "GPU"), "t": 1.5}
    growth = {**_set("memory_growth", value=True, target=TWO[1]), "t": 1.6}
    listed = _listed(FIRST, SECOND, names=TWO)
    own = {**_session("a.py:4", (6256, 6256), (FIRST, SECOND), per_process_gpu_memory_fraction=0.8), "given": True}
    hidden, grown, _ = _judged(IMPORTED, listed, visible, growth, own)
    assert (hidden.fate, grown.fate) == ("other effect", "ignored")
    assert hidden.why.endswith("the session at a.py:4 has a ConfigProto, and that holds alone")
    assert [setting.instead.command for setting in (hidden, grown) if setting.instead] == [
        "config.gpu_options.visible_device_list = '1'",
        "config.gpu_options.allow_growth = True",
    ]
    server = {name: value for name, value in own.items() if name not in ("devices", "given")} | {"what": "server"}
    fates = [setting.fate for setting in _judged(IMPORTED, listed, visible, growth, server)]
    assert fates[:2] == ["ignored", "ignored"]


def test_of_a_session_that_was_refused_the_option_that_is_named_is_to_blame() -> None:
    error = "AlreadyExistsError: GPU:0 is being mapped to multiple devices: for example different visible_device_list"
    refused = {**_session("a.py:4", allow_growth=True, visible_device_list="1"), "error": error}
    growth, shown = _judged(IMPORTED, {**refused, "devices": []})
    assert (growth.fate, shown.fate) == ("not reached", "refused")
    assert "refused visible_device_list" in growth.why


def test_a_configuration_for_eager_execution_is_said_in_the_words_of_tf_config() -> None:
    asked = {**_session("a.py:4", visible_device_list="1"), "what": "enable_eager_execution", "devices": []}
    (shown,) = _judged(IMPORTED, LISTED, asked, _made())
    assert shown.fate == "ignored"
    assert shown.instead is not None
    assert "tf.config.set_visible_devices([gpus[1]], 'GPU')" in shown.instead.command


def test_a_variable_comes_before_a_call() -> None:
    made = _made(allow_growth=True)
    no_growth: Any = {"TF_FORCE_GPU_ALLOW_GROWTH": "false"}
    assert _fates(IMPORTED, LISTED, GROWTH, made, TOOK_ALL, **no_growth) == ["took effect", "overridden"]
    growth: Any = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    assert _fates(IMPORTED, LISTED, GROWTH, made, GREW, **growth) == ["took effect", "took effect"]
    reserve: Any = {"TF_DEVICE_MIN_SYS_MEMORY_IN_MB": "1000"}
    session = _session("a.py:4", (6792,), per_process_gpu_memory_fraction=0.25)
    assert _fates(IMPORTED, session, **reserve) == ["took effect", "overridden"]


def test_what_is_set_again_before_it_is_read_is_replaced() -> None:
    first, second = _variable("CUDA_VISIBLE_DEVICES", "1"), _variable("CUDA_VISIBLE_DEVICES", "0")
    assert _fates(first, second, IMPORTED, LISTED) == ["replaced", "took effect"]


def test_an_error_with_which_no_device_is_made_is_that_of_the_setting_to_blame() -> None:
    error = "ValueError: Memory growth cannot differ between GPU devices"
    failed: Note = {"k": "not_made", "t": 3.0, "line": "a.py:12", "error": error}
    visible = _set("visible_devices", list(TWO), "GPU")
    listed = _listed(FIRST, SECOND, names=TWO)
    assert _fates(IMPORTED, listed, GROWTH, visible, failed) == ["refused", "not reached"]
    later = _set("memory_growth", True, TWO[1])
    made = _made((6256, 6256), (FIRST, SECOND), allow_growth=True)
    grew = _memory(2, free=(7700, 7792))
    assert _fates(IMPORTED, listed, GROWTH, failed, later, made, grew) == ["took effect", "not checked"]


def test_a_process_that_was_forked_after_the_devices_were_listed_reads_no_mask() -> None:
    forked: Note = {**START, "how": "forked", "stage": "listed"}
    mask = _variable("CUDA_VISIBLE_DEVICES", "1")
    assert [setting.fate for setting in settings.judged(Notes((forked, mask), (), 0, 0.0, 0), 7)] == ["too late"]


def test_a_line_of_the_program_is_changed_where_it_is() -> None:
    def instead(mask: str, *, in_program: bool) -> str:
        notes = (_variable(MASK, mask), _listed(FIRST), _made()) if in_program else (_listed(FIRST), _made())
        (setting,) = _judged(IMPORTED, *notes, machine=MACHINE, **({} if in_program else {MASK: mask}))
        return setting.instead.text if setting.instead else ""

    assert instead("0,7", in_program=False) == "export CUDA_VISIBLE_DEVICES=0"
    assert instead("0,7", in_program=True) == "os.environ['CUDA_VISIBLE_DEVICES'] = '0'"
    assert instead("7,8", in_program=False) == "unset CUDA_VISIBLE_DEVICES"
    assert instead("7,8", in_program=True) == "take it out of a.py:9"


_LATE: Note = {**_variable("CUDA_VISIBLE_DEVICES", "1"), "t": 2.5}
_OTHER_COMMAND: Note = {"k": "command", "t": 2.7, "line": "a.py:10", "pid": 9, "exported": (), "copy": False}


def _next(pid: int, parent: int, how: str = "started", **variables: str) -> Notes:
    begun = {**START, "t": 2.8, "how": how, "pid": pid, "parent": parent, "variables": variables}
    return Notes((begun,), (), 0, 0.0, 0)


def test_a_variable_that_is_put_back_after_it_was_read_asks_for_nothing() -> None:
    back = {**_LATE, "value": None, "t": 4.0}
    assert _fates(IMPORTED, LISTED, _LATE, back) == ["too late"]
    assert _fates(IMPORTED, LISTED, _LATE, {**back, "value": "0"}, CUDA_VISIBLE_DEVICES="0") == [
        "took effect",
        "too late",
    ]
    (_, unset) = _judged(IMPORTED, LISTED, back, CUDA_VISIBLE_DEVICES="0")
    assert unset.fate == "too late"
    assert unset.instead is not None
    assert unset.instead.command == "unset CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("others", "command", "fates"),
    [
        ([_next(8, 7, CUDA_VISIBLE_DEVICES="1")], (), []),
        ([_next(7, 1, CUDA_VISIBLE_DEVICES="1")], (), []),  # executed in the place of the first
        ([], ({**_OTHER_COMMAND, "given": None},), []),
        ([], ({**_OTHER_COMMAND, "given": {"CUDA_VISIBLE_DEVICES": "0"}},), ["too late"]),
        ([], ({**_OTHER_COMMAND, "given": None, "t": 2.2},), ["too late"]),
        ([_next(8, 7, CUDA_VISIBLE_DEVICES="0")], (), ["too late"]),
        ([_next(8, 7, "forked", CUDA_VISIBLE_DEVICES="1")], (), ["too late"]),
        ([_next(8, 3, CUDA_VISIBLE_DEVICES="1")], (), ["too late"]),
    ],
)
def test_a_variable_for_a_program_that_is_started_later_is_not_judged_where_it_is_set(
    others: list[Notes], command: tuple[Note, ...], fates: list[str]
) -> None:
    mine = Notes((START, IMPORTED, LISTED, _LATE, *command), (), 0, 0.0, 0)
    family: dict[int, list[Notes]] = {7: [mine]}
    for other in others:
        family.setdefault(other.notes[0]["pid"], []).append(other)
    assert [setting.fate for setting in settings.judged(mine, 7, (), family)] == fates


def test_a_variable_that_a_child_began_with_is_not_called_replaced_when_it_is_set_again() -> None:
    mine = Notes((START, _LATE, {**_LATE, "t": 3.0, "value": "-1"}), (), 0, 0.0, 0)
    alone = [setting.fate for setting in settings.judged(mine, 7, (), {7: [mine]})]
    family = {7: [mine], 8: [_next(8, 7, CUDA_VISIBLE_DEVICES="1")]}
    assert (alone, [setting.fate for setting in settings.judged(mine, 7, (), family)]) == (
        ["replaced", "not reached"],
        ["not reached"],
    )


@pytest.mark.parametrize(
    ("error", "command"),
    [
        ("when virtual devices configured", "export TF_FORCE_GPU_ALLOW_GROWTH=true"),
        ("Unrecognized device: [X]", api.GROWTH_FOR_EACH),
        ("Cannot set memory growth on non-GPU and non-Pluggable devices", None),
    ],
)
def test_the_fix_of_refused_growth_is_about_its_error(error: str, command: str | None) -> None:
    (refused,) = _judged(IMPORTED, LISTED, {**GROWTH, "error": f"ValueError: {error}"}, _made())
    assert (refused.fate, refused.instead and refused.instead.command) == ("refused", command)


def test_a_variable_that_env_gives_is_changed_there() -> None:
    given = {**_OTHER_COMMAND, "given": {"CUDA_VISIBLE_DEVICES": "2"}, "pid": 7}
    start = {**START, "parent": 3, "variables": {"CUDA_VISIBLE_DEVICES": "2"}}
    mine = Notes((start, IMPORTED, _listed(names=()), _made((), ())), (), 0, 0.0, 0)
    parent = Notes(({**START, "pid": 3}, given), (), 0, 0.0, 0)
    (mask,) = settings.judged(mine, 7, MACHINE, {3: [parent], 7: [mine]})
    assert mask.fate == "other effect"
    assert mask.instead is not None
    assert mask.instead.note == "change CUDA_VISIBLE_DEVICES in env= at a.py:10, for example to '1'"


def test_a_session_does_not_blame_its_own_line_for_the_devices() -> None:
    made = {**_made(), "line": "a.py:9"}
    (option,) = _judged(IMPORTED, LISTED, made, _session("a.py:9", per_process_gpu_memory_fraction=0.4))
    assert (option.fate, "a.py:9" in option.why) == ("ignored", False)
    assert option.instead is not None
    assert "a.py:9" not in option.instead.note


def _ends(*notes: Note) -> list[tuple[str, str]]:
    read = Notes((START, *notes, IMPORTED, LISTED, _made()), (0,) * 8, 0, 0.0, 0)
    return [(setting.fate, setting.why) for setting in settings.judged(read, 7, MACHINE)]


def test_a_setting_that_another_file_replaces_is_overridden_and_by_the_same_file_replaced() -> None:
    first = _variable(MASK, "0")
    again = {**_variable(MASK, "-1"), "line": "b.py:2", "by_import": "a.py:11", "t": 2.1}
    assert _ends(first, again)[0] == ("overridden", "b.py:2 sets it to '-1' later, when a.py:11 imports that file")
    assert _ends(first, {**again, "line": "a.py:12"})[0] == ("replaced", "set again at a.py:12")
    assert _ends(first, {**again, "value": "0"})[0][0] == "took effect"  # the same once more changes nothing


def test_setdefault_does_not_change_a_variable_that_is_set() -> None:
    kept = {"k": "kept", "t": 2.2, "name": MASK, "value": "1", "before": "0", "line": "b.py:3"}
    assert _ends(_variable(MASK, "0"), kept)[1] == (
        "overridden",
        "a.py:9 had set '0', and setdefault leaves that as it is",
    )
