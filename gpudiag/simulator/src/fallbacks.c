/* Every other name that TensorFlow may look up (cuda_names.inc), as a weak function: it says its name once and returns its
 * library's "not supported". A name that is absent is worse: TensorFlow's stub makes a fatal error of it.
 *
 * The linker prefers the strong definitions of the other files. No prototypes: the arguments are not looked at. */
#include "simulator.h"

static int not_simulated(const char *name, int code, bool *said, bool quiet) {
    int injected = call_begins(name, -1, 0);
    if (injected) return injected;
    if (!*said && !quiet) say("%s is not simulated: \"not supported\" (%d) was returned", name, code);
    *said = true;
    return code;
}

#define FALLBACK(name, code, quiet)                            \
    API __attribute__((weak)) int name(void) {                 \
        static bool said;                                      \
        return not_simulated(#name, (code), &said, (quiet));   \
    }

#define DRIVER(name) FALLBACK(name, CUDA_ERROR_NOT_SUPPORTED, false)
#define RUNTIME(name) FALLBACK(name, CUDA_ERROR_NOT_SUPPORTED, false)
#define CUBLAS(name) FALLBACK(name, 15, false)
#define CUDNN(name) FALLBACK(name, 3000, false)
#define CUFFT(name) FALLBACK(name, 16, false)
#define CUSOLVER(name) FALLBACK(name, 7, false)
#define CUSPARSE(name) FALLBACK(name, 10, false)
#define CUPTI(name) FALLBACK(name, 27, true)
#define NCCL(name) FALLBACK(name, 3, false)
/* "Not supported" is an everyday answer of NVML. */
#define NVML(name) FALLBACK(name, NVML_ERROR_NOT_SUPPORTED, true)

#include "cuda_names.inc"
