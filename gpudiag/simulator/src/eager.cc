#include "eager.h"

#include <cstring>
#include <mutex>

namespace {

struct {
    void *(*new_options)();
    void (*set_config)(void *options, const void *proto, size_t bytes, TF_Status *);
    void *(*new_context)(const void *options, TF_Status *);
    void (*delete_options)(void *options);
    void *(*new_operation)(void *context, const char *name, TF_Status *);
    void (*delete_operation)(void *operation);
    void (*add_input)(void *operation, void *handle, TF_Status *);
    void (*set_packed)(void *operation, const char *name, const void *proto, size_t bytes, TF_Status *);
    void (*set_text)(void *operation, const char *name, const void *value, size_t length);
    void (*set_type)(void *operation, const char *name, int value);
    void (*set_truth)(void *operation, const char *name, unsigned char value);
    void (*set_numbers)(void *operation, const char *name, const int64_t *values, int count);
    void (*execute)(void *operation, void **handles, int *count, TF_Status *);
    void *(*new_handle)(const TF_Tensor *, TF_Status *);
    void (*delete_handle)(void *handle);
    TF_Tensor *(*resolve)(void *handle, TF_Status *);
    void (*get_input)(TF_OpKernelContext *, int index, TF_Tensor **, TF_Status *);
    int (*count_inputs)(TF_OpKernelContext *);
    int (*count_outputs)(TF_OpKernelContext *);
    int (*output_type)(TF_OpKernelContext *, int index);
    int64_t (*step)(TF_OpKernelContext *);
    uint64_t (*frame)(TF_OpKernelContext *);
    int64_t (*iteration)(TF_OpKernelContext *);
    TF_Tensor *(*allocate)(int type, const int64_t *dimensions, int count, size_t bytes);
    int (*type)(const TF_Tensor *);
    int (*rank)(const TF_Tensor *);
    int64_t (*dimension)(const TF_Tensor *, int index);
    size_t (*bytes)(const TF_Tensor *);
    size_t (*type_size)(int type);
} eager;

// Made when first needed: a process that forks later must not have its threads.
void *context_without_gpu(TF_Status *status) {
    // ConfigProto: device_count {"GPU": 0}, inter_op_parallelism_threads 1
    static const char CONFIG[] = "\x0a\x07\x0a\x03GPU\x10\x00\x28\x01";
    static std::mutex mutex;
    static void *context;
    std::lock_guard<std::mutex> guard(mutex);
    if (context) return context;
    void *options = eager.new_options();
    eager.set_config(options, CONFIG, sizeof CONFIG - 1, status);
    if (tf.get_code(status) == TF_OK) context = eager.new_context(options, status);
    eager.delete_options(options);
    return context;
}

}  // namespace

const char *find_eager(const Libraries &libraries) {
#define FIND(function, name) \
    if (!libraries.find(name, eager.function)) return "this TensorFlow does not export " name
    FIND(new_options, "TFE_NewContextOptions");
    FIND(set_config, "TFE_ContextOptionsSetConfig");
    FIND(new_context, "TFE_NewContext");
    FIND(delete_options, "TFE_DeleteContextOptions");
    FIND(new_operation, "TFE_NewOp");
    FIND(delete_operation, "TFE_DeleteOp");
    FIND(add_input, "TFE_OpAddInput");
    FIND(set_packed, "TFE_OpSetAttrValueProto");
    FIND(set_text, "TFE_OpSetAttrString");
    FIND(set_type, "TFE_OpSetAttrType");
    FIND(set_truth, "TFE_OpSetAttrBool");
    FIND(set_numbers, "TFE_OpSetAttrIntList");
    FIND(execute, "TFE_Execute");
    FIND(new_handle, "TFE_NewTensorHandle");
    FIND(delete_handle, "TFE_DeleteTensorHandle");
    FIND(resolve, "TFE_TensorHandleResolve");
    FIND(get_input, "TF_GetInput");
    FIND(count_inputs, "TF_NumInputs");
    FIND(count_outputs, "TF_NumOutputs");
    FIND(output_type, "TF_ExpectedOutputDataType");
    FIND(step, "TF_StepId");
    FIND(frame, "TF_GetFrameId");
    FIND(iteration, "TF_GetIterId");
    FIND(allocate, "TF_AllocateTensor");
    FIND(type, "TF_TensorType");
    FIND(rank, "TF_NumDims");
    FIND(dimension, "TF_Dim");
    FIND(bytes, "TF_TensorByteSize");
    FIND(type_size, "TF_DataTypeSize");
#undef FIND
    return nullptr;
}

void DeleteTensor::operator()(TF_Tensor *tensor) const { tf.delete_tensor(tensor); }

int type_of(const TF_Tensor *tensor) { return eager.type(tensor); }
size_t bytes_of(const TF_Tensor *tensor) { return eager.bytes(tensor); }
char *data_of(const TF_Tensor *tensor) { return static_cast<char *>(tf.tensor_data(tensor)); }

std::vector<int64_t> shape_of(const TF_Tensor *tensor) {
    std::vector<int64_t> shape(static_cast<size_t>(eager.rank(tensor)));
    for (size_t i = 0; i < shape.size(); i++) shape[i] = eager.dimension(tensor, static_cast<int>(i));
    return shape;
}

Tensor new_tensor(int type, const std::vector<int64_t> &shape, size_t bytes) {
    return Tensor(eager.allocate(type, shape.data(), static_cast<int>(shape.size()), bytes));
}

Tensor zeros(int type, const std::vector<int64_t> &shape) {
    size_t bytes = eager.type_size(type);
    for (int64_t size : shape) bytes *= static_cast<size_t>(size);
    Tensor made = new_tensor(type, shape, bytes);
    std::memset(data_of(made.get()), 0, bytes);
    return made;
}

Work::Work(TF_OpKernelContext *of) : context(of), status(tf.new_status()) {}
Work::~Work() { tf.delete_status(status); }
int Work::inputs() const { return eager.count_inputs(context); }
int Work::outputs() const { return eager.count_outputs(context); }
bool Work::ok() const { return tf.get_code(status) == TF_OK; }

Tensor Work::input(int index) {
    TF_Tensor *tensor = nullptr;
    if (ok()) eager.get_input(context, index, &tensor, status);
    return Tensor(tensor);
}

Tensor Work::output(int index, int type, const std::vector<int64_t> &shape, size_t bytes) {
    if (!ok()) return nullptr;
    return Tensor(tf.allocate_output(context, index, type, shape.data(), static_cast<int>(shape.size()), bytes, status));
}

void Work::output(int index, const TF_Tensor *tensor) {
    Tensor made = output(index, type_of(tensor), shape_of(tensor), bytes_of(tensor));
    if (made && bytes_of(tensor)) std::memcpy(data_of(made.get()), data_of(tensor), bytes_of(tensor));
}

int Work::output_type(int index) const { return eager.output_type(context, index); }

std::string Work::step() const {
    return std::to_string(eager.step(context)) + ";" + std::to_string(eager.frame(context)) + ":" +
           std::to_string(eager.iteration(context));
}

void Work::forget_failure() { tf.set_status(status, TF_OK, ""); }

void Work::fail(TF_Code code, const std::string &text) {
    if (ok()) tf.set_status(status, code, text.c_str());
}

void Work::report() {
    if (!ok()) tf.computation_failed(context, status);
}

void ComputationWithWork::compute(TF_OpKernelContext *context) const {
    Work work(context);
    compute_with(work);
    work.report();
}

Operation::Operation(Work &work, const std::string &name) : work_(work), operation_(nullptr) {
    void *context = work.ok() ? context_without_gpu(work.status) : nullptr;
    if (context) operation_ = eager.new_operation(context, name.c_str(), work.status);
}

Operation::~Operation() {
    if (operation_) eager.delete_operation(operation_);
}

Operation &Operation::packed(const std::string &name, const std::string &value) {
    if (work_.ok()) eager.set_packed(operation_, name.c_str(), value.data(), value.size(), work_.status);
    return *this;
}

Operation &Operation::text(const std::string &name, const std::string &value) {
    if (work_.ok()) eager.set_text(operation_, name.c_str(), value.data(), value.size());
    return *this;
}

Operation &Operation::type(const std::string &name, int value) {
    if (work_.ok()) eager.set_type(operation_, name.c_str(), value);
    return *this;
}

Operation &Operation::truth(const std::string &name, bool value) {
    if (work_.ok()) eager.set_truth(operation_, name.c_str(), value);
    return *this;
}

Operation &Operation::numbers(const std::string &name, const std::vector<int64_t> &values) {
    if (work_.ok()) eager.set_numbers(operation_, name.c_str(), values.data(), static_cast<int>(values.size()));
    return *this;
}

Operation &Operation::input(const TF_Tensor *tensor) {
    void *handle = work_.ok() ? eager.new_handle(tensor, work_.status) : nullptr;
    if (handle && work_.ok()) eager.add_input(operation_, handle, work_.status);
    if (handle) eager.delete_handle(handle);
    return *this;
}

std::vector<Tensor> Operation::run(int outputs) {
    std::vector<Tensor> results;
    if (!work_.ok()) return results;
    std::vector<void *> handles(static_cast<size_t>(outputs));
    eager.execute(operation_, handles.data(), &outputs, work_.status);
    if (!work_.ok()) return results;
    for (void *handle : handles) {
        if (work_.ok()) results.emplace_back(eager.resolve(handle, work_.status));
        eager.delete_handle(handle);
    }
    if (!work_.ok()) results.clear();
    return results;
}

Tensor cast(Work &work, const TF_Tensor *tensor, int to) {
    if (type_of(tensor) == QINT8 || to == QINT8) {  // the same bits as int8
        Tensor made = new_tensor(to, shape_of(tensor), bytes_of(tensor));
        std::memcpy(data_of(made.get()), data_of(tensor), bytes_of(tensor));
        return made;
    }
    Operation operation(work, "Cast");
    operation.type("SrcT", type_of(tensor)).type("DstT", to).input(tensor);
    std::vector<Tensor> results = operation.run(1);
    return results.empty() ? nullptr : std::move(results[0]);
}
