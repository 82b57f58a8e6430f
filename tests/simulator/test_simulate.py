"""``gpudiag check --simulate`` and ``gpudiag simulate`` end to end, as a user runs them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from conftest import Gpudiag
from gpudiag import catalogue
from gpudiag.model import codec
from gpudiag.model.report import Broken, Judged, Report, Row, Severity, Skipped, Verdict
from gpudiag.probes import AREAS
from gpudiag.report import words
from gpudiag.run.plan import of_level

pytestmark = pytest.mark.usefixtures("no_child_left")

CARD_PROBES = (
    "visibility.list_remap",
    "visibility.list_invalid",
    "memory.fraction",
    "memory.growth",
    "logical.gpu_split",
)
ON_GPUS = [
    entry.name
    for entry in catalogue.entries()
    if entry.reading is None or entry.probe.needs.gpus or entry.probe.as_user
]
"""Without the probes that are given no GPU: to them every machine is the same."""
ON_REAL_GPUS = {entry.name for entry in catalogue.entries() if entry.probe.needs.real_gpus}
NOT_REAL = Skipped("needs real GPUs, these are simulated")
LIST_GPUS = "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"


def report_of(gpudiag: Gpudiag, *arguments: str, status: int, **variables: str) -> Report:
    done = gpudiag("check", "--format", "json", *arguments, flags=(), **variables)
    assert done.returncode == status, done.stderr
    assert list(gpudiag.temporary.iterdir()) == [], "a file was left behind"
    return codec.decode(done.stdout, "standard output")


def found(rows: tuple[Row, ...]) -> set[str]:
    return {f"{row.probe}: {finding.kind}" for row in rows for finding in row.findings}


def finds_nothing(report: Report, gpus: int, gib: int) -> set[str]:
    """Check that ``report`` is of a healthy machine with such GPUs; return the probes, each of which judged it so."""
    assert report.verdict is Verdict.PASS
    assert report.world.simulated
    assert [gpu.memory_total_bytes for gpu in report.gpus] == [gib << 30] * gpus
    assert all(gpu.simulated for gpu in report.gpus)
    for row in report.rows:
        if row.probe in ON_REAL_GPUS:
            assert row.outcome == NOT_REAL
            continue
        assert isinstance(row.outcome, Judged), row
        assert row.findings == (), row
    return {row.probe for row in report.rows}


@pytest.mark.parametrize(("gpus", "gib"), [(2, 16), pytest.param(4, 8, marks=pytest.mark.slow)], ids=["two", "four"])
def test_every_probe_judges_a_healthy_machine_and_finds_nothing(gpus: int, gib: int, gpudiag: Gpudiag) -> None:
    probes: list[str] = [] if gpus == 2 else ON_GPUS
    report = report_of(gpudiag, *probes, "--simulate", f"{gpus}x{gib}GiB", status=0)
    assert finds_nothing(report, gpus, gib) == set(
        probes or (entry.name for entry in of_level(catalogue.entries(), "full"))
    )
    assert {row.probe for row in report.rows if row.devices} >= set(CARD_PROBES)


@pytest.mark.parametrize(
    "area",
    [pytest.param(area, marks=[pytest.mark.slow] if area != "logical" else []) for area in AREAS if area != "host"],
)
def test_every_probe_of_an_area_does_so_spawned(area: str, gpudiag: Gpudiag) -> None:
    """Each child of an area imports TensorFlow itself, and of the others where that might matter.

    By areas, so that they are shared among the workers of pytest. Between a fork and a new process lies the import of
    TensorFlow alone, whatever is measured after it.
    """
    report = report_of(gpudiag, "host", area, "--simulate", "2x16GiB", "--isolation", "spawn", status=0)
    assert finds_nothing(report, 2, 16) == {entry.name for entry in catalogue.select(["host", area])}


@pytest.mark.slow
def test_two_processes_that_meet_import_tensorflow_themselves_if_they_are_spawned(gpudiag: Gpudiag) -> None:
    assert catalogue.get("memory.shared_gpu").peered
    done = gpudiag("check", "memory.shared_gpu", "--simulate", "1", "--isolation", "spawn", "--format", "json")
    (row,) = codec.decode(done.stdout, "standard output").rows
    assert isinstance(row.outcome, Judged), done.stderr
    assert row.findings == ()


@pytest.mark.parametrize(
    ("machine", "noted"),
    [
        pytest.param(
            "[[gpu]]\npreset = 'A100-40'\nmig = 2\n", {"visibility.list_remap: one_gpu"}, marks=pytest.mark.slow
        ),
        pytest.param(
            "[[gpu]]\ncompute_mode = 'exclusive_process'\ncount = 2\n",
            {"memory.shared_gpu: exclusive"},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "[[gpu]]\npreset = 'T4'\n[[gpu]]\npreset = 'H100'\n",
            {"discovery.device_order: order_differs"},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["MIG", "exclusive mode", "unequal"],
)
def test_no_probe_gives_a_false_alarm_on_a_machine_of_another_kind(
    machine: str, noted: set[str], gpudiag: Gpudiag
) -> None:
    (gpudiag.folder / "machine.toml").write_text(machine)
    report = report_of(gpudiag, *ON_GPUS, "--simulate", "machine.toml", status=0)
    assert found(report.rows) == noted
    assert {finding.severity for row in report.rows for finding in row.findings} == {Severity.NOTE}
    assert not any(isinstance(row.outcome, Broken) for row in report.rows)


MIG = "[[gpu]]\npreset = 'A100-40'\nmig = 2\n[[gpu]]\npreset = 'A100-40'\n"
ON_TWO = tuple(entry.name for entry in catalogue.entries() if entry.probe.needs.gpus == 2)


@pytest.mark.parametrize(
    ("machine", "select"),
    [
        pytest.param("1x16GiB", ON_GPUS, marks=pytest.mark.slow, id="one card"),
        pytest.param(MIG, ON_GPUS, marks=pytest.mark.slow, id="MIG beside a whole one"),
        pytest.param(MIG, (*ON_TWO, *ON_REAL_GPUS, "visibility.list_remap"), id="MIG, what needs two GPUs"),
    ],
)
def test_every_skip_on_one_gpu_says_why(machine: str, select: tuple[str, ...], gpudiag: Gpudiag) -> None:
    """Also on two cards of which CUDA shows one instance."""
    report = report_of(gpudiag, *select, *gpudiag.simulated(machine), status=0)
    skipped = {row.probe: row.outcome.reason for row in report.rows if isinstance(row.outcome, Skipped)}
    assert {skipped.pop(probe) for probe in ON_REAL_GPUS} == {NOT_REAL.reason}
    assert set(skipped.values()) == {"needs 2 GPUs, 1 here"}
    assert set(skipped) == set(ON_TWO)
    assert found(report.rows) == {"visibility.list_remap: one_gpu"}
    assert {finding.severity for row in report.rows for finding in row.findings} == {Severity.NOTE}
    assert not any(isinstance(row.outcome, Broken) for row in report.rows)


def test_the_callers_mask_is_kept(gpudiag: Gpudiag) -> None:
    report = report_of(gpudiag, "discovery", "--simulate", "4x8GiB", status=0, CUDA_VISIBLE_DEVICES="2,1")
    assert [gpu.index for gpu in report.gpus] == [2, 1]
    (row,) = [row for row in report.rows if row.probe == "discovery.logical_devices"]
    assert isinstance(row.outcome, Judged)
    assert row.outcome.verified == tuple(gpu.pci_bus_id for gpu in report.gpus)


def test_every_format_says_that_the_gpus_are_simulated(gpudiag: Gpudiag) -> None:
    names = ["r.txt", "r.md", "r.xml"]
    report_of(gpudiag, "host", "--simulate", "1", *(word for name in names for word in ("-o", name)), status=5)
    for name in names:
        assert "simulated" in (gpudiag.folder / name).read_text().lower(), name


@pytest.mark.parametrize(
    ("fault", "kind", "named"),
    [
        ("library_missing=libcudnn.so.9", "discovery.physical_devices: fewer_listed", "libcudnn.so.9"),
        *(
            pytest.param(
                *unavailable, marks=pytest.mark.slow
            )  # the corpus has a machine of each, too, or a provocation
            for unavailable in (
                ("library_missing=libcudart.so.12", "discovery.physical_devices: fewer_listed", "libcudart.so.12"),
                ("library_missing=libcuda.so.1", "discovery.physical_devices: fewer_listed", "libcuda.so.1"),
                ("cudnn_version=9.1.0", "discovery.physical_devices: cudnn_too_old", "9.1.0"),
                ("cuinit=802", "discovery.physical_devices: fewer_listed", "CUDA_ERROR_SYSTEM_NOT_READY"),
                ("nvml_missing", "host.driver: no_nvml", "libnvidia-ml.so.1"),
                ("nvml_init=18", "host.driver: version_mismatch", "560.35.05"),
                ("driver_too_old=11.4", "host.driver: old_driver", "11.4"),
                ("context_creation=46", "discovery.logical_devices: creation_failed", "busy or unavailable"),
            )
        ),
        ("cudnn_version=8.9.7", "discovery.physical_devices: cudnn_too_old", "8.9.7"),
        ("device_lost_after=200", "discovery.logical_devices: creation_failed", "CUDA_ERROR_UNKNOWN"),
        ("memory_corrupted=1", "discovery.logical_devices: wrong_result", "GPU:0"),
    ],
)
def test_a_fault_is_found_and_named(fault: str, kind: str, named: str, gpudiag: Gpudiag) -> None:
    arguments = ("host", "discovery", "--simulate", "1", "--fault", fault, "--timeout", "30")
    report = report_of(gpudiag, *arguments, status=1)
    assert kind in found(report.rows)
    assert any(named in finding.message for row in report.rows for finding in row.findings)
    assert fault.partition("=")[0] in report.world.spec


def test_one_probe_says_why_there_is_no_context_and_the_others_are_skipped(gpudiag: Gpudiag) -> None:
    probes = ("discovery.physical_devices", "memory.fraction", "visibility.list_invalid", "visibility.mask_order")
    report = report_of(gpudiag, *probes, "--simulate", "2", "--fault", "context_creation@0", status=1)
    assert found(report.rows) == {"discovery.logical_devices: creation_failed"}
    assert [row.status for row in report.rows if row.probe == "discovery.physical_devices"] == ["pass"], "it only lists"
    skipped = {row.outcome.reason for row in report.rows if isinstance(row.outcome, Skipped)}
    assert skipped == {"no CUDA context could be created: discovery.logical_devices says why"}
    assert {report.device_label(row): row.status for row in report.rows if row.probe == "memory.fraction"} == {
        "GPU 0": "skipped",
        "GPU 1": "pass",
    }
    assert not any(isinstance(row.outcome, Broken) for row in report.rows)


@pytest.mark.parametrize("isolation", ["fork", "spawn"])
def test_the_callers_log_level_and_warnings_hide_nothing(isolation: str, gpudiag: Gpudiag) -> None:
    probes = ("discovery.physical_devices", "discovery.trace")
    arguments = (*probes, "--simulate", "1", "--fault", "library_missing=libcudnn.so.9", "--isolation", isolation)
    variables = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_CPP_VMODULE": "nothing=1", "PYTHONWARNINGS": "error"}
    report = report_of(gpudiag, *arguments, status=1, **variables)
    assert "discovery.physical_devices: fewer_listed" in found(report.rows)
    assert not any(isinstance(row.outcome, Broken) for row in report.rows)


@pytest.mark.parametrize(
    ("probe", "fault", "head"),
    [
        # TensorFlow dies of SIGSEGV.
        (
            "discovery.logical_devices",
            "stream_creation",
            "CUDA_ERROR_OUT_OF_MEMORY on GPU 0, although ",
        ),
        # It logs without end.
        (
            "discovery.logical_devices",
            "allocation_from=1",
            "CUDA_ERROR_OUT_OF_MEMORY on GPU 0, although ",
        ),
        # It aborts while it computes, and does not name the error.
        ("discovery.logical_devices", "call_fails=cuEventQuery:999", "failed: cuEventQuery answered"),
        # It aborts while its log is captured.
        (
            "memory.allocator",
            "call_fails=cuDeviceGetDefaultMemPool:999",
            "GPU 0 fails in memory.allocator: CUDA_ERROR_UNKNOWN",
        ),
        # It tries again without end while its log is captured.
        (
            "placement.default",
            "call_fails=cuMemHostAlloc:999",
            "2 MiB of the computer's memory (not the GPU's) cannot be pinned for the GPU",
        ),
    ],
)
def test_an_error_after_which_the_process_ends_is_a_failure_of_the_gpu(
    probe: str, fault: str, head: str, gpudiag: Gpudiag
) -> None:
    arguments = ("--simulate", "1", "--fault", fault, "--timeout", "300")  # on a busy machine it takes a while to die
    report = report_of(gpudiag, probe, *arguments, status=1)
    (row,) = [row for row in report.rows if row.probe == probe]
    assert [finding.kind for finding in row.findings] == ["process_ended"]
    assert head in report.diagnosis.causes[0].cause


def test_simulated_gpus_count_only_where_they_were_asked_for_in_one_breath(gpudiag: Gpudiag) -> None:
    host = ("check", "host.gpus", "--require-gpus", "2", "-q")
    assert gpudiag(*host, "--simulate", "2").returncode == 5, "enough of them, and nothing verified"
    assert gpudiag(*host, "--simulate", "1").returncode == 1
    refused = gpudiag(*host, GPUDIAG_SIMULATE="2")
    assert refused.returncode == 2
    assert "--simulate beside --require-gpus" in refused.stderr
    (gpudiag.folder / "gpudiag.toml").write_text('simulate = "2"\n')
    assert gpudiag(*host).returncode == 2
    (gpudiag.folder / "gpudiag.toml").unlink()
    inside = gpudiag("simulate", "2", "--", *gpudiag.command(*host, "--format", "json"))
    assert inside.returncode == 1
    report = codec.decode(inside.stdout, "standard output")
    assert report.world.simulated
    assert found(report.rows) == {"host.gpus: too_few"}


@pytest.mark.slow  # the workers of pytest have theirs at the same time
def test_machines_at_the_same_time_do_not_disturb_one_another(gpudiag: Gpudiag) -> None:
    specs = {"1x4GiB": 1, "3x8GiB": 3}
    probes = ("memory.fraction", "memory.limit", "memory.shared_gpu")
    running = [gpudiag.start("check", *probes, "--simulate", spec, "--format", "json") for spec in specs]
    for process, (spec, gpus) in zip(running, specs.items(), strict=True):
        with process:
            out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        report = codec.decode(out, spec)
        assert len(report.gpus) == gpus


def test_a_command_runs_on_the_machine_and_its_status_is_passed_on(gpudiag: Gpudiag) -> None:
    done = gpudiag("simulate", "4x8GiB", "--", sys.executable, "-c", f"{LIST_GPUS}; raise SystemExit(7)")
    assert (done.returncode, done.stdout) == (7, "4\n")
    assert done.stderr.startswith("gpudiag: 4 simulated GPUs")


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["check", "--simulate", "0"], 2, "^"),
        (["check", "--simulate", "65"], 2, "64"),
        (["check", "--simulate", "2x-4GiB"], 2, "^"),
        (["check", "--simulate", "2x16GiB:H1000"], 2, "H100"),
        (["check", "--simulate", "2", "--fault", "cuint=3"], 2, "cuinit"),
        (["check", "--fault", "cuinit"], 2, "--simulate"),
        (["simulate"], 2, "SPEC"),
        (["simulate", "2", "--", "no-such-command"], 127, "no-such-command"),
        (["simulate", "absent.toml", "--", "true"], 2, "absent.toml"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(arguments: list[str], status: int, said: str, gpudiag: Gpudiag) -> None:
    done = gpudiag(*arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_tensorflow_without_cuda_is_refused(gpudiag: Gpudiag) -> None:
    gpudiag.with_tensorflow("")
    build_info = gpudiag.folder / "modules/tensorflow/python/platform/build_info.py"
    build_info.parent.mkdir(parents=True)
    build_info.write_text("build_info = {'is_cuda_build': False}\n")
    done = gpudiag("check", "--simulate", "2")
    assert done.returncode == 2
    assert "CUDA wheel is needed" in done.stderr


def test_without_the_built_libraries_it_says_what_to_install(gpudiag: Gpudiag, tmp_path: Path) -> None:
    copy = _package_without_libraries(tmp_path)
    gpudiag.without("gpudiag").path.insert(0, str(copy))
    done = gpudiag("check", "--simulate", "2")
    assert done.returncode == 2
    assert "install" in done.stderr


def _package_without_libraries(folder: Path) -> Path:
    """Return a folder with a copy of this package, as an installation without a compiler leaves it."""
    import shutil

    import gpudiag as package

    source = Path(package.__file__).parent
    shutil.copytree(source, folder / "site/gpudiag", ignore=shutil.ignore_patterns("lib", "__pycache__"))
    return folder / "site"


@pytest.mark.starts
def test_a_command_on_a_simulated_machine_names_it_and_is_repeated_there(gpudiag: Gpudiag) -> None:
    check = ("-m", "gpudiag", "check", "host.driver", "-q", "--format", "json")
    done = gpudiag("simulate", "1x8GiB", "--fault", "nvml_missing", "--", sys.executable, *check, flags=())
    report = codec.decode(done.stdout, "standard output")
    assert report.world.spec == "1x8GiB --fault nvml_missing"
    assert words.next_of(report).command.startswith(
        "gpudiag simulate 1x8GiB --fault nvml_missing -- gpudiag check host.driver -q --format json"
    )
