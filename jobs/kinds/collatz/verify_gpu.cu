// Verification: steps every candidate, 16 steps at a time, until it is below its floor.
// The candidates belong to a slice of residues in some cells of consecutive blocks of 2^32 numbers.
// A thread processes residues of blocks in turn, and the candidates of each residue one after the other.
// The lanes of a warp process different candidates, so that no lane waits for another lane's number.
#include "gpu_steps.cuh"

// verify_gpu.py defines:
// - the words of the tally: SUM (four chunks of 32 bits), BITS (bitwise OR of all values in three limbs), CANDIDATES,
//   BLOCKS, and their number WORDS
// - C_SHIFT and RHO_SHIFT of a packed residue, THREES, and BLOCK_RHO = 2^32 modulo THREES
// - CELLS, THREADS and BLOCKS_A_PROCESSOR of a launch
// - PASSES, the number of passes of 16 steps after which the host processes a number

struct Seen {
    u64 sum_low, sum_high, bits[3], candidates, blocks;
};

// Steps a number below the floor in three limbs. Returns false if it does not fit or needs too many passes.
__device__ __noinline__ bool finish(u64& high, u64& low, u64 floor_high, u64 floor_low, const u32* table, Seen& seen)
{
    u64 top = 0, blocks = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        if (!top && below(high, low, floor_high, floor_low)) {
            seen.blocks += blocks;
            return true;
        }
        if (top >> ROOMY_BITS) return false;
        eight_widest(top, high, low, entry_of(table, low));
        eight_widest(top, high, low, entry_of(table, low));
        blocks++;
        seen.bits[0] |= low;
        seen.bits[1] |= high;
        seen.bits[2] |= top;
    }
    return false;
}

__device__ __forceinline__ void add_up(const Seen& seen, u64* shared, u64* tally)
{
    for (u32 word = threadIdx.x; word < WORDS; word += blockDim.x) shared[word] = 0;
    __syncthreads();
    u64 parts[4] = {seen.sum_low & 0xffffffffu, seen.sum_low >> 32, seen.sum_high & 0xffffffffu, seen.sum_high >> 32};
    for (int part = 0; part < 4; part++) atomicAdd(&shared[SUM + part], parts[part]);
    for (int limb = 0; limb < 3; limb++) atomicOr(&shared[BITS + limb], seen.bits[limb]);
    atomicAdd(&shared[CANDIDATES], seen.candidates);
    atomicAdd(&shared[BLOCKS], seen.blocks);
    __syncthreads();
    for (u32 word = threadIdx.x; word < WORDS; word += blockDim.x) {
        if (word >= BITS && word < BITS + 3)
            atomicOr(&tally[word], shared[word]);
        else
            atomicAdd(&tally[word], shared[word]);
    }
}

// Processes residues first..end-1 of blocks h..h+count-1. `cells` has four words with one bit per cell.
// If `floor` is 0, the floor is the start of each block.
// Numbers that do not fit are left to the host: left[0] is their count, left[1..] contains item * CELLS + cell.
template <bool WIDE>
__device__ void sweep(u64 h, u64 count, u64 first, u64 end, u64 rho, u64 floor, const u64* cells, const u64* packed,
                      const u64* masks, const u64* threes, const u64* powers, u64* tally, u64* left, u64 room)
{
    __shared__ u32 steps[RESIDUES * COPIES];
    __shared__ u64 totals[WORDS];
    fill_steps(steps);
    const u32* table = steps + threadIdx.x % COPIES;
    u64 item = (u64)blockIdx.x * blockDim.x + threadIdx.x, stride = (u64)gridDim.x * blockDim.x;
    u64 span = end - first, items = count * span;
    u64 bits = 0, power = 0, base_high = 0, base_low = 0, floor_high = 0, floor_low = 0, row = 0, residue = 0;
    u64 high = 0, low = 0, passes = 0, cell = 0, current = 0;
    int word = 4;
    bool walking = false;
    Seen seen = {0, 0, {0, 0, 0}, 0, 0};
    for (;;) {
        if (!walking) {
            while (!bits) {
                if (++word < 4) {
                    low = base_low + power * 64;
                    base_high += low < base_low;
                    base_low = low;
                } else {
                    if (item >= items) break;
                    u64 block = item / span;
                    residue = first + item % span;
                    u64 entry = packed[residue], d = entry & ((1ull << C_SHIFT) - 1), number = h + block;
                    power = powers[(entry >> C_SHIFT) & 31];
                    row = (rho + block * BLOCK_RHO) % THREES + (entry >> RHO_SHIFT);
                    base_low = number * power;
                    base_high = __umul64hi(number, power) << 8 | base_low >> 56;
                    base_low = (base_low << 8) + d;
                    base_high += base_low < d;
                    floor_high = floor ? 0 : number >> 32;
                    floor_low = floor ? floor : number << 32;
                    current = item;
                    item += stride;
                    word = 0;
                }
                bits = masks[residue * 4 + word] & threes[row * 4 + word] & cells[word];
            }
            if (!bits) break;
            u64 place = __ffsll(bits) - 1;
            bits &= bits - 1;
            low = base_low + power * place;
            high = base_high + (low < base_low);
            cell = word * 64 + place;
            passes = 0;
            walking = true;
            seen.candidates++;
        }
        bool fits;
        if (WIDE) {
            fits = !(high >> ROOMY_BITS);
            if (fits) {
                eight_wide(high, low, entry_of(table, low));
                eight_wide(high, low, entry_of(table, low));
            }
        } else {
            fits = !(high || low >> ROOMY_BITS);
            if (fits) {
                low = eight_narrow(low, entry_of(table, low));
                low = eight_narrow(low, entry_of(table, low));
            }
        }
        bool ended = false;
        if (fits) {
            passes++;
            seen.bits[0] |= low;
            if (WIDE) seen.bits[1] |= high;
            ended = below(high, low, floor_high, floor_low);
            fits = passes < PASSES;
        }
        if (!ended && !fits) {
            Seen more = {0, 0, {0, 0, 0}, 0, 0}; // a separate variable, so that `seen` stays in registers
            u64 far_high = high, far_low = low;
            ended = passes < PASSES && finish(far_high, far_low, floor_high, floor_low, table, more);
            high = far_high;
            low = far_low;
            for (int limb = 0; limb < 3; limb++) seen.bits[limb] |= more.bits[limb];
            seen.blocks += more.blocks;
            if (!ended) {
                u64 at = atomicAdd(left, 1ull);
                if (at < room) left[1 + at] = current * CELLS + cell;
                walking = false;
            }
        }
        if (ended) {
            seen.sum_low += low;
            seen.sum_high += high + (seen.sum_low < low);
            seen.blocks += passes;
            walking = false;
        }
    }
    add_up(seen, totals, tally);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_A_PROCESSOR) verify_narrow(u64 h, u64 count, u64 first, u64 end, u64 rho, u64 floor, const u64* cells,
                                         const u64* packed, const u64* masks, const u64* threes, const u64* powers,
                                         u64* tally, u64* left, u64 room)
{
    sweep<false>(h, count, first, end, rho, floor, cells, packed, masks, threes, powers, tally, left, room);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_A_PROCESSOR) verify_wide(u64 h, u64 count, u64 first, u64 end, u64 rho, u64 floor, const u64* cells,
                                       const u64* packed, const u64* masks, const u64* threes, const u64* powers,
                                       u64* tally, u64* left, u64 room)
{
    sweep<true>(h, count, first, end, rho, floor, cells, packed, masks, threes, powers, tally, left, room);
}
