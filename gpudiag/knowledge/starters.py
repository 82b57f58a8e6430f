"""What starts the user's program: it alone decides which variables the program gets, as one table.

A shell is the ordinary case, and has no row. Each row has the signs by which a process sees that something else started
it, and how to give that a variable, or to have it start the program on another node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from shlex import quote


@dataclass(frozen=True)
class Starter:
    """A program or a service that starts programs. The texts have the fields ``name``, ``value``, ``setting`` (a
    variable, with its value, as one word of a shell), ``unit`` and ``node``."""

    name: str
    signs: tuple[str, ...] = ()
    """Variables that it sets, as ``NAME`` or ``NAME=value``: one is enough."""
    unless: tuple[str, ...] = ()
    """Variables, in the same form, of a shell that it starts: what is started there has that shell's variables."""
    words: tuple[str, ...] = ()
    """What it leaves in the logs of the programs that it starts."""
    units: tuple[str, ...] = ()
    """Its units of systemd; ``*`` for any other."""
    command: str = ""
    """How a variable is set; "" if by hand."""
    note: str = ""
    """What is said beside the command, or what to do by hand."""
    loader: tuple[str, str] | None = None
    """Command and note for variables that the loader reads when a process starts."""
    place: str = ""
    """Where its variables are written, in words."""
    elsewhere: str = ""
    """How a job is started again on another node."""
    node: str = ""
    """The variable with its own name of this node, which the kernel may know by another."""

    def setting(self, name: str, value: str, unit: str, *, of_loader: bool) -> tuple[str, str]:
        """Return the command that sets a variable, which may be "", and what is said about it."""
        command, note = self.loader if of_loader and self.loader else (self.command, self.note)
        fields = {"name": name, "value": value, "setting": quote(f"{name}={value}"), "unit": unit}
        return command.format_map(fields), note.format_map(fields)


_RENVIRON = ("echo {setting} >> ~/.Renviron", "then restart R: Session, Restart R")

STARTERS = (
    Starter(
        "Slurm",
        ("SLURM_JOB_ID",),
        words=("slurmstepd", "/var/spool/slurmd/", "/slurmd/job", "srun: error"),
        elsewhere="sbatch --exclude={node} SCRIPT",
        node="SLURMD_NODENAME",
    ),
    Starter(
        "LSF",
        ("LSB_JOBID",),
        words=("/.lsbatch/", "LSBATCH:"),
        elsewhere="bsub -R \"select[hname!='{node}']\" < SCRIPT",
    ),
    Starter(
        "PBS",
        ("PBS_JOBID",),
        words=("/var/spool/pbs/", "/var/spool/torque/"),
        elsewhere="qsub -l select=1:host=ANOTHER_NODE:ngpus=1 SCRIPT",
    ),
    Starter("Grid Engine", ("SGE_TASK_ID",), elsewhere="qsub -l 'h=!{node}' SCRIPT"),
    Starter(
        "HTCondor",
        ("_CONDOR_SCRATCH_DIR",),
        elsewhere="condor_submit SCRIPT -append 'requirements = Machine != \"{node}\"'",
    ),
    Starter(
        "GitHub Actions",
        ("GITHUB_ACTIONS",),
        command='echo {setting} >> "$GITHUB_ENV"',
        note="in a step before the one that starts the program",
        words=("/home/runner/work/", "/actions-runner/_work/", "##[error]"),
        place="the env: of the workflow",
    ),
    Starter(
        "GitLab CI",
        ("GITLAB_CI",),
        note='in .gitlab-ci.yml, write for the job: variables: {{{name}: "{value}"}}',
        words=("Running with gitlab-runner",),
        place="the variables: of .gitlab-ci.yml",
    ),
    Starter(
        "Jenkins",
        ("JENKINS_URL",),
        note="in the Jenkinsfile, write for the stage: environment {{ {name} = '{value}' }}",
        words=("/var/lib/jenkins/workspace/",),
        place="the environment of the Jenkinsfile",
    ),
    Starter(
        "RStudio Server",
        ("RSTUDIO_PROGRAM_MODE=server",),
        ("RSTUDIO_TERM",),
        command=_RENVIRON[0],
        note=_RENVIRON[1],
        loader=(
            "echo rsession-ld-library-path={value} | sudo tee -a /etc/rstudio/rserver.conf && "
            "sudo rstudio-server restart",
            "sessions of RStudio Server get it from there, not from a shell or ~/.Renviron",
        ),
        place="~/.Renviron and /etc/rstudio/rserver.conf",
    ),
    Starter(
        "RStudio",
        ("RSTUDIO",),
        ("RSTUDIO_TERM",),
        command=_RENVIRON[0],
        note=_RENVIRON[1],
        loader=("{setting} rstudio", "in a terminal: an RStudio that the desktop starts has no variables of a shell"),
        place="~/.Renviron",
    ),
    Starter(
        "PyCharm",
        ("PYCHARM_HOSTED",),
        note="in PyCharm: Run, Edit Configurations, Environment variables: {setting}",
        words=("/helpers/pydev/", "\\helpers\\pydev\\"),
        place="Run, Edit Configurations, Environment variables",
    ),
    Starter(
        "VS Code",
        ("VSCODE_PID", "VSCODE_CWD", "VSCODE_NLS_CONFIG", "VSCODE_ESM_ENTRYPOINT"),
        ("TERM_PROGRAM=vscode",),
        command="echo {setting} >> .env",
        note="in the folder that VS Code has open; then restart the kernel, or start the program again",
        words=("/.vscode-server/extensions/ms-toolsai.jupyter", "/.vscode/extensions/ms-toolsai.jupyter"),
        place="the file .env of the folder that VS Code has open",
    ),
    Starter(
        "cron",
        unless=("TERM",),
        units=("cron.service", "crond.service"),
        note="crontab -e: write {setting} in a line of its own, above that of the job",
        place="crontab -e",
    ),
    Starter(
        "systemd",
        unless=("TERM",),
        units=("*",),
        command="sudo systemctl edit {unit}",
        note="write: [Service] Environment={setting}; then restart the unit",
        place="the unit",
    ),
    Starter(
        "the desktop",
        ("GIO_LAUNCHED_DESKTOP_FILE",),
        ("TERM",),
        command="mkdir -p ~/.config/environment.d && echo {setting} >> ~/.config/environment.d/gpu.conf",
        note="then log in again: a program that the desktop starts has no variables of a shell",
        place="~/.config/environment.d",
    ),
)
"""Every row, the innermost first."""


@dataclass(frozen=True)
class Notebooks:
    """A service, or a server, that runs notebooks."""

    name: str
    variable: str
    """A variable that it sets for its kernels."""
    words: tuple[str, ...] = ()
    """Folders that only its machines have."""
    another: str = ""
    """How it gives another machine, with a GPU: in place of a change of the driver, or a reboot."""


NOTEBOOKS = (
    Notebooks(
        "Colab",
        "COLAB_RELEASE_TAG",
        ("/content/drive/", "/content/sample_data"),
        "Colab: Runtime, Disconnect and delete runtime; then Change runtime type, GPU, and run every cell again",
    ),
    Notebooks(
        "Kaggle",
        "KAGGLE_KERNEL_RUN_TYPE",
        ("/kaggle/input/", "/kaggle/working/"),
        "Kaggle: stop the session; then Settings, Accelerator, GPU, and run every cell again",
    ),
    Notebooks(
        "Databricks",
        "DATABRICKS_RUNTIME_VERSION",
        ("/databricks/python", "/local_disk0/.ephemeral_nfs/"),
        "Databricks: restart the cluster, with a runtime for machine learning with GPUs",
    ),
    Notebooks(
        "SageMaker",
        "SAGEMAKER_INTERNAL_IMAGE_URI",
        ("/home/ec2-user/SageMaker/", "/home/sagemaker-user/"),
        "SageMaker: stop the notebook's instance; then start it with an instance type that has a GPU, such as "
        "ml.g4dn.xlarge",
    ),
    Notebooks(
        "Vertex AI",
        "VERTEX_PRODUCT",
        another="Vertex AI: stop the notebook's instance; then Edit, Machine type, GPU, and start it",
    ),
    Notebooks("Jupyter", "JPY_PARENT_PID"),
)
"""Every row, the most special first."""
BY_NAME = {starter.name: starter for starter in STARTERS}


def names(environ: Mapping[str, str], unit: str) -> tuple[str, ...]:
    """Return the names of what started this process, whose unit of systemd is ``unit``, "" if it is in none."""
    return tuple(starter.name for starter in STARTERS if _has_started(starter, environ, unit))


def _has_started(starter: Starter, environ: Mapping[str, str], unit: str) -> bool:
    shows = any(_is_set(sign, environ) for sign in starter.signs) or unit in starter.units
    return (shows or bool(unit and "*" in starter.units)) and not any(_is_set(sign, environ) for sign in starter.unless)


def _is_set(sign: str, environ: Mapping[str, str]) -> bool:
    name, _, value = sign.partition("=")
    return name in environ and value in ("", environ[name])
