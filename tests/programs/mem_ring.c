// odtest: expect=froze mem=100
/*
 * Advice by io_uring (IORING_OP_MADVISE) on memory that was frozen before the ring was made: what
 * is given up is gone, and what is to be wiped is empty in a child.
 */
#include "odtest.h"
#include <linux/io_uring.h>

enum { MADVISE = 25 };
static const size_t BYTES = 16 * OD_MB;

static struct {
    int fd;
    unsigned *tail, *array, *head;
    struct io_uring_sqe *entries;
    struct io_uring_cqe *done;
} ring;

static void make_ring(void)
{
    struct io_uring_params p;
    memset(&p, 0, sizeof p);
    ring.fd = (int)syscall(SYS_io_uring_setup, 4, &p);
    if (ring.fd < 0)
        od_skip("io_uring_setup: %s; set kernel.io_uring_disabled=0", strerror(errno));
    const int access = PROT_READ | PROT_WRITE;
    char *s = OK(mmap(NULL, p.sq_off.array + p.sq_entries * 4, access, MAP_SHARED, ring.fd,
                      IORING_OFF_SQ_RING));
    char *c = OK(mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof *ring.done, access, MAP_SHARED,
                      ring.fd, IORING_OFF_CQ_RING));
    ring.entries =
        OK(mmap(NULL, p.sq_entries * sizeof *ring.entries, access, MAP_SHARED, ring.fd,
                IORING_OFF_SQES));
    ring.tail = (unsigned *)(s + p.sq_off.tail);
    ring.array = (unsigned *)(s + p.sq_off.array);
    ring.head = (unsigned *)(c + p.cq_off.head);
    ring.done = (struct io_uring_cqe *)(c + p.cq_off.cqes);
}

/* Entries of a ring of four, one after the other. */
static int advise(void *memory, size_t bytes, int advice)
{
    unsigned at = *ring.tail & 3, seen = *ring.head & 7;
    struct io_uring_sqe *entry = &ring.entries[at];
    memset(entry, 0, sizeof *entry);
    entry->opcode = MADVISE;
    entry->fd = -1;
    entry->addr = (uintptr_t)memory;
    entry->len = (unsigned)bytes;
    entry->fadvise_advice = (unsigned)advice;
    ring.array[at] = at;
    __atomic_store_n(ring.tail, *ring.tail + 1, __ATOMIC_RELEASE);
    OK(syscall(SYS_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0));
    __atomic_store_n(ring.head, *ring.head + 1, __ATOMIC_RELEASE);
    return ring.done[seen].res;
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
    make_ring();
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
