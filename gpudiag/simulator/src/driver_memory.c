/* libcuda.so.1: memory, memory pools, copies and memsets.
 *
 * Memory is mapped and untouched until it is used, and counted in the machine's table (memory.c). Copies and memsets are done
 * at once in the caller's thread.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"
#include "layouts.h"

typedef struct pool *CUmemoryPool;

struct pool {
    CUcontext context;
    uint64_t used, high, release_threshold;
};

enum kind { DEVICE_MEMORY, MANAGED_MEMORY, HOST_MEMORY, REGISTERED_MEMORY };

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
    hold(ALLOCATIONS_LOCK);
    if (memory.count == memory.room) {
        size_t room = memory.room ? 2 * memory.room : 64;
        struct allocation *items = realloc(memory.items, room * sizeof *items);
        if (!items) {
            let_go(ALLOCATIONS_LOCK);
            return false;
        }
        memory.items = items;
        memory.room = room;
    }
    if (allocation.pool) {
        allocation.pool->used += allocation.reserved;
        if (allocation.pool->used > allocation.pool->high) allocation.pool->high = allocation.pool->used;
    }
    size_t at = above(allocation.base);
    memmove(memory.items + at + 1, memory.items + at, (memory.count - at) * sizeof *memory.items);
    memory.items[at] = allocation;
    memory.count++;
    let_go(ALLOCATIONS_LOCK);
    return true;
}

static bool find(const void *address, struct allocation *found) {
    hold(ALLOCATIONS_LOCK);
    size_t at = above(address);
    bool inside = at && (const char *)address < memory.items[at - 1].base + memory.items[at - 1].size;
    if (inside) *found = memory.items[at - 1];
    let_go(ALLOCATIONS_LOCK);
    return inside;
}

/* `kinds` are those that may be freed in this way: bit n is kind n. */
static bool forget(void *base, unsigned kinds, struct allocation *forgotten) {
    hold(ALLOCATIONS_LOCK);
    size_t at = above(base);
    bool known = at && memory.items[at - 1].base == base && kinds >> memory.items[at - 1].kind & 1;
    if (known) {
        *forgotten = memory.items[at - 1];
        memory.count--;
        memmove(memory.items + at - 1, memory.items + at, (memory.count - at + 1) * sizeof *memory.items);
        struct pool *pool = forgotten->pool;
        if (pool) pool->used -= forgotten->reserved;
        if (pool && !pool->used) handle_free(DESTROYED_POOL, pool);
    }
    let_go(ALLOCATIONS_LOCK);
    return known;
}

/* Pages come from the kernel untouched: an 80 GiB pool costs nothing until it is used. Where that is allowed they are
   of 2 MiB: to fill 128 MiB takes 32,768 page faults otherwise. */
static CUresult allocate(void **address, size_t size, enum kind kind, CUcontext context, struct pool *pool) {
    if (!size || !address) return CUDA_ERROR_INVALID_VALUE;
    if (size > SIZE_MAX / 2) return CUDA_ERROR_OUT_OF_MEMORY; /* no sum of it may overflow */
    size_t reserved = kind == HOST_MEMORY ? 0 : (size + 511) & ~(size_t)511;
    if (reserved && !unit_reserve(context->device.unit, reserved, kind == DEVICE_MEMORY)) return CUDA_ERROR_OUT_OF_MEMORY;
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED || !remember((struct allocation){base, size, reserved, kind, context, pool})) {
        say("the host refused %zu bytes of address space for device memory: %s", size, strerror(errno));
        if (base != MAP_FAILED) munmap(base, size);
        if (reserved) unit_release(context->device.unit, reserved);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    (void)madvise(base, size, MADV_HUGEPAGE);
    *address = base;
    return CUDA_SUCCESS;
}

enum { ON_DEVICE = 1 << DEVICE_MEMORY | 1 << MANAGED_MEMORY, ON_HOST = 1 << HOST_MEMORY, REGISTERED = 1 << REGISTERED_MEMORY };

static CUresult release(void *address, unsigned kinds) {
    struct allocation allocation;
    if (!address) return CUDA_SUCCESS;
    if (!forget(address, kinds, &allocation)) return CUDA_ERROR_INVALID_VALUE;
    if (allocation.kind != REGISTERED_MEMORY) munmap(allocation.base, allocation.size);
    if (allocation.reserved) unit_release(allocation.context->device.unit, allocation.reserved);
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
    return release(address, ON_DEVICE);
}
API CUresult cuMemFreeHost(void *address) {
    DRIVER_CALL(current_gpu(), 0);
    return release(address, ON_HOST);
}

API CUresult cuMemHostRegister_v2(void *address, size_t size, unsigned flags) {
    CONTEXT_CALL(0);
    (void)flags;
    NEEDED(address && size);
    struct allocation there;
    if (find(address, &there)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    return remember((struct allocation){address, size, 0, REGISTERED_MEMORY, current(), NULL}) ? CUDA_SUCCESS
                                                                                             : CUDA_ERROR_OUT_OF_MEMORY;
}
API CUresult cuMemHostUnregister(void *address) {
    DRIVER_CALL(current_gpu(), 0);
    NEEDED(address);
    return release(address, REGISTERED) ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : CUDA_SUCCESS;
}
API CUresult cuMemHostGetDevicePointer_v2(void **device_pointer, void *address, unsigned flags) {
    CONTEXT_CALL(0);
    NEEDED(device_pointer && address);
    (void)flags;
    *device_pointer = address;
    return CUDA_SUCCESS;
}

API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    CONTEXT_CALL(0);
    NEEDED(free_bytes && total);
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
    NEEDED(data);
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

_Static_assert(sizeof(struct pool) <= HANDLE_ROOM, "a pool does not fit into a handle's slot");

static bool is_default(const struct pool *pool) {
    uintptr_t offset = (uintptr_t)pool - (uintptr_t)pools;
    return offset < sizeof pools && offset % sizeof *pools == 0 && pool->context;
}
#define POOL_NEEDED(pool) REFUSE(!is_default(pool) && !handle_is(POOL, (pool)), CUDA_ERROR_INVALID_VALUE)
#define POOL_CALL(pool)                                          \
    do {                                                         \
        POOL_NEEDED(pool);                                       \
        DRIVER_CALL((pool)->context->device.unit.gpu, 0);        \
    } while (0)

static struct pool *pool_of(CUdevice ordinal) {
    pools[ordinal].context = &contexts[ordinal];
    return &pools[ordinal];
}

API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
    DEVICE_CALL(device);
    NEEDED(pool);
    *pool = pool_of(device);
    return CUDA_SUCCESS;
}
API CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) { return cuDeviceGetDefaultMemPool(pool, device); }

API CUresult cuMemPoolCreate(CUmemoryPool *pool, const struct pool_properties *properties) {
    DRIVER_CALL(-1, 0);
    NEEDED(pool && properties);
    int ordinal = properties->location.id;
    if (ordinal < 0 || ordinal >= device_count) return CUDA_ERROR_INVALID_DEVICE;
    *pool = handle_new(POOL);
    if (!*pool) return CUDA_ERROR_OUT_OF_MEMORY;
    (*pool)->context = &contexts[ordinal];
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    DRIVER_CALL(-1, 0);
    REFUSE(!handle_is(POOL, pool), CUDA_ERROR_INVALID_VALUE); /* nor can a default pool be destroyed */
    hold(ALLOCATIONS_LOCK);
    if (pool->used) handle_becomes(DESTROYED_POOL, pool); /* the last free ends it */
    else handle_free(POOL, pool);
    let_go(ALLOCATIONS_LOCK);
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolSetAccess(CUmemoryPool pool, const void *access, size_t count) {
    POOL_CALL(pool);
    NEEDED(access || !count);
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
    POOL_CALL(pool);
    (void)keep;
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value) {
    POOL_CALL(pool);
    NEEDED(value);
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) pool->release_threshold = *(uint64_t *)value;
    if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) pool->high = pool->used;
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value) {
    POOL_CALL(pool);
    NEEDED(value);
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

API CUresult cuMemAllocFromPoolAsync(void **address, size_t size, CUmemoryPool pool, CUstream stream) {
    CONTEXT_CALL(size);
    STREAM_NEEDED(stream);
    POOL_NEEDED(pool);
    return allocate(address, size, DEVICE_MEMORY, pool->context, pool);
}
API CUresult cuMemAllocAsync(void **address, size_t size, CUstream stream) {
    CONTEXT_CALL(size);
    STREAM_NEEDED(stream);
    return allocate(address, size, DEVICE_MEMORY, current(), pool_of(current()->ordinal));
}
API CUresult cuMemFreeAsync(void *address, CUstream stream) {
    DRIVER_CALL(current_gpu(), 0);
    STREAM_NEEDED(stream);
    return release(address, ON_DEVICE);
}

/* ---- copies and memsets ---- */

enum direction { TO_HOST, TO_GPU, BETWEEN_GPUS, ON_HOST_ALONE };

/* Whether these bytes are memory of no file that may be read and written, such as malloc gives out. A library's, a file's or a
 * guard page's would end the process, or spoil it. */
static bool is_plain_memory(uintptr_t first, uintptr_t end) {
    FILE *maps = fopen("/proc/self/maps", "re");
    if (!maps) return false;
    char line[PATH_MAX + 128], rights[5];
    unsigned long from, to, file;
    while (first < end && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %4s %*s %*s %lu", &from, &to, rights, &file) != 4 || to <= first) continue;
        if (from > first || strncmp(rights, "rw", 2) || file) break;
        first = to;
    }
    fclose(maps);
    return first >= end;
}

/* Whether the driver may touch these bytes: memory that was freed is not mapped any more. What was not allocated here can
 * still stand for device memory: temporary tensors of the CPU kernels that work for the GPU's (GatherNd, ScatterNd, TopK). */
static bool is_usable(const void *address, size_t size) {
    struct allocation allocation;
    if (find(address, &allocation)) return size <= allocation.size - (size_t)((const char *)address - allocation.base);
    uintptr_t first = (uintptr_t)address, end = first + size;
    return end > first && is_plain_memory(first, end);
}

static int gpu_with(const void *address) {
    struct allocation allocation;
    return find(address, &allocation) && allocation.context ? allocation.context->device.unit.gpu : current_gpu();
}

static CUresult copy(void *to, const void *from, size_t size, enum direction direction) {
    if (!size) return CUDA_SUCCESS;
    NEEDED(to && from);
    bool to_gpu = direction == TO_GPU || direction == BETWEEN_GPUS, from_gpu = direction == TO_HOST || direction == BETWEEN_GPUS;
    if ((to_gpu && !is_usable(to, size)) || (from_gpu && !is_usable(from, size))) return CUDA_ERROR_INVALID_VALUE;
    uint64_t start = activity_begins();
    bool is_paced = (to_gpu || from_gpu) && gpu_is_paced(current_gpu());
    double began = is_paced ? copy_begins() : 0;
    memmove(to, from, size);
    if (is_paced) copy_ends(began, from_gpu ? gpu_with(from) : -1, to_gpu ? gpu_with(to) : -1, size);
    if (to_gpu || from_gpu)
        activity_copied(start, direction == TO_GPU ? COPIED_TO_GPU : direction == TO_HOST ? COPIED_TO_HOST : COPIED_BETWEEN_GPUS, size);
    /* Another bit for each direction: a tensor that goes to one GPU and then to another must not come out right again. */
    if (to_gpu) corrupt_copy(direction == BETWEEN_GPUS, current_gpu(), to, size, direction == TO_GPU ? 0x40 : 0x20);
    return CUDA_SUCCESS;
}

/* cuMemcpy infers the direction from the pointers. */
static enum direction direction_of(const void *to, const void *from) {
    struct allocation allocation;
    bool from_gpu = find(from, &allocation);
    if (find(to, &allocation)) return from_gpu ? BETWEEN_GPUS : TO_GPU;
    return from_gpu ? TO_HOST : ON_HOST_ALONE;
}

#define COPY(name, direction)                                     \
    API CUresult name(void *to, const void *from, size_t size) {  \
        CONTEXT_CALL(size);                                       \
        return copy(to, from, size, (direction));                 \
    }
#define COPY_ASYNC(name, direction)                                                \
    API CUresult name(void *to, const void *from, size_t size, CUstream stream) {  \
        CONTEXT_CALL(size);                                                        \
        STREAM_NEEDED(stream);                                                     \
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
    REFUSE(!is_context(to_context) || !is_context(from_context), CUDA_ERROR_INVALID_CONTEXT);
    if (to_context->sticky || from_context->sticky) return CUDA_ERROR_LAUNCH_FAILED;
    return copy(to, from, size, BETWEEN_GPUS);
}
API CUresult cuMemcpyPeerAsync(void *to, CUcontext to_context, const void *from, CUcontext from_context, size_t size,
                               CUstream stream) {
    CONTEXT_CALL(size);
    STREAM_NEEDED(stream);
    REFUSE(!is_context(to_context) || !is_context(from_context), CUDA_ERROR_INVALID_CONTEXT);
    if (to_context->sticky || from_context->sticky) return CUDA_ERROR_LAUNCH_FAILED;
    return copy(to, from, size, BETWEEN_GPUS);
}

#define FILL(to, value, count)                                                                                          \
    do {                                                                                                                \
        if (!(count)) return CUDA_SUCCESS;                                                                              \
        REFUSE((count) > SIZE_MAX / sizeof *(to) || !is_usable((to), (count) * sizeof *(to)), CUDA_ERROR_INVALID_VALUE); \
        for (size_t i = 0; i < (count); i++) (to)[i] = (value);                                                         \
        return CUDA_SUCCESS;                                                                                            \
    } while (0)
#define MEMSET(type, name)                                                             \
    API CUresult name(type *to, type value, size_t count) {                            \
        CONTEXT_CALL(count * sizeof(type));                                            \
        FILL(to, value, count);                                                        \
    }
#define MEMSET_ASYNC(type, name)                                                       \
    API CUresult name(type *to, type value, size_t count, CUstream stream) {           \
        CONTEXT_CALL(count * sizeof(type));                                            \
        STREAM_NEEDED(stream);                                                         \
        FILL(to, value, count);                                                        \
    }
MEMSET(unsigned char, cuMemsetD8_v2)
MEMSET(unsigned short, cuMemsetD16_v2)
MEMSET(unsigned, cuMemsetD32_v2)
MEMSET_ASYNC(unsigned char, cuMemsetD8Async)
MEMSET_ASYNC(unsigned short, cuMemsetD16Async)
MEMSET_ASYNC(unsigned, cuMemsetD32Async)
