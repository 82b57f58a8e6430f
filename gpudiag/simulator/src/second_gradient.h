// MaxPoolGradGradWithArgmax: the second gradient of pooling that keeps positions has no CPU kernel.
#ifndef GPUDIAG_SIMULATOR_SECOND_GRADIENT_H
#define GPUDIAG_SIMULATOR_SECOND_GRADIENT_H

#include <memory>

#include "computation.h"
#include "wire.h"

// Null if `node` is not one.
std::unique_ptr<Computation> second_gradient(const Node &node);

#endif
