/* 300 times fork, mutate, exit: the process, the shared memory and the machine are back at base.
 * One image (48 MB) lost every ten cycles would be 1.3 GB; the slack is 320 MB, for others' noise,
 * and three times that where the machine's whole free memory is looked at. */
// odtest: expect=fold serial=yes timeout=120 mem=900
#include "odtest.h"

#define SIZE (48 * OD_MB)
#define CYCLES 300
#define WARM_UP 30
#define SLACK_KB (320 * 1024)
#define OWN_SLACK_KB (2 * 48 * 1024)

struct level {
    long own, own_shared, shared, available;
};

static char *world;
static uint32_t gen_of[SIZE / OD_PAGE];

static struct level measure(void)
{
    struct level now = {
        .own = od_proc_kb("/proc/self/status", "VmRSS:"),
        .own_shared = od_proc_kb("/proc/self/status", "RssShmem:"),
        .shared = od_proc_kb("/proc/meminfo", "Shmem:"),
        .available = od_proc_kb("/proc/meminfo", "MemAvailable:"),
    };
    return now;
}

static void write_page(size_t page, uint32_t gen)
{
    gen_of[page] = gen;
    od_fill_at(world + page * OD_PAGE, OD_PAGE, gen, page * 512);
}

static void verify(const char *who)
{
    for (size_t page = 0; page < SIZE / OD_PAGE; page++)
        od_verify_at(world + page * OD_PAGE, OD_PAGE, gen_of[page], page * 512, who);
}

static void child(void *argument)
{
    uint32_t dice = *(int *)argument;
    for (int i = 0; i < 200; i++)
        write_page(od_random(&dice) % (SIZE / OD_PAGE), 7);
    if (dice % 16 == 0)
        verify("child");
    else
        poll(NULL, 0, 1);
}

/* One cycle; every fifth child outlives four more, so folds find the image in use. */
static void cycle(int i, pid_t *lingering)
{
    uint32_t dice = i * 31;
    pid_t pid = od_spawn(child, &i);
    for (int k = 0; k < 1000; k++)
        write_page(od_random(&dice) % (SIZE / OD_PAGE), 1000 + i);
    if (i % 3 == 0)
        od_refreeze();
    if (i % 5 == 0) {
        if (*lingering)
            od_join(*lingering);
        *lingering = pid;
    } else {
        od_join(pid);
    }
}

static int is_back(const struct level *base, const struct level *now)
{
    return now->own - base->own < OWN_SLACK_KB &&
           now->own_shared - base->own_shared < OWN_SLACK_KB &&
           now->shared - base->shared < SLACK_KB && base->available - now->available < 3 * SLACK_KB;
}

int main(void)
{
    struct level base = {0}, now;
    pid_t lingering = 0;
    world = od_map(SIZE);
    for (size_t page = 0; page < SIZE / OD_PAGE; page++)
        write_page(page, 1);
    for (int i = 0; i < CYCLES; i++) {
        if (i == WARM_UP)
            base = measure();
        cycle(i, &lingering);
    }
    od_join(lingering);
    verify("parent");
    now = measure();
    for (int wait = 0; wait < 600 && !is_back(&base, &now); wait++) {
        poll(NULL, 0, 100);
        now = measure();
    }
    CHECK(is_back(&base, &now), "kB grown: own %ld, own shared %ld, Shmem %ld, available gone %ld",
          now.own - base.own, now.own_shared - base.own_shared, now.shared - base.shared,
          base.available - now.available);
    return od_done();
}
