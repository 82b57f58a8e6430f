// What the kernel of a node does if it is more than to forward to a CPU kernel.
#ifndef GPUDIAG_SIMULATOR_COMPUTATION_H
#define GPUDIAG_SIMULATOR_COMPUTATION_H

#include "tensorflow.h"

struct Computation {
    virtual ~Computation() = default;
    virtual void compute(TF_OpKernelContext *) const = 0;
    // Of an asynchronous kernel: calls `finish` when it is done.
    virtual void compute_async(TF_OpKernelContext *context, std::function<void()> finish) const {
        compute(context);
        finish();
    }
};

#endif
