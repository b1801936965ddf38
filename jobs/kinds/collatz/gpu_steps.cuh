// Shortcut steps on numbers of one, two and three 64-bit limbs; each table lookup performs eight steps.
typedef unsigned int u32;
typedef unsigned long long u64;

// The entry of residue r modulo 2^8 is d + (3^c << 13) + (c << 26): 8 steps map 2^8 m + r to 3^c m + d.
#define RESIDUES 256
#define POWER_SHIFT 13
#define ODD_SHIFT 26
#define ENTRY_MASK 8191u
// Each lane of a warp has its own copy of the table, which avoids bank conflicts in shared memory.
#define COPIES 32
// Python defines ROOMY_BITS: if the top limb has at most this many bits, 16 steps cannot overflow it.

__device__ void fill_steps(u32* table)
{
    for (u32 r = threadIdx.x; r < RESIDUES; r += blockDim.x) {
        u32 x = r, power = 1, odd = 0;
        for (int step = 0; step < 8; step++) {
            if (x & 1) {
                x = (3 * x + 1) >> 1;
                power *= 3;
                odd++;
            } else {
                x >>= 1;
            }
        }
        for (u32 copy = 0; copy < COPIES; copy++)
            table[r * COPIES + copy] = x | power << POWER_SHIFT | odd << ODD_SHIFT;
    }
    __syncthreads();
}

// From here on, `table` is the copy of this lane.
__device__ __forceinline__ u32 entry_of(const u32* table, u64 low) { return table[(u32)(low & 255) * COPIES]; }

__device__ __forceinline__ u32 power_of(u32 entry) { return (entry >> POWER_SHIFT) & ENTRY_MASK; }

__device__ __forceinline__ u64 eight_narrow(u64 x, u32 entry) { return (x >> 8) * power_of(entry) + (entry & ENTRY_MASK); }

__device__ __forceinline__ void eight_wide(u64& high, u64& low, u32 entry)
{
    u64 rest = low >> 8 | high << 56, power = power_of(entry), d = entry & ENTRY_MASK;
    low = rest * power + d;
    high = (high >> 8) * power + __umul64hi(rest, power) + (low < d);
}

__device__ __forceinline__ void eight_widest(u64& top, u64& high, u64& low, u32 entry)
{
    u64 rest = low >> 8 | high << 56, more = high >> 8 | top << 56;
    u64 power = power_of(entry), d = entry & ENTRY_MASK;
    low = rest * power + d;
    u64 carry = __umul64hi(rest, power) + (low < d);
    high = more * power + carry;
    top = (top >> 8) * power + __umul64hi(more, power) + (high < carry);
}

__device__ __forceinline__ bool below(u64 high, u64 low, u64 other_high, u64 other_low)
{
    return high < other_high || (high == other_high && low < other_low);
}
