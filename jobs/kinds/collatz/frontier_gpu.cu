// Mode frontier: walks down the tree of classes, and follows the numbers that survive to their floors.
// A warp searches one class at a time. Tables decide several levels of the tree at once, so it needs no stack.
// Leaves with survivors wait in shared memory. A lane takes a leaf, and follows its numbers one after the other, so that
// no lane waits for another lane's number.
typedef unsigned int u32;
typedef unsigned long long u64;

// frontier_gpu.py defines:
// - MODULUS = 3^JOINS, LOG3, ONE and NEGATIVE of the rules, STARTS = 3^START_JOINS and WORD_STARTS = 2^64 modulo STARTS
// - WINDOW_BITS and WINDOW_WORDS: bits of a position in a window, and number of words of a window
// - MULTIPLIER of the permutation of nodes
// - HALF_STEPS, half the steps of a pass
// - NEXT, FAILED, BITS, ROWS: words of the sums; each row contains a count, passes and a checksum
// - THREADS and BLOCKS_A_PROCESSOR of a launch, COPIES of the table of steps, POWERS: number of powers of 3
// - PASSES_A_ROUND: number of passes before lanes without a number take the next one
#define WARP 32
#define ALL_LANES 0xffffffffu
#define RESIDUES (1u << HALF_STEPS)
#define CHILDREN 256
#define QUEUE 64
// If the highest limb has at most this number of bits, a pass cannot overflow it: 2^(21 - 18) 3^18 < 2^32.
#define TOP_BITS 21
// Number of limbs of the largest numbers that are followed.
#define MOST_LIMBS 6

// Constants and tables of a search, as frontier_gpu.py passes them.
struct Search {
    // First unit of the launch, and the index of its node.
    u64 first, first_node;
    // A unit has 2^part_bits parts. Number of parts of the launch, at most 2^32.
    u64 part_bits, parts;
    // Number of nodes at depth `root`, and number of bits of the units of a node.
    u64 nodes, root, unit_bits;
    // Number of levels below a part that the first table decides, and that the second table decides.
    u64 upper, lower;
    // Number of low bits that a floor clears, and 2^(depth of the classes above the leaves) modulo STARTS.
    u64 shift, weight;
    // Maximum number of passes of a number.
    u64 most_passes;
    const u64 *root_values, *root_bits, *power_low, *power_high, *windows, *starts;
    const u32* inverses;
    const int *joins, *upper_slack, *lower_slack;
    // For each row of the sums, the first unit of the next row.
    const u64* ends;
    u64* sums;
};

// Class of the numbers b + 2^k a: c of the first k steps are odd, and lead to x + 3^c a. `rest` is x modulo MODULUS, and
// `start` is b modulo STARTS.
struct Node {
    u64 low, high, b_low, b_high;
    u32 k, c, rest, start;
};

// Shared memory of a block.
struct Shared {
    // For each warp, the part that it searches, the children of the part that are left, and the child that it searches.
    // They are the same for all lanes, and would take registers of every lane.
    Node part[THREADS / WARP], node[THREADS / WARP];
    u32 left[THREADS / WARP][CHILDREN / WARP], row[THREADS / WARP];
    u32 steps[RESIDUES * COPIES], upper[CHILDREN], lower[CHILDREN], inverses[POWERS];
    u64 power_low[POWERS], power_high[POWERS];
    // Leaves that wait, for each warp: value of the least number, numbers that survive, odd steps with the lead.
    u64 low[THREADS / WARP][QUEUE], high[THREADS / WARP][QUEUE], alive[THREADS / WARP][QUEUE];
    u32 tag[THREADS / WARP][QUEUE];
};

// Work of one lane: the rest of a leaf, the number that the lane follows, and sums.
template <int LIMBS> struct Lane {
    u64 low, high, alive, checksum;
    u32 tag, x[LIMBS], floor[LIMBS], bits[LIMBS], count, passes;
    // Value of `passes` at which the number has made too many passes.
    u32 last_pass;
    bool follows;
};

// Perform `steps` <= 8 steps from the residue r. The result is d + (3^c << 13) + (c << 26): 2^steps m + r leads to
// 3^c m + d.
__device__ u32 child_entry(u32 r, u32 steps)
{
    u32 power = 1, odd = 0;
    for (u32 step = 0; step < steps; step++) {
        u32 is_odd = r & 1;
        r = is_odd ? (3 * r + 1) >> 1 : r >> 1;
        power *= is_odd ? 3 : 1;
        odd += is_odd;
    }
    return r | power << 13 | odd << 26;
}

// Perform half a pass from the residue r. The result is d + (3^c << 16).
__device__ u32 half_entry(u32 r)
{
    u32 power = 1;
    for (u32 step = 0; step < HALF_STEPS; step++) {
        power *= r & 1 ? 3 : 1;
        r = r & 1 ? (3 * r + 1) >> 1 : r >> 1;
    }
    return r | power << 16;
}

__device__ void fill_tables(const Search& search, Shared& shared)
{
    for (u32 r = threadIdx.x; r < RESIDUES; r += blockDim.x) {
        u32 entry = half_entry(r);
        for (u32 copy = 0; copy < COPIES; copy++) shared.steps[r * COPIES + copy] = entry;
    }
    for (u32 r = threadIdx.x; r < CHILDREN; r += blockDim.x) {
        shared.upper[r] = child_entry(r, (u32)search.upper);
        shared.lower[r] = child_entry(r, (u32)search.lower);
    }
    for (u32 c = threadIdx.x; c < POWERS; c += blockDim.x) {
        shared.power_low[c] = search.power_low[c];
        shared.power_high[c] = search.power_high[c];
        shared.inverses[c] = search.inverses[c];
    }
    __syncthreads();
}

// Perform a pass. `table` is the copy of this lane.
template <int LIMBS> __device__ __forceinline__ void pass(u32 (&x)[LIMBS], const u32* table)
{
    u32 first = table[(x[0] & (RESIDUES - 1)) * COPIES];
    u32 y = (x[0] >> HALF_STEPS & (RESIDUES - 1)) * (first >> 16) + (first & 0xffff);
    u32 second = table[(y & (RESIDUES - 1)) * COPIES];
    u32 power = (first >> 16) * (second >> 16);
    u64 carry = (y >> HALF_STEPS) * (second >> 16) + (second & 0xffff);
#pragma unroll
    for (int i = 0; i < LIMBS; i++) {
        u32 above = i + 1 < LIMBS ? x[i + 1 < LIMBS ? i + 1 : i] : 0;
        carry += (u64)(x[i] >> 2 * HALF_STEPS | above << (32 - 2 * HALF_STEPS)) * power;
        x[i] = (u32)carry;
        carry >>= 32;
    }
}

template <int LIMBS> __device__ __forceinline__ bool is_below(const u32 (&x)[LIMBS], const u32 (&floor)[LIMBS])
{
    bool below = false;
#pragma unroll
    for (int i = 0; i < LIMBS; i++) below = x[i] < floor[i] || (x[i] == floor[i] && below);
    return below;
}

// Add factor * (other_high, other_low) to a number. The factor must be below 2^13.
__device__ __forceinline__ void add_product(u64& high, u64& low, u64 other_high, u64 other_low, u32 factor)
{
    u64 first = (other_low & 0xffffffffu) * factor + (low & 0xffffffffu);
    u64 second = (other_low >> 32) * factor + (low >> 32) + (first >> 32);
    low = second << 32 | (first & 0xffffffffu);
    high += other_high * factor + (second >> 32);
}

// Follow a number of any size to its floor, and add it to the sums.
__device__ __noinline__ void finish(u64 high, u64 low, u64 floor_high, u64 floor_low, const u32* table, u64* row,
                                    u64* sums, u64 most_passes)
{
    u32 x[MOST_LIMBS] = {(u32)low, (u32)(low >> 32), (u32)high, (u32)(high >> 32), 0, 0};
    u32 floor[MOST_LIMBS] = {(u32)floor_low, (u32)(floor_low >> 32), (u32)floor_high, (u32)(floor_high >> 32), 0, 0};
    u64 passes = 0;
    for (; !is_below(x, floor); passes++) {
        if (x[MOST_LIMBS - 1] >> TOP_BITS || passes >= most_passes) {
            atomicAdd(&sums[FAILED], 1ull);
            return;
        }
        pass(x, table);
#pragma unroll
        for (int i = 0; i < MOST_LIMBS; i++) atomicOr(&sums[BITS + i], (u64)x[i]);
    }
    atomicAdd(&row[1], passes);
    atomicAdd(&row[2], x[0] | (u64)x[1] << 32);
}

// Return whether a number has too many bits for a pass with LIMBS limbs.
template <int LIMBS> __device__ __forceinline__ bool is_large(u64 high)
{
    return high >> (32 * (LIMBS - 3) + TOP_BITS);
}

// Take the next number of the lane's leaf. A number that has too many bits is followed at once.
template <int LIMBS>
__device__ __forceinline__ void take_number(Lane<LIMBS>& lane, const Search& search, const Shared& shared,
                                            const u32* table, u64* row)
{
    u32 a = __ffsll(lane.alive) - 1, c = lane.tag >> 24;
    u32 leaf = search.root + search.unit_bits + search.part_bits + search.upper + search.lower;
    u64 low = lane.low, high = lane.high, lead = (lane.tag & 0xffffff) + (a << (leaf - (u32)search.shift));
    u64 floor_low = lead << search.shift, floor_high = search.shift ? lead >> (64 - search.shift) : 0;
    lane.alive &= lane.alive - 1;
    lane.count++;
    add_product(high, low, shared.power_high[c], shared.power_low[c], a);
    if (is_large<LIMBS>(high)) {
        finish(high, low, floor_high, floor_low, table, row, search.sums, search.most_passes);
        return;
    }
    u32 x[4] = {(u32)low, (u32)(low >> 32), (u32)high, (u32)(high >> 32)};
    u32 floor[4] = {(u32)floor_low, (u32)(floor_low >> 32), (u32)floor_high, (u32)(floor_high >> 32)};
#pragma unroll
    for (int i = 0; i < LIMBS; i++) {
        lane.x[i] = x[i];
        lane.floor[i] = floor[i];
    }
    lane.last_pass = lane.passes + (u32)search.most_passes;
    lane.follows = true;
}

// Perform a pass on the lane's number, and add it to the sums if it is below its floor.
template <int LIMBS>
__device__ __forceinline__ void follow_number(Lane<LIMBS>& lane, const u32* table, u64* row, const Search& search)
{
    if (lane.x[LIMBS - 1] >> TOP_BITS || lane.passes == lane.last_pass) {
        u64 high = lane.x[2], floor_high = lane.floor[2];
        if (LIMBS > 3) {
            high |= (u64)lane.x[LIMBS - 1] << 32;
            floor_high |= (u64)lane.floor[LIMBS - 1] << 32;
        }
        finish(high, lane.x[0] | (u64)lane.x[1] << 32, floor_high, lane.floor[0] | (u64)lane.floor[1] << 32, table, row,
               search.sums, lane.passes == lane.last_pass ? 0 : search.most_passes);
        lane.follows = false;
        return;
    }
    pass(lane.x, table);
    lane.passes++;
#pragma unroll
    for (int i = 0; i < LIMBS; i++) lane.bits[i] |= lane.x[i];
    if (is_below(lane.x, lane.floor)) {
        lane.checksum += lane.x[0] | (u64)lane.x[1] << 32;
        lane.follows = false;
    }
}

// Follow numbers until a lane lacks a leaf, or if `all` is set until no number and no leaf remains.
// `waiting` is the number of leaves in the warp's queue. Return the new number.
template <int LIMBS>
__device__ __forceinline__ u32 follow(Lane<LIMBS>& lane, u32 waiting, bool all, const Search& search, Shared& shared,
                                      const u32* table, u64* row)
{
    u32 warp = threadIdx.x / WARP, before = (1u << threadIdx.x % WARP) - 1;
    for (;;) {
        u32 lacking = __ballot_sync(ALL_LANES, !lane.follows && !lane.alive), count = __popc(lacking);
        if (count > waiting && !(all && (waiting || count < WARP))) return waiting;
        u32 rank = __popc(lacking & before);
        if (lacking & (before + 1) && rank < waiting) {
            u32 at = waiting - 1 - rank;
            lane.low = shared.low[warp][at];
            lane.high = shared.high[warp][at];
            lane.alive = shared.alive[warp][at];
            lane.tag = shared.tag[warp][at];
        }
        waiting -= count < waiting ? count : waiting;
        __syncwarp();
        if (!lane.follows && lane.alive) take_number(lane, search, shared, table, row);
        for (int i = 0; i < PASSES_A_ROUND; i++)
            if (lane.follows) follow_number(lane, table, row, search);
    }
}

// Add the sums of a lane to a row, and clear them.
template <int LIMBS> __device__ void flush(Lane<LIMBS>& lane, u64* row, u64* sums)
{
    atomicAdd(&row[0], (u64)lane.count);
    atomicAdd(&row[1], (u64)lane.passes);
    atomicAdd(&row[2], lane.checksum);
#pragma unroll
    for (int i = 0; i < LIMBS; i++) {
        atomicOr(&sums[BITS + i], (u64)lane.bits[i]);
        lane.bits[i] = 0;
    }
    lane.checksum = lane.count = lane.passes = 0;
}

// Move a node to the child with the next bit. Return whether the rules keep the child.
__device__ bool step_down(Node& node, u32 bit, const Search& search, const Shared& shared)
{
    if (bit) {
        u64 low = node.low + shared.power_low[node.c];
        node.high += shared.power_high[node.c] + (low < node.low);
        node.low = low;
        if (node.k < 64)
            node.b_low |= 1ull << node.k;
        else
            node.b_high |= 1ull << (node.k - 64);
    }
    u64 half_low = node.low >> 1 | node.high << 63, half_high = node.high >> 1;
    if (node.low & 1) { // (3x + 1) / 2 = x + (x - 1) / 2 + 1
        u64 low = half_low + node.low + 1;
        node.high += half_high + (low <= half_low);
        node.low = low;
        node.rest = (3 * node.rest + 1) % MODULUS;
        node.c++;
    } else {
        node.low = half_low;
        node.high = half_high;
    }
    node.rest = (node.rest + (node.rest & 1 ? MODULUS : 0)) >> 1;
    node.k++;
    return (int)node.c * LOG3 - (int)node.k * ONE + search.joins[node.rest] >= NEGATIVE;
}

// Return the least next bits with which a node's value has the residue r modulo 2^levels.
__device__ __forceinline__ u32 bits_to(const Node& node, u32 r, u32 levels, const Shared& shared)
{
    return (r - (u32)node.low) * shared.inverses[node.c] & ((1u << levels) - 1);
}

// Compute the value of a node `levels` steps on, with the next bits a and the entry of its residue.
__device__ __forceinline__ void step_value(u64& high, u64& low, const Node& node, u32 a, u32 entry, u32 levels,
                                           const Shared& shared)
{
    u64 x_high = node.high, x_low = node.low;
    add_product(x_high, x_low, shared.power_high[node.c], shared.power_low[node.c], a);
    high = 0;
    low = entry & 8191;
    add_product(high, low, x_high >> levels, x_low >> levels | x_high << (64 - levels), entry >> 13 & 8191);
}

// Return the node of a part. `kept` is cleared if the rules drop it.
__device__ Node find_node(u64 unit, u32 part, bool& kept, const Search& search, const Shared& shared)
{
    u32 nodes = (u32)search.nodes, index = (u32)((unit >> search.unit_bits) - (search.first >> search.unit_bits));
    u32 at = (u32)search.first_node + index * (MULTIPLIER % nodes) % nodes; // at most 2^32, because nodes < 2^16
    at -= at < nodes ? 0 : nodes;
    u64 bits = search.root_bits[at];
    Node node = {search.root_values[at], 0, bits & 0xffffffffu, 0, (u32)search.root, (u32)(bits >> 32), 0, 0};
    node.rest = (u32)(node.low % MODULUS);
    u64 path = unit << search.part_bits | (part & ((1u << search.part_bits) - 1));
    kept = true;
    for (u64 level = search.unit_bits + search.part_bits; kept && level-- > 0;)
        kept = step_down(node, path >> level & 1, search, shared);
    return node;
}

// Return the child of a node that is `levels` levels below it, and to which the residue r of the node's value leads.
__device__ Node find_child(const Node& node, u32 r, u32 levels, const Shared& shared)
{
    Node child = node;
    u32 entry = shared.upper[r], a = bits_to(node, r, levels, shared);
    if (levels) step_value(child.high, child.low, node, a, entry, levels, shared);
    u64 b = (u64)a << (node.k & 63);
    if (node.k < 64) {
        child.b_low += b;
        child.b_high += (u64)a >> 1 >> (63 - node.k);
    } else {
        child.b_high += b;
    }
    child.k += levels;
    child.c += entry >> 26;
    child.rest = (u32)((child.low % MODULUS + child.high % MODULUS * WORD_MODULUS) % MODULUS);
    child.start = (u32)((child.b_low % STARTS + child.b_high % STARTS * WORD_STARTS) % STARTS);
    return child;
}

// Return the least slack with which the rules keep a node some levels below.
__device__ __forceinline__ int least_slack(const Node& node)
{
    return NEGATIVE - (int)node.c * LOG3 + (int)node.k * ONE;
}

// Look up which numbers of a leaf survive.
__device__ __forceinline__ u64 look_up(u64 low, u32 c, u32 start, const Search& search, const Shared& shared)
{
    u32 place = (u32)low * shared.inverses[c] & ((1u << WINDOW_BITS) - 1), shift = place & 63;
    const u64* window = search.windows + (u64)c * WINDOW_WORDS + (place >> 6);
    return (window[0] >> shift | window[1] << (63 - shift) << 1) & search.starts[start];
}

// Add the leaves below the warp's node to the queue, and follow numbers while the queue has one leaf for each lane.
template <int LIMBS>
__device__ __forceinline__ u32 search_node(Lane<LIMBS>& lane, u32 waiting, const Search& search, Shared& shared,
                                           const u32* table)
{
    u32 levels = (u32)search.lower, warp = threadIdx.x / WARP, own = threadIdx.x % WARP;
    u64* row = search.sums + ROWS + 3 * shared.row[warp];
    const Node& node = shared.node[warp];
    for (u32 first = 0; first < 1u << levels; first += WARP) {
        u32 r = first + own, tag = 0;
        u64 alive = 0, low = 0, high = 0;
        if (r < 1u << levels && search.lower_slack[(node.rest << levels) + r] >= least_slack(node)) {
            u32 entry = shared.lower[r], a = bits_to(node, r, levels, shared), c = node.c + (entry >> 26);
            step_value(high, low, node, a, entry, levels, shared);
            u32 lead = (u32)(node.b_low >> search.shift | node.b_high << 1 << (63 - search.shift));
            lead += a << (node.k - (u32)search.shift);
            alive = look_up(low, c, (node.start + a * (u32)search.weight) % STARTS, search, shared);
            tag = c << 24 | lead;
            if (!lead && alive & 1) { // the floor of n < 2^shift is a power of two
                u64 floor = node.b_low;
                while (floor & (floor - 1)) floor &= floor - 1;
                lane.count++;
                alive ^= 1;
                finish(high, low, 0, floor, table, row, search.sums, search.most_passes);
            }
        }
        u32 found = __ballot_sync(ALL_LANES, alive != 0);
        if (alive) {
            u32 at = waiting + __popc(found & ((1u << own) - 1));
            shared.low[warp][at] = low;
            shared.high[warp][at] = high;
            shared.alive[warp][at] = alive;
            shared.tag[warp][at] = tag;
        }
        waiting += __popc(found);
        __syncwarp();
        if (waiting >= WARP) waiting = follow(lane, waiting, false, search, shared, table, row);
    }
    return waiting;
}

// Let the warp's node be the next child of its part. Return false if no child is left.
__device__ bool next_child(const Search& search, Shared& shared)
{
    u32 warp = threadIdx.x / WARP, word = 0, left = 0;
    while (word < CHILDREN / WARP && !(left = shared.left[warp][word])) word++;
    if (!left) return false;
    Node child = find_child(shared.part[warp], word * WARP + __ffs(left) - 1, (u32)search.upper, shared);
    __syncwarp();
    if (!(threadIdx.x % WARP)) {
        shared.left[warp][word] = left & (left - 1);
        shared.node[warp] = child;
    }
    __syncwarp();
    return true;
}

// List the children of the warp's part that the rules keep, `upper` levels below the part.
__device__ void list_children(const Search& search, Shared& shared)
{
    u32 levels = (u32)search.upper, warp = threadIdx.x / WARP, own = threadIdx.x % WARP;
    const Node& node = shared.part[warp];
    for (u32 word = 0; word < CHILDREN / WARP; word++) {
        u32 r = word * WARP + own;
        bool kept = r < 1u << levels && search.upper_slack[(node.rest << levels) + r] >= least_slack(node);
        u32 left = __ballot_sync(ALL_LANES, kept);
        if (!own) shared.left[warp][word] = left;
    }
    __syncwarp();
}

template <int LIMBS> __device__ __forceinline__ void search_parts(const Search& search)
{
    __shared__ Shared shared;
    fill_tables(search, shared);
    const u32* table = shared.steps + threadIdx.x % COPIES;
    Lane<LIMBS> lane = {};
    u32 warp = threadIdx.x / WARP, waiting = 0;
    if (!(threadIdx.x % WARP)) shared.row[warp] = 0;
    __syncwarp();
    for (;;) {
        u32 part = threadIdx.x % WARP ? 0 : (u32)atomicAdd(&search.sums[NEXT], 1ull), row = shared.row[warp];
        part = __shfl_sync(ALL_LANES, part, 0);
        u64 unit = search.first + (part >> search.part_bits), *sums = search.sums + ROWS + 3 * row;
        u32 next = row;
        while (part < search.parts && unit >= search.ends[next]) next++;
        if (next != row || part >= search.parts) {
            waiting = follow(lane, waiting, true, search, shared, table, sums);
            flush(lane, sums, search.sums);
        }
        if (part >= search.parts) return;
        bool kept;
        Node node = find_node(unit, part, kept, search, shared);
        __syncwarp();
        if (!(threadIdx.x % WARP)) {
            shared.part[warp] = node;
            shared.row[warp] = next;
        }
        __syncwarp();
        if (!kept) continue;
        list_children(search, shared);
        while (next_child(search, shared)) waiting = search_node(lane, waiting, search, shared, table);
    }
}

#define PARAMETERS                                                                                                     \
    u64 first, u64 first_node, u64 part_bits, u64 parts, u64 nodes, u64 root, u64 unit_bits, u64 upper, u64 lower,     \
        u64 shift, u64 weight, u64 most_passes, const u64 *root_values, const u64 *root_bits, const u64 *power_low,    \
        const u64 *power_high, const u64 *windows, const u64 *starts, const u32 *inverses, const int *joins,           \
        const int *upper_slack, const int *lower_slack, const u64 *ends, u64 *sums
#define SEARCH                                                                                                         \
    {first, first_node, part_bits, parts, nodes, root, unit_bits, upper, lower, shift, weight, most_passes,            \
     root_values, root_bits, power_low, power_high, windows, starts, inverses, joins, upper_slack, lower_slack, ends,  \
     sums}

// Values of up to 96 bits; larger ones are followed one by one.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_A_PROCESSOR) frontier_narrow(PARAMETERS)
{
    search_parts<3>(Search SEARCH);
}

// Values of up to 128 bits.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_A_PROCESSOR) frontier_wide(PARAMETERS)
{
    search_parts<4>(Search SEARCH);
}
