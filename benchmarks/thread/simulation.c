/* The algorithm of jobs/kinds/thread/cpu_simulation.py for what P3 measures: a batch of roots, exponential work, a global
   fifo queue or work stealing, join none or suspend. Compiled once with STEALING 0 and once with 1; the digest must be the
   kernel's. gcc -O3, for the level of the CPU that the kernel is compiled for. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t i64;
typedef uint64_t u64;

#define GOLDEN 0x9E3779B97F4A7C15ull
#define NEVER INT64_MAX
#define BINS 3840
#define ROW 24
#define CORES 64

enum { MAKESPAN, WORK, OVERHEAD, SPAN, SPAN_WORK, THREADS, REACHED, PEAK_LIVE, PEAK_READY, BUSY, STEAL, IDLE, STEALS,
       ATTEMPTS, SWITCHES, WAIT, MEASURED, N_WAITED, REFUSED, OUTCOME, SOJOURN, N_SOJOURNS, MAX_WAIT, MAX_SOJOURN };

typedef struct {
    u64 key;
    i64 first, end, ready, span, path, depth, pending, latest, parent;
} family_t;

typedef struct {
    u64 key;
    i64 family, span, path, children;
} core_t;

typedef struct {
    i64 roots, max_depth, max_threads, joins, dispatch, spawn, join, cost, mean, cores;
    const i64 *logs, *values, *thresholds;
    i64 widths;
} model_t;

static inline u64 mix(u64 word) {
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ull;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBull;
    return word ^ (word >> 31);
}

static inline u64 sub(u64 key, u64 number) { return mix(key + GOLDEN * (number + 1)); }

static inline i64 bin_of(i64 value) {
    i64 msb = 63 - (value ? __builtin_clzll(value) : 64);
    return msb < 6 ? value : 64 * (msb - 5) + (value >> (msb - 6)) - 64;
}

static inline i64 negative_log(u64 word, const i64 *logs) {
    word |= 1;
    int zeros = __builtin_clzll(word);
    word <<= zeros;
    i64 index = (word >> 53) & 1023, fraction = (word >> 33) & 1048575;
    return zeros * logs[0] + logs[index] - (((logs[index] - logs[index + 1]) * fraction + 524288) >> 20);
}

static inline i64 draw_work(u64 key, const model_t *m) {
    i64 work = (m->mean * negative_log(sub(key, (1ull << 40) + 1), m->logs) + 8388608) >> 24;
    return work > 1 ? work : 1;
}

static inline i64 draw_children(u64 key, i64 depth, const model_t *m) {
    if (depth >= m->max_depth) return 0;
    i64 draw = sub(key, 1ull << 40) >> 32;
    if (m->widths == 2) return m->values[draw >= m->thresholds[0]];
    i64 index = 0;
    while (draw >= m->thresholds[index]) index++;
    return m->values[index];
}

static inline i64 victim(i64 core, i64 attempt, u64 key, i64 cores) {
    u64 draw = sub(sub(key, (1ull << 40) + 3) + mix(core), attempt) >> 32;
    i64 chosen = (draw * (u64)(cores - 1)) >> 32;
    return chosen + (chosen >= core);
}

static inline i64 least(i64 a, i64 b) { return a < b ? a : b; }
static inline i64 most(i64 a, i64 b) { return a > b ? a : b; }

static inline void put(i64 *events, i64 leaves, i64 core, i64 event) {
    i64 node = leaves + core;
    events[node] = event;
    while (node > 1) {
        event = least(event, events[node ^ 1]);
        node >>= 1;
        events[node] = event;
    }
}

static inline i64 futile(i64 ends, i64 core, i64 now, i64 actor, i64 cost) {
    if (ends > now || (ends == now && core > actor)) return 0;
    i64 steps = (now - ends) / cost;
    return ends + steps * cost == now && core > actor ? steps : steps + 1;
}

static void simulate(u64 key, const model_t *m, family_t *families, i64 *row, i64 *by_depth, i64 *waits, i64 *sojourns) {
    static core_t cores[CORES];
    static i64 events[2 * CORES], deques[CORES][65], top[CORES], bottom[CORES], ends[CORES], tries[CORES];
    i64 p = m->cores, cost = m->cost, leaves = 1;
    while (leaves < p) leaves *= 2;
    memset(row, 0, ROW * sizeof *row);
    memset(by_depth, 0, (m->max_depth + 1) * sizeof *by_depth);
    memset(top, 0, sizeof top);
    memset(bottom, 0, sizeof bottom);
    memset(tries, 0, sizeof tries);
    for (i64 i = 0; i < 2 * leaves; i++) events[i] = NEVER;
    families[0] = (family_t){.key = key, .end = m->roots, .parent = -1};
    i64 head = 0, child = 0, born = 1, live = m->roots, ready = m->roots, room = m->max_threads - m->roots;
    i64 peak_live = live, peak_ready = 0, work_ns = 0, busy = 0, wanted = 0, started = 0, joined = 0, refused = 0;
    i64 longest = 0, longest_work = 0, max_wait = 0, wait_sum = 0, sojourn_sum = 0, max_sojourn = 0, spawned = 0;
    i64 unwaited = waits[0], steals = 0, stolen = -1, taken = 0, now = 0, core = -1, last = -1;
    int parked = 1;
    u64 thieves = 0, idle = ~0ull >> (64 - p);
    for (;;) {
        while (idle) {
            i64 free = __builtin_ctzll(idle), family, number;
            if (STEALING && stolen >= 0) {
                family = stolen;
                number = taken;
                stolen = -1;
            } else if (STEALING && bottom[free] > top[free]) {
                family = deques[free][bottom[free] - 1];
                number = --families[family].end;
                if (number == families[family].first) bottom[free]--;
            } else if (head < born && (!STEALING || head == 0)) {
                family = head;
                number = child++;
                if (child == families[head].end) {
                    child = 0;
                    head++;
                }
            } else {
                if (!STEALING || p == 1) break;
                idle &= idle - 1;
                thieves |= 1ull << free;
                ends[free] = now + cost;
                if (!parked) {
                    put(events, leaves, free, ends[free] << 6 | free);
                    if (free == last) last = -1;
                }
                continue;
            }
            idle &= idle - 1;
            ready--;
            i64 wait = now - families[family].ready;
            u64 name = sub(families[family].key, number);
            i64 children = draw_children(name, families[family].depth, m), work = draw_work(name, m);
            i64 segment = m->dispatch + work + children * m->spawn;
            cores[free] = (core_t){name, family, families[family].span + segment, families[family].path + work, children};
            put(events, leaves, free, (now + segment) << 6 | free);
            if (free == last) last = -1;
            started++;
            work_ns += work;
            busy += segment;
            wanted += children;
            wait_sum += wait;
            max_wait = most(max_wait, wait);
            waits[bin_of(wait)]++;
        }
        if (last >= 0) {
            put(events, leaves, last, NEVER);
            last = -1;
        }
        peak_ready = most(peak_ready, ready);
        if (STEALING && parked != (ready == 0)) {
            parked = ready == 0;
            for (u64 rest = thieves; rest; rest &= rest - 1) {
                i64 thief = __builtin_ctzll(rest);
                if (parked) {
                    put(events, leaves, thief, NEVER);
                } else {
                    i64 missed = futile(ends[thief], thief, now, core, cost);
                    ends[thief] += missed * cost;
                    tries[thief] += missed;
                    put(events, leaves, thief, ends[thief] << 6 | thief);
                }
            }
        }
        if (live == 0) break;
        i64 event = events[1];
        now = event >> 6;
        core = last = event & 63;
        u64 bit = 1ull << core;
        if (STEALING && thieves & bit) {
            i64 other = victim(core, tries[core]++, key, p);
            if (top[other] < bottom[other]) {
                stolen = deques[other][top[other]];
                taken = families[stolen].first++;
                if (taken + 1 == families[stolen].end) top[other]++;
                steals++;
            }
            thieves ^= bit;
            idle |= bit;
            continue;
        }
        core_t *run = &cores[core];
        i64 children = run->children, family = run->family;
        if (children >= 0) longest_work = most(longest_work, run->path);
        if (children > 0) {
            i64 allowed = least(children, room);
            refused += children - allowed;
            children = allowed;
        }
        if (children > 0) {
            i64 depth = families[family].depth + 1;
            families[born] = (family_t){run->key, 0, children, now, run->span, run->path, depth, children, 0, family};
            by_depth[depth] += children;
            room -= children;
            spawned += children;
            live += children;
            ready += children;
            peak_live = most(peak_live, live);
            if (STEALING) {
                if (top[core] == bottom[core]) top[core] = bottom[core] = 0;
                deques[core][bottom[core]++] = born;
            }
            born++;
            if (m->joins) {
                idle |= bit;
                continue;
            }
        }
        i64 span = run->span;
        for (;;) {
            live--;
            if (families[family].parent < 0) {
                longest = most(longest, span);
                sojourn_sum += now;
                max_sojourn = most(max_sojourn, now);
                sojourns[bin_of(now)]++;
                idle |= bit;
                break;
            }
            if (!m->joins) {
                longest = most(longest, span);
                idle |= bit;
                break;
            }
            families[family].latest = most(families[family].latest, span);
            if (--families[family].pending > 0) {
                idle |= bit;
                break;
            }
            span = families[family].latest + m->join;
            joined++;
            family = families[family].parent;
            if (m->join > 0) {
                busy += m->join;
                run->family = family;
                run->span = span;
                run->children = -1;
                put(events, leaves, core, (now + m->join) << 6 | core);
                last = -1;
                break;
            }
        }
    }
    i64 attempts = 0;
    for (i64 each = 0; each < p; each++)
        attempts += tries[each] + (thieves >> each & 1 ? futile(ends[each], each, now, core, cost) : 0);
    by_depth[0] = m->roots;
    for (i64 depth = 0; depth <= m->max_depth; depth++)
        if (by_depth[depth]) row[REACHED] = depth;
    row[MAKESPAN] = now;
    row[WORK] = work_ns;
    row[OVERHEAD] = started * m->dispatch + wanted * m->spawn + joined * m->join;
    row[SPAN] = longest;
    row[SPAN_WORK] = longest_work;
    row[THREADS] = m->roots + spawned;
    row[PEAK_LIVE] = peak_live;
    row[PEAK_READY] = peak_ready;
    row[BUSY] = busy;
    row[STEAL] = attempts * cost;
    row[IDLE] = p * now - busy - row[STEAL];
    row[STEALS] = steals;
    row[ATTEMPTS] = attempts;
    row[SWITCHES] = started + joined;
    row[WAIT] = wait_sum;
    row[MEASURED] = started;
    row[N_WAITED] = started - (waits[0] - unwaited);
    row[REFUSED] = refused;
    row[OUTCOME] = refused ? 2 : 0;
    row[SOJOURN] = sojourn_sum;
    row[N_SOJOURNS] = m->roots;
    row[MAX_WAIT] = max_wait;
    row[MAX_SOJOURN] = max_sojourn;
}

/* Replicas 0..count-1 of cell 0. Returns the sum of their digests; *threads gets how many were simulated. */
u64 run(u64 seed, i64 count, const i64 *numbers, const i64 *logs, const i64 *values, const i64 *thresholds, i64 widths,
        i64 rows, i64 *threads) {
    model_t m = {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6], numbers[7], numbers[8],
                 numbers[9], logs, values, thresholds, widths};
    family_t *families = malloc(rows * sizeof *families);
    i64 *waits = calloc(BINS, sizeof *waits), *sojourns = calloc(BINS, sizeof *sojourns);
    i64 row[ROW], by_depth[65];
    __int128 sums[ROW] = {0};
    u64 hashes = 0, master = mix(seed);
    *threads = 0;
    for (i64 replica = 0; replica < count; replica++) {
        simulate(sub(master, replica), &m, families, row, by_depth, waits, sojourns);
        u64 word = sub(mix(0), replica);
        for (i64 i = 0; i < ROW; i++) {
            word = sub(word, row[i]);
            sums[i] += row[i];
        }
        for (i64 depth = 0; depth <= m.max_depth; depth++) word = sub(word, by_depth[depth]);
        hashes += word;
    }
    *threads = (i64)sums[THREADS];
    free(families);
    free(waits);
    free(sojourns);
    return hashes;
}
