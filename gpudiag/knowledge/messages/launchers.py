"""Messages about programs that are ended from outside or cannot start: by lack of memory, batch systems or
launchers."""

from __future__ import annotations

from gpudiag.fix import Kind, ask, check, configure, edit_note, install, note, run, start
from gpudiag.knowledge.fault import Confidence, Stage
from gpudiag.knowledge.message import MessageFamily

FAMILY = MessageFamily(
    "batch systems, launchers and the system", stage=Stage.CONFIGURATION, seen="Linux, Slurm, Ray, Horovod, MPI"
)

_SMALLER = edit_note(
    "keep less in memory: read data as it is needed (tf.data from files, a small shuffle "
    "buffer), use a smaller batch and fewer workers"
)

FAMILY.fault(
    "host_memory_killed",
    "Out of memory: Killed process {pid:d} {}",
    "Out of memory: Kill process {pid:d} {}",
    "Memory cgroup out of memory: Kill process {pid:d} {}",
    "oom-kill:constraint={}",
    "invoked oom-killer",
    "Detected {:d} oom-kill event(s)",
    "OOMKilled",
    "killed by the cgroup out-of-memory handler",
    "Exceeded job memory limit",
    "Unable to allocate {} for an array with shape {}",
    "numpy.core._exceptions.MemoryError",
    "returned non-zero exit status 137",
    "exited with code 137",
    "exit code 137",
    "Exit Code: 137",
    "Exit code: 137",
    "exited with error code 137",
    "line {:d}: {:d} Killed",
    "Memory cgroup out of memory: Killed process {pid:d} {}",
    "Detected {:d} oom_kill event in {}",
    "exceeded memory limit ({:d} > {:d}), being killed",
    "terminate called after throwing an instance of 'std::bad_alloc'",
    "MemoryError: Unable to allocate {}",
    "numpy.core._exceptions._ArrayMemoryError",
    "The node was low on resource: memory",
    "exited on signal 9 (Killed)",
    "died with <Signals.SIGKILL: 9>",
    "Workers (tasks / actors) killed due to memory pressure",
    "killed due to the node running low on memory",
    meaning="the computer's memory, not the GPU's, is used up: the system killed the program, or refused it more",
    fix=(
        check(
            "free -g; sudo dmesg | grep -i -e 'out of memory' -e oom-kill",
            "shows how much memory is free, and which process was killed",
        ),
        _SMALLER,
        start(
            "sbatch --mem=64G ...",
            "if Slurm limits the memory; in Kubernetes: resources.limits.memory; in Docker: docker "
            "run --memory 64g ...",
        ),
    ),
    stage=Stage.MEMORY,
)
FAMILY.fault(
    "killed",
    pattern=r"^\W{0,3}(?:\[\d{1,3}\]\W{1,5})?(?:\d{1,8} )?Killed(?:\s{1,9}(?:\./|python|sh |bash )\S{0,200}.{0,200})?$|"
    r"srun: error: \S{1,100}: tasks? [\d,-]{1,100}: Killed",
    words=("killed",),
    meaning="the system killed the program, most often because the computer's memory was used up",
    fix=(check("sudo dmesg | grep -i -e 'out of memory' -e oom-kill", "shows whether memory was the reason"), _SMALLER),
    symptom=True,
    stage=Stage.MEMORY,
)
FAMILY.fault(
    "time_limit",
    "DUE TO TIME LIMIT",
    meaning="the batch system ended the job: its time was up",
    fix=(start("sbatch --time=24:00:00 ...", "or save checkpoints, and continue from the last one in another job"),),
    seen="Slurm",
)
FAMILY.fault(
    "no_such_gres",
    "Invalid generic resource (gres) specification",
    "Invalid Trackable RESource (TRES) specification",
    "Requested node configuration is not available",
    meaning="the cluster has no nodes with the requested GPUs in that partition and under that name",
    fix=(
        check("sinfo -o '%P %G %D %N'", "shows the partitions and their GPUs; (null) means none"),
        start(
            "sbatch --partition=NAME --gres=gpu:1 ...",
            "name a partition that has GPUs; give no GPU type, or one that sinfo shows",
        ),
    ),
    seen="Slurm",
    url="https://slurm.schedmd.com/gres.html",
)
FAMILY.fault(
    "step_waits_for_gpus",
    "step creation temporarily disabled, retrying",
    "Unable to create step for job {:d}: More processors requested than permitted",
    "Unable to create step for job {:d}: Requested node configuration is not available",
    meaning="an srun in the job requests more than is left: another step holds the job's GPUs or processors",
    fix=(start("srun --exact --gpus=1 --ntasks=1 ... &", "gives each step its own part; or: srun --overlap ..."),),
    seen="Slurm",
)
FAMILY.fault(
    "gres_file_missing",
    "can't stat gres.conf file {:s}",
    "gres/gpu count reported lower than configured ({has:d} < {needs:d})",
    "gres/gpu count too low ({has:d} < {needs:d})",
    meaning="a cluster node has fewer GPUs than in Slurm's configuration: a GPU or the driver failed",
    fix=(
        check("nvidia-smi -L; ls /dev/nvidia*; sudo dmesg | grep -i -e nvrm -e xid", "run it on the node"),
        configure("sudo scontrol update nodename=NODE state=resume", "if the node is repaired"),
    ),
    stage=Stage.DRIVER,
    seen="Slurm",
)
FAMILY.fault(
    "node_taint",
    "had taint {{nvidia.com/gpu: {}",
    "had untolerated taint {{nvidia.com/gpu: {}",
    "had untolerated taint(s)",
    meaning="the nodes with GPUs are kept for pods that ask for a GPU and tolerate their taint",
    fix=(
        note(
            "in the pod, with the limit nvidia.com/gpu: 1 -- tolerations: "
            "[{{key: nvidia.com/gpu, operator: Exists, "
            "effect: NoSchedule}}]",
            kind=Kind.START_CONTAINER,
        ),
        check("kubectl describe node NODE | grep -i taint"),
    ),
    confidence=Confidence.POSSIBLE,
    seen="Kubernetes",
)
FAMILY.fault(
    "ranks_stalled",
    "Stalled ranks:{}",
    "Missing ranks:{}",
    "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting",
    'One or more rank (marked by "!") is stalled',
    meaning="some ranks wait for others that do not take part: these run other steps, ended, or cannot be reached",
    fix=(
        edit_note(
            "every rank must do the same operations: the same number of steps and of variables; look at the "
            "log of the "
            "ranks that are missing"
        ),
        run(
            "export HOROVOD_GLOO_IFACE=eth0 NCCL_SOCKET_IFNAME=eth0",
            "if the hosts have several networks",
            kind=Kind.SET_VARIABLE,
        ),
    ),
    confidence=Confidence.POSSIBLE,
    seen="Horovod",
    url="https://horovod.readthedocs.io/en/stable/troubleshooting.html",
)
FAMILY.fault(
    "horovod_not_started",
    "Timed out waiting for tasks to start. Please check connectivity between servers",
    "ssh not successful for host {:s}",
    meaning="Horovod could not start its tasks: the hosts cannot reach each other, or have no free slots",
    fix=(
        check("ssh HOST true", "must work from the first host to each other host, without a password"),
        start("horovodrun --network-interface eth0 --start-timeout 120 ..."),
    ),
    confidence=Confidence.POSSIBLE,
    seen="Horovod",
)
FAMILY.fault(
    "horovod_without_transport",
    "Neither MPI nor Gloo support has been built",
    meaning="this Horovod was built without MPI and without Gloo, but its ranks need one of them to find each other",
    fix=(install("--no-cache-dir", "--force-reinstall", "--no-deps", "horovod", note="install cmake or MPI before"),),
    seen="Horovod",
)
FAMILY.fault(
    "server_not_started",
    "Could not start gRPC server",
    "No address added out of total {:d} resolved",
    meaning="the port that the program listens on is already in use, most often by an earlier run that did not end",
    fix=(
        check("ss -ltnp | grep PORT", "shows the process that uses the port: end it, or take another port (TF_CONFIG)"),
    ),
    confidence=Confidence.POSSIBLE,
    seen="TensorFlow, gRPC",
)
FAMILY.fault(
    "worker_not_there",
    "CreateSession still waiting for response from worker: {worker:s}",
    "Waiting for the cluster, timeout = {}",
    meaning="a worker of the cluster has not been started, or cannot be reached",
    fix=(
        check(
            "echo $TF_CONFIG", "must name the same cluster on every worker, with another index on each; start them all"
        ),
        check(
            "nc -vz HOST PORT", "must reach each address in TF_CONFIG; if a proxy is set: unset http_proxy https_proxy"
        ),
    ),
    seen="TensorFlow",
)
FAMILY.fault(
    "task_not_in_cluster",
    "When `cluster_spec` is given, you must also specify `task_type` and `task_id`",
    "`task_type` '{:q}' not found in cluster_spec",
    "The `task_id` {:d} exceeds the maximum id of {:s}",
    meaning="the task of this process is missing in TF_CONFIG, or is none of the tasks of its cluster",
    fix=(
        check(
            "echo $TF_CONFIG",
            'must have "task": {{"type": "worker", "index": 0}} beside "cluster", with an index below the number of '
            "addresses of that type",
        ),
    ),
    url="https://www.tensorflow.org/guide/distributed_training#TF_CONFIG",
    seen="TensorFlow",
)
FAMILY.fault(
    "image_not_pulled",
    "Failed to pull image {image:s}",
    "pull access denied for {image:s}",
    "manifest for {image:s} not found",
    "docker.io/{image:s}: not found",
    "{image:s}: failed to resolve source metadata for {}: not found",
    "nvcr.io/{image:s}: not found",
    meaning="the image {image} could not be pulled: the name or tag does not exist, or permission is missing",
    in_general="the image could not be pulled: the name or tag does not exist, or permission is missing",
    fix=(start("docker pull IMAGE", "shows the error; nvcr.io needs: docker login nvcr.io (user $oauthtoken)"),),
    confidence=Confidence.POSSIBLE,
    seen="Docker, Kubernetes",
)
ENDED_BY_SIGNAL = FAMILY.fault(
    "ended_by_signal",
    pattern=r"Process finished with exit code (?:139 \(interrupted by signal 11|134 \(interrupted by signal 6|"
    r"-?\d{6,12} \(0x[cC]0000(?:005|409|374|142|135))|Fatal Python error: (?:Segmentation fault|Aborted)|"
    r"(?:Segmentation fault|Aborted|Abgebrochen|Speicherzugriffsfehler) ?\((?:core dumped|Speicherabzug geschrieben)\)|"
    r"exited on signal (?:6|7|11) \(|died with <Signals\.SIG(?:SEGV|ABRT|BUS): \d{1,2}>|"
    r"\*\*\* Process received signal \*\*\*",
    words=("process", "fatal", "segmentation", "aborted", "signal", "signals", "abgebrochen", "speicherzugriffsfehler"),
    meaning="the program crashed in a library, not in Python: the lines before this one name it",
    fix=(
        ask(
            "python -X faulthandler program.py",
            "shows where it crashed; TF_CPP_MIN_LOG_LEVEL=0 shows TensorFlow's own lines",
        ),
        check("CUDA_VISIBLE_DEVICES=-1 python program.py", "if it crashes without a GPU too, the GPU is not the cause"),
        check(
            "pip check; pip list | grep -i -e nvidia -e tensorflow", "shows whether all libraries are of one release"
        ),
    ),
    symptom=True,
    stage=Stage.FIRST_OP,
    seen="Linux, Windows, PyCharm",
)
FAMILY.fault(
    "not_installed_on_hosts",
    "Error while finding module specification for 'horovod.{:q}'",
    "Launching horovod task function was not successful",
    meaning="the other hosts cannot start Horovod's task: Horovod, or the named Python, differs between the hosts",
    fix=(
        check(
            "ssh HOST 'which python; python -c \"import horovod; print(horovod.__version__)\"'",
            "must print on each host the same as on the first",
        ),
        install("horovod", note="install it on each host in the same path, or in a folder that all of them mount"),
    ),
    seen="Horovod",
)
FAMILY.fault(
    "mpi_versions_differ",
    "ORTE_ERROR_LOG: Data unpack would read past end of buffer",
    "ORTE_ERROR_LOG: Data unpack {} in file",
    "PMIX ERROR: {} in file",
    "ORTE was unable to reliably start one or more daemons",
    "ORTE has lost communication with a remote daemon",
    "There are not enough slots available in the system",
    "OMPI was not built with SLURM's PMI support",
    "It looks like orte_init failed for some reason",
    "ORTE_ERROR_LOG: Not found in file",
    "orted: command not found",
    "prterun was unable to find the specified executable file",
    meaning="MPI could not start the ranks: Open MPI is of different releases on the hosts, is not found there, or "
    "was not built for this batch system",
    fix=(
        check(
            "for host in HOST1 HOST2; do ssh $host 'which mpirun orted; mpirun --version'; done",
            "must be the same on each",
        ),
        start(
            "mpirun --prefix /path/of/openmpi -x PATH -x LD_LIBRARY_PATH ...", "name the Open MPI that you mean to use"
        ),
        start(
            "srun --mpi=list; srun --mpi=pmix ...",
            "if the job runs in Slurm; if there are not enough slots: -H host:GPUs, or --oversubscribe",
        ),
    ),
    symptom=True,
    seen="Open MPI",
)
FAMILY.fault(
    "ray_has_no_gpu",
    "No available node types can fulfill resource request {}'GPU': {}",
    "The following resource request cannot be scheduled right now: {}'GPU': {}",
    "Insufficient cluster resources to launch trial: trial requested {} GPU{}",
    meaning="Ray has no node with as many free GPUs as the program requests",
    fix=(
        check("ray status", "shows how many GPUs are used, and how many exist"),
        run("ray start --head --num-gpus=1", "if Ray did not find the GPUs that nvidia-smi lists"),
        edit_note("request fewer GPUs: num_gpus=0.5, or fewer workers"),
    ),
    seen="Ray",
)
