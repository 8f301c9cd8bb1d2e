// odtest: modes=stock,huge,small expect=any needs=root mem=500 serial=yes
/*
 * In a memory control group: memory is frozen, a child lives that shows it, and the program grows
 * by as much as the group still has on stock. Thawed for that, the frozen memory would exist twice,
 * and the group would be over its limit.
 */
#include "proc_group.h"
#include "proc_region.h"

#define BYTES (128 * OD_MB)
#define MORE (240 * OD_MB)
#define LIMIT (410 * OD_MB)

static void grow(void)
{
    void *region = region_new(BYTES, 17);
    region_look(region, BYTES, 17, "frozen");
    struct od_gate gate;
    od_gate_make(&gate);
    pid_t pid = od_fork();
    if (pid == 0) {
        od_gate_wait(&gate);
        region_check(region, BYTES, 17, REGION_STEP, "child");
        _exit(0);
    }
    for (int i = 0; i < 8; i++)
        memset(od_map(MORE / 8), 5, MORE / 8);
    od_gate_open(&gate, 1);
    od_join(pid);
    region_check(region, BYTES, 17, 1, "parent");
}

int main(int argc, char **argv)
{
    struct group g;
    (void)argv;
    if (argc == 4) {
        grow();
        return 0;
    }
    group_make(&g);
    CHECK(group_set_limit(&g, LIMIT) == 0, "cannot set the limit");
    group_run(&g, "a child shows it");
    group_drop(g.dir);
    return od_done();
}
