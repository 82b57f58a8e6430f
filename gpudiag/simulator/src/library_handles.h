// An operation that a real GPU does through a library of NVIDIA's asks for that library's handle before it is forwarded.
#ifndef GPUDIAG_SIMULATOR_LIBRARY_HANDLES_H
#define GPUDIAG_SIMULATOR_LIBRARY_HANDLES_H

#include <cstddef>
#include <string>

#include "status.h"

struct TF_OpKernelContext;

// What TensorFlow raises; an empty text: nothing.
struct Refusal {
    TF_Code code;
    std::string text;
};

struct LibraryUse;

// Look up TensorFlow's functions. What a release lacks is not asked for.
void find_library_handles(void *const *libraries, size_t count);
// The library through which a GPU does `op`, or null. `hint` is the attribute communication_hint of a collective.
const LibraryUse *library_use(const std::string &op, const std::string &hint);
Refusal ask_for_handle(const LibraryUse &, TF_OpKernelContext *);

#endif
