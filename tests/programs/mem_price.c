/* Memory that costs far more to freeze than the rental rule assumes: a pass stops when it has cost
 * what the forks have cost. What it froze by then stays, whole; the rest stays as it was. */
// odtest: modes=stock,auto expect=froze mem=300
#include "odtest.h"

#define SIZE (64 * OD_MB)
#define FORKS 60

/* The beginning of struct odfork_stats. */
struct figures {
    uint32_t engine, reason;
    uint64_t freezes, freeze_ns, freeze_bytes;
};

static struct figures figures(void)
{
    struct figures now = {0};
    size_t (*ask)(void *, size_t) = (size_t(*)(void *, size_t))dlsym(RTLD_DEFAULT, "odfork_stats");
    if (ask)
        ask(&now, sizeof now);
    return now;
}

static char *p;
static uint64_t generation = 1;

static void child_reads(void *argument)
{
    (void)argument;
    od_verify(p, SIZE, generation, "in a child");
}

int main(int argc, char **argv)
{
    if (argc == 1) {
        /* Each window of 2 MB costs 200 ms more: all of it over six seconds. */
        OK(setenv("ODFORK_FAULT", "slow:200", 1));
        char *again[] = {argv[0], "dear", NULL};
        execv("/proc/self/exe", again);
        FAIL("execv: %s", strerror(errno));
    }
    p = od_map(SIZE);
    od_fill(p, SIZE, generation);
    int stops = 0;
    uint64_t frozen = 0;
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = od_fork();
        if (pid == 0)
            _exit(0);
        od_join(pid);
        struct figures now = figures();
        if (now.freeze_bytes > frozen) {
            frozen = now.freeze_bytes;
            stops++;
            od_run_child(child_reads, NULL);
            od_verify(p, SIZE, generation, "after a part was frozen");
        }
    }
    if (figures().freezes > 0) {
        CHECK(stops > 0 && frozen < SIZE / 2, "frozen %zu of %zu bytes", (size_t)frozen,
              (size_t)SIZE);
        CHECK(frozen % (2 * OD_MB) == 0, "a part of a window: %zu bytes", (size_t)frozen);
    }
    od_fill(p, SIZE, ++generation);
    od_run_child(child_reads, NULL);
    return od_done();
}
