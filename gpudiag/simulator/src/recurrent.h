// cuDNN's recurrent layers (CudnnRNN, CudnnRNNBackprop and their later versions), which have no CPU kernel.
#ifndef GPUDIAG_SIMULATOR_RECURRENT_H
#define GPUDIAG_SIMULATOR_RECURRENT_H

#include <memory>

#include "computation.h"
#include "wire.h"

// Null if `node` is not one of them.
std::unique_ptr<Computation> recurrent(const Node &node);

#endif
