/* Point in time: children held back while the parent rewrites see exactly the pages of their fork.
 * Truth is kept in shared memory, which no freeze may touch: a whole older world would show. */
// odtest: expect=fold timeout=90 mem=500
#include "odtest.h"

#define PAGES 4096 /* 16 MB */
#define ROUNDS 40
#define CROWD 200

static char *world;
static uint32_t (*truth)[PAGES]; /* truth[round][page]: the generation at that fork */
static uint32_t now[PAGES];
static uint32_t dice = 7;

static void rewrite(uint32_t gen, int one_in)
{
    for (int page = 0; page < PAGES; page++)
        if (od_random(&dice) % one_in == 0) {
            od_fill_at(world + page * OD_PAGE, OD_PAGE, gen, page * 512);
            now[page] = gen;
        }
}

static void verify(int round, const char *who)
{
    for (int page = 0; page < PAGES; page++)
        od_verify_at(world + page * OD_PAGE, OD_PAGE, truth[round][page], page * 512, who);
}

struct held {
    struct od_gate gate;
    pid_t pid;
    int round;
};

static void child(void *argument)
{
    struct held *me = argument;
    od_gate_wait(&me->gate);
    verify(me->round, "child long after its fork");
}

/* Lets the held children go in random order. */
static void release(struct held *held, int count)
{
    while (count > 0) {
        int pick = od_random(&dice) % count;
        od_gate_open(&held[pick].gate, 1);
        od_join(held[pick].pid);
        od_gate_drop(&held[pick].gate);
        held[pick] = held[--count];
    }
}

static void hold(struct held *one, int round)
{
    memcpy(truth[round], now, sizeof now);
    one->round = round;
    od_gate_make(&one->gate);
    one->pid = od_spawn(child, one);
}

/* Up to 8 children of different generations alive, the parent rewriting more or less between. */
static void generations(void)
{
    static const int one_in[] = {1, 3, 50, 1000, 4, 300};
    struct held held[8];
    int alive = 0;
    for (int round = 0; round < ROUNDS; round++) {
        hold(&held[alive++], round);
        rewrite(1000 + round, one_in[round % 6]);
        if (round % 5 == 3)
            od_refreeze();
        if (alive == 8 || round == ROUNDS - 1) {
            release(held, alive);
            alive = 0;
            memcpy(truth[ROUNDS], now, sizeof now);
            verify(ROUNDS, "parent");
        }
    }
}

/* Two hundred at once, a few pages rewritten between one fork and the next. */
static void crowd(void)
{
    static struct held held[CROWD];
    for (int i = 0; i < CROWD; i++) {
        hold(&held[i], ROUNDS + 1 + i);
        rewrite(2000 + i, 400);
    }
    od_refreeze();
    rewrite(3000, 2);
    release(held, CROWD);
}

int main(void)
{
    size_t size = sizeof truth[0] * (ROUNDS + CROWD + 2);
    truth = OK(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    world = od_map(PAGES * OD_PAGE);
    rewrite(1, 1);
    generations();
    crowd();
    return od_done();
}
