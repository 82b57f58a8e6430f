/* What programs hold of streams, events, modules, functions, pools and libraries: addresses in one region that is never given
 * back, so that a handle which is stale, or never was one, can be found out instead of being followed. A slot that was
 * freed is used again as late as possible. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>

#include "simulator.h"

enum { SLOTS = 1 << 18 };

struct slot {
    enum handle kind;
    unsigned next; /* free one */
    _Alignas(16) char body[HANDLE_ROOM];
};

static struct slot *slots; /* 64 MiB of address space; pages come when they are used */
static unsigned used, first_free, last_free, free_slots;

static struct slot *slot_of(const void *handle) {
    const struct slot *all = __atomic_load_n(&slots, __ATOMIC_ACQUIRE);
    uintptr_t offset = (uintptr_t)handle - (uintptr_t)all - offsetof(struct slot, body);
    if (!all || !handle || offset >= SLOTS * sizeof *all || offset % sizeof *all) return NULL;
    return slots + offset / sizeof *all;
}

static unsigned take_slot(void) {
    if (used < SLOTS && free_slots < SLOTS / 4) return used++;
    if (!free_slots) return SLOTS;
    unsigned slot = first_free;
    first_free = slots[slot].next;
    free_slots--;
    return slot;
}

void *handle_new(enum handle kind) {
    void *handle = NULL;
    hold(HANDLES_LOCK);
    if (!slots) {
        void *region = mmap(NULL, SLOTS * sizeof *slots, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (region != MAP_FAILED) __atomic_store_n(&slots, region, __ATOMIC_RELEASE);
    }
    unsigned slot = slots ? take_slot() : SLOTS;
    if (slot < SLOTS) {
        handle = memset(slots[slot].body, 0, HANDLE_ROOM);
        __atomic_store_n(&slots[slot].kind, kind, __ATOMIC_RELEASE);
    }
    let_go(HANDLES_LOCK);
    return handle;
}

bool handle_is(enum handle kind, const void *handle) {
    struct slot *slot = slot_of(handle);
    return slot && __atomic_load_n(&slot->kind, __ATOMIC_ACQUIRE) == kind;
}

void handle_becomes(enum handle kind, void *handle) { __atomic_store_n(&slot_of(handle)->kind, kind, __ATOMIC_RELEASE); }

bool handle_free(enum handle kind, void *handle) {
    hold(HANDLES_LOCK);
    bool mine = handle_is(kind, handle);
    if (mine) {
        struct slot *slot = slot_of(handle);
        slot->kind = NO_HANDLE;
        unsigned number = (unsigned)(slot - slots);
        if (free_slots++) slots[last_free].next = number;
        else first_free = number;
        last_free = number;
    }
    let_go(HANDLES_LOCK);
    return mine;
}
