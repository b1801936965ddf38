// GPU version of random.py. A test compares the constants. `#include "random.cuh"` works in every kind's folder.
typedef unsigned long long u64;

#define SPLITMIX_GOLDEN 0x9E3779B97F4A7C15ull
#define SPLITMIX_FIRST_FACTOR 0xBF58476D1CE4E5B9ull
#define SPLITMIX_SECOND_FACTOR 0x94D049BB133111EBull

__device__ __forceinline__ u64 mix(u64 word)
{
    word = (word ^ word >> 30) * SPLITMIX_FIRST_FACTOR;
    word = (word ^ word >> 27) * SPLITMIX_SECOND_FACTOR;
    return word ^ word >> 31;
}

__device__ __forceinline__ u64 sub(u64 key, u64 number) { return mix(key + SPLITMIX_GOLDEN * (number + 1)); }
