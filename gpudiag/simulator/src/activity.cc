// A profiler hears of every operation that runs on a simulated GPU as of one kernel, named as TensorFlow's own rows name
// operations: node:Type. What TensorFlow runs on a GPU goes through two virtual functions of its device, which are replaced;
// while no profiler listens (cupti.c), they ask for that and no more.

#include <algorithm>
#include <unordered_set>

#include "tensorflow.h"

namespace {

uint64_t (*begins)();
void (*ended)(const char *name, uint64_t start);
void (*compute)(void *device, OpKernel *, TF_OpKernelContext *);
void (*compute_async)(void *device, AsyncOpKernel *, TF_OpKernelContext *, std::function<void()> done);

// Operations that launch nothing on a real GPU: they pass tensors on, look at shapes, hold variables, or call others.
const std::unordered_set<std::string> WITHOUT_KERNEL = {
    "Assert", "Bitcast", "Const", "ControlTrigger", "DestroyResourceOp", "EnsureShape", "Enter", "Exit", "ExpandDims",
    "Identity", "IdentityN", "LoopCond", "Merge", "NextIteration", "NoOp", "Placeholder", "PlaceholderWithDefault",
    "PreventGradient", "Rank", "ReadVariableOp", "RefIdentity", "Reshape", "Shape", "ShapeN", "Size", "Squeeze",
    "StopGradient", "Switch", "VarHandleOp", "VarIsInitializedOp", "Variable", "VariableShape", "VariableV2", "_Arg",
    "_DeviceArg", "_DeviceRetval", "_HostRecv", "_HostSend", "_Recv", "_Retval", "_Send", "_SwitchN", "_VarHandlesOp"};

// The name, which outlives every profile; null for an operation without a kernel.
const char *name_of(const OpKernel *kernel, const TF_OpKernelContext *context, bool asynchronous) {
    std::string name = kernel->TraceString(*context, false);
    name.resize(std::min(name.size(), name.find('#')));  // what a transfer says of its ends
    const std::string type = name.substr(name.rfind(':') + 1);
    // Of the asynchronous ones, most wait for the host, or for other operations, which are reported themselves.
    if (asynchronous ? type.find("Collective") && type.find("Nccl") : WITHOUT_KERNEL.count(type)) return nullptr;
    static thread_local auto &names = *new std::unordered_set<std::string>;  // no lock, which a fork could leave held
    return names.insert(name).first->c_str();
}

void compute_and_report(void *device, OpKernel *kernel, TF_OpKernelContext *context) {
    const uint64_t start = begins();
    compute(device, kernel, context);
    if (!start) return;
    if (const char *name = name_of(kernel, context, false)) ended(name, start);
}

void compute_async_and_report(void *device, AsyncOpKernel *kernel, TF_OpKernelContext *context, std::function<void()> done) {
    const uint64_t start = begins();
    const char *name = start ? name_of(kernel, context, true) : nullptr;  // now: with `done`, both may be gone
    compute_async(device, kernel, context, std::move(done));
    if (name) ended(name, start);
}

// Puts `replacement` into the table of TensorFlow's GPU device, in the place of what its base class has under this name;
// what was there, which may be a replacement already (launches.cc), becomes `function`.
template <class Function>
void replace(const Libraries &libraries, const char *name, Function &function, Function replacement) {
    const char *base = "_ZTVN10tensorflow13BaseGPUDeviceE";
    void **slot = virtual_slot(libraries, base, name);
    auto **bases = static_cast<void **>(libraries.address(base)), **own = static_cast<void **>(libraries.address("_ZTVN10tensorflow9GPUDeviceE"));
    if (!slot || !own) return;
    void **place = own + (slot - bases);
    function = reinterpret_cast<Function>(*place);
    replace_virtual(place, reinterpret_cast<void *>(replacement));
}

}  // namespace

// After kernels are forwarded. If this TensorFlow does not have these functions, profiles lack the kernels, and no more.
extern "C" __attribute__((visibility("default"))) void gpudiag_report_kernels() {
    void *core = dlopen("libgpudiag_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    const Libraries cores{&core, 1};
    if (!cores.find("gpudiag_kernel_begins", begins) || !cores.find("gpudiag_kernel_ended", ended)) return;
    void *const handles[] = {
        dlopen("libtensorflow_framework.so.2", RTLD_LAZY | RTLD_NOLOAD),
        dlopen("libtensorflow_cc.so.2", RTLD_LAZY | RTLD_NOLOAD),
    };
    const Libraries libraries{handles, sizeof handles / sizeof *handles};
    replace(libraries, "_ZN10tensorflow13BaseGPUDevice7ComputeEPNS_8OpKernelEPNS_15OpKernelContextE", compute, compute_and_report);
    replace(libraries, "_ZN10tensorflow13BaseGPUDevice12ComputeAsyncEPNS_13AsyncOpKernelEPNS_15OpKernelContextESt8functionIFvvEE",
            compute_async, compute_async_and_report);
}
