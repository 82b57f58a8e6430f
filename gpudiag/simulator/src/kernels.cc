// Forwards TensorFlow's GPU kernels to its CPU kernels.
//
// For every GPU kernel in TensorFlow's registry a kernel of ours is registered with a higher priority. It creates the
// CPU kernel of the same node and lets it compute with the same context: device memory is host memory. The table is
// taken from the running TensorFlow, so one binary serves all versions.
//
// Neither a TensorFlow header nor a TensorFlow library is needed to build this: what is asked of TensorFlow is declared in
// tensorflow.h, and checked at run time where that is possible.

#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <string>
#include <unordered_set>

#include "computation.h"
#include "eager.h"
#include "fourier.h"
#include "fused_product.h"
#include "launches.h"
#include "library_handles.h"
#include "nccl.h"
#include "recurrent.h"
#include "rerun.h"
#include "second_gradient.h"
#include "tensorflow.h"
#include "wire.h"
#include "xla.h"

namespace {

// ---- one forwarded kernel ----

// Ops whose CPU kernel is asynchronous. The registration of a kernel says whether it is, and both mistakes are bad: a
// synchronous one would block an executor thread (iterators hang, two replicas of a collective wait for each other), and in
// an asynchronous one TensorFlow aborts the process where a synchronous CPU kernel reports an error.
// Source: classes derived from AsyncOpKernel in the 2.21.0 wheel (their type information), looked up for all 719 ops with a
// GPU kernel. An op that is missing here is refused when its kernel is created.
const char *const ASYNCHRONOUS[] = {
    "BatchFunction", "CropAndResize", "CropAndResizeGradBoxes", "CropAndResizeGradImage", "DeleteIterator",
    "IteratorGetNext", "IteratorGetNextAsOptional", "IteratorGetNextSync", "MakeIterator", "XlaLaunch",
};

bool starts_with(const std::string &text, const char *prefix) { return text.rfind(prefix, 0) == 0; }

bool is_asynchronous(const std::string &op) {
    for (const char *name : ASYNCHRONOUS)
        if (op == name) return true;
    if (starts_with(op, "Nccl") || starts_with(op, "_Nccl")) return true;
    return starts_with(op, "Collective") && op != "CollectiveAssignGroupV2";
}

Node node_of(TF_OpKernelConstruction *construction) {
    TF_Status *status = tf.new_status();
    TF_Buffer *buffer = tf.node_definition(construction, status);
    Node node("", 0);
    if (tf.get_code(status) == TF_OK) {
        node = Node(static_cast<const char *>(buffer->data), buffer->length);
        tf.delete_buffer(buffer);
    }
    tf.delete_status(status);
    return node;
}

// A kernel of TensorFlow's CPU, or what is computed in another way, and the library through which a GPU would do it.
struct Forwarded {
    std::unique_ptr<OpKernel> kernel;
    std::unique_ptr<Computation> own;
    const LibraryUse *library;
    bool takes_time;  // on a GPU with a pace
};

// How a node is computed for which its CPU kernel cannot be asked; null if it can.
std::unique_ptr<Computation> computed_otherwise(const Node &node) {
    if (auto own = without_xla(node)) return own;
    if (auto own = by_nccl(node)) return own;
    if (auto own = recurrent(node)) return own;
    if (auto own = fourier(node)) return own;
    if (auto own = second_gradient(node)) return own;
    if (auto own = fused_product(node)) return own;
    return with_other_tensors(node);
}

// What a pace is for (pace.c): the work of a GPU, not what is done around it.
bool takes_time(const std::string &op) {
    for (const char *part : {"MatMul", "Einsum", "Conv", "Bitwise"})
        if (op.find(part) != std::string::npos) return true;
    return false;
}

double (*pace_begins)();
bool (*pace_ends)(double start);

// One bit of the first output is flipped, somewhere.
void flip_a_bit(TF_OpKernelContext *context) {
    static std::atomic<uint64_t> count{0};
    TF_Status *status = tf.new_status();
    TF_Tensor *output = tf.mutable_output(context, 0, status);
    if (output && tf.get_code(status) == TF_OK) {
        if (const size_t bytes = tf.tensor_bytes(output))
            static_cast<unsigned char *>(tf.tensor_data(output))[count++ * 2654435761u % bytes] ^= 0x10;
        tf.delete_tensor(output);
    }
    tf.delete_status(status);
}

Forwarded *create(TF_OpKernelConstruction *opaque) {
    auto *construction = reinterpret_cast<Construction *>(opaque);
    // Were the layout another one, this would not be the device type, or the status not OK.
    if (construction->device_type.type != "GPU" || construction->status->word != ok_word) {
        fail(opaque, TF_INTERNAL, beyond_simulation("this TensorFlow", "it lays OpKernelConstruction out in another way; gpudiag's "
                                                                       "simulator supports TensorFlow 2.18 to 2.21"));
        return nullptr;
    }
    const Node node = node_of(opaque);
    const LibraryUse *library = library_use(node.op, node.text("communication_hint"));
    if (auto own = computed_otherwise(node)) return new Forwarded{nullptr, std::move(own), library, takes_time(node.op)};
    OpKernel *kernel = nullptr;
    Status status = tf.create_op_kernel(DeviceType{"CPU"}, construction->device, construction->allocator,
                                        construction->function_library, construction->resource_manager,
                                        construction->node_properties, construction->graph_def_version, &kernel);
    if (status.word == ok_word) return new Forwarded{std::unique_ptr<OpKernel>(kernel), nullptr, library, takes_time(node.op)};
    if (auto own = in_wider_type(node)) return new Forwarded{nullptr, std::move(own), library, takes_time(node.op)};
    const StatusContent *refusal = content_of(status);
    if (!refusal || refusal->code == TF_NOT_FOUND) {
        fail(opaque, TF_NOT_FOUND, beyond_simulation(node.op, "TensorFlow has no CPU kernel for it. " + text_of(status)));
    } else {  // of what the node asks for, mostly, which a GPU refuses with the same code
        fail(opaque, static_cast<TF_Code>(refusal->code), "simulated GPU: the CPU kernel refuses: " + text_of(status));
    }
    return nullptr;
}

void destroy(void *opaque) { delete static_cast<Forwarded *>(opaque); }  // null: one that was refused

void *create_synchronous(TF_OpKernelConstruction *construction) {
    std::unique_ptr<Forwarded> forwarded(create(construction));
    if (!forwarded || !forwarded->kernel || !forwarded->kernel->AsAsync()) return forwarded.release();
    fail(construction, TF_INTERNAL, beyond_simulation(node_of(construction).op, "its CPU kernel is asynchronous, and gpudiag's list "
                                                                                "of such kernels (kernels.cc: ASYNCHRONOUS) lacks it"));
    return nullptr;
}

void *create_asynchronous(TF_OpKernelConstruction *construction) { return create(construction); }

// False where the library gives no handle: the operation has failed then.
bool library_serves(const Forwarded &forwarded, TF_OpKernelContext *context) {
    if (!forwarded.library) return true;
    const Refusal refusal = ask_for_handle(*forwarded.library, context);
    if (refusal.text.empty()) return true;
    fail(context, refusal.code, refusal.text);
    return false;
}

void compute(void *opaque, TF_OpKernelContext *context) {
    auto *forwarded = static_cast<Forwarded *>(opaque);
    if (!library_serves(*forwarded, context)) return;
    const double start = forwarded->takes_time && pace_begins ? pace_begins() : 0;
    if (forwarded->own) forwarded->own->compute(context);
    else forwarded->kernel->Compute(context);
    if (start > 0 && pace_ends(start)) flip_a_bit(context);
}

void compute_async(void *opaque, TF_OpKernelContext *context, TF_AsyncOpKernelDoneCallback *done) {
    // The C API hands over the address of a std::function that dies when this function returns.
    std::function<void()> finish = *reinterpret_cast<std::function<void()> *>(done);
    auto *forwarded = static_cast<Forwarded *>(opaque);
    if (!library_serves(*forwarded, context)) {
        finish();
    } else if (forwarded->own) {
        forwarded->own->compute_async(context, std::move(finish));
    } else if (AsyncOpKernel *async = forwarded->kernel->AsAsync()) {
        async->ComputeAsync(context, std::move(finish));
    } else {
        forwarded->kernel->Compute(context);
        finish();
    }
}

// ---- the table: TensorFlow's KernelList (kernel_def.proto) ----

enum { KERNEL_OP = 1, KERNEL_DEVICE_TYPE = 2, KERNEL_CONSTRAINT = 3, KERNEL_PRIORITY = 6 };

struct Kernel {
    std::string op, device_type, definition;
};

// The same definition for device type GPU with its priority raised by 1000, so that it wins over the original.
Kernel forwarded_definition(const std::string &original) {
    Kernel kernel;
    uint64_t priority = 0;
    Reader reader(original.data(), original.data() + original.size());
    while (!reader.done()) {
        Reader::Field field = reader.next();
        if (field.number == KERNEL_OP) kernel.op = field.content;
        if (field.number == KERNEL_DEVICE_TYPE) kernel.device_type = field.content;
        if (field.number == KERNEL_PRIORITY) priority = field.value;
        // The C API takes a C string. GatherNd's constraint on bad_indices_policy lists an empty string, whose length is a
        // NUL byte; without the constraint the kernel accepts every policy, as all its variants together do.
        bool has_nul = field.raw.find('\0') != std::string::npos;
        if (field.number == KERNEL_CONSTRAINT && has_nul) continue;
        kernel.definition += field.raw;
    }
    if (kernel.device_type != "GPU") kernel.definition += "\x12\x03GPU";  // the last one counts
    kernel.definition += '\x30';
    for (priority += 1000; priority > 127; priority >>= 7) kernel.definition += static_cast<char>(priority | 128);
    kernel.definition += static_cast<char>(priority);
    if (reader.bad()) kernel.op.clear();
    return kernel;
}

// Collectives are registered for DEFAULT devices; those of the CPU run TensorFlow's own ring. Grappler's swapping of tensors to
// host memory (gpu_swapping_kernels.cc) only copies by the driver: TensorFlow's own kernels do it here, too.
bool is_forwarded(const Kernel &kernel) {
    if (kernel.op == "_CopyFromGpuToHost" || kernel.op == "_CopyFromHostToGpu") return false;
    return kernel.device_type == "GPU" || (kernel.device_type == "DEFAULT" && starts_with(kernel.op, "Collective"));
}

// A vendor may have changed a known release. Of the classes that tensorflow.h declares, the virtual functions before the last
// ones that are exported, and how many there are; OpKernelConstruction is looked at when a kernel is created.
bool has_known_classes(const Libraries &libraries) {
    const char *const kernel = "_ZTVN10tensorflow8OpKernelE", *const asynchronous = "_ZTVN10tensorflow13AsyncOpKernelE";
    const struct {
        const char *table, *function;
        ptrdiff_t slot;  // after the offset to top and the type information
    } EXPECTED[] = {
        {kernel, "_ZN10tensorflow8OpKernelD1Ev", 2},
        {kernel, "_ZNK10tensorflow8OpKernel11TraceStringB5cxx11ERKNS_15OpKernelContextEb", 8},
        {asynchronous, "_ZN10tensorflow13AsyncOpKernel7ComputeEPNS_15OpKernelContextE", 4},
    };
    for (const auto &[table, function, slot] : EXPECTED)
        if (virtual_slot(libraries, table, function) != static_cast<void **>(libraries.address(table)) + slot) return false;
    return slots_of(libraries, kernel) == 9 && slots_of(libraries, asynchronous) == 10;
}

const char *register_all() {
    TF_Status *status = tf.new_status();
    TF_Buffer *buffer = tf.registered_kernels(status);
    if (tf.get_code(status) != TF_OK) return "TF_GetAllRegisteredKernels failed";
    const char *bytes = static_cast<const char *>(buffer->data);
    std::unordered_set<std::string> seen;
    Reader list(bytes, bytes + buffer->length);
    size_t count = 0;
    while (!list.done()) {
        Kernel kernel = forwarded_definition(list.next().content);
        if (kernel.op.empty() || !is_forwarded(kernel) || !seen.insert(kernel.definition).second) continue;
        if (kernel.definition.find('\0') != std::string::npos) return "a kernel definition has a NUL byte";
        std::string name = "gpudiag_forwarded_" + std::to_string(count++);
        TF_KernelBuilder *builder =
            is_asynchronous(kernel.op)
                ? tf.new_async_kernel(kernel.op.c_str(), "GPU", create_asynchronous, compute_async, destroy)
                : tf.new_kernel(kernel.op.c_str(), "GPU", create_synchronous, compute, destroy);
        tf.register_kernel(kernel.definition.c_str(), name.c_str(), builder, status);
        if (tf.get_code(status) != TF_OK) return "TF_RegisterKernelBuilderWithKernelDef failed";
    }
    tf.delete_buffer(buffer);
    tf.delete_status(status);
    if (list.bad() || !count) return "TensorFlow's kernel list is not understood";
    return nullptr;
}

}  // namespace

extern "C" bool map_pool_handles_lazily(void *library);  // pool_handles.c

// Returns null, or what is wrong.
extern "C" __attribute__((visibility("default"))) const char *gpudiag_forward_kernels() {
    void *const handles[] = {
        dlopen("libtensorflow_framework.so.2", RTLD_LAZY | RTLD_NOLOAD),
        dlopen("libtensorflow_cc.so.2", RTLD_LAZY | RTLD_NOLOAD),
    };
    const Libraries libraries{handles, sizeof handles / sizeof *handles};
#define FIND(function, name) \
    if (!libraries.find(name, function)) return "this TensorFlow does not export " name
    FIND(tf.new_status, "TF_NewStatus");
    FIND(tf.delete_status, "TF_DeleteStatus");
    FIND(tf.set_status, "TF_SetStatus");
    FIND(tf.get_code, "TF_GetCode");
    FIND(tf.to_cpp_status, "_ZN3tsl19StatusFromTF_StatusEPK10TSL_Status");
    FIND(tf.new_kernel, "TF_NewKernelBuilder");
    FIND(tf.new_async_kernel, "TF_NewAsyncKernelBuilder");
    FIND(tf.register_kernel, "TF_RegisterKernelBuilderWithKernelDef");
    FIND(tf.construction_failed, "TF_OpKernelConstruction_Failure");
    FIND(tf.computation_failed, "TF_OpKernelContext_Failure");
    FIND(tf.allocate_output, "TF_AllocateOutput");
    FIND(tf.tensor_data, "TF_TensorData");
    FIND(tf.tensor_bytes, "TF_TensorByteSize");
    FIND(tf.mutable_output, "TF_GetMutableOutput");
    FIND(tf.delete_tensor, "TF_DeleteTensor");
    FIND(tf.node_definition, "TF_OpKernelConstruction_GetNodeDef");
    FIND(tf.registered_kernels, "TF_GetAllRegisteredKernels");
    FIND(tf.delete_buffer, "TF_DeleteBuffer");
    FIND(tf.create_op_kernel,
         "_ZN10tensorflow14CreateOpKernelEN3tsl10DeviceTypeEPNS_10DeviceBaseEPNS0_9AllocatorEPNS_22FunctionLibraryRuntimeEPNS_"
         "11ResourceMgrERKSt10shared_ptrIKNS_14NodePropertiesEEiPPNS_8OpKernelE");
#undef FIND
    if (const char *fault = find_eager(libraries)) return fault;
    if (!has_known_classes(libraries))
        return "this build of TensorFlow has other virtual functions in OpKernel; install TensorFlow's own wheel: pip install tensorflow";
    TF_Status *ok = tf.new_status();
    ok_word = tf.to_cpp_status(ok).word;
    tf.delete_status(ok);
    find_library_handles(handles, libraries.count);
    fail_refused_launches_alone(libraries);
    leave_xla_off(libraries);
    void *core = dlopen("libgpudiag_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    if (!Libraries{&core, 1}.find("gpudiag_pace_ends", pace_ends) || !Libraries{&core, 1}.find("gpudiag_pace_begins", pace_begins))
        pace_begins = nullptr;
    map_pool_handles_lazily(handles[0]);  // where it cannot, large GPUs only cost more host memory
    return register_all();
}
