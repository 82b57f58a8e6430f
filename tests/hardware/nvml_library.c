/* A libnvidia-ml.so.1 with the ABI of the real one, for machines without NVML. What it answers is read from the
 * environment: NVML_COUNT GPUs; NVML_INIT, the code nvmlInitWithFlags returns; NVML_LOST, the index of a GPU that is
 * lost; NVML_MIG=1 for GPUs that have MIG enabled; NVML_BARE=1 for a driver that supports no optional query. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15, UNKNOWN = 999 };
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} pci_t;
typedef struct { unsigned pid; unsigned long long used; unsigned gpuInstance, computeInstance; } process_t;

static int setting(const char *name, int ordinary)
{
    const char *value = getenv(name);
    return value ? atoi(value) : ordinary;
}

/* A handle is an index + 1, and 1000 more for a MIG instance; NULL is no device. */
static void *handle_of(int index) { return (void *)(long)(index + 1); }
static int index_of(void *handle) { return (int)((long)handle - 1); }

int nvmlInitWithFlags(unsigned flags) { (void)flags; return setting("NVML_INIT", OK); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return code == 77 ? "Words of this library" : "Unknown Error"; }

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    snprintf(text, size, "535.104.05");
    return OK;
}
int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    *version = 12020;
    return setting("NVML_BARE", 0) ? NOT_SUPPORTED : OK;
}
int nvmlDeviceGetCount_v2(unsigned *count) { *count = (unsigned)setting("NVML_COUNT", 1); return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
    *handle = handle_of((int)index);
    return (int)index == setting("NVML_LOST", -1) ? GPU_IS_LOST : OK;
}
int nvmlDeviceGetUUID(void *handle, char *text, unsigned size)
{
    int index = index_of(handle);
    snprintf(text, size, index >= 1000 ? "MIG-%d" : "GPU-%d", index);
    return OK;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle)
{
    *handle = handle_of(atoi(uuid + 4));
    return strncmp(uuid, "GPU-", 4) || atoi(uuid + 4) >= setting("NVML_COUNT", 1) ? NOT_FOUND : OK;
}
int nvmlDeviceGetName(void *handle, char *text, unsigned size)
{
    snprintf(text, size, "Card %d", index_of(handle));
    return OK;
}
int nvmlDeviceGetPciInfo_v3(void *handle, pci_t *pci)
{
    memset(pci, 0, sizeof *pci);
    snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", 0x3b + index_of(handle));
    return OK;
}
int nvmlDeviceGetMemoryInfo(void *handle, memory_t *memory)
{
    *memory = (memory_t){40ULL << 30, 39ULL << 30, 1ULL << 30};
    return setting("NVML_BARE", 0) ? NOT_SUPPORTED : index_of(handle) < 0 ? UNKNOWN : OK;
}
int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor)
{
    (void)handle, *major = 8, *minor = 9;
    return setting("NVML_BARE", 0) ? NOT_SUPPORTED : OK;
}
int nvmlDeviceGetComputeMode(void *handle, int *mode)
{
    (void)handle, *mode = 3;
    return setting("NVML_BARE", 0) ? NOT_SUPPORTED : OK;
}
int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending)
{
    (void)handle, *current = *pending = (unsigned)setting("NVML_MIG", 0);
    return setting("NVML_BARE", 0) ? NOT_SUPPORTED : OK;
}
int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) { (void)handle, *count = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned slot, void **instance)
{
    *instance = handle_of(1000 + 10 * index_of(handle) + (int)slot);
    return slot % 3 ? NOT_FOUND : OK; /* instances in slots 0, 3 and 6 */
}
/* This process holds 512 MiB, and process 1 an amount that is not told; the size protocol is NVML's. */
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, process_t *list)
{
    unsigned room = *count;
    (void)handle;
    if (setting("NVML_BARE", 0))
        return NOT_SUPPORTED;
    *count = 2;
    if (room < 2)
        return INSUFFICIENT_SIZE;
    list[0] = (process_t){(unsigned)getpid(), setting("NVML_MIG", 0) ? ~0ULL : 512ULL << 20, 0, 0};
    list[1] = (process_t){1, ~0ULL, 0, 0};
    return OK;
}
