// A CUDA kernel that an operation launches cannot run here: the operation fails, and nothing else does.
#ifndef GPUDIAG_SIMULATOR_LAUNCHES_H
#define GPUDIAG_SIMULATOR_LAUNCHES_H

#include "tensorflow.h"

// If this TensorFlow cannot be told, a launch stops the device instead (driver.c).
void fail_refused_launches_alone(const Libraries &);

#endif
