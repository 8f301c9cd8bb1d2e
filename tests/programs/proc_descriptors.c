// odtest: expect=froze user=any mem=200 timeout=60
/*
 * Descriptors that were there before the first fork, and what they do to memory after it: a
 * userfaultfd made in both ways, an io_uring with its rings in the program's own memory, a socket
 * that sends without copying. Each of the others in a child; when the descriptor is closed, the
 * next fork may freeze.
 */
#include "proc_region.h"
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#ifndef IORING_SETUP_NO_MMAP
#define IORING_SETUP_NO_MMAP (1U << 14)
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif
enum { TURNS = 20 };
static const size_t BYTES = 16 * OD_MB;
static unsigned char *region;
static int watcher;

static void fork_some(void)
{
    for (int i = 0; i < 3; i++)
        od_join(od_spawn((void (*)(void *))(uintptr_t)usleep, NULL));
}

static void *serve(void *unused)
{
    static unsigned char page[4096] __attribute__((aligned(4096)));
    struct uffd_msg message;
    memset(page, 7, sizeof page);
    while (read(watcher, &message, sizeof message) == sizeof message) {
        struct uffdio_copy copy = { .src = (uintptr_t)page, .len = sizeof page };
        copy.dst = message.arg.pagefault.address & ~(uint64_t)4095;
        if (ioctl(watcher, UFFDIO_COPY, &copy) < 0)
            FAIL("UFFDIO_COPY: %s", strerror(errno));
    }
    return unused;
}

static int new_watcher(int by_device)
{
    if (!by_device)
        return (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    int made = device < 0 ? -1 : ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC);
    if (device >= 0)
        close(device);
    return made;
}

/* Made before the forks or after them; watches memory after them. */
static void watch_faults(int by_device, int late)
{
    struct uffdio_api api = { .api = UFFD_API };
    pthread_t thread;
    region = region_new(BYTES, 1);
    if (late)
        fork_some();
    watcher = new_watcher(by_device);
    if (watcher < 0 || ioctl(watcher, UFFDIO_API, &api) < 0)
        return;
    if (!late)
        fork_some();
    struct uffdio_register order = {.range = {(uintptr_t)region, BYTES},
                                    .mode = UFFDIO_REGISTER_MODE_MISSING};
    OK(ioctl(watcher, UFFDIO_REGISTER, &order));
    CHECK(pthread_create(&thread, NULL, serve, NULL) == 0, "no thread");
    OK(madvise(region + OD_MB, OD_PAGE, MADV_DONTNEED));
    alarm(20);
    CHECK(region[OD_MB] == 7, "a dropped page holds %d without being asked for", region[OD_MB]);
}

static void complete_requests(void)
{
    struct io_uring_params p = { .flags = IORING_SETUP_NO_MMAP };
    region = od_map(BYTES);
    od_fill(region + 4 * OD_MB, BYTES - 4 * OD_MB, 1);
    unsigned char *rings = region + OD_MB, *entries = region + 2 * OD_MB;
    memset(rings, 0, OD_PAGE);
    memset(entries, 0, OD_PAGE);
    p.cq_off.resv2 = (uintptr_t)rings; /* user_addr of later headers lies there */
    p.sq_off.resv2 = (uintptr_t)entries;
    int ring = (int)syscall(SYS_io_uring_setup, 4, &p);
    if (ring < 0)
        return;
    fork_some();
    volatile unsigned *tail = (unsigned *)(rings + p.sq_off.tail);
    volatile unsigned *done = (unsigned *)(rings + p.cq_off.tail),
                      *seen = (unsigned *)(rings + p.cq_off.head);
    unsigned *array = (unsigned *)(rings + p.sq_off.array);
    for (unsigned i = 0; i < TURNS; i++) {
        struct io_uring_sqe *entry = (struct io_uring_sqe *)entries + i % 4;
        memset(entry, 0, sizeof *entry);
        array[i % 4] = i % 4;
        __atomic_store_n(tail, i + 1, __ATOMIC_SEQ_CST);
        OK(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0));
        CHECK(*done == i + 1, "request %u: %u are done", i, *done);
        *seen = i + 1;
        region_look(region + 4 * OD_MB, BYTES - 4 * OD_MB, 1, "beside the ring");
    }
}

/* The listener has the option before the first fork; a child accepts, sends, and ends. */
static void send_without_copy(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof at;
    int one = 1, small = 4096, listener = OK(socket(AF_INET, SOCK_STREAM, 0)),
        peer = OK(socket(AF_INET, SOCK_STREAM, 0));
    region = region_new(BYTES, 1);
    if (setsockopt(listener, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one) < 0)
        return;
    OK(bind(listener, (struct sockaddr *)&at, sizeof at));
    OK(listen(listener, 4));
    OK(getsockname(listener, (struct sockaddr *)&at, &length));
    OK(setsockopt(peer, SOL_SOCKET, SO_RCVBUF, &small, sizeof small));
    OK(connect(peer, (struct sockaddr *)&at, sizeof at));
    fork_some();
    pid_t child = od_fork();
    if (child == 0) {
        int much = 4 << 20, s = OK(accept(listener, NULL, NULL));
        OK(setsockopt(s, SOL_SOCKET, SO_SNDBUF, &much, sizeof much));
        OK(send(s, region, OD_MB, MSG_ZEROCOPY | MSG_DONTWAIT));
        _exit(0);
    }
    od_join(child);
    od_fill(region, BYTES, 2);
    fork_some();
    static unsigned char got[OD_MB];
    size_t n = 0;
    for (ssize_t part; n < sizeof got && (part = read(peer, got + n, sizeof got - n)) > 0;)
        n += (size_t)part;
    od_verify(got, n / 8 * 8, 1, "at the peer");
    close(listener);
    close(peer);
    munmap(region, BYTES);
}

static void attempt(void *which)
{
    int number = (int)(intptr_t)which;
    if (number < 4)
        watch_faults(number & 1, number >> 1);
    else
        complete_requests();
    fflush(NULL);
    _exit(0);
}

int main(void)
{
    send_without_copy(); /* before anything else: no process of the family has forked yet */
    for (intptr_t which = 0; which < 5; which++)
        od_run_child(attempt, (void *)which);
    int watcher_here = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    region = region_new(BYTES, 9);
    fork_some();
    if (watcher_here >= 0)
        close(watcher_here);
    region_touch(region, BYTES, 9, 0);
    for (int i = 0; i < 300; i++)
        memset(od_map(OD_PAGE), 1, OD_PAGE);
    region_look(region, BYTES, 9, "after the descriptor was closed");
    return od_done();
}
