/* Children that fork again, 20 deep, each with its own writes and folds; parents that die first. */
// odtest: timeout=90 mem=500
#include "odtest.h"

#define PAGES 2048
#define DEPTH 20

static char *world;
static uint32_t (*truth)[PAGES]; /* shared: the generations at each depth */
static int report[2];

static void write_some(int depth, uint32_t *gen, uint32_t *dice)
{
    for (int i = 0; i < PAGES / 8; i++) {
        int page = od_random(dice) % PAGES;
        gen[page] = 100 * depth + i % 97;
        od_fill_at(world + page * OD_PAGE, OD_PAGE, gen[page], page * 512);
    }
}

static void verify(const uint32_t *gen, const char *who)
{
    for (int page = 0; page < PAGES; page++)
        od_verify_at(world + page * OD_PAGE, OD_PAGE, gen[page], page * 512, who);
}

/* One link: verify what came down, write, fork the next, write again, verify one's own. */
static void link_of(int depth, int parent_dies_first)
{
    uint32_t mine[PAGES], dice = depth;
    memcpy(mine, truth[depth], sizeof mine);
    if (parent_dies_first && depth > 1)
        while (getppid() != 1 && poll(NULL, 0, 2) == 0 && truth[0][depth] == 0)
            ; /* reparented, or the parent said it is about to go */
    verify(mine, "on arrival");
    if (depth == DEPTH) {
        CHECK(write(report[1], "x", 1) == 1, "report: %s", strerror(errno));
        return;
    }
    write_some(depth, mine, &dice);
    if (depth % 3 == 0)
        od_refreeze();
    memcpy(truth[depth + 1], mine, sizeof mine);
    pid_t pid = od_fork();
    if (pid == 0) {
        link_of(depth + 1, parent_dies_first);
        _exit(0);
    }
    write_some(depth + 50, mine, &dice);
    verify(mine, "after the fork of the next");
    if (parent_dies_first) {
        truth[0][depth + 1] = 1;
        return;
    }
    od_join(pid);
    verify(mine, "after the end of the next");
}

static void run_chain(int parent_dies_first)
{
    uint32_t dice = 99;
    memset(truth[0], 0, sizeof truth[0]);
    for (int page = 0; page < PAGES; page++) {
        truth[1][page] = od_random(&dice);
        od_fill_at(world + page * OD_PAGE, OD_PAGE, truth[1][page], page * 512);
    }
    uint32_t at_root[PAGES];
    memcpy(at_root, truth[1], sizeof at_root);
    pid_t pid = od_fork();
    if (pid == 0) {
        link_of(1, parent_dies_first);
        _exit(0);
    }
    char byte;
    od_join(pid);
    struct pollfd waiting = {.fd = report[0], .events = POLLIN};
    CHECK(poll(&waiting, 1, 30000) == 1, "the end of the chain did not report");
    CHECK(read(report[0], &byte, 1) == 1, "report: %s", strerror(errno));
    verify(at_root, "root");
}

int main(void)
{
    truth = OK(mmap(NULL, sizeof truth[0] * (DEPTH + 2), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    world = od_map(PAGES * OD_PAGE);
    OK(pipe(report));
    for (int round = 0; round < 3; round++) {
        run_chain(0);
        run_chain(1);
        od_refreeze();
    }
    return od_done();
}
