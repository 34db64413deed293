/* Calls a function of any documented signature again and again. Its arguments lie in registers and on the stack like as
   many integers and floating-point numbers, in order. */
#include <stdint.h>
#include <time.h>

typedef int (*Function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
    uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
    uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, double, double, double, double);

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * t.tv_sec + t.tv_nsec / 1e3;
}

/* Returns the microseconds of a call in the quickest round. `status` gets the status of a failed call. w: 32 words, d:
   four numbers. */
double repeat(Function function, const uint64_t *w, const double *d, int rounds, int calls, int *status)
{
    double best = 1e30;
    for (int round = 0; round < rounds; round++) {
        double start = now();
        for (int i = 0; i < calls; i++) {
            int code = function(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13], w[14], w[15],
                w[16], w[17], w[18], w[19], w[20], w[21], w[22], w[23], w[24], w[25], w[26], w[27], w[28], w[29], w[30], w[31],
                d[0], d[1], d[2], d[3]);
            if (code) *status = code;
        }
        double each = (now() - start) / calls;
        if (each < best) best = each;
    }
    return best;
}
