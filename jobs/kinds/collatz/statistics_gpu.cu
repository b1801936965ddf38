// Statistics of consecutive blocks of 2^bits numbers: one tail per class of residues, see README.md.
// Each thread processes several classes in turn. It counts delays, and lists classes that can contain a record.
#include "gpu_steps.cuh"

// statistics_gpu.py defines LOW_BITS, D_SHIFT, WEIGHT_SHIFT, DELAYS and UNCOUNTED_BIT. The host processes delays >= DELAYS.

// Below this value a tail ends, and a table contains the rest of its delay.
#define LOW (1ull << LOW_BITS)
// Delays below this value are counted in shared memory first.
#define NEAR 2048
// Flag of a listed class whose numbers are not counted yet.
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

// Steps a number down below LOW, never past 1. Returns false if it exceeds two limbs or its delay reaches DELAYS.
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

// Processes all classes of the blocks h..h+count-1, where h has two limbs and is below 2^96.
// It lists classes that have a delay above `record`, a value above (reach_high, reach_low), or are not counted.
// list[0] is the number of listed classes, and list[1..] contains block << 32 | class.
// A launch must contain fewer than 2^32 numbers, so that counts in shared memory fit 32 bits.
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

// Computes delay and peak of the numbers (numbers[2 i], numbers[2 i + 1]), high limb first, step by step.
// walks[3 i..] receives the delay and the two limbs of the peak. The delay is ~0 if a value exceeds two limbs.
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
