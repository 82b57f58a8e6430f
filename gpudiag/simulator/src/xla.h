// What asks for XLA runs without it on a simulated GPU: compiled code cannot run there.
#ifndef GPUDIAG_SIMULATOR_XLA_H
#define GPUDIAG_SIMULATOR_XLA_H

#include <memory>

#include "computation.h"
#include "wire.h"

// For functions that must be compiled (jit_compile=True). If this TensorFlow cannot be told, they fail by their launches.
void leave_xla_off(const Libraries &);
// For clusters that TensorFlow makes by itself, and for operations of XLA; null if `node` is neither.
std::unique_ptr<Computation> without_xla(const Node &node);

#endif
