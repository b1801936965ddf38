/* Full statistics of [start, start + count), number by number: 64-bit words, trailing zeros at once, 128 bits where a
   value needs them. Prints seconds, the sum of delays, and the greatest delay and peak, so that nothing is left out. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t histogram[8192];

int main(int count_of_arguments, char **arguments)
{
    uint64_t start = strtoull(arguments[1], 0, 10), end = start + strtoull(arguments[2], 0, 10);
    uint64_t sum = 0, most = 0, longest = 0;
    unsigned __int128 highest = 0;
    struct timespec before, after;
    (void)count_of_arguments;
    clock_gettime(CLOCK_MONOTONIC, &before);
    for (uint64_t n = start; n < end; n++) {
        uint64_t x = n, peak = n, delay = 0;
        unsigned __int128 wide = 0;
        for (;;) {
            int zeros = __builtin_ctzll(x);
            x >>= zeros;
            delay += zeros;
            if (x == 1)
                break;
            if (x < (uint64_t)1 << 62) {
                x = 3 * x + 1;
                delay++;
                if (x > peak)
                    peak = x;
                continue;
            }
            unsigned __int128 y = x;
            do {
                if (y & 1) {
                    y = 3 * y + 1;
                    if (y > wide)
                        wide = y;
                } else
                    y >>= 1;
                delay++;
            } while (y >> 62);
            x = (uint64_t)y;
        }
        histogram[delay]++;
        sum += delay;
        if (delay > most) {
            most = delay;
            longest = n;
        }
        if (peak > wide)
            wide = peak;
        if (wide > highest)
            highest = wide;
    }
    clock_gettime(CLOCK_MONOTONIC, &after);
    printf("%.6f %llu %llu %llu %llu\n", (after.tv_sec - before.tv_sec) + (after.tv_nsec - before.tv_nsec) * 1e-9,
           (unsigned long long)sum, (unsigned long long)most, (unsigned long long)longest,
           (unsigned long long)(highest >> 64));
    return 0;
}
