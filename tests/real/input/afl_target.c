/* A fuzz target: 64 MB of tables computed before the fork server starts, then one small input per
 * child. The planted crash: an input that begins with "odf!" dereferences a null pointer. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CELLS = 16 << 20 };

static unsigned *build_table(void)
{
    unsigned *table = malloc(CELLS * sizeof *table);
    unsigned x = 2463534242u;
    for (unsigned i = 0; table && i < CELLS; i++) {
        x ^= x << 13, x ^= x >> 17, x ^= x << 5;
        table[i] = x;
    }
    return table;
}

int main(void)
{
    unsigned *table = build_table();
    if (!table)
        return 2;
#ifdef __AFL_HAVE_MANUAL_CONTROL
    __AFL_INIT();
#endif
    unsigned char text[64];
    ssize_t length = read(0, text, sizeof text);
    if (length < 1)
        return 1;

    /* every byte walks the table, and writes into it: the next child must not see that */
    unsigned state = 1, odd = 0;
    for (ssize_t i = 0; i < length; i++) {
        unsigned cell = (state + text[i] * 65537u) % CELLS;
        state = table[cell];
        table[cell] = 0;
        table[i * 4096] ^= state;
        if (state & 1)
            odd++;
    }
    if (odd > 8)
        printf("odd %u\n", odd);
    else if (odd > 3)
        printf("some %u\n", odd);
    printf("state %08x\n", state);

    if (length > 3 && text[0] == 'o')
        if (text[1] == 'd')
            if (text[2] == 'f')
                if (text[3] == '!')
                    *(volatile int *)0 = 1;
    return 0;
}
