/* Properties that a file would not keep: a memory policy and a name, given before a freeze or after
 * it. */
// odtest: expect=froze mem=200 timeout=60
#include "odtest.h"
#include <sys/prctl.h>

#define SIZE (8 * OD_MB)
enum { BIND = 2, BY_ADDRESS = 2, SET_VMA = 0x53564d41 };

static int policy_of(void *at)
{
    int policy = -1;
    OK(syscall(SYS_get_mempolicy, &policy, NULL, 0, at, BY_ADDRESS));
    return policy;
}

static void look(void *memory)
{
    od_verify(memory, SIZE, 4, "in the child");
    od_fill(memory, SIZE, 5);
    od_verify(memory, SIZE, 5, "what the child wrote");
}

/* What naming says on stock: nothing, or that the kernel cannot. */
static long give_name(char *memory, const char *name)
{
    return prctl(SET_VMA, 0, memory, SIZE, name) ? errno : 0;
}

static void bind_or_name(char *memory, int by_name, int late)
{
    unsigned long nodes = 1;
    if (late) {
        od_run_child(look, memory);
        od_freeze();
    }
    long said = 0;
    if (by_name)
        said = give_name(memory, "before");
    else
        OK(syscall(SYS_mbind, memory, SIZE, BIND, &nodes, 64, 0));
    for (int i = 0; i < 3; i++)
        od_run_child(look, memory);
    od_refreeze();
    if (by_name)
        CHECK(give_name(memory, "after") == said, "the name can be given once only");
    else
        for (size_t at = 0; at < SIZE; at += SIZE / 8)
            CHECK(policy_of(memory + at) == BIND, "policy %d at %zu, late %d",
                  policy_of(memory + at), at, late);
    od_verify(memory, SIZE, 4, "at the end");
}

/* A part has a policy, all of it gets another property then. */
static void bind_a_part(void)
{
    char *memory = od_map(SIZE), *part = memory + 2 * OD_MB;
    unsigned long nodes = 1;
    od_fill(memory, SIZE, 4);
    od_run_child(look, memory);
    od_freeze();
    OK(syscall(SYS_mbind, part, OD_MB, BIND, &nodes, 64, 0));
    OK(madvise(memory, SIZE, MADV_DONTDUMP));
    CHECK(policy_of(part) == BIND, "policy %d of the part that was bound", policy_of(part));
    CHECK(policy_of(memory) != BIND, "the policy of a part is that of all");
    od_run_child(look, memory);
}

int main(void)
{
    char *plain = od_map(SIZE);
    int policy;
    if (syscall(SYS_get_mempolicy, &policy, NULL, 0, plain, BY_ADDRESS) < 0)
        od_skip("get_mempolicy: %s; needs a kernel with CONFIG_NUMA", strerror(errno));
    od_fill(plain, SIZE, 4);
    for (int kind = 0; kind < 4; kind++) {
        char *memory = od_map(SIZE + OD_MB);
        OK(mprotect(memory + SIZE, OD_MB, PROT_NONE)); /* apart from its neighbours */
        od_fill(memory, SIZE, 4);
        bind_or_name(memory, kind & 1, kind >> 1);
        od_run_child(look, plain);
    }
    bind_a_part();
    return od_done();
}
