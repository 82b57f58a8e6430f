/* Who holds how much memory of which GPU: one table in a file that all processes of the simulated machine map.
 *
 * A real driver knows when a process dies. Here every look at the table first drops the entries of processes that are
 * gone (or zombies, or whose pid belongs to a younger process now), so kill -9 gives memory back as an exit does.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "simulator.h"

enum { MAX_PROCESSES = 512, UNITS_PER_GPU = MAX_MIG_INSTANCES + 1, MAX_UNITS = MAX_GPUS * UNITS_PER_GPU };

struct process {
    pid_t pid; /* 0: free */
    unsigned long long start_time;
    uint64_t bytes[MAX_UNITS];
    bool context[MAX_UNITS]; /* it has a context there, though it may hold nothing */
};

struct table {
    uint64_t layout; /* sizeof(struct table), written last by whoever made it */
    pthread_mutex_t lock;
    struct process processes[MAX_PROCESSES];
    struct {
        /* of its own: who computes is not in the way of who allocates */
        pthread_mutex_t lock;
        struct pulse pulse;
    } paces[MAX_GPUS];
};

API size_t gpudiag_table_bytes(void) { return sizeof(struct table); } /* for a test: machine.py allocates it */

static struct table *table;
static pid_t table_pid; /* the process that `mine` belongs to */
static struct process *mine;

static int index_of(struct unit unit) { return unit.gpu * UNITS_PER_GPU + unit.mig + 1; }

uint64_t unit_capacity(struct unit unit) {
    const struct gpu *gpu = &simulated_machine()->gpus[unit.gpu];
    return unit.mig < 0 ? gpu->memory : gpu->memory / (uint64_t)gpu->mig_instances;
}

enum { GONE = 0, UNKNOWN = 1 }; /* no process but init starts with the machine's first tick */

/* Start time of a live process from /proc/PID/stat (fields 3 and 22 of proc(5)); GONE also for a zombie, UNKNOWN where that
 * cannot be looked up: no descriptor left, no /proc, or one that hides the processes of other users (hidepid). */
static unsigned long long start_time(pid_t pid) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        bool hidden = errno != ENOENT || access("/proc/self", F_OK) || (kill(pid, 0) && errno == EPERM);
        return hidden ? UNKNOWN : GONE;
    }
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0) return GONE;
    text[length] = '\0';
    const char *name_end = strrchr(text, ')');
    char state = 'X';
    unsigned long long start = 0;
    if (!name_end) return GONE;
    sscanf(name_end + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &state, &start);
    return state == 'Z' || state == 'X' ? GONE : start;
}

static struct table *map_table(void) {
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/memory", simulated_machine()->directory);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) goto failed;
    /* The first process of the machine makes the table; the file lock is the kernel's, so a death cannot leave it. */
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    while (fcntl(file, F_SETLKW, &whole) && errno == EINTR) continue;
    struct stat status;
    if (fstat(file, &status)) goto failed;
    if (!S_ISREG(status.st_mode) || (size_t)status.st_size > sizeof(struct table)) {
        say("%s is not the memory table of this version of gpudiag", path);
        close(file);
        return NULL;
    }
    /* Its blocks, too: a page without one, on a full disk, would end the program that touches it with SIGBUS. */
    if ((size_t)status.st_size < sizeof(struct table)) {
        while ((errno = posix_fallocate(file, 0, sizeof(struct table))) == EINTR) continue;
        if (errno) goto failed;
    }
    struct table *mapped = mmap(NULL, sizeof(struct table), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) goto failed;
    if (mapped->layout != sizeof(struct table)) {
        pthread_mutexattr_t shared;
        pthread_mutexattr_init(&shared);
        pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&mapped->lock, &shared);
        for (int gpu = 0; gpu < MAX_GPUS; gpu++) pthread_mutex_init(&mapped->paces[gpu].lock, &shared);
        mapped->layout = sizeof(struct table);
    }
    close(file);
    return mapped;
failed:
    say("cannot open the machine's memory table %s: %s", path, strerror(errno));
    if (file >= 0) close(file);
    return NULL;
}

/* Whether this is still the process that made the entry. One that was killed meanwhile has noted no start. */
static bool lives(const struct process *process) {
    unsigned long long start = start_time(process->pid);
    if (start > UNKNOWN && process->start_time > UNKNOWN) return start == process->start_time;
    return start != GONE && (!kill(process->pid, 0) || errno == EPERM);
}

static struct table *open_table(void) {
    hold(TABLE_LOCK);
    if (!table) table = map_table();
    bool first = table_pid != getpid(); /* a forked child holds nothing of its parent's */
    if (first) mine = NULL;
    table_pid = getpid();
    let_go(TABLE_LOCK);
    if (!table) return NULL;
    if (pthread_mutex_lock(&table->lock) == EOWNERDEAD) pthread_mutex_consistent(&table->lock);
    for (int i = 0; i < MAX_PROCESSES; i++) {
        struct process *process = &table->processes[i];
        bool before_exec = first && process->pid == table_pid; /* a program's memory ends with it, if its process does not */
        if (process->pid && process != mine && (before_exec || !lives(process))) memset(process, 0, sizeof *process);
    }
    return table;
}

static void close_table(void) { pthread_mutex_unlock(&table->lock); }

static uint64_t taken_from_start(struct unit unit) {
    return unit.mig < 0 ? simulated_machine()->gpus[unit.gpu].taken : 0;
}

static uint64_t used_in_table(struct unit unit) {
    uint64_t used = taken_from_start(unit);
    for (int i = 0; i < MAX_PROCESSES; i++)
        if (table->processes[i].pid) used += table->processes[i].bytes[index_of(unit)];
    return used;
}

uint64_t unit_used(struct unit unit) {
    if (!open_table()) return 0;
    uint64_t used = used_in_table(unit);
    close_table();
    return used;
}

static struct process *my_entry(void) {
    for (int i = 0; i < MAX_PROCESSES && !mine; i++) {
        if (table->processes[i].pid) continue;
        mine = &table->processes[i];
        memset(mine, 0, sizeof *mine);
        mine->pid = getpid();
        mine->start_time = start_time(mine->pid);
    }
    if (!mine) say("more than %d processes share this simulated machine", MAX_PROCESSES);
    return mine;
}

bool unit_reserve(struct unit unit, uint64_t bytes, bool limited) {
    if (!open_table()) return false;
    uint64_t used = used_in_table(unit), capacity = unit_capacity(unit);
    bool fits = !limited || (used <= capacity && bytes <= capacity - used);
    struct process *entry = fits ? my_entry() : NULL;
    if (entry) entry->bytes[index_of(unit)] += bytes;
    close_table();
    return entry != NULL;
}

bool unit_enter(struct unit unit, bool exclusive) {
    if (!open_table()) return false;
    bool others = false;
    for (int i = 0; i < MAX_PROCESSES; i++) {
        const struct process *process = &table->processes[i];
        others |= process->pid && process != mine && process->context[index_of(unit)];
    }
    struct process *entry = exclusive && others ? NULL : my_entry();
    if (entry) entry->context[index_of(unit)] = true;
    close_table();
    return entry != NULL;
}

void unit_leave(struct unit unit) {
    if (!open_table()) return;
    if (mine) mine->context[index_of(unit)] = false;
    close_table();
}

void unit_release(struct unit unit, uint64_t bytes) {
    if (!open_table()) return;
    if (mine) mine->bytes[index_of(unit)] -= bytes;
    close_table();
}

struct pulse *pulse_take(int gpu) {
    hold(TABLE_LOCK);
    if (!table) table = map_table();
    let_go(TABLE_LOCK);
    if (!table) return NULL;
    if (pthread_mutex_lock(&table->paces[gpu].lock) == EOWNERDEAD) pthread_mutex_consistent(&table->paces[gpu].lock);
    return &table->paces[gpu].pulse;
}
void pulse_give(int gpu) { pthread_mutex_unlock(&table->paces[gpu].lock); }

int unit_holders(struct unit unit, struct holder *holders, int room) {
    int count = 0;
    uint64_t taken = taken_from_start(unit);
    if (taken) {
        if (count < room) holders[count] = (struct holder){simulated_machine()->gpus[unit.gpu].taken_by, taken};
        count++;
    }
    if (!open_table()) return count;
    for (int i = 0; i < MAX_PROCESSES; i++) {
        const struct process *process = &table->processes[i];
        uint64_t bytes = process->pid ? process->bytes[index_of(unit)] : 0;
        if (!bytes) continue;
        if (count < room) holders[count] = (struct holder){process->pid, bytes};
        count++;
    }
    close_table();
    return count;
}
