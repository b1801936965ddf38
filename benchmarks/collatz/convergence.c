/* Takes every n = 3 modulo 4 of [start, start + count) below itself, trailing zeros at once: 64-bit words below 2^62,
   128 bits from there on. The start comes as start / 2^32. Prints seconds and the greatest value's high word. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static unsigned __int128 highest;

static void wide(unsigned __int128 n, unsigned __int128 x)
{
    do {
        if (x & 1) {
            x = 3 * x + 1;
            if (x > highest)
                highest = x;
        }
        x >>= (uint64_t)x ? __builtin_ctzll((uint64_t)x) : 63;
    } while (x >= n);
}

int main(int count_of_arguments, char **arguments)
{
    unsigned __int128 start = (unsigned __int128)strtoull(arguments[1], 0, 10) << 32;
    uint64_t count = strtoull(arguments[2], 0, 10), most = 0;
    struct timespec before, after;
    (void)count_of_arguments;
    clock_gettime(CLOCK_MONOTONIC, &before);
    for (unsigned __int128 n = start + 3; n < start + count; n += 4) {
        if (n >> 62) {
            wide(n, n);
            continue;
        }
        uint64_t x = (uint64_t)n;
        do {
            x = 3 * x + 1;
            if (x > most)
                most = x;
            x >>= __builtin_ctzll(x);
        } while (x >= n && x < (uint64_t)1 << 62);
        if (x >= n)
            wide(n, x);
    }
    clock_gettime(CLOCK_MONOTONIC, &after);
    printf("%.6f %llu %llu\n", (after.tv_sec - before.tv_sec) + (after.tv_nsec - before.tv_nsec) * 1e-9,
           (unsigned long long)most, (unsigned long long)(highest >> 64));
    return 0;
}
