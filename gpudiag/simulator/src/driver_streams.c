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

/* ---- host callbacks: one thread, in order; streams and events count them ---- */

struct callback {
    struct callback *next;
    host_function function;
    void *data;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t queued_more, ran_one;
    struct callback *first, **last;
    uint64_t queued, ran;
    pthread_t thread;
    bool running;
} callbacks = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, NULL, 0, 0, 0, false};

static void *run_callbacks(void *unused) {
    (void)unused;
    pthread_mutex_lock(&callbacks.lock);
    for (;;) {
        while (!callbacks.first) pthread_cond_wait(&callbacks.queued_more, &callbacks.lock);
        struct callback *callback = callbacks.first;
        callbacks.first = callback->next;
        pthread_mutex_unlock(&callbacks.lock);
        callback->function(callback->data);
        free(callback);
        pthread_mutex_lock(&callbacks.lock);
        callbacks.ran++;
        pthread_cond_broadcast(&callbacks.ran_one);
    }
    return NULL;
}

static CUresult queue_callback(CUstream stream, host_function function, void *data) {
    struct callback *callback = malloc(sizeof *callback);
    if (!callback) return CUDA_ERROR_OUT_OF_MEMORY;
    *callback = (struct callback){NULL, function, data};
    pthread_mutex_lock(&callbacks.lock);
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
    pthread_mutex_unlock(&callbacks.lock);
    return CUDA_SUCCESS;
}

static bool callback_ran(uint64_t number) {
    pthread_mutex_lock(&callbacks.lock);
    bool ran = callbacks.ran >= number;
    pthread_mutex_unlock(&callbacks.lock);
    return ran;
}

/* A callback that waits for its own stream would wait for itself: it returns at once. */
static void wait_for_callback(uint64_t number) {
    pthread_mutex_lock(&callbacks.lock);
    bool inside = callbacks.running && pthread_equal(callbacks.thread, pthread_self());
    while (!inside && callbacks.ran < number) pthread_cond_wait(&callbacks.ran_one, &callbacks.lock);
    pthread_mutex_unlock(&callbacks.lock);
}

static uint64_t last_callback(CUstream stream) {
    pthread_mutex_lock(&callbacks.lock);
    uint64_t number = stream ? stream->last_callback : callbacks.queued; /* the default stream waits for all */
    pthread_mutex_unlock(&callbacks.lock);
    return number;
}

API CUresult cuLaunchHostFunc(CUstream stream, host_function function, void *data) {
    CONTEXT_CALL(0);
    return queue_callback(stream, function, data);
}

struct stream_callback {
    void (*function)(CUstream, CUresult, void *);
    CUstream stream;
    void *data;
};
static void call_stream_callback(void *data) {
    struct stream_callback *it = data;
    it->function(it->stream, it->stream ? it->stream->context->sticky : CUDA_SUCCESS, it->data);
    free(it);
}
API CUresult cuStreamAddCallback(CUstream stream, void (*function)(CUstream, CUresult, void *), void *data, unsigned flags) {
    CONTEXT_CALL(0);
    (void)flags;
    struct stream_callback *it = malloc(sizeof *it);
    if (!it) return CUDA_ERROR_OUT_OF_MEMORY;
    *it = (struct stream_callback){function, stream, data};
    return queue_callback(stream, call_stream_callback, it);
}

/* ---- streams and events ---- */

API CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    CONTEXT_CALL(0);
    *stream = calloc(1, sizeof **stream);
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
    wait_for_callback(last_callback(stream)); /* its callbacks hold its address */
    free(stream);
    return CUDA_SUCCESS;
}
API CUresult cuStreamGetPriority(CUstream stream, int *priority) {
    DRIVER_CALL(current_gpu(), 0);
    *priority = stream ? stream->priority : 0;
    return CUDA_SUCCESS;
}
API CUresult cuStreamGetFlags(CUstream stream, unsigned *flags) {
    DRIVER_CALL(current_gpu(), 0);
    *flags = stream ? stream->flags : 0;
    return CUDA_SUCCESS;
}
API CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
    DRIVER_CALL(current_gpu(), 0);
    *context = stream ? stream->context : current();
    return CUDA_SUCCESS;
}
API CUresult cuStreamQuery(CUstream stream) {
    CONTEXT_CALL(0);
    if (stream && stream->context->sticky) return stream->context->sticky;
    return callback_ran(last_callback(stream)) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
API CUresult cuStreamSynchronize(CUstream stream) {
    CONTEXT_CALL(0);
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
    (void)stream;
    *status = 0; /* CU_STREAM_CAPTURE_STATUS_NONE: graphs are not simulated */
    return CUDA_SUCCESS;
}

API CUresult cuEventCreate(CUevent *event, unsigned flags) {
    CONTEXT_CALL(0);
    (void)flags;
    *event = calloc(1, sizeof **event);
    return *event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
API CUresult cuEventDestroy_v2(CUevent event) {
    DRIVER_CALL(current_gpu(), 0);
    free(event);
    return CUDA_SUCCESS;
}
API CUresult cuEventRecord(CUevent event, CUstream stream) {
    CONTEXT_CALL(0);
    event->after_callback = last_callback(stream);
    clock_gettime(CLOCK_MONOTONIC, &event->recorded);
    return CUDA_SUCCESS;
}
API CUresult cuEventQuery(CUevent event) {
    CONTEXT_CALL(0);
    return callback_ran(event->after_callback) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
API CUresult cuEventSynchronize(CUevent event) {
    CONTEXT_CALL(0);
    wait_for_callback(event->after_callback);
    return current()->sticky;
}
API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    CONTEXT_CALL(0);
    (void)stream, (void)flags;
    /* Work is done in the caller's thread, so "the stream waits" means that the caller does. */
    wait_for_callback(event->after_callback);
    return CUDA_SUCCESS;
}
API CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    DRIVER_CALL(current_gpu(), 0);
    *milliseconds = (float)(end->recorded.tv_sec - start->recorded.tv_sec) * 1e3f +
                    (float)(end->recorded.tv_nsec - start->recorded.tv_nsec) / 1e6f;
    return CUDA_SUCCESS;
}
