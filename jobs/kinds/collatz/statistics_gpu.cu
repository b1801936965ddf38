// Statistics of consecutive blocks of 2^bits numbers: one tail for each class of residues, see README.md. A thread takes
// classes of blocks in turn. Delays are counted; classes that may hold a record are listed for a walk of their own.
#include "gpu_steps.cuh"

// Defined by statistics_gpu.py: LOW_BITS, D_SHIFT, WEIGHT_SHIFT, DELAYS, UNCOUNTED_BIT. Delays from DELAYS on are left to the host.

// A tail ends below this, with its delay from a table.
#define LOW (1ull << LOW_BITS)
// Delays below this are counted in shared memory first.
#define NEAR 2048
// In a list: the class' numbers are not counted yet.
#define UNCOUNTED (1ull << UNCOUNTED_BIT)

struct Tail {
    u64 high, low, most_high, most_low;
    u32 delay;
};

__device__ __forceinline__ void rise(Tail& tail)
{
    if (below(tail.most_high, tail.most_low, tail.high, tail.low)) {
        tail.most_high = tail.high;
        tail.most_low = tail.low;
    }
}

// Takes a number below the table's end, never through 1; false when it passes two limbs or takes too long.
__device__ bool descend(Tail& tail, const u32* table, const unsigned short* delays)
{
    for (;;) {
        while (tail.high || tail.low >> ROOMY_BITS) {
            if (tail.high >> ROOMY_BITS || tail.delay >= DELAYS) return false;
            u32 entry = entry_of(table, tail.low);
            eight_wide(tail.high, tail.low, entry);
            tail.delay += 8 + (entry >> ODD_SHIFT);
            rise(tail);
        }
        u64 x = tail.low, most = 0;
        u32 delay = tail.delay;
        while (x >= LOW && !(x >> ROOMY_BITS) && delay < DELAYS) {
            u32 entry = entry_of(table, x);
            x = eight_narrow(x, entry);
            delay += 8 + (entry >> ODD_SHIFT);
            most = x > most ? x : most;
        }
        tail.low = x;
        tail.delay = delay;
        if (!tail.most_high && most > tail.most_low) tail.most_low = most;
        if (x < LOW) break;
        if (delay >= DELAYS) return false;
    }
    tail.delay += delays[tail.low];
    return tail.delay < DELAYS;
}

// Classes of blocks h..h+count-1, h in two limbs, below 2^96. Listed are those with a delay above `record`, with a value
// above (reach_high, reach_low), or that are not counted: list[0] counts them, list[1..] has block << 32 | class.
// Fewer than 2^32 numbers a launch, so that counts in shared memory fit 32 bits.
extern "C" __global__ void statistics_tails(u64 h_high, u64 h_low, u64 count, u64 bits, u64 classes, const u64* packed,
                                            const u64* powers, const unsigned short* delays, u64 record, u64 reach_high,
                                            u64 reach_low, u64* histogram, u64* list, u64 room)
{
    __shared__ u32 steps[RESIDUES * COPIES];
    __shared__ u32 near[NEAR];
    for (u32 delay = threadIdx.x; delay < NEAR; delay += blockDim.x) near[delay] = 0;
    fill_steps(steps);
    const u32* table = steps + threadIdx.x % COPIES;
    u64 items = count * classes, stride = (u64)gridDim.x * blockDim.x;
    for (u64 item = (u64)blockIdx.x * blockDim.x + threadIdx.x; item < items; item += stride) {
        u64 block = item / classes, number = item % classes, entry = packed[number];
        u64 power = powers[entry & ((1 << D_SHIFT) - 1)], d = (entry >> D_SHIFT) & ((1ull << (WEIGHT_SHIFT - D_SHIFT)) - 1);
        u64 low = h_low + block, high = h_high + (low < block);
        Tail tail;
        tail.low = low * power + d;
        tail.high = high * power + __umul64hi(low, power) + (tail.low < d);
        tail.delay = (u32)(bits + (entry & ((1 << D_SHIFT) - 1)));
        tail.most_high = tail.high;
        tail.most_low = tail.low;
        bool counted = descend(tail, table, delays);
        if (counted) {
            if (tail.delay < NEAR)
                atomicAdd(&near[tail.delay], (u32)(entry >> WEIGHT_SHIFT));
            else
                atomicAdd(&histogram[tail.delay], entry >> WEIGHT_SHIFT);
        }
        if (!counted || tail.delay > record || below(reach_high, reach_low, tail.most_high, tail.most_low)) {
            u64 at = atomicAdd(list, 1ull);
            if (at < room) list[1 + at] = block << 32 | number | (counted ? 0 : UNCOUNTED);
        }
    }
    __syncthreads();
    for (u32 delay = threadIdx.x; delay < NEAR; delay += blockDim.x)
        if (near[delay]) atomicAdd(&histogram[delay], (u64)near[delay]);
}

// Numbers (numbers[2 i], numbers[2 i + 1]), high limb first, step by step: walks[3 i..] is the delay and the two limbs of
// the peak; a delay of all ones when a value would pass two limbs.
extern "C" __global__ void statistics_walk(const u64* numbers, u64 count, u64* walks)
{
    u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += stride) {
        u64 high = numbers[2 * at], low = numbers[2 * at + 1], delay = 0;
        u64 peak_high = high, peak_low = low;
        while (high || low != 1) {
            if (low & 1) {
                if (high >> 62) {
                    delay = ~0ull;
                    break;
                }
                u64 triple = 3 * low + 1;
                high = 3 * high + __umul64hi(low, 3) + (triple == 0);
                low = triple;
                delay++;
                if (below(peak_high, peak_low, high, low)) {
                    peak_high = high;
                    peak_low = low;
                }
            }
            low = low >> 1 | high << 63;
            high >>= 1;
            delay++;
        }
        walks[3 * at] = delay;
        walks[3 * at + 1] = peak_high;
        walks[3 * at + 2] = peak_low;
    }
}
