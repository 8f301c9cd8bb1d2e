/* RLIMIT_AS and RLIMIT_DATA: the same mappings succeed and fail as on stock, and forks go on below
 * the limit. */
// odtest: expect=froze timeout=60
#include "odtest.h"

#define SIZE (32 * OD_MB)

static char *world;

static void child(void *argument)
{
    od_verify(world, SIZE, *(uint64_t *)argument, "child");
    od_fill(world, SIZE, 5);
    od_refreeze();
    od_verify(world, SIZE, 5, "child after its own writes");
}

static void try_map(const char *what, size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("%s: %s\n", what, at == MAP_FAILED ? strerrorname_np(errno) : "done");
    if (at != MAP_FAILED)
        OK(munmap(at, size));
}

/* `room` MB above what is used now; the answers are for sizes far from that border. */
static void limited(int which, const char *name, const char *field, size_t room, uint64_t gen)
{
    struct rlimit old, limit;
    OK(getrlimit(which, &old));
    limit = old;
    limit.rlim_cur = od_proc_kb("/proc/self/status", field) * 1024 + room;
    OK(setrlimit(which, &limit));
    printf("%s with %zu MB of room\n", name, room / OD_MB);
    od_fill(world, SIZE, gen);
    od_run_child(child, &gen);
    od_verify(world, SIZE, gen, "parent");
    try_map("a quarter of the room", room / 4);
    try_map("twice the room", room * 2);
    od_fill(world, SIZE / 2, gen);
    od_refreeze();
    od_run_child(child, &gen);
    od_verify(world, SIZE, gen, "parent, later");
    try_map("a quarter of the room", room / 4);
    try_map("twice the room", room * 2);
    OK(setrlimit(which, &old));
}

/* Less than is in use already: nothing new can be mapped, fork still works. */
static void below(int which, const char *name, uint64_t gen)
{
    struct rlimit old, limit;
    OK(getrlimit(which, &old));
    limit = old;
    limit.rlim_cur = OD_MB;
    OK(setrlimit(which, &limit));
    printf("%s below what is used\n", name);
    try_map("a page", OD_PAGE);
    od_fill(world, SIZE, gen);
    pid_t pid = fork();
    printf("fork: %s\n", pid < 0 ? strerrorname_np(errno) : "done");
    if (pid == 0) {
        od_verify(world, SIZE, gen, "child");
        _exit(0);
    }
    if (pid > 0)
        od_join(pid);
    OK(setrlimit(which, &old));
    od_verify(world, SIZE, gen, "parent");
}

int main(void)
{
    world = od_map(SIZE);
    for (uint64_t gen = 10; gen < 40; gen += 10) {
        limited(RLIMIT_AS, "RLIMIT_AS", "VmSize:", 16 * OD_MB, gen);
        fflush(stdout);
        limited(RLIMIT_DATA, "RLIMIT_DATA", "VmData:", 16 * OD_MB, gen + 1);
        fflush(stdout);
        below(RLIMIT_AS, "RLIMIT_AS", gen + 2);
        fflush(stdout);
        below(RLIMIT_DATA, "RLIMIT_DATA", gen + 3);
        fflush(stdout);
    }
    return od_done();
}
