/* Every mutex of this process (the table of memory.c has one more, which processes share).
 *
 * A child has only the thread that forked: a mutex that another thread held is locked for ever in it, and what the mutex
 * protects may be half written. So a fork waits for all of them, in the order in which one thread may take several, and
 * parent and child let them go. */
#include <assert.h>
#include <pthread.h>

#include "simulator.h"

static pthread_mutex_t mutexes[LOCKS] = {[0 ... LOCKS - 1] = PTHREAD_MUTEX_INITIALIZER};
static _Thread_local unsigned held; /* bit n: lock n is this thread's */

void hold(enum lock lock) {
    assert(!(held >> lock)); /* out of order: a deadlock, some day */
    pthread_mutex_lock(&mutexes[lock]);
    held |= 1u << lock;
}

void let_go(enum lock lock) {
    held &= ~(1u << lock);
    pthread_mutex_unlock(&mutexes[lock]);
}

void wait_for(pthread_cond_t *condition, enum lock lock) { pthread_cond_wait(condition, &mutexes[lock]); }

static void hold_all(void) {
    for (int lock = 0; lock < LOCKS; lock++) hold((enum lock)lock);
}
static void let_all_go(void) {
    for (int lock = LOCKS; lock--;) let_go((enum lock)lock);
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(hold_all, let_all_go, let_all_go); }
