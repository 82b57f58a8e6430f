/* What the files of the simulated CUDA stack share.
 *
 * One core library holds all state and every function. The libraries that TensorFlow opens (libcuda.so.1,
 * libcudart.so.12, ...) are empty shared objects that depend on it: dlsym() on their handles finds the core's symbols.
 *
 * Nothing is read when the library is loaded. A process that has imported TensorFlow may be forked, and the child may
 * set CUDA_VISIBLE_DEVICES and GPUDIAG_SIM_FAULTS before its first call: both are read then.
 */
#ifndef GPUDIAG_SIMULATOR_H
#define GPUDIAG_SIMULATOR_H

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "constants.h"

#define API __attribute__((visibility("default")))

enum { MAX_GPUS = 64, MAX_MIG_INSTANCES = 7, MAX_FAULTS = 64 };

/* ---- machine.c: the simulated machine, as machine.py wrote it ---- */

/* What NVML says of the health of a GPU. */
enum gpu_state {
#define STATE(key, healthy) STATE_##key,
#include "gpu_state.inc"
#undef STATE
    STATES
};

struct gpu {
    char name[128];
    char uuid[64];
    char mig_uuid[MAX_MIG_INSTANCES][64];
    int mig_instances; /* 0: MIG mode is off */
    uint64_t memory, context_overhead;
    uint64_t taken; /* by a foreign process, from the start */
    pid_t taken_by;
    int cc_major, cc_minor, multiprocessors;
    int compute_mode;
    int numa_node;
    int speed; /* for CUDA_DEVICE_ORDER=FASTEST_FIRST */
    bool memory_pools;
    int kernel_us, copy_mb_s, noise, noise_seed; /* its pace (pace.c): 0, as fast as the host */
    unsigned pci_domain, pci_bus, pci_device;
    long long state[STATES];
};

/* GPUs stand in PCI order, which is NVML's order. */
struct machine {
    char directory[PATH_MAX];
    int gpu_count;
    struct gpu gpus[MAX_GPUS];
    int cuda_version;  /* of the driver: 12040 */
    int cudnn_version; /* 90300 */
    char driver_version[32];
};

const struct machine *simulated_machine(void);
/* One line on stderr, marked as ours. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* True, and said once, where NVIDIA's own libcuda is mapped: the two must never mix. */
bool real_driver_is_mapped(void);

/* ---- locks.c: every mutex, in the order in which one thread may take several; a fork takes all ---- */

enum lock {
    CONTEXTS_LOCK,
    TABLE_LOCK,
    MACHINE_LOCK,
    ALLOCATIONS_LOCK,
    CALLBACKS_LOCK,
    KERNELS_LOCK,
    HANDLES_LOCK,
    TRACE_LOCK,
    ACTIVITY_LOCK,
    LOCKS
};
void hold(enum lock);
void let_go(enum lock);
void wait_for(pthread_cond_t *condition, enum lock);

/* ---- handles.c ---- */

enum handle { NO_HANDLE, STREAM, EVENT, MODULE, FUNCTION, POOL, DESTROYED_POOL, CUBLAS, CUBLAS_LT, CUDNN, CUSOLVER, CUSPARSE, NCCL_COMMUNICATOR };
enum { HANDLE_ROOM = 240 };
/* HANDLE_ROOM bytes of zeros, or NULL where there are too many. */
void *handle_new(enum handle kind);
bool handle_is(enum handle kind, const void *handle);
void handle_becomes(enum handle kind, void *handle);
/* False where it was none of this kind: stale, freed already, or never made. */
bool handle_free(enum handle kind, void *handle);

/* ---- faults.c ---- */

/* Every simulated function begins with ENTER: it writes the trace, sleeps an injected delay, and returns an injected
 * error. `gpu` is the index in the machine, or -1 where the call concerns no GPU; `bytes` the size of an allocation
 * or a copy, or 0. */
#define ENTER(gpu, bytes)                                      \
    do {                                                       \
        int injected_ = call_begins(__func__, (gpu), (bytes)); \
        if (injected_) return injected_;                       \
    } while (0)
int call_begins(const char *function, int gpu, uint64_t bytes);
/* As NVIDIA's libraries do: a pointer that is needed and NULL, or a handle that is none, is an error and no crash. */
#define REFUSE(wrong, code)         \
    do {                            \
        if (wrong) return (code);   \
    } while (0)
void faults_add(const char *rule); /* used while the machine is read */
void faults_clear(void);
/* Flip a bit in the first float32 of a copy to a GPU, where a fault says so. */
void corrupt_copy(bool between_gpus, int gpu, void *destination, uint64_t bytes, unsigned char bit);

/* How far the fault of this name, which is none of a function, goes on a GPU; 0 where there is none. */
double fault_amount(const char *name, int gpu);
/* Note that it had an effect. */
void fault_acts(const char *name, int gpu);

/* ---- memory.c: who holds how much, shared by all processes of the machine ---- */

/* What memory is taken from: a whole GPU, or one MIG instance of it. */
struct unit {
    int gpu;
    int mig; /* -1: the whole GPU */
};
struct holder {
    pid_t pid;
    uint64_t bytes;
};
uint64_t unit_capacity(struct unit);
/* A context is made; false where `exclusive` and another process has one. */
bool unit_enter(struct unit, bool exclusive);
void unit_leave(struct unit);
uint64_t unit_used(struct unit);
/* False where it does not fit; `limited` is false for managed memory, which may exceed the GPU. */
bool unit_reserve(struct unit, uint64_t bytes, bool limited);
void unit_release(struct unit, uint64_t bytes);
int unit_holders(struct unit, struct holder *holders, int room);

enum engine { COMPUTES, COPIES_IN, COPIES_OUT, ENGINES };
enum { LANES = 16 }; /* of the link of a GPU with a pace */

/* What all processes know of the work of a GPU with a pace; times by CLOCK_MONOTONIC, in seconds. */
struct pulse {
    double at, first;        /* until when it is accounted, and when the first work began; 0: there was none */
    double free_at[ENGINES]; /* when all that was asked of it will be done */
    double temperature, load, busy_s;
    double chip, wander; /* of its noise, in deviations */
    uint64_t random, results;
    bool is_hot;
};
/* NULL where there is no table; otherwise nobody else has it until pulse_give. */
struct pulse *pulse_take(int gpu);
void pulse_give(int gpu);

/* ---- pace.c ---- */

struct pulse pulse_of(int gpu); /* as of now */
bool gpu_is_paced(int gpu);
bool has_worked_for(int gpu, double seconds);
double copy_begins(void);
void copy_ends(double start, int from, int to, uint64_t bytes); /* GPUs; -1: the host */

/* ---- visibility.c ---- */

/* The devices that CUDA shows to this process, in its order. Returns their number. */
int visible_units(const struct machine *, const char *device_order, const char *visible_devices, struct unit *units);

/* ---- driver.c, for runtime.c and nvml.c ---- */

struct device {
    struct unit unit;
    const struct gpu *gpu;
};
int driver_ready(void); /* cuInit's answer, asked implicitly as cudart does */
int driver_device_count(void);
const struct device *driver_device(int ordinal);
int driver_use_device(int ordinal); /* retain its primary context and make it current */
int driver_current_ordinal(void);   /* -1: no context is current */
void driver_launch_not_forwarded(const char *kernel);

/* ---- cupti.c: what a profiler hears of ---- */

enum activity_copy { COPIED_TO_GPU = 1, COPIED_TO_HOST = 2, COPIED_BETWEEN_GPUS = 8 }; /* CUpti_ActivityMemcpyKind */
uint64_t activity_begins(void); /* 0: no profiler listens */
void activity_copied(uint64_t start, enum activity_copy kind, uint64_t bytes);

/* ---- forwarding.c ---- */

/* False in a process of a TensorFlow that is not known (it has been said): a kernel that it changed, and that is computed
 * here, would give a wrong number. */
bool tensorflow_is_known(void);
/* False where the kernels of a TensorFlow process cannot be forwarded (it has been said why). */
bool load_kernel_forwarding(void);
/* The path of a file in the directory of this library. */
bool library_beside_core(char *path, size_t room, const char *file);

/* ---- keras.c ---- */

/* Keras chooses XLA and cuDNN by itself where it sees a GPU; on a simulated one it must not. */
void keras_choose_for_simulated_gpu(bool python_may_run_now);

#endif
