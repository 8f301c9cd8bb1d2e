/* An io_uring by raw calls: made, its entries filled one by one, its answers taken. */
#ifndef RING_H
#define RING_H
#include "odtest.h"
#include <linux/io_uring.h>

static int ring_fd;
/* How the kernel is called: by the C library, else by the instruction itself. */
static long (*ring_call)(long, ...) = syscall;

static struct {
    unsigned *tail, *mask, *array, *chead, *ctail, *cmask;
    struct io_uring_sqe *entries;
    struct io_uring_cqe *done;
} ring;

static void make_ring(unsigned count)
{
    struct io_uring_params p;
    memset(&p, 0, sizeof p);
    ring_fd = (int)ring_call(SYS_io_uring_setup, count, &p);
    if (ring_fd < 0 && (errno == ENOSYS || errno == EPERM || errno == EACCES || errno == ENOMEM))
        od_skip("io_uring_setup: %s; set kernel.io_uring_disabled=0", strerror(errno));
    CHECK(ring_fd >= 0, "io_uring_setup: %s", strerror(errno));
    size_t bytes = p.sq_off.array + p.sq_entries * 4;
    char *s =
        OK(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring_fd, IORING_OFF_SQ_RING));
    char *c = OK(mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof *ring.done,
                      PROT_READ | PROT_WRITE, MAP_SHARED, ring_fd, IORING_OFF_CQ_RING));
    ring.entries = OK(mmap(NULL, p.sq_entries * sizeof *ring.entries, PROT_READ | PROT_WRITE,
                           MAP_SHARED, ring_fd, IORING_OFF_SQES));
    ring.tail = (unsigned *)(s + p.sq_off.tail);
    ring.mask = (unsigned *)(s + p.sq_off.ring_mask);
    ring.array = (unsigned *)(s + p.sq_off.array);
    ring.chead = (unsigned *)(c + p.cq_off.head);
    ring.ctail = (unsigned *)(c + p.cq_off.tail);
    ring.cmask = (unsigned *)(c + p.cq_off.ring_mask);
    ring.done = (struct io_uring_cqe *)(c + p.cq_off.cqes);
}

/* The next entry, empty. */
static struct io_uring_sqe *next_entry(void)
{
    unsigned at = *ring.tail & *ring.mask;
    ring.array[at] = at;
    return memset(&ring.entries[at], 0, sizeof *ring.entries);
}

/* The kernel takes it. */
static void submit_entry(void)
{
    __atomic_store_n(ring.tail, *ring.tail + 1, __ATOMIC_RELEASE);
    long n = ring_call(SYS_io_uring_enter, ring_fd, 1, 0, 0, NULL, 0);
    CHECK(n == 1, "io_uring_enter: %ld, %s", n, strerror(errno));
}

static int complete(void)
{
    while (__atomic_load_n(ring.ctail, __ATOMIC_ACQUIRE) == *ring.chead) {
        long n = ring_call(SYS_io_uring_enter, ring_fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
        CHECK(n >= 0 || errno == EINTR, "io_uring_enter: %s", strerror(errno));
    }
    int result = ring.done[*ring.chead & *ring.cmask].res;
    __atomic_store_n(ring.chead, *ring.chead + 1, __ATOMIC_RELEASE);
    return result;
}

#endif
