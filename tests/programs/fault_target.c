/* The program failures are injected into: three kinds of memory, three forks, changes between. */
// odtest: modes=stock,huge,small,user expect=frozen mem=200
#include "odtest.h"

#define EACH ((size_t)8 << 20)

static uint64_t in_bss[EACH / 8];

struct world {
    char *part[3];
    uint64_t gen[3];     /* generation of the whole part */
    uint64_t stripe_gen; /* generation of its every 64th page */
};

static void verify(struct world *w, const char *who)
{
    for (int part = 0; part < 3; part++)
        for (size_t page = 0; page < EACH / OD_PAGE; page++) {
            uint64_t gen = page % 64 == 5 ? w->stripe_gen : w->gen[part];
            od_verify_at(w->part[part] + page * OD_PAGE, OD_PAGE, gen, page * 512, who);
        }
}

static void write_stripes(struct world *w, uint64_t gen)
{
    w->stripe_gen = gen;
    for (int part = 0; part < 3; part++)
        for (size_t page = 5; page < EACH / OD_PAGE; page += 64)
            od_fill_at(w->part[part] + page * OD_PAGE, OD_PAGE, gen, page * 512);
}

static void child(void *argument)
{
    struct world *w = argument;
    verify(w, "child");
    write_stripes(w, 900);
    verify(w, "child after its own writes");
}

int main(void)
{
    struct world w = {.stripe_gen = 0};
    w.part[0] = OK(sbrk(EACH + OD_PAGE));
    w.part[0] += -(uintptr_t)w.part[0] & (OD_PAGE - 1);
    w.part[1] = od_map(EACH);
    w.part[2] = (char *)in_bss; /* need not be page-aligned: the pattern does not care */
    for (int part = 0; part < 3; part++) {
        w.gen[part] = 10 + part;
        od_fill(w.part[part], EACH, w.gen[part]);
    }
    write_stripes(&w, 1);
    for (int round = 0; round < 3; round++) {
        pid_t pid = od_spawn(child, &w);
        write_stripes(&w, 100 + round);
        od_join(pid);
        verify(&w, "parent");
    }
    return od_done();
}
