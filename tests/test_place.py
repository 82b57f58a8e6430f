"""Every action fits its place: it can be done there, and asks for nothing that is so already."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace as replaced_place
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from places import PLACES, misfits
from test_fix import Figure, declared

from examples import examples
from examples.facts import example_with_gpus
from gpudiag import catalogue
from gpudiag.cause import Evidence
from gpudiag.causes.shared.machine import install_command
from gpudiag.fix import (
    Action,
    Kind,
    Role,
    Where,
    boot_with,
    configure,
    export,
    install,
    install_driver,
    note,
    prepend,
    reboot,
    reset_gpu,
    run,
    run_container,
    unset,
)
from gpudiag.knowledge import starters
from gpudiag.model import codec
from gpudiag.model.facts import EnvironmentFacts, Facts, Unknown
from gpudiag.model.report import Limits
from gpudiag.place import Place, fitted, fitted_all
from gpudiag.run.diagnosis import diagnose
from gpudiag.run.why import NO_MACHINE

INSTALLED = install("tensorflow[and-cuda]==2.20.0")
GIVEN = run_container("--gpus all", "-e A=b", image="IMAGE")
RECORDED = Path(__file__).parent / "recorded" / "corpus"


def evidences() -> Iterator[tuple[str, Evidence]]:
    """Yield each machine of an example in which a cause is found, and each recorded report."""
    for cause, several in examples().items():
        for example in several:
            if example.fires and not example.evidence.is_log_alone:
                yield f"{cause}: {example.name}", example.evidence
    for path in sorted(RECORDED.glob("*.json")):
        report = codec.decode(path.read_text(encoding="utf-8"), path.name)
        rows = catalogue.decode_readings(report.rows)
        yield path.stem, Evidence(report.facts, report.gpus, rows, report.lines, report.limits)


@cache
def fixes() -> tuple[tuple[str, Facts, tuple[Action, ...]], ...]:
    """Return the fix of each cause on each machine as its file has it, not yet fitted to a place."""
    written = []
    for name, evidence in evidences():
        evidence.__dict__["place"] = Place()
        found = diagnose(evidence)
        written += [
            (f"{name} ({cause.cause_id})", evidence.facts, cause.fix) for cause in (*found.causes, *found.folded)
        ]
    return tuple(written)


@pytest.mark.parametrize("name", PLACES)
def test_each_action_fits(name: str) -> None:
    place = PLACES[name]
    wrong = []
    for source, of_machine, fix in fixes():
        if not place.can_be(of_machine):
            continue
        facts = place.of(of_machine)
        actions = fitted_all(fix, Place.of(facts))
        for action in actions:
            wrong += [f"{why}: {source}: {action.command}" for why in misfits(action, place, facts)]
        if not Place.of(facts).may_be_root and actions and not actions[0].command:
            wrong += [f"a sentence before {a.command}: {source}" for a in actions if can_be_done_now(a)]
    assert wrong == []


@pytest.mark.parametrize("name", PLACES)
def test_each_declared_action_fits(name: str) -> None:
    """The fixes of messages and findings, too, and those of machines that no example is."""
    place = PLACES[name]
    facts = place.of(example_with_gpus())
    here, wrong = Place.of(facts), []
    executable: Any = facts.system.executable  # type: ignore[union-attr]
    figures = defaultdict[str, Any](Figure, python=executable, executable=executable)
    for source, declared_fix in declared():
        filled = (
            action.replaced(
                command=action.command.format_map(figures),
                pip=tuple(argument.format_map(figures) for argument in action.pip),
            )
            for action in declared_fix
        )
        for action in filter(None, (fitted(action, here) for action in filled)):
            if action.where is not Where.SCHEDULER:
                wrong += [f"{why}: {source}: {action.command}" for why in misfits(action, place, facts)]
    assert wrong == []


def can_be_done_now(action: Action) -> bool:
    """Return whether the action is a command that the user can give without asking anybody."""
    asks = action.kind.is_of_the_host or action.note.startswith(("ask ", "as root"))
    return bool(action.command) and action.role in (Role.FIX, Role.ALTERNATIVE) and not asks


RENDERED = (
    ("uv venv without pip", INSTALLED, "uv pip install --python PREFIX 'tensorflow[and-cuda]==2.20.0'"),
    ("uv project", INSTALLED, "cd /srv/place && uv add 'tensorflow[and-cuda]==2.20.0'"),
    ("uv project", install("--force-reinstall", "--no-deps", "keras"), "cd /srv/place && uv add --reinstall keras"),
    (
        "uv project",
        install("--force-reinstall", "--no-cache-dir", "keras"),
        "cd /srv/place && uv add --reinstall --no-cache keras",
    ),
    ("Amazon Linux 2", boot_with("a=b"), "sudo grubby --update-kernel=ALL --args=a=b"),
    ("Nix", boot_with("a=b"), 'in configuration.nix: boot.kernelParams = [ "a=b" ]; then run nixos-rebuild boot'),
    ("poetry project", run("pip uninstall -y tensorflow-cpu"), "cd /srv/place && poetry remove tensorflow-cpu"),
    ("pipx", INSTALLED, "pipx runpip venv install 'tensorflow[and-cuda]==2.20.0'"),
    ("Docker", run("sudo rmmod a && sudo modprobe a"), "rmmod a && modprobe a"),
    ("rootless podman", GIVEN, "podman run --device nvidia.com/gpu=all -e A=b IMAGE"),
    ("Apptainer", GIVEN, "apptainer exec --nv --env A=b IMAGE COMMAND"),
    ("Kubernetes", GIVEN, 'resources: {limits: {nvidia.com/gpu: 1}}, env: [{name: A, value: "b"}]'),
    ("read-only image", INSTALLED, "RUN pip install 'tensorflow[and-cuda]==2.20.0'"),
    ("Colab", export("A", "b"), "import os; os.environ['A'] = 'b'"),
    ("Colab", run("sudo ldconfig"), "!ldconfig"),
    ("JupyterHub", configure("sudo ldconfig"), "sudo ldconfig"),
    ("Colab", configure("ulimit -l unlimited"), "ulimit -l unlimited"),
    ("WSL", run("wsl --update; wsl --shutdown", kind=Kind.REBOOT), "wsl --update; wsl --shutdown"),
    ("Fedora", install_driver(), "sudo dnf install akmod-nvidia xorg-x11-drv-nvidia-cuda"),
    ("WSL", reboot(), "wsl.exe --shutdown"),
    ("PyCharm", export("A", "b"), "in PyCharm: Run, Edit Configurations, Environment variables: A=b"),
    ("VS Code", prepend("A", "/opt/lib"), "echo A=/opt/lib >> .env"),
    ("RStudio", export("A", "b c"), "echo 'A=b c' >> ~/.Renviron"),
    ("RStudio", prepend("LD_LIBRARY_PATH", "/opt/lib"), "LD_LIBRARY_PATH=/opt/lib rstudio"),
    (
        "RStudio Server",
        prepend("LD_LIBRARY_PATH", "/opt/lib"),
        "echo rsession-ld-library-path=/opt/lib | sudo tee -a /etc/rstudio/rserver.conf && sudo rstudio-server restart",
    ),
    ("unit", export("A", "b"), "sudo systemctl edit ollama.service"),
    ("cron", unset("A"), "take A out of crontab -e: cron starts the program"),
    ("GitHub Actions", export("A", "b"), 'echo A=b >> "$GITHUB_ENV"'),
    (
        "JupyterHub",
        prepend("LD_LIBRARY_PATH", "/opt/lib"),
        "!EXECUTABLE -m ipykernel install --user --name gpu --env LD_LIBRARY_PATH /opt/lib",
    ),
    ("hatch", INSTALLED, "pip install 'tensorflow[and-cuda]==2.20.0'"),
    ("pixi", run("conda install -c conda-forge cudnn=9.1"), "cd /srv/place && pixi add cudnn=9.1"),
    ("micromamba", run("conda install -c conda-forge cudnn"), "micromamba install -c conda-forge cudnn"),
    (
        "EasyBuild",
        install("nvidia-cudnn-cu12==9.3.*"),
        "python -m venv --system-site-packages ~/tf && "
        "~/tf/bin/pip install --ignore-installed tensorflow==2.21.0 'nvidia-cudnn-cu12==9.3.*'",
    ),
    ("not root, without sudo", run("sudo ldconfig"), "ldconfig"),
)


@pytest.mark.parametrize(("name", "action", "command"), RENDERED)
def test_an_action_is_in_the_words_of_the_place(name: str, action: Action, command: str) -> None:
    facts = PLACES[name].of(example_with_gpus())
    assert not isinstance(facts.system, Unknown)
    named = command.replace("PREFIX", facts.system.prefix).replace("EXECUTABLE", facts.system.executable)
    action_here = fitted(action, replaced_place(Place.of(facts), unit="ollama.service"))
    assert action_here is not None
    assert named in (action_here.command, action_here.note)


def test_what_another_has_to_be_asked_for_comes_last() -> None:
    slurm = Place.of(PLACES["Slurm"].of(example_with_gpus()))
    reset, hide = reset_gpu("0"), export("CUDA_VISIBLE_DEVICES", "1", role=Role.ALTERNATIVE)
    other, own, asked = fitted_all((reset, hide), slurm)
    assert other.command == f"sbatch --exclude={slurm.node} SCRIPT"
    assert own == hide.replaced(role=Role.FIX)
    assert asked.command == "nvidia-smi --gpu-reset -i 0"
    assert asked.note == f"ask the administrators of {slurm.node} to run it as root"
    plain = Place.of(PLACES["venv"].of(example_with_gpus()))
    assert fitted_all((reset, hide), plain) == (reset, hide)
    told = note("reseat the card", kind=Kind.REPLACE_HARDWARE)
    assert fitted(told, slurm) == told.replaced(note=f"ask the administrators of {slurm.node}: reseat the card")


def test_a_node_is_named_as_its_scheduler_names_it() -> None:
    facts = PLACES["Slurm"].of(example_with_gpus(environment=EnvironmentFacts({"SLURMD_NODENAME": "gpu-7"})))
    assert fitted_all((reset_gpu("0"),), Place.of(facts))[0].command == "sbatch --exclude=gpu-7 SCRIPT"


def test_a_loader_without_a_cache_is_given_none() -> None:
    nix = Place.of(PLACES["Nix"].of(example_with_gpus()))
    path = prepend("LD_LIBRARY_PATH", "/run/opengl-driver/lib")
    assert fitted_all((path, configure("sudo ldconfig /run/opengl-driver/lib")), nix) == (path,)


def test_a_part_of_a_gpu_has_a_driver_of_its_own() -> None:
    guest = replaced_place(Place.of(PLACES["venv"].of(example_with_gpus())), is_vgpu=True)
    assert "fits the host's release" in fitted_all((install_driver(),), guest)[0].note


def test_what_is_so_already_is_left_out() -> None:
    facts = example_with_gpus(environment=EnvironmentFacts({"A": "b"}))
    nodes = facts.device_nodes
    assert not isinstance(nodes, Unknown)
    venv = Place.of(PLACES["venv"].of(replace(facts, device_nodes=replace(nodes, groups=("video",)))))
    rest = note("look further")
    for action in (
        export("A", "b"),
        install("tensorflow==2.21.0"),
        run("sudo usermod -aG video someone"),
        run_container("--gpus all"),
    ):
        assert fitted_all((action, rest), venv) == (rest,)
    docker = Place.of(PLACES["Docker"].of(facts))
    assert fitted_all((run_container("--gpus all"), rest), docker) == (rest,)
    for action in (export("A", "c"), install("--force-reinstall", "tensorflow==2.21.0"), unset("A")):
        assert fitted_all((action, rest), venv) == (action, rest)
    assert fitted_all((export("A", "b"),), venv) == (export("A", "b"),)


def test_nothing_changes_where_the_machine_is_not_known() -> None:
    facts = example_with_gpus(system=Unknown("only the log was examined"))
    for action in (INSTALLED, GIVEN, install_driver(), run("conda install cudnn")):
        assert fitted(action, Place.of(facts)) == action


def test_a_service_of_notebooks_is_asked_for_a_machine_with_a_gpu() -> None:
    colab = Place.of(PLACES["Colab"].of(example_with_gpus()))
    assert "Change runtime type" in colab.way_to_a_gpu
    assert fitted_all((install_driver(), reboot()), colab) == (note(colab.way_to_a_gpu),)
    assert Place.of(PLACES["venv"].of(example_with_gpus())).way_to_a_gpu == ""


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        ("Fedora Linux 41", "sudo dnf install akmod-nvidia xorg-x11-drv-nvidia-cuda"),
        ("Arch Linux", "sudo pacman -S nvidia-dkms linux-headers"),
        ("Debian GNU/Linux 12", "sudo apt install linux-headers-"),
        ("NixOS 24.11", "hardware.graphics.enable"),
        ("Void Linux", "sudo xbps-install -S nvidia"),
        ("CentOS Linux 7 (Core)", "sudo yum install nvidia-driver-latest-dkms"),
        ("Amazon Linux 2", "sudo yum install gcc kernel-devel-$(uname -r) && curl -fO https://us.download.nvidia.com"),
        ("Amazon Linux 2023", "sudo dnf module install nvidia-driver:latest-dkms"),
        ("Solus 4.6", "install NVIDIA's driver for Solus 4.6"),
    ],
)
def test_a_driver_is_installed_as_the_distribution_does(system: str, expected: str) -> None:
    facts = example_with_gpus()
    assert not isinstance(facts.system, Unknown)
    facts = replace(facts, system=replace(facts.system, os=system))
    action = install_command(facts)
    assert action.text.startswith(expected) or expected in action.note
    assert fitted(action, Place.of(facts)) is not None


def test_a_hub_sets_the_variables_of_its_servers() -> None:
    hub = Place.of(PLACES["JupyterHub"].of(example_with_gpus()))
    action = fitted(prepend("LD_LIBRARY_PATH", "/opt/lib"), hub)
    assert action is not None
    assert "c.Spawner.environment" in action.note


STARTED: tuple[tuple[dict[str, str], str, tuple[str, ...]], ...] = (
    ({"SLURM_JOB_ID": "7", "TERM": "xterm"}, "slurmstepd.service", ("Slurm",)),
    ({"RSTUDIO": "1", "RSTUDIO_PROGRAM_MODE": "server"}, "", ("RStudio Server", "RStudio")),
    ({"RSTUDIO": "1", "RSTUDIO_TERM": "A1"}, "", ()),
    ({"VSCODE_PID": "7", "TERM_PROGRAM": "vscode", "TERM": "xterm"}, "", ()),
    ({"VSCODE_PID": "7"}, "", ("VS Code",)),
    ({}, "cron.service", ("cron", "systemd")),
    ({}, "ollama.service", ("systemd",)),
    ({"TERM": "xterm"}, "tmux.service", ()),
    ({"TERM": "xterm", "GIO_LAUNCHED_DESKTOP_FILE": "/a.desktop"}, "", ()),
)


@pytest.mark.parametrize(("environ", "unit", "names"), STARTED)
def test_a_shell_within_sets_the_variables_itself(environ: dict[str, str], unit: str, names: tuple[str, ...]) -> None:
    assert starters.names(environ, unit) == names


LOGS = (
    ("/home/a/.cache/pypoetry/virtualenvs/b/lib/python3.12/site-packages/x.py", INSTALLED, "poetry add"),
    ("ImportError: /nix/store/a-python3/lib/x.so: cannot open shared object file", INSTALLED, "-m venv"),
    ("/.singularity.d/libs/libcuda.so.1", GIVEN, "apptainer exec --nv"),
    ("slurmstepd: error: *** JOB 1 ON n1 CANCELLED", reset_gpu("0"), "sbatch --exclude=NODE"),
    ("/opt/pycharm/plugins/python/helpers/pydev/pydevconsole.py", export("A", "b"), "Edit Configurations"),
    ("/kaggle/working/program.py", install_driver(), "Kaggle: stop the session"),
    ("/usr/lib/python3/dist-packages/x.py", INSTALLED, "pip install"),
)


@pytest.mark.parametrize(("line", "action", "words"), LOGS)
def test_a_log_shows_where_it_was_written(line: str, action: Action, words: str) -> None:
    evidence = Evidence(NO_MACHINE, (), (), (line,), Limits())
    assert words in fitted_all((action,), evidence.place)[0].text


def test_a_list_that_is_not_known_is_left_to_a_shell() -> None:
    unit = Place.of(PLACES["unit"].of(example_with_gpus()))
    path = prepend("PATH", "/usr/local/cuda/bin")
    assert fitted(path, unit) == path
