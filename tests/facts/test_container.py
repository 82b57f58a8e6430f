"""The family ``container`` on marks made by the test."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudiag.facts import container
from gpudiag.model.facts import ContainerFacts


def put(root: Path, path: str, text: str = "") -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def mount(source: str, target: str) -> str:
    return f"36 35 98:0 {source} {target} rw,noatime - ext4 /dev/sda1 rw\n"


def test_no_container(tmp_path: Path) -> None:
    assert container.gather(tmp_path, {}) == ContainerFacts(None, (), False, None)


def test_the_host_of_containers_is_none(tmp_path: Path) -> None:
    put(tmp_path, "proc/1/cgroup", "0::/init.scope\n")
    put(tmp_path, "proc/self/mountinfo", mount("/", "/") + mount("/", "/var/lib/docker/overlay2/1f/merged"))
    assert container.gather(tmp_path, {}).runtime is None


@pytest.mark.parametrize(
    ("path", "runtime"),
    [(".dockerenv", "docker"), ("run/.containerenv", "podman"), (".singularity.d/x", "singularity")],
)
def test_files_that_runtimes_leave(tmp_path: Path, path: str, runtime: str) -> None:
    put(tmp_path, path)
    assert container.gather(tmp_path, {}).runtime == runtime


@pytest.mark.parametrize(
    ("line", "runtime"),
    [
        ("12:memory:/docker/0123456789ab", "docker"),
        ("12:memory:/kubepods/burstable/pod1/0123", "kubernetes"),
        ("0::/system.slice/docker-0123.scope", "docker"),
        ("0::/machine.slice/libpod-0123.scope", "podman"),
        ("0::/kubepods.slice/cri-containerd-0123.scope", "kubernetes"),
        ("1:name=systemd:/lxc/web", "lxc"),
    ],
)
def test_names_in_the_control_group(tmp_path: Path, line: str, runtime: str) -> None:
    put(tmp_path, "proc/1/cgroup", f"{line}\n")
    facts = container.gather(tmp_path, {})
    assert facts.runtime == runtime
    assert facts.evidence[0].endswith("in /proc/1/cgroup")


def test_names_in_the_mounts_where_control_groups_tell_nothing(tmp_path: Path) -> None:
    put(tmp_path, "proc/1/cgroup", "0::/\n")
    put(tmp_path, "proc/self/mountinfo", mount("/var/lib/docker/containers/01/hostname", "/etc/hostname"))
    assert container.gather(tmp_path, {}).runtime == "docker"


def test_variables_that_runtimes_set(tmp_path: Path) -> None:
    put(tmp_path, ".singularity.d/x")
    facts = container.gather(tmp_path, {"APPTAINER_CONTAINER": "/images/tf.sif", "container": "apptainer"})
    assert facts.runtime == "apptainer"
    assert facts.evidence == ("APPTAINER_CONTAINER", "container=apptainer", "/.singularity.d")


def test_kubernetes(tmp_path: Path) -> None:
    assert container.gather(tmp_path, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}).kubernetes
    for folder in ("run", "var/run"):
        put(tmp_path / folder, f"{folder}/secrets/kubernetes.io/serviceaccount/namespace")
        assert container.gather(tmp_path / folder, {}).kubernetes


@pytest.mark.parametrize(
    ("source", "runtime", "kubernetes"),
    [
        ("/var/lib/kubelet/pods/0a1b/etc-hosts", "kubernetes", True),
        ("/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/0a1b/hostname", "containerd", False),
        ("/run/containers/storage/overlay-containers/0a1b/userdata/hosts", "podman", False),
    ],
)
def test_a_private_control_group_tells_nothing_and_mounts_do(
    tmp_path: Path, source: str, runtime: str, kubernetes: bool
) -> None:
    put(tmp_path, "proc/1/cgroup", "0::/\n")
    put(tmp_path, "proc/self/mountinfo", mount("/", "/") + mount(source, "/etc/hosts"))
    facts = container.gather(tmp_path, {})
    assert (facts.runtime, facts.kubernetes) == (runtime, kubernetes)


def test_limits(tmp_path: Path) -> None:
    shm = "25 24 0:23 / /dev/shm rw,relatime - tmpfs shm rw,size=%dk\n"
    put(tmp_path, "proc/self/mountinfo", mount("/", "/") + shm % 1048576 + shm % 65536)
    put(tmp_path, "proc/self/limits", "Max processes  5  5  processes\nMax locked memory   65536   unlimited   bytes\n")
    put(tmp_path, "dev/infiniband/uverbs0")
    facts = container.gather(tmp_path, {})
    assert (facts.shm_bytes, facts.memlock_bytes) == (64 << 20, 64 << 10), "the last mount is the one that is seen"
    assert facts.infiniband == ("/dev/infiniband/uverbs0",)


def test_no_limits(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/mountinfo", "25 24 0:23 / /dev/shm rw,nosuid - tmpfs tmpfs rw\n")
    put(tmp_path, "proc/self/limits", "Max locked memory   unlimited   unlimited   bytes\n")
    facts = container.gather(tmp_path, {})
    assert (facts.shm_bytes, facts.memlock_bytes, facts.infiniband) == (None, None, ())


def test_slurm(tmp_path: Path) -> None:
    assert container.gather(tmp_path, {"SLURM_JOB_ID": "17"}).slurm_job == "17"


def overlay(*layers: str) -> str:
    return f"36 35 0:50 / / rw - overlay overlay rw,lowerdir={':'.join(layers)},upperdir=/u,workdir=/w\n"


def image(root: Path, mounts: str = "", **environ: str) -> str | None:
    put(root, ".dockerenv")
    put(root, "proc/self/mountinfo", mounts)
    return container.gather(root, environ).image


def test_torque_names_the_gpus_of_a_job_in_a_file(tmp_path: Path) -> None:
    put(tmp_path, "var/spool/torque/aux/17.headgpu", "node7-gpu1\nnode7-gpu3\nnode8-gpu0\n")
    given = {"PBS_GPUFILE": "/var/spool/torque/aux/17.headgpu"}
    assert container.gather(tmp_path, given).job_gpus == (1, 3)
    assert container.gather(tmp_path, {"PBS_GPUFILE": "/no/such/file"}).job_gpus is None


def test_the_image_has_the_name_that_the_runtime_gives(tmp_path: Path) -> None:
    assert image(tmp_path, APPTAINER_CONTAINER="/images/tf.sif") == "/images/tf.sif"
    put(tmp_path, "run/.containerenv", 'engine="podman-4.3"\nimage="docker.io/tensorflow/tensorflow:2.18.0-gpu"\n')
    assert image(tmp_path) == "docker.io/tensorflow/tensorflow:2.18.0-gpu"


def test_the_image_is_known_by_its_layers(tmp_path: Path) -> None:
    docker = "/var/lib/docker/overlay2/l/"
    first = image(tmp_path, overlay(f"{docker}OWN1", f"{docker}B", f"{docker}A"))
    assert first == image(tmp_path, overlay(f"{docker}OWN2", f"{docker}B", f"{docker}A"))
    assert first != image(tmp_path, overlay(f"{docker}OWN1", f"{docker}C", f"{docker}A"))
    assert image(tmp_path, overlay("/s/2/fs", "/s/1/fs")) != image(tmp_path, overlay("/s/3/fs", "/s/1/fs"))
    assert image(tmp_path, mount("/", "/")) is None


def test_outside_a_container_there_is_no_image(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/mountinfo", overlay("/live/2", "/live/1"))
    assert container.gather(tmp_path, {}).image is None


@pytest.mark.parametrize(
    ("files", "environ", "runtime"),
    [
        ({".flatpak-info": "[Application]\nname=org.x.App\n"}, {}, "flatpak"),
        ({"run/.containerenv": "", "run/.toolboxenv": ""}, {}, "toolbox"),
        ({"run/.containerenv": ""}, {"DISTROBOX_ENTER_PATH": "/usr/bin/distrobox-enter"}, "distrobox"),
        ({}, {"container": "firejail"}, "firejail"),
        ({"proc/1/comm": "bwrap\n"}, {}, "bubblewrap"),
        ({"proc/1/comm": "systemd\n"}, {}, None),
    ],
)
def test_sandboxes_with_a_sign_of_their_own(
    tmp_path: Path, files: dict[str, str], environ: dict[str, str], runtime: str | None
) -> None:
    for file, text in files.items():
        put(tmp_path, file, text)
    assert container.gather(tmp_path, environ).runtime == runtime


@pytest.mark.parametrize(
    ("files", "sandbox"),
    [
        ({"proc/self/cgroup": "0::/system.slice/ollama.service\n"}, ("systemd", "ollama.service")),
        ({"proc/self/cgroup": "0::/user.slice/user-7.slice/user@7.service/app.slice/a.scope\n"}, (None, "")),
        ({"proc/self/cgroup": "0::/user.slice/user-7.slice/user@7.service\n"}, (None, "")),
        ({"proc/self/cgroup": "0::/x/snap.notebook.python-1f.scope\n"}, ("snap", "notebook")),
        ({"proc/self/mountinfo": mount("/", "/usr")}, ("chroot", "")),
        ({"proc/self/mountinfo": mount("/", "/")}, (None, "")),
        ({"proc/version": "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n"}, ("gvisor", "")),
        ({"proc/version": "Linux version 4.4.0-210-generic (buildd@x)\n"}, (None, "")),
    ],
)
def test_what_confines_a_process_besides_a_container(
    tmp_path: Path, files: dict[str, str], sandbox: tuple[str | None, str]
) -> None:
    for file, text in files.items():
        put(tmp_path, file, text)
    facts = container.gather(tmp_path, {})
    assert (facts.sandbox, facts.sandbox_name) == sandbox
    assert facts.runtime is None


def test_rights_of_a_process(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/uid_map", "         0       1000          1\n         1     100000      65536\n")
    put(tmp_path, "proc/self/status", "CapEff:\t00000000a80425f9\n")
    facts = container.gather(tmp_path, {})
    assert (facts.user_namespace, facts.overrides_permissions) == ("0 1000 1; 1 100000 65536", False)
    put(tmp_path, "proc/self/uid_map", "         0          0 4294967295\n")
    put(tmp_path, "proc/self/status", "CapEff:\t000001ffffffffff\n")
    facts = container.gather(tmp_path, {})
    assert (facts.user_namespace, facts.overrides_permissions) == (None, True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[Application]\nname=org.example.App\n[Context]\nshared=a;\ndevices=dri;\n",
            ("org.example.App", "dri;"),
        ),
        ("[Application]\nname=org.example.App\n", ("org.example.App", "")),
        ("not a file of settings", ("", None)),
        ("", ("", None)),
    ],
)
def test_what_a_flatpak_passes_in(tmp_path: Path, text: str, expected: tuple[str, str | None]) -> None:
    put(tmp_path, ".flatpak-info", text)
    facts = container.gather(tmp_path, {})
    assert (facts.runtime, facts.sandbox_name, facts.flatpak_devices) == ("flatpak", *expected)
