"""Masking: nothing that tells whose machine it is stays, and everything else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpudiag import codec
from gpudiag.hostfacts import (
    CudaFacts,
    DriverFacts,
    EnvironmentFacts,
    Facts,
    NvmlDevice,
    NvmlFacts,
    SystemFacts,
    TensorflowFacts,
    Unknown,
    example,
    example_gpu,
    example_with_gpus,
)
from gpudiag.masking import __file__ as package_file
from gpudiag.masking import mask
from gpudiag.model import Broken, Cause, Finding, Gpu, Judged, Report, Row, Severity
from gpudiag.report import FORMATS, render
from gpudiag.scope import gpus_in_scope
from reports import passed, report, row, sample

UUIDS = ("GPU-8e5f2c71-aaaa-4bbb-8ccc-0123456789ab", "GPU-8e5f9d02-dddd-4eee-8fff-ba9876543210")
MIG = "MIG-5b0c77aa-1111-4222-8333-444455556666"
OLD_MIG = f"MIG-{UUIDS[1]}/1/0"
SECRETS = (
    "jdoe",
    "gpu07",
    "corp.example",
    "/data/envs/secret",
    *(uuid.partition("-")[2] for uuid in (*UUIDS, MIG)),
    *(uuid.partition("-")[2].replace("-", "") for uuid in (*UUIDS, MIG)),
)


def system(**fields: Any) -> SystemFacts:
    ordinary = example().system
    assert isinstance(ordinary, SystemFacts)
    personal: dict[str, Any] = {
        "hostname": "gpu07.corp.example",
        "user": "jdoe",
        "home": "/home/jdoe",
        "executable": "/data/envs/secret/bin/python",
        "prefix": "/data/envs/secret",
    }
    return msgspec.structs.replace(ordinary, **{**personal, **fields})


def devices() -> tuple[NvmlDevice, ...]:
    first, second = (
        msgspec.structs.replace(example_gpu(index), uuid=uuid, mig_uuids=migs)
        for index, (uuid, migs) in enumerate(zip(UUIDS, [(), (MIG, OLD_MIG)], strict=True))
    )
    return first, second


def text_report(*texts: str, facts: Facts) -> Report:
    """Return a report whose only row has ``texts`` as its log."""
    return report(row("placement.log", Broken(Cause.SIGNAL, "SIGABRT"), log=texts), facts=facts)


def masked(*texts: str, **fields: str) -> list[str]:
    return list(mask(text_report(*texts, facts=example(system=system(**fields)))).rows[0].log)


def telling() -> Report:
    """Return a report that says in every kind of place whose machine it is from."""
    gpus = tuple(Gpu.of(device, device.uuid) for device in devices())
    said = f"jdoe@gpu07: {UUIDS[0].upper()} {UUIDS[1][4:]} {MIG} {OLD_MIG} {UUIDS[0][4:].replace('-', '')}"
    finding = Finding("fault", Severity.FAIL, said, f"See /home/jdoe/x and {said}", {"path": "/home/jdoe", said: 1})
    return msgspec.structs.replace(
        report(
            row("memory.growth", Judged((finding,), (gpus[0].pci_bus_id,), said), gpus[0], log=(said,)),
            row("visibility.list_remap", Broken(Cause.EXCEPTION, said), *gpus),
            Row(
                "placement.log",
                (),
                passed(on=gpus),
                0.1,
                reading={"of": {UUIDS[0]: {"seen": [UUIDS[1], said, 7, None]}}, "home": "/home/jdoe"},
            ),
            gpus=gpus,
            facts=example_with_gpus(
                2,
                system=system(),
                nvml=NvmlFacts(None, "535.104.05", "12.2", devices()),
                tensorflow=TensorflowFacts("/data/envs/secret/lib/tensorflow/__init__.py", (), None, ()),
                environment=EnvironmentFacts(
                    {"CUDA_VISIBLE_DEVICES": ",".join(UUIDS), "LD_LIBRARY_PATH": "/home/jdoe/lib:/scratch/jdoe/lib"}
                ),
                container=Unknown(said),
            ),
        ),
        command=("gpudiag", "check", "-o", "/home/jdoe/report.json"),
    )


def test_no_secret_is_left_in_any_format() -> None:
    for format_ in FORMATS:
        before, after = (render(one, format_, width=200, color=False) for one in (telling(), mask(telling())))
        assert [secret for secret in SECRETS if secret.lower() in after.lower()] == []
        assert format_ == "table" or "jdoe" in before
    assert {*SECRETS[:7], UUIDS[0][4:].replace("-", "")} == {one for one in SECRETS if one in codec.encode(telling())}


def test_the_masked_report_is_a_report() -> None:
    one = mask(telling())
    assert codec.decode(codec.encode(one), "test") == one
    assert (one.verdict, one.exit_code) == (telling().verdict, telling().exit_code)
    assert [row.probe for row in one.rows] == [row.probe for row in telling().rows]
    assert one.rows[0].findings[0].kind == "fault"


def test_masking_again_changes_nothing() -> None:
    for one in (telling(), sample(), text_report("/home/jdoe", facts=example(system=Unknown("no answer")))):
        assert mask(mask(one)) == mask(one)


def test_rows_still_name_their_gpus() -> None:
    before, after = telling(), mask(telling())
    assert [after.device_label(row) for row in after.rows] == [before.device_label(row) for row in before.rows]
    assert [gpu.uuid for gpu in after.gpus] == ["GPU-1", "GPU-2"]
    assert [device.uuid for device in after.facts.nvml_devices] == ["GPU-1", "GPU-2"]
    assert after.facts.nvml_devices[1].mig_uuids == ("MIG-1", "MIG-2")
    assert after.facts.variables["CUDA_VISIBLE_DEVICES"] == "GPU-1,GPU-2"
    assert after.rows[2].reading == {"of": {"GPU-1": {"seen": ["GPU-2", after.rows[0].log[0], 7, None]}}, "home": "~"}


def test_every_spelling_of_a_uuid() -> None:
    assert mask(telling()).rows[0].log == ("<user>@<host>: GPU-1 GPU-2 MIG-1 MIG-2 GPU-1",)


@pytest.mark.parametrize("count", [2, 12])
@pytest.mark.parametrize("abbreviated", [False, True])
def test_a_mask_by_uuid_means_the_same(count: int, abbreviated: bool) -> None:
    uuids = [f"GPU-{index:08x}-0000-4000-8000-000000000000" for index in range(count)]
    value = ",".join(uuid[:12] if abbreviated else uuid for uuid in (uuids[1], uuids[0]))
    facts = example_with_gpus(count, environment=EnvironmentFacts({"CUDA_VISIBLE_DEVICES": value}))
    after = mask(report(gpus=gpus_in_scope(facts), facts=facts))
    assert [gpu.index for gpu in gpus_in_scope(after.facts)] == [1, 0]
    assert gpus_in_scope(after.facts) == after.gpus


def test_what_cuda_shows_by_an_index_means_the_same() -> None:
    facts = example_with_gpus(
        nvml=NvmlFacts(
            None, "535.104.05", "12.2", (msgspec.structs.replace(example_gpu(0), name="T4"), example_gpu(1))
        ),
        environment=EnvironmentFacts({"CUDA_VISIBLE_DEVICES": "0"}),
        cuda=CudaFacts("0", (example_gpu(1).uuid,)),
    )
    after = mask(report(gpus=gpus_in_scope(facts), facts=facts))
    assert [gpu.index for gpu in gpus_in_scope(after.facts)] == [1]
    assert gpus_in_scope(after.facts) == after.gpus


def test_an_ambiguous_mask_stays_ambiguous() -> None:
    facts = example_with_gpus(2, environment=EnvironmentFacts({"CUDA_VISIBLE_DEVICES": "GPU-0000000"}))
    after = mask(report(facts=facts))
    assert after.facts.variables["CUDA_VISIBLE_DEVICES"] == "GPU-?"
    assert gpus_in_scope(after.facts) == gpus_in_scope(facts) == ()


def test_uuids_of_gpus_that_are_not_there() -> None:
    assert masked(f"{MIG} {MIG[:16]} {UUIDS[0]} GPU-0 GPU-bound GPU-accelerated MIG-1g.5gb GPU-fade") == [
        "MIG-1 MIG-1 GPU-1 GPU-0 GPU-bound GPU-accelerated MIG-1g.5gb GPU-fade"
    ]
    assert masked("cut short: GPU-8e5f2c71-aa") == ["cut short: GPU-?"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/jdoe", "~"),
        ("/home/jdoe/x.json", "~/x.json"),
        ("/home/jdoe.", "~."),
        ("file:///home/jdoe/x", "file://~/x"),
        ("/home/jdoe2/x", "/home/jdoe2/x"),
        ("/home/jdoe-old/x", "/home/<user>-old/x"),
        ("/data/envs/secret/lib", "<env>/lib"),
        ("/data/envs/secret/bin/python", "<env>/bin/python"),
        ("/data/envs/other", "/data/envs/other"),
        ("/scratch/jdoe/x", "/scratch/<user>/x"),
        ("/tmp/mps_jdoe_0", "/tmp/mps_<user>_0"),
        ("jdoe may not open /dev/nvidia0", "<user> may not open /dev/nvidia0"),
        ("on gpu07 and on GPU07? gpu070", "on <host> and on GPU07? gpu070"),
        ("gpu07.corp.example:8888", "<host>:8888"),
        ("ü jdoe 漢", "ü <user> 漢"),
    ],
)
def test_names_and_paths(text: str, expected: str) -> None:
    assert masked(text) == [expected]


def test_the_longest_path_counts() -> None:
    fields = {"prefix": "/home/jdoe/envs/a", "executable": "/home/jdoe/envs/a/bin/python3"}
    assert masked("/home/jdoe/envs/a/bin/python3 /home/jdoe/envs/b", **fields) == ["<env>/bin/python3 ~/envs/b"]


def test_folders_behind_links(tmp_path: Path) -> None:
    for name in ("home", "prefix"):
        (tmp_path / "disk" / name).mkdir(parents=True)
        (tmp_path / name).symlink_to(tmp_path / "disk" / name)
    fields = {name: str(tmp_path / name) for name in ("home", "prefix")}
    fields["executable"] = f"{tmp_path}/prefix/bin/python"
    assert masked(f"{tmp_path}/home/x {tmp_path}/disk/home/x {tmp_path}/disk/prefix/lib", **fields) == [
        "~/x ~/x <env>/lib"
    ]


def test_an_interpreter_outside_its_environment() -> None:
    assert masked("/opt/special/python -c", executable="/opt/special/python") == ["<python> -c"]


@pytest.mark.parametrize("name", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_the_environment_that_variables_name(name: str) -> None:
    variables = EnvironmentFacts({name: "/data/envs/other"})
    facts = example(system=system(), environment=variables)
    assert mask(text_report("/data/envs/other/bin", facts=facts)).rows[0].log == (f"<{name}>/bin",)
    facts = example(system=system(prefix="/data/envs/other"), environment=variables)
    assert mask(text_report("/data/envs/other/bin", facts=facts)).rows[0].log == ("<env>/bin",)


def test_windows_paths() -> None:
    fields = {"home": r"C:\Users\jdoe", "prefix": r"C:\Users\jdoe\venv", "executable": r"C:\Users\jdoe\venv\python.exe"}
    assert masked(r"C:\Users\jdoe\x 'C:\\Users\\jdoe\\x' C:/Users/jdoe/x C:\Users\jdoe\venv\Lib", **fields) == [
        r"~\x '~\\x' ~/x <env>\Lib"
    ]


ORDINARY = "A root user ran a program on this vm: a/b, /usr/lib/python3/a.py, root:x, rooted, vm.overcommit_memory"


@pytest.mark.parametrize(
    ("fields", "text", "expected"),
    [
        ({"user": "root", "home": "/root"}, "/root/x and /root. /rooted", "~/x and ~. /rooted"),
        (
            {"user": "a", "home": "/home/a"},
            "/home/a/x /scratch/a/x /scratch/ab /a",
            "~/x /scratch/<user>/x /scratch/ab /<user>",
        ),
        ({"hostname": "vm"}, "/net/vm/x", "/net/<host>/x"),
        (
            {"hostname": "localhost"},
            "localhost:8888 /job:localhost/replica:0",
            "localhost:8888 /job:localhost/replica:0",
        ),
        ({"user": "1000", "home": "/"}, "1000 MiB in /x", "1000 MiB in /x"),
        ({"prefix": "/usr", "executable": "/usr/bin/python3"}, "/usr/lib/libcuda.so.1", "/usr/lib/libcuda.so.1"),
        ({"prefix": "", "executable": "", "home": "", "user": "", "hostname": ""}, "text", "text"),
    ],
)
def test_ordinary_words_and_folders_stay(fields: dict[str, str], text: str, expected: str) -> None:
    assert masked(ORDINARY, text, **fields) == [ORDINARY, expected]
    after = mask(text_report(text, facts=example(system=system(**fields)))).facts.system
    assert isinstance(after, SystemFacts)
    assert (after.user, after.hostname) == ("<user>", "<host>")


@pytest.mark.parametrize(
    "name", ["fork", "judged", "system", "placement", "log", "visible", "signal", "fault", "exception"]
)
def test_names_that_are_words_of_the_report(name: str) -> None:
    facts = example_with_gpus(2, system=system(user=name, hostname=name, home=f"/home/{name}"))
    facts = msgspec.structs.replace(facts, environment=EnvironmentFacts({"CUDA_VISIBLE_DEVICES": "0"}))
    after = mask(msgspec.structs.replace(telling(), facts=facts))
    assert codec.decode(codec.encode(after), "test") == after
    assert [row.probe for row in after.rows] == [row.probe for row in telling().rows]
    assert after.rows[0].findings[0].kind == "fault"
    assert after.isolation == "fork"
    assert after.facts.variables == {"CUDA_VISIBLE_DEVICES": "0"}


def test_an_unknown_host_still_hides_homes_and_uuids() -> None:
    facts = example(system=Unknown("no answer within 15 s"))
    after = mask(text_report(f"/home/jdoe/x /Users/j.doe/y /root/z /rooted {UUIDS[0]}", facts=facts))
    assert after.rows[0].log == ("~/x ~/y ~/z /rooted GPU-1",)
    assert after.facts.system == Unknown("no answer within 15 s")


def test_the_folders_of_the_package_and_of_a_simulated_machine_are_replaced() -> None:
    package = str(Path(package_file).parent)
    facts = msgspec.structs.replace(
        sample().facts,
        driver=DriverFacts(None, f"{package}/simulator/lib/libcuda.so.1", None, "12.6"),
        environment=EnvironmentFacts({"LD_LIBRARY_PATH": "/var/tmp/gpudiag-sim-k2_x9/lib:/opt/lib"}),
    )
    masked = mask(msgspec.structs.replace(sample(), facts=facts))
    assert isinstance(masked.facts.driver, DriverFacts)
    assert masked.facts.driver.libcuda_path == "<gpudiag>/simulator/lib/libcuda.so.1"
    assert masked.facts.variables["LD_LIBRARY_PATH"] == "<machine>/lib:/opt/lib"


def test_paths_that_the_command_and_the_search_paths_name() -> None:
    variables = {
        "PYTHONPATH": "/data/acme:/usr/lib/python3:.:/home/someone/src",
        "LD_LIBRARY_PATH": "/data/acme/cuda/lib:/opt/lib",
    }
    said = "/data/acme/lab.toml: unknown key; File /data/acme/models/net.py; /data/acmes; /srv/data/acme"
    told = msgspec.structs.replace(
        text_report(said, facts=example(environment=EnvironmentFacts(variables))),
        command=("check", "--simulate", "/data/acme/lab.toml", "--log=runs/acme/a.log", "-o", "/data/acme/r.json"),
    )
    once = mask(told)
    assert once.command == ("check", "--simulate", "<path-1>.toml", "--log=<path-2>.log", "-o", "<path-3>.json")
    assert once.facts.variables == {
        "PYTHONPATH": "<path-4>:/usr/lib/python3:.:~/src",
        "LD_LIBRARY_PATH": "<path-5>:/opt/lib",
    }
    assert once.rows[0].log == ("<path-1>.toml: unknown key; File <path-4>/models/net.py; /data/acmes; /srv/data/acme",)
    assert mask(once) == once
