/* Injected faults, and the trace of calls.
 *
 * A rule is "FUNCTION[,key=value...]": FUNCTION is the name of any CUDA, NVML or library function, or one of
 * "copy" (a copy that succeeds with a flipped bit), "peer_copy" (one between GPUs) and "lost" (every call on the GPU, driver and NVML),
 * or of what pace.c and nvml.c ask for by fault_amount: "slow", "narrow", "heat", "flip", "flip_hot", "ecc".
 * Keys: code (what to return), gpu (index in PCI order; without it: every GPU), from (count of the first call that is
 * concerned, 1 is the first), above (bytes: only larger allocations or copies), seconds (sleep first), after (seconds since the
 * first work of a GPU with a pace: only then), amount.
 * faults.py writes the rules; people use its names.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "simulator.h"

struct rule {
    char function[64];
    int code;
    int gpu;
    long from;
    uint64_t above;
    double seconds, after, amount;
    long calls; /* so far, in this process */
    bool met;
};

static struct rule rules[MAX_FAULTS];
static int rule_count;

void faults_clear(void) { rule_count = 0; }

void faults_add(const char *text) {
    char copy[256];
    snprintf(copy, sizeof copy, "%s", text);
    char *rest = NULL, *word = strtok_r(copy, ",", &rest);
    if (!word || rule_count == MAX_FAULTS) {
        say("fault rule refused: \"%s\" (at most %d rules)", text, MAX_FAULTS);
        _exit(2);
    }
    struct rule rule = {.gpu = -1, .from = 1};
    snprintf(rule.function, sizeof rule.function, "%s", word);
    while ((word = strtok_r(NULL, ",", &rest))) {
        if (sscanf(word, "code=%d", &rule.code) == 1) continue;
        if (sscanf(word, "gpu=%d", &rule.gpu) == 1) continue;
        if (sscanf(word, "from=%ld", &rule.from) == 1) continue;
        if (sscanf(word, "above=%lu", &rule.above) == 1) continue;
        if (sscanf(word, "seconds=%lf", &rule.seconds) == 1) continue;
        if (sscanf(word, "after=%lf", &rule.after) == 1) continue;
        if (sscanf(word, "amount=%lf", &rule.amount) == 1) continue;
        say("fault rule refused: \"%s\" in \"%s\"; keys are code, gpu, from, above, seconds, after, amount", word, text);
        _exit(2);
    }
    rules[rule_count++] = rule;
}

/* GPUDIAG_SIM_TRACE=FILE appends every call with its pid and time, for those who extend the simulation. */
static void trace(const char *function) {
    static FILE *file;
    static bool opened;
    hold(TRACE_LOCK);
    if (!opened) {
        const char *path = getenv("GPUDIAG_SIM_TRACE");
        if (path && *path) file = fopen(path, "ae");
        opened = true;
    }
    if (file) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        fprintf(file, "%d %ld.%06ld %s\n", (int)getpid(), (long)now.tv_sec, now.tv_nsec / 1000, function);
        fflush(file);
    }
    let_go(TRACE_LOCK);
}

/* An empty file for each rule that a call has met, in any process: machine.py says which fault had no effect. The
 * rules of the machine come first, and those of a process alone after them; a guest of a machine may not write there. */
static void note_met(int rule) {
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/met-%d", simulated_machine()->directory, rule);
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (file >= 0) close(file);
}

static void meet(struct rule *rule) {
    if (!__atomic_exchange_n(&rule->met, true, __ATOMIC_RELAXED)) note_met((int)(rule - rules));
}

static bool counts(struct rule *rule, int gpu, uint64_t bytes) {
    if (rule->gpu >= 0 && rule->gpu != gpu) return false;
    if (rule->above && bytes <= rule->above) return false;
    if (__atomic_add_fetch(&rule->calls, 1, __ATOMIC_RELAXED) < rule->from) return false;
    meet(rule);
    return true;
}

static struct rule *rule_of(const char *name, int gpu) {
    simulated_machine();
    for (int i = 0; i < rule_count; i++)
        if (!strcmp(rules[i].function, name) && (rules[i].gpu < 0 || rules[i].gpu == gpu)) return &rules[i];
    return NULL;
}
double fault_amount(const char *name, int gpu) {
    const struct rule *rule = rule_of(name, gpu);
    return rule ? rule->amount : 0;
}
void fault_acts(const char *name, int gpu) {
    struct rule *rule = rule_of(name, gpu);
    if (rule) meet(rule);
}

int call_begins(const char *function, int gpu, uint64_t bytes) {
    static int traced = -1;
    if (traced < 0) traced = getenv("GPUDIAG_SIM_TRACE") != NULL;
    if (traced) trace(function);
    simulated_machine();
    for (int i = 0; i < rule_count; i++) {
        struct rule *rule = &rules[i];
        bool lost = gpu >= 0 && !strcmp(rule->function, "lost");
        if (!lost && strcmp(rule->function, function)) continue;
        if (rule->after > 0 && !has_worked_for(gpu, rule->after)) continue;
        if (!counts(rule, gpu, bytes)) continue;
        if (rule->seconds > 0) {
            struct timespec time = {(time_t)rule->seconds, (long)((rule->seconds - (double)(time_t)rule->seconds) * 1e9)};
            nanosleep(&time, NULL);
        }
        /* NVML has its own number for a GPU that fell off the bus. */
        if (lost && !strncmp(function, "nvml", 4)) return NVML_ERROR_GPU_IS_LOST;
        if (rule->code) return rule->code;
    }
    return 0;
}

void corrupt_copy(bool between_gpus, int gpu, void *destination, uint64_t bytes, unsigned char bit) {
    for (int i = 0; i < rule_count; i++) {
        bool meant = !strcmp(rules[i].function, "copy") || (between_gpus && !strcmp(rules[i].function, "peer_copy"));
        if (!meant || !bytes || !counts(&rules[i], gpu, bytes)) continue;
        /* The fourth byte has sign and exponent of a float32: a wrong number that cannot be overlooked. */
        ((unsigned char *)destination)[bytes > 3 ? 3 : bytes - 1] ^= bit;
    }
}
