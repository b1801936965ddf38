// GPU version of cpu_simulation.py and cpu_threads.py, using only integers. Each GPU thread simulates one replica at a
// time, event by event. The host hashes and sums the measurements.
//
// gpu_simulation.py defines the indexes in `row` and `aside`, their lengths ROW and ASIDE, BLOCK_THREADS (maximum
// threads of a block), RESIDENT_BLOCKS (blocks per multiprocessor) and EVENTS (shared-memory words for events).
#include "gpu_replica.cuh"

// Creates a family whose members first..end-1 are ready, and returns its row.
__device__ __forceinline__ int add_family(Replica& replica, const Machine& machine, u64 key, int first, int end, int depth,
                                          int parent, i64 span, i64 path)
{
    int count = end - first;
    Family family;
    family.key = key;
    family.ready = replica.now;
    family.span = span;
    family.path = path;
    family.first = first;
    family.end = end;
    family.link = -1;
    family.depth = (short)depth;
    family.holder = (short)replica.core;
    family.latest = 0;
    family.pending = count;
    family.parent = parent;
    machine.families[replica.born] = family;
    replica.live += count;
    replica.ready += count;
    greatest(replica.peak_live, replica.live);
    return replica.born++;
}

__device__ __forceinline__ void count_wait(Replica& replica, const Machine& machine, i64 wait)
{
    greatest(replica.max_wait, wait);
    if (wait)
        atomicAdd(&machine.waits[bin_of(wait)], (u64)(i64)replica.weight);
    else
        replica.unwaited++;
}

// Draws the arrival time of the next root.
__device__ __forceinline__ void expect_root(Replica& replica, const Model& model)
{
    replica.due = NO_ARRIVAL;
    if (replica.arrived < model.roots) {
        replica.clock += interarrival(replica.key, replica.arrived, model);
        replica.due = replica.clock >> model.arrival_bits;
    }
}

__device__ __forceinline__ void begin(Replica& replica, u64 key, int weight, const Model& model, const Machine& machine)
{
    replica = Replica{};
    replica.key = key;
    replica.weight = weight;
    replica.idle = ~0ull >> (64 - model.cores);
    replica.core = replica.last = replica.head = replica.tail = replica.spare = replica.stolen = -1;
    replica.parked = true;
    replica.next = NEVER;
    replica.room = model.max_threads - model.roots;
    for (u32 node = 1; node < 2 * machine.leaves; node++) machine.events[node * machine.stride] = NEVER;
    for (int core = 0; WITH_STEALS && core < model.cores; core++) machine.steals[core] = Steal{0, 0, 0};
    for (int place = 0; place < ROW; place++) machine.row[place] = 0;
    for (int place = 0; place < ASIDE; place++) machine.aside[place] = 0;
    for (int depth = 0; depth <= model.max_depth; depth++) machine.by_depth[depth] = 0;
    if (model.arrival) {
        expect_root(replica, model);
    } else {
        enqueue(replica, model, machine, add_family(replica, machine, key, 0, model.roots, 0, -1, 0, 0));
        replica.arrived = model.roots;
        replica.due = NO_ARRIVAL;
    }
}

// Processes the arrival of a root.
__device__ __forceinline__ void arrive(Replica& replica, const Model& model, const Machine& machine)
{
    int number = replica.arrived++;
    replica.now = replica.due;
    replica.core = -1;
    int depth = number < model.warmup ? WARM : 0;
    int family = add_family(replica, machine, replica.key, number, number + 1, depth, -1, replica.now, 0);
    enqueue(replica, model, machine, family);
    expect_root(replica, model);
}

// Starts a thread's segment and returns its duration without the dispatch cost.
__device__ __forceinline__ i64 start(Replica& replica, const Model& model, const Machine& machine, int core, int place,
                                     const Family& family, int child)
{
    u64 key = sub(family.key, (u64)child);
    int children = draw_children(key, family.depth & (WARM - 1), model);
    i64 work = draw_work(key, model), left = work + children * model.spawn_ns;
    machine.cores[core] = Core{key, family.span + model.dispatch_ns + left, family.path + work, place, (short)children,
                               family.depth};
    replica.work_ns += work;
    replica.wanted += children;
    return left;
}

#if WITH_SLICES
// Resumes a preempted thread and returns the rest of its segment.
__device__ __forceinline__ i64 resume(Replica& replica, const Machine& machine, int core, int place, const Family& paused)
{
    machine.cores[core] = Core{paused.key, paused.span, paused.path, paused.parent, (short)paused.pending, paused.holder};
    machine.families[place].link = replica.spare;
    replica.spare = place;
    replica.again++;
    return paused.left;
}

// Starts the next slice on a core and returns its length.
__device__ __forceinline__ i64 slice(const Model& model, const Machine& machine, int core, i64 left, i64 waited)
{
    i64 part = left < model.quantum_ns ? left : model.quantum_ns;
    machine.slices[core] = Slice{left - part, waited};
    return part;
}

// Requeues the core's thread behind the ready threads.
__device__ __forceinline__ void preempt(Replica& replica, const Model& model, const Machine& machine)
{
    int place = replica.spare;
    if (place >= 0)
        replica.spare = machine.families[place].link;
    else
        place = replica.born++;
    Core running = machine.cores[replica.core];
    Slice rest = machine.slices[replica.core];
    Family paused;
    paused.key = running.key;
    paused.ready = replica.now;
    paused.span = running.span;
    paused.path = running.path;
    paused.left = rest.left;
    paused.link = -1;
    paused.depth = PAUSED;
    paused.holder = running.depth;
    paused.latest = rest.waited;
    paused.pending = running.children;
    paused.parent = running.family;
    machine.families[place] = paused;
    enqueue(replica, model, machine, place);
    replica.ready++;
    replica.idle |= bit(replica.core);
}

// Finishes a slice that is not the thread's last. The thread is requeued behind ready threads, or continues.
__device__ __forceinline__ void end_slice(Replica& replica, const Model& model, const Machine& machine)
{
    int core = replica.core;
    replica.stepped++;
    if (replica.head >= 0) {
        preempt(replica, model, machine);
        return;
    }
    i64 part = slice(model, machine, core, machine.slices[core].left, machine.slices[core].waited);
    replica.busy += part;
    schedule(replica, machine, core, replica.now + part);
}
#endif

// Starts a ready thread on an idle core.
__device__ __forceinline__ void dispatch(Replica& replica, const Model& model, const Machine& machine, int core, int place,
                                         int child)
{
    const Family family = machine.families[place];
    i64 wait = replica.now - family.ready, left;
    int depth = family.depth;
    replica.idle &= replica.idle - 1;
    replica.ready--;
    add_wide(replica.wait_low, replica.wait_high, wait);
#if WITH_SLICES
    i64 waited = wait;
    if (depth == PAUSED) {
        left = resume(replica, machine, core, place, family);
        depth = family.holder;
        waited += family.latest;
    } else {
        left = start(replica, model, machine, core, place, family, child);
        if (depth >= WARM) replica.warm_started++;
    }
    left = slice(model, machine, core, left, waited);
#else
    left = start(replica, model, machine, core, place, family, child);
    if (depth >= WARM)
        replica.warm_started++;
    else
        count_wait(replica, machine, wait);
#endif
    if (depth >= WARM) add_wide(machine.row[WAITED], machine.aside[HIGH_WAITED], wait);
    replica.busy += model.dispatch_ns + left;
    schedule(replica, machine, core, replica.now + model.dispatch_ns + left);
}

// Assigns a ready thread to each idle core, in ascending order, or starts a steal attempt.
__device__ __forceinline__ void serve_idle_cores(Replica& replica, const Model& model, const Machine& machine)
{
    while (replica.idle) {
        int core = __ffsll((i64)replica.idle) - 1, child = 0;
        int family = take(replica, model, machine, core, child);
        if (family >= 0) {
            dispatch(replica, model, machine, core, family, child);
            continue;
        }
#if WITH_STEALS
        if (model.cores > 1) {
            begin_attempts(replica, model, machine, core);
            continue;
        }
#endif
        break;
    }
    if (replica.last >= 0) {
        put(replica, machine, replica.last, NEVER);
        replica.last = -1;
    }
    greatest(replica.peak_ready, replica.ready);
#if WITH_STEALS
    park_or_wake(replica, model, machine);
#endif
}

// Creates the children of the thread on the current core. With a join, the thread then waits for them.
__device__ __forceinline__ void spawn(Replica& replica, const Model& model, const Machine& machine, const Core& running,
                                      int children)
{
    int depth = running.depth + 1;
    int place = add_family(replica, machine, running.key, 0, children, depth, running.family, running.span, running.path);
    replica.room -= children;
    machine.by_depth[depth & (WARM - 1)] += children;
#if WITH_STEALS
    push(model, machine, replica.core, place);
#else
    enqueue(replica, model, machine, place);
#endif
    if (WITH_BLOCKS)
        replica.blocked++;
    else if (model.joins)
        replica.idle |= bit(replica.core);
}

__device__ __forceinline__ void end_root(Replica& replica, const Machine& machine, int family, int depth, i64 span)
{
    greatest(replica.longest, span);
    if (depth >= WARM) return;
    i64 sojourn = replica.now - machine.families[family].ready;
    replica.n_sojourns++;
    greatest(replica.max_sojourn, sojourn);
    atomicAdd(&machine.sojourns[bin_of(sojourn)], (u64)(i64)replica.weight);
    add_wide(replica.sojourn_low, replica.sojourn_high, sojourn);
}

// Runs the continuation of a thread whose children have ended.
__device__ __forceinline__ void go_on(Replica& replica, const Model& model, const Machine& machine, int core, int family,
                                      int depth, i64 span)
{
    machine.cores[core] = Core{0, span, 0, family, CONTINUES, (short)depth};
    replica.busy += model.join_ns;
    schedule(replica, machine, core, replica.now + model.join_ns);
}

// Ends a thread, and each ancestor whose last child has ended and whose continuation takes no time.
__device__ __forceinline__ void end_thread(Replica& replica, const Model& model, const Machine& machine, int place, int depth,
                                           i64 span)
{
    int core = replica.core;
    for (;; depth--) {
        replica.live--;
        if (!(depth & (WARM - 1))) {
            end_root(replica, machine, place, depth, span);
            break;
        }
        if (!WITH_BLOCKS && !model.joins) {
            greatest(replica.longest, span);
            break;
        }
        Family& family = machine.families[place];
        int pending = --family.pending;
        i64 latest = family.latest;
        greatest(latest, span);
        family.latest = latest;
        if (pending > 0) break;
        replica.joined++;
        span = latest + model.join_ns;
        if (WITH_BLOCKS) {
            replica.idle |= bit(core);
            core = family.holder;
            replica.blocked--;
        }
        place = family.parent;
        if (model.join_ns > 0) {
            go_on(replica, model, machine, core, place, depth - 1, span);
            return;
        }
    }
    replica.idle |= bit(core);
}

// Finishes the segment or the continuation of the thread on the current core.
__device__ __forceinline__ void end_segment(Replica& replica, const Model& model, const Machine& machine)
{
    const Core running = machine.cores[replica.core];
    int children = running.children;
    if (children != CONTINUES) {
        greatest(replica.longest_work, running.path);
#if WITH_SLICES
        if (running.depth < WARM) count_wait(replica, machine, machine.slices[replica.core].waited);
#endif
    }
    if (children > replica.room) children = replica.room;
    if (children > 0) {
        spawn(replica, model, machine, running, children);
        if (WITH_BLOCKS || model.joins) return;
    }
    end_thread(replica, model, machine, running.family, running.depth, running.span);
}

// Advances to the next event of a core and processes it.
__device__ __forceinline__ void advance(Replica& replica, const Model& model, const Machine& machine)
{
    replica.now = replica.next >> 6;
    replica.core = replica.last = (int)(replica.next & 63);
#if WITH_STEALS
    if (replica.thieves & bit(replica.core)) {
        end_attempt(replica, model, machine);
        return;
    }
#endif
#if WITH_SLICES
    if (machine.slices[replica.core].left > 0) {
        end_slice(replica, model, machine);
        return;
    }
#endif
    end_segment(replica, model, machine);
}

__device__ __forceinline__ void fill_waits(Replica& replica, int started, i64* row, i64* aside)
{
    row[N_MEASURED] = started - replica.warm_started;
    row[N_WAITED] = row[N_MEASURED] - replica.unwaited;
    row[MAX_WAIT] = replica.max_wait;
    row[SOJOURN] = replica.sojourn_low;
    aside[HIGH_SOJOURN] = replica.sojourn_high;
    row[N_SOJOURNS] = replica.n_sojourns;
    row[MAX_SOJOURN] = replica.max_sojourn;
    aside[READY_LOW] = replica.wait_low;
    aside[READY_HIGH] = replica.wait_high;
    i64 low = replica.wait_low - row[WAITED], high = replica.wait_high - aside[HIGH_WAITED];
    row[WAITED] = low >= 0 ? low : low + WIDE;
    aside[HIGH_WAITED] = low >= 0 ? high : high - 1;
}

// Fills the row of a replica that has ended or deadlocked.
__device__ __forceinline__ void fill(Replica& replica, const Model& model, const Machine& machine)
{
    i64 *row = machine.row, *by_depth = machine.by_depth;
    bool deadlocked = WITH_BLOCKS && replica.blocked == model.cores;
    int spawned = model.max_threads - model.roots - replica.room, threads = replica.arrived + spawned;
    int started = threads - replica.ready, refused = replica.wanted - spawned;
    by_depth[0] = replica.arrived;
    for (int depth = 0; depth <= model.max_depth; depth++)
        if (by_depth[depth] > 0) row[REACHED] = depth;
    row[MAKESPAN] = replica.now;
    row[WORK] = replica.work_ns;
    row[OVERHEAD] = started * model.dispatch_ns + replica.wanted * model.spawn_ns + replica.joined * model.join_ns;
    row[LONGEST] = deadlocked ? 0 : replica.longest;
    row[LONGEST_WORK] = deadlocked ? 0 : replica.longest_work;
    row[THREADS] = threads;
    row[PEAK_LIVE] = replica.peak_live;
    row[PEAK_READY] = replica.peak_ready;
    row[BUSY] = replica.busy;
#if WITH_STEALS
    row[STEALS] = replica.steals;
    row[ATTEMPTS] = attempts(replica, model, machine);
    row[STEALING] = row[ATTEMPTS] * model.steal_ns;
#endif
    row[IDLE] = model.cores * replica.now - replica.busy - row[STEALING];
    row[SWITCHES] = started + replica.again + replica.joined;
    row[REFUSED] = refused;
    row[OUTCOME] = deadlocked ? DEADLOCKED : refused > 0 ? CAPPED : COMPLETED;
    machine.aside[AGAIN] = replica.again * model.dispatch_ns;
    fill_waits(replica, started, row, machine.aside);
}

// Simulates one replica and adds `weight` per entry to the histograms. Returns false if the replica needs more than
// `rows` families or exceeds its step budget. A second call with the opposite weight removes the entries again.
__device__ __forceinline__ bool simulate(u64 key, int weight, int rows, const Model& model, const Machine& machine)
{
    Replica replica;
    begin(replica, key, weight, model, machine);
    bool ended = false;
    while (replica.born < rows && replica.stepped <= model.budget) {
        serve_idle_cores(replica, model, machine);
        ended = (replica.live == 0 && replica.arrived == model.roots) || (WITH_BLOCKS && replica.blocked == model.cores);
        if (ended) break;
        if (replica.due <= replica.next >> 6)
            arrive(replica, model, machine);
        else
            advance(replica, model, machine);
    }
    if (replica.unwaited) atomicAdd(&machine.waits[0], (u64)((i64)replica.unwaited * weight));
    if (ended) fill(replica, model, machine);
    return ended;
}

// Simulates replicas first..first+count-1 of a cell. Each GPU thread simulates several replicas in turn.
// It owns `room` entries of `families` and `machine_bytes` bytes of `machines`.
// Each replica fills ROW + ASIDE + max_depth + 1 words of `measured`. Its outcome is -1 if a CPU must simulate it.
// Deadlocked replicas are excluded from the histograms.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS) simulate_replicas(
    u64 master, u64 first, u64 count, u64 roots, u64 max_depth, u64 max_threads, u64 joins, i64 dispatch_ns, i64 spawn_ns,
    i64 join_ns, i64 steal_ns, u64 law, u64 cores, u64 lifo, i64 budget, i64 quantum_ns, i64 arrival, u64 arrival_bits,
    u64 warmup, const i64* laws, u64 laws_length, const i64* logs, const i64* values, u64 values_length,
    const i64* thresholds, u64 thresholds_width, Family* families, u64 room, char* machines, u64 machine_bytes,
    i64* measured, u64* waits, u64* sojourns)
{
    __shared__ i64 events[EVENTS];
    const Model model = {(int)roots, (int)max_depth, (int)cores, (int)law, (int)arrival_bits, (int)warmup,
                         (int)max_threads, lifo != 0, joins != 0, dispatch_ns, spawn_ns, join_ns, steal_ns, quantum_ns,
                         arrival, budget, laws, logs, values, thresholds, (i64)laws_length, (i64)values_length,
                         (i64)thresholds_width};
    u64 slot = (u64)blockIdx.x * blockDim.x + threadIdx.x, slots = (u64)gridDim.x * blockDim.x;
    u64 words = ROW + ASIDE + max_depth + 1;
    Machine machine;
    machine.families = families + slot * room;
    machine.cores = (Core*)(machines + slot * machine_bytes);
    machine.slices = (Slice*)(machine.cores + cores);
    machine.steals = (Steal*)(machine.cores + cores);
    machine.deques = (int*)(machine.steals + cores);
    machine.events = events + threadIdx.x;
    machine.stride = blockDim.x;
    machine.leaves = 1;
    while (machine.leaves < cores) machine.leaves *= 2;
    machine.waits = waits;
    machine.sojourns = sojourns;
    for (u64 at = slot; at < count; at += slots) {
        machine.row = measured + at * words;
        machine.aside = machine.row + ROW;
        machine.by_depth = machine.aside + ASIDE;
        u64 key = sub(master, first + at);
        for (int weight = 1; weight >= -1; weight -= 2) {
            bool ended = simulate(key, weight, (int)room, model, machine);
            if (!ended) machine.row[OUTCOME] = -1;
            if (ended && !(WITH_BLOCKS && machine.row[OUTCOME] == DEADLOCKED)) break;
        }
    }
}
