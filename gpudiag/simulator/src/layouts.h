/* The few structures that cross the border by layout, declared by hand: only the fields that the simulation
 * fills have names. Source of each layout: the header named beside it, CUDA 12.5. Own names, so that
 * tests/simulator/test_layouts.py can compile them side by side with the headers of an installed wheel. */
#ifndef GPUDIAG_SIMULATOR_LAYOUTS_H
#define GPUDIAG_SIMULATOR_LAYOUTS_H

#include <stddef.h>
#include <stdint.h>

/* driver_types.h: struct cudaDeviceProp, as cudaGetDeviceProperties_v2 fills it since CUDA 12.0 */
struct device_properties {
    char name[256];
    unsigned char uuid[16];
    char luid[12];
    size_t total_memory;
    size_t shared_memory_per_block;
    int registers_per_block;
    int warp_size;
    size_t memory_pitch;
    int max_threads_per_block;
    int max_threads_dim[3];
    int max_grid_size[3];
    int clock_khz;
    size_t constant_memory;
    int major, minor;
    size_t texture_alignment, texture_pitch_alignment;
    int device_overlap;
    int multiprocessors;
    int kernel_timeout, integrated;
    int can_map_host_memory;
    int compute_mode;
    int texture_limits[40];
    size_t surface_alignment;
    int concurrent_kernels;
    int ecc_enabled;
    int pci_bus, pci_device, pci_domain;
    int tcc_driver;
    int async_engines;
    int unified_addressing;
    int memory_clock_khz;
    int memory_bus_width;
    int l2_cache_bytes;
    int persisting_l2_bytes;
    int max_threads_per_multiprocessor;
    int stream_priorities, global_l1, local_l1;
    size_t shared_memory_per_multiprocessor;
    int registers_per_multiprocessor;
    int managed_memory;
    int reserved_a[14];
    int max_blocks_per_multiprocessor;
    int reserved_b[7];
    int memory_pools;
    int reserved_c[71];
};

/* driver_types.h: struct cudaPointerAttributes */
struct pointer_attributes {
    int type;
    int device;
    void *device_pointer, *host_pointer;
};

/* cuda.h: CUmemLocation, CUmemPoolProps (the head of it: type, handle types, location) */
struct memory_location {
    int type, id;
};
struct pool_properties {
    int allocation_type, handle_types;
    struct memory_location location;
};

/* nvml.h: nvmlPciInfo_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlProcessInfo_t and those named below */
struct nvml_pci {
    char legacy_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
};
struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml_memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
/* nvmlGpuFabricInfo_t */
struct nvml_fabric {
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
};
/* nvmlConfComputeSystemState_t */
struct nvml_confidential {
    unsigned environment, feature, development;
};
/* nvmlGridLicensableFeatures_t (v4) */
struct nvml_licence_expiry {
    unsigned year;
    unsigned short month, day, hour, minute, second;
    unsigned char status;
};
struct nvml_licence {
    int code;
    unsigned state;
    char info[128], product[128];
    unsigned enabled;
    struct nvml_licence_expiry expiry;
};
struct nvml_licences {
    int supported;
    unsigned count;
    struct nvml_licence features[3];
};
struct nvml_process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};

/* cupti_activity.h, packed and aligned to 8 bytes: CUpti_ActivityMemcpy5, CUpti_ActivityKernel9 */
struct copy_record {
    uint32_t kind;
    uint8_t copy_kind, source_kind, destination_kind, flags;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation, runtime_correlation;
    uint32_t padding;
    void *reserved;
    uint64_t graph_node;
    uint32_t graph, channel, channel_type, padding2;
};
struct kernel_record {
    uint32_t kind;
    uint8_t cache_configuration, shared_memory_configuration;
    uint16_t registers;
    uint32_t partitioned_cache_requested, partitioned_cache_executed;
    uint64_t start, end, completed;
    uint32_t device, context, stream;
    int32_t grid[3], block[3];
    int32_t static_shared_memory, dynamic_shared_memory;
    uint32_t local_memory_per_thread, local_memory_total, correlation;
    int64_t grid_id;
    const char *name;
    void *reserved;
    uint64_t queued, submitted;
    uint8_t launch_type, carveout_requested, carveout, padding;
    uint32_t shared_memory_executed;
    uint64_t graph_node;
    uint32_t shared_memory_limit, graph;
    void *access_policy;
    uint32_t channel, channel_type, cluster[3], cluster_policy;
    uint64_t local_memory_total_v2;
    uint32_t largest_cluster, active_clusters;
};

#endif
