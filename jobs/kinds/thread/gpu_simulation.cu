// fifo and lifo, threads that end at once or suspend for their children: one replica a thread, event by event, as
// cpu_simulation.py does it, integers only. What a replica yields goes to the host, which hashes and sums it.
//
// Defined by gpu_simulation.py: the places in `numbers`, `row` and `aside`, ROW and ASIDE (their lengths), BINS, WARM,
// LAW_..., NEVER, NO_ARRIVAL (the arrival after the last one, later than the time of NEVER), WIDE (a sum of waits is
// high * WIDE + low), CONTINUES (a core runs a continuation), and MOST_CORES.
#include "random.cuh"

typedef unsigned int u32;
typedef long long i64;

struct Family {
    u64 key;
    i64 ready, span, path, latest;
    int first, end, depth, pending, parent, link;
};

struct Core {
    u64 key;
    i64 span, path;
    int family, children;
};

struct Model {
    const i64 *numbers, *laws, *logs, *values, *thresholds;
    i64 laws_length, values_length, thresholds_width; // a width of 0: one row for all depths
};

__device__ __forceinline__ int bin_of(i64 value)
{
    int msb = 63 - __clzll(value);
    return msb < 6 ? (int)value : (int)(64 * (msb - 5) + (value >> (msb - 6)) - 64);
}

// -ln(U) in units of 2^-24, U = (word | 1) / 2^64.
__device__ __forceinline__ i64 negative_log(u64 word, const i64* logs)
{
    word |= 1;
    int zeros = __clzll((i64)word);
    word <<= zeros;
    i64 index = (i64)(word >> 53 & 1023), fraction = (i64)(word >> 33 & 0xfffff);
    i64 step = (logs[index] - logs[index + 1]) * fraction;
    return zeros * logs[0] + logs[index] - ((step + 524288) >> 20);
}

// Work of a thread in ns, at least 1.
__device__ i64 draw_work(u64 key, i64 law, const Model& model)
{
    const i64* laws = model.laws;
    i64 drawn;
    if (law == LAW_FIXED) {
        drawn = laws[0];
    } else {
        u64 word = sub(key, DRAW_WORK);
        if (law == LAW_EXPONENTIAL) {
            drawn = (laws[0] * negative_log(word, model.logs) + 8388608) >> 24;
        } else if (law == LAW_HYPEREXPONENTIAL) {
            bool slow = (i64)(sub(key, DRAW_BRANCH) >> 32) >= laws[0];
            drawn = ((slow ? laws[2] : laws[1]) * negative_log(word, model.logs) + 8388608) >> 24;
        } else if (law == LAW_PARETO) {
            i64 place = negative_log(word, model.logs), index = place >> 20;
            drawn = laws[index] + (((laws[index + 1] - laws[index]) * (place & 1048575)) >> 20);
        } else if (law == LAW_UNIFORM) {
            drawn = laws[0] + (((i64)(word >> 32) * laws[1]) >> 32);
        } else {
            i64 place = (i64)(word >> 32) * (model.laws_length - 1), index = place >> 32;
            drawn = laws[index] + (((laws[index + 1] - laws[index]) * ((place & 0xffffffff) >> 10)) >> 22);
        }
    }
    return drawn < 1 ? 1 : drawn;
}

__device__ i64 draw_children(u64 key, i64 depth, i64 max_depth, const Model& model)
{
    if (depth >= max_depth) return 0;
    if (model.values_length == 1) return model.values[0];
    i64 draw = (i64)(sub(key, DRAW_OFFSPRING) >> 32);
    const i64* row = model.thresholds + depth * model.thresholds_width;
    if (model.values_length == 2) return model.values[draw >= row[0]];
    int index = 0;
    while (draw >= row[index]) index++;
    return model.values[index];
}

// Time before the number-th root, in units of the mean's.
__device__ i64 interarrival(u64 key, i64 number, i64 mean, const i64* logs)
{
    u64 word = sub(sub(key, DRAW_ARRIVALS), (u64)number);
    return (mean * negative_log(word, logs) + 8388608) >> 24;
}

// Sets a core's event, time * 64 + core, in a tree: a node is the least of its two children, the cores are the leaves.
__device__ __forceinline__ void put(i64* events, u32 leaves, u32 core, i64 event)
{
    u32 node = leaves + core;
    events[node] = event;
    while (node > 1) {
        i64 other = events[node ^ 1];
        event = other < event ? other : event;
        node >>= 1;
        events[node] = event;
    }
}

__device__ __forceinline__ void add_wide(i64& low, i64& high, i64 value)
{
    low += value;
    if (low >= WIDE) {
        low -= WIDE;
        high++;
    }
}

__device__ __forceinline__ void greatest(i64& most, i64 value) { most = value > most ? value : most; }

// One replica. Counts `weight` in the histograms; false when it needs more than `rows` families, and then counting it
// once more with the opposite weight takes all of it back.
__device__ bool simulate(u64 key, const Model& model, Family* families, i64 rows, u32 weight, u32* waits, u32* sojourns,
                         i64* row, i64* aside, i64* by_depth)
{
    const i64* numbers = model.numbers;
    i64 roots = numbers[ROOTS], max_depth = numbers[MAX_DEPTH], law = numbers[LAW], warmup = numbers[WARMUP];
    i64 dispatch_ns = numbers[DISPATCH_NS], spawn_ns = numbers[SPAWN_NS], join_ns = numbers[JOIN_NS];
    i64 mean = numbers[ARRIVAL], p = numbers[CORES];
    bool suspends = numbers[JOINS] == SUSPEND, lifo = numbers[POLICY] == LIFO;
    u32 leaves = 1;
    while (leaves < p) leaves *= 2;
    Core cores[MOST_CORES];
    i64 events[2 * MOST_CORES];
    for (u32 node = 0; node < 2 * leaves; node++) events[node] = NEVER;
    for (int place = 0; place < ROW; place++) row[place] = 0;
    for (int place = 0; place < ASIDE; place++) aside[place] = 0;
    for (i64 depth = 0; depth <= max_depth; depth++) by_depth[depth] = 0;
    i64 spawned = 0, live = 0, ready = 0, arrived = roots, clock = 0, due = NO_ARRIVAL, now = 0;
    int born = 0, head = -1, tail = -1, core = -1, last = -1;
    if (rows < 1) return false;
    if (!mean) {
        families[0] = Family{key, 0, 0, 0, 0, 0, (int)roots, 0, 0, -1, -1};
        head = tail = 0;
        born = 1;
        live = ready = roots;
    } else {
        arrived = 0;
        clock = interarrival(key, 0, mean, model.logs);
        due = clock >> numbers[ARRIVAL_BITS];
    }
    i64 room = numbers[MAX_THREADS] - roots, peak_live = live, peak_ready = 0;
    i64 work_ns = 0, busy = 0, wanted = 0, started = 0, joined = 0, refused = 0, longest = 0, longest_work = 0, max_wait = 0;
    i64 wait_low = 0, wait_high = 0, warm_low = 0, warm_high = 0, warm_started = 0, unwaited = 0;
    i64 sojourn_low = 0, sojourn_high = 0, n_sojourns = 0, max_sojourn = 0;
    u64 idle = ~0ull >> (64 - p);
    for (;;) {
        while (idle && head >= 0) {
            u32 at = (u32)(__ffsll((i64)idle) - 1);
            Family& family = families[head];
            int own = head, child;
            if (lifo) {
                child = --family.end;
                if (child == family.first) head = family.link;
            } else {
                child = family.first++;
                if (child + 1 == family.end) head = family.link;
            }
            idle &= idle - 1;
            ready--;
            i64 wait = now - family.ready;
            add_wide(wait_low, wait_high, wait);
            int depth = family.depth;
            u64 name = sub(family.key, (u64)child);
            i64 children = draw_children(name, depth & (WARM - 1), max_depth, model);
            i64 work = draw_work(name, law, model), left = work + children * spawn_ns;
            cores[at] = Core{name, family.span + dispatch_ns + left, family.path + work, own, (int)children};
            started++;
            work_ns += work;
            wanted += children;
            if (depth >= WARM) {
                warm_started++;
                add_wide(warm_low, warm_high, wait);
            } else {
                greatest(max_wait, wait);
                if (wait)
                    atomicAdd(&waits[bin_of(wait)], weight);
                else
                    unwaited++;
            }
            busy += dispatch_ns + left;
            put(events, leaves, at, (now + dispatch_ns + left) << 6 | at);
            if ((int)at == last) last = -1;
        }
        if (last >= 0) {
            put(events, leaves, (u32)last, NEVER);
            last = -1;
        }
        greatest(peak_ready, ready);
        if (!live && arrived == roots) break;
        i64 event = events[1];
        if (due <= event >> 6) {
            if (born == rows) break;
            now = due;
            families[born] = Family{key, now, now, 0, 0, (int)arrived, (int)arrived + 1, arrived < warmup ? WARM : 0, 0, -1, -1};
            if (lifo) {
                families[born].link = head;
                head = born;
            } else {
                if (head < 0)
                    head = born;
                else
                    families[tail].link = born;
                tail = born;
            }
            born++;
            live++;
            ready++;
            greatest(peak_live, live);
            arrived++;
            due = NO_ARRIVAL;
            if (arrived < roots) {
                clock += interarrival(key, arrived, mean, model.logs);
                due = clock >> numbers[ARRIVAL_BITS];
            }
            continue;
        }
        now = event >> 6;
        core = last = (int)(event & 63);
        int family = cores[core].family;
        i64 children = cores[core].children, span = cores[core].span;
        if (children != CONTINUES) greatest(longest_work, cores[core].path);
        if (children > 0) {
            i64 allowed = children < room ? children : room;
            refused += children - allowed;
            children = allowed;
        }
        if (children > 0) {
            if (born == rows) break;
            room -= children;
            int depth = families[family].depth + 1;
            families[born] = Family{cores[core].key, now, span, cores[core].path, 0, 0, (int)children, depth, (int)children, family, -1};
            by_depth[depth & (WARM - 1)] += children;
            spawned += children;
            live += children;
            ready += children;
            greatest(peak_live, live);
            if (lifo) {
                families[born].link = head;
                head = born;
            } else {
                if (head < 0)
                    head = born;
                else
                    families[tail].link = born;
                tail = born;
            }
            born++;
            if (suspends) {
                idle |= 1ull << core;
                continue;
            }
        }
        for (;;) {
            live--;
            int above = families[family].parent;
            if (above < 0) {
                greatest(longest, span);
                if (families[family].depth < WARM) {
                    i64 sojourn = now - families[family].ready;
                    n_sojourns++;
                    greatest(max_sojourn, sojourn);
                    atomicAdd(&sojourns[bin_of(sojourn)], weight);
                    add_wide(sojourn_low, sojourn_high, sojourn);
                }
                idle |= 1ull << core;
                break;
            }
            if (!suspends) {
                greatest(longest, span);
                idle |= 1ull << core;
                break;
            }
            families[family].pending--;
            greatest(families[family].latest, span);
            if (families[family].pending > 0) {
                idle |= 1ull << core;
                break;
            }
            span = families[family].latest + join_ns;
            joined++;
            family = above;
            if (join_ns > 0) {
                busy += join_ns;
                cores[core].family = family;
                cores[core].span = span;
                cores[core].children = CONTINUES;
                put(events, leaves, (u32)core, (now + join_ns) << 6 | core);
                if (core == last) last = -1;
                break;
            }
        }
    }
    if (unwaited) atomicAdd(&waits[0], (u32)unwaited * weight);
    if (live || arrived < roots) return false;
    by_depth[0] = arrived;
    for (i64 depth = 0; depth <= max_depth; depth++)
        if (by_depth[depth] > 0) row[REACHED] = depth;
    row[MAKESPAN] = now;
    row[WORK] = work_ns;
    row[OVERHEAD] = started * dispatch_ns + wanted * spawn_ns + joined * join_ns;
    row[LONGEST] = longest;
    row[LONGEST_WORK] = longest_work;
    row[THREADS] = arrived + spawned;
    row[PEAK_LIVE] = peak_live;
    row[PEAK_READY] = peak_ready;
    row[BUSY] = busy;
    row[IDLE] = p * now - busy;
    row[SWITCHES] = started + joined;
    row[N_MEASURED] = started - warm_started;
    row[N_WAITED] = row[N_MEASURED] - unwaited;
    row[REFUSED] = refused;
    row[MAX_WAIT] = max_wait;
    row[SOJOURN] = sojourn_low;
    aside[HIGH_SOJOURN] = sojourn_high;
    row[N_SOJOURNS] = n_sojourns;
    row[MAX_SOJOURN] = max_sojourn;
    row[OUTCOME] = refused > 0 ? CAPPED : COMPLETED;
    aside[READY_LOW] = wait_low;
    aside[READY_HIGH] = wait_high;
    if (warm_low > wait_low) {
        wait_low += WIDE;
        wait_high--;
    }
    row[WAITED] = wait_low - warm_low;
    aside[HIGH_WAITED] = wait_high - warm_high;
    return true;
}

// Replicas first..first+count-1 of a cell. A thread has `room` families of `families` for itself and takes replicas in
// turn. Of each: ROW + ASIDE + max_depth + 1 words of `found`; an outcome of all ones when its room was too small.
extern "C" __global__ void simulate_queue(u64 master, u64 first, u64 count, const i64* numbers, const i64* laws,
                                          u64 laws_length, const i64* logs, const i64* values, u64 values_length,
                                          const i64* thresholds, u64 thresholds_width, Family* families, u64 room,
                                          i64* found, u64* waits, u64* sojourns)
{
    __shared__ u32 counted[2 * BINS];
    for (u32 bin = threadIdx.x; bin < 2 * BINS; bin += blockDim.x) counted[bin] = 0;
    __syncthreads();
    Model model = {numbers, laws, logs, values, thresholds, (i64)laws_length, (i64)values_length, (i64)thresholds_width};
    u64 slot = (u64)blockIdx.x * blockDim.x + threadIdx.x, slots = (u64)gridDim.x * blockDim.x;
    u64 words = ROW + ASIDE + numbers[MAX_DEPTH] + 1;
    for (u64 at = slot; at < count; at += slots) {
        i64 *row = found + at * words, *aside = row + ROW, *by_depth = aside + ASIDE;
        u64 key = sub(master, first + at);
        for (u32 weight = 1; weight; weight = weight == 1 ? ~0u : 0) {
            bool fine = simulate(key, model, families + slot * room, (i64)room, weight, counted, counted + BINS, row, aside, by_depth);
            if (fine) break;
            row[OUTCOME] = -1;
        }
    }
    __syncthreads();
    for (u32 bin = threadIdx.x; bin < BINS; bin += blockDim.x) {
        if (counted[bin]) atomicAdd(&waits[bin], (u64)counted[bin]);
        if (counted[BINS + bin]) atomicAdd(&sojourns[bin], (u64)counted[BINS + bin]);
    }
}
