"""Messages of NCCL: its results, and the lines that it writes at ``NCCL_DEBUG=WARN``."""

from __future__ import annotations

from gpudiag.fix import (
    Kind,
    Role,
    check,
    configure,
    edit,
    edit_note,
    export,
    note,
    nvidia_smi,
    run,
    run_container,
    start,
    unset,
)
from gpudiag.knowledge.fault import Confidence, Stage
from gpudiag.knowledge.message import MessageFamily

FAMILY = MessageFamily(
    "NCCL",
    stage=Stage.CONFIGURATION,
    seen="NCCL 2.4-2.29",
    url="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
)

_DEBUG = check(
    "NCCL_DEBUG=INFO python program.py 2>&1 | tee app.log",
    "run every rank with it: the first WARN line names the fault",
)
_SHM = (
    run_container("--shm-size=1g", "--ulimit memlock=-1", note="or --ipc=host"),
    check("df -h /dev/shm", "shows the free room; remove old nccl-* files"),
)
_NETWORK = (
    check("ip -br address", "run it on each host to find the interface that connects them"),
    export("NCCL_SOCKET_IFNAME", "eth0", "set the interface's name on every rank"),
    note("open the firewall between the hosts for all TCP ports", kind=Kind.CONFIGURE),
)
_MEMLOCK = (
    configure(
        "ulimit -l unlimited",
        "run it run it in the shell that starts the ranks; for all users: /etc/security/limits.conf",
    ),
    run_container(
        "--ulimit memlock=-1", note="if the ranks run in a container; in Slurm: PropagateResourceLimitsExcept=MEMLOCK"
    ),
)

FAMILY.fault(
    "duplicate_gpu",
    "Duplicate GPU detected : rank {rank:d} and rank {other:d} both on CUDA device {device:s}",
    "Duplicate GPU detected",
    "Multiple Ranks are using the same GPU/Partition",
    meaning="several ranks use the same GPU: each process needs its own",
    fix=(
        edit("tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU')", "must come before anything uses a GPU"),
        start("srun --gpus-per-task=1 --gpu-bind=single:1 ...", "or gives each rank its own CUDA_VISIBLE_DEVICES"),
        note("start as many ranks on a host as it has GPUs", kind=Kind.START_CONTAINER),
    ),
)
SHM_NOT_PERMITTED = FAMILY.fault(
    "shm_not_permitted",
    "Call to shm_open failed : Permission denied",
    "Call to open failed: Permission denied",
    meaning="the user may not write to shared memory (/dev/shm), which NCCL needs between the GPUs of one host",
    fix=(
        check("ls -ld /dev/shm; sudo chmod 1777 /dev/shm", "makes it drwxrwxrwt: everyone may write"),
        run(
            "rm /dev/shm/nccl-*",
            "if files of an earlier run by another user are in the way",
            kind=Kind.REMOVE,
            role=Role.ALTERNATIVE,
        ),
        export("NCCL_SHM_DISABLE", "1", "or works without shared memory, which is slower", role=Role.ALTERNATIVE),
    ),
)
FAMILY.fault(
    "shm_too_small",
    "Call to posix_fallocate failed : No space left on device",
    "Error while creating shared memory segment {file:s} (size {:d})",
    "Error while creating shared memory segment",
    "Error: failed to extend {file:s}",
    "unable to open shared memory",
    meaning="shared memory (/dev/shm) is too small for NCCL",
    fix=_SHM,
)
FAMILY.fault(
    "ib_memlock",
    "Call to ibv_create_qp failed",
    "Call to ibv_create_cq failed",
    "Call to ibv_reg_mr failed",
    "Call to ibv_reg_mr_iova2 failed",
    "Call to ibv_alloc_pd failed",
    meaning="InfiniBand may not lock memory: the limit (ulimit -l) is too low",
    fix=_MEMLOCK,
)
FAMILY.fault(
    "ib_failed",
    "Call to ibv_modify_qp failed",
    "Call to ibv_open_device failed",
    "NET/IB : Unable to open device {device:s}",
    "NET/IB : Got completion from peer {:s} with {}error {:d}",
    "NET/IB: Got completion from peer {peer:s} with status={status:s}",
    "NET/IB : {:s} async fatal event",
    "NET/IB : No IP interface found",
    meaning="NCCL cannot use the InfiniBand adapter, or the connection broke",
    fix=(
        check("ibstat; ibv_devinfo", "must show an active port"),
        export("NCCL_IB_HCA", "mlx5_0", "set the adapter that connects the hosts"),
        export("NCCL_IB_DISABLE", "1", "works without InfiniBand, which is slower"),
    ),
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "nccl_connect",
    "Call to connect failed : Connection timed out",
    "Connect to {peer:s} failed : {reason}",
    "connect to {peer:s} failed : {reason}",
    "connect to {peer:s} returned {reason}, exceeded error retry count",
    "connect to {peer:s} returned {reason}, retrying",
    "ncclOsSocketPollConnect to {peer:s} failed with error {reason}",
    "socketPollConnect: Connect to {peer:s} returned {reason}",
    "Call to connect failed : No route to host",
    meaning="the ranks cannot reach each other on the network interface that NCCL chose",
    fix=_NETWORK,
)
FAMILY.fault(
    "nccl_address",
    "failed : Address family not supported by protocol",
    "failed : No route to host",
    "failed : Network is unreachable",
    "failed : Cannot assign requested address",
    "failed : Address already in use",
    meaning="NCCL chose a network interface or address from which the other ranks cannot be reached: "
    "IPv6 that one host does not have, or an interface of Docker or of a virtual machine",
    fix=(
        export("NCCL_SOCKET_FAMILY", "AF_INET", "set it on every rank: NCCL then uses only IPv4"),
        export(
            "NCCL_SOCKET_IFNAME", "eth0", "set the interface that connects the hosts; ^docker0,lo excludes those two"
        ),
        check("ip -br address; ip route", "run it on each host"),
    ),
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "nccl_peer_closed",
    "Connection closed by remote peer {peer}",
    "Call to recv from {peer:s} failed : {}",
    "Call to recv failed : Connection reset by peer",
    meaning="another rank ended or failed: its log names the fault",
    fix=(note("look at the log of the other ranks for the first error: out of memory, a signal, an Xid"), _DEBUG),
    symptom=True,
)
FAMILY.fault(
    "nccl_no_interface",
    "Bootstrap : no socket interface found",
    "NET/Socket : no interface found",
    "NET/Socket : No usable listening interface found",
    "Net : No interface found",
    meaning="the network interface named in NCCL_SOCKET_IFNAME was not found by NCCL, or there is none at all",
    fix=(
        check("ip -br address", "the names"),
        unset("NCCL_SOCKET_IFNAME"),
        export("NCCL_SOCKET_IFNAME", "lo", "if all ranks run on one machine", role=Role.ALTERNATIVE),
    ),
)
FAMILY.fault(
    "nccl_no_memory",
    "Cuda failure 'out of memory'",
    "Failed to CUDA calloc {} bytes",
    "Cuda failure {:d} 'out of memory'",
    meaning="NCCL is out of GPU memory for its buffers: TensorFlow, or another process, took nearly all of it",
    fix=(
        export(
            "TF_FORCE_GPU_ALLOW_GROWTH",
            "true",
            "set it on every rank: it leaves memory to NCCL; or set a memory limit for each GPU",
        ),
        export("NCCL_BUFFSIZE", "1048576", "makes the buffers smaller (the default is 4194304)"),
        nvidia_smi("shows who else holds memory; if it is JAX: export XLA_PYTHON_CLIENT_MEM_FRACTION=.7"),
    ),
    stage=Stage.MEMORY,
)
FAMILY.fault(
    "iommu_blocks_peers",
    "DMAR: [DMA Write{}] Request device {device:s} fault addr {}",
    "DMAR: DRHD: handling fault status reg {}",
    "DMAR: [DMA Read{}] Request device {device:s} fault addr {}",
    "AMD-Vi: Event logged [IO_PAGE_FAULT {}",
    meaning="the IOMMU stops a device from writing into another's memory: GPUs that exchange data hang, or get wrong "
    "data",
    fix=(
        export("NCCL_P2P_DISABLE", "1", "helps at once: GPUs go through the host, which is slower"),
        note(
            "use the kernel option iommu=pt (or intel_iommu=off, amd_iommu=off), or switch VT-d / "
            "AMD-Vi off in the firmware, for good; switch ACS of PCIe switches off",
            kind=Kind.CHANGE_DRIVER,
        ),
    ),
    seen="Linux",
    stage=Stage.CONFIGURATION,
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "nccl_cuda_failure",
    "Cuda failure '{error:q}'",
    "Cuda failure {:d} '{error:q}'",
    meaning="a call of NCCL to CUDA failed: {error}",
    in_general="a call of NCCL to CUDA failed",
    fix=(
        nvidia_smi("shows memory and other processes; the driver must be new enough for this NCCL"),
        _DEBUG,
    ),
    symptom=True,
)
FAMILY.fault(
    "nccl_peer_to_peer",
    "P2P is disabled between NVLINK connected GPUs {first:d} and {second:d}",
    "could not enable peer access",
    "failed to peer with device {:d}",
    "Could not enable P2P between dev {:d}",
    meaning="GPUs that should exchange data cannot reach each other's memory",
    fix=(
        nvidia_smi("shows which pairs of GPUs can", "topo -p2p r"),
        export("NCCL_P2P_DISABLE", "1", "makes the GPUs go through the host, which is slower"),
    ),
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "nccl_versions",
    "NCCL version mismatch with remote peer {peer:s}",
    "Mismatched NCCL version detected",
    "NCCL library is too old. This application was compiled with NCCL version {needed:s}",
    "The application was compiled with too old version of NCCL",
    meaning="ranks use different versions of NCCL, or a version that the program was not built for",
    fix=(
        check("pip list | grep -i nccl; ldconfig -p | grep nccl", "the version must be the same on every host"),
        unset("LD_LIBRARY_PATH"),
    ),
)
FAMILY.fault(
    "nccl_topology_file",
    "Could not open XML topology file {file}",
    "XML Topology has wrong version",
    "Could not open XML graph file {file}",
    meaning="NCCL_TOPO_FILE or NCCL_GRAPH_FILE names a file that is not there, or of another NCCL",
    fix=(unset("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE"),),
)
FAMILY.fault(
    "nccl_comm_id",
    "Invalid NCCL_COMM_ID, please use format: {}",
    "Net : No valid <IPv4_or_hostname>:<port> pair found",
    "Net : error encountered when getting address info : {reason}",
    meaning="NCCL_COMM_ID is not an address and a port, or the name cannot be looked up",
    fix=(export("NCCL_COMM_ID", "10.0.0.1:12345", "set the address and port of rank 0; or unset it"),),
)
FAMILY.fault(
    "nccl_message_truncated",
    "Message truncated : received {got:d} bytes instead of {expected:d}",
    "message truncated : receiving {got:d} bytes instead of {expected:d}",
    meaning="ranks exchange different amounts: they run different steps, shapes or versions of the program",
    fix=(
        edit_note("each rank must run the same collectives in the same order; the same TensorFlow and NCCL everywhere"),
    ),
)
FAMILY.fault(
    "nccl_limits",
    "Thread creation failed: {reason}",
    "Call to accept failed : Too many open files",
    "Call to socket failed: Too many open files",
    "Call to pthread_create failed: Resource temporarily unavailable",
    "Call to open failed : Too many open files",
    meaning="a limit of the system is too low for NCCL: open files or processes",
    fix=(configure("ulimit -n 65536; ulimit -u unlimited", "run it in the shell that starts the ranks"),),
)
FAMILY.fault(
    "nccl_nvml",
    "nvmlInit{:s} failed: {reason}",
    "nvmlDeviceGetHandleByPciBusId({device}) failed: {reason}",
    "nvmlDeviceGetHandleByIndex({:d}) failed: {reason}",
    "Failed to open libnvidia-ml.so",
    "NVML init failed",
    "Failed to initialize NVML library",
    "Check failed: InitNvml()",
    meaning="NCCL or XLA cannot use NVML, a part of the driver",
    fix=(
        nvidia_smi(),
        run_container("-e NVIDIA_DRIVER_CAPABILITIES=compute,utility", note="if it runs in a container"),
    ),
)
FAMILY.fault(
    "nvls_failed",
    "Failed to bind NVLink SHARP (NVLS) Multicast memory",
    meaning="NVLink SHARP does not work: the fabric manager, or confidential or virtual machines",
    fix=(export("NCCL_NVLS_ENABLE", "0"), configure("sudo systemctl restart nvidia-fabricmanager")),
)
FAMILY.fault(
    "nccl_result",
    "ncclUnhandledCudaError",
    "ncclInternalError",
    "ncclInvalidArgument",
    "ncclInvalidUsage",
    "ncclRemoteError",
    "unhandled cuda error",
    "NCCL operation {call:s} failed: {}",
    "ncclCommInitRank failed: {}",
    "ncclSystemError",
    "ncclTimeout",
    "ncclAllReduce failed: {}",
    "NCCL: {reason}. Set NCCL_DEBUG=WARN for detail",
    "Error invoking NCCL: {reason}",
    "Last NCCL error (maybe unrelated): {}",
    "NcclManager already aborted, ignoring subsequent StartAbort",
    "GPU communicator error (rank {:d}): {}",
    "Aborting communicator: {} due to error: {}",
    "Error aborting GPU communicator",
    "Error aborting GPU clique",
    "Terminating process due to async GPU clique error",
    "NcclCommunicator aborted",
    "BaseCollectiveExecutor::StartAbort {}",
    "Failed to run collective due to unsuccessful group initialization",
    "nvshmemx_hostlib_init_attr failed",
    "Nvshmem collective failed",
    "NCCL: invalid usage",
    meaning="a call of NCCL failed; its own lines say why",
    fix=(_DEBUG, nvidia_smi("must list each GPU; shows the memory that others hold")),
    symptom=True,
)
FAMILY.fault(
    "rendezvous_stuck",
    "This thread has been waiting for `{what}` for {seconds:d} seconds and may be stuck",
    "This thread has been waiting for {milliseconds:d}ms for and may be stuck",
    "Termination timeout for `{what}` of {seconds:d} seconds exceeded. Exiting",
    "Expected {:d} threads to join the rendezvous, but not all of them arrived on time",
    meaning="GPUs wait for each other forever: one of them hangs, runs another program, or its rank has ended",
    fix=(
        nvidia_smi("look for a GPU at 100 % that does nothing, and for the first error of the other ranks"),
        export("NCCL_P2P_DISABLE", "1", "if it continues with this setting, peer access (IOMMU or ACS) is the fault"),
    ),
    confidence=Confidence.POSSIBLE,
)
FAMILY.harmless(
    "rendezvous_unstuck",
    "Thread is unstuck! Warning above was a false-positive",
    meaning="GPUs waited long for each other, and went on",
)
FAMILY.harmless(
    "nccl_plugin_absent",
    "NET/Plugin : No plugin found (libnccl-net.so)",
    "NET/Plugin: No plugin found",
    "NET/Plugin: Could not find: {:s} libnccl-net",
    "NET/Plugin{}libnccl-net.so: cannot open shared object file",
    "Unable to load libnccl-net.so : libnccl-net.so: cannot open shared object file",
    "TUNER/Plugin: Failed to find ncclTunerPlugin",
    "NET/IB : No device found",
    "Failed to open libibverbs.so",
    "TUNER/Plugin: Could not find: libnccl-tuner.so",
    "PROFILER/Plugin: Could not find: libnccl-profiler.so",
    meaning="optional parts of NCCL, for clusters with special networks",
    seen="NCCL",
)
FAMILY.fault(
    "group_not_complete",
    "Collective ops is aborted by: {reason}",
    "collective ops already aborted",
    meaning="an exchange between workers was aborted by an earlier error",
    fix=(note("look for the first error of any worker; start all workers again"),),
    symptom=True,
)
FAMILY.fault(
    "worker_restarted",
    "current incarnation doesn't match with one in the group",
    "with incarnation {:s} is not available. This usually means {:s} has restarted",
    "RecvBuf expects a different device incarnation",
    "group {:s} not found. This normally means the server has restarted",
    "group {:s} failed to resolve. This normally means the server has restarted",
    "Coordination agent is in ERROR",
    "The following tasks are unhealthy (stopped sending heartbeats)",
    "heartbeat timeout. This indicates that the remote task has failed, got preempted, or crashed unexpectedly",
    "has been set to ERROR in coordination service",
    "Coordination agent is set to ERROR",
    "Coordination agent is set to error",
    "Failed to send RPC to coordination service. Either the leader task",
    "Leader incarnation ID mismatch: the coordination leader has restarted",
    "Heartbeat: Incarnation ID mismatch",
    "unexpectedly tried to connect with a different incarnation. It has likely restarted",
    "This usually implies an earlier error that caused coordination service to shut down",
    meaning="a worker of the cluster has ended or was started again",
    fix=(
        note(
            "start all workers again, in the order of the cluster; read the log of the worker that "
            "ended: it names the fault",
            kind=Kind.START_CONTAINER,
        ),
    ),
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "collective_shapes",
    "Shape mismatch in the collective instance",
    "Collective instance {:d} expected type",
    "but another member in the group expected shape",
    meaning="workers exchange tensors of different shapes: other batches, data or code",
    fix=(edit_note("use the same program and batch size on every worker: dataset.batch(n, drop_remainder=True)"),),
)
FAMILY.fault(
    "strategy_made_too_late",
    "Collective ops must be configured at program startup",
    "Collective ops are already configured",
    meaning="MultiWorkerMirroredStrategy is created after TensorFlow has made its devices",
    fix=(edit_note("create the strategy at the start of the program, before any tensor or dataset"),),
)
FAMILY.fault(
    "cluster_not_reached",
    "failed to connect to all addresses",
    "DEADLINE_EXCEEDED: Barrier timed out",
    "Barrier timed out. Barrier_id: {}",
    "Barrier timed out. Id: {}",
    "Barrier timed out. This usually happens because",
    "shutdown barrier timed out",
    meaning="the workers of the cluster cannot reach each other, or one was not started",
    fix=(
        check("echo $TF_CONFIG", "must name the same cluster on every worker, with another index on each"),
        note(
            "open the port of TF_CONFIG in the firewall; if a proxy is set: unset http_proxy https_proxy",
            kind=Kind.CONFIGURE,
        ),
    ),
    confidence=Confidence.POSSIBLE,
)
