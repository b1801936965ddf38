// GPU version of cpu_draws.py: random draws, using only integers.
//
// gpu_simulation.py defines LAW_*, DRAW_* (indexes of a key's random words) and WIDE.
#include "random.cuh"

typedef unsigned int u32;
typedef long long i64;

// Scalars and tables of a spec. They are kernel arguments, so the scalars occupy no registers.
struct Model {
    int roots, max_depth, cores, law, arrival_bits, warmup, max_threads;
    bool lifo, joins;
    i64 dispatch_ns, spawn_ns, join_ns, steal_ns, quantum_ns, arrival, budget;
    const i64 *laws, *logs, *values, *thresholds;
    i64 laws_length, values_length, thresholds_width; // width 0: one row for all depths
};

__device__ __forceinline__ int bin_of(i64 value)
{
    int msb = 63 - __clzll(value);
    return msb < 6 ? (int)value : (int)(64 * (msb - 5) + (value >> (msb - 6)) - 64);
}

// Returns -ln(U) in units of 2^-24 for U = (word | 1) / 2^64.
__device__ __forceinline__ i64 negative_log(u64 word, const i64* logs)
{
    word |= 1;
    int zeros = __clzll((i64)word);
    word <<= zeros;
    i64 index = (i64)(word >> 53 & 1023), fraction = (i64)(word >> 33 & 0xfffff);
    i64 step = (logs[index] - logs[index + 1]) * fraction;
    return zeros * logs[0] + logs[index] - ((step + 524288) >> 20);
}

// Returns the work of a thread in ns, at least 1.
__device__ __forceinline__ i64 draw_work(u64 key, const Model& model)
{
    const i64* laws = model.laws;
    i64 drawn;
    if (model.law == LAW_FIXED) {
        drawn = laws[0];
    } else {
        u64 word = sub(key, DRAW_WORK);
        if (model.law == LAW_EXPONENTIAL) {
            drawn = (laws[0] * negative_log(word, model.logs) + 8388608) >> 24;
        } else if (model.law == LAW_HYPEREXPONENTIAL) {
            bool slow = (i64)(sub(key, DRAW_BRANCH) >> 32) >= laws[0];
            drawn = ((slow ? laws[2] : laws[1]) * negative_log(word, model.logs) + 8388608) >> 24;
        } else if (model.law == LAW_PARETO) {
            i64 place = negative_log(word, model.logs), index = place >> 20;
            drawn = laws[index] + (((laws[index + 1] - laws[index]) * (place & 1048575)) >> 20);
        } else if (model.law == LAW_UNIFORM) {
            drawn = laws[0] + (((i64)(word >> 32) * laws[1]) >> 32);
        } else {
            i64 place = (i64)(word >> 32) * (model.laws_length - 1), index = place >> 32;
            drawn = laws[index] + (((laws[index + 1] - laws[index]) * ((place & 0xffffffff) >> 10)) >> 22);
        }
    }
    return drawn < 1 ? 1 : drawn;
}

__device__ __forceinline__ int draw_children(u64 key, int depth, const Model& model)
{
    if (depth >= model.max_depth) return 0;
    if (model.values_length == 1) return (int)model.values[0];
    i64 draw = (i64)(sub(key, DRAW_OFFSPRING) >> 32);
    const i64* row = model.thresholds + depth * model.thresholds_width;
    if (model.values_length == 2) return (int)model.values[draw >= row[0]];
    int index = 0;
    while (draw >= row[index]) index++;
    return (int)model.values[index];
}

// Returns the time between root number-1 and root `number`, in the units of the mean.
__device__ __forceinline__ i64 interarrival(u64 key, int number, const Model& model)
{
    u64 word = sub(sub(key, DRAW_ARRIVALS), (u64)number);
    return (model.arrival * negative_log(word, model.logs) + 8388608) >> 24;
}

// Returns the uniformly random other core that a core's steal attempt targets.
__device__ __forceinline__ int victim(u64 key, int core, i64 attempt, int cores)
{
    u64 draw = sub(sub(key, DRAW_VICTIMS) + mix((u64)core), (u64)attempt) >> 32;
    int other = (int)(draw * (u64)(cores - 1) >> 32);
    return other >= core ? other + 1 : other;
}

template <class High>
__device__ __forceinline__ void add_wide(i64& low, High& high, i64 value)
{
    low += value;
    if (low >= WIDE) {
        low -= WIDE;
        high++;
    }
}

__device__ __forceinline__ void greatest(i64& most, i64 value) { most = value > most ? value : most; }
__device__ __forceinline__ void greatest(int& most, int value) { most = value > most ? value : most; }
