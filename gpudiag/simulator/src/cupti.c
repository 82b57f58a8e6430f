/* libcupti.so.12: device tracing, as far as TensorFlow's profiler asks for it (XLA: backends/profiler/gpu). Copies are known
 * here, and what kernels.cc's library reports as a kernel: a forwarded operation counts as one kernel of its name.
 *
 * The times are those of the host, and say nothing of a GPU. Of each row of a GPU no two records overlap, as on a real one.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "driver.h"
#include "layouts.h"

typedef int CUptiResult;

enum { CUPTI_SUCCESS = 0, CUPTI_ERROR_INVALID_PARAMETER = 1, CUPTI_ERROR_INVALID_KIND = 21, CUPTI_ERROR_MAX_LIMIT_REACHED = 12 };
/* As in the header of CUDA 12.5, which no wheel that the tests have brings along. */
_Static_assert(sizeof(struct copy_record) == 88 && offsetof(struct copy_record, graph) == 72, "CUpti_ActivityMemcpy5");
_Static_assert(sizeof(struct kernel_record) == 208 && offsetof(struct kernel_record, name) == 104, "CUpti_ActivityKernel9");

enum { KIND_MEMCPY = 1, KIND_CONCURRENT_KERNEL = 10, KINDS = 64 };
enum row { KERNELS = 7, COPIES = 8, ROWS = 16 }; /* streams; CUPTI calls the default stream 7 */

typedef void request_buffer(uint8_t **buffer, size_t *size, size_t *most_records);
typedef void complete_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t used);

static request_buffer *request;
static complete_buffer *complete;
static bool enabled[KINDS];
static bool ended;   /* TensorFlow leaves kernels enabled when it stops, and gives no more buffers */
static bool tracing; /* looked at before each operation */
static uint8_t *buffer;
static size_t room, used;
static uint64_t row_ends[MAX_GPUS][ROWS];
static uint32_t correlation;

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Takes the filled buffer from the trace; whoever gets it hands it over without the lock, because it asks again. */
struct filled {
    uint8_t *buffer;
    size_t room, used;
};
static struct filled take_buffer(void) {
    struct filled filled = {buffer, room, used};
    buffer = NULL;
    room = used = 0;
    return filled;
}
static void hand_over(struct filled filled) {
    if (filled.buffer && complete) complete(NULL, 0, filled.buffer, filled.room, filled.used);
}

static size_t size_of(uint32_t kind) { return kind == KIND_MEMCPY ? sizeof(struct copy_record) : sizeof(struct kernel_record); }

/* The record gets its place in the row, and then in a buffer; dropped if TensorFlow gives none. */
static void add(int gpu, enum row row, uint32_t kind, void *record, uint64_t *start, uint64_t *end) {
    size_t size = size_of(kind);
    struct filled filled = {0};
    hold(ACTIVITY_LOCK);
    if (!tracing) { /* it has just ended */
        let_go(ACTIVITY_LOCK);
        return;
    }
    uint64_t *last = &row_ends[gpu][row];
    if (*start < *last) *start = *last;
    if (*end <= *start) *end = *start + 1;
    *last = *end;
    if (room - used < size) filled = take_buffer();
    size_t most_records = 0;
    if (!buffer && request) request(&buffer, &room, &most_records);
    if (buffer && room >= size) {
        memcpy(buffer + used, record, size);
        used += size;
    }
    let_go(ACTIVITY_LOCK);
    hand_over(filled);
}

static bool hears_of(unsigned kind) { return __atomic_load_n(&enabled[kind], __ATOMIC_RELAXED); }

uint64_t activity_begins(void) { return __atomic_load_n(&tracing, __ATOMIC_RELAXED) ? now() : 0; }

void activity_copied(uint64_t start, enum activity_copy kind, uint64_t bytes) {
    if (!start || !hears_of(KIND_MEMCPY) || !current()) return;
    struct copy_record record = {
        .kind = KIND_MEMCPY,
        .copy_kind = (uint8_t)kind,
        .source_kind = kind == COPIED_TO_GPU ? 1 : 3, /* CUpti_ActivityMemoryKind: 1 pageable, 3 device */
        .destination_kind = kind == COPIED_TO_HOST ? 1 : 3,
        .bytes = bytes,
        .start = start,
        .end = now(),
        .device = (uint32_t)current()->ordinal,
        .context = (uint32_t)current()->ordinal + 1,
        .stream = COPIES + (kind == COPIED_TO_HOST) + 2 * (kind == COPIED_BETWEEN_GPUS),
        .correlation = __atomic_add_fetch(&correlation, 1, __ATOMIC_RELAXED),
    };
    add(current_gpu(), (enum row)record.stream, KIND_MEMCPY, &record, &record.start, &record.end);
}

/* For kernels.cc's library. `name` is never freed. 0 from the first: nobody listens. */
API uint64_t gpudiag_kernel_begins(void) { return hears_of(KIND_CONCURRENT_KERNEL) ? activity_begins() : 0; }
API void gpudiag_kernel_ended(const char *name, uint64_t start) {
    if (!start || !current()) return;
    struct kernel_record record = {
        .kind = KIND_CONCURRENT_KERNEL,
        .start = start,
        .end = now(),
        .device = (uint32_t)current()->ordinal,
        .context = (uint32_t)current()->ordinal + 1,
        .stream = KERNELS,
        .grid = {1, 1, 1},
        .block = {1, 1, 1},
        .correlation = __atomic_add_fetch(&correlation, 1, __ATOMIC_RELAXED),
        .name = name,
    };
    add(current_gpu(), KERNELS, KIND_CONCURRENT_KERNEL, &record, &record.start, &record.end);
}

/* ---- what TensorFlow calls ---- */

#define CUPTI_CALL() ENTER(-1, 0)
#define GIVEN(pointer) REFUSE(!(pointer), CUPTI_ERROR_INVALID_PARAMETER)

API CUptiResult cuptiGetTimestamp(uint64_t *time) {
    CUPTI_CALL();
    GIVEN(time);
    *time = now();
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiGetResultString(CUptiResult result, const char **text) {
    static _Thread_local char said[64];
    GIVEN(text);
    snprintf(said, sizeof said, "CUPTI error %d (simulated GPU)", result);
    *text = said;
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiGetDeviceId(CUcontext context, uint32_t *device) {
    CUPTI_CALL();
    REFUSE(!device || !is_context(context), CUPTI_ERROR_INVALID_PARAMETER);
    *device = (uint32_t)context->ordinal;
    return CUPTI_SUCCESS;
}
static void listen(bool no_more) {
    hold(ACTIVITY_LOCK);
    ended = no_more;
    __atomic_store_n(&tracing, !ended && (enabled[KIND_MEMCPY] || enabled[KIND_CONCURRENT_KERNEL]), __ATOMIC_RELAXED);
    let_go(ACTIVITY_LOCK);
}
/* Calls of the driver are not reported to the subscriber: what the host does is in TensorFlow's own rows. */
API CUptiResult cuptiSubscribe(void **subscriber) {
    CUPTI_CALL();
    GIVEN(subscriber);
    *subscriber = &tracing;
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiUnsubscribe(void *subscriber) {
    CUPTI_CALL();
    REFUSE(subscriber != &tracing, CUPTI_ERROR_INVALID_PARAMETER);
    listen(true);
    return CUPTI_SUCCESS;
}
#define ACCEPTED(name)           \
    API CUptiResult name(void) { \
        CUPTI_CALL();            \
        return CUPTI_SUCCESS;    \
    }
ACCEPTED(cuptiEnableCallback)
ACCEPTED(cuptiEnableDomain)
ACCEPTED(cuptiFinalize)
ACCEPTED(cuptiSetThreadIdType)
ACCEPTED(cuptiActivitySetAttribute)
ACCEPTED(cuptiActivityFlushPeriod)

API CUptiResult cuptiActivityRegisterCallbacks(request_buffer *requested, complete_buffer *completed) {
    CUPTI_CALL();
    GIVEN(requested && completed);
    hold(ACTIVITY_LOCK);
    request = requested;
    complete = completed;
    let_go(ACTIVITY_LOCK);
    return CUPTI_SUCCESS;
}
static CUptiResult enable(unsigned kind, bool on) {
    REFUSE(kind >= KINDS, CUPTI_ERROR_INVALID_KIND);
    __atomic_store_n(&enabled[kind], on, __ATOMIC_RELAXED);
    listen(!on && ended);
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiActivityEnable(unsigned kind) {
    CUPTI_CALL();
    return enable(kind, true);
}
API CUptiResult cuptiActivityDisable(unsigned kind) {
    CUPTI_CALL();
    return enable(kind, false);
}
API CUptiResult cuptiActivityFlushAll(uint32_t flags) {
    CUPTI_CALL();
    (void)flags;
    hold(ACTIVITY_LOCK);
    struct filled filled = take_buffer();
    let_go(ACTIVITY_LOCK);
    hand_over(filled);
    return CUPTI_SUCCESS;
}
/* `*record`: NULL before the first */
API CUptiResult cuptiActivityGetNextRecord(uint8_t *records, size_t size, uint8_t **record) {
    GIVEN(records && record);
    uint8_t *next = *record ? *record + size_of(*(uint32_t *)*record) : records;
    if (next >= records + size) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = next;
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *dropped) {
    (void)context, (void)stream;
    GIVEN(dropped);
    *dropped = 0;
    return CUPTI_SUCCESS;
}
