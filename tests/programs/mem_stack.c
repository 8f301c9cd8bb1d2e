/* Forks from deep in the main stack and from an alternate signal stack inside frozen memory. */
// odtest: timeout=60
#include "odtest.h"

#define FRAME 8192
#define DEPTH 700 /* 5.6 MB of stack */
#define ALT_SIZE (8 * OD_MB)

static char *alternate;
static volatile sig_atomic_t handled;
static int fork_at, forks;

static void verify_frame(const uint64_t *frame, int depth, const char *who)
{
    od_verify(frame, FRAME - 512, 1000 + depth, who);
}

/* Goes down, forks at `fork_at`, goes on below; parent and child check every frame on the way up.
 */
static __attribute__((noinline)) pid_t descend(int depth, const uint64_t *above)
{
    uint64_t frame[(FRAME - 512) / 8];
    pid_t pid = 1;
    od_fill(frame, sizeof frame, 1000 + depth);
    __asm__ volatile("" : : "r"(frame) : "memory");
    if (depth == fork_at) {
        pid = od_fork();
        forks++;
    }
    if (depth < DEPTH) {
        pid_t below = descend(depth + 1, frame);
        pid = depth == fork_at ? pid : below;
    }
    verify_frame(frame, depth, pid == 0 ? "child" : "parent");
    if (above)
        verify_frame(above, depth - 1, "the frame above");
    return pid;
}

static void fork_on_the_way(int depth)
{
    fork_at = depth;
    pid_t pid = descend(0, NULL);
    if (pid == 0)
        _exit(0);
    od_join(pid);
}

static void on_signal(int sig)
{
    volatile char here[20000];
    (void)sig;
    memset((char *)here, 5, sizeof here);
    CHECK((char *)here > alternate && (char *)here < alternate + ALT_SIZE,
          "not on the alternate stack");
    pid_t pid = fork();
    CHECK(pid >= 0, "fork in a handler: %s", strerror(errno));
    if (pid == 0) {
        for (size_t i = 0; i < sizeof here; i++)
            CHECK(here[i] == 5, "child on the alternate stack: byte %zu", i);
        handled = handled + 100;
        return; /* back through the signal frame, in the child */
    }
    od_join(pid);
    for (size_t i = 0; i < sizeof here; i++)
        CHECK(here[i] == 5, "parent on the alternate stack: byte %zu", i);
    handled = handled + 1;
}

static void fork_on_alternate(void)
{
    pid_t me = getpid();
    int before = handled;
    OK(raise(SIGUSR1));
    if (getpid() != me) {
        CHECK(handled == before + 100, "child: handler ran %d times", handled);
        _exit(0);
    }
    CHECK(handled == before + 1, "parent: handler ran %d times", handled);
    stack_t now;
    OK(sigaltstack(NULL, &now));
    CHECK(now.ss_sp == alternate && now.ss_size == ALT_SIZE && now.ss_flags == 0,
          "the alternate stack changed");
}

int main(void)
{
    char *world = od_map(2 * ALT_SIZE);
    od_fill(world, 2 * ALT_SIZE, 3);
    alternate = world + ALT_SIZE / 2;
    stack_t stack = {.ss_sp = alternate, .ss_size = ALT_SIZE};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    OK(sigaltstack(&stack, NULL));
    OK(sigaction(SIGUSR1, &action, NULL));
    for (int round = 0; round < 5; round++) {
        fork_on_the_way(round * 170);
        fork_on_alternate();
        if (round == 3)
            od_refreeze();
    }
    fork_on_the_way(DEPTH);
    od_verify(world, ALT_SIZE / 2, 3, "below the alternate stack");
    od_verify_at(world + ALT_SIZE * 3 / 2, ALT_SIZE / 2, 3, ALT_SIZE * 3 / 16,
                 "above the alternate stack");
    printf("%d forks on the main stack\n", forks);
    return od_done();
}
