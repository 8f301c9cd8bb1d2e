/* Children the runtime was not asked to make: raw clone, clone3, _Fork, vfork. They hold the image
 * like any other child: folds of the parent while they live must not reach them. */
// odtest: expect=fold timeout=60
#include "raw_call.h"
#include <linux/sched.h>

#define SIZE (16 * OD_MB)
#define KINDS 5

static char *world;

static pid_t raw_clone(void) { return (pid_t)raw_call(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0); }

static pid_t clone3_child(void)
{
    struct clone_args args = {.exit_signal = SIGCHLD};
    return syscall(SYS_clone3, &args, sizeof args);
}

static pid_t make_child(int kind)
{
    pid_t (*plain_fork)(void) = (pid_t(*)(void))dlsym(RTLD_DEFAULT, "_Fork");
    switch (kind) {
    case 0:
        return raw_clone();
    case 1:
        return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    case 2:
        return clone3_child();
    case 3:
        return plain_fork ? plain_fork() : fork();
    case 4:
        return syscall(OD_FORK_CALL);
    default:
        return fork();
    }
}

static void hold_one(int kind, uint64_t gen)
{
    struct od_gate gate;
    od_gate_make(&gate);
    od_fill(world, SIZE, gen);
    pid_t pid = make_child(kind);
    CHECK(pid >= 0, "kind %d: %s", kind, strerror(errno));
    if (pid == 0) {
        od_gate_wait(&gate);
        od_verify(world, SIZE, gen, "child of a call that is not fork()");
        _exit(0);
    }
    for (int i = 1; i <= 3; i++) {
        od_fill(world, SIZE, gen + i);
        od_refreeze();
        od_run_child((void (*)(void *))od_refreeze, NULL);
    }
    od_gate_open(&gate, 1);
    od_join(pid);
    od_verify(world, SIZE, gen + 3, "parent");
    od_gate_drop(&gate);
}

/* A vfork child shares the memory: what it writes is the parent's. */
static void borrow(uint64_t gen)
{
    od_fill(world, SIZE, gen);
    od_refreeze();
    pid_t pid = vfork();
    if (pid == 0) {
        for (size_t page = 0; page < 64; page++)
            *(volatile uint64_t *)(world + page * 16 * OD_PAGE) = 0;
        _exit(0);
    }
    od_join(pid);
    for (size_t page = 0; page < 64; page++) {
        uint64_t *word = (uint64_t *)(world + page * 16 * OD_PAGE);
        CHECK(*word == 0, "a write of the vfork child is lost");
        *word = od_word(gen, page * 16 * 512);
    }
    od_verify(world, SIZE, gen, "parent after vfork");
}

int main(void)
{
    world = od_map(SIZE);
    for (int round = 0; round < 2; round++) {
        for (int kind = 0; kind < KINDS; kind++)
            hold_one(kind, 100 * round + 10 * kind + 1);
        borrow(100 * round + 90);
    }
    return od_done();
}
