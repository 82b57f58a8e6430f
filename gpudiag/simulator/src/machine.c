/* Reads the simulated machine: $GPUDIAG_SIM_MACHINE/machine.conf, one "key value" a line, written by machine.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "simulator.h"

static bool machine_read;
static struct machine machine;

void say(const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fprintf(stderr, "gpudiag simulated GPU: %s\n", line);
    fflush(stderr);
}

static void refuse(const char *path, int line, const char *text) {
    say("%s line %d is not understood: %s (written by another version of gpudiag?)", path, line, text);
    _exit(2);
}

static const struct {
    const char *key;
    long long healthy;
} states[STATES] = {
#define STATE(key, healthy) {#key, healthy},
#include "gpu_state.inc"
#undef STATE
};

static bool set_state(struct gpu *gpu, const char *key, const char *value) {
    for (int state = 0; state < STATES; state++) {
        if (strcmp(states[state].key, key)) continue;
        gpu->state[state] = strtoll(value, NULL, 10);
        return true;
    }
    return false;
}

static bool set_gpu_key(struct gpu *gpu, const char *key, const char *value) {
    if (!strcmp(key, "name")) snprintf(gpu->name, sizeof gpu->name, "%s", value);
    else if (!strcmp(key, "uuid")) snprintf(gpu->uuid, sizeof gpu->uuid, "%s", value);
    else if (!strcmp(key, "mig_uuid") && gpu->mig_instances < MAX_MIG_INSTANCES)
        snprintf(gpu->mig_uuid[gpu->mig_instances++], sizeof gpu->mig_uuid[0], "%s", value);
    else if (!strcmp(key, "memory")) gpu->memory = strtoull(value, NULL, 10);
    else if (!strcmp(key, "context_overhead")) gpu->context_overhead = strtoull(value, NULL, 10);
    else if (!strcmp(key, "taken")) gpu->taken = strtoull(value, NULL, 10);
    else if (!strcmp(key, "taken_by")) gpu->taken_by = atoi(value);
    else if (!strcmp(key, "compute_capability")) return sscanf(value, "%d.%d", &gpu->cc_major, &gpu->cc_minor) == 2;
    else if (!strcmp(key, "multiprocessors")) gpu->multiprocessors = atoi(value);
    else if (!strcmp(key, "compute_mode")) gpu->compute_mode = atoi(value);
    else if (!strcmp(key, "numa_node")) gpu->numa_node = atoi(value);
    else if (!strcmp(key, "speed")) gpu->speed = atoi(value);
    else if (!strcmp(key, "memory_pools")) gpu->memory_pools = atoi(value) != 0;
    else if (!strcmp(key, "kernel_us")) gpu->kernel_us = atoi(value);
    else if (!strcmp(key, "copy_mb_s")) gpu->copy_mb_s = atoi(value);
    else if (!strcmp(key, "noise")) gpu->noise = atoi(value);
    else if (!strcmp(key, "noise_seed")) gpu->noise_seed = atoi(value);
    else if (!strcmp(key, "pci"))
        return sscanf(value, "%x:%x:%x", &gpu->pci_domain, &gpu->pci_bus, &gpu->pci_device) == 3;
    else return set_state(gpu, key, value);
    return true;
}

static bool set_machine_key(const char *key, const char *value) {
    if (!strcmp(key, "cuda_version")) machine.cuda_version = atoi(value);
    else if (!strcmp(key, "cudnn_version")) machine.cudnn_version = atoi(value);
    else if (!strcmp(key, "driver_version")) snprintf(machine.driver_version, sizeof machine.driver_version, "%s", value);
    else if (!strcmp(key, "fault")) faults_add(value);
    else return false;
    return true;
}

static void read_machine(void) {
    memset(&machine, 0, sizeof machine);
    faults_clear();
    const char *directory = getenv("GPUDIAG_SIM_MACHINE");
    if (!directory || !*directory) {
        say("GPUDIAG_SIM_MACHINE is not set, so there is no GPU; start the program with `gpudiag simulate`");
        return;
    }
    snprintf(machine.directory, sizeof machine.directory, "%s", directory);
    char path[sizeof machine.directory + 16], text[512];
    snprintf(path, sizeof path, "%s/machine.conf", directory);
    FILE *file = fopen(path, "re");
    if (!file) {
        say("cannot read %s: %s; %sthere is no GPU", path, strerror(errno), errno == ENOENT ? "the simulated machine has ended, so " : "");
        return;
    }
    struct gpu *gpu = NULL;
    for (int line = 1; fgets(text, sizeof text, file); line++) {
        text[strcspn(text, "\n")] = '\0';
        char *value = strchr(text, ' ');
        if (value) *value++ = '\0';
        if (!strcmp(text, "gpu") && !value) {
            if (machine.gpu_count == MAX_GPUS) refuse(path, line, "too many GPUs");
            gpu = &machine.gpus[machine.gpu_count++];
            for (int state = 0; state < STATES; state++) gpu->state[state] = states[state].healthy;
        } else if (!value || !(gpu ? set_gpu_key(gpu, text, value) : set_machine_key(text, value))) {
            refuse(path, line, text);
        }
    }
    fclose(file);
    /* Faults of this process alone, for the children of one zygote: rules, and "key value" as in the file. */
    const char *own = getenv("GPUDIAG_SIM_FAULTS");
    char *items = own ? strdup(own) : NULL, *rest = NULL;
    for (char *item = items ? strtok_r(items, ";", &rest) : NULL; item; item = strtok_r(NULL, ";", &rest)) {
        char *value = strchr(item, ' ');
        if (value) *value++ = '\0';
        if (!value) faults_add(item);
        else if (!set_machine_key(item, value)) refuse("GPUDIAG_SIM_FAULTS", 1, item);
    }
    free(items);
}

const struct machine *simulated_machine(void) {
    if (!__atomic_load_n(&machine_read, __ATOMIC_ACQUIRE)) {
        hold(MACHINE_LOCK);
        if (!machine_read) {
            read_machine();
            __atomic_store_n(&machine_read, true, __ATOMIC_RELEASE);
        }
        let_go(MACHINE_LOCK);
    }
    return &machine;
}

/* A forked child reads its own environment, unless the parent's driver was in use (driver.c refuses that child). */
static void forked(void) { machine_read = false; }

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, forked); }

/* Lets real_driver_is_mapped tell our libcuda.so.1 from NVIDIA's. */
API int gpudiag_simulated_stack(void) { return 1; }

enum { MAX_SEARCHED = 4 };
struct search {
    int count;
    char paths[MAX_SEARCHED][PATH_MAX];
};

static int note_libcuda(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    struct search *search = data;
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *file = slash ? slash + 1 : info->dlpi_name;
    if (strncmp(file, "libcuda.so", 10)) return 0;
    if (search->count < MAX_SEARCHED) snprintf(search->paths[search->count++], sizeof search->paths[0], "%s", info->dlpi_name);
    return 0;
}

/* The path of NVIDIA's libcuda where this process has mapped it, or NULL. */
API const char *gpudiag_real_driver(void) {
    static _Thread_local struct search search;
    search.count = 0;
    dl_iterate_phdr(note_libcuda, &search);
    for (int i = 0; i < search.count; i++) {
        void *handle = dlopen(search.paths[i], RTLD_LAZY | RTLD_NOLOAD);
        bool ours = handle && dlsym(handle, "gpudiag_simulated_stack");
        if (handle) dlclose(handle);
        if (handle && !ours) return search.paths[i];
    }
    return NULL;
}

bool real_driver_is_mapped(void) {
    static bool said;
    const char *path = gpudiag_real_driver();
    if (path && !said)
        say("refused: this process has mapped the real driver, %s; real and simulated GPUs cannot mix in one process "
            "(look for LD_PRELOAD, or an import that opens libcuda.so.1 by its path)", path);
    said |= path != NULL;
    return path != NULL;
}
