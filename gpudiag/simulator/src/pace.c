/* The time that a simulated GPU takes, and its heat.
 *
 * Without a pace a simulated GPU is as fast as the host that computes for it. With one (spec.py: `kernel_us`, `copy_mb_s`), a
 * product, a convolution or a pattern takes a time that is known, and a copy the time of its bytes: what the host was faster,
 * the call waits. So eight GPUs fit on two processors, and one that is slow is slow by a known factor. What all threads and
 * processes ask of one GPU waits in one queue for each of its engines: it computes, copies in and copies out at one time.
 *
 * Noise has three parts, as on real cards: no two chips are alike, each wanders for seconds, and each call differs.
 *
 * Heat is that of one body with a time constant: it approaches `hot` while the GPU computes, `ambient` while it rests, and
 * what lies in the middle while it copies. At SLOW_AT the GPU needs THROTTLED times the time, until it is COOLER degrees
 * cooler.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <time.h>

#include "driver.h"

enum { AMBIENT = 35, RISE = 40, RISE_OF_FAULT = 100, SLOW_AT = 85, COOLER = 5 };
static const double HEAT_S = 20, LOAD_S = 1, THROTTLED = 2, COPYING = 0.5;
static const double OF_CHIP = 0.4, WANDERS = 0.4, OF_CALL = 0.82, WANDER_S = 5; /* the squares of the parts sum to 1 */

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void wait_until(double until) {
    struct timespec time = {(time_t)until, (long)((until - floor(until)) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR) continue;
}

/* A number of about normal distribution with deviation 1: the sum of 12 equal ones, of the generator splitmix64. */
static double normal(uint64_t *state) {
    double sum = -6;
    for (int i = 0; i < 12; i++) {
        uint64_t mixed = *state += 0x9e3779b97f4a7c15ull;
        mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9ull;
        mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebull;
        sum += (double)((mixed ^ mixed >> 31) >> 11) / (double)(1ull << 53);
    }
    return sum;
}

/* How hot it is, and how busy it has been, after `elapsed` seconds of work: 1 all the time, 0 none. */
static void pass(struct pulse *pulse, int gpu, double elapsed, double work) {
    double constant = fault_amount("heat", gpu), rise = constant > 0 ? RISE_OF_FAULT : RISE;
    if (constant <= 0) constant = HEAT_S;
    double toward = AMBIENT + work * rise / (pulse->is_hot ? THROTTLED : 1);
    pulse->temperature = toward + (pulse->temperature - toward) * exp(-elapsed / constant);
    pulse->load = work + (pulse->load - work) * exp(-elapsed / LOAD_S);
    if (work > 0) pulse->busy_s += elapsed;
    if (pulse->temperature >= SLOW_AT) pulse->is_hot = true;
    else if (pulse->temperature < SLOW_AT - COOLER) pulse->is_hot = false;
}

static void wake(struct pulse *pulse, int gpu, double now) {
    if (pulse->at > 0) return;
    pulse->at = pulse->first = now;
    pulse->temperature = AMBIENT;
    pulse->random = (uint64_t)simulated_machine()->gpus[gpu].noise_seed * MAX_GPUS + (uint64_t)gpu;
    pulse->chip = normal(&pulse->random);
    pulse->wander = normal(&pulse->random);
}

struct pulse pulse_of(int gpu) {
    struct pulse *shared = pulse_take(gpu), found = {.temperature = AMBIENT};
    if (!shared) return found;
    if (shared->at > 0) found = *shared;
    pulse_give(gpu);
    double now = now_s();
    if (found.at > 0 && now > found.at) pass(&found, gpu, now - found.at, 0);
    return found;
}

bool gpu_is_paced(int gpu) { return gpu >= 0 && simulated_machine()->gpus[gpu].kernel_us; }

bool has_worked_for(int gpu, double seconds) {
    struct pulse pulse = gpu_is_paced(gpu) ? pulse_of(gpu) : (struct pulse){0};
    return pulse.first > 0 && now_s() - pulse.first >= seconds;
}

/* What a call takes, in proportion to what it should. */
static double noisy(struct pulse *pulse, int gpu, double elapsed) {
    double kept = exp(-elapsed / WANDER_S);
    pulse->wander = kept * pulse->wander + sqrt(1 - kept * kept) * normal(&pulse->random);
    double noise = OF_CHIP * pulse->chip + WANDERS * pulse->wander + OF_CALL * normal(&pulse->random);
    return fmax(0.1, 1 + noise * simulated_machine()->gpus[gpu].noise / 1000);
}

/* Queue `seconds` of work that the host began at `start`, and note it in the GPU's pulse. Returns when it is done. */
static double queue(int gpu, enum engine engine, double start, double seconds, struct pulse *after) {
    struct pulse *pulse = pulse_take(gpu);
    if (!pulse) return 0;
    double now = now_s();
    wake(pulse, gpu, start);
    seconds *= noisy(pulse, gpu, fmax(0, now - pulse->at));
    double slow = engine == COMPUTES ? fault_amount("slow", gpu) : 0;
    if (slow > 0) {
        seconds *= slow;
        fault_acts("slow", gpu);
    }
    if (engine == COMPUTES && pulse->is_hot) seconds *= THROTTLED;
    double begins = fmax(start, pulse->free_at[engine]), ends = begins + seconds;
    pulse->free_at[engine] = ends;
    /* A host that was slower than that computed for the GPU all the time. */
    double until = fmax(ends, now), work = engine == COMPUTES ? 1 : COPYING;
    if (begins > pulse->at) pass(pulse, gpu, begins - pulse->at, 0);
    double from = fmax(begins, pulse->at);
    if (until > from) pass(pulse, gpu, until - from, work);
    pulse->at = fmax(pulse->at, until);
    pulse->results += engine == COMPUTES;
    if (pulse->is_hot) fault_acts("heat", gpu);
    if (after) *after = *pulse;
    pulse_give(gpu);
    return ends;
}

/* For the kernels' library, around what a GPU needs time for. 0: the GPU has no pace. */
API double gpudiag_pace_begins(void) { return gpu_is_paced(current_gpu()) ? now_s() : 0; }

static bool comes(const char *fault, int gpu, bool now) {
    if (now) fault_acts(fault, gpu);
    return now;
}

/* Returns whether the result comes out with a wrong bit. */
API bool gpudiag_pace_ends(double start) {
    int gpu = current_gpu();
    if (!gpu_is_paced(gpu)) return false;
    struct pulse after = {0};
    wait_until(queue(gpu, COMPUTES, start, simulated_machine()->gpus[gpu].kernel_us * 1e-6, &after));
    double every = fault_amount("flip", gpu), above = fault_amount("flip_hot", gpu);
    if (every >= 1 && comes("flip", gpu, after.results % (uint64_t)every == 0)) return true;
    return above > 0 && comes("flip_hot", gpu, after.temperature > above && after.results % 10 == 0);
}

double copy_begins(void) { return now_s(); }

static double lanes_of(int gpu) {
    double lanes = gpu < 0 ? 0 : fault_amount("narrow", gpu);
    if (lanes > 0) fault_acts("narrow", gpu);
    return lanes > 0 ? lanes : LANES;
}

void copy_ends(double start, int from, int to, uint64_t bytes) {
    if (from == to) return; /* within one GPU */
    double until = 0, lanes = fmin(lanes_of(from), lanes_of(to));
    for (int end = 0; end < 2; end++) {
        int gpu = end ? to : from;
        double rate = gpu < 0 ? 0 : (double)simulated_machine()->gpus[gpu].copy_mb_s * 1e6;
        if (rate > 0) until = fmax(until, queue(gpu, end ? COPIES_IN : COPIES_OUT, start, (double)bytes / rate * LANES / lanes, NULL));
    }
    wait_until(until);
}
