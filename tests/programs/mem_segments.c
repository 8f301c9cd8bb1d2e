/* .data, .bss, thread-local storage and read-only data after relocation, written on both sides. */
// odtest: timeout=60
#include "odtest.h"

#define WORDS (OD_MB) /* 8 MB each */

static uint64_t in_data[8 * OD_MB / 8] = {1, 2, 3};
static uint64_t in_bss[8 * OD_MB / 8];
static __thread uint64_t in_tls[8 * OD_MB / 8];
static int (*const volatile relocated[4])(const char *, ...) = {printf, printf, printf, printf};

static void verify(uint64_t gen, const char *who)
{
    od_verify(in_data, sizeof in_data, gen, who);
    od_verify(in_bss, sizeof in_bss, gen + 1, who);
    od_verify(in_tls, sizeof in_tls, gen + 2, who);
    for (int i = 0; i < 4; i++)
        CHECK(relocated[i] == printf, "%s: a relocated pointer changed", who);
}

static void fill(uint64_t gen)
{
    od_fill(in_data, sizeof in_data, gen);
    od_fill(in_bss, sizeof in_bss, gen + 1);
    od_fill(in_tls, sizeof in_tls, gen + 2);
}

static void child(void *argument)
{
    uint64_t gen = *(uint64_t *)argument;
    verify(gen, "child");
    fill(gen + 500);
    od_refreeze();
    verify(gen + 500, "child after its own writes");
}

int main(void)
{
    CHECK(in_data[2] == 3 && in_data[3] == 0, ".data as linked");
    od_run_child((void (*)(void *))od_refreeze, NULL);
    CHECK(in_data[2] == 3 && in_data[WORDS - 1] == 0, ".data as linked, later");
    od_verify_zero(in_bss, sizeof in_bss, "untouched .bss");
    od_verify_zero(in_tls, sizeof in_tls, "untouched thread-local storage");
    for (uint64_t gen = 10; gen < 60; gen += 10) {
        fill(gen);
        pid_t pid = od_spawn(child, &gen);
        in_data[77] = in_bss[77] = in_tls[77] = 0;
        od_join(pid);
        in_data[77] = od_word(gen, 77);
        in_bss[77] = od_word(gen + 1, 77);
        in_tls[77] = od_word(gen + 2, 77);
        if (gen == 30)
            od_refreeze();
        verify(gen, "parent");
    }
    return od_done();
}
