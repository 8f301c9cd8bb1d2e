// odtest: modes=stock,huge,small expect=any timeout=60 mem=64
/*
 * No lost write by another process: a child counts in its parent's memory with process_vm_writev
 * and /proc/PID/mem while the single-threaded parent freezes, folds and forks. The child is the
 * only writer, so whatever it wrote must be there, at once and in the end.
 */
#include "proc_region.h"
#include <sys/prctl.h>
#include <sys/uio.h>

enum { PAGES = 4096, FORKS = 60 };
static const size_t BYTES = PAGES * OD_PAGE;
static unsigned char *region;
static volatile uint64_t *shared; /* [0] writes completed, [1] stop, [2] cannot, [3] ready */

static uint64_t *slot(uint64_t n) { return (uint64_t *)(region + n * 13 % PAGES * OD_PAGE + 4088); }

static int write_remote(int mem, uint64_t n, uint64_t value)
{
    if (n % 2 && mem >= 0) {
        /* While memory is frozen, writes by this way are refused (EIO), not lost: docs/limits.md.
         */
        for (int i = 0; i < 20000; i++) {
            if (pwrite(mem, &value, 8, (off_t)(uintptr_t)slot(n)) == 8)
                return 1;
            if (errno != EIO)
                return 0;
            usleep(100);
        }
        return 0;
    }
    struct iovec here = { &value, 8 }, there = { slot(n), 8 };
    return process_vm_writev(getppid(), &here, 1, &there, 1, 0) == 8;
}

/* Gives slot n the value n + 1, in order, and looks now and then that an older one still holds. */
static void count_in_parent(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", getppid());
    int mem = open(path, O_RDWR | O_CLOEXEC);
    for (uint64_t n = 0; !shared[1]; n++) {
        if (!write_remote(mem, n, n + 1)) {
            CHECK(n == 0, "remote write %lu by %s: %s", n,
                  n % 2 && mem >= 0 ? "/proc/PID/mem" : "process_vm_writev", strerror(errno));
            shared[2] = 1;
            _exit(0);
        }
        shared[0] = n + 1;
        shared[3] = 1;
        uint64_t seen = 0, older = n < 50 ? n : n - 50;
        struct iovec here = { &seen, 8 }, there = { slot(older), 8 };
        CHECK(process_vm_readv(getppid(), &here, 1, &there, 1, 0) == 8, "remote read");
        CHECK(seen == older + 1, "write %lu of the child is lost: parent holds %lu", older + 1,
              seen);
    }
    _exit(0);
}

static void run(const char *when)
{
    for (uint64_t n = 0; n < PAGES; n++)
        *slot(n) = 0;
    memset((void *)shared, 0, OD_PAGE);
    pid_t writer = fork();
    CHECK(writer >= 0, "fork");
    if (writer == 0)
        count_in_parent();
    prctl(PR_SET_PTRACER, writer); /* where Yama guards ptrace; EINVAL elsewhere */
    while (!shared[3] && !shared[2])
        usleep(100);
    if (shared[2]) {
        od_join(writer);
        dprintf(2, "skip: remote writes are not allowed here\n");
        return;
    }
    for (int i = 0; i < FORKS; i++) {
        region_look(region, BYTES, 6, when);
        if (i % 10 == 5)
            od_refreeze();
        if (i % 20 == 9)
            od_thaw();
        if (i % 20 == 10)
            od_freeze();
    }
    shared[1] = 1;
    od_join(writer);
    uint64_t last = shared[0];
    for (uint64_t n = last > PAGES ? last - PAGES : 0; n < last; n++)
        CHECK(*slot(n) == n + 1, "%s: write %lu of %lu lost, slot holds %lu", when, n + 1, last,
              *slot(n));
    region_check(region, BYTES, 6, 64, when);
}

int main(void)
{
    region = region_new(BYTES, 6);
    shared = mmap(NULL, OD_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    run("early");
    region_grow_old(region, OD_PAGE, 6);
    run("late");
    printf("no remote write lost\n");
    return 0;
}
