/* cuBLAS, cuDNN, cuFFT, cuSOLVER, cuSPARSE, NCCL: handles, versions, texts, and the failures that a fault injects.
 *
 * TensorFlow needs these libraries to open and to have acceptable versions. An operation that a GPU does through one of
 * them asks for its handle (library_handles.cc). Their arithmetic is never called, because kernels are forwarded to the
 * CPU; whatever else is called answers "not supported" (fallbacks.c) and says so.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

/* `invalid` is the library's own number for an invalid value or handle. */
#define CREATE(name, kind, invalid)                                \
    API int name(void **handle) {                                  \
        ENTER(current_gpu(), 0); /* a handle is of the GPU whose context is current */ \
        return handle && (*handle = handle_new(kind)) ? 0 : (invalid); \
    }
#define DESTROY(name, kind, invalid)                               \
    API int name(void *handle) {                                   \
        ENTER(-1, 0);                                              \
        return handle_free((kind), handle) ? 0 : (invalid);        \
    }
/* A setting of a handle that computes nothing. */
#define ACCEPT(name)               \
    API int name(void) {           \
        ENTER(-1, 0);              \
        return 0;                  \
    }
#define TEXT(name, text) \
    API const char *name(int code) { return (void)code, (text); }

/* libraryTypes.h: libraryPropertyType 0 major, 1 minor, 2 patch */
static int property(int which, int major, int minor, int patch) {
    return which == 0 ? major : which == 1 ? minor : patch;
}

/* ---- libcublas.so.12, libcublasLt.so.12: 12.5.3, as in CUDA 12.5 ---- */

CREATE(cublasCreate_v2, CUBLAS, 1)
DESTROY(cublasDestroy_v2, CUBLAS, 1)
ACCEPT(cublasSetStream_v2)
ACCEPT(cublasSetWorkspace_v2)
ACCEPT(cublasSetMathMode)
ACCEPT(cublasSetPointerMode_v2)
ACCEPT(cublasSetAtomicsMode)
CREATE(cublasLtCreate, CUBLAS_LT, 1)
DESTROY(cublasLtDestroy, CUBLAS_LT, 1)

/* The numbers are of cublas_api.h (cublasStatus_t), the texts those of libcublasLt 12.5.3.2; TensorFlow prints a text. */
static const struct {
    int code;
    const char *name, *text;
} cublas_statuses[] = {
    {0, "CUBLAS_STATUS_SUCCESS", "success"},
    {1, "CUBLAS_STATUS_NOT_INITIALIZED", "the library was not initialized"},
    {3, "CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed"},
    {7, "CUBLAS_STATUS_INVALID_VALUE", "an unsupported value or parameter was passed to the function"},
    {8, "CUBLAS_STATUS_ARCH_MISMATCH", "the function requires an architectural feature absent from the device"},
    {11, "CUBLAS_STATUS_MAPPING_ERROR", "an access to GPU memory space failed"},
    {13, "CUBLAS_STATUS_EXECUTION_FAILED", "the function failed to launch on the GPU"},
    {14, "CUBLAS_STATUS_INTERNAL_ERROR", "an internal operation failed"},
    {15, "CUBLAS_STATUS_NOT_SUPPORTED", "the requested functionality is not supported"},
    {16, "CUBLAS_STATUS_LICENSE_ERROR", "the license check failed"},
};
static int cublas_status(int code) {
    for (int i = 0; i < (int)(sizeof cublas_statuses / sizeof *cublas_statuses); i++)
        if (cublas_statuses[i].code == code) return i;
    return -1;
}
API const char *cublasGetStatusString(int code) {
    int at = cublas_status(code);
    return at < 0 ? "unrecognized status" : cublas_statuses[at].text;
}
API const char *cublasGetStatusName(int code) {
    int at = cublas_status(code);
    return at < 0 ? "unrecognized status" : cublas_statuses[at].name;
}
API const char *cublasLtGetStatusString(int code) { return cublasGetStatusString(code); }
API const char *cublasLtGetStatusName(int code) { return cublasGetStatusName(code); }

static int zero_for_handle(const char *function, void *handle, int *value) {
    (void)handle;
    int code = call_begins(function, -1, 0);
    if (code) return code;
    REFUSE(!value, 7); /* CUBLAS_STATUS_INVALID_VALUE */
    *value = 0;        /* the default mode in both cases */
    return 0;
}
API int cublasGetMathMode(void *handle, int *mode) { return zero_for_handle(__func__, handle, mode); }
API int cublasGetPointerMode_v2(void *handle, int *mode) { return zero_for_handle(__func__, handle, mode); }
API int cublasGetVersion_v2(void *handle, int *version) {
    ENTER(-1, 0);
    REFUSE(!version, 7);
    (void)handle;
    *version = 120503;
    return 0;
}
API int cublasGetProperty(int which, int *value) {
    ENTER(-1, 0);
    REFUSE(!value, 7);
    *value = property(which, 12, 5, 3);
    return 0;
}
API size_t cublasLtGetVersion(void) { return 120503; }

/* ---- libcudnn.so.9: the version is a figure of the machine; TensorFlow wants 9.3 or later of major 9 ---- */

CREATE(cudnnCreate, CUDNN, 2000)
DESTROY(cudnnDestroy, CUDNN, 2000)
ACCEPT(cudnnSetStream)
TEXT(cudnnGetErrorString, "CUDNN status of a simulated GPU")

API size_t cudnnGetVersion(void) { return (size_t)simulated_machine()->cudnn_version; }
API size_t cudnnGetCudartVersion(void) { return 12050; }
API int cudnnGetProperty(int which, int *value) {
    ENTER(-1, 0);
    REFUSE(!value, 2000);
    int version = simulated_machine()->cudnn_version; /* since 9.0: major * 10000 + minor * 100 + patch; before: 1000 */
    int major = version >= 90000 ? version / 10000 : version / 1000;
    int rest = version - major * (version >= 90000 ? 10000 : 1000);
    *value = property(which, major, rest / 100, rest % 100);
    return 0;
}

/* ---- libcufft.so.11, libcusolver.so.11, libcusparse.so.12 ---- */

API int cufftGetVersion(int *version) {
    ENTER(-1, 0);
    REFUSE(!version, 4);
    *version = 11203;
    return 0;
}
/* A plan is made and given back without memory for it; none is ever executed, and cufftHandle is a number. */
API int cufftCreate(int *plan) {
    ENTER(current_gpu(), 0);
    REFUSE(!plan, 4); /* CUFFT_INVALID_VALUE */
    *plan = 1;
    return 0;
}
ACCEPT(cufftDestroy)
ACCEPT(cufftSetAutoAllocation)
ACCEPT(cufftSetWorkArea)
ACCEPT(cufftSetStream)
API int cufftMakePlanMany64(int plan, int rank, long long *counts, long long *input_embed, long long input_stride,
                            long long input_distance, long long *output_embed, long long output_stride,
                            long long output_distance, int type, long long batch, size_t *work_bytes) {
    ENTER(-1, 0);
    REFUSE(!work_bytes, 4);
    (void)plan, (void)rank, (void)counts, (void)input_embed, (void)input_stride, (void)input_distance, (void)output_embed;
    (void)output_stride, (void)output_distance, (void)type, (void)batch;
    *work_bytes = 0;
    return 0;
}

CREATE(cusolverDnCreate, CUSOLVER, 1)
DESTROY(cusolverDnDestroy, CUSOLVER, 1)
ACCEPT(cusolverDnSetStream)
CREATE(cusparseCreate, CUSPARSE, 1)
DESTROY(cusparseDestroy, CUSPARSE, 1)
ACCEPT(cusparseSetStream)
ACCEPT(cusparseSetPointerMode)
TEXT(cusparseGetErrorName, "CUSPARSE status of a simulated GPU")
TEXT(cusparseGetErrorString, "CUSPARSE status of a simulated GPU")

/* ---- libnccl.so.2: collectives of tf.distribute are forwarded to TensorFlow's CPU ring, which asks for a communicator
 * first (library_handles.cc). A communicator can be made and no more: every collective of NCCL's own answers with
 * ncclInternalError (fallbacks.c), so none can seem to have worked ---- */

/* nccl.h: ncclUniqueId, 128 bytes by value. */
struct unique_id {
    char bytes[128];
};
API int ncclCommInitRank(void **communicator, int ranks, struct unique_id id, int rank) {
    ENTER(-1, 0);
    (void)id;
    REFUSE(!communicator || rank < 0 || rank >= ranks, 4); /* ncclInvalidArgument */
    *communicator = handle_new(NCCL_COMMUNICATOR);
    return *communicator ? 0 : 3;
}
DESTROY(ncclCommDestroy, NCCL_COMMUNICATOR, 4)
DESTROY(ncclCommAbort, NCCL_COMMUNICATOR, 4)

/* TensorFlow takes an id (nccl.h: ncclUniqueId, 128 bytes) for each group, whatever runs the collective then. */
API int ncclGetUniqueId(char *id) {
    static int count;
    ENTER(-1, 0);
    REFUSE(!id, 4);
    memset(id, 0, 128);
    int made = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED), pid = (int)getpid();
    memcpy(id, &pid, sizeof pid);
    memcpy(id + sizeof pid, &made, sizeof made);
    return 0;
}

API int ncclGetVersion(int *version) {
    ENTER(-1, 0);
    REFUSE(!version, 4);
    *version = 22103;
    return 0;
}
/* The texts are NCCL's own (nccl.h: ncclResult_t 0 to 7). */
API const char *ncclGetErrorString(int code) {
    static const char *const texts[] = {"no error", "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        "unhandled system error (run with NCCL_DEBUG=INFO for details)", "internal error - please report this issue to the NCCL developers",
        "invalid argument (run with NCCL_DEBUG=WARN for details)", "invalid usage (run with NCCL_DEBUG=WARN for details)",
        "remote process exited or there was a network error", "NCCL operation in progress"};
    return code >= 0 && code < 8 ? texts[code] : "unknown result code";
}
API const char *ncclGetLastError(void *communicator) {
    (void)communicator;
    return "NCCL is not simulated by gpudiag's simulated GPU";
}
