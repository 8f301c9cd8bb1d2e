// odtest: expect=any user=any timeout=60 mem=200
// odtest: link=-lpthread
/*
 * A ring of io_uring writes to buffers by their frames. Whatever the program does to memory that
 * was frozen before: what the ring reads later lies where the program looks. So it does where a
 * thread reads with O_DIRECT and a vfork child gives the memory a property.
 */
#include "raw_call.h"
#include "ring.h"
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/resource.h>

static const size_t BYTES = 48 * OD_MB, BUFFER = OD_MB, AT = 16 * OD_MB;

static long by_instruction(long number, ...)
{
    long a[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    long answer = raw_call(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (answer >= 0)
        return answer;
    errno = (int)-answer;
    return -1;
}

static void trim(char *memory)
{
    (void)memory;
    malloc_trim(0);
}

static void lock(char *memory)
{
    if (mlock(memory, BYTES))
        fprintf(stderr, "not locked: %s\n", strerror(errno));
}

static void keep_out(char *memory) { OK(madvise(memory, BYTES, MADV_DONTDUMP)); }

static void move(char *memory)
{
    char *target = od_map(BYTES);
    OK(mremap(memory, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, target));
    OK(mremap(target, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, memory));
}

static void nothing(char *memory) { (void)memory; }

static const struct way {
    const char *name;
    void (*act)(char *);
} ways[] = {
    {"nothing", nothing}, {"trim", trim}, {"lock", lock}, {"keep out", keep_out}, {"move", move},
};

static void read_into(char *buffer, int file, uint64_t gen, const char *when)
{
    char *source = od_map(BUFFER);
    od_fill(source, BUFFER, gen);
    CHECK(pwrite(file, source, BUFFER, 0) == (ssize_t)BUFFER, "pwrite");
    OK(munmap(source, BUFFER));
    struct io_uring_sqe *entry = next_entry();
    entry->opcode = IORING_OP_READ_FIXED;
    entry->fd = file;
    entry->addr = (uintptr_t)buffer;
    entry->len = (unsigned)BUFFER;
    submit_entry();
    int got = complete();
    CHECK(got == (int)BUFFER, "%s: read: %d", when, got);
    od_verify(buffer, BUFFER, gen, when);
}

static void one(const struct way *way)
{
    char *memory = od_map(BYTES);
    od_fill(memory, BYTES, 1);
    od_freeze();
    od_run_child((void (*)(void *))od_refreeze, NULL);
    char name[] = "/tmp/odfork-pinned-XXXXXX"; /* O_TMPFILE is missing in overlayfs before 6.3 */
    int file = OK(mkstemp(name));
    OK(unlink(name));
    make_ring(4);
    struct iovec range = {memory + AT, BUFFER};
    if (ring_call(SYS_io_uring_register, ring_fd, IORING_REGISTER_BUFFERS, (long)&range, 1L, 0L,
                  0L))
        od_skip("no registered buffers: %s", strerror(errno));
    read_into(memory + AT, file, 7, way->name);
    way->act(memory);
    read_into(memory + AT, file, 9, way->name);
    od_verify(memory, AT, 1, "before the buffer");
    OK(close(file));
    OK(close(ring_fd));
}

static char *direct;
static int direct_file;
static volatile int begun;

static void *read_direct(void *unused)
{
    begun = 1;
    for (size_t at = 0; at < BYTES;) {
        ssize_t got = pread(direct_file, direct + at, BYTES - at, (off_t)at);
        CHECK(got > 0, "read with O_DIRECT: %s", strerror(errno));
        at += (size_t)got;
    }
    return unused;
}

static void beside_a_borrower(void)
{
    direct_file = open("/var/tmp", O_TMPFILE | O_RDWR | O_DIRECT, 0600);
    if (direct_file < 0)
        return;
    direct = od_map(BYTES);
    od_fill(direct, BYTES, 7);
    CHECK(write(direct_file, direct, BYTES) == (ssize_t)BYTES, "write: %s", strerror(errno));
    for (unsigned nap = 0; nap < 8000; nap = 2 * nap + 250) {
        pthread_t thread;
        od_fill(direct, BYTES, 1);
        od_freeze();
        begun = 0;
        CHECK(pthread_create(&thread, NULL, read_direct, NULL) == 0, "pthread_create");
        while (!begun)
            usleep(100);
        usleep(nap);
        pid_t pid = OK(vfork());
        if (pid == 0) {
            if (madvise(direct, BYTES, MADV_DONTFORK) || madvise(direct, BYTES, MADV_DOFORK))
                _exit(1);
            _exit(0);
        }
        od_join(pid);
        pthread_join(thread, NULL);
        od_verify(direct, BYTES, 7, "read with O_DIRECT");
    }
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        ring_call = argv[1][0] == 'i' ? by_instruction : syscall;
        one(&ways[atoi(argv[2])]);
        return 0;
    }
    beside_a_borrower();
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    (void)setrlimit(RLIMIT_MEMLOCK, &all);
    for (int at = 0; at < 2 * (int)(sizeof ways / sizeof *ways); at++) {
        pid_t pid = OK(od_fork());
        if (pid == 0) {
            char number[] = {(char)('0' + at / 2), 0};
            const char *how = at % 2 ? "instruction" : "call";
            OK(execl("/proc/self/exe", "mem_pinned", how, number, NULL));
        }
        int status;
        OK(waitpid(pid, &status, 0));
        CHECK(WIFEXITED(status), "%s: status %x", ways[at / 2].name, status);
        if (WEXITSTATUS(status))
            return WEXITSTATUS(status);
    }
    return od_done();
}
