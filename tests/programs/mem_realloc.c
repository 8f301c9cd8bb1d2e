/* realloc of huge blocks, up and down: libc calls mremap itself, past any wrapper. */
// odtest: timeout=60 mem=700
#include "odtest.h"

#define BLOCKS 6

static uint64_t *block[BLOCKS];
static size_t size[BLOCKS];

/* What stays the C library's where another allocator is preloaded; in no header. */
void *__libc_realloc(void *block, size_t size);

static void resize(int i, size_t to, uint64_t gen)
{
    size_t kept = size[i] < to ? size[i] : to;
    uint64_t *now = i % 2 ? __libc_realloc(block[i], to) : realloc(block[i], to);
    CHECK(now, "realloc to %zu", to);
    block[i] = now;
    od_verify(now, kept, 100 + i, "what realloc kept");
    od_fill(now, to, gen); /* every byte can be written: no SIGBUS */
    od_verify(now, to, gen, "what was written after realloc");
    od_fill(now, to, 100 + i);
    size[i] = to;
}

static void verify(const char *who)
{
    for (int i = 0; i < BLOCKS; i++)
        od_verify(block[i], size[i], 100 + i, who);
}

static void child(void *argument)
{
    uint32_t dice = *(uint32_t *)argument;
    verify("child");
    for (int k = 0; k < 4; k++)
        resize(od_random(&dice) % BLOCKS, (1 + od_random(&dice) % 24) * OD_MB, 7);
    verify("child after its own reallocs");
    free(block[0]);
    uint64_t *zeros = calloc(1, 12 * OD_MB);
    od_verify_zero(zeros, 12 * OD_MB, "calloc of a huge block");
}

static void wait_at(void *gate)
{
    od_gate_wait(gate);
    verify("child held back");
}

/* Folds while a child lives may leave a block in several pieces; libc's own mremap must not notice.
 */
static void resize_in_pieces(uint32_t *dice)
{
    struct od_gate gate;
    od_gate_make(&gate);
    for (int i = 0; i < BLOCKS; i++)
        resize(i, 12 * OD_MB, 1);
    od_run_child((void (*)(void *))od_refreeze, NULL);
    pid_t held = od_spawn(wait_at, &gate);
    for (int i = 0; i < BLOCKS; i++)
        for (int k = 0; k < 40; k++) {
            size_t word = (size[i] / 4 + od_random(dice) % (size[i] / 2)) / 8;
            block[i][word] = 0;
            block[i][word] = od_word(100 + i, word);
        }
    od_refreeze();
    od_run_child((void (*)(void *))od_refreeze, NULL);
    for (int i = 0; i < BLOCKS; i++)
        resize(i, i % 2 ? 20 * OD_MB : 5 * OD_MB, 4);
    od_gate_open(&gate, 1);
    od_join(held);
    od_gate_drop(&gate);
    verify("parent, in pieces");
}

int main(void)
{
    uint32_t dice = 3;
    for (int i = 0; i < BLOCKS; i++)
        resize(i, (8 + i) * OD_MB, 1);
    for (int round = 0; round < 12; round++) {
        od_run_child(child, &dice);
        for (int k = 0; k < 4; k++) {
            int i = od_random(&dice) % BLOCKS;
            size_t to = (1 + od_random(&dice) % 48) * OD_MB / 2 + od_random(&dice) % 512 * 8;
            resize(i, to, 2 + round);
        }
        if (round % 3 == 2)
            od_refreeze();
        verify("parent");
    }
    for (int round = 0; round < 3; round++)
        resize_in_pieces(&dice);
    /* one byte more, one byte less, across the border of the mapping */
    for (int i = 0; i < BLOCKS; i++) {
        od_run_child(child, &dice);
        resize(i, size[i] + 8, 3);
        resize(i, size[i] - 16, 3);
    }
    return od_done();
}
