"""The family ``environment``: what is recorded, and what is never stored."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from conftest import Gpudiag
from gpudiag.facts import environment
from gpudiag.knowledge.variables import WITHHELD
from gpudiag.model import codec
from gpudiag.model.facts import TakenPort, TriedFacts


def gather(**variables: str) -> dict[str, str]:
    return environment.gather(variables).variables


def test_settings_and_paths_are_stored() -> None:
    variables = {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "GPUDIAG_TIMEOUT": "5",
        "LD_LIBRARY_PATH": "/usr/local/cuda/lib64:",
        "NCCL_P2P_DISABLE": "1",
        "PYTEST_XDIST_WORKER": "gw0",
        "SLURM_JOB_ID": "17",
        "TF_FORCE_GPU_ALLOW_GROWTH": "",
    }
    assert gather(**variables) == variables


@pytest.mark.parametrize("name", ["PATH", "HOME", "AWS_SECRET_ACCESS_KEY", "DATABASE_URL", "SLURM_JOB_USER", "MYTF_X"])
def test_other_variables_are_not_recorded(name: str) -> None:
    assert gather(**{name: "x"}) == {}


@pytest.mark.parametrize("name", ["TF_VAR_db_password", "TF_VAR_x", "TF_CLI_ARGS_plan", "TF_TOKEN_app_terraform_io"])
def test_variables_of_terraform_are_not_recorded(name: str) -> None:
    assert gather(**{name: "x"}) == {}


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA_API_KEY",
        "GPUDIAG_UPLOAD_TOKEN",
        "NCCL_AUTH_HEADER",
        "XLA_CREDENTIALS",
        "GPUDIAG_PASSWORD",
        "TF_UNKNOWN_TO_US",
        "CUDA_VISIBLE_DEVCIES_TOKEN",
    ],
)
def test_a_value_that_can_hold_a_secret_or_is_of_an_unknown_name_is_withheld(name: str) -> None:
    assert gather(**{name: "hunter2"}) == {name: WITHHELD}


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVCIES", "cuda_visible_devices", "TF_GPU_ALLOW_GROWTH"])
def test_the_value_of_a_misspelt_setting_is_stored_as_that_of_the_setting(name: str) -> None:
    assert gather(**{name: "1"}) == {name: "1"}


@pytest.mark.parametrize("value", ["https://me:hunter2@example.org/x", "a=1 http://token@host"])
def test_a_login_in_a_url_is_withheld(value: str) -> None:
    assert gather(GPUDIAG_OUTPUT=value, XLA_FLAGS=value) == {"GPUDIAG_OUTPUT": WITHHELD, "XLA_FLAGS": WITHHELD}


def test_of_a_cluster_the_numbers_are_stored_and_no_address() -> None:
    cluster = '{"cluster": {"worker": ["a.example:1", "b.example:2"]}, "task": {"type": "worker", "index": "1"}}'
    stored = '{"cluster": {"worker": 2}, "task": {"type": "worker", "index": 1}}'
    assert gather(TF_CONFIG=cluster) == {"TF_CONFIG": stored}


def test_tasks_that_accept_no_connection_are_named_without_their_addresses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listens, socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        own, open_, shut = "127.0.0.1:1", *(f"127.0.0.1:{sock.getsockname()[1]}" for sock in (listens, deaf))
        cluster = {"worker": [own, open_, shut], "evaluator": ["127.0.0.1:2"]}
        config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})
        facts = environment.gather({"TF_CONFIG": config})
    assert facts.silent_tasks == {"worker 2": "Connection refused"}
    assert environment.gather({"TF_CONFIG": "{'cluster': 1}"}).silent_tasks == {}


def test_tasks_that_never_answer_are_asked_at_the_same_time() -> None:
    with ExitStack() as stack:
        full = []
        for _ in range(12):
            listens = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
            full.append(f"127.0.0.1:{listens.getsockname()[1]}")
            for _ in range(3):  # nobody takes these, and the kernel lets no more wait
                waits = stack.enter_context(socket.socket())
                waits.setblocking(False)
                waits.connect_ex(listens.getsockname())
        cluster = {"worker": ["127.0.0.1:1", *full, "no-such-host.invalid:1"]}
        began = time.monotonic()
        facts = environment.gather(
            {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})}
        )
        seconds = time.monotonic() - began
    assert facts.silent_tasks.keys() == {f"worker {number}" for number in range(1, 14)}
    assert facts.silent_tasks["worker 1"] == f"no answer within {environment._WITHIN_S:g} s"
    assert seconds < 12 * environment._WITHIN_S / 2


def test_the_process_that_listens_on_the_port_of_the_own_task_is_named() -> None:
    def taken(port: int) -> TakenPort | None:
        cluster = {"cluster": {"worker": [f"127.0.0.1:{port}"]}, "task": {"type": "worker", "index": 0}}
        return environment.gather({"TF_CONFIG": json.dumps(cluster)}).port_taken

    for address, family in (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)):
        with socket.create_server((address, 0), family=family) as listens:
            port = listens.getsockname()[1]
            found = taken(port)
        assert found is not None
        assert (found.port, found.pid) == (port, os.getpid())
        assert found.process is not None
        assert found.process.command
        assert taken(port) is None
    assert environment.gather({"TF_CONFIG": "{'cluster': 1}"}).port_taken is None
    assert environment.gather({}).port_taken is None


def test_what_keras_computes_with_is_told_by_the_variable_or_else_by_the_file(tmp_path: Path) -> None:
    def chosen(**variables: str) -> tuple[str, str]:
        facts = environment.gather({"KERAS_HOME": str(tmp_path), **variables})
        return facts.keras_backend, facts.keras_backend_from

    assert chosen() == ("", "")
    file = tmp_path / "keras.json"
    file.write_text('{"floatx": "float32", "backend": "torch"}')
    assert chosen() == ("torch", str(file))
    assert chosen(KERAS_BACKEND="jax") == ("jax", "KERAS_BACKEND")
    for damaged in ("[]", "{", '{"floatx": "float32"}', "[" * 9000):
        file.write_text(damaged)
        assert chosen() == ("", "")


def test_of_a_cluster_that_is_no_json_nothing_is_stored_but_that() -> None:
    assert gather(TF_CONFIG="{'cluster': hunter2") == {"TF_CONFIG": "(no JSON)"}


def test_undecodable_values_can_be_stored() -> None:
    assert gather(LD_LIBRARY_PATH="/caf\udce9") == {"LD_LIBRARY_PATH": "/caf\\udce9"}


def test_this_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert environment.gather().variables["CUDA_VISIBLE_DEVICES"] == "3"


NOISE = "\nimport atexit, sys; print('hello', end=''); atexit.register(print, 'goodbye')"


@pytest.mark.parametrize("noise", ["", NOISE])
def test_a_variable_that_python_sets_at_its_start(noise: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "sitecustomize.py"
    file.write_text(f"import os; os.environ['CUDA_VISIBLE_DEVICES'] = '-1'{noise}")
    variables = {"CUDA_VISIBLE_DEVICES": "-1", "TF_GPU_ALLOCATOR": "cuda_malloc"}
    assert environment.gather(variables).set_by_python == {}
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert environment.gather(variables).set_by_python == {"CUDA_VISIBLE_DEVICES": str(file)}


def test_a_variable_that_a_preloaded_library_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, library = tmp_path / "hide.c", tmp_path / "libhide.so"
    source.write_text(
        "#include <stdlib.h>\n__attribute__((constructor)) static void hide(void) "
        '{ setenv("CUDA_VISIBLE_DEVICES", "-1", 1); }\n'
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    found = environment.gather({"CUDA_VISIBLE_DEVICES": "-1", "CUDA_CACHE_PATH": "/x"}).set_by_python
    assert found == {"CUDA_VISIBLE_DEVICES": "LD_PRELOAD"}


@pytest.mark.parametrize(
    ("cluster", "stored"),
    [
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1e400}}', WITHHELD),
        ('{"cluster": {"worker": "secret.example:1"}, "task": {"type": "worker", "index": 0}}', WITHHELD),
        ('{"cluster": {"worker": 7}, "task": {"type": "worker", "index": 0}}', WITHHELD),
        ("[" * 100_000, "(no JSON)"),
        (
            '{"cluster": {"worker": {"3": "a:1", "5": "b:1"}}, "task": {"type": "worker", "index": 3}}',
            '{"cluster": {"worker": 2}, "task": {"type": "worker", "index": 3}}',
        ),
    ],
)
def test_of_a_cluster_that_cannot_be_one_nothing_is_stored(cluster: str, stored: str) -> None:
    assert gather(TF_CONFIG=cluster) == {"TF_CONFIG": stored}


def test_the_temporary_folder_is_the_callers_and_not_that_of_a_child(gpudiag: Gpudiag) -> None:
    gpudiag("check", "host.environment", "-q", "-o", "report.json")
    facts = codec.load(gpudiag.folder / "report.json").facts
    assert facts.variables["TMPDIR"] == str(gpudiag.temporary)
    assert isinstance(facts.tried, TriedFacts)
    assert str(gpudiag.temporary) in [attempt.path for attempt in facts.tried.written]
