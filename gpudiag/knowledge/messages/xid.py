"""Xid: the errors that NVIDIA's kernel module writes into the kernel log when something fails on a GPU.

The numbers are those of ``nverror.h`` in NVIDIA's open kernel modules (595.45.04); the meanings, and what is done first
(restart the program, reset the GPU, reboot, nothing), are from NVIDIA's catalogue of Xids, in our own words
(https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, and ``xiderrorsmapping.csv`` of NVSentinel).
"""

from __future__ import annotations

from gpudiag.fix import Action, Kind, ask, check, install_driver, kernel_log, note, nvidia_smi, reboot, reset_gpu, run
from gpudiag.knowledge.fault import Confidence, Stage
from gpudiag.knowledge.message import Message, MessageFamily

FAMILY = MessageFamily(
    "Xid: errors in the kernel's log",
    stage=Stage.FIRST_OP,
    seen="NVIDIA driver",
    url="https://docs.nvidia.com/deploy/xid-errors/",
)

_AGAIN = note("start the program again: NVIDIA asks for nothing more at first")
_PROGRAM = (
    _AGAIN,
    check("CUDA_LAUNCH_BLOCKING=1 python program.py", "makes the traceback name the operation that failed"),
    note("test the GPU if other programs fail on it, too: sudo dcgmi diag -r 3"),
)
_RESET = (
    reset_gpu("{gpu}.0", "if no process uses this GPU; or reboot"),
    nvidia_smi("shows errors of its memory", "-q -d ECC,ROW_REMAPPER"),
    check("sudo dcgmi diag -r 3", "if the error returns, have the GPU replaced"),
)
_LOST = (
    reboot("or switch the machine off and on: the GPU does not answer before"),
    note(
        "check power cables, seat, temperature and the power supply; use another slot if the error returns",
        kind=Kind.REPLACE_HARDWARE,
    ),
    nvidia_smi(options="-q -d TEMPERATURE,POWER"),
)
_GSP = (
    reset_gpu("{gpu}.0", "if no process uses this GPU; or reboot"),
    note("update the driver: many such faults were fixed", kind=Kind.CHANGE_DRIVER),
    run(
        "echo options nvidia NVreg_EnableGpuFirmware=0 | sudo tee /etc/modprobe.d/nvidia-gsp.conf",
        "proprietary module",
        kind=Kind.CHANGE_DRIVER,
    ),
)
_NVLINK = (
    ask("nvidia-smi nvlink -e; nvidia-smi nvlink -s", "shows errors and state of each link"),
    check(
        "sudo systemctl status nvidia-fabricmanager",
        "if NVSwitch joins the GPUs, it must run, and be of the driver's version",
    ),
    reboot(),
)
_UPDATE = (
    note(
        "update the driver; if the error returns, report it to NVIDIA with nvidia-bug-report.sh",
        kind=Kind.CHANGE_DRIVER,
    ),
)

_ROWS: tuple[tuple[str, str, tuple[Action, ...], Confidence], ...] = (
    # numbers, meaning, fix, whether others lead to it
    ("8", "the GPU stopped: a kernel ran longer than the driver's watchdog allows", _PROGRAM, Confidence.POSSIBLE),
    (
        "13",
        "a kernel of the program failed on the GPU: an address, an instruction or an index that is not valid",
        _PROGRAM,
        Confidence.POSSIBLE,
    ),
    ("31 30", "the program accessed GPU memory that it does not own", _PROGRAM, Confidence.POSSIBLE),
    (
        "32 80",
        "commands for the GPU were damaged on their way: the driver, memory of the host, or PCIe",
        (_AGAIN, *_UPDATE),
        Confidence.POSSIBLE,
    ),
    ("38", "the firmware of the driver failed", (_AGAIN, *_UPDATE), Confidence.LIKELY),
    (
        "43 174",
        "the driver ended what a program ran on the GPU; the program, as a rule, is at fault",
        _PROGRAM,
        Confidence.POSSIBLE,
    ),
    (
        "45",
        "the driver cleaned up after a program that ended or failed; another Xid before it names the fault",
        (
            _AGAIN,
            note("look at the Xid before this one; alone it only says that a program was ended"),
        ),
        Confidence.POSSIBLE,
    ),
    ("44", "the GPU failed while it changed from one program to another", (_AGAIN, *_UPDATE), Confidence.POSSIBLE),
    ("48 140 171 172", "memory of the GPU has an error that cannot be corrected", _RESET, Confidence.LIKELY),
    (
        "56 57 16 19",
        "the GPU's display or its memory failed",
        _UPDATE,
        Confidence.POSSIBLE,
    ),
    ("58 175 90", "the GPU's memory system has failed", _RESET, Confidence.LIKELY),
    ("59 61 62 122 123 124", "the GPU's power controller has failed", (*_RESET, *_LOST[1:]), Confidence.LIKELY),
    (
        "63 156 160",
        "a bad place of the GPU's memory was retired; this takes effect after a reset",
        _RESET[:2],
        Confidence.LIKELY,
    ),
    (
        "64 157 161",
        "a bad place of the GPU's memory could not be retired: the GPU must be replaced",
        _RESET,
        Confidence.LIKELY,
    ),
    (
        "66 67",
        "the program or the driver used memory of the GPU in a way that is not allowed",
        _PROGRAM,
        Confidence.POSSIBLE,
    ),
    (
        "39 40 41 70 71 72 75 76 77 85 126 127 128 129 130 131 132 133 134 135",
        "an engine of the GPU that copies memory has failed",
        (_AGAIN, *_RESET),
        Confidence.POSSIBLE,
    ),
    (
        "68 83 84 88 89 96 97 98 47 65 73 142 82 99 100 101 102 103 104 105 86 139 20 21 22 27 28 29 34 35 36 42",
        "an engine of the GPU for video has failed",
        (_AGAIN, *_UPDATE),
        Confidence.POSSIBLE,
    ),
    ("69", "the GPU refused commands of the program or of the driver", _PROGRAM, Confidence.POSSIBLE),
    (
        "74 108 137 144 145 146 147 148 149 150 155 166 170",
        "an NVLink connection of the GPU has an error",
        _NVLINK,
        Confidence.LIKELY,
    ),
    (
        "78",
        "a vGPU could not be started",
        (note("the vGPU's driver must fit the host's; see the host's log", kind=Kind.CHANGE_DRIVER),),
        Confidence.LIKELY,
    ),
    ("79", "the GPU does not answer any more: it has fallen off the PCIe bus", _LOST, Confidence.LIKELY),
    ("81", "the GPU's VGA unit has failed", _LOST, Confidence.POSSIBLE),
    ("87", "the driver reports on itself", _UPDATE, Confidence.POSSIBLE),
    (
        "92",
        "the GPU's memory has many errors that could be corrected",
        (note("nothing has to be done now; if it comes often, reset the GPU and watch its memory"), *_RESET[1:]),
        Confidence.POSSIBLE,
    ),
    (
        "94",
        "memory of the GPU has an error that was contained: only the program that used it was ended",
        (note("start the program again; the GPU can be reset when no program uses it"), *_RESET),
        Confidence.LIKELY,
    ),
    (
        "95",
        "memory of the GPU has an error that could not be contained: all programs on it are affected",
        _RESET,
        Confidence.LIKELY,
    ),
    ("109", "the GPU did not change from one program to another in time", _RESET, Confidence.POSSIBLE),
    ("110 33 60 169", "the GPU's security processor has failed", (*_RESET, *_LOST[1:]), Confidence.LIKELY),
    ("119 120 158", "the GPU's system processor (GSP) does not answer the driver", _GSP, Confidence.LIKELY),
    ("121 173", "the link between the GPU and its CPU has an error", _LOST, Confidence.LIKELY),
    ("125 93", "the GPU's settings memory (InfoROM) is damaged or worn out", _UPDATE, Confidence.LIKELY),
    ("136", "an NVLink connection could not be trained", (*_RESET[:1], *_NVLINK), Confidence.LIKELY),
    ("138 141 159", "a part of the GPU has failed", _RESET, Confidence.POSSIBLE),
    ("143", "the GPU could not be initialised", _LOST, Confidence.LIKELY),
    ("151", "the confidential computing keys could not be renewed", _RESET[:1], Confidence.LIKELY),
    ("154", "the driver says what the GPU needs: the end of the line names it", _RESET, Confidence.LIKELY),
    ("167 176", "the GPU's PCIe connection has failed", _LOST, Confidence.LIKELY),
    ("168", "the GPU has less memory than it should have", _RESET, Confidence.LIKELY),
)


def _rows() -> dict[str, Message]:
    found: dict[str, Message] = {}
    for numbers, meaning, fix, confidence in _ROWS:
        first, *_ = numbers.split()
        message = FAMILY.fault(
            f"xid_{first}", meaning=f"Xid {{code}}: {meaning}", in_general=meaning, fix=fix, confidence=confidence
        )
        found |= dict.fromkeys(numbers.split(), message)
    return found


BY_NUMBER = _rows()
_REQUIRED = "Xid 154: the driver says what the GPU needs before it is used again: {code}"
_BY_ACTION = {
    action: message
    for actions, message in (
        (
            actions,
            FAMILY.fault(f"recovery_by_{name}", meaning=_REQUIRED, in_general=f"Xid 154 asks for: {name}", fix=fix),
        )
        for name, actions, fix in (
            ("reboot", ("Node Reboot Required", "OS Reboot", "Node Reboot"), (reboot(), *_LOST[1:])),
            (
                "reset",
                ("GPU Reset Required", "GPU Reset", "PF FLR", "Drain and Reset"),
                (reset_gpu("{gpu}.0", "when no process uses this GPU; or reboot"), *_RESET[1:]),
            ),
            ("drain", ("Drain P2P",), (note("end the programs that exchange data with this GPU over NVLink"),)),
        )
    )
    for action in actions
}
RECOVERY = FAMILY.fault(
    "recovery_action",
    pattern=r"NVRM: (?:GPU at \S{1,60} )?Xid \((?:PCI:)?(?P<gpu>[^).]{1,60})[^)]{0,9}\): 154\b.{0,99}"
    r"recovery action changed from .{0,40} to \w{1,9} \((?P<code>(?!None)[^)]{1,40})\)",
    words=("recovery",),
    codes=_BY_ACTION,
    meaning=_REQUIRED,
    in_general="the driver says what the GPU needs before it is used again",
    fix=(kernel_log("shows the Xid before this one: what it needs is what helps"), *_UPDATE),
)
RECOVERIES = frozenset((RECOVERY, *_BY_ACTION.values()))
"""What the driver itself asks for, whatever an Xid beside it would need."""
XID = FAMILY.fault(
    "xid",
    pattern=r"NVRM: (?:GPU at \S{1,60} )?Xid \((?:PCI:)?(?P<gpu>[^).]{1,60})[^)]{0,9}\): (?P<code>\d{1,4})\b.{0,40}",
    words=("xid",),
    codes=BY_NUMBER,
    meaning="Xid {code}: the kernel module reports a fault of the GPU",
    in_general="the kernel module reports a fault of the GPU (Xid)",
    fix=(kernel_log("shows all that it reported"), *_UPDATE),
    confidence=Confidence.POSSIBLE,
)
XIDS = frozenset((XID, *BY_NUMBER.values()))
INIT_FAILED = FAMILY.fault(
    "rm_init_failed",
    "NVRM: RmInitAdapter failed",
    "NVRM: GPU {:s} RmInitAdapter failed",
    "rm_init_adapter failed",
    meaning="the kernel module cannot initialise the GPU (RmInitAdapter failed): this release of the driver, firmware, "
    "power or PCIe",
    fix=(
        # https://github.com/NVIDIA/open-gpu-kernel-modules/issues/246 and 876: with one release, and not with another
        install_driver("or another release: some start a GPU that others do not; then reboot"),
        *_LOST[:2],
        note(
            "switch on 'Above 4G Decoding' and 'Resizable BAR' in the firmware, and update it", kind=Kind.CHANGE_DRIVER
        ),
        run(
            "sudo apt install nvidia-driver-580-open",
            "if the GPU is a Blackwell, which needs the open kernel module; GPUs before Turing need the closed one",
            kind=Kind.CHANGE_DRIVER,
        ),
        check("sudo dmesg | grep -i nvrm", "shows the lines before this one"),
    ),
    stage=Stage.DRIVER,
)
FAMILY.fault(
    "module_version_mismatch",
    "NVRM: API mismatch",
    meaning="the driver's libraries and its kernel module are of different versions",
    fix=(reboot("if the driver was upgraded, the old kernel module stays loaded until the reboot"),),
    stage=Stage.DRIVER,
)
FAMILY.fault(
    "gsp_timeout",
    "GSP RPC timeout",
    "_issueRpcAndWait: rpcRecvPoll timedout",
    "Timeout after {:d}s of waiting for RPC response from GPU{:d}",
    meaning="the GPU's system processor (GSP) does not answer the driver",
    fix=(reset_gpu("GPU", "the GPU that the line names, if no process uses it; or reboot"), *_GSP[1:]),
)
FAMILY.fault(
    "legacy_gpu",
    (
        "NVRM: The NVIDIA {name} GPU installed in this system is supported through the NVIDIA {series:v}.xx "
        "Legacy drivers"
    ),
    "is supported through the NVIDIA {series:s} Legacy drivers",
    meaning="this driver has no support for the GPU any more",
    fix=(note("install the driver of series {series}, and a TensorFlow whose CUDA it runs", kind=Kind.CHANGE_DRIVER),),
    stage=Stage.DRIVER,
)
FAMILY.fault(
    "open_module_needed",
    "requires use of the NVIDIA open kernel modules",
    meaning="this GPU needs the open kernel modules, but the proprietary ones are installed",
    fix=(run("sudo apt install nvidia-driver-580-open", "then reboot", kind=Kind.CHANGE_DRIVER),),
    stage=Stage.DRIVER,
)
