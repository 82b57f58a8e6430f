/* libcuda.so.1: streams, events and host callbacks.
 *
 * Real work is queued on a stream and done later. Here every copy and kernel is done when the call that queues it
 * returns: nothing but host callbacks is ever pending on a stream, and the time between two events is that of the host's
 * clock.
 *
 * Only host callbacks are asynchronous: TensorFlow deadlocks when they run inside the call that queues them.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "driver.h"

typedef struct event *CUevent;
typedef void (*host_function)(void *);

struct stream {
    CUcontext context;
    unsigned flags;
    int priority;
    uint64_t last_callback; /* its number in the process-wide queue, 0: none */
};

struct event {
    uint64_t after_callback;
    struct timespec recorded;
};

_Static_assert(sizeof(struct stream) <= HANDLE_ROOM && sizeof(struct event) <= HANDLE_ROOM, "a slot of a handle is too small");

#define EVENT_NEEDED(event) REFUSE(!handle_is(EVENT, (event)), CUDA_ERROR_INVALID_HANDLE)

/* ---- host callbacks: one thread, in order; streams and events count them ---- */

struct callback {
    struct callback *next;
    host_function function;
    void *data;
};

static struct {
    pthread_cond_t queued_more, ran_one;
    struct callback *first, **last;
    uint64_t queued, ran;
    pthread_t thread;
    bool running;
} callbacks = {PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, NULL, 0, 0, 0, false};

static void *run_callbacks(void *unused) {
    (void)unused;
    hold(CALLBACKS_LOCK);
    for (;;) {
        while (!callbacks.first) wait_for(&callbacks.queued_more, CALLBACKS_LOCK);
        struct callback *callback = callbacks.first;
        callbacks.first = callback->next;
        let_go(CALLBACKS_LOCK);
        callback->function(callback->data);
        free(callback);
        hold(CALLBACKS_LOCK);
        callbacks.ran++;
        pthread_cond_broadcast(&callbacks.ran_one);
    }
    return NULL;
}

static CUresult queue_callback(CUstream stream, host_function function, void *data) {
    struct callback *callback = malloc(sizeof *callback);
    if (!callback) return CUDA_ERROR_OUT_OF_MEMORY;
    *callback = (struct callback){NULL, function, data};
    hold(CALLBACKS_LOCK);
    if (!callbacks.running) {
        callbacks.running = !pthread_create(&callbacks.thread, NULL, run_callbacks, NULL);
        if (callbacks.running) pthread_detach(callbacks.thread);
    }
    if (callbacks.first) *callbacks.last = callback;
    else callbacks.first = callback;
    callbacks.last = &callback->next;
    callbacks.queued++;
    if (stream) stream->last_callback = callbacks.queued;
    pthread_cond_signal(&callbacks.queued_more);
    let_go(CALLBACKS_LOCK);
    return CUDA_SUCCESS;
}

static bool callback_ran(uint64_t number) {
    hold(CALLBACKS_LOCK);
    bool ran = callbacks.ran >= number;
    let_go(CALLBACKS_LOCK);
    return ran;
}

/* A callback that waits for its own stream would wait for itself: it returns at once. */
static void wait_for_callback(uint64_t number) {
    hold(CALLBACKS_LOCK);
    bool inside = callbacks.running && pthread_equal(callbacks.thread, pthread_self());
    while (!inside && callbacks.ran < number) wait_for(&callbacks.ran_one, CALLBACKS_LOCK);
    let_go(CALLBACKS_LOCK);
}

static uint64_t last_callback(CUstream stream) {
    hold(CALLBACKS_LOCK);
    uint64_t number = stream ? stream->last_callback : callbacks.queued; /* the default stream waits for all */
    let_go(CALLBACKS_LOCK);
    return number;
}

API CUresult cuLaunchHostFunc(CUstream stream, host_function function, void *data) {
    CONTEXT_CALL(0);
    STREAM_NEEDED(stream);
    NEEDED(function);
    return queue_callback(stream, function, data);
}

struct stream_callback {
    void (*function)(CUstream, CUresult, void *);
    CUstream stream;
    void *data;
};
static void call_stream_callback(void *data) {
    struct stream_callback *it = data;
    it->function(it->stream, handle_is(STREAM, it->stream) ? it->stream->context->sticky : CUDA_SUCCESS, it->data);
    free(it);
}
API CUresult cuStreamAddCallback(CUstream stream, void (*function)(CUstream, CUresult, void *), void *data, unsigned flags) {
    CONTEXT_CALL(0);
    STREAM_NEEDED(stream);
    NEEDED(function);
    (void)flags;
    struct stream_callback *it = malloc(sizeof *it);
    if (!it) return CUDA_ERROR_OUT_OF_MEMORY;
    *it = (struct stream_callback){function, stream, data};
    return queue_callback(stream, call_stream_callback, it);
}

/* ---- streams and events ---- */

API CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    CONTEXT_CALL(0);
    NEEDED(stream);
    *stream = handle_new(STREAM);
    if (!*stream) return CUDA_ERROR_OUT_OF_MEMORY;
    **stream = (struct stream){current(), flags, priority, 0};
    return CUDA_SUCCESS;
}
API CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    ENTER(current_gpu(), 0);
    return cuStreamCreateWithPriority(stream, flags, 0);
}
API CUresult cuStreamDestroy_v2(CUstream stream) {
    DRIVER_CALL(current_gpu(), 0);
    REFUSE(!handle_is(STREAM, stream), CUDA_ERROR_INVALID_HANDLE);
    wait_for_callback(last_callback(stream)); /* its callbacks hold its address */
    return handle_free(STREAM, stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
API CUresult cuStreamGetPriority(CUstream stream, int *priority) {
    DRIVER_CALL(current_gpu(), 0);
    STREAM_NEEDED(stream);
    NEEDED(priority);
    *priority = stream ? stream->priority : 0;
    return CUDA_SUCCESS;
}
API CUresult cuStreamGetFlags(CUstream stream, unsigned *flags) {
    DRIVER_CALL(current_gpu(), 0);
    STREAM_NEEDED(stream);
    NEEDED(flags);
    *flags = stream ? stream->flags : 0;
    return CUDA_SUCCESS;
}
API CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
    DRIVER_CALL(current_gpu(), 0);
    STREAM_NEEDED(stream);
    NEEDED(context);
    *context = stream ? stream->context : current();
    return CUDA_SUCCESS;
}
API CUresult cuStreamQuery(CUstream stream) {
    CONTEXT_CALL(0);
    STREAM_NEEDED(stream);
    if (stream && stream->context->sticky) return stream->context->sticky;
    return callback_ran(last_callback(stream)) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
API CUresult cuStreamSynchronize(CUstream stream) {
    CONTEXT_CALL(0);
    STREAM_NEEDED(stream);
    wait_for_callback(last_callback(stream));
    return stream ? stream->context->sticky : current()->sticky;
}
API CUresult cuCtxSynchronize(void) {
    CONTEXT_CALL(0);
    wait_for_callback(last_callback(NULL));
    return current()->sticky;
}
API CUresult cuStreamIsCapturing(CUstream stream, int *status) {
    DRIVER_CALL(current_gpu(), 0);
    STREAM_NEEDED(stream);
    NEEDED(status);
    *status = 0; /* CU_STREAM_CAPTURE_STATUS_NONE: graphs are not simulated */
    return CUDA_SUCCESS;
}

API CUresult cuEventCreate(CUevent *event, unsigned flags) {
    CONTEXT_CALL(0);
    NEEDED(event);
    (void)flags;
    *event = handle_new(EVENT);
    return *event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
API CUresult cuEventDestroy_v2(CUevent event) {
    DRIVER_CALL(current_gpu(), 0);
    return handle_free(EVENT, event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
API CUresult cuEventRecord(CUevent event, CUstream stream) {
    CONTEXT_CALL(0);
    EVENT_NEEDED(event);
    STREAM_NEEDED(stream);
    event->after_callback = last_callback(stream);
    clock_gettime(CLOCK_MONOTONIC, &event->recorded);
    return CUDA_SUCCESS;
}
API CUresult cuEventQuery(CUevent event) {
    CONTEXT_CALL(0);
    EVENT_NEEDED(event);
    return callback_ran(event->after_callback) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
API CUresult cuEventSynchronize(CUevent event) {
    CONTEXT_CALL(0);
    EVENT_NEEDED(event);
    wait_for_callback(event->after_callback);
    return current()->sticky;
}
API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    CONTEXT_CALL(0);
    STREAM_NEEDED(stream);
    EVENT_NEEDED(event);
    (void)flags;
    /* Work is done in the caller's thread, so "the stream waits" means that the caller does. */
    wait_for_callback(event->after_callback);
    return CUDA_SUCCESS;
}
API CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    DRIVER_CALL(current_gpu(), 0);
    NEEDED(milliseconds);
    EVENT_NEEDED(start);
    EVENT_NEEDED(end);
    *milliseconds = (float)(end->recorded.tv_sec - start->recorded.tv_sec) * 1e3f +
                    (float)(end->recorded.tv_nsec - start->recorded.tv_nsec) / 1e6f;
    return CUDA_SUCCESS;
}
