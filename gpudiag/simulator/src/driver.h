/* What the driver's files share: driver.c (devices, contexts, kernels), driver_memory.c, driver_streams.c. */
#ifndef GPUDIAG_SIMULATOR_DRIVER_H
#define GPUDIAG_SIMULATOR_DRIVER_H

#include "simulator.h"

typedef int CUresult;
typedef int CUdevice;
typedef struct context *CUcontext;
typedef struct stream *CUstream;

struct context {
    struct device device;
    int ordinal;
    int retained;
    CUresult sticky; /* the error that every later call returns, as after a real asynchronous fault */
    uint64_t peers;  /* bit n: peer access to ordinal n is on */
};

extern int device_count; /* of visible devices */
extern struct context contexts[MAX_GPUS];

CUcontext current(void); /* of this thread, or NULL */
int current_gpu(void);   /* its index in the machine, or -1 */
int gpu_of(CUdevice ordinal);
bool driver_is_usable(void);
bool is_context(CUcontext);

/* What every function but a few begins with. */
#define DRIVER_CALL(gpu, bytes)                                                             \
    do {                                                                                    \
        ENTER((gpu), (bytes));                                                              \
        if (!driver_is_usable()) return CUDA_ERROR_NOT_INITIALIZED;                         \
    } while (0)
#define CONTEXT_CALL(bytes)                                 \
    do {                                                    \
        DRIVER_CALL(current_gpu(), (bytes));                \
        if (!current()) return CUDA_ERROR_INVALID_CONTEXT;  \
        if (current()->sticky) return current()->sticky;    \
    } while (0)

#define DEVICE_CALL(ordinal)                                                         \
    do {                                                                             \
        DRIVER_CALL(gpu_of(ordinal), 0);                                             \
        if ((ordinal) < 0 || (ordinal) >= device_count) return CUDA_ERROR_INVALID_DEVICE; \
    } while (0)

#define NEEDED(pointer) REFUSE(!(pointer), CUDA_ERROR_INVALID_VALUE)
/* NULL and CU_STREAM_LEGACY (1) and CU_STREAM_PER_THREAD (2) of cuda.h name the default stream. */
#define STREAM_NEEDED(stream)                                                                  \
    do {                                                                                       \
        if ((uintptr_t)(stream) <= 2) (stream) = NULL;                                         \
        REFUSE((stream) && !handle_is(STREAM, (stream)), CUDA_ERROR_INVALID_HANDLE);           \
    } while (0)

#endif
