/* A pretended libnvidia-ml.so.1: one GPU with known figures. NVML_STUB=old tells less, as an old chip or driver does;
   NVML_STUB=none has no GPU; NVML_STUB=broken cannot be initialised. */
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9, TIMEOUT = 10 };

static int device;
static int energy_reads, samples_alive, samples_made;

static int told(const char* what)
{
    const char* told = getenv("NVML_STUB");
    return told && !strcmp(told, what);
}

int nvmlInitWithFlags(unsigned flags) { return told("broken") ? DRIVER_NOT_LOADED : SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char* nvmlErrorString(int code) { return code == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "Some Error"; }

int nvmlDeviceGetCount_v2(unsigned* count)
{
    *count = told("none") ? 0 : 1;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle)
{
    *handle = &device;
    return index ? NOT_FOUND : SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle)
{
    *handle = &device;
    return strcmp(uuid, "GPU-stub") ? NOT_FOUND : SUCCESS;
}

int nvmlDeviceGetUUID(void* handle, char* text, unsigned size) { return strncpy(text, "GPU-stub", size), SUCCESS; }
int nvmlDeviceGetName(void* handle, char* text, unsigned size) { return strncpy(text, "Stub H200", size), SUCCESS; }

int nvmlDeviceGetMemoryInfo(void* handle, unsigned long long* memory)
{
    memory[0] = 16ull << 30; /* total, free, used */
    memory[1] = 13ull << 30;
    memory[2] = 3ull << 30;
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(void* handle, int* major, int* minor) { return *major = 9, *minor = 0, SUCCESS; }

int nvmlDeviceGetUtilizationRates(void* handle, unsigned* rates)
{
    rates[0] = 87;
    rates[1] = 12;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void* handle, int sensor, unsigned* celsius)
{
    *celsius = 61;
    return sensor ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetPowerUsage(void* handle, unsigned* milliwatts)
{
    *milliwatts = 345678;
    return told("old") ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetTotalEnergyConsumption(void* handle, unsigned long long* millijoules)
{
    *millijoules = 5000000ull + 1500 * energy_reads++;
    return told("old") ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetClockInfo(void* handle, int which, unsigned* megahertz)
{
    *megahertz = which == 1 ? 1755 : which == 2 ? 2619 : 7;
    return SUCCESS;
}

int nvmlDeviceGetPcieThroughput(void* handle, int which, unsigned* kilobytes)
{
    *kilobytes = which ? 4000 : 3000; /* 0: sent, 1: received */
    return told("old") ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void* handle, unsigned long long* reasons)
{
    *reasons = 0x1 | 0x4 | 0x40 | 0x10000;
    return SUCCESS;
}

static int events_left;
static const unsigned long long xids[] = {13, 43, 79, 31};

struct event { void* device; unsigned long long type, data; unsigned instance, compute; };

/* NVML_STUB=xid: four errors wait, of which programs cause the first two. NVML_STUB=programs: these two alone. */
int nvmlEventSetCreate(void** set) { return *set = &events_left, told("old") ? NOT_SUPPORTED : SUCCESS; }

int nvmlDeviceRegisterEvents(void* handle, unsigned long long types, void* set)
{
    events_left = told("xid") ? 4 : told("programs") ? 2 : 0;
    return types == 8 && set == &events_left ? SUCCESS : NOT_SUPPORTED;
}

int nvmlEventSetWait_v2(void* set, struct event* event, unsigned milliseconds)
{
    if (!events_left || milliseconds) return TIMEOUT;
    event->device = &device;
    event->type = 8;
    event->data = told("xid") ? xids[4 - events_left] : xids[2 - events_left];
    events_left--;
    return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(void* handle, int type, int counter, unsigned long long* count)
{
    *count = type != 1 || counter != 0 ? 7 : told("ecc") ? 2 : 0;
    return told("old") ? NOT_SUPPORTED : SUCCESS;
}

struct support { unsigned version, supported; };
struct metric { unsigned id; int code; double value; char *short_name, *long_name, *unit; };
struct asked { unsigned version, count; int *before, *after; struct metric metrics[1]; };

/* From Hopper on. */
int nvmlGpmQueryDeviceSupport(void* handle, struct support* support)
{
    support->supported = !told("old");
    return SUCCESS;
}

int nvmlGpmSampleAlloc(int** sample)
{
    *sample = malloc(sizeof **sample);
    samples_alive++;
    return *sample ? SUCCESS : NOT_FOUND;
}

int nvmlGpmSampleGet(void* handle, int* sample) { return *sample = samples_made++, SUCCESS; }

int nvmlGpmSampleFree(int* sample)
{
    free(sample);
    samples_alive--;
    return SUCCESS;
}

int nvmlGpmMetricsGet(struct asked* asked)
{
    if (asked->count != 1 || asked->metrics[0].id != 2 || *asked->after != *asked->before + 1) return NOT_SUPPORTED;
    asked->metrics[0].code = SUCCESS;
    asked->metrics[0].value = 71.25;
    return SUCCESS;
}

int stub_samples_alive(void) { return samples_alive; }
