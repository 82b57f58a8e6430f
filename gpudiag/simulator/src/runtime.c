/* libcudart.so.12: the runtime over our driver. TensorFlow's own code uses little of it: it registers its kernels during
 * `import tensorflow` and asks for versions, device counts and properties. A kernel that is launched all the same goes to
 * driver_launch_not_forwarded, where the real runtime would run it. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "layouts.h"
#include "simulator.h"

typedef int cudaError_t;
struct dim3 {
    unsigned x, y, z;
};

enum { RUNTIME_VERSION = 12050 }; /* CUDA 12.5, what TensorFlow 2.18 to 2.21 are built with */

static _Thread_local cudaError_t last_error;
static _Thread_local int wanted_device; /* cudaSetDevice */

static cudaError_t answer(cudaError_t code) {
    if (code) last_error = code;
    return code;
}

/* The runtime initialises the driver by itself, and refuses one of an older major version. */
static cudaError_t ready(void) {
    int version = simulated_machine()->cuda_version;
    if (version && version / 1000 < RUNTIME_VERSION / 1000) return answer(cudaErrorInsufficientDriver);
    return answer(driver_ready());
}
/* The current device's primary context becomes current where none is. */
static cudaError_t ready_with_context(void) {
    cudaError_t code = ready();
    if (!code && driver_current_ordinal() < 0) code = driver_use_device(wanted_device);
    return answer(code);
}
#define RUNTIME_CALL()                       \
    do {                                     \
        ENTER(-1, 0);                        \
        cudaError_t code_ = ready();         \
        if (code_) return code_;             \
    } while (0)
#define CONTEXT_CALL()                           \
    do {                                         \
        ENTER(-1, 0);                            \
        cudaError_t code_ = ready_with_context();\
        if (code_) return code_;                 \
    } while (0)

#define NEEDED(pointer) REFUSE(!(pointer), answer(CUDA_ERROR_INVALID_VALUE))

/* ---- registration of kernels: called from TensorFlow's static initialisers ---- */

struct kernel {
    const void *host;
    const char *name;
};
static struct {
    struct kernel *items;
    size_t count, room;
} kernels;

API void **__cudaRegisterFatBinary(void *binary) {
    static void *handle;
    (void)binary;
    keras_choose_for_simulated_gpu(false);
    real_driver_is_mapped(); /* says so now; every call that matters is refused later */
    return &handle;
}
API void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
API void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
API void __cudaRegisterVar(void) {}
API void __cudaRegisterManagedVar(void) {}
API char __cudaInitModule(void **handle) {
    (void)handle;
    return 1;
}
API void __cudaRegisterFunction(void **handle, const void *host, char *device_stub, const char *name) {
    (void)handle, (void)device_stub;
    hold(KERNELS_LOCK);
    if (kernels.count == kernels.room) {
        size_t room = kernels.room ? 2 * kernels.room : 16384; /* 2.21.0 registers 11179 */
        struct kernel *items = realloc(kernels.items, room * sizeof *items);
        if (items) kernels.items = items, kernels.room = room;
    }
    if (kernels.count < kernels.room) kernels.items[kernels.count++] = (struct kernel){host, name};
    let_go(KERNELS_LOCK);
}

/* ---- launches ---- */

static _Thread_local struct {
    struct dim3 grid, block;
    size_t shared_memory;
    void *stream;
} configurations[8];
static _Thread_local unsigned configured;

API unsigned __cudaPushCallConfiguration(struct dim3 grid, struct dim3 block, size_t shared_memory, void *stream) {
    if (configured == 8) return 1;
    configurations[configured].grid = grid;
    configurations[configured].block = block;
    configurations[configured].shared_memory = shared_memory;
    configurations[configured++].stream = stream;
    return 0;
}
API cudaError_t __cudaPopCallConfiguration(struct dim3 *grid, struct dim3 *block, size_t *shared_memory, void **stream) {
    if (!configured || !grid || !block || !shared_memory || !stream) return CUDA_ERROR_INVALID_VALUE;
    *grid = configurations[--configured].grid;
    *block = configurations[configured].block;
    *shared_memory = configurations[configured].shared_memory;
    *stream = configurations[configured].stream;
    return CUDA_SUCCESS;
}

static void launch(const void *host) {
    const char *name = NULL;
    hold(KERNELS_LOCK);
    for (size_t i = 0; i < kernels.count && !name; i++)
        if (kernels.items[i].host == host) name = kernels.items[i].name;
    let_go(KERNELS_LOCK);
    driver_launch_not_forwarded(name);
}
API cudaError_t cudaLaunchKernel(const void *host) {
    CONTEXT_CALL();
    launch(host);
    return CUDA_SUCCESS;
}
API cudaError_t cudaLaunchKernelExC(const void *configuration, const void *host) {
    CONTEXT_CALL();
    (void)configuration;
    launch(host);
    return CUDA_SUCCESS;
}
API cudaError_t cudaLaunchCooperativeKernel(const void *host) { return cudaLaunchKernel(host); }

/* driver_types.h: struct cudaFuncAttributes, 144 bytes; all zero is a valid answer for a kernel that never runs. */
API cudaError_t cudaFuncGetAttributes(void *attributes, const void *host) {
    CONTEXT_CALL();
    NEEDED(attributes);
    (void)host;
    memset(attributes, 0, 144);
    return CUDA_SUCCESS;
}
API cudaError_t cudaFuncSetAttribute(const void *host, int attribute, int value) {
    CONTEXT_CALL();
    (void)host, (void)attribute, (void)value;
    return CUDA_SUCCESS;
}
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *host, int block_size,
                                                                       size_t shared_memory, unsigned flags) {
    CONTEXT_CALL();
    NEEDED(blocks);
    (void)host, (void)block_size, (void)shared_memory, (void)flags;
    *blocks = 1;
    return CUDA_SUCCESS;
}
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *host, int block_size,
                                                              size_t shared_memory) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, block_size, shared_memory, 0);
}

/* ---- errors and versions ---- */

int cuGetErrorName(int code, const char **name);
int cuGetErrorString(int code, const char **text);

API const char *cudaGetErrorString(cudaError_t code) {
    const char *text;
    if (code == cudaErrorInsufficientDriver) return "CUDA driver version is insufficient for CUDA runtime version";
    return cuGetErrorString(code, &text) ? "unrecognized error code" : text;
}
API const char *cudaGetErrorName(cudaError_t code) {
    const char *name;
    if (code == cudaErrorInsufficientDriver) return "cudaErrorInsufficientDriver";
    return cuGetErrorName(code, &name) ? "unrecognized error code" : name;
}
API cudaError_t cudaGetLastError(void) {
    cudaError_t code = last_error;
    last_error = CUDA_SUCCESS;
    return code;
}
API cudaError_t cudaPeekAtLastError(void) { return last_error; }

API cudaError_t cudaRuntimeGetVersion(int *version) {
    ENTER(-1, 0);
    NEEDED(version);
    *version = RUNTIME_VERSION;
    return CUDA_SUCCESS;
}
API cudaError_t cudaDriverGetVersion(int *version) {
    ENTER(-1, 0);
    NEEDED(version);
    *version = simulated_machine()->cuda_version;
    return CUDA_SUCCESS;
}

/* ---- devices ---- */

int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDeviceGetUuid_v2(unsigned char *uuid, int device);
int cuDeviceGetName(char *name, int room, int device);
int cuDeviceGetPCIBusId(char *text, int room, int device);
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total);
int cuCtxSynchronize(void);
int cuStreamSynchronize(void *stream);
int cuMemAlloc_v2(void **address, size_t size);
int cuMemHostAlloc(void **address, size_t size, unsigned flags);
int cuMemFree_v2(void *address);
int cuMemFreeHost(void *address);
int cuMemcpy(void *to, const void *from, size_t size);
int cuMemsetD8_v2(unsigned char *to, unsigned char value, size_t count);
int cuPointerGetAttribute(void *data, int attribute, void *address);
int cuStreamIsCapturing(void *stream, int *status);

API cudaError_t cudaGetDeviceCount(int *count) {
    RUNTIME_CALL();
    NEEDED(count);
    *count = driver_device_count();
    return CUDA_SUCCESS;
}
API cudaError_t cudaGetDevice(int *device) {
    RUNTIME_CALL();
    NEEDED(device);
    int ordinal = driver_current_ordinal();
    *device = ordinal < 0 ? wanted_device : ordinal;
    return CUDA_SUCCESS;
}
API cudaError_t cudaSetDevice(int device) {
    RUNTIME_CALL();
    if (device < 0 || device >= driver_device_count()) return answer(CUDA_ERROR_INVALID_DEVICE);
    wanted_device = device;
    return answer(driver_use_device(device));
}
API cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    CONTEXT_CALL();
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return CUDA_SUCCESS;
}
/* cudaDeviceAttr has the numbers of CUdevice_attribute. */
API cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device) {
    RUNTIME_CALL();
    return answer(cuDeviceGetAttribute(value, attribute, device));
}
API cudaError_t cudaDeviceGetPCIBusId(char *text, int room, int device) {
    RUNTIME_CALL();
    return answer(cuDeviceGetPCIBusId(text, room, device));
}
API cudaError_t cudaDeviceSynchronize(void) {
    CONTEXT_CALL();
    return answer(cuCtxSynchronize());
}
API cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    CONTEXT_CALL();
    return answer(cuMemGetInfo_v2(free_bytes, total));
}

static int attribute(int device, int which) {
    int value = 0;
    cuDeviceGetAttribute(&value, which, device);
    return value;
}

API cudaError_t cudaGetDeviceProperties_v2(struct device_properties *properties, int device) {
    RUNTIME_CALL();
    NEEDED(properties);
    const struct device *it = driver_device(device);
    if (!it) return answer(CUDA_ERROR_INVALID_DEVICE);
    memset(properties, 0, sizeof *properties);
    cuDeviceGetName(properties->name, sizeof properties->name, device);
    cuDeviceGetUuid_v2(properties->uuid, device);
    properties->total_memory = unit_capacity(it->unit);
    properties->shared_memory_per_block = (size_t)attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    properties->registers_per_block = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
    properties->warp_size = attribute(device, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    properties->memory_pitch = (size_t)attribute(device, CU_DEVICE_ATTRIBUTE_MAX_PITCH);
    properties->max_threads_per_block = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    for (int i = 0; i < 3; i++) {
        properties->max_threads_dim[i] = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i);
        properties->max_grid_size[i] = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i);
    }
    properties->clock_khz = attribute(device, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
    properties->constant_memory = (size_t)attribute(device, CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
    properties->major = it->gpu->cc_major;
    properties->minor = it->gpu->cc_minor;
    properties->texture_alignment = properties->surface_alignment = 512;
    properties->device_overlap = properties->can_map_host_memory = properties->concurrent_kernels = 1;
    properties->multiprocessors = it->gpu->multiprocessors;
    properties->compute_mode = it->gpu->compute_mode;
    properties->pci_bus = (int)it->gpu->pci_bus;
    properties->pci_device = (int)it->gpu->pci_device;
    properties->pci_domain = (int)it->gpu->pci_domain;
    properties->async_engines = attribute(device, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
    properties->unified_addressing = properties->stream_priorities = properties->managed_memory = 1;
    properties->memory_clock_khz = attribute(device, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
    properties->memory_bus_width = attribute(device, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
    properties->l2_cache_bytes = attribute(device, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
    properties->max_threads_per_multiprocessor = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    properties->shared_memory_per_multiprocessor =
        (size_t)attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    properties->registers_per_multiprocessor = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
    properties->max_blocks_per_multiprocessor = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
    properties->memory_pools = it->gpu->memory_pools;
    return CUDA_SUCCESS;
}

/* ---- memory and streams: what users of the runtime need for plain copies ---- */

API cudaError_t cudaMalloc(void **address, size_t size) {
    CONTEXT_CALL();
    return answer(cuMemAlloc_v2(address, size));
}
API cudaError_t cudaMallocHost(void **address, size_t size) {
    CONTEXT_CALL();
    return answer(cuMemHostAlloc(address, size, 0));
}
API cudaError_t cudaHostAlloc(void **address, size_t size, unsigned flags) {
    CONTEXT_CALL();
    return answer(cuMemHostAlloc(address, size, flags));
}
/* cudaFree(NULL) is the usual way to make a context. */
API cudaError_t cudaFree(void *address) {
    CONTEXT_CALL();
    return answer(cuMemFree_v2(address));
}
API cudaError_t cudaFreeHost(void *address) {
    CONTEXT_CALL();
    return answer(cuMemFreeHost(address));
}
API cudaError_t cudaMemcpy(void *to, const void *from, size_t size, int kind) {
    CONTEXT_CALL();
    (void)kind;
    return answer(cuMemcpy(to, from, size));
}
API cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) {
    CONTEXT_CALL();
    (void)kind, (void)stream;
    return answer(cuMemcpy(to, from, size));
}
API cudaError_t cudaMemset(void *to, int value, size_t count) {
    CONTEXT_CALL();
    return answer(cuMemsetD8_v2(to, (unsigned char)value, count));
}
API cudaError_t cudaMemsetAsync(void *to, int value, size_t count, void *stream) {
    (void)stream;
    return cudaMemset(to, value, count);
}
API cudaError_t cudaStreamSynchronize(void *stream) {
    CONTEXT_CALL();
    return answer(cuStreamSynchronize(stream));
}
API cudaError_t cudaStreamIsCapturing(void *stream, int *status) {
    CONTEXT_CALL();
    return answer(cuStreamIsCapturing(stream, status));
}
/* The NCCL inside TensorFlow 2.18 to 2.20 calls it; nothing is ever captured. */
API cudaError_t cudaThreadExchangeStreamCaptureMode(int *mode) {
    ENTER(-1, 0);
    NEEDED(mode);
    *mode = 0;
    return CUDA_SUCCESS;
}
API cudaError_t cudaPointerGetAttributes(struct pointer_attributes *attributes, const void *address) {
    CONTEXT_CALL();
    NEEDED(attributes);
    unsigned type = 0, managed = 0;
    *attributes = (struct pointer_attributes){0, -1, NULL, (void *)address}; /* cudaMemoryTypeUnregistered */
    if (cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (void *)address)) return CUDA_SUCCESS;
    cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, (void *)address);
    cuPointerGetAttribute(&attributes->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (void *)address);
    attributes->type = managed ? 3 : (int)type; /* cudaMemoryTypeManaged; host 1 and device 2 agree with the driver's */
    attributes->device_pointer = (void *)address;
    attributes->host_pointer = attributes->type == 2 ? NULL : (void *)address;
    return CUDA_SUCCESS;
}
