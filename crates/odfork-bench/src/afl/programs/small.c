/* The fuzz target that gains nothing from odfork: it holds nothing, reads a few bytes and ends, as
 * the fuzzers' own test programs do.
 *
 *   small BYTES LOOPS */
#include "executions.h"

__AFL_FUZZ_INIT();

int main(int argc, char **argv)
{
    uint64_t *count = executions();
    int loops = argc > 2 ? atoi(argv[2]) : 1;

    __AFL_INIT();
    unsigned char *input = __AFL_FUZZ_TESTCASE_BUF;
    while (__AFL_LOOP(loops)) {
        int length = __AFL_FUZZ_TESTCASE_LEN;
        __atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
        if (length < 1)
            continue;
        if (input[0] == '0')
            puts("zero");
        else if (input[0] == '1')
            puts("one");
        else
            puts("neither");
        if (length > 3 && input[1] > 'a' && input[2] < 'q')
            puts(input[3] & 1 ? "odd" : "even");
    }
    return 0;
}
