// What crosses the border to TensorFlow: its C API (kernels.h, tf_status.h), one C++ function (CreateOpKernel), and C++
// layouts that are declared here with their source. They are the same in TensorFlow 2.18 to 2.21 (forwarding.c asks for that;
// kernels.cc looks whether a vendor has changed them).
#ifndef GPUDIAG_SIMULATOR_TENSORFLOW_H
#define GPUDIAG_SIMULATOR_TENSORFLOW_H

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "status.h"

// libc++ (`zig c++`, clang with -stdlib=libc++) lays out std::string otherwise, and so does GNU's before C++11.
#if !defined(__GLIBCXX__) || !_GLIBCXX_USE_CXX11_ABI
#error "TensorFlow needs the C++ types of GNU's libstdc++ with its C++11 ABI, and this compiler uses others: install g++"
#endif

// Not in the anonymous namespace: the compiler would conclude that OpKernel has no implementation
// anywhere and call __cxa_pure_virtual directly (gcc 12 does). ----

struct TF_Status;
struct TF_KernelBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_AsyncOpKernelDoneCallback;
struct TF_Tensor;

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

using CreateFunction = void *(*)(TF_OpKernelConstruction *);
using ComputeFunction = void (*)(void *, TF_OpKernelContext *);
using ComputeAsyncFunction = void (*)(void *, TF_OpKernelContext *, TF_AsyncOpKernelDoneCallback *);
using DeleteFunction = void (*)(void *);

struct TensorFlow {
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
    TF_Tensor *(*allocate_output)(TF_OpKernelContext *, int index, int type, const int64_t *dimensions, int count, size_t bytes,
                                  TF_Status *);
    void *(*tensor_data)(const TF_Tensor *);
    size_t (*tensor_bytes)(const TF_Tensor *);
    TF_Tensor *(*mutable_output)(TF_OpKernelContext *, int index, TF_Status *);
    void (*delete_tensor)(TF_Tensor *);
    TF_Buffer *(*node_definition)(TF_OpKernelConstruction *, TF_Status *);
    TF_Buffer *(*registered_kernels)(TF_Status *);
    void (*delete_buffer)(TF_Buffer *);
};
extern TensorFlow tf;

// TensorFlow's libraries, in which functions are looked up.
struct Libraries {
    void *const *handles;
    size_t count;

    void *address(const char *name) const {
        for (size_t i = 0; i < count; i++)
            if (void *found = handles[i] ? dlsym(handles[i], name) : nullptr) return found;
        return nullptr;
    }
    template <class Function>
    bool find(const char *name, Function &function) const {
        void *found = address(name);
        if (found) function = reinterpret_cast<Function>(found);
        return found != nullptr;
    }
};

// How many slots a table of virtual functions has; 0 if that is not known.
size_t slots_of(const Libraries &, const char *table);
// The slot of a virtual function in the table of a class, both by their mangled names; null if there is none.
void **virtual_slot(const Libraries &, const char *table, const char *function);
// Put another function there. False if the table cannot be written.
bool replace_virtual(void **slot, void *replacement);

// A line on stderr, as the simulated driver has them.
void say(const std::string &text);
void fail(TF_OpKernelConstruction *, TF_Code, const std::string &text);
void fail(TF_OpKernelContext *, TF_Code, const std::string &text);
std::string text_of(const Status &);
// The text of an error for what a GPU can do and a simulated one cannot. gpudiag knows it by this form (simulator/limits.py): it
// must never be taken for a fault of the machine.
std::string beyond_simulation(const std::string &what, const std::string &why = "");

#endif
