/* Memory that the kernel has pinned: what it writes there by the pin must be what the program
 * finds. Argument: "refused" or "allowed", whether the calls that pin memory are expected to be
 * refused. */
#include "pages.h"
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define BUFFER 16ul

static int expect_refused;
static char name[] = "/tmp/odpager-pins-XXXXXX";

static void refused(const char *what, long answer, int error)
{
    if (answer >= 0 && expect_refused)
        fprintf(stderr, "%s was not refused\n", what), abort();
    if (answer < 0 && (errno != error || !expect_refused))
        fprintf(stderr, "%s: %s\n", what, strerror(errno)), abort();
}

/* Other memory is walked until no page of the buffer is in memory, or for long. */
static void push_out(void *buffer)
{
    size_t pages = 40 << 8;
    uint64_t *other = paged(pages * PAGE);
    for (int round = 0; round < 12; round++) {
        for (size_t page = 0; page < pages; page++)
            fill_page(other + page * WORDS, page, round + 1);
        unsigned char there[BUFFER];
        unsigned left = 0;
        if (mincore(buffer, BUFFER * PAGE, there) != 0)
            perror("mincore"), abort();
        for (unsigned n = 0; n < BUFFER; n++)
            left += there[n] & 1;
        if (left == 0)
            break;
    }
    munmap(other, pages * PAGE);
}

static int ring_read(uint64_t *buffer, int file)
{
    struct io_uring_params p = {0};
    long ring = syscall(SYS_io_uring_setup, 4, &p);
    refused("io_uring_setup", ring, ENOSYS);
    if (ring < 0)
        return 0;
    char *sq = mmap(NULL, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED,
                    ring, IORING_OFF_SQ_RING);
    char *cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe),
                    PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_CQ_RING);
    struct io_uring_sqe *sqe = mmap(NULL, p.sq_entries * sizeof *sqe, PROT_READ | PROT_WRITE,
                                    MAP_SHARED, ring, IORING_OFF_SQES);
    struct iovec part = {buffer, BUFFER * PAGE};
    if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &part, 1) != 0)
        perror("register"), abort();
    push_out(buffer);
    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = IORING_OP_READ_FIXED;
    sqe->fd = file;
    sqe->addr = (uintptr_t)buffer;
    sqe->len = BUFFER * PAGE;
    *(unsigned *)(sq + p.sq_off.array) = 0;
    __atomic_store_n((unsigned *)(sq + p.sq_off.tail), 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1)
        perror("enter"), abort();
    struct io_uring_cqe *done = (void *)(cq + p.cq_off.cqes);
    if (done->res != (int)(BUFFER * PAGE))
        fprintf(stderr, "read: %d\n", done->res), abort();
    return 1;
}

int main(int argc, char **argv)
{
    expect_refused = argc < 2 || strcmp(argv[1], "refused") == 0;
    int file = mkstemp(name);
    uint64_t page[WORDS];
    for (unsigned n = 0; n < BUFFER; n++) {
        fill_page(page, n, 7);
        if (write(file, page, PAGE) != PAGE)
            perror("write"), abort();
    }
    fsync(file);
    /* before anything is paged */
    if (argc > 2 && strcmp(argv[2], "direct") == 0) {
        int direct = open(name, O_RDWR | O_DIRECT);
        uint64_t *memory = paged(4 << 20);
        unlink(name);
        if (direct >= 0 && is_paged(memory))
            fprintf(stderr, "paged in spite of a file for direct reads\n"), abort();
        printf("ok\n");
        return 0;
    }
    struct io_uring_params none = {0};
    long early = syscall(SYS_io_uring_setup, 4, &none);
    if (early < 0 && errno == EPERM) {
        unlink(name);
        printf("ok: this kernel lets nobody use io_uring\n");
        return 0;
    }
    if (early < 0 && !(argc > 2))
        perror("io_uring_setup before anything is paged"), abort();
    if (argc > 2 && strcmp(argv[2], "early") == 0) {
        /* a ring that was there first: the program is left to the kernel */
        uint64_t *memory = paged(4 << 20);
        unlink(name);
        if (is_paged(memory))
            fprintf(stderr, "paged in spite of a ring\n"), abort();
        printf("ok\n");
        return 0;
    }
    close(early);
    uint64_t *buffer = paged(4 << 20);
    need_paged(buffer);
    for (unsigned n = 0; n < BUFFER; n++)
        fill_page(buffer + n * WORDS, n, 3);
    if (!ring_read(buffer, file) && pread(file, buffer, BUFFER * PAGE, 0) != (long)(BUFFER * PAGE))
        perror("read"), abort();
    for (unsigned n = 0; n < BUFFER; n++)
        check_page("read by the kernel", buffer + n * WORDS, n, 7);
    aio_context_t context = 0;
    refused("io_setup", syscall(SYS_io_setup, 4, &context), ENOSYS);
    struct iovec part = {buffer, PAGE};
    refused("process_vm_writev", syscall(SYS_process_vm_writev, getpid(), &part, 1, &part, 1, 0),
            ENOSYS);
    refused("open for direct reads", syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_DIRECT),
            EINVAL);
    refused("a change to direct reads", syscall(SYS_fcntl, file, F_SETFL, O_RDWR | O_DIRECT),
            EINVAL);
    if (syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_DIRECT) < 0)
        perror("open for direct writes"), abort();
    /* by the C library: served, without the pins */
    int direct = open(name, O_RDONLY | O_DIRECT);
    if (direct < 0 || pread(direct, buffer + WORDS, PAGE, 2 * PAGE) != PAGE)
        perror("open"), abort();
    if (expect_refused && fcntl(direct, F_GETFL) & O_DIRECT)
        fprintf(stderr, "it still reads directly\n"), abort();
    if (fcntl(direct, F_SETFL, O_DIRECT) != 0)
        perror("fcntl"), abort();
    if (expect_refused && fcntl(direct, F_GETFL) & O_DIRECT)
        fprintf(stderr, "it reads directly again\n"), abort();
    check_page("direct", buffer + WORDS, 2, 7);
    unlink(name);
    printf("ok\n");
    return 0;
}
