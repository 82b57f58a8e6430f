/* libcuda.so.1: memory, memory pools, copies and memsets.
 *
 * Memory is mapped and untouched until it is used, and counted in the machine's table (memory.c). Copies and memsets are done
 * at once in the caller's thread.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "driver.h"
#include "layouts.h"

typedef struct pool *CUmemoryPool;

struct pool {
    CUcontext context;
    uint64_t used, high, release_threshold;
};

enum kind { DEVICE_MEMORY, MANAGED_MEMORY, HOST_MEMORY, REGISTERED_MEMORY };

/* A child forked while another thread held it must not wait for ever; it may not use the driver anyway (driver.c). */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void forked(void) { pthread_mutex_init(&lock, NULL); }
__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, forked); }

struct allocation {
    char *base;
    size_t size;     /* as asked */
    size_t reserved; /* as counted on the device, 0 for host memory */
    enum kind kind;
    CUcontext context;
    struct pool *pool;
};

static struct {
    struct allocation *items; /* sorted by address */
    size_t count, room;
} memory;

/* Index of the first allocation that lies above `address`. */
static size_t above(const char *address) {
    size_t low = 0, high = memory.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (memory.items[middle].base <= address) low = middle + 1;
        else high = middle;
    }
    return low;
}

static bool remember(struct allocation allocation) {
    pthread_mutex_lock(&lock);
    if (memory.count == memory.room) {
        size_t room = memory.room ? 2 * memory.room : 64;
        struct allocation *items = realloc(memory.items, room * sizeof *items);
        if (!items) {
            pthread_mutex_unlock(&lock);
            return false;
        }
        memory.items = items;
        memory.room = room;
    }
    size_t at = above(allocation.base);
    memmove(memory.items + at + 1, memory.items + at, (memory.count - at) * sizeof *memory.items);
    memory.items[at] = allocation;
    memory.count++;
    pthread_mutex_unlock(&lock);
    return true;
}

static bool find(const void *address, struct allocation *found) {
    pthread_mutex_lock(&lock);
    size_t at = above(address);
    bool inside = at && (const char *)address < memory.items[at - 1].base + memory.items[at - 1].size;
    if (inside) *found = memory.items[at - 1];
    pthread_mutex_unlock(&lock);
    return inside;
}

static bool forget(void *base, struct allocation *forgotten) {
    pthread_mutex_lock(&lock);
    size_t at = above(base);
    bool known = at && memory.items[at - 1].base == base;
    if (known) {
        *forgotten = memory.items[at - 1];
        memory.count--;
        memmove(memory.items + at - 1, memory.items + at, (memory.count - at + 1) * sizeof *memory.items);
    }
    pthread_mutex_unlock(&lock);
    return known;
}

/* Pages come from the kernel untouched: an 80 GiB pool costs nothing until it is used. */
static CUresult allocate(void **address, size_t size, enum kind kind, CUcontext context, struct pool *pool) {
    if (!size) return CUDA_ERROR_INVALID_VALUE;
    size_t reserved = kind == HOST_MEMORY ? 0 : (size + 511) & ~(size_t)511;
    if (reserved && !unit_reserve(context->device.unit, reserved, kind == DEVICE_MEMORY)) return CUDA_ERROR_OUT_OF_MEMORY;
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED || !remember((struct allocation){base, size, reserved, kind, context, pool})) {
        say("the host refused %zu bytes of address space for device memory: %s", size, strerror(errno));
        if (base != MAP_FAILED) munmap(base, size);
        if (reserved) unit_release(context->device.unit, reserved);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = base;
    return CUDA_SUCCESS;
}

static CUresult release(void *address) {
    struct allocation allocation;
    if (!address) return CUDA_SUCCESS;
    if (!forget(address, &allocation)) return CUDA_ERROR_INVALID_VALUE;
    if (allocation.kind != REGISTERED_MEMORY) munmap(allocation.base, allocation.size);
    if (allocation.reserved) unit_release(allocation.context->device.unit, allocation.reserved);
    if (allocation.pool) __atomic_sub_fetch(&allocation.pool->used, allocation.reserved, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

API CUresult cuMemAlloc_v2(void **address, size_t size) {
    CONTEXT_CALL(size);
    return allocate(address, size, DEVICE_MEMORY, current(), NULL);
}

API CUresult cuMemAllocManaged(void **address, size_t size, unsigned flags) {
    CONTEXT_CALL(size);
    (void)flags;
    return allocate(address, size, MANAGED_MEMORY, current(), NULL);
}

API CUresult cuMemHostAlloc(void **address, size_t size, unsigned flags) {
    CONTEXT_CALL(size);
    (void)flags;
    return allocate(address, size, HOST_MEMORY, current(), NULL);
}
API CUresult cuMemAllocHost_v2(void **address, size_t size) {
    CONTEXT_CALL(size);
    return allocate(address, size, HOST_MEMORY, current(), NULL);
}

API CUresult cuMemFree_v2(void *address) {
    DRIVER_CALL(current_gpu(), 0);
    return release(address);
}
API CUresult cuMemFreeHost(void *address) {
    DRIVER_CALL(current_gpu(), 0);
    return release(address);
}

API CUresult cuMemHostRegister_v2(void *address, size_t size, unsigned flags) {
    CONTEXT_CALL(0);
    (void)flags;
    return remember((struct allocation){address, size, 0, REGISTERED_MEMORY, current(), NULL}) ? CUDA_SUCCESS
                                                                                             : CUDA_ERROR_OUT_OF_MEMORY;
}
API CUresult cuMemHostUnregister(void *address) {
    DRIVER_CALL(current_gpu(), 0);
    return release(address);
}
API CUresult cuMemHostGetDevicePointer_v2(void **device_pointer, void *address, unsigned flags) {
    CONTEXT_CALL(0);
    (void)flags;
    *device_pointer = address;
    return CUDA_SUCCESS;
}

API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    CONTEXT_CALL(0);
    uint64_t capacity = unit_capacity(current()->device.unit), used = unit_used(current()->device.unit);
    *total = capacity;
    *free_bytes = used < capacity ? capacity - used : 0; /* managed memory may exceed the GPU */
    return CUDA_SUCCESS;
}

API CUresult cuMemGetAddressRange_v2(void **base, size_t *size, void *address) {
    DRIVER_CALL(current_gpu(), 0);
    struct allocation allocation;
    if (!find(address, &allocation)) return CUDA_ERROR_NOT_FOUND;
    if (base) *base = allocation.base;
    if (size) *size = allocation.size;
    return CUDA_SUCCESS;
}

API CUresult cuPointerGetAttribute(void *data, int attribute, void *address) {
    DRIVER_CALL(current_gpu(), 0);
    struct allocation allocation;
    if (!find(address, &allocation)) return CUDA_ERROR_INVALID_VALUE;
    bool host = allocation.kind == HOST_MEMORY || allocation.kind == REGISTERED_MEMORY;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)data = allocation.context; break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned *)data = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(void **)data = address; break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (allocation.kind == DEVICE_MEMORY) return CUDA_ERROR_INVALID_VALUE;
        *(void **)data = address;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned *)data = allocation.kind == MANAGED_MEMORY; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)data = allocation.context->ordinal; break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(void **)data = allocation.base; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)data = allocation.size; break;
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

/* ---- memory pools (TF_GPU_ALLOCATOR=cuda_malloc_async). A real pool keeps freed memory up to its release threshold;
 * here a free gives it back at once. ---- */

static struct pool pools[MAX_GPUS]; /* the devices' default pools */

static struct pool *pool_of(CUdevice ordinal) {
    pools[ordinal].context = &contexts[ordinal];
    return &pools[ordinal];
}

API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
    DEVICE_CALL(device);
    *pool = pool_of(device);
    return CUDA_SUCCESS;
}
API CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) { return cuDeviceGetDefaultMemPool(pool, device); }

API CUresult cuMemPoolCreate(CUmemoryPool *pool, const struct pool_properties *properties) {
    DRIVER_CALL(-1, 0);
    int ordinal = properties->location.id;
    if (ordinal < 0 || ordinal >= device_count) return CUDA_ERROR_INVALID_DEVICE;
    *pool = calloc(1, sizeof **pool);
    if (!*pool) return CUDA_ERROR_OUT_OF_MEMORY;
    (*pool)->context = &contexts[ordinal];
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    DRIVER_CALL(-1, 0);
    if (pool < pools || pool >= pools + MAX_GPUS) free(pool);
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolSetAccess(CUmemoryPool pool, const void *access, size_t count) {
    DRIVER_CALL(pool->context->device.unit.gpu, 0);
    (void)access, (void)count;
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
    DRIVER_CALL(pool->context->device.unit.gpu, 0);
    (void)keep;
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value) {
    DRIVER_CALL(pool->context->device.unit.gpu, 0);
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) pool->release_threshold = *(uint64_t *)value;
    if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) pool->high = pool->used;
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value) {
    DRIVER_CALL(pool->context->device.unit.gpu, 0);
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: *(uint64_t *)value = pool->release_threshold; break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: *(uint64_t *)value = pool->used; break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: *(uint64_t *)value = pool->high; break;
    default: *(int *)value = 1; break; /* the reuse policies are on by default */
    }
    return CUDA_SUCCESS;
}

static CUresult allocate_from(void **address, size_t size, CUmemoryPool pool) {
    CUresult result = allocate(address, size, DEVICE_MEMORY, pool->context, pool);
    if (result != CUDA_SUCCESS) return result;
    uint64_t used = __atomic_add_fetch(&pool->used, (size + 511) & ~(size_t)511, __ATOMIC_RELAXED);
    if (used > pool->high) pool->high = used;
    return CUDA_SUCCESS;
}

API CUresult cuMemAllocFromPoolAsync(void **address, size_t size, CUmemoryPool pool, CUstream stream) {
    CONTEXT_CALL(size);
    (void)stream;
    return allocate_from(address, size, pool);
}
API CUresult cuMemAllocAsync(void **address, size_t size, CUstream stream) {
    CONTEXT_CALL(size);
    (void)stream;
    return allocate_from(address, size, pool_of(current()->ordinal));
}
API CUresult cuMemFreeAsync(void *address, CUstream stream) {
    DRIVER_CALL(current_gpu(), 0);
    (void)stream;
    return release(address);
}

/* ---- copies and memsets ---- */

enum direction { TO_HOST, TO_GPU, BETWEEN_GPUS };

static CUresult copy(void *to, const void *from, size_t size, enum direction direction) {
    memmove(to, from, size);
    /* Another bit for each direction: a tensor that goes to one GPU and then to another must not come out right again. */
    if (direction != TO_HOST) corrupt_copy(current_gpu(), to, size, direction == TO_GPU ? 0x40 : 0x20);
    return CUDA_SUCCESS;
}

/* cuMemcpy infers the direction from the pointers. */
static enum direction direction_of(const void *to, const void *from) {
    struct allocation allocation;
    if (!find(to, &allocation)) return TO_HOST;
    return find(from, &allocation) ? BETWEEN_GPUS : TO_GPU;
}

#define COPY(name, direction)                                     \
    API CUresult name(void *to, const void *from, size_t size) {  \
        CONTEXT_CALL(size);                                       \
        return copy(to, from, size, (direction));                 \
    }
#define COPY_ASYNC(name, direction)                                                \
    API CUresult name(void *to, const void *from, size_t size, CUstream stream) {  \
        CONTEXT_CALL(size);                                                        \
        (void)stream;                                                              \
        return copy(to, from, size, (direction));                                  \
    }
COPY(cuMemcpy, direction_of(to, from))
COPY(cuMemcpyHtoD_v2, TO_GPU)
COPY(cuMemcpyDtoH_v2, TO_HOST)
COPY(cuMemcpyDtoD_v2, BETWEEN_GPUS)
COPY_ASYNC(cuMemcpyAsync, direction_of(to, from))
COPY_ASYNC(cuMemcpyHtoDAsync_v2, TO_GPU)
COPY_ASYNC(cuMemcpyDtoHAsync_v2, TO_HOST)
COPY_ASYNC(cuMemcpyDtoDAsync_v2, BETWEEN_GPUS)

API CUresult cuMemcpyPeer(void *to, CUcontext to_context, const void *from, CUcontext from_context, size_t size) {
    CONTEXT_CALL(size);
    if (to_context->sticky || from_context->sticky) return CUDA_ERROR_LAUNCH_FAILED;
    return copy(to, from, size, BETWEEN_GPUS);
}
API CUresult cuMemcpyPeerAsync(void *to, CUcontext to_context, const void *from, CUcontext from_context, size_t size,
                               CUstream stream) {
    (void)stream;
    CONTEXT_CALL(size);
    if (to_context->sticky || from_context->sticky) return CUDA_ERROR_LAUNCH_FAILED;
    return copy(to, from, size, BETWEEN_GPUS);
}

#define MEMSET(type, name)                                                             \
    API CUresult name(type *to, type value, size_t count) {                            \
        CONTEXT_CALL(count * sizeof(type));                                            \
        for (size_t i = 0; i < count; i++) to[i] = value;                              \
        return CUDA_SUCCESS;                                                           \
    }
#define MEMSET_ASYNC(type, name)                                                       \
    API CUresult name(type *to, type value, size_t count, CUstream stream) {           \
        CONTEXT_CALL(count * sizeof(type));                                            \
        (void)stream;                                                                  \
        for (size_t i = 0; i < count; i++) to[i] = value;                              \
        return CUDA_SUCCESS;                                                           \
    }
MEMSET(unsigned char, cuMemsetD8_v2)
MEMSET(unsigned short, cuMemsetD16_v2)
MEMSET(unsigned, cuMemsetD32_v2)
MEMSET_ASYNC(unsigned char, cuMemsetD8Async)
MEMSET_ASYNC(unsigned short, cuMemsetD16Async)
MEMSET_ASYNC(unsigned, cuMemsetD32Async)
