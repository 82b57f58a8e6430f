"""Masking: nothing that tells whose machine it is stays, and everything else does."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest

from examples.facts import example, example_gpu, example_with_gpus
from gpudiag import __file__ as package_file
from gpudiag.fix import note
from gpudiag.model import codec
from gpudiag.model.facts import (
    ContainerFacts,
    CudaFacts,
    DriverFacts,
    EnvironmentFacts,
    Facts,
    GpuProcess,
    NvmlDevice,
    NvmlFacts,
    PathAttempt,
    ProcessIdentity,
    SystemFacts,
    TensorflowFacts,
    TriedFacts,
    Unknown,
)
from gpudiag.model.reading import SavedReading, plain_reading
from gpudiag.model.report import Broken, Finding, Gpu, Judged, NoReading, Report, Row, Severity, Skipped
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.probes.discovery import trace
from gpudiag.report import FORMATS, masking, render, words
from gpudiag.report.masking import mask
from gpudiag.run import rejudging
from reports import CAP_IGNORED, passed, report, row, sample

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
    return report(row("placement.log", Broken(NoReading.SIGNAL, "SIGABRT"), log=texts), facts=facts)


def masked(*texts: str, **fields: str) -> list[str]:
    return list(mask(text_report(*texts, facts=example(system=system(**fields)))).rows[0].log)


def telling() -> Report:
    """Return a report that says in every kind of place whose machine it is from."""
    gpus = tuple(Gpu.of(device, device.uuid) for device in devices())
    said = f"jdoe@gpu07: {UUIDS[0].upper()} {UUIDS[1][4:]} {MIG} {OLD_MIG} {UUIDS[0][4:].replace('-', '')}"
    finding = Finding(
        "fault", Severity.FAIL, said, (note(f"See /home/jdoe/x and {said}"),), figures={"path": "/home/jdoe", said: 1}
    )
    return msgspec.structs.replace(
        report(
            row("memory.growth", Judged((finding,), (gpus[0].pci_bus_id,), said), gpus[0], log=(said,)),
            row("visibility.list_remap", Broken(NoReading.EXCEPTION, said), *gpus),
            Row(
                "placement.log",
                (),
                passed(on=gpus),
                0.1,
                reading=SavedReading({"of": {UUIDS[0]: {"seen": [UUIDS[1], said, 7, None]}}, "home": "/home/jdoe"}),
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
    shows_secrets = set()
    for format_ in FORMATS:
        before, after = (render(report, format_, width=200, color=False) for report in (telling(), mask(telling())))
        assert [secret for secret in SECRETS if secret.lower() in after.lower()] == []
        shows_secrets |= {format_} if "jdoe" in before else set()
    assert shows_secrets >= {"codequality", "github", "html", "json", "junit", "markdown", "nagios"}
    assert {*SECRETS[:7], UUIDS[0][4:].replace("-", "")} == {
        secret for secret in SECRETS if secret in codec.encode(telling())
    }


def test_the_masked_report_is_a_report() -> None:
    masked = mask(telling())
    assert codec.decode(codec.encode(masked), "test") == masked
    assert (masked.verdict, masked.exit_code) == (telling().verdict, telling().exit_code)
    assert [row.probe for row in masked.rows] == [row.probe for row in telling().rows]
    assert masked.rows[0].findings[0].kind == "fault"


def test_masking_again_changes_nothing() -> None:
    for saved in (telling(), sample(), text_report("/home/jdoe", facts=example(system=Unknown("no answer")))):
        assert mask(mask(saved)) == mask(saved)


def test_rows_still_name_their_gpus() -> None:
    before, after = telling(), mask(telling())
    assert [after.device_label(row) for row in after.rows] == [before.device_label(row) for row in before.rows]
    assert [gpu.uuid for gpu in after.gpus] == ["GPU-uuid-a", "GPU-uuid-b"]
    assert [device.uuid for device in after.facts.nvml_devices] == ["GPU-uuid-a", "GPU-uuid-b"]
    assert after.facts.nvml_devices[1].mig_uuids == ("MIG-uuid-a", "MIG-uuid-b")
    assert after.facts.variables["CUDA_VISIBLE_DEVICES"] == "GPU-uuid-a,GPU-uuid-b"
    assert after.rows[2].reading == SavedReading(
        {"of": {"GPU-uuid-a": {"seen": ["GPU-uuid-b", after.rows[0].log[0], 7, None]}}, "home": "~"}
    )


def test_every_spelling_of_a_uuid() -> None:
    assert mask(telling()).rows[0].log == ("<user>@<host>: GPU-uuid-a GPU-uuid-b MIG-uuid-a MIG-uuid-b GPU-uuid-a",)


@pytest.mark.parametrize("count", [2, 12, 30])
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


def test_no_name_of_a_gpu_is_read_as_an_index() -> None:
    report_ = mask(report(gpus=gpus_in_scope(facts := example_with_gpus(12)), facts=facts))
    assert len({gpu.uuid for gpu in report_.gpus}) == 12
    assert not any(re.search(r"\d", gpu.uuid) for gpu in report_.gpus)


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("6.8.0-1018-aws", "6.8.0-1018-aws"),
        ("5.15.167.4-microsoft-standard-WSL2", "5.15.167.4-microsoft-standard-WSL2"),
        ("5.14.0-503.14.1.el9_5.x86_64", "5.14.0-503.14.1.el9_5.x86_64"),
        ("6.1.0-28-amd64", "6.1.0-28-amd64"),
        ("6.6.31-acmecluster7", "6.6.31-<masked-1>"),
    ],
)
def test_the_release_of_the_kernel_stays_but_for_the_words_of_who_built_it(release: str, expected: str) -> None:
    texts = (f"sudo apt install linux-headers-{release}", f"kernel {release}")
    assert masked(*texts, kernel=release) == [text.replace(release, expected) for text in texts]


def test_uuids_of_gpus_that_are_not_there() -> None:
    assert masked(f"{MIG} {MIG[:16]} {UUIDS[0]} GPU-0 GPU-bound GPU-device MIG-1g.5gb GPU-fade") == [
        "MIG-uuid-a MIG-uuid-a GPU-uuid-a GPU-0 GPU-bound GPU-device MIG-1g.5gb GPU-fade"
    ]
    assert masked("cut short: GPU-8e5f2c71-aa") == ["cut short: GPU-?"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/jdoe", "~"),
        ("/home/jdoe/x.json", "~/x.json"),
        ("/home/jdoe.", "~."),
        ("file:///home/jdoe/x", "file://~/x"),
        ("/home/jdoe2/x", "/home/<masked-2>/x"),
        ("/home/jdoe-old/x", "/home/<user>-old/x"),
        ("C:/Users/Eve/x /Users/eve/x", "C:/Users/<masked-2>/x /Users/<masked-3>/x"),
        ("/data/envs/secret/lib", "<env>/lib"),
        ("/data/envs/secret/bin/python", "<env>/bin/python"),
        ("/data/acme/other", "/data/<masked-2>/other"),
        ("/scratch/jdoe/x", "/scratch/<user>/x"),
        ("/tmp/mps_jdoe_0", "/tmp/mps_<user>_0"),
        ("jdoe may not open /dev/nvidia0", "<user> may not open /dev/nvidia0"),
        ("on gpu07 and on GPU07? gpu070", "on <host> and on <masked-2>? <masked-3>"),
        ("gpu07.corp.example:8888", "<host>:8888"),
        ("ü jdoe 漢", "<masked-2> <user> <masked-3>"),
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
    assert after.rows[0].log == ("~/x ~/y ~/z /rooted GPU-uuid-a",)
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
        "GPUDIAG_OUTPUT": "/data/reports/report.json",  # gpudiag knows each of these words
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
        "GPUDIAG_OUTPUT": "<path-6>.json",
    }
    assert once.rows[0].log == (
        "<path-1>.toml: unknown key; File <path-4>/models/net.py; /data/<masked-1>; /srv/data/<masked-2>",
    )
    assert mask(once) == once


class Canaries:
    """Builds a report in which every text is another word that nobody knows, and remembers where each stands."""

    def __init__(self, which: int) -> None:
        self.which = which
        """Of a union the alternative that is taken: 0 the first, -1 the last."""
        self.places: dict[str, str] = {}

    def word(self, place: str) -> str:
        canary = f"kanari{len(self.places):04}vogel"
        self.places[canary] = place
        return canary

    def fill(self, kind: Any, place: str) -> Any:
        """Return a value of a type, as ``msgspec.inspect`` describes it."""
        match kind:
            case msgspec.inspect.StrType():
                return self.word(place)
            case msgspec.inspect.AnyType():
                return [self.word(place), {self.word(f"{place} key"): self.word(place)}]
            case msgspec.inspect.CustomType():
                return SavedReading({self.word(f"{place} key"): [self.word(place)]})
            case msgspec.inspect.StructType(cls=cls, fields=fields):
                return cls(**{field.name: self.fill(field.type, f"{cls.__name__}.{field.name}") for field in fields})
            case msgspec.inspect.UnionType(types=types):
                texts = [member for member in types if isinstance(member, msgspec.inspect.StrType)]
                others = [member for member in types if not isinstance(member, msgspec.inspect.NoneType)]
                return self.fill((texts or others)[0 if texts else self.which], place)
            case msgspec.inspect.VarTupleType(item_type=item) | msgspec.inspect.ListType(item_type=item):
                several = item.types if isinstance(item, msgspec.inspect.UnionType) else (item,)
                return tuple(self.fill(member, place) for member in several)
            case msgspec.inspect.TupleType(item_types=items):
                return tuple(self.fill(item, place) for item in items)
            case msgspec.inspect.DictType(key_type=key, value_type=value):
                return {self.fill(key, f"{place} key"): self.fill(value, place)}
            case msgspec.inspect.EnumType(cls=cls):
                return next(iter(cls))
            case msgspec.inspect.IntType() | msgspec.inspect.FloatType() | msgspec.inspect.BoolType():
                return True
            case msgspec.inspect.DateType():
                return date(2026, 1, 31)
            case msgspec.inspect.Metadata(type=inner):
                return self.fill(inner, place)
        raise AssertionError(f"{place}: no value for {kind}")


REVIEWED = {
    "Gpu.name": "a product's name, from NVIDIA's driver",
    "NvmlDevice.name": "the same",
    "Placement.name": "a node of a graph that a probe of gpudiag builds",
    "Placement.op": "one of TensorFlow's operations",
}


@pytest.mark.parametrize("which", [0, -1])
def test_no_word_stays_that_nobody_knows(which: int) -> None:
    canaries = Canaries(which)
    full: Report = canaries.fill(msgspec.inspect.type_info(Report), "Report")
    outcomes = [canaries.fill(msgspec.inspect.type_info(kind), "") for kind in (Judged, Skipped, Broken)]
    full = msgspec.structs.replace(
        full, rows=tuple(msgspec.structs.replace(full.rows[0], outcome=outcome) for outcome in outcomes)
    )
    before = codec.encode(full)
    assert sum(canary in before for canary in canaries.places) > 60
    after = mask(full)
    texts = [
        codec.encode(after),
        *(render(after, format_, width=200, color=False, verbose=True) for format_ in FORMATS),
    ]
    left = {place for canary, place in canaries.places.items() if any(canary in text for text in texts)}
    assert left <= REVIEWED.keys()
    assert mask(after) == after


def test_ordinary_texts_stay_as_they_are() -> None:
    for saved in (sample(), report(row("memory.fraction", passed("2048 MiB", CAP_IGNORED)))):
        texts = [finding.message + words.advice(finding) for row_ in saved.rows for finding in row_.findings]
        assert texts
        assert texts == [
            finding.message + words.advice(finding) for row_ in mask(saved).rows for finding in row_.findings
        ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mail eve@acme.example now", "<masked-2> <masked-3> now"),
        ("10.1.2.3 and 192.168.0.17:8888", "<address> and <address>:8888"),
        ("nvidia-cublas-cu12 12.5.3.2", "nvidia-cublas-cu12 12.5.3.2"),
        ("de:ad:be:ef:00:11", "<address>"),
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("HF_TOKEN=hf_abc password: test", "HF_TOKEN=<masked-2> password: <masked-3>"),
        ("eve, Eve and eve", "<masked-2>, <masked-3> and <masked-2>"),
        ("/scratch/eve/net.py:12", "/scratch/<masked-2>/net.py:12"),
        ("/scratch/secretnet.py:12", "/scratch/<masked-2>.py:12"),
        ("<eve> <masked-77> <user>", "<<masked-79>> <masked-77> <user>"),
        ("node12.acme.example", "<masked-2>"),
        ("tf.config.set_memory_growth(gpu, True)", "tf.config.set_memory_growth(gpu, True)"),
        ("E0131 12:00:00.5 4711 cuda_platform.cc:52] failed", "E0131 12:00:00.5 4711 cuda_platform.cc:52] failed"),
        ("[gw1] [ 50%] PASSED 0ubuntu1 gw1.acme", "[gw1] [ 50%] PASSED 0ubuntu1 gw1.<masked-2>"),
        ("took 16GiB in 0.3s of 2x80GiB at 0x7f3a", "took 16GiB in 0.3s of 2x80GiB at 0x7f3a"),
        ("Serial Number    : 1324620049821", "Serial Number    : <masked-2>"),
        ("serial=0324517 GPU 0", "serial=<masked-2> GPU 0"),
        ("Board ID : 0x3b00", "Board ID : <masked-2>"),
        ("card 1324620049821", "card <masked-2>"),
        ("call +49 170 1234567", "call <masked-2>"),
        ("078-05-1120", "<masked-2>"),
        ("failed to alloc 34359738368 bytes on host", "failed to alloc 34359738368 bytes on host"),
        ("0.1234567890123456 s after 1733000000.100000", "0.1234567890123456 s after 1733000000.100000"),
        ("serial execution of 3 kernels", "serial execution of 3 kernels"),
        ("2.0.1+12 34", "2.0.1+12 34"),
    ],
)
def test_words_of_others(text: str, expected: str) -> None:
    assert masked(text) == [expected]


FRAME = '  File "/home/<masked>/net.py", line 12, in main'


def test_of_a_programs_log_the_lines_stay_that_say_something() -> None:
    told = msgspec.structs.replace(
        report(),
        lines=(
            "Patient Smith, epoch 3",
            "2026-01-31 12:00:00.5: I tensorflow/core/gpu_device.cc:7] Created device /device:GPU:0 with 7 MB memory",
            '  File "/home/eve/net.py", line 12, in main',
            "    train(patients)",
            "    train(patients, gpus[0])",
            "AcmeError: it failed",
        ),
    )
    once = mask(told)
    lines = tuple(re.sub(r"<masked-\d+>", "<masked>", line) for line in once.lines)
    on_gpu = "    train(<masked>, gpus[0])"
    assert lines == ("<left out>", told.lines[1], FRAME, "<left out>", on_gpu, "<masked>: it failed")
    assert mask(once) == once


def test_a_job_number_is_left_out() -> None:
    facts = example(
        environment=EnvironmentFacts({"SLURM_JOB_ID": "4711", "SLURM_PROCID": "1", "TF_ACME": "(set)"}),
        container=ContainerFacts(None, (), False, "4711"),
    )
    once = mask(report(facts=facts))
    assert once.facts.variables == {"SLURM_JOB_ID": "<masked>", "SLURM_PROCID": "1", "<masked-1>": "(set)"}
    assert "4711" not in codec.encode(once)


def test_a_reading_without_end_is_cut() -> None:
    deep: Any = "/home/jdoe"
    for _ in range(600):
        deep = [deep]
    told = report(Row("placement.log", (), passed(), 0.1, reading=SavedReading(x=deep)), facts=example(system=system()))
    text = codec.encode(mask(told))
    assert "jdoe" not in text
    assert "<masked>" in text


@pytest.mark.parametrize("name", ["cpu-only", "diagnosis-library", "diagnosis-mask", "diagnosis-and-cuda"])
def test_a_masked_report_is_still_of_use(name: str) -> None:
    saved = codec.load(Path(__file__).parents[2] / "reports" / f"{name}.json")
    once = mask(saved)
    assert codec.decode(codec.encode(once), "test") == once
    assert once.diagnosis.causes == saved.diagnosis.causes, "causes and advice stand"
    assert [row_.outcome for row_ in once.rows] == [row_.outcome for row_ in saved.rows]
    before, after = rejudging.rejudge(saved), rejudging.rejudge(once)
    assert [cause.cause_id for cause in after.diagnosis.causes] == [cause.cause_id for cause in before.diagnosis.causes]
    assert [row_.status for row_ in after.rows] == [row_.status for row_ in before.rows]


def test_the_words_that_stay_are_not_names_of_people() -> None:
    words, _ = masking._vocabulary()
    assert len(words) > 3000
    assert words & {"alice", "bob", "carol", "dave", "eve", "jdoe", "john", "maria", "smith", "acme", "corp"} == set()


def test_who_holds_memory_is_masked() -> None:
    """Other users of the machine, what they run, and folders that were tried; not why one could not be written."""
    holder = ProcessIdentity(
        "qvasquez", "python zanzibar_train.py ...", "2026-11-20 08:00 UTC", True, "service zanzibar"
    )
    device = msgspec.structs.replace(example_gpu(), processes=(GpuProcess(4711, 1 << 30, holder=holder),))
    tried = TriedFacts(written=(PathAttempt("/scratch/qvasquez/tmp", "EROFS", "temporary files", 0),))
    facts = example_with_gpus(nvml=NvmlFacts(None, "535.104.05", "12.2", (device,)), tried=tried)
    text = msgspec.json.encode(mask(text_report(facts=facts)).facts).decode()
    assert not re.search("qvasquez|zanzibar", text)
    for kept in ("EROFS", "temporary files", "2026-11-20", '"parent_gone":true'):
        assert kept in text


def test_a_reading_of_this_run_is_masked_as_a_saved_one() -> None:
    reading = trace.Reading(0, None, ("/home/jdoe/libcuda.so.1",), {"/home/jdoe/libcudnn.so.9": "jdoe"}, ())
    rows = [
        Row("discovery.trace", (), passed(), 0.1, saved_reading) for saved_reading in (reading, plain_reading(reading))
    ]
    ours, saved = (mask(report(row, facts=example(system=system()))).rows[0].reading for row in rows)
    assert ours == saved
    assert "jdoe" not in str(ours)
