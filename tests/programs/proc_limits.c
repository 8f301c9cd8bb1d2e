// odtest: expect=frozen mem=100
/*
 * Resource limits as tight as stock fork bears: address space, data, file size (with no SIGXFSZ),
 * locked memory, core, stack, open files. Each in a fresh process that sets the limit before its
 * first fork, and in one that has grown old; also set in the child of a frozen process. The process
 * must do all it does on stock: same content, same answers of fork, malloc and mmap at the edge of
 * the limit.
 */
#include "proc_region.h"
#include <sys/prctl.h>

static const size_t BYTES = 8 * OD_MB;
static void *region;
static volatile sig_atomic_t xfsz;

static void on_xfsz(int sig)
{
    (void)sig;
    xfsz++;
}

struct fence {
    const char *name;
    int what;
    rlim_t value; /* or, when `above` is set, that many bytes above what is in use */
    int above;
};

static const struct fence FENCES[] = {
    { "address space + 64 KB", RLIMIT_AS, 64 << 10, 1 },
    { "address space + 1 MB", RLIMIT_AS, 1 << 20, 1 },
    { "address space + 20 MB", RLIMIT_AS, 20 << 20, 1 },
    { "address space below use", RLIMIT_AS, 4 << 20, 0 },
    { "data + 64 KB", RLIMIT_DATA, 64 << 10, 1 },
    { "data below use", RLIMIT_DATA, 4 << 20, 0 },
    { "file size 0", RLIMIT_FSIZE, 0, 0 },
    { "file size 4096", RLIMIT_FSIZE, 4096, 0 },
    { "file size 2 MB", RLIMIT_FSIZE, 2 << 20, 0 },
    { "locked memory 0", RLIMIT_MEMLOCK, 0, 0 },
    { "core 0", RLIMIT_CORE, 0, 0 },
    { "stack 256 KB", RLIMIT_STACK, 256 << 10, 0 },
    { "open files 3", RLIMIT_NOFILE, 3, 0 },
    { "pending signals 0", RLIMIT_SIGPENDING, 0, 0 },
    { "message queues 0", RLIMIT_MSGQUEUE, 0, 0 },
};
enum { COUNT = sizeof FENCES / sizeof *FENCES };

static rlim_t in_use(int what)
{
    long kb = od_proc_kb("/proc/self/status", what == RLIMIT_AS ? "VmSize:" : "VmData:");
    return (rlim_t)kb << 10;
}

static void put_up(const struct fence *f)
{
    rlim_t value = f->value + (f->above ? in_use(f->what) : 0);
    struct rlimit limit = { value, value };
    OK(setrlimit(f->what, &limit));
}

/* What is left below an address space limit must be what stock leaves: nothing of the runtime's
 * eats it. */
static void room_above(const struct fence *f)
{
    if (!f->above || f->value < 1 << 20)
        return;
    size_t want = (size_t)f->value - (512 << 10);
    void *block = mmap(NULL, want, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(block != MAP_FAILED, "%s: %zu bytes below the limit cannot be mapped", f->name, want);
    od_verify_zero(block, want, f->name);
    munmap(block, want);
}

static void work_inside(const struct fence *f)
{
    volatile uint64_t *word = region;
    struct sigaction action = { .sa_handler = on_xfsz };
    OK(sigaction(SIGXFSZ, &action, NULL));
    for (size_t round = 0; round < 5; round++) {
        errno = 77;
        pid_t pid = fork();
        CHECK(pid >= 0 && errno == 77, "%s: fork gave %d: %s", f->name, pid, strerror(errno));
        if (pid == 0) {
            region_check(region, BYTES, 12, REGION_STEP, f->name);
            for (size_t i = 1; i < BYTES / 8; i += 1024)
                word[i] = ~word[i];
            region_look(region, BYTES, 12, f->name);
            _exit(0);
        }
        od_join(pid);
        region_check(region, BYTES, 12, REGION_STEP, f->name);
        region_touch(region, BYTES, 12, round);
        room_above(f);
        if (round == 1)
            od_refreeze();
        if (round == 2)
            od_thaw();
        if (round == 3)
            od_freeze();
    }
    region_check(region, BYTES, 12, 1, f->name);
    CHECK(xfsz == 0, "%s: %d SIGXFSZ", f->name, (int)xfsz);
    struct rlimit after;
    OK(getrlimit(f->what, &after));
    CHECK(after.rlim_cur == after.rlim_max, "%s: the limit was changed", f->name);
}

static int run_case(int old, int which)
{
    region = region_new(BYTES, 12);
    if (old)
        region_grow_old(region, BYTES, 12);
    put_up(&FENCES[which]);
    work_inside(&FENCES[which]);
    _exit(0); /* the limit on files may forbid more */
}

static void start_case(int old, int which)
{
    char a[4], b[8];
    snprintf(a, sizeof a, "%d", old);
    snprintf(b, sizeof b, "%d", which);
    pid_t pid = od_fork();
    if (pid == 0) {
        unsetenv("ODFORK_STATS"); /* its file may be out of reach there */
        execv("/proc/self/exe", (char *[]){ "self", a, b, NULL });
        _exit(127);
    }
    od_join(pid);
}

int main(int argc, char **argv)
{
    if (argc == 3)
        return run_case(atoi(argv[1]), atoi(argv[2]));
    region = region_new(BYTES, 12);
    region_grow_old(region, BYTES, 12);
    for (int i = 0; i < COUNT; i++) {
        start_case(0, i);
        start_case(1, i);
        pid_t pid = od_fork();
        if (pid == 0) {
            put_up(&FENCES[i]);
            work_inside(&FENCES[i]);
            _exit(0);
        }
        od_join(pid);
        printf("%s: fine\n", FENCES[i].name);
    }
    return od_done();
}
