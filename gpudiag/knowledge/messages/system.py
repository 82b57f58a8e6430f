"""Errors of the operating system, by number: errors of files, limits and connections that Python names.

The words are those of the C library (``strerror``), the number is that of Linux. Python prints both, ``[Errno 24] Too
many open files: 'x'``; TensorFlow prints the file and the words.
"""

from __future__ import annotations

from gpudiag.fix import Action, Kind, check, configure, edit_note, note, run, run_container, start
from gpudiag.knowledge.fault import Stage
from gpudiag.knowledge.message import MessageFamily

FAMILY = MessageFamily(
    "errors of the operating system",
    stage=Stage.PROGRAM,
    seen="Python, Linux",
    url="https://man7.org/linux/man-pages/man3/errno.3.html",
)

THREADS_REFUSED = FAMILY.fault(
    "threads_refused",
    "blas_thread_init: pthread_create failed for thread {:d} of {:d}: Resource temporarily unavailable",
    "blas_thread_init: pthread_create failed for thread {:d} of {:d}: Operation not permitted",
)
"""OpenBLAS, which numpy brings, may start no thread: it sends itself SIGINT, and Python raises KeyboardInterrupt."""

_ROWS: tuple[tuple[str, int, str, str, tuple[Action, ...]], ...] = (
    # name, number, words, meaning, fix
    (
        "too_many_files",
        24,
        "Too many open files",
        "too many open files: the program reached its limit of open files and connections",
        (
            configure(
                "ulimit -n 65536",
                "run it in the shell that starts the program; in a container: docker run --ulimit nofile=65536:65536",
            ),
            edit_note("use fewer workers that read data, and close files after reading"),
        ),
    ),
    (
        "no_more_processes",
        11,
        "Resource temporarily unavailable",
        "the system gives the program no more threads or processes: a limit is reached",
        (
            start('ulimit -u "$(ulimit -Hu)"', "raises this shell's limit to the most that is allowed to you"),
            check(
                "ulimit -u; cat /sys/fs/cgroup/pids.max", "shows the limits; in a container: docker run --pids-limit=-1"
            ),
            run(
                "export OMP_NUM_THREADS=4 OPENBLAS_NUM_THREADS=4",
                "starts fewer threads in each process",
                kind=Kind.SET_VARIABLE,
            ),
        ),
    ),
    (
        "no_host_memory",
        12,
        "Cannot allocate memory",
        "the computer's memory, not the GPU's, is used up or limited",
        (
            check("free -g; ulimit -v", "shows how much memory is free, and how much the program may use"),
            edit_note("keep less in memory: use a smaller batch and fewer workers, and read data as it is needed"),
        ),
    ),
    (
        "no_such_file",
        2,
        "No such file or directory",
        "a file that the program needs was not found",
        (
            check(
                "ls -ld {file}",
                "run it in the folder where the program was started: a path that does not begin with / starts there",
            ),
            note(
                "mount its folder if the program runs in a container: docker run -v $PWD:/work -w /work ...",
                kind=Kind.START_CONTAINER,
            ),
        ),
    ),
    (
        "file_not_permitted",
        13,
        "Permission denied",
        "the program may not read or write a file: it belongs to another user",
        (
            check("ls -ld {file}; id", "shows the file's owner and your user"),
            run_container(
                "-u $(id -u):$(id -g)",
                note="if it runs in a container; otherwise use another folder: export KERAS_HOME=$HOME/.keras",
            ),
        ),
    ),
    (
        "read_only",
        30,
        "Read-only file system",
        "the program writes to a file system that is read-only",
        (
            check(
                "findmnt -T {file}",
                "shows the file system; if the disk had errors, the kernel made it read-only: dmesg says so",
            ),
            run("export TMPDIR=/path/that/is/writable KERAS_HOME=/path/that/is/writable/keras", kind=Kind.SET_VARIABLE),
        ),
    ),
    (
        "disk_error",
        5,
        "Input/output error",
        "a disk, or the server of a network folder, does not answer",
        (
            check("sudo dmesg | tail -n 30", "shows what the kernel reports about the disk"),
            check(
                "df -h {file}",
                "shows the file system; on Google Drive in Colab, mount it again, and read fewer files of one folder",
            ),
        ),
    ),
    (
        "address_in_use",
        98,
        "Address already in use",
        "the port is already in use by another process, most often an earlier run that has not ended",
        (
            check("ss -ltnp", "shows the process that uses the port: end it"),
            note("or use another port: tensorboard --port 6007", kind=Kind.START_CONTAINER),
        ),
    ),
    (
        "connection_refused",
        111,
        "Connection refused",
        "connection refused: nothing listens at that address and port; the other process has not started, or has ended",
        (check("nc -zv HOST PORT", "run it on the machine that connects; a firewall can refuse it, too"),),
    ),
)
_FAULTS = {
    _name: FAMILY.fault(
        _name,
        f"[Errno {_number}] {_words}: '{{:q}}'",
        f"[Errno {_number}] {_words}",
        *((f"pthread_create failed{{}}: {_words}", "can't start new thread") if _number == 11 else ()),
        *(
            (
                "Thread {} creation via pthread_create() failed",
                "Thread creation via pthread_create() failed",
                "(11 vs. 0) pthread_create failed",
            )
            if _number == 11
            else ()
        ),
        *((f"cannot fork() child process: {_words}",) if _number in (11, 12) else ()),
        *((f"{{:s}}; {_words}",) if _number in (2, 5, 13, 30) else ()),
        meaning=_meaning,
        fix=_fix,
        symptom=True,
    )
    for _name, _number, _words, _meaning, _fix in _ROWS
}
NO_MORE_THREADS, TOO_MANY_FILES, NO_HOST_MEMORY = map(
    _FAULTS.__getitem__, ("no_more_processes", "too_many_files", "no_host_memory")
)
