/* No helper task is to be had any more: no process, no descriptor or no /proc is left. Whatever the
 * program asks of frozen memory answers as on stock, with the same bytes: advice about children,
 * content given up, moves of every kind, by a process alone and beside a thread. */
// odtest: modes=stock,huge,small,user expect=frozen mem=300 timeout=90 live=no slices=no
// odtest: link=-lpthread
#include "odtest.h"
#include <pthread.h>
#include <sys/stat.h>

#define SIZE (32 * OD_MB)
#define PART OD_MB
enum { GEN = 7 };

static char *world, *room;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void *idle(void *argument)
{
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    return argument;
}

static void no_process(void)
{
    if (geteuid() == 0)
        OK(setuid(65534));
    struct rlimit none = {0, 0};
    OK(setrlimit(RLIMIT_NPROC, &none));
}

static void no_descriptor(void)
{
    struct rlimit none = {0, 0};
    OK(setrlimit(RLIMIT_NOFILE, &none));
}

static void no_proc(void)
{
    OK(mkdir("empty", 0755));
    OK(chroot("empty"));
    OK(chdir("/"));
}

static char *at(int part) { return world + part * PART; }

/* Content of so many bytes that were written at that part. */
static void verify(const char *where, size_t bytes, int part, const char *what)
{
    od_verify_at(where, bytes, GEN, part * PART / 8, what);
}

/* Parts 2 and 4 are empty in children, and theirs; nothing else is. */
static void child(int depth)
{
    verify(at(1), PART, 1, "before the wiped part");
    od_verify_zero(at(2), PART, "wiped");
    verify(at(3), PART, 3, "kept again");
    od_verify_zero(at(4) + 5 * OD_PAGE, 9 * OD_PAGE, "wiped, read-only");
    verify(at(4), 5 * OD_PAGE, 4, "before it");
    *at(2) = 1;
    CHECK(mprotect(at(4) + 5 * OD_PAGE, 9 * OD_PAGE, PROT_READ | PROT_WRITE) == 0, "mprotect");
    *(at(4) + 5 * OD_PAGE) = 1;
    if (depth > 0) {
        pid_t pid = depth == 2 ? fork() : (pid_t)syscall(OD_FORK_CALL);
        if (pid == 0) {
            child(depth - 1);
            _exit(0);
        }
        CHECK(pid > 0, "fork");
        od_join(pid);
        CHECK(*at(2) == 1, "the child's own");
    }
}

static void wipe(int forks)
{
    OK(madvise(at(2), PART, MADV_WIPEONFORK));
    OK(madvise(at(3), PART, MADV_WIPEONFORK));
    OK(madvise(at(3), PART, MADV_KEEPONFORK));
    OK(mprotect(at(4) + 5 * OD_PAGE, 9 * OD_PAGE, PROT_READ));
    OK(madvise(at(4) + 5 * OD_PAGE, 9 * OD_PAGE, MADV_WIPEONFORK));
    OK(madvise(at(5), PART, MADV_DONTDUMP));
    for (int i = 1; i <= 5; i++)
        verify(at(i), PART, i, "the parent's own");
    for (int i = 0; i < 3 && forks; i++) {
        pid_t pid = i == 1 ? (pid_t)syscall(OD_FORK_CALL) : fork();
        if (pid == 0) {
            child(2);
            _exit(0);
        }
        CHECK(pid > 0, "fork: %s", strerror(errno));
        od_join(pid);
    }
    verify(at(2), PART, 2, "the parent's own");
}

static void give_up(void)
{
    OK(madvise(at(6), OD_PAGE, MADV_DONTNEED));
    od_verify_zero(at(6), OD_PAGE, "given up");
    OK(madvise(at(6) + 9 * OD_PAGE, 20 * OD_PAGE, MADV_FREE));
    OK(mprotect(at(7), PART, PROT_NONE));
    OK(madvise(at(7), PART / 2, MADV_DONTNEED));
    OK(mprotect(at(7), PART, PROT_READ));
    od_verify_zero(at(7), PART / 2, "given up");
    od_verify_at(at(7) + PART / 2, PART / 2, GEN, (7 * PART + PART / 2) / 8, "kept");
    CHECK(madvise(at(8), PART, MADV_REMOVE) != 0 && errno == EINVAL, "MADV_REMOVE: %d", errno);
}

static void move(void)
{
    int how = MREMAP_MAYMOVE | MREMAP_FIXED;
    char *now = mremap(at(10), PART, PART, how, room);
    CHECK(now == room, "to a place: %s", strerror(errno));
    verify(now, PART, 10, "moved");
    now = mremap(now, PART, PART, how, at(10));
    CHECK(now == at(10), "back: %s", strerror(errno));
    verify(now, PART, 10, "moved back");
    now = mremap(at(11), PART, PART / 2, how, room);
    CHECK(now == room, "smaller: %s", strerror(errno));
    verify(now, PART / 2, 11, "moved and smaller");
    now = mremap(at(12), PART, 2 * PART, how, room + 2 * PART);
    CHECK(now == room + 2 * PART, "larger: %s", strerror(errno));
    verify(now, PART, 12, "moved and larger");
    od_verify_zero(now + PART, PART, "what is new");
    now = mremap(at(13), PART, PART, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    CHECK(now != MAP_FAILED, "leaving the mapping: %s", strerror(errno));
    verify(now, PART, 13, "moved");
    od_verify_zero(at(13), PART, "left");
    memset(at(13), 3, PART);
    now = mremap(at(14), PART, PART, MREMAP_DONTUNMAP | how, at(16));
    CHECK(now == at(16), "over frozen memory: %s", strerror(errno));
    verify(now, PART, 14, "moved over frozen memory");
    od_verify_zero(at(14), PART, "left");
    OK(madvise(at(16), OD_PAGE, MADV_DONTNEED));
    od_verify_zero(at(16), OD_PAGE, "given up where it was moved to");
    OK(madvise(at(18) + 3 * OD_PAGE, OD_PAGE, MADV_DONTNEED));
    now = mremap(at(18), PART, PART, how, room + 6 * PART);
    CHECK(now == room + 6 * PART, "given up in part: %s", strerror(errno));
    verify(now, 3 * OD_PAGE, 18, "moved");
    od_verify_zero(now + 3 * OD_PAGE, OD_PAGE, "given up before");
    size_t behind = 18 * PART + 4 * OD_PAGE;
    od_verify_at(now + 4 * OD_PAGE, PART - 4 * OD_PAGE, GEN, behind / 8, "moved");
    for (int i = 20; i < 32; i++)
        verify(at(i), PART, i, "everything else");
}

static void play(void (*fence)(void), int threads)
{
    pthread_t thread;
    world = od_map(SIZE);
    room = OK(mmap(NULL, 16 * PART, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    od_fill(world, SIZE, GEN);
    pid_t pid = od_fork();
    if (pid == 0)
        _exit(0);
    od_join(pid);
    od_freeze();
    if (threads) {
        pthread_mutex_lock(&gate);
        CHECK(pthread_create(&thread, NULL, idle, NULL) == 0, "pthread_create");
    }
    fence();
    wipe(fence != no_process);
    give_up();
    move();
    if (threads) {
        pthread_mutex_unlock(&gate);
        pthread_join(thread, NULL);
    }
}

/* By itself for what only the kernel does since Linux 6.13: the vector form. */
static void by_vector(void)
{
    world = od_map(SIZE);
    od_fill(world, SIZE, GEN);
    pid_t pid = od_fork();
    if (pid == 0)
        _exit(0);
    od_join(pid);
    int self = (int)OK(syscall(SYS_pidfd_open, getpid(), 0));
    struct {
        char *base;
        size_t len;
    } parts[3] = {{at(1), OD_PAGE}, {at(2) + OD_PAGE, PART}, {at(5), 3 * OD_PAGE}};
    long done = syscall(SYS_process_madvise, self, parts, 3, MADV_DONTNEED, 0);
    int known = done >= 0;
    printf("by vector: %ld\n", done);
    if (known) {
        od_verify_zero(at(1), OD_PAGE, "by vector");
        od_verify_zero(at(2) + OD_PAGE, PART, "by vector");
        od_verify_zero(at(5), 3 * OD_PAGE, "by vector");
        parts[1].base = at(3) + 1;
        printf("badly aligned: %ld\n", syscall(SYS_process_madvise, self, parts, 3, MADV_FREE, 0));
        printf("nothing: %ld\n", syscall(SYS_process_madvise, self, NULL, 0, MADV_FREE, 0));
        long bad = syscall(SYS_process_madvise, self, 8, 2, MADV_DONTNEED, 0);
        printf("no vector: %ld %d\n", bad, errno);
    }
    od_verify_at(at(5) + 3 * OD_PAGE, PART, GEN, (5 * PART + 3 * OD_PAGE) / 8, "everything else");
    close(self);
}

static const struct way {
    const char *name;
    void (*fence)(void);
} WAYS[] = {{"process", no_process}, {"descriptor", no_descriptor}, {"proc", no_proc}};

int main(void)
{
    for (int i = 0; i < 3; i++)
        for (int threads = 0; threads < 2; threads++) {
            if (WAYS[i].fence == no_proc && geteuid() != 0)
                continue;
            pid_t pid = od_fork();
            if (pid == 0) {
                play(WAYS[i].fence, threads);
                _exit(0);
            }
            od_join(pid);
            rmdir("empty");
            printf("no %s, %d threads more: as ever\n", WAYS[i].name, threads);
        }
    by_vector();
    return od_done();
}
