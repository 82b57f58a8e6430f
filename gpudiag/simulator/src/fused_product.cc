// In float32 whatever the type, as those libraries do. Source of what is fused: remapper.cc, IsSupportedActivation.

#include "fused_product.h"

#include <cmath>

#include "eager.h"

namespace {

using Activation = float (*)(float);

float gelu_approximate(float x) {
    return 0.5F * x * (1 + std::tanh(0.7978845608028654F * (x + 0.044715F * x * x * x)));  // the first number is sqrt(2 / pi)
}
float gelu_exact(float x) { return 0.5F * x * std::erfc(-0.7071067811865476F * x); }
float hyperbolic_tangent(float x) { return std::tanh(x); }
float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

const std::map<std::string, Activation> ACTIVATIONS = {
    {"GeluApproximate", gelu_approximate}, {"GeluExact", gelu_exact}, {"Tanh", hyperbolic_tangent}, {"Sigmoid", sigmoid}};

class FusedProduct : public ComputationWithWork {
  public:
    FusedProduct(const Node &node, Activation activation)
        : a_(node.number("transpose_a")), b_(node.number("transpose_b")), activation_(activation) {}

  private:
    void compute_with(Work &work) const override {
        Tensor a = single(work, 0), b = single(work, 1), bias = single(work, 2);
        if (!work.ok()) return;
        Operation multiply(work, "MatMul");
        multiply.truth("transpose_a", a_).truth("transpose_b", b_).type("T", FLOAT).input(a.get()).input(b.get());
        const std::vector<Tensor> product = multiply.run(1);
        if (!work.ok()) return;
        Operation add(work, "BiasAdd");
        add.type("T", FLOAT).input(product[0].get()).input(bias.get());
        const std::vector<Tensor> sum = add.run(1);
        if (!work.ok()) return;
        Tensor made = new_tensor(FLOAT, shape_of(sum[0].get()), bytes_of(sum[0].get()));
        auto *from = reinterpret_cast<const float *>(data_of(sum[0].get()));
        auto *to = reinterpret_cast<float *>(data_of(made.get()));
        for (size_t i = 0; i < bytes_of(made.get()) / sizeof(float); i++) to[i] = activation_(from[i]);
        if (work.output_type(0) != FLOAT) made = cast(work, made.get(), work.output_type(0));
        if (work.ok()) work.output(0, made.get());
    }

    static Tensor single(Work &work, int index) {
        if (!work.ok()) return nullptr;
        Tensor given = work.input(index);
        return work.ok() && type_of(given.get()) != FLOAT ? cast(work, given.get(), FLOAT) : std::move(given);
    }

    const bool a_, b_;
    const Activation activation_;
};

}  // namespace

std::unique_ptr<Computation> fused_product(const Node &node) {
    const auto fused = node.attributes.find("fused_ops");
    const int64_t type = node.number("T");
    if (node.op != "_FusedMatMul" || fused == node.attributes.end() || node.number("num_args") != 1) return nullptr;
    if (type != FLOAT && !has_16_bits(type)) return nullptr;
    for (const auto &[name, activation] : ACTIVATIONS)
        if (fused->second.find(name) != std::string::npos) return std::make_unique<FusedProduct>(node, activation);
    return nullptr;
}
