/* libnvidia-ml.so.1: what TensorFlow and pynvml ask. NVML ignores CUDA_VISIBLE_DEVICES, counts in PCI order, and needs no
 * CUDA initialisation. What has no truth here (temperature, utilisation) answers "not supported". */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "layouts.h"
#include "simulator.h"

typedef int nvmlReturn_t;
typedef struct unit *nvmlDevice_t;

static int initialised; /* nvmlInit counts */
static struct unit devices[MAX_GPUS], instances[MAX_GPUS][MAX_MIG_INSTANCES];

static bool is_in(const void *handle, const void *first, size_t size) {
    uintptr_t offset = (uintptr_t)handle - (uintptr_t)first;
    return offset < size && offset % sizeof(struct unit) == 0;
}
static bool is_device(nvmlDevice_t device) {
    return is_in(device, devices, sizeof devices) || is_in(device, instances, sizeof instances);
}
static int gpu_of(nvmlDevice_t device) { return is_device(device) ? device->gpu : -1; }
static const struct gpu *gpu_at(nvmlDevice_t device) { return &simulated_machine()->gpus[device->gpu]; }

#define NVML_CALL(gpu)                                        \
    do {                                                      \
        ENTER((gpu), 0);                                      \
        if (initialised <= 0) return NVML_ERROR_UNINITIALIZED; \
    } while (0)
#define DEVICE_CALL(device)                                \
    do {                                                   \
        NVML_CALL(gpu_of(device));                         \
        if (!is_device(device)) return NVML_ERROR_INVALID_ARGUMENT; \
    } while (0)

#define NEEDED(pointer) REFUSE(!(pointer), NVML_ERROR_INVALID_ARGUMENT)

static nvmlReturn_t text(char *to, unsigned room, const char *from) {
    NEEDED(to);
    if (strlen(from) >= room) return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(to, from);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlInit_v2(void) {
    ENTER(-1, 0);
    const struct machine *machine = simulated_machine();
    for (int gpu = 0; gpu < machine->gpu_count; gpu++) {
        devices[gpu] = (struct unit){gpu, -1};
        for (int mig = 0; mig < MAX_MIG_INSTANCES; mig++) instances[gpu][mig] = (struct unit){gpu, mig};
    }
    __atomic_add_fetch(&initialised, 1, __ATOMIC_RELAXED);
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlInit(void) { return nvmlInit_v2(); }
API nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return nvmlInit_v2();
}
API nvmlReturn_t nvmlShutdown(void) {
    NVML_CALL(-1);
    __atomic_sub_fetch(&initialised, 1, __ATOMIC_RELAXED);
    return NVML_SUCCESS;
}

API const char *nvmlErrorString(nvmlReturn_t code) {
    switch (code) {
    case 0: return "Success";
    case 1: return "Uninitialized";
    case 2: return "Invalid Argument";
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 6: return "Not Found";
    case 7: return "Insufficient Size";
    case 9: return "Driver Not Loaded";
    case 10: return "Timeout";
    case 12: return "NVML Shared Library Not Found";
    case 13: return "Function Not Found";
    case 15: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 17: return "The operating system has blocked the request";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned room) {
    NVML_CALL(-1);
    return text(version, room, simulated_machine()->driver_version);
}
API nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned room) {
    NVML_CALL(-1);
    char own[64];
    snprintf(own, sizeof own, "%d.%s", simulated_machine()->cuda_version / 1000, simulated_machine()->driver_version);
    return text(version, room, own);
}
API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    NVML_CALL(-1);
    NEEDED(version);
    *version = simulated_machine()->cuda_version;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

/* ---- finding devices ---- */

API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    NVML_CALL(-1);
    NEEDED(count);
    *count = (unsigned)simulated_machine()->gpu_count;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    NVML_CALL((int)index);
    NEEDED(device);
    if (index >= (unsigned)simulated_machine()->gpu_count) return NVML_ERROR_INVALID_ARGUMENT;
    *device = &devices[index];
    return NVML_SUCCESS;
}
/* "0000:17:00.0" or "00000000:17:00.0", in either case: the numbers count */
API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *device) {
    NVML_CALL(-1);
    NEEDED(id && device);
    unsigned domain, bus, slot;
    if (sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3) return NVML_ERROR_INVALID_ARGUMENT;
    const struct machine *machine = simulated_machine();
    for (int gpu = 0; gpu < machine->gpu_count; gpu++) {
        const struct gpu *it = &machine->gpus[gpu];
        if (it->pci_domain != domain || it->pci_bus != bus || it->pci_device != slot) continue;
        *device = &devices[gpu];
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
}
API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    NVML_CALL(-1);
    NEEDED(uuid && device);
    const struct machine *machine = simulated_machine();
    for (int gpu = 0; gpu < machine->gpu_count; gpu++) {
        if (!strcasecmp(machine->gpus[gpu].uuid, uuid)) {
            *device = &devices[gpu];
            return NVML_SUCCESS;
        }
        for (int mig = 0; mig < machine->gpus[gpu].mig_instances; mig++)
            if (!strcasecmp(machine->gpus[gpu].mig_uuid[mig], uuid)) {
                *device = &instances[gpu][mig];
                return NVML_SUCCESS;
            }
    }
    return NVML_ERROR_NOT_FOUND;
}

/* ---- describing them ---- */

API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
    DEVICE_CALL(device);
    NEEDED(index);
    *index = (unsigned)device->gpu;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *number) {
    return nvmlDeviceGetIndex(device, number);
}
API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned room) {
    DEVICE_CALL(device);
    return text(name, room, gpu_at(device)->name);
}
API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned room) {
    DEVICE_CALL(device);
    return text(uuid, room, device->mig < 0 ? gpu_at(device)->uuid : gpu_at(device)->mig_uuid[device->mig]);
}
API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, struct nvml_pci *pci) {
    DEVICE_CALL(device);
    NEEDED(pci);
    const struct gpu *gpu = gpu_at(device);
    memset(pci, 0, sizeof *pci);
    pci->domain = gpu->pci_domain;
    pci->bus = gpu->pci_bus;
    pci->device = gpu->pci_device;
    snprintf(pci->legacy_id, sizeof pci->legacy_id, "%04X:%02X:%02X.0", pci->domain & 0xffff, pci->bus & 0xff,
             pci->device & 0xff);
    snprintf(pci->id, sizeof pci->id, "%08X:%02X:%02X.0", pci->domain, pci->bus, pci->device);
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    DEVICE_CALL(device);
    NEEDED(major && minor);
    *major = gpu_at(device)->cc_major;
    *minor = gpu_at(device)->cc_minor;
    return NVML_SUCCESS;
}
/* CUDA and NVML count compute modes alike: 0 default, 1 exclusive thread, 2 prohibited, 3 exclusive process. */
API nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, int *mode) {
    DEVICE_CALL(device);
    NEEDED(mode);
    *mode = gpu_at(device)->compute_mode;
    return NVML_SUCCESS;
}
/* No display is connected to any of them. */
static nvmlReturn_t disabled(nvmlDevice_t device, int *state) {
    DEVICE_CALL(device);
    NEEDED(state);
    *state = 0;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, int *active) { return disabled(device, active); }
API nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, int *mode) { return disabled(device, mode); }
API nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned *node) {
    DEVICE_CALL(device);
    NEEDED(node);
    if (gpu_at(device)->numa_node < 0) return NVML_ERROR_NOT_SUPPORTED;
    *node = (unsigned)gpu_at(device)->numa_node;
    return NVML_SUCCESS;
}
/* ---- memory ---- */

API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct nvml_memory *memory) {
    DEVICE_CALL(device);
    NEEDED(memory);
    uint64_t total = unit_capacity(*device), used = unit_used(*device);
    if (device->mig < 0) /* of a GPU in MIG mode: what all its instances use */
        for (int mig = 0; mig < gpu_at(device)->mig_instances; mig++) used += unit_used((struct unit){device->gpu, mig});
    if (used > total) used = total; /* managed memory beyond the GPU lives on the host */
    *memory = (struct nvml_memory){total, total - used, used};
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct nvml_memory_v2 *memory) {
    struct nvml_memory first;
    NEEDED(memory);
    nvmlReturn_t code = nvmlDeviceGetMemoryInfo(device, &first);
    if (code == NVML_SUCCESS) *memory = (struct nvml_memory_v2){memory->version, first.total, 0, first.free, first.used};
    return code;
}

/* Size protocol: too little room gives the needed count and "insufficient size". */
API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, struct nvml_process *processes) {
    DEVICE_CALL(device);
    NEEDED(count);
    struct holder holders[512];
    int found = 0, room = (int)(sizeof holders / sizeof *holders);
    unsigned instance_of[512];
    for (int mig = device->mig < 0 ? -1 : device->mig; mig < (device->mig < 0 ? gpu_at(device)->mig_instances : device->mig + 1);
         mig++) {
        int more = unit_holders((struct unit){device->gpu, mig}, holders + found, room - found);
        if (more > room - found) more = room - found;
        /* 0xFFFFFFFF: not in MIG mode */
        for (int i = 0; i < more; i++) instance_of[found + i] = mig < 0 ? 0xFFFFFFFFu : (unsigned)mig;
        found += more;
    }
    unsigned given = *count;
    *count = (unsigned)found;
    if ((unsigned)found > given) return NVML_ERROR_INSUFFICIENT_SIZE;
    NEEDED(processes || !found);
    for (int i = 0; i < found; i++)
        processes[i] = (struct nvml_process){(unsigned)holders[i].pid, holders[i].bytes, instance_of[i], instance_of[i]};
    return NVML_SUCCESS;
}
static nvmlReturn_t none(nvmlDevice_t device, unsigned *count) {
    DEVICE_CALL(device);
    NEEDED(count);
    *count = 0;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count) { return none(device, count); }
API nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count) { return none(device, count); }

/* ---- MIG: mode and instances with their UUIDs, no more ---- */

API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *mode, unsigned *pending) {
    DEVICE_CALL(device);
    NEEDED(mode && pending);
    if (gpu_at(device)->cc_major < 8) return NVML_ERROR_NOT_SUPPORTED; /* MIG came with Ampere */
    *mode = *pending = gpu_at(device)->mig_instances > 0;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count) {
    DEVICE_CALL(device);
    NEEDED(count);
    *count = gpu_at(device)->mig_instances ? MAX_MIG_INSTANCES : 0;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *instance) {
    DEVICE_CALL(device);
    NEEDED(instance);
    if (index >= (unsigned)gpu_at(device)->mig_instances) return NVML_ERROR_NOT_FOUND;
    *instance = &instances[device->gpu][index];
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is) {
    DEVICE_CALL(device);
    NEEDED(is);
    *is = device->mig >= 0;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t instance, nvmlDevice_t *device) {
    DEVICE_CALL(instance);
    NEEDED(device);
    if (instance->mig < 0) return NVML_ERROR_INVALID_ARGUMENT;
    *device = &devices[instance->gpu];
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id) {
    DEVICE_CALL(device);
    NEEDED(id);
    if (device->mig < 0) return NVML_ERROR_NOT_SUPPORTED;
    *id = (unsigned)device->mig;
    return NVML_SUCCESS;
}

/* ---- health: what the machine file states, by default that of a healthy card (gpu_state.inc) ---- */

/* What the work of a GPU with a pace makes of a state (pace.c). */
static long long now_of(int gpu, enum gpu_state key, long long stated) {
    const double lanes = fault_amount("narrow", gpu);
    long long errors;
    switch (key) {
    case STATE_pcie_width:
        if (lanes > 0) fault_acts("narrow", gpu);
        return lanes > 0 ? (long long)lanes : stated;
    case STATE_ecc_corrected:
        if ((errors = (long long)(fault_amount("ecc", gpu) * pulse_of(gpu).busy_s))) fault_acts("ecc", gpu);
        return stated + errors;
    case STATE_throttle: return stated | (pulse_of(gpu).is_hot ? 0x60 : 0);
    case STATE_clock: return pulse_of(gpu).is_hot ? stated / 2 : stated;
    default: return stated;
    }
}
static nvmlReturn_t state_of(nvmlDevice_t device, enum gpu_state key, long long *value) {
    *value = gpu_at(device)->state[key];
    if (*value >= 0 && gpu_is_paced(device->gpu)) *value = now_of(device->gpu, key, *value);
    return *value < 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}
#define STATED(function, type, key)                                  \
    API nvmlReturn_t function(nvmlDevice_t device, type *value) {    \
        DEVICE_CALL(device);                                         \
        NEEDED(value);                                               \
        long long stated;                                            \
        nvmlReturn_t code = state_of(device, STATE_##key, &stated);  \
        if (code == NVML_SUCCESS) *value = (type)stated;             \
        return code;                                                 \
    }
STATED(nvmlDeviceGetPersistenceMode, int, persistence)
STATED(nvmlDeviceGetVirtualizationMode, int, virtualization)
STATED(nvmlDeviceGetRetiredPagesPendingStatus, int, retirement_pending)
STATED(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, pcie_generation)
STATED(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, pcie_generation_max)
STATED(nvmlDeviceGetCurrPcieLinkWidth, unsigned, pcie_width)
STATED(nvmlDeviceGetMaxPcieLinkWidth, unsigned, pcie_width_max)
STATED(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, throttle)
STATED(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, throttle)
STATED(nvmlDeviceGetPerformanceState, int, performance_state)
STATED(nvmlDeviceGetEnforcedPowerLimit, unsigned, power_limit)
STATED(nvmlDeviceGetPowerManagementLimit, unsigned, power_limit)
STATED(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, power_default)

/* Of the clocks (0 graphics, 1 SM, 2 memory, 3 video) one figure is known. */
static nvmlReturn_t clock_of(nvmlDevice_t device, int type, enum gpu_state key, unsigned *mhz) {
    DEVICE_CALL(device);
    NEEDED(mhz);
    if (type != 0 && type != 1) return NVML_ERROR_NOT_SUPPORTED;
    long long stated;
    nvmlReturn_t code = state_of(device, key, &stated);
    if (code == NVML_SUCCESS) *mhz = (unsigned)stated;
    return code;
}
API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int type, unsigned *mhz) {
    return clock_of(device, type, STATE_clock, mhz);
}
API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, int type, unsigned *mhz) {
    return clock_of(device, type, STATE_clock_max, mhz);
}

/* Only of a GPU with a pace: without one, nobody knows how it would be. */
#define MEASURED(function, type, expression)                         \
    API nvmlReturn_t function(nvmlDevice_t device, type *value) {    \
        DEVICE_CALL(device);                                         \
        NEEDED(value);                                               \
        if (!gpu_is_paced(device->gpu)) return NVML_ERROR_NOT_SUPPORTED; \
        const struct pulse pulse = pulse_of(device->gpu);            \
        *value = (type)(expression);                                 \
        return NVML_SUCCESS;                                         \
    }
MEASURED(nvmlDeviceGetPowerUsage, unsigned,
         60000 + pulse.load * ((double)gpu_at(device)->state[STATE_power_limit] * (pulse.is_hot ? 0.5 : 0.9) - 60000))
API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned *degrees) {
    DEVICE_CALL(device);
    NEEDED(degrees);
    if (sensor || !gpu_is_paced(device->gpu)) return NVML_ERROR_NOT_SUPPORTED;
    *degrees = (unsigned)pulse_of(device->gpu).temperature;
    return NVML_SUCCESS;
}
struct nvml_utilisation {
    unsigned gpu, memory;
};
API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, struct nvml_utilisation *rates) {
    DEVICE_CALL(device);
    NEEDED(rates);
    if (!gpu_is_paced(device->gpu)) return NVML_ERROR_NOT_SUPPORTED;
    rates->gpu = rates->memory = (unsigned)(pulse_of(device->gpu).load * 100);
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned *count) {
    DEVICE_CALL(device);
    NEEDED(count);
    *count = 0;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, int *current, int *pending) {
    DEVICE_CALL(device);
    NEEDED(current && pending);
    long long stated;
    nvmlReturn_t code = state_of(device, STATE_ecc, &stated);
    if (code == NVML_SUCCESS) *current = *pending = (int)stated;
    return code;
}
/* errors: 0 corrected, 1 uncorrected; of both counters, since the driver was loaded and of the card's life, one figure */
API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int errors, int counter, unsigned long long *count) {
    DEVICE_CALL(device);
    (void)counter;
    NEEDED(count);
    if (gpu_at(device)->state[STATE_ecc] != 1) return NVML_ERROR_NOT_SUPPORTED;
    long long stated;
    nvmlReturn_t code = state_of(device, errors ? STATE_ecc_uncorrected : STATE_ecc_corrected, &stated);
    if (code == NVML_SUCCESS) *count = (unsigned long long)stated;
    return code;
}
/* cause: 0 corrected errors, 1 an uncorrected one; all are counted with the second */
API nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, int cause, unsigned *count,
                                              unsigned long long *addresses, unsigned long long *times) {
    DEVICE_CALL(device);
    NEEDED(count);
    long long stated;
    nvmlReturn_t code = state_of(device, STATE_retired_pages, &stated);
    if (code != NVML_SUCCESS) return code;
    unsigned found = cause == 1 ? (unsigned)stated : 0, room = *count;
    *count = found;
    if (found > room) return NVML_ERROR_INSUFFICIENT_SIZE;
    NEEDED((addresses && times) || !found);
    for (unsigned page = 0; page < found; page++) addresses[page] = times[page] = page;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected, unsigned *uncorrected,
                                           unsigned *pending, unsigned *failed) {
    DEVICE_CALL(device);
    NEEDED(corrected && uncorrected && pending && failed);
    const long long *state = gpu_at(device)->state;
    if (state[STATE_remapped_rows] < 0) return NVML_ERROR_NOT_SUPPORTED;
    *corrected = 0;
    *uncorrected = (unsigned)state[STATE_remapped_rows];
    *pending = state[STATE_remap_pending] > 0;
    *failed = state[STATE_remap_failed] > 0;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, struct nvml_fabric *fabric) {
    DEVICE_CALL(device);
    NEEDED(fabric);
    long long stated;
    nvmlReturn_t code = state_of(device, STATE_fabric, &stated);
    if (code != NVML_SUCCESS) return code;
    memset(fabric, 0, sizeof *fabric);
    fabric->state = (unsigned char)stated;
    fabric->status = (int)gpu_at(device)->state[STATE_fabric_status];
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, int *active) {
    DEVICE_CALL(device);
    NEEDED(active);
    const long long *state = gpu_at(device)->state;
    if (state[STATE_nvlinks] <= 0) return NVML_ERROR_NOT_SUPPORTED;
    if (link >= state[STATE_nvlinks]) return NVML_ERROR_INVALID_ARGUMENT;
    *active = link < state[STATE_nvlinks_active];
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t other, int what, int *status) {
    DEVICE_CALL(device);
    (void)what;
    NEEDED(status);
    if (!is_device(other)) return NVML_ERROR_INVALID_ARGUMENT;
    long long here, there;
    nvmlReturn_t code = state_of(device, STATE_peer, &here);
    if (code == NVML_SUCCESS) code = state_of(other, STATE_peer, &there);
    if (code == NVML_SUCCESS) *status = (int)(here ? here : there);
    return code;
}

/* Licences of a vGPU: one feature, that of the GPU's own product */
API nvmlReturn_t nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t device, struct nvml_licences *licences) {
    DEVICE_CALL(device);
    NEEDED(licences);
    long long stated;
    nvmlReturn_t code = state_of(device, STATE_licence, &stated);
    if (code != NVML_SUCCESS) return code;
    memset(licences, 0, sizeof *licences);
    licences->supported = licences->count = 1;
    licences->features[0].code = 4; /* compute */
    licences->features[0].state = (unsigned)stated;
    licences->features[0].enabled = 1;
    snprintf(licences->features[0].product, sizeof licences->features[0].product, "NVIDIA Virtual Compute Server");
    return NVML_SUCCESS;
}

/* Confidential computing is of the whole machine: the first GPU states it. */
API nvmlReturn_t nvmlSystemGetConfComputeState(struct nvml_confidential *confidential) {
    NVML_CALL(-1);
    NEEDED(confidential);
    memset(confidential, 0, sizeof *confidential);
    const struct machine *machine = simulated_machine();
    if (!machine->gpu_count || machine->gpus[0].state[STATE_confidential] < 0) return NVML_ERROR_NOT_SUPPORTED;
    confidential->feature = (unsigned)machine->gpus[0].state[STATE_confidential];
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlSystemGetConfComputeGpusReadyState(unsigned *ready) {
    NVML_CALL(-1);
    NEEDED(ready);
    const struct machine *machine = simulated_machine();
    if (!machine->gpu_count || machine->gpus[0].state[STATE_confidential_ready] < 0) return NVML_ERROR_NOT_SUPPORTED;
    *ready = (unsigned)machine->gpus[0].state[STATE_confidential_ready];
    return NVML_SUCCESS;
}
