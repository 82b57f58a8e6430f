// Each result is the gradient's value at the position that pooling had kept. Its texts are those of maxpooling_op.cc.

#include "second_gradient.h"

#include <algorithm>
#include <cstring>

#include "eager.h"

namespace {

std::string text_of(const std::vector<int64_t> &shape) {
    std::string text = "[";
    for (int64_t size : shape) text += (text.size() > 1 ? "," : "") + std::to_string(size);
    return text + "]";
}

class AtPositions : public ComputationWithWork {
  public:
    explicit AtPositions(const Node &node)
        : counts_batch_(node.number("include_batch_in_index")), is_same_(node.text("padding") == "SAME"), window_(node.numbers("ksize")),
          strides_(node.numbers("strides")) {}

  private:
    void compute_with(Work &work) const override {
        Tensor input = work.input(0), gradient = work.input(1), positions = work.input(2);
        if (!work.ok()) return;
        const std::vector<int64_t> from = shape_of(gradient.get()), shape = shape_of(positions.get());
        const std::vector<int64_t> wanted = shape_of(input.get());
        if (from != wanted)
            return work.fail(TF_INVALID_ARGUMENT, "Expected grad shape to be " + text_of(wanted) + ", but got " + text_of(from));
        if (from.size() != 4) return work.fail(TF_INVALID_ARGUMENT, "tensor_in must be 4-dimensional");
        const std::vector<int64_t> pooled = {from[0], pooled_size(from, 1), pooled_size(from, 2), from[3]};
        if (shape != pooled)
            return work.fail(TF_INVALID_ARGUMENT, "Expected argmax shape to be " + text_of(pooled) + ", but got " + text_of(shape));
        const int64_t image = from[1] * from[2] * from[3], all = from[0] * image, each = shape[1] * shape[2] * shape[3];
        const size_t size = all ? bytes_of(gradient.get()) / static_cast<size_t>(all) : 0;
        Tensor made = work.output(0, type_of(gradient.get()), shape, static_cast<size_t>(shape[0] * each) * size);
        if (!made) return;
        for (int64_t i = 0; i < shape[0] * each; i++) {
            const int64_t position = at(positions.get(), i) + (counts_batch_ ? 0 : i / each * image);
            if (position < 0 || position >= all) return work.fail(TF_INVALID_ARGUMENT, "argmax names a position outside of the input");
            std::memcpy(data_of(made.get()) + static_cast<size_t>(i) * size,
                        data_of(gradient.get()) + static_cast<size_t>(position) * size, size);
        }
    }

    int64_t pooled_size(const std::vector<int64_t> &from, size_t dimension) const {
        const int64_t beside = is_same_ ? 1 : window_[dimension];
        return std::max<int64_t>(0, (from[dimension] - beside + strides_[dimension]) / strides_[dimension]);
    }

    static int64_t at(const TF_Tensor *positions, int64_t index) {
        const char *data = data_of(positions);
        return type_of(positions) == INT32 ? reinterpret_cast<const int32_t *>(data)[index]
                                           : reinterpret_cast<const int64_t *>(data)[index];
    }

    const bool counts_batch_, is_same_;
    const std::vector<int64_t> window_, strides_;
};

}  // namespace

std::unique_ptr<Computation> second_gradient(const Node &node) {
    return node.op == "MaxPoolGradGradWithArgmax" ? std::make_unique<AtPositions>(node) : nullptr;
}
