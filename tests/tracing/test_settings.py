"""What becomes of a setting, from notes alone."""

from __future__ import annotations

from typing import Any

import pytest

from gpudiag.tracing import settings
from gpudiag.tracing.notes import Note, Notes

START: Note = {"k": "process", "t": 0.0, "how": "started", "pid": 7, "parent": 1, "variables": {}}
IMPORTED: Note = {"k": "tensorflow", "t": 1.0, "version": "2.21.0"}
LISTED: Note = {"k": "listed", "t": 2.0, "line": "a.py:3"}


def _made(**options: Any) -> Note:
    return {"k": "initialised", "t": 3.0, "line": "a.py:4", "devices": [], "options": options}


def _set(what: str, value: Any, target: str = "", **more: Any) -> Note:
    return {"k": "setting", "t": 2.5, "what": what, "value": value, "target": target, **_AT, **more}


_AT: Note = {"line": "a.py:9", "stage": "imported", "error": ""}
GROWTH = _set("memory_growth", True, "/physical_device:GPU:0")


def _variable(name: str, value: str | None) -> Note:
    return {"k": "variable", "t": 2.0, "name": name, "value": value, "line": "a.py:9", "stage": ""}


def _fates(*notes: Note, **variables: str) -> list[str]:
    started = {**START, "variables": variables}
    return [one.fate for one in settings.judged(Notes((started, *notes), (), 0, 0.0, 0), 7)]


@pytest.mark.parametrize(
    ("notes", "fate"),
    [
        ((IMPORTED, LISTED, GROWTH, _made(allow_growth=True)), "took effect"),
        ((IMPORTED, LISTED, GROWTH, _made()), "ignored"),
        ((IMPORTED, LISTED, GROWTH, _made(virtual_devices=[[1]])), "ignored"),
        ((IMPORTED, LISTED, GROWTH), "not reached"),
        (
            (IMPORTED, _made(), {**GROWTH, "error": "RuntimeError: X cannot be modified after being initialized"}),
            "too late",
        ),
        ((IMPORTED, {**GROWTH, "error": "ValueError: Cannot set memory growth on device"}), "refused"),
        ((IMPORTED, _set("list_local_devices", {}), GROWTH, _made(allow_growth=True)), "ignored"),
        ((_variable("CUDA_VISIBLE_DEVICES", "1"), IMPORTED, LISTED), "took effect"),
        ((IMPORTED, _variable("CUDA_VISIBLE_DEVICES", "1"), LISTED), "took effect"),
        ((IMPORTED, LISTED, _variable("CUDA_VISIBLE_DEVICES", "1")), "too late"),
        ((IMPORTED, _variable("TF_ENABLED_DEVICE_TYPES", "CPU")), "too late"),
        ((IMPORTED, LISTED, _variable("TF_FORCE_GPU_ALLOW_GROWTH", "true"), _made()), "took effect"),
        ((IMPORTED, LISTED, _made(), _variable("TF_FORCE_GPU_ALLOW_GROWTH", "true")), "too late"),
        ((IMPORTED, _variable("TF_FORCE_GPU_ALLOW_GROWTH", "1"), _made()), "ignored"),
        ((IMPORTED, _variable("TF_GPU_ALLOCATOR", "cuda_malloc_Async"), _made()), "ignored"),
        ((IMPORTED, _variable("TF_FORCE_GPU_ALOW_GROWTH", "true"), _made()), "misspelt"),
        ((IMPORTED, _set("assigned", "False", "tf.config.set_soft_device_placement")), "ignored"),
        ((IMPORTED, _set("session", {"device_count": {"gpu": 0}}, given=True)), "misspelt"),
        (
            (IMPORTED, _set("visible_devices", ["/physical_device:GPU:1", "/physical_device:GPU:0"], "GPU"), _made()),
            "ignored",
        ),
        ((IMPORTED, _set("visible_devices", ["/physical_device:GPU:0"], "GPU"), _made()), "took effect"),
        ((IMPORTED, _set("enable_eager_execution", {"allow_growth": True}), _made()), "ignored"),
    ],
)
def test_what_becomes_of_a_setting(notes: tuple[Note, ...], fate: str) -> None:
    assert _fates(*notes) == [fate]


def test_the_options_of_a_second_session_are_ignored() -> None:
    def session(fraction: float, line: str) -> Note:
        return {**_set("session", {"per_process_gpu_memory_fraction": fraction}, given=True), "line": line}

    assert _fates(IMPORTED, session(0.1, "a.py:1"), session(0.5, "a.py:2")) == ["took effect", "ignored"]
    assert _fates(IMPORTED, session(0.1, "a.py:1"), session(0.1, "a.py:2")) == ["took effect", "took effect"]


def test_a_variable_comes_before_a_call() -> None:
    made = _made(allow_growth=True)
    assert _fates(IMPORTED, GROWTH, made, TF_FORCE_GPU_ALLOW_GROWTH="false") == ["took effect", "overridden"]
    assert _fates(IMPORTED, GROWTH, made, TF_FORCE_GPU_ALLOW_GROWTH="true") == ["took effect", "took effect"]


def test_what_is_set_again_before_it_is_read_is_replaced() -> None:
    first, second = _variable("CUDA_VISIBLE_DEVICES", "0"), _variable("CUDA_VISIBLE_DEVICES", "1")
    assert _fates(first, second, IMPORTED, LISTED) == ["replaced", "took effect"]
