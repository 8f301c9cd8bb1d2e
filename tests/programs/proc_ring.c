// odtest: expect=froze mem=100 timeout=60
/*
 * A child sends inherited memory by io_uring's SEND_ZC into a connection that is full, and ends.
 * The kernel keeps the pages: what the parent writes later must not come out of the socket.
 */
#include "proc_region.h"
#include <arpa/inet.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum { OLD = 1, NEW = 2, SENT = 64 * OD_PAGE, AT = 8 * OD_PAGE, SEND_ZC = 47, FILL = 1 << 20 };
static const size_t BYTES = 16 * OD_MB;
static char *region;

/* The kernel's answer, or -ENOSYS where there is no ring. */
static int send_by_ring(int socket, void *from, unsigned bytes)
{
    struct io_uring_params p;
    memset(&p, 0, sizeof p);
    int ring = (int)syscall(SYS_io_uring_setup, 4, &p);
    if (ring < 0)
        return -ENOSYS;
    const int access = PROT_READ | PROT_WRITE;
    char *s = OK(mmap(NULL, p.sq_off.array + p.sq_entries * 4, access, MAP_SHARED, ring,
                      IORING_OFF_SQ_RING));
    char *c = OK(mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe), access,
                      MAP_SHARED, ring, IORING_OFF_CQ_RING));
    struct io_uring_sqe *entry =
        OK(mmap(NULL, p.sq_entries * sizeof *entry, access, MAP_SHARED, ring, IORING_OFF_SQES));
    memset(entry, 0, sizeof *entry);
    entry->opcode = SEND_ZC;
    entry->fd = socket;
    entry->addr = (uintptr_t)from;
    entry->len = bytes;
    entry->msg_flags = MSG_DONTWAIT;
    *(unsigned *)(s + p.sq_off.array) = 0;
    __atomic_store_n((unsigned *)(s + p.sq_off.tail), 1, __ATOMIC_RELEASE);
    OK(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0));
    return ((struct io_uring_cqe *)(c + p.cq_off.cqes))->res;
}

/* A connection of this machine that holds much which nobody reads. */
static void connect_both(int ends[2])
{
    struct sockaddr_in name = { .sin_family = AF_INET };
    socklen_t length = sizeof name;
    int few = 4096, many = 8 << 20, listening = OK(socket(AF_INET, SOCK_STREAM, 0));
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listening, SOL_SOCKET, SO_RCVBUF, &few, sizeof few);
    OK(bind(listening, (void *)&name, length));
    OK(listen(listening, 1));
    OK(getsockname(listening, (void *)&name, &length));
    ends[0] = OK(socket(AF_INET, SOCK_STREAM, 0));
    setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &many, sizeof many);
    setsockopt(ends[0], SOL_SOCKET, SO_SNDBUFFORCE, &many, sizeof many);
    OK(connect(ends[0], (void *)&name, length));
    ends[1] = OK(accept(listening, NULL, NULL));
    close(listening);
}

/* As much as fits without waiting, with room left for what is sent next. */
static size_t fill(int socket)
{
    static char zeros[FILL / 8];
    size_t filled = 0;
    while (filled < FILL) {
        ssize_t sent = send(socket, zeros, sizeof zeros, MSG_DONTWAIT);
        if (sent <= 0)
            break;
        filled += (size_t)sent;
    }
    return filled;
}

int main(void)
{
    int ends[2];
    static char got[FILL + SENT];
    connect_both(ends);
    region = region_new(BYTES, OLD);
    od_freeze();
    region_look(region, BYTES, OLD, "before");
    region_touch(region, BYTES, OLD, 0);
    region_look(region, BYTES, OLD, "folded");
    size_t before = fill(ends[0]);
    pid_t child = od_fork();
    if (child == 0) {
        int sent = send_by_ring(ends[0], region + AT, SENT);
        /* An ordinary user's connection may have no room for that much. */
        if (sent == -ENOSYS || sent == -EINVAL || sent == -EAGAIN || (sent >= 0 && sent < SENT))
            _exit(OD_SKIP_STATUS);
        CHECK(sent == SENT, "sent %d of %d", sent, (int)SENT);
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child, "waitpid");
    if (WIFEXITED(status) && WEXITSTATUS(status) == OD_SKIP_STATUS)
        od_skip("no io_uring here that sends so much without copying; see net.core.wmem_max");
    CHECK(status == 0, "the child ended with %#x", (unsigned)status);
    od_fill(region, BYTES, NEW);
    for (int i = 0; i < 3; i++)
        region_look(region, BYTES, NEW, "the parent's own");
    for (size_t n = 0; n < before + SENT;)
        n += (size_t)OK(read(ends[1], got + n, before + SENT - n));
    od_verify_at(got + before, SENT, OLD, AT / 8, "from the socket");
    return od_done();
}
