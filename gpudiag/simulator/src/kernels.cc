// Forwards TensorFlow's GPU kernels to its CPU kernels.
//
// For every GPU kernel in TensorFlow's registry a kernel of ours is registered with a higher priority. It creates the
// CPU kernel of the same node and lets it compute with the same context: device memory is host memory. The table is
// taken from the running TensorFlow, so one binary serves all versions.
//
// Neither a TensorFlow header nor a TensorFlow library is needed to build this. What crosses the border is TensorFlow's
// C API (kernels.h, tf_status.h), one C++ function (CreateOpKernel), and four C++ layouts declared below with their
// source. They are the same in TensorFlow 2.18 to 2.21, and are checked at run time where that is possible.

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "library_handles.h"
#include "status.h"

// libc++ (`zig c++`, clang with -stdlib=libc++) lays out std::string otherwise, and so does GNU's before C++11.
#if !defined(__GLIBCXX__) || !_GLIBCXX_USE_CXX11_ABI
#error "TensorFlow needs the C++ types of GNU's libstdc++ with its C++11 ABI, and this compiler uses others: install g++"
#endif

// ---- TensorFlow's side. Not in the anonymous namespace: the compiler would conclude that OpKernel has no implementation
// anywhere and call __cxa_pure_virtual directly (gcc 12 does). ----

struct TF_Status;
struct TF_KernelBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_AsyncOpKernelDoneCallback;

// tensorflow/c/tf_buffer.h
struct TF_Buffer {
    const void *data;
    size_t length;
    void (*data_deallocator)(void *data, size_t length);
};

// tsl/framework/device_type.h: a class around one std::string
struct DeviceType {
    std::string type;
};

class __attribute__((visibility("default"))) AsyncOpKernel;

// tensorflow/core/framework/op_kernel.h: the virtual functions, in their order
class __attribute__((visibility("default"))) OpKernel {
  public:
    virtual ~OpKernel();
    virtual void Compute(TF_OpKernelContext *context) = 0;
    virtual AsyncOpKernel *AsAsync() = 0;
    virtual bool IsExpensive() = 0;
    virtual const void *const_tensor() const = 0;
    virtual std::string TraceString(const TF_OpKernelContext &context, bool verbose) const = 0;
};
class __attribute__((visibility("default"))) AsyncOpKernel : public OpKernel {
  public:
    virtual void ComputeAsync(TF_OpKernelContext *context, std::function<void()> done) = 0;
};

// tensorflow/core/framework/op_kernel.h: the private part of class OpKernelConstruction
struct Construction {
    DeviceType device_type;
    void *device;
    void *allocator;
    void *function_library;
    void *resource_manager;
    std::shared_ptr<const void> node_properties;
    void *input_memory_types[2];
    void *output_memory_types[2];
    int graph_def_version;
    Status *status;
};

uintptr_t ok_word;

namespace {

using CreateFunction = void *(*)(TF_OpKernelConstruction *);
using ComputeFunction = void (*)(void *, TF_OpKernelContext *);
using ComputeAsyncFunction = void (*)(void *, TF_OpKernelContext *, TF_AsyncOpKernelDoneCallback *);
using DeleteFunction = void (*)(void *);

struct {
    TF_Status *(*new_status)();
    void (*delete_status)(TF_Status *);
    void (*set_status)(TF_Status *, TF_Code, const char *);
    TF_Code (*get_code)(const TF_Status *);
    Status (*to_cpp_status)(const TF_Status *);
    TF_KernelBuilder *(*new_kernel)(const char *, const char *, CreateFunction, ComputeFunction, DeleteFunction);
    TF_KernelBuilder *(*new_async_kernel)(const char *, const char *, CreateFunction, ComputeAsyncFunction, DeleteFunction);
    void (*register_kernel)(const char *, const char *, TF_KernelBuilder *, TF_Status *);
    void (*construction_failed)(TF_OpKernelConstruction *, TF_Status *);
    void (*computation_failed)(TF_OpKernelContext *, TF_Status *);
    Status (*create_op_kernel)(DeviceType, void *, void *, void *, void *, const std::shared_ptr<const void> &, int, OpKernel **);
    TF_Buffer *(*node_definition)(TF_OpKernelConstruction *, TF_Status *);
    TF_Buffer *(*registered_kernels)(TF_Status *);
    void (*delete_buffer)(TF_Buffer *);
} tf;

std::string text_of(const Status &status) {
    const StatusContent *content = content_of(status);
    return content ? content->message : "";
}

// ---- protocol buffer wire format: KernelDef and NodeDef are read without TensorFlow's headers ----

class Reader {
  public:
    Reader(const char *begin, const char *end) : at_(begin), end_(end) {}
    bool done() const { return at_ >= end_ || bad_; }
    bool bad() const { return bad_; }
    // The next field: its number, its raw bytes with the tag, and its content where it has a length.
    struct Field {
        uint64_t number;
        std::string raw, content;
        uint64_t value;
    };
    Field next() {
        const char *begin = at_;
        uint64_t tag = varint();
        Field field{tag >> 3, "", "", 0};
        if ((tag & 7) == 0) {
            field.value = varint();
        } else if ((tag & 7) == 2) {
            uint64_t length = varint();
            if (length > static_cast<uint64_t>(end_ - at_)) bad_ = true;
            else field.content.assign(at_, length), at_ += length;
        } else {
            bad_ = true;  // KernelDef has no other wire type
        }
        field.raw.assign(begin, at_);
        return field;
    }

  private:
    uint64_t varint() {
        uint64_t value = 0;
        for (int shift = 0; shift < 64 && at_ < end_; shift += 7) {
            unsigned char byte = static_cast<unsigned char>(*at_++);
            value |= static_cast<uint64_t>(byte & 127) << shift;
            if (byte < 128) return value;
        }
        bad_ = true;
        return 0;
    }
    const char *at_, *end_;
    bool bad_ = false;
};

// ---- one forwarded kernel ----

void fail(TF_OpKernelConstruction *construction, TF_Code code, const std::string &text) {
    TF_Status *status = tf.new_status();
    tf.set_status(status, code, text.c_str());
    tf.construction_failed(construction, status);
    tf.delete_status(status);
}

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
    return starts_with(op, "Collective") && op != "CollectiveAssignGroupV2";
}

// What is asked of a node.
struct Node {
    std::string op, data_format, communication_hint;
};

// The value of a string attribute: its entry (node_def.proto: map<string, AttrValue>) if it has this name.
void read_attribute(const std::string &entry, const char *name, std::string &value) {
    enum { KEY = 1, VALUE = 2, TEXT = 2 };  // the entry of a map; attr_value.proto
    std::string key, packed;
    for (Reader reader(entry.data(), entry.data() + entry.size()); !reader.done();) {
        Reader::Field field = reader.next();
        if (field.number == KEY) key = field.content;
        if (field.number == VALUE) packed = field.content;
    }
    if (key != name) return;
    for (Reader reader(packed.data(), packed.data() + packed.size()); !reader.done();) {
        Reader::Field field = reader.next();
        if (field.number == TEXT) value = field.content;
    }
}

Node node_of(TF_OpKernelConstruction *construction) {
    Node node;
    TF_Status *status = tf.new_status();
    TF_Buffer *buffer = tf.node_definition(construction, status);
    if (tf.get_code(status) == TF_OK) {
        enum { NODE_OP = 2, NODE_ATTR = 5 };  // node_def.proto
        const char *bytes = static_cast<const char *>(buffer->data);
        for (Reader reader(bytes, bytes + buffer->length); !reader.done();) {
            Reader::Field field = reader.next();
            if (field.number == NODE_OP) node.op = field.content;
            if (field.number != NODE_ATTR) continue;
            read_attribute(field.content, "data_format", node.data_format);
            read_attribute(field.content, "communication_hint", node.communication_hint);
        }
        tf.delete_buffer(buffer);
    }
    tf.delete_status(status);
    return node;
}

// The CPU convolutions know only NHWC, and say so as late as in Compute, in words about the CPU. (Others that do not know
// NCHW refuse when they are created; BiasAdd and batch normalisation know it.)
bool is_channels_first_convolution(const Node &node) {
    bool convolution = starts_with(node.op, "Conv") || starts_with(node.op, "_FusedConv") || starts_with(node.op, "DepthwiseConv");
    return convolution && starts_with(node.data_format, "NC");
}

// A kernel of TensorFlow's CPU, and the library through which a GPU would do it.
struct Forwarded {
    OpKernel *kernel;
    const LibraryUse *library;
};

Forwarded *create(TF_OpKernelConstruction *opaque) {
    auto *construction = reinterpret_cast<Construction *>(opaque);
    // Were the layout another one, this would not be the device type, or the status not OK.
    if (construction->device_type.type != "GPU" || construction->status->word != ok_word) {
        fail(opaque, TF_INTERNAL, "simulated GPU: this TensorFlow lays OpKernelConstruction out in another way; "
                                  "gpudiag's simulator supports TensorFlow 2.18 to 2.21");
        return nullptr;
    }
    const Node node = node_of(opaque);
    if (is_channels_first_convolution(node)) {
        fail(opaque, TF_NOT_FOUND, "simulated GPU: this convolution (Conv2D, Conv3D, ...) cannot be simulated with channels "
                                   "first (NCHW), because TensorFlow's CPU kernels know only NHWC; use channels last");
        return nullptr;
    }
    OpKernel *kernel = nullptr;
    Status status = tf.create_op_kernel(DeviceType{"CPU"}, construction->device, construction->allocator,
                                        construction->function_library, construction->resource_manager,
                                        construction->node_properties, construction->graph_def_version, &kernel);
    if (status.word == ok_word) return new Forwarded{kernel, library_use(node.op, node.communication_hint)};
    fail(opaque, TF_NOT_FOUND, "simulated GPU: this kernel cannot be simulated, because TensorFlow has no CPU kernel for it "
                               "to forward to: " + text_of(status));
    return nullptr;
}

void destroy(void *opaque) {
    auto *forwarded = static_cast<Forwarded *>(opaque);
    if (!forwarded) return;  // one that was refused
    delete forwarded->kernel;
    delete forwarded;
}

void *create_synchronous(TF_OpKernelConstruction *construction) {
    Forwarded *forwarded = create(construction);
    if (!forwarded || !forwarded->kernel->AsAsync()) return forwarded;
    destroy(forwarded);
    fail(construction, TF_INTERNAL, "simulated GPU: the CPU kernel of this op is asynchronous, and gpudiag's list of such "
                                    "ops (kernels.cc: ASYNCHRONOUS) does not have it");
    return nullptr;
}

void *create_asynchronous(TF_OpKernelConstruction *construction) { return create(construction); }

// False where the library gives no handle: the operation has failed then.
bool library_serves(const Forwarded &forwarded, TF_OpKernelContext *context) {
    if (!forwarded.library) return true;
    const Refusal refusal = ask_for_handle(*forwarded.library, context);
    if (refusal.text.empty()) return true;
    TF_Status *status = tf.new_status();
    tf.set_status(status, refusal.code, refusal.text.c_str());
    tf.computation_failed(context, status);
    tf.delete_status(status);
    return false;
}

void compute(void *opaque, TF_OpKernelContext *context) {
    auto *forwarded = static_cast<Forwarded *>(opaque);
    if (library_serves(*forwarded, context)) forwarded->kernel->Compute(context);
}

void compute_async(void *opaque, TF_OpKernelContext *context, TF_AsyncOpKernelDoneCallback *done) {
    // The C API hands over the address of a std::function that dies when this function returns.
    std::function<void()> finish = *reinterpret_cast<std::function<void()> *>(done);
    auto *forwarded = static_cast<Forwarded *>(opaque);
    if (!library_serves(*forwarded, context)) {
        finish();
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

// Collectives are registered for DEFAULT devices; those of the CPU run TensorFlow's own ring.
bool is_forwarded(const Kernel &kernel) {
    return kernel.device_type == "GPU" || (kernel.device_type == "DEFAULT" && starts_with(kernel.op, "Collective"));
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

// ---- the layout optimizer ----
//
// With a GPU in the graph Grappler turns NHWC convolutions into NCHW, for which most CPU kernels do not exist. Its virtual
// Optimize is replaced by one that does nothing: Grappler takes the status ABORTED for "made no changes".

Status leave_layout_alone(void *, void *, const void *, void *) {
    TF_Status *status = tf.new_status();
    tf.set_status(status, TF_ABORTED, "the layout optimizer is off on simulated GPUs");
    Status result = tf.to_cpp_status(status);
    tf.delete_status(status);
    return result;
}

const char *replace_layout_optimizer(void *const *libraries, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!libraries[i]) continue;
        auto **table = static_cast<void **>(dlsym(libraries[i], "_ZTVN10tensorflow8grappler22GenericLayoutOptimizerE"));
        void *optimize = dlsym(libraries[i], "_ZN10tensorflow8grappler22GenericLayoutOptimizer8OptimizeEPNS0_7ClusterERKNS0_12GrapplerItemEPNS_8GraphDefE");
        if (!table || !optimize) continue;
        // Offset to top, type information, then two destructors and three more functions: 8 words at most.
        for (size_t slot = 2; slot < 8; slot++) {
            if (table[slot] != optimize) continue;
            uintptr_t page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
            auto page = reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(&table[slot]) & ~(page_size - 1));
            if (mprotect(page, page_size, PROT_READ | PROT_WRITE)) return "the layout optimizer's table cannot be written";
            table[slot] = reinterpret_cast<void *>(leave_layout_alone);
            mprotect(page, page_size, PROT_READ);  // RELRO, as it was
            return nullptr;
        }
    }
    return "the layout optimizer was not found";
}

template <class Function>
bool find(void *const *libraries, size_t count, const char *name, Function &function) {
    for (size_t i = 0; i < count; i++) {
        void *address = libraries[i] ? dlsym(libraries[i], name) : nullptr;
        if (!address) continue;
        function = reinterpret_cast<Function>(address);
        return true;
    }
    return false;
}

}  // namespace

extern "C" bool map_pool_handles_lazily(void *library);  // pool_handles.c

// Returns null, or what is wrong.
extern "C" __attribute__((visibility("default"))) const char *gpudiag_forward_kernels() {
    void *libraries[] = {
        dlopen("libtensorflow_framework.so.2", RTLD_LAZY | RTLD_NOLOAD),
        dlopen("libtensorflow_cc.so.2", RTLD_LAZY | RTLD_NOLOAD),
    };
    const size_t count = sizeof libraries / sizeof *libraries;
#define FIND(function, name) \
    if (!find(libraries, count, name, function)) return "this TensorFlow does not export " name
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
    FIND(tf.node_definition, "TF_OpKernelConstruction_GetNodeDef");
    FIND(tf.registered_kernels, "TF_GetAllRegisteredKernels");
    FIND(tf.delete_buffer, "TF_DeleteBuffer");
    FIND(tf.create_op_kernel,
         "_ZN10tensorflow14CreateOpKernelEN3tsl10DeviceTypeEPNS_10DeviceBaseEPNS0_9AllocatorEPNS_22FunctionLibraryRuntimeEPNS_"
         "11ResourceMgrERKSt10shared_ptrIKNS_14NodePropertiesEEiPPNS_8OpKernelE");
#undef FIND
    TF_Status *ok = tf.new_status();
    ok_word = tf.to_cpp_status(ok).word;
    tf.delete_status(ok);
    find_library_handles(libraries, count);
    map_pool_handles_lazily(libraries[0]);  // where it cannot, large GPUs only cost more host memory
    if (const char *fault = replace_layout_optimizer(libraries, count)) return fault;
    return register_all();
}
