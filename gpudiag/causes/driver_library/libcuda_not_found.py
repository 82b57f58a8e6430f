"""the library of the NVIDIA driver was not found where the program ran

TensorFlow finds no GPU without the driver's own library, and goes on with the CPU. On a machine without an NVIDIA GPU
that is normal. CUDA's packages do not bring it: it comes with the driver, or, in a container, with the NVIDIA container
toolkit; under WSL it lies in /usr/lib/wsl/lib.
"""

from __future__ import annotations

from gpudiag.cause import Cause, LogAlone, Match, Matches
from gpudiag.causes.shared.without_gpu import is_without_gpu
from gpudiag.fix import Kind, Where, configure, note, nvidia_smi, prepend, run, run_container, start
from gpudiag.knowledge.messages.imports import WRONG_BITS
from gpudiag.knowledge.messages.programs_and_drivers import NO_LIBCUDA
from gpudiag.knowledge.origin import Origin
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="the library of the NVIDIA driver, {name}, was not found where the program ran",
    fix=(
        nvidia_smi("if it fails, install the driver"),
        run_container("--gpus all"),
        note("do nothing if that machine has no NVIDIA GPU: TensorFlow uses the CPU"),
    ),
    url="https://www.tensorflow.org/install/pip#hardware_requirements",
    needs_gpu=False,
)

_WSL = prepend("LD_LIBRARY_PATH", "/usr/lib/wsl/lib", "if it runs in WSL, where the driver belongs to Windows")
_DRIVER_OF_WSL = run(
    "ls /usr/lib/wsl/lib/libcuda.so.1",
    "if the file does not exist, install NVIDIA's newest driver in Windows (none in WSL), "
    "then run wsl --update and wsl --shutdown in PowerShell; it must be WSL 2 (wsl -l -v)",
    kind=Kind.REBOOT,
)
_WSL_1 = run("wsl --set-version DISTRIBUTION 2", "in PowerShell; wsl -l -v lists them: WSL 1 has no GPU")
_NIX = prepend(
    "LD_LIBRARY_PATH", "/run/opengl-driver/lib", "if the system is NixOS, which has the driver's libraries there"
)
_POD = note(
    "request a GPU in Kubernetes: resources: limits: nvidia.com/gpu: 1; the node needs the NVIDIA device plugin",
    kind=Kind.START_CONTAINER,
)
_POD_RUNTIME = configure(
    "sudo nvidia-ctk runtime configure --set-as-default && sudo systemctl restart containerd",
    "or runtimeClassName: nvidia in the pod",
    where=Where.HOST,
)


def find(program: LogAlone, origin: Origin) -> Matches:
    said = program.first(NO_LIBCUDA)
    if said is None or is_without_gpu(program, origin) or program.first(WRONG_BITS):
        return
    install = run(
        "sudo ubuntu-drivers install; sudo reboot",
        "the NVIDIA driver, if there is a GPU: nvidia-smi must work",
        kind=Kind.CHANGE_DRIVER,
    )
    if origin.windows:
        install = note("install the NVIDIA driver of the GPU: https://www.nvidia.com/drivers", kind=Kind.INSTALL)
    container = run_container("--gpus all", note="in a container: the toolkit brings the host's library")
    if origin.singularity:
        container = start("singularity exec --nv ...", "or apptainer: brings the host's library along")
    first, second = (
        (_WSL_1, _DRIVER_OF_WSL)
        if origin.wsl_1
        else (_NIX, nvidia_smi("must list the GPU: hardware.nvidia in the system's configuration"))
        if origin.nix
        else (_WSL, _DRIVER_OF_WSL)
        if origin.wsl
        else (_POD, _POD_RUNTIME)
        if origin.pod
        else (container, install)
        if origin.container or origin.singularity
        else (install, container)
    )
    third = (
        container
        if origin.pod
        else _POD
        if origin.container
        else None
        if origin.windows or origin.mac or origin.wsl
        else _WSL
    )
    yield Match(
        program.said(NO_LIBCUDA),
        Confidence.LIKELY,
        {"name": "nvcuda.dll" if origin.windows else "libcuda.so.1"},
        fix=(first, None if origin.windows else second, third, CAUSE.fix[2]),
    )
