/* A stand-in for libnvidia-ml.so.1 with two boards, for tests of NVIDIA's real bindings without a GPU.
 *
 * Board 0 has UUID GPU-11111111-... at PCI bus 0x17, board 1 has GPU-22222222-... at 0x65; their readings differ.
 * STUB_FAIL="nvmlDeviceGetPowerUsage=3,74=4"  codes that functions, or single fields, return
 * STUB_MIG=1       board 0 is split and holds the instance MIG-33333333-...
 * STUB_ENERGY      "still": the counter never moves; else 100 W, and 200 W more while this process computes
 * STUB_STEP_MS     how often the energy counter moves (100)
 * STUB_THROTTLE=1  the software power cap counts up by itself, at each look
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };

typedef void *device;
typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, dev, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} pci_info;
typedef struct {
    uint32_t id, scope;
    int64_t timestamp, latency_us;
    uint32_t type, code;
    union {
        double d;
        unsigned long long ull;
    } value;
} field_value;
typedef struct {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
} process_info;

static int failing(const char *name) {
    const char *list = getenv("STUB_FAIL");
    size_t length = strlen(name);
    for (const char *at = list; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, name, length) && at[length] == '=')
            return atoi(at + length + 1);
    return OK;
}

static int is_set(const char *name) {
    const char *value = getenv(name);
    return value && *value && strcmp(value, "0");
}

#define CHECK() do { int code_ = failing(__func__); if (code_) return code_; } while (0)
#define BOARD(d) ((int)(uintptr_t)(d) - 1)
#define INSTANCE ((device)3)

int nvmlInitWithFlags(unsigned flags) { (void)flags; CHECK(); return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { (void)code; return "said by the stub"; }

int nvmlDeviceGetCount_v2(unsigned *count) { CHECK(); *count = 2; return OK; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *d) {
    CHECK();
    if (index > 1)
        return INVALID_ARGUMENT;
    *d = (device)(uintptr_t)(index + 1);
    return OK;
}

int nvmlDeviceGetUUID(device d, char *text, unsigned length) {
    static const char *uuids[] = {
        "GPU-11111111-1111-1111-1111-111111111111",
        "GPU-22222222-2222-2222-2222-222222222222",
        "MIG-33333333-3333-3333-3333-333333333333",
    };
    CHECK();
    snprintf(text, length, "%s", uuids[BOARD(d)]);
    return OK;
}

int nvmlDeviceGetName(device d, char *text, unsigned length) {
    CHECK();
    snprintf(text, length, "Stub %d", BOARD(d));
    return OK;
}

int nvmlDeviceGetPciInfo_v3(device d, pci_info *info) {
    CHECK();
    memset(info, 0, sizeof *info);
    info->bus = BOARD(d) == 1 ? 0x65 : 0x17;
    return OK;
}

int nvmlDeviceGetMigMode(device d, unsigned *current, unsigned *pending) {
    CHECK();
    *current = *pending = BOARD(d) == 0 && is_set("STUB_MIG");
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(device d, unsigned *count) { (void)d; CHECK(); *count = 7; return OK; }

int nvmlDeviceGetMigDeviceHandleByIndex(device d, unsigned index, device *instance) {
    CHECK();
    if (BOARD(d) != 0 || index != 2)
        return NOT_FOUND;
    *instance = INSTANCE;
    return OK;
}

int nvmlDeviceGetClockInfo(device d, unsigned kind, unsigned *mhz) {
    CHECK();
    if (d == INSTANCE)
        return NOT_SUPPORTED;
    *mhz = (kind == 1 ? 1500 : 2600) + BOARD(d);
    return OK;
}

int nvmlDeviceGetMaxClockInfo(device d, unsigned kind, unsigned *mhz) {
    CHECK();
    *mhz = (kind == 1 ? 1980 : 2619) + BOARD(d);
    return OK;
}

int nvmlDeviceGetFieldValues(device d, int count, field_value *values) {
    static unsigned long long ticks;
    char name[16];
    CHECK();
    if (d == INSTANCE)
        return NOT_SUPPORTED;
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%u", values[i].id);
        values[i].code = failing(name);
        values[i].type = 3; /* unsigned long long */
        values[i].value.ull = 7000;
        if (values[i].id == 74 && is_set("STUB_THROTTLE"))
            values[i].value.ull += ++ticks;
    }
    return OK;
}

int nvmlDeviceGetCurrentClocksEventReasons(device d, unsigned long long *mask) {
    CHECK();
    *mask = BOARD(d) == 1 ? 0x24 : 0x2;
    return OK;
}

int nvmlDeviceGetPowerUsage(device d, unsigned *mw) { CHECK(); *mw = 300000 + BOARD(d); return OK; }
int nvmlDeviceGetEnforcedPowerLimit(device d, unsigned *mw) { CHECK(); *mw = 700000 + BOARD(d); return OK; }

/* Only the old name, as in drivers before nvmlDeviceGetTemperatureV. */
int nvmlDeviceGetTemperature(device d, unsigned sensor, unsigned *celsius) {
    CHECK();
    if (sensor)
        return INVALID_ARGUMENT;
    *celsius = 60 + BOARD(d);
    return OK;
}

int nvmlDeviceGetPersistenceMode(device d, unsigned *mode) { CHECK(); *mode = BOARD(d) == 1; return OK; }

static double seconds(clockid_t which) {
    struct timespec t;
    clock_gettime(which, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int nvmlDeviceGetTotalEnergyConsumption(device d, unsigned long long *mj) {
    static unsigned long long shown;
    static double next;
    const char *kind = getenv("STUB_ENERGY"), *step = getenv("STUB_STEP_MS");
    double now = seconds(CLOCK_MONOTONIC);
    CHECK();
    if (d == INSTANCE)
        return NOT_SUPPORTED;
    if (now >= next && !(kind && !strcmp(kind, "still"))) {
        shown = (unsigned long long)(1e5 * now + 2e5 * seconds(CLOCK_PROCESS_CPUTIME_ID));
        next = now + 1e-3 * (step ? atof(step) : 100);
    }
    *mj = shown;
    return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(device d, unsigned *count, process_info *list) {
    unsigned room = *count;
    (void)d;
    CHECK();
    *count = 2;
    if (room < 2 || !list)
        return INSUFFICIENT_SIZE;
    memset(list, 0, 2 * sizeof *list);
    list[0].pid = (unsigned)getpid();
    list[1].pid = 4194999; /* beyond any process id of this machine */
    return OK;
}
