"""NCCL: its results, and the lines that it writes at ``NCCL_DEBUG=WARN``."""

from __future__ import annotations

from gpudiag.fix import Kind, Role, check, edit, export, note, run, start, unset
from gpudiag.knowledge.message import Family, Text

FAMILY = Family(
    "NCCL",
    stage="CONFIGURATION",
    seen="NCCL 2.4-2.29",
    url="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
)

_DEBUG = check("NCCL_DEBUG=INFO python program.py 2>&1 | tee app.log", "on every rank: the first WARN names the fault")
_SHM = (
    start("docker run --shm-size=1g --ulimit memlock=-1 ...", "or --ipc=host"),
    check("df -h /dev/shm", "room; remove old nccl-* files"),
)
_NETWORK = (
    check("ip -br address", "on each host: the interface that joins them"),
    export("NCCL_SOCKET_IFNAME", "eth0", "its name, on every rank"),
    note("open the firewall between the hosts for all TCP ports"),
)
_MEMLOCK = (
    run("ulimit -l unlimited", "in the shell that starts the ranks; /etc/security/limits.conf for all"),
    start("docker run --ulimit memlock=-1 ...", "in a container; Slurm: PropagateResourceLimitsExcept=MEMLOCK"),
)

FAMILY.fault(
    "duplicate_gpu",
    Text(
        "Duplicate GPU detected : rank {rank:d} and rank {other:d} both on CUDA device {device:s}",
        "tensorflow 2.4.4 _pywrap_tensorflow_internal.so",
    ),
    Text("Duplicate GPU detected", "tensorflow 2.4.4 _pywrap_tensorflow_internal.so"),
    Text("Multiple Ranks are using the same GPU/Partition", "nccl 2.30 src/init.cc:1057"),
    meaning="several ranks use the same GPU: each process needs its own",
    fix=(
        edit("tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU')", "before anything uses a GPU"),
        start("srun --gpus-per-task=1 --gpu-bind=single:1 ...", "or a mask for each rank"),
        note("start as many ranks on a host as it has GPUs"),
    ),
)
SHM_NOT_PERMITTED = FAMILY.fault(
    "shm_not_permitted",
    Text("Call to shm_open failed : Permission denied", "https://github.com/NVIDIA/nccl/issues/328"),
    "Call to open failed: Permission denied",
    "Error: failed to open {file:s}: Permission denied",
    meaning="the user may not write to shared memory (/dev/shm), which NCCL needs between the GPUs of one host",
    fix=(
        check("ls -ld /dev/shm; sudo chmod 1777 /dev/shm", "drwxrwxrwt: everyone may write"),
        run(
            "rm /dev/shm/nccl-*",
            "or files of an earlier run by another user are in the way",
            kind=Kind.REMOVE,
            role=Role.ALTERNATIVE,
        ),
        export("NCCL_SHM_DISABLE", "1", "or without it, which is slower", role=Role.ALTERNATIVE),
    ),
)
FAMILY.fault(
    "shm_too_small",
    Text("Call to posix_fallocate failed : No space left on device", "https://github.com/NVIDIA/nccl/issues/290"),
    Text(
        "Error while creating shared memory segment {file:s} (size {:d})", "https://github.com/NVIDIA/nccl/issues/328"
    ),
    Text("Error while creating shared memory segment", "https://github.com/NVIDIA/nccl/issues/328"),
    Text("Error: failed to extend {file:s}", "nccl 2.30 src/os/linux.cc:795"),
    "unable to allocate shared memory (/dev/shm)",
    "unable to open shared memory",
    meaning="shared memory (/dev/shm) is too small for NCCL",
    fix=_SHM,
)
FAMILY.fault(
    "ib_memlock",
    Text("Call to ibv_create_qp failed", "https://github.com/horovod/horovod/issues/98"),
    Text("Call to ibv_create_cq failed", "https://github.com/tensorflow/tensorflow/issues/51760"),
    Text("Call to ibv_reg_mr failed", "tensorflow 2.4.4 _pywrap_tensorflow_internal.so"),
    Text("Call to ibv_reg_mr_iova2 failed", "tensorflow 2.15.1 libtensorflow_cc.so.2"),
    "Call to ibv_reg_dmabuf_mr_iova2 failed",
    Text("Call to ibv_alloc_pd failed", "tensorflow 2.4.4 _pywrap_tensorflow_internal.so"),
    meaning="InfiniBand may not lock memory: the limit (ulimit -l) is too low",
    fix=_MEMLOCK,
)
FAMILY.fault(
    "ib_failed",
    Text("Call to ibv_modify_qp failed", "nccl 2.30 src/misc/ibvwrap.cc:376"),
    Text("Call to ibv_open_device failed", "tensorflow 2.4.4 _pywrap_tensorflow_internal.so"),
    "Call to ibv_get_device_list failed",
    "Call to ibv_poll_cq failed",
    Text("NET/IB : Unable to open device {device:s}", "nccl 2.30 src/transport/net_ib/init.cc:334"),
    Text("NET/IB : Got completion from peer {:s} with {}error {:d}", "tensorflow 2.15.1 libtensorflow_cc.so.2"),
    Text(
        "NET/IB: Got completion from peer {peer:s} with status={status:s}", "nccl 2.30 src/transport/net_ib/p2p.cc:688"
    ),
    Text("NET/IB : {:s} async fatal event", "nccl 2.30 src/transport/net_ib/common.cc:123"),
    Text("NET/IB : No IP interface found", "nccl 2.30 src/transport/net_ib/init.cc:307"),
    meaning="NCCL cannot use the InfiniBand adapter, or the connection broke",
    fix=(
        check("ibstat; ibv_devinfo", "is the port active"),
        export("NCCL_IB_HCA", "mlx5_0", "the adapter that joins the hosts"),
        export("NCCL_IB_DISABLE", "1", "without InfiniBand: slower"),
    ),
    possible=True,
)
FAMILY.fault(
    "nccl_connect",
    Text("Call to connect failed : Connection timed out", "https://github.com/NVIDIA/nccl-tests/issues/15"),
    "Call to connect failed : Connection refused",
    "Call to connect failed : No route to host",
    Text("Connect to {peer:s} failed : {reason}", "tensorflow 2.4.4 _pywrap_tensorflow_internal.so"),
    Text("connect to {peer:s} failed : {reason}", "nccl 2.30 src/os/linux.cc:302"),
    Text("connect to {peer:s} returned {reason}, exceeded error retry count", "nccl 2.30 src/os/linux.cc:288"),
    Text("connect to {peer:s} returned {reason}, retrying", "nccl 2.30 src/os/linux.cc:293"),
    Text("ncclOsSocketPollConnect to {peer:s} failed with error {reason}", "nccl 2.30 src/os/linux.cc:328"),
    "socketPollConnect: Connect to {peer:s} returned {reason}",
    "Timeout waiting for connection from rank",
    meaning="the ranks cannot reach each other on the network interface that NCCL took",
    fix=_NETWORK,
)
FAMILY.fault(
    "nccl_address",
    *(
        f"failed : {error}"
        for error in (
            "Address family not supported by protocol",
            "No route to host",
            "Network is unreachable",
            "Cannot assign requested address",
            "Host is unreachable",
            "Host is down",
            "Address already in use",
            "Name or service not known",
        )
    ),
    meaning="NCCL took a network interface or an address over which the other ranks are not reached: IPv6 that one "
    "of the hosts does not have, or an interface of Docker or of a virtual machine",
    fix=(
        export("NCCL_SOCKET_FAMILY", "AF_INET", "IPv4 alone, on every rank"),
        export("NCCL_SOCKET_IFNAME", "eth0", "the interface that joins the hosts; ^docker0,lo leaves those out"),
        check("ip -br address; ip route", "on each host"),
    ),
    possible=True,
)
FAMILY.fault(
    "nccl_peer_closed",
    Text("Connection closed by remote peer {peer}", "nccl 2.30 src/misc/socket.cc:58"),
    Text("Call to recv from {peer:s} failed : {}", "tensorflow 2.15.1 libtensorflow_cc.so.2"),
    "Call to recv failed : Connection reset by peer",
    "Call to send failed : Connection reset by peer",
    "Call to sendmsg failed: {}",
    meaning="another rank ended or failed: its log names the fault",
    fix=(note("look at the log of the other ranks for the first error: out of memory, a signal, an Xid"), _DEBUG),
    follows=True,
)
FAMILY.fault(
    "nccl_no_interface",
    Text("Bootstrap : no socket interface found", "nccl 2.30 src/bootstrap.cc:126"),
    Text("NET/Socket : no interface found", "nccl 2.30 src/transport/net_socket.cc:61"),
    Text("NET/Socket : No usable listening interface found", "nccl 2.30 src/bootstrap.cc:120"),
    "No socket interface found",
    Text("Net : No interface found", "tensorflow 2.4.4 _pywrap_tensorflow_internal.so"),
    meaning="NCCL finds no network interface of the name in NCCL_SOCKET_IFNAME, or none at all",
    fix=(
        check("ip -br address", "the names"),
        unset("NCCL_SOCKET_IFNAME"),
        export("NCCL_SOCKET_IFNAME", "lo", "on one machine", role=Role.ALTERNATIVE),
    ),
)
FAMILY.fault(
    "nccl_no_memory",
    Text("Cuda failure 'out of memory'", "https://github.com/NVIDIA/nccl/issues/295"),
    "Cuda failure {:d} 'out of memory'",
    Text("Failed to CUDA calloc {} bytes", "nccl 2.30 src/include/alloc.h:493"),
    meaning="NCCL finds no memory on the GPU for its buffers: TensorFlow, or another process, took nearly all of it",
    fix=(
        export("TF_FORCE_GPU_ALLOW_GROWTH", "true", "on every rank: leaves memory to NCCL; or a limit for each GPU"),
        export("NCCL_BUFFSIZE", "1048576", "smaller buffers (4194304 if nothing is set)"),
        check("nvidia-smi", "who else holds memory; JAX: export XLA_PYTHON_CLIENT_MEM_FRACTION=.7"),
    ),
    stage="MEMORY",
)
FAMILY.fault(
    "iommu_blocks_peers",
    Text(
        "DMAR: [DMA Write{}] Request device {device:s} fault addr {}",
        "https://github.com/tensorflow/tensorflow/issues/32654",
    ),
    "DMAR: [DMA Read{}] Request device {device:s} fault addr {}",
    Text("DMAR: DRHD: handling fault status reg {}", "https://github.com/tensorflow/tensorflow/issues/32654"),
    "AMD-Vi: Event logged [IO_PAGE_FAULT {}",
    meaning="the IOMMU stops a device from writing into another's memory: GPUs that exchange data hang, or get wrong "
    "data",
    fix=(
        export("NCCL_P2P_DISABLE", "1", "at once: GPUs go through the host, which is slower"),
        note(
            "for good: the kernel option iommu=pt (or intel_iommu=off, amd_iommu=off), or VT-d / AMD-Vi off "
            "in the "
            "firmware; ACS of PCIe switches off",
            kind=Kind.CHANGE_DRIVER,
        ),
    ),
    seen="Linux",
    stage="CONFIGURATION",
    possible=True,
)
FAMILY.fault(
    "nccl_cuda_failure",
    Text("Cuda failure '{error:q}'", "nccl 2.30 plugins/profiler/inspector/inspector.cc:36"),
    Text("Cuda failure {:d} '{error:q}'", "nccl 2.30 src/include/cudawrap.h:37"),
    "CUDA failure '{error:q}'",
    meaning="a call of NCCL to CUDA failed: {error}",
    fix=(
        check("nvidia-smi", "memory and other processes; a driver that is new enough for this NCCL"),
        _DEBUG,
    ),
    possible=True,
    follows=True,
)
FAMILY.fault(
    "nccl_peer_to_peer",
    Text("P2P is disabled between NVLINK connected GPUs {first:d} and {second:d}", "nccl 2.30 src/graph/paths.cc:396"),
    "could not enable peer access",
    Text("failed to peer with device {:d}", "nccl 2.30 src/transport/net.cc:476"),
    Text("Could not enable P2P between dev {:d}", "nccl 2.30 src/transport/p2p.cc:204"),
    meaning="GPUs that should exchange data cannot reach each other's memory",
    fix=(
        check("nvidia-smi topo -p2p r", "which pairs can"),
        export("NCCL_P2P_DISABLE", "1", "goes through the host: slower"),
    ),
    possible=True,
)
FAMILY.fault(
    "nccl_versions",
    Text("NCCL version mismatch with remote peer {peer:s}", "nccl 2.30 src/ras/ras.cc:415"),
    Text("Mismatched NCCL version detected", "nccl 2.30 src/init.cc:1043"),
    Text(
        "NCCL library is too old. This application was compiled with NCCL version {needed:s}",
        "nccl 2.30 src/dev_runtime.cc:1428",
    ),
    Text("The application was compiled with too old version of NCCL", "nccl 2.30 src/devcomm/devcomm_v22902.cc:109"),
    meaning="ranks use different versions of NCCL, or another one than the program was built for",
    fix=(
        check("pip list | grep -i nccl; ldconfig -p | grep nccl", "the version must be the same on every host"),
        unset("LD_LIBRARY_PATH"),
    ),
)
FAMILY.fault(
    "nccl_topology_file",
    Text("Could not open XML topology file {file}", "nccl 2.30 src/graph/xml.cc:414"),
    Text("XML Topology has wrong version", "nccl 2.30 src/graph/xml.cc:394"),
    Text("Could not open XML graph file {file}", "nccl 2.30 src/graph/xml.cc:1257"),
    meaning="NCCL_TOPO_FILE or NCCL_GRAPH_FILE names a file that is not there, or of another NCCL",
    fix=(unset("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE"),),
)
FAMILY.fault(
    "nccl_comm_id",
    Text("Invalid NCCL_COMM_ID, please use format: {}", "nccl 2.30 src/bootstrap.cc:114"),
    Text("Net : No valid <IPv4_or_hostname>:<port> pair found", "nccl 2.30 src/misc/socket.cc:246"),
    Text("Net : error encountered when getting address info : {reason}", "nccl 2.30 src/misc/socket.cc:257"),
    meaning="NCCL_COMM_ID is not an address and a port, or the name cannot be looked up",
    fix=(export("NCCL_COMM_ID", "10.0.0.1:12345", "address and port of rank 0; or unset it"),),
)
FAMILY.fault(
    "nccl_message_truncated",
    Text("Message truncated : received {got:d} bytes instead of {expected:d}", "nccl 2.30 src/bootstrap.cc:224"),
    Text(
        "message truncated : receiving {got:d} bytes instead of {expected:d}",
        "nccl 2.30 src/transport/net_socket.cc:636",
    ),
    meaning="ranks exchange different amounts: they run different steps, shapes or versions of the program",
    fix=(
        note(
            "each rank must run the same collectives in the same order; the same TensorFlow and NCCL everywhere",
            kind=Kind.EDIT_PROGRAM,
        ),
    ),
)
FAMILY.fault(
    "nccl_limits",
    "Call to accept failed : Too many open files",
    "Call to socket failed : Too many open files",
    "Call to pthread_create failed: Resource temporarily unavailable",
    Text("Thread creation failed: {reason}", "nccl 2.30 src/include/checks.h:242"),
    "Call to open failed : Too many open files",
    meaning="a limit of the system is too low for NCCL: open files or processes",
    fix=(run("ulimit -n 65536; ulimit -u unlimited", "in the shell that starts the ranks"),),
)
FAMILY.fault(
    "nccl_nvml",
    Text("nvmlInit{:s} failed: {reason}", "nccl 2.30 src/misc/nvmlwrap.cc:142"),
    Text("nvmlDeviceGetHandleByPciBusId({device}) failed: {reason}", "tensorflow 2.4.4 _pywrap_tensorflow_internal.so"),
    Text("nvmlDeviceGetHandleByIndex({:d}) failed: {reason}", "nccl 2.30 src/misc/nvmlwrap.cc:166"),
    Text(
        "Failed to open libnvidia-ml.so",
        "tensorflow 2.21 xla/service/gpu/model/gpu_collective_performance_model.cc:384",
    ),
    "Check failed: InitNvml()",
    Text("NVML init failed", "tensorflow 2.21 xla/service/gpu/model/gpu_collective_performance_model.cc:444"),
    Text("Failed to initialize NVML library", "tensorflow 2.21 xla/pjrt/gpu/se_gpu_pjrt_client.cc:1766"),
    meaning="NCCL or XLA cannot use NVML, a part of the driver",
    fix=(check("nvidia-smi"), start("docker run -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...", "in a container")),
)
FAMILY.fault(
    "nvls_failed",
    "NVLS multicast support is available but {}failed",
    Text("Failed to bind NVLink SHARP (NVLS) Multicast memory", "nccl 2.30 src/transport/nvls.cc:376"),
    meaning="NVLink SHARP does not work: the fabric manager, or confidential or virtual machines",
    fix=(export("NCCL_NVLS_ENABLE", "0"), run("sudo systemctl restart nvidia-fabricmanager")),
)
FAMILY.fault(
    "nccl_result",
    Text("ncclUnhandledCudaError", "tensorflow 2.4.4 tensorflow/include/external/nccl_archive/src/nccl.h:33"),
    Text("ncclInternalError", "tensorflow 2.4.4 tensorflow/include/external/nccl_archive/src/nccl.h:35"),
    Text("ncclInvalidArgument", "tensorflow 2.4.4 tensorflow/include/external/nccl_archive/src/nccl.h:36"),
    Text("ncclInvalidUsage", "tensorflow 2.4.4 tensorflow/include/external/nccl_archive/src/nccl.h:37"),
    Text("ncclRemoteError", "tensorflow 2.15.1 tensorflow/include/external/nccl_archive/src/nccl.h:41"),
    Text("ncclSystemError", "nccl 2.31 src/nccl.h.in:46"),
    Text("ncclTimeout", "nccl 2.31 src/nccl.h.in:52"),
    Text("unhandled cuda error", "nccl 2.30 src/init.cc:3420"),
    Text("NCCL operation {call:s} failed: {}", "tensorflow 2.21 xla/backends/gpu/collectives/nccl_errors.h:47"),
    Text("ncclCommInitRank failed: {}", "https://github.com/horovod/horovod/issues/110"),
    "ncclAllReduce failed: {}",
    Text("NCCL: {reason}. Set NCCL_DEBUG=WARN for detail", "tensorflow 2.21 tensorflow/core/nccl/nccl_manager.cc:52"),
    "NCCL: invalid usage",
    "Error invoking NCCL: {reason}",
    Text(
        "Last NCCL error (maybe unrelated): {}", "tensorflow 2.21 xla/backends/gpu/collectives/nccl_communicator.cc:303"
    ),
    Text(
        "NcclManager already aborted, ignoring subsequent StartAbort",
        "tensorflow 2.21 tensorflow/core/nccl/nccl_manager.cc:928",
    ),
    "GPU communicator error (rank {:d}): {}",
    "Aborting communicator: {} due to error: {}",
    Text("Error aborting GPU communicator", "tensorflow 2.21 xla/backends/gpu/collectives/gpu_clique.cc:77"),
    Text("Error aborting GPU clique", "tensorflow 2.21 xla/backends/gpu/collectives/gpu_cliques.cc:641"),
    Text(
        "Terminating process due to async GPU clique error",
        "tensorflow 2.21 xla/backends/gpu/collectives/gpu_cliques.cc:135",
    ),
    Text("NcclCommunicator aborted", "tensorflow 2.21 xla/backends/gpu/collectives/nccl_communicator.cc:200"),
    Text("BaseCollectiveExecutor::StartAbort {}", "https://github.com/tensorflow/tensorflow/issues/35314"),
    Text(
        "Failed to run collective due to unsuccessful group initialization",
        "tensorflow 2.21 tensorflow/core/common_runtime/collective_param_resolver_local.cc:642",
    ),
    Text(
        "nvshmemx_hostlib_init_attr failed", "tensorflow 2.21 xla/backends/gpu/collectives/nvshmem_collectives.cc:116"
    ),
    Text("Nvshmem collective failed", "tensorflow 2.21 xla/backends/gpu/collectives/nvshmem_communicator.cc:60"),
    meaning="a call of NCCL failed; its own lines say why",
    fix=(_DEBUG, check("nvidia-smi", "does each GPU answer; memory that others hold")),
    follows=True,
)
FAMILY.fault(
    "rendezvous_stuck",
    Text(
        "This thread has been waiting for `{what}` for {seconds:d} seconds and may be stuck",
        "tensorflow 2.21 xla/service/rendezvous.cc:101",
    ),
    Text(
        "This thread has been waiting for {milliseconds:d}ms for and may be stuck",
        "tensorflow 1.15 (NVIDIA) tensorflow/compiler/xla/service/collective_ops_utils.h:142",
    ),
    Text(
        "Termination timeout for `{what}` of {seconds:d} seconds exceeded. Exiting",
        "tensorflow 2.21 xla/service/rendezvous.cc:120",
    ),
    Text(
        "Expected {:d} threads to join the rendezvous, but not all of them arrived on time",
        "tensorflow 2.21 xla/service/rendezvous.cc:101",
    ),
    meaning="GPUs wait for each other without end: one of them hangs, runs another program, or its rank has ended",
    fix=(
        check("nvidia-smi", "a GPU at 100 % that does nothing; the first error of the other ranks"),
        export("NCCL_P2P_DISABLE", "1", "does it go on then? Then it is peer access: IOMMU or ACS"),
    ),
    possible=True,
)
FAMILY.harmless(
    "rendezvous_unstuck",
    Text("Thread is unstuck! Warning above was a false-positive", "tensorflow 2.21 xla/service/rendezvous.cc:110"),
    meaning="GPUs waited long for each other, and went on",
)
FAMILY.harmless(
    "nccl_plugin_absent",
    Text("NET/Plugin : No plugin found (libnccl-net.so)", "tensorflow 2.4.4 _pywrap_tensorflow_internal.so"),
    "NET/Plugin: No plugin found",
    "NET/Plugin: Could not find: {:s} libnccl-net",
    "TUNER/Plugin: Could not find: libnccl-tuner.so",
    "TUNER/Plugin: Failed to find ncclTunerPlugin",
    "PROFILER/Plugin: Could not find: libnccl-profiler.so",
    "Plugin Path : plugin_path",
    Text("NET/IB : No device found", "nccl 2.30 src/transport/net_ib/init.cc:470"),
    Text("Failed to open libibverbs.so", "tensorflow 2.4.4 _pywrap_tensorflow_internal.so"),
    meaning="optional parts of NCCL, for clusters with special networks",
    seen="NCCL",
)
FAMILY.fault(
    "group_not_complete",
    Text(
        "Collective ops is aborted by: {reason}",
        "tensorflow 2.21 tensorflow/core/common_runtime/base_collective_executor.cc:243",
    ),
    Text(
        "collective ops already aborted",
        "tensorflow 2.21 tensorflow/core/distributed_runtime/collective_param_resolver_distributed.cc:293",
    ),
    meaning="an exchange between workers was ended by an error before it",
    fix=(note("look for the first error of any worker; start all workers again"),),
    follows=True,
)
FAMILY.fault(
    "worker_restarted",
    Text(
        "current incarnation doesn't match with one in the group",
        "tensorflow 2.21 tensorflow/core/common_runtime/collective_param_resolver_local.cc:259",
    ),
    Text(
        "with incarnation {:s} is not available. This usually means {:s} has restarted",
        "tensorflow 2.21 tensorflow/core/distributed_runtime/collective_rma_distributed.cc:275",
    ),
    Text(
        "RecvBuf expects a different device incarnation",
        "tensorflow 2.21 tensorflow/core/common_runtime/buf_rendezvous.cc:175",
    ),
    Text(
        "group {:s} not found. This normally means the server has restarted",
        "tensorflow 2.21 tensorflow/core/distributed_runtime/collective_param_resolver_distributed.cc:155",
    ),
    Text(
        "group {:s} failed to resolve. This normally means the server has restarted",
        "tensorflow 2.21 tensorflow/core/distributed_runtime/collective_param_resolver_distributed.cc:167",
    ),
    "/job:worker/replica:0/task:{:d} is down",
    Text("Coordination agent is in ERROR", "tensorflow 2.10.1 _pywrap_tensorflow_internal.so"),
    Text(
        "The following tasks are unhealthy (stopped sending heartbeats)",
        "tensorflow 2.21 xla/tsl/distributed_runtime/coordination/coordination_service.cc:273",
    ),
    Text(
        "heartbeat timeout. This indicates that the remote task has failed, got preempted, or crashed unexpectedly",
        "tensorflow 2.21 xla/tsl/distributed_runtime/coordination/coordination_service.cc:254",
    ),
    Text("has been set to ERROR in coordination service", "tensorflow 2.15.1 libtensorflow_cc.so.2"),
    Text("Coordination agent is set to ERROR", "tensorflow 2.15.1 libtensorflow_cc.so.2"),
    Text("Coordination agent is set to error", "tensorflow 2.15.1 libtensorflow_cc.so.2"),
    Text(
        "Failed to send RPC to coordination service. Either the leader task",
        "tensorflow 2.21 xla/tsl/distributed_runtime/coordination/coordination_service_error_util.cc:43",
    ),
    Text(
        "Leader incarnation ID mismatch: the coordination leader has restarted",
        "tensorflow 2.15.1 libtensorflow_cc.so.2",
    ),
    Text(
        "Heartbeat: Incarnation ID mismatch",
        "tensorflow 2.21 xla/tsl/distributed_runtime/coordination/coordination_service.cc:172",
    ),
    Text(
        "unexpectedly tried to connect with a different incarnation. It has likely restarted",
        "tensorflow 2.21 xla/tsl/distributed_runtime/coordination/coordination_service.cc:650",
    ),
    Text(
        "This usually implies an earlier error that caused coordination service to shut down",
        "tensorflow 2.21 xla/tsl/distributed_runtime/coordination/coordination_service.cc:576",
    ),
    meaning="a worker of the cluster has ended or was started again",
    fix=(note("start all workers again, in the order of the cluster; the log of the one that ended names the fault"),),
    possible=True,
)
FAMILY.fault(
    "collective_shapes",
    Text(
        "Shape mismatch in the collective instance",
        "tensorflow 2.21 tensorflow/core/common_runtime/collective_param_resolver_local.cc:751",
    ),
    Text(
        "Collective instance {:d} expected type",
        "tensorflow 2.21 tensorflow/core/common_runtime/collective_param_resolver_local.cc:720",
    ),
    Text(
        "but another member in the group expected shape",
        "tensorflow 2.21 tensorflow/core/common_runtime/collective_param_resolver_local.cc:751",
    ),
    meaning="workers exchange tensors of different shapes: other batches, data or code",
    fix=(
        note(
            "the same batch size on every worker: dataset.batch(n, drop_remainder=True); the same program",
            kind=Kind.EDIT_PROGRAM,
        ),
    ),
)
FAMILY.fault(
    "ring_topology",
    Text(
        "Collective ops must be configured at program startup",
        "tensorflow 2.21 tensorflow/python/eager/context.py:1083",
    ),
    Text("Collective ops are already configured", "tensorflow 2.21 tensorflow/python/eager/context.py:1078"),
    meaning="MultiWorkerMirroredStrategy is created after TensorFlow has made its devices",
    fix=(note("create the strategy first in the program, before any tensor or dataset", kind=Kind.EDIT_PROGRAM),),
)
FAMILY.fault(
    "cluster_not_reached",
    Text("failed to connect to all addresses", "tensorflow 2.4.4 _pywrap_tensorflow_internal.so"),
    "Failed to get initial cluster state",
    "DEADLINE_EXCEEDED: Barrier timed out",
    "Barrier timed out. Barrier_id: {}",
    Text(
        "Barrier timed out. Id: {}",
        "tensorflow 2.21 xla/tsl/distributed_runtime/coordination/coordination_service.cc:414",
    ),
    "Barrier timed out. This usually happens because",
    "Shutdown barrier timed out",
    meaning="the workers of the cluster do not reach each other, or one was not started",
    fix=(
        check("echo $TF_CONFIG", "on every worker: the same cluster, another index"),
        note("open the port of TF_CONFIG in the firewall; no proxy: unset http_proxy https_proxy"),
    ),
    possible=True,
)
