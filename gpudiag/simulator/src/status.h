// What absl::Status is in memory, for the files that call TensorFlow's C++ functions.
#ifndef GPUDIAG_SIMULATOR_STATUS_H
#define GPUDIAG_SIMULATOR_STATUS_H

#include <cstdint>
#include <string>

enum TF_Code { TF_OK = 0, TF_INVALID_ARGUMENT = 3, TF_NOT_FOUND = 5, TF_ABORTED = 10, TF_UNIMPLEMENTED = 12, TF_INTERNAL = 13 };  // tsl/c/tsl_status.h

// absl/status/status.h: one word, returned in memory because it has a destructor. Its references are never dropped here:
// statuses are only made for errors, which are few.
struct Status {
    uintptr_t word;
    explicit Status(uintptr_t w) : word(w) {}
    Status(const Status &other) : word(other.word) {}
    ~Status() {}
};

// absl/status/internal/status_internal.h: StatusRep
struct StatusContent {
    int32_t references;
    int32_t code;
    std::string message;
};

extern uintptr_t ok_word;  // the word of an OK status: absl changed it in 2024

inline bool is_inline(uintptr_t word) { return (word & 1) == (ok_word & 1); }

inline const StatusContent *content_of(const Status &status) {
    return is_inline(status.word) ? nullptr : reinterpret_cast<const StatusContent *>(status.word & ~uintptr_t{1});
}

#endif
