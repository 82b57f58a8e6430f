/* CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, as the CUDA C++ Programming Guide ("CUDA Environment Variables")
 * and the MIG User Guide document them. What is not documented (odd spellings) follows common reports. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "simulator.h"

/* GPUs in the order that indices in CUDA_VISIBLE_DEVICES refer to. FASTEST_FIRST promises only that the fastest is
 * number 0; the model here: by speed, equals in PCI order. */
static void order_gpus(const struct machine *machine, const char *device_order, int *order) {
    for (int i = 0; i < machine->gpu_count; i++) order[i] = i;
    if (device_order && !strcmp(device_order, "PCI_BUS_ID")) return;
    for (int i = 1; i < machine->gpu_count; i++)
        for (int j = i; j > 0 && machine->gpus[order[j]].speed > machine->gpus[order[j - 1]].speed; j--) {
            int swapped = order[j];
            order[j] = order[j - 1];
            order[j - 1] = swapped;
        }
}

/* A GPU in MIG mode named as a whole is its first instance. */
static struct unit whole_or_first_instance(const struct machine *machine, int gpu) {
    return (struct unit){gpu, machine->gpus[gpu].mig_instances ? 0 : -1};
}

/* The one unit whose UUID begins with `text`; false where none or several do. */
static bool find_uuid(const struct machine *machine, const char *text, struct unit *found) {
    int matches = 0;
    size_t length = strlen(text);
    for (int gpu = 0; gpu < machine->gpu_count; gpu++) {
        if (!strncasecmp(machine->gpus[gpu].uuid, text, length)) {
            *found = whole_or_first_instance(machine, gpu);
            matches++;
        }
        for (int mig = 0; mig < machine->gpus[gpu].mig_instances; mig++)
            if (!strncasecmp(machine->gpus[gpu].mig_uuid[mig], text, length)) {
                *found = (struct unit){gpu, mig};
                matches++;
            }
    }
    return matches == 1;
}

static bool find_entry(const struct machine *machine, const int *order, char *entry, struct unit *found) {
    while (isspace((unsigned char)*entry)) entry++;
    for (size_t length = strlen(entry); length && isspace((unsigned char)entry[length - 1]);) entry[--length] = '\0';
    if (!strncasecmp(entry, "GPU-", 4) || !strncasecmp(entry, "MIG-", 4)) return find_uuid(machine, entry, found);
    char *end;
    long index = strtol(entry, &end, 10);
    if (end == entry || index < 0 || index >= machine->gpu_count) return false;
    *found = whole_or_first_instance(machine, order[index]);
    return true;
}

/* "CUDA can only enumerate a single compute instance", and "will not enumerate non-MIG GPU if any compute instance is
 * enumerated on any other GPU" (MIG User Guide, CUDA Device Enumeration). Which of them a mixed list shows is not
 * documented; here its first entry decides. */
static int shown_together(struct unit *units, int count) {
    if (count && units[0].mig >= 0) return 1;
    int whole = 0;
    for (int i = 0; i < count; i++)
        if (units[i].mig < 0) units[whole++] = units[i];
    return whole;
}

int visible_units(const struct machine *machine, const char *device_order, const char *visible_devices,
                  struct unit *units) {
    int order[MAX_GPUS], count = 0;
    order_gpus(machine, device_order, order);
    if (!visible_devices) {
        for (int i = 0; i < machine->gpu_count; i++) units[count++] = whole_or_first_instance(machine, order[i]);
        return shown_together(units, count);
    }
    char *copy = strdup(visible_devices), *rest = copy, *entry;
    while (copy && (entry = strsep(&rest, ",")) && count < MAX_GPUS) {
        struct unit unit;
        if (!find_entry(machine, order, entry, &unit)) break; /* the list ends at the first invalid entry */
        bool duplicate = false;
        for (int i = 0; i < count; i++) duplicate |= units[i].gpu == unit.gpu && units[i].mig == unit.mig;
        if (duplicate) { /* and a device named twice leaves none */
            count = 0;
            break;
        }
        units[count++] = unit;
    }
    free(copy);
    return shown_together(units, count);
}
