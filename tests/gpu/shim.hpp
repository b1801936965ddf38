// CUDA's device code as host code: each thread of a block is a fiber of its own stack, so that barriers and the
// primitives of a warp find every lane where they expect it. Blocks run one after the other. What a launch needs is kept
// by thread of the host, so several may launch at once.
#pragma once
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <type_traits>
#include <ucontext.h>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static thread_local
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __restrict__

namespace shim {

struct Place { unsigned x = 0, y = 0, z = 0; };

constexpr unsigned WARP = 32;
constexpr size_t STACK = 64 * 1024;

struct Fiber {
    ucontext_t entry;
    jmp_buf at;
    char* stack = nullptr;
    bool started = false, ended = false;
    int waits = 0; // 0 not; 1 for the block; 2 for its warp
    uint64_t given = 0, got[WARP];
    unsigned mask = 0;
};

struct Run {
    std::vector<Fiber> fibers;
    jmp_buf scheduler;
    unsigned current = 0;
    void (*body)(void*) = nullptr;
    void* arguments = nullptr;
    ~Run()
    {
        for (auto& fiber : fibers) free(fiber.stack);
    }
};

inline thread_local Run run;
inline thread_local Place thread_index, block_index, block_size, grid_size;

inline void yield(int waits)
{
    Fiber& own = run.fibers[run.current];
    own.waits = waits;
    if (!_setjmp(own.at)) _longjmp(run.scheduler, 1);
}

inline void begin()
{
    run.body(run.arguments);
    run.fibers[run.current].ended = true;
    _longjmp(run.scheduler, 1);
}

inline void resume(unsigned number)
{
    Fiber& fiber = run.fibers[number];
    run.current = number;
    thread_index.x = number;
    fiber.waits = 0;
    if (_setjmp(run.scheduler)) return;
    if (fiber.started) _longjmp(fiber.at, 1);
    fiber.started = true;
    setcontext(&fiber.entry);
}

// Lanes of a warp that wait for each other go on when all that are named have come.
inline bool release_warp(unsigned first, unsigned last)
{
    bool any = false;
    for (unsigned number = first; number < last; number++) {
        Fiber& fiber = run.fibers[number];
        if (fiber.ended || fiber.waits != 2) continue;
        bool all = true;
        for (unsigned lane = 0; lane < last - first; lane++) {
            const Fiber& other = run.fibers[first + lane];
            if (fiber.mask >> lane & 1) all = all && !other.ended && other.waits == 2 && other.mask == fiber.mask;
        }
        if (!all) continue;
        uint64_t values[WARP] = {};
        unsigned mask = fiber.mask;
        for (unsigned lane = 0; lane < last - first; lane++) values[lane] = run.fibers[first + lane].given;
        for (unsigned lane = 0; lane < last - first; lane++) {
            if (!(mask >> lane & 1)) continue;
            Fiber& other = run.fibers[first + lane];
            memcpy(other.got, values, sizeof values);
            other.waits = 0;
        }
        any = true;
    }
    return any;
}

inline void one_block(unsigned threads)
{
    for (unsigned number = 0; number < threads; number++) {
        Fiber& fiber = run.fibers[number];
        fiber.started = fiber.ended = false;
        fiber.waits = 0;
        getcontext(&fiber.entry);
        if (!fiber.stack) fiber.stack = static_cast<char*>(malloc(STACK));
        fiber.entry.uc_stack.ss_sp = fiber.stack;
        fiber.entry.uc_stack.ss_size = STACK;
        fiber.entry.uc_link = nullptr;
        makecontext(&fiber.entry, begin, 0);
    }
    for (;;) {
        bool ran = false, alive = false, all_at_barrier = true;
        for (unsigned number = 0; number < threads; number++) {
            Fiber& fiber = run.fibers[number];
            if (!fiber.ended && fiber.waits == 0) {
                resume(number);
                ran = true;
            }
            if (!fiber.ended) {
                alive = true;
                all_at_barrier = all_at_barrier && fiber.waits == 1;
            }
        }
        if (!alive) return;
        for (unsigned first = 0; first < threads; first += WARP)
            ran = release_warp(first, first + WARP < threads ? first + WARP : threads) || ran;
        if (all_at_barrier) {
            for (auto& fiber : run.fibers) fiber.waits = 0;
            ran = true;
        }
        if (!ran) {
            fprintf(stderr, "threads of a block wait for each other for ever\n");
            abort();
        }
    }
}

template <class T>
T argument(uint64_t raw)
{
    if constexpr (std::is_pointer_v<T>)
        return reinterpret_cast<T>(static_cast<uintptr_t>(raw));
    else
        return static_cast<T>(raw);
}

template <class... A, size_t... I>
void call(void (*kernel)(A...), const uint64_t* raw, std::index_sequence<I...>)
{
    kernel(argument<A>(raw[I])...);
}

template <class... A>
void launch(void (*kernel)(A...), unsigned blocks, unsigned threads, const uint64_t* raw)
{
    struct Call {
        void (*kernel)(A...);
        const uint64_t* raw;
    } one{kernel, raw};
    run.body = [](void* given) {
        auto* what = static_cast<Call*>(given);
        call(what->kernel, what->raw, std::index_sequence_for<A...>{});
    };
    run.arguments = &one;
    if (run.fibers.size() != threads) {
        for (auto& fiber : run.fibers) free(fiber.stack);
        run.fibers = std::vector<Fiber>(threads);
    }
    block_size.x = threads;
    grid_size.x = blocks;
    for (unsigned block = 0; block < blocks; block++) {
        block_index.x = block;
        one_block(threads);
    }
}

// Hands a value to the other lanes that `mask` names; what each of them gave.
inline const uint64_t* exchange(unsigned mask, uint64_t value)
{
    Fiber& own = run.fibers[run.current];
    own.given = value;
    own.mask = mask;
    yield(2);
    return own.got;
}

inline unsigned lane() { return run.current % WARP; }

template <class T>
uint64_t raw(T value)
{
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}

template <class T>
T cooked(uint64_t bits)
{
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

} // namespace shim

#define threadIdx shim::thread_index
#define blockIdx shim::block_index
#define blockDim shim::block_size
#define gridDim shim::grid_size

inline void __syncthreads() { shim::yield(1); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { shim::exchange(mask, 0); }
inline void __threadfence() {}

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32)
{
    return shim::cooked<T>(shim::exchange(mask, shim::raw(value))[shim::lane() / width * width + lane % width]);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int by)
{
    return shim::cooked<T>(shim::exchange(mask, shim::raw(value))[shim::lane() ^ by]);
}

inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    const uint64_t* all = shim::exchange(mask, predicate != 0);
    unsigned bits = 0;
    for (unsigned lane = 0; lane < shim::WARP; lane++)
        if (mask >> lane & 1 && all[lane]) bits |= 1u << lane;
    return bits;
}

inline unsigned __reduce_min_sync(unsigned mask, unsigned value)
{
    const uint64_t* all = shim::exchange(mask, value);
    uint64_t least = 0xffffffffu;
    for (unsigned lane = 0; lane < shim::WARP; lane++)
        if (mask >> lane & 1 && all[lane] < least) least = all[lane];
    return static_cast<unsigned>(least);
}

inline int __ffsll(long long bits) { return __builtin_ffsll(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __clzll(long long bits) { return bits ? __builtin_clzll(bits) : 64; }
inline int __clz(int bits) { return bits ? __builtin_clz(bits) : 32; }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __popcll(unsigned long long bits) { return __builtin_popcountll(bits); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}

template <class T, class V>
T atomicAdd(T* at, V value)
{
    T old = *at;
    *at = old + static_cast<T>(value);
    return old;
}

template <class T, class V>
T atomicOr(T* at, V value)
{
    T old = *at;
    *at = old | static_cast<T>(value);
    return old;
}

template <class T, class V>
T atomicMax(T* at, V value)
{
    T old = *at;
    if (static_cast<T>(value) > old) *at = static_cast<T>(value);
    return old;
}
