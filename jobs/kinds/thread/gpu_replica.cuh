// State of the replica that a GPU thread simulates.
// It corresponds to cpu_layout.py, cpu_events.py, cpu_queues.py and cpu_stealing.py, with narrower integers.
//
// gpu_simulation.py defines WITH_BLOCKS (join block), WITH_SLICES (round_robin) and WITH_STEALS (work_stealing).
// Each scheduler is compiled separately, so that its kernel contains only the code it needs.
// gpu_simulation.py also defines NEVER, NO_ARRIVAL (later than the time of NEVER), WARM, PAUSED and CONTINUES.
#include "gpu_draws.cuh"

// The children of one thread, as in cpu_layout.py. The row of a preempted thread has the depth PAUSED. Its `holder` is
// the thread's depth, and `left` is the rest of its segment.
struct alignas(16) Family {
    u64 key;
    i64 ready, span, path;
    union {
        struct {
            int first, end;
        };
        i64 left;
    };
    int link;
    short depth, holder;
    i64 latest;
    int pending, parent;
};

// The thread that a core is running. While the core steals, `span` is the end of its attempt.
struct alignas(16) Core {
    u64 key;
    i64 span, path;
    int family;
    short children, depth;
};

// Core data of single schedulers. A deque has the entries top..bottom-1; `tries` is the number of attempts.
struct alignas(16) Slice {
    i64 left, waited;
};
struct alignas(16) Steal {
    i64 tries;
    int top, bottom;
};

static_assert(sizeof(Family) == FAMILY_BYTES, "must equal the size in Python");
static_assert(sizeof(Core) + sizeof(Slice) == CORE_BYTES && sizeof(Slice) == sizeof(Steal), "must equal the size in Python");

// Memory for one replica at a time. The events of all threads of a block are interleaved in shared memory, so that
// neighboring threads access neighboring words without bank conflicts, whichever core each thread reads.
struct Machine {
    Family* families;
    Core* cores;
    Slice* slices;
    Steal* steals;
    int* deques;
    i64* events;
    u32 stride, leaves;
    u64 *waits, *sojourns;
    i64 *row, *aside, *by_depth;
};

// Scalars of one replica, as in cpu_layout.py. `fill` computes the derived values. Waits in the trees of warm-up roots
// are summed in the row's WAITED column until then.
struct Replica {
    u64 key, idle, thieves;
    i64 now, clock, due, next;
    int weight, core, last, head, tail, born, spare, live, ready, room, arrived, stolen, taken, blocked, stepped;
    bool parked;
    int peak_live, peak_ready, wanted, again, joined, warm_started, unwaited, steals, n_sojourns, wait_high, sojourn_high;
    i64 work_ns, busy, longest, longest_work, max_wait, max_sojourn, wait_low, sojourn_low;
};

// Prefetches a family that is needed a few events later. The rows of a long queue are not cached.
__device__ __forceinline__ void prefetch(const Family* family)
{
#ifdef __CUDACC__
    asm volatile("prefetch.L1 [%0];" ::"l"(family));
#endif
}

__device__ __forceinline__ u64 bit(int core) { return 1ull << core; }

// Sets a core's event (time * 64 + core) in a tree whose leaves are the cores. A node is the minimum of its children.
__device__ __forceinline__ void put(Replica& replica, const Machine& machine, int core, i64 event)
{
    u32 node = machine.leaves + core;
    machine.events[node * machine.stride] = event;
    while (node > 1) {
        i64 other = machine.events[(node ^ 1) * machine.stride];
        event = other < event ? other : event;
        node >>= 1;
        machine.events[node * machine.stride] = event;
    }
    replica.next = event;
}

__device__ __forceinline__ void schedule(Replica& replica, const Machine& machine, int core, i64 time)
{
    put(replica, machine, core, time << 6 | core);
    if (core == replica.last) replica.last = -1;
}

// Appends a family to the global queue, or inserts it at the head if the scheduler is lifo.
__device__ __forceinline__ void enqueue(Replica& replica, const Model& model, const Machine& machine, int family)
{
    if (model.lifo) {
        machine.families[family].link = replica.head;
        replica.head = family;
        return;
    }
    machine.families[family].link = -1;
    if (replica.head < 0)
        replica.head = family;
    else
        machine.families[replica.tail].link = family;
    replica.tail = family;
}

__device__ __forceinline__ int& deque_entry(const Model& model, const Machine& machine, int core, int entry)
{
    return machine.deques[core * (model.max_depth + 1) + entry];
}

// Pushes a family to the bottom of a core's deque.
__device__ __forceinline__ void push(const Model& model, const Machine& machine, int core, int family)
{
    Steal& steal = machine.steals[core];
    int entry = steal.bottom;
    if (steal.top == entry) steal.top = entry = 0;
    deque_entry(model, machine, core, entry) = family;
    steal.bottom = entry + 1;
}

// Pops the youngest thread from the core's own deque as (family, member).
__device__ __forceinline__ int pop(const Model& model, const Machine& machine, int core, int& child)
{
    int entry = machine.steals[core].bottom - 1, place = deque_entry(model, machine, core, entry);
    Family& family = machine.families[place];
    child = --family.end;
    if (child == family.first) machine.steals[core].bottom = entry;
    return place;
}

// Removes the next thread for a core as (family, member); the family is -1 if no thread is ready for it.
__device__ __forceinline__ int take(Replica& replica, const Model& model, const Machine& machine, int core, int& child)
{
#if WITH_STEALS
    if (replica.stolen >= 0) {
        int family = replica.stolen;
        replica.stolen = -1;
        child = replica.taken;
        return family;
    }
    if (machine.steals[core].bottom > machine.steals[core].top) return pop(model, machine, core, child);
#endif
    int place = replica.head;
    if (place < 0) return -1;
    Family& family = machine.families[place];
    if (WITH_SLICES && family.depth == PAUSED) {
        replica.head = family.link;
    } else if (model.lifo) {
        child = --family.end;
        if (child == family.first) replica.head = family.link;
    } else {
        child = family.first++;
        if (child + 1 == family.end) replica.head = family.link;
    }
    if (replica.head >= 0 && replica.head != place) prefetch(machine.families + replica.head);
    return place;
}

#if WITH_STEALS
// Moves the oldest thread of a core's deque, if any, to `stolen` and `taken`.
__device__ __forceinline__ void steal_from(Replica& replica, const Model& model, const Machine& machine, int core)
{
    Steal& steal = machine.steals[core];
    if (steal.top >= steal.bottom) return;
    replica.stolen = deque_entry(model, machine, core, steal.top);
    Family& family = machine.families[replica.stolen];
    replica.taken = family.first++;
    if (replica.taken + 1 == family.end) steal.top++;
    replica.steals++;
}

// Starts steal attempts for an idle core.
__device__ __forceinline__ void begin_attempts(Replica& replica, const Model& model, const Machine& machine, int core)
{
    replica.idle &= replica.idle - 1;
    replica.thieves |= bit(core);
    machine.cores[core].span = replica.now + model.steal_ns;
    if (!replica.parked) schedule(replica, machine, core, replica.now + model.steal_ns);
}

// Finishes the current core's attempt. The core becomes idle again, with or without a stolen thread.
__device__ __forceinline__ void end_attempt(Replica& replica, const Model& model, const Machine& machine)
{
    int core = replica.core;
    replica.stepped++;
    steal_from(replica, model, machine, victim(replica.key, core, machine.steals[core].tries++, model.cores));
    replica.thieves ^= bit(core);
    replica.idle |= bit(core);
}

// Returns the number of a parked core's attempts that finish before the current event, in event order.
__device__ __forceinline__ i64 passed(const Replica& replica, const Model& model, const Machine& machine, int thief)
{
    i64 ends = machine.cores[thief].span;
    if (ends > replica.now || (ends == replica.now && thief > replica.core)) return 0;
    i64 steps = (i64)((u64)(replica.now - ends) / (u64)model.steal_ns);
    bool later = ends + steps * model.steal_ns == replica.now && thief > replica.core;
    return later ? steps : steps + 1;
}

// Parks all attempts if no thread is ready any more, and resumes them once a thread is ready.
// Parked attempts are counted, but not simulated one by one.
__device__ __forceinline__ void park_or_wake(Replica& replica, const Model& model, const Machine& machine)
{
    if (replica.parked == (replica.ready == 0)) return;
    replica.parked = replica.ready == 0;
    for (u64 rest = replica.thieves; rest; rest &= rest - 1) {
        int thief = __ffsll((i64)rest) - 1;
        i64 event = NEVER;
        if (!replica.parked) {
            i64 missed = passed(replica, model, machine, thief);
            machine.steals[thief].tries += missed;
            machine.cores[thief].span += missed * model.steal_ns;
            event = machine.cores[thief].span << 6 | thief;
            if (thief == replica.last) replica.last = -1;
        }
        put(replica, machine, thief, event);
    }
}

// Returns the number of finished attempts of all cores.
__device__ __forceinline__ i64 attempts(const Replica& replica, const Model& model, const Machine& machine)
{
    i64 ended = 0;
    for (int core = 0; core < model.cores; core++) {
        ended += machine.steals[core].tries;
        if (replica.thieves & bit(core)) ended += passed(replica, model, machine, core);
    }
    return ended;
}
#endif
