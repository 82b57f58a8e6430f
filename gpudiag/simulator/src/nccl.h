// TensorFlow's own NCCL operations (NcclAllReduce, NcclReduce, NcclBroadcast), which have no CPU kernel. The collectives of
// tf.distribute are others: they run TensorFlow's ring, but for what TensorFlow refuses between GPUs.
#ifndef GPUDIAG_SIMULATOR_NCCL_H
#define GPUDIAG_SIMULATOR_NCCL_H

#include <memory>

#include "computation.h"
#include "wire.h"

// Null if the CPU kernel of `node` can be asked.
std::unique_ptr<Computation> by_nccl(const Node &node);

#endif
