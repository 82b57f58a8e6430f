/* Keeps the host memory of a large simulated GPU untouched.
 *
 * TensorFlow's BFC allocator keeps one 8-byte handle for every 256 bytes of its pool and writes -1 into all of them at once:
 * 1/32 of the GPU's memory, 2.5 GiB and a second for an 80 GiB card (measured on 2.21.0: 0.17 s for 14 GiB). On a machine
 * with a real GPU that is noticed by nobody; here it would be most of the start-up time, and four such GPUs would fill a
 * laptop. So the one function that fills the vector, std::vector<unsigned long>::_M_fill_insert, which the framework library
 * calls through its procedure linkage table, is replaced there: a large new vector of -1 is mapped, copy on write, from
 * a small file of ones, and costs memory only where handles are used. Where anything is not as expected, the original runs.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char FILL_INSERT[] = "_ZNSt6vectorImSaImEE14_M_fill_insertEN9__gnu_cxx17__normal_iteratorIPmS1_EEmRKm";

enum { ONES = 8 << 20, LARGE = 64 << 20 };

struct vector { /* libstdc++: bits/stl_vector.h, _Vector_impl_data */
    uint64_t *begin, *end, *capacity;
};

static void (*fill_insert)(struct vector *, uint64_t *, size_t, const uint64_t *);

/* A file of ONES bytes 0xff, made once a process. */
static int file_of_ones(void) {
    static int file = -1;
    if (file >= 0) return file;
    int made = memfd_create("gpudiag-ones", MFD_CLOEXEC);
    void *page = made >= 0 && !ftruncate(made, ONES) ? mmap(NULL, ONES, PROT_WRITE, MAP_SHARED, made, 0) : MAP_FAILED;
    if (page == MAP_FAILED) {
        if (made >= 0) close(made);
        return -1;
    }
    memset(page, 0xff, ONES);
    munmap(page, ONES);
    return file = made;
}

static void *allocate_ones(size_t bytes) {
    int file = file_of_ones();
    char *memory = file >= 0 ? malloc(bytes) : NULL;
    if (!memory) return NULL;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    char *first = (char *)(((uintptr_t)memory + page - 1) & ~(page - 1));
    char *last = (char *)(((uintptr_t)memory + bytes) & ~(page - 1));
    memset(memory, 0xff, (size_t)(first - memory));
    memset(last, 0xff, (size_t)(memory + bytes - last));
    for (char *at = first; at < last; at += ONES) {
        size_t size = (size_t)(last - at) < ONES ? (size_t)(last - at) : ONES;
        if (mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0) == MAP_FAILED) memset(at, 0xff, size);
    }
    return memory;
}

static void fill_insert_lazily(struct vector *vector, uint64_t *position, size_t count, const uint64_t *value) {
    if (!vector->begin && *value == UINT64_MAX && count >= LARGE / sizeof *value) {
        uint64_t *memory = allocate_ones(count * sizeof *value);
        if (memory) {
            vector->begin = memory;
            vector->end = vector->capacity = memory + count;
            return;
        }
    }
    fill_insert(vector, position, count, value);
}

/* glibc gives a large block its own mapping and unmaps it when it is freed. Other allocators keep such pages and may expect
 * zeros after giving them back to the kernel. */
static bool malloc_is_glibc(void) {
    Dl_info info;
    return dladdr(dlsym(RTLD_DEFAULT, "malloc"), &info) && strstr(info.dli_fname, "libc.so");
}

/* True where the function was replaced in `library`, a handle of dlopen. */
bool map_pool_handles_lazily(void *library) {
    struct link_map *map;
    fill_insert = (void (*)(struct vector *, uint64_t *, size_t, const uint64_t *))dlsym(library, FILL_INSERT);
    if (!fill_insert || !malloc_is_glibc() || dlinfo(library, RTLD_DI_LINKMAP, &map)) return false;
    const Elf64_Rela *relocations = NULL;
    const Elf64_Sym *symbols = NULL;
    const char *names = NULL;
    size_t size = 0;
    for (const Elf64_Dyn *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_JMPREL) relocations = (const Elf64_Rela *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_PLTRELSZ) size = entry->d_un.d_val;
        if (entry->d_tag == DT_SYMTAB) symbols = (const Elf64_Sym *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_STRTAB) names = (const char *)entry->d_un.d_ptr;
    }
    for (size_t i = 0; relocations && symbols && names && i < size / sizeof *relocations; i++) {
        if (strcmp(names + symbols[ELF64_R_SYM(relocations[i].r_info)].st_name, FILL_INSERT)) continue;
        void **slot = (void **)(map->l_addr + relocations[i].r_offset);
        uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
        if (mprotect((void *)((uintptr_t)slot & ~(page - 1)), page, PROT_READ | PROT_WRITE)) return false;
        *slot = (void *)fill_insert_lazily;
        return true;
    }
    return false;
}
