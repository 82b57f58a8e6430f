/* The time that a simulated GPU takes, and its heat.
 *
 * Without a pace a simulated GPU is as fast as the host that computes for it. With one (spec.py: `pace`), a product, a
 * convolution or a pattern takes `kernel_us`, and a copy the time of its bytes: what the host was faster, the call waits. So
 * eight GPUs fit on two processors, and one that is slow is slow by a known factor. Each time has an honest noise.
 *
 * Heat is that of one body with a time constant: it approaches `hot` while the GPU computes, and `ambient` while it rests;
 * above `slow_at` the GPU needs twice the time, until it is 5 degrees cooler. All processes of the machine share it.
 */
#define _GNU_SOURCE
#include <math.h>
#include <time.h>

#include "driver.h"

enum { AMBIENT = 35, RISE = 40, RISE_OF_FAULT = 70, SLOW_AT = 85, COOLER = 5 };
static const double HEAT_S = 20, THROTTLED = 2;

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void wait_until(double until) {
    struct timespec time = {(time_t)until, (long)((until - floor(until)) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL)) continue;
}

/* A number of about normal distribution around 0 with deviation 1: the sum of 12 equal ones. */
static double noise(uint64_t *state) {
    double sum = -6;
    for (int i = 0; i < 12; i++) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        sum += (double)(*state >> 11) / (double)(1ull << 53);
    }
    return sum;
}

/* How hot it is, and how busy it has been, after `elapsed` seconds with or without work. */
static void pass(struct pulse *pulse, int gpu, double elapsed, bool busy) {
    double constant = fault_amount("heat", gpu), rise = constant > 0 ? RISE_OF_FAULT : RISE;
    if (constant <= 0) constant = HEAT_S;
    double toward = AMBIENT + (busy ? rise / (pulse->is_hot ? THROTTLED : 1) : 0);
    pulse->temperature = toward + (pulse->temperature - toward) * exp(-elapsed / constant);
    pulse->load = busy + (pulse->load - busy) * exp(-elapsed);
    if (busy) pulse->busy_s += elapsed;
    if (pulse->temperature >= SLOW_AT) pulse->is_hot = true;
    else if (pulse->temperature < SLOW_AT - COOLER) pulse->is_hot = false;
}

static void wake(struct pulse *pulse, double now) {
    if (pulse->at) return;
    pulse->at = pulse->first = now;
    pulse->temperature = AMBIENT;
}

struct pulse pulse_of(int gpu) {
    struct pulse *shared = pulse_take(gpu), found = {.temperature = AMBIENT};
    if (!shared) return found;
    if (shared->at) {
        double now = now_s();
        found = *shared;
        if (now > found.at) pass(&found, gpu, now - found.at, false);
    }
    pulse_give();
    return found;
}

bool gpu_is_paced(int gpu) { return gpu >= 0 && simulated_machine()->gpus[gpu].kernel_us; }

/* Wait until the work that began at `start` has taken `seconds`, more or less; note it in the GPU's pulse. */
static struct pulse take(int gpu, double start, double seconds) {
    static _Thread_local uint64_t state;
    const struct gpu *its = &simulated_machine()->gpus[gpu];
    if (!state) state = 0x9e3779b97f4a7c15ull * (uint64_t)(its->noise_seed * MAX_GPUS + gpu + 1);
    struct pulse before = pulse_of(gpu);
    double factor = 1 + noise(&state) * its->noise / 1000, slow = fault_amount("slow", gpu);
    if (slow > 0) factor *= slow;
    if (before.is_hot) factor *= THROTTLED;
    wait_until(start + seconds * (factor > 0.1 ? factor : 0.1));
    double now = now_s();
    struct pulse *shared = pulse_take(gpu), after = before;
    if (!shared) return after;
    wake(shared, start);
    if (start > shared->at) pass(shared, gpu, start - shared->at, false);
    double from = start > shared->at ? start : shared->at;
    if (now > from) pass(shared, gpu, now - from, true);
    shared->at = now;
    shared->results++;
    after = *shared;
    pulse_give();
    return after;
}

/* For the kernels' library, around what a GPU needs time for. 0: the GPU has no pace. */
API double gpudiag_pace_begins(void) { return gpu_is_paced(current_gpu()) ? now_s() : 0; }

/* Returns whether the result comes out with a wrong bit. */
API bool gpudiag_pace_ends(double start) {
    int gpu = current_gpu();
    if (!gpu_is_paced(gpu)) return false;
    struct pulse after = take(gpu, start, simulated_machine()->gpus[gpu].kernel_us * 1e-6);
    double every = fault_amount("flip", gpu), above = fault_amount("flip_hot", gpu);
    if (every >= 1 && after.results % (uint64_t)every == 0) return true;
    return above > 0 && after.temperature > above && after.results % 10 == 0;
}

void pace_copy(int gpu, double start, uint64_t bytes) {
    double lanes = fault_amount("narrow", gpu), rate = (double)simulated_machine()->gpus[gpu].copy_mb_s * 1e6;
    if (rate > 0) take(gpu, start, (double)bytes / rate * (lanes > 0 ? 16 / lanes : 1));
}
