/* Loads kernels.cc's library when TensorFlow opens a simulated device for the first time in a process: early enough,
 * because the kernel registry is asked only when ops are created, and no Python hook is needed for it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "simulator.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *fault;

enum { FIRST_MINOR = 18, LAST_MINOR = 21 }; /* of TensorFlow 2: for these the layouts and kernels here were checked */

bool tensorflow_is_known(void) {
    void *tensorflow = dlopen("libtensorflow_cc.so.2", RTLD_LAZY | RTLD_NOLOAD);
    const char *(*version)(void) = tensorflow ? (const char *(*)(void))dlsym(tensorflow, "TF_Version") : NULL;
    if (tensorflow) dlclose(tensorflow);
    if (!version) return true; /* some other user of CUDA */
    int minor = 0;
    bool is_release = sscanf(version(), "2.%d.", &minor) == 1 && !strstr(version(), "-dev"); /* nightlies have a date there */
    if (is_release && minor >= FIRST_MINOR && minor <= LAST_MINOR) return true;
    static bool said;
    if (!__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
        say("simulated GPUs know TensorFlow 2.%d to 2.%d, and this is %s: there is no GPU for it; pip install 'tensorflow>=2.%d,<2.%d'",
            FIRST_MINOR, LAST_MINOR, version(), FIRST_MINOR, LAST_MINOR + 1);
    return false;
}

bool library_beside_core(char *path, size_t room, const char *file) {
    Dl_info core;
    if (!dladdr((void *)library_beside_core, &core)) return false;
    const char *slash = strrchr(core.dli_fname, '/');
    if (!slash) return false;
    snprintf(path, room, "%.*s/%s", (int)(slash - core.dli_fname), core.dli_fname, file);
    return true;
}

static void load(void) {
    void *tensorflow = dlopen("libtensorflow_framework.so.2", RTLD_LAZY | RTLD_NOLOAD);
    if (!tensorflow) return; /* some other user of CUDA */
    dlclose(tensorflow);
    char path[PATH_MAX];
    if (!library_beside_core(path, sizeof path, "libgpudiag_kernels.so")) {
        fault = "the directory of the simulator is unknown";
        return;
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *(*forward)(void) = library ? (const char *(*)(void))dlsym(library, "gpudiag_forward_kernels") : NULL;
    fault = forward ? forward() : dlerror();
    void (*report)(void) = fault ? NULL : (void (*)(void))dlsym(library, "gpudiag_report_kernels");
    if (report) report();
    if (fault) say("TensorFlow's kernels cannot be forwarded to the CPU, so no device is opened: %s", fault);
}

/* Also called by gpudiag.simulator.preload() in a process that forks later. Returns NULL or what is wrong. */
API const char *gpudiag_preload(void) {
    pthread_once(&once, load);
    return fault;
}

bool load_kernel_forwarding(void) { return gpudiag_preload() == NULL; }
