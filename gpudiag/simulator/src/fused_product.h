// _FusedMatMul with an activation that cuBLASLt and cuDNN fuse, and TensorFlow's CPU kernel does not: GELU, tanh, sigmoid.
#ifndef GPUDIAG_SIMULATOR_FUSED_PRODUCT_H
#define GPUDIAG_SIMULATOR_FUSED_PRODUCT_H

#include <memory>

#include "computation.h"
#include "wire.h"

// Null if `node` is not one.
std::unique_ptr<Computation> fused_product(const Node &node);

#endif
