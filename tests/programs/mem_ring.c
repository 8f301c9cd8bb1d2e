// odtest: expect=froze mem=100
/*
 * Advice by io_uring (IORING_OP_MADVISE) on memory that was frozen before the ring was made: what
 * is given up is gone, and what is to be wiped is empty in a child.
 */
#include "ring.h"

enum { MADVISE = 25 };
static const size_t BYTES = 16 * OD_MB;

static int advise(void *memory, size_t bytes, int advice)
{
    struct io_uring_sqe *entry = next_entry();
    entry->opcode = MADVISE;
    entry->fd = -1;
    entry->addr = (uintptr_t)memory;
    entry->len = (unsigned)bytes;
    entry->fadvise_advice = (unsigned)advice;
    submit_entry();
    return complete();
}

static char *memory;

static void look(void *unused)
{
    (void)unused;
    od_verify_zero(memory + 8 * OD_MB, 4 * OD_MB, "a child: what is to be wiped");
    od_verify(memory + 12 * OD_MB, OD_MB, 1, "a child");
}

int main(void)
{
    memory = od_map(BYTES);
    od_fill(memory, BYTES, 1);
    od_fill(memory + 12 * OD_MB, OD_MB, 1);
    od_freeze();
    od_run_child((void (*)(void *))od_refreeze, NULL);
    make_ring(4);
    int answer = advise(memory + OD_MB, 4 * OD_MB, MADV_DONTNEED);
    if (answer == -EINVAL)
        od_skip("no IORING_OP_MADVISE here");
    CHECK(answer == 0, "MADV_DONTNEED by the ring: %s", strerror(-answer));
    od_verify_zero(memory + OD_MB, 4 * OD_MB, "given up by the ring");
    answer = advise(memory + 8 * OD_MB, 4 * OD_MB, MADV_WIPEONFORK);
    CHECK(answer == 0, "MADV_WIPEONFORK by the ring: %s", strerror(-answer));
    od_run_child(look, NULL);
    od_verify(memory, OD_MB, 1, "beside it");
    return od_done();
}
