/* Every way to copy a process leaves the child a copy: by the C library, from inside it, by number,
 * from a handler of a signal, from a child of vfork. The parent writes at once; nothing of that is
 * seen by the child, nor the other way round. Then two threads fork at the same time. */
// odtest: modes=stock,huge,live expect=froze live=shared timeout=120 mem=200 link=-lutil
#include "odtest.h"
#include <linux/sched.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>

#define SIZE (8 * OD_MB)

static char *memory;
static uint64_t generation = 1;
static struct od_gate gate, done;

/* In the child: its bytes are of the time of the fork, also after the parent has written. */
static void look(void)
{
    od_gate_wait(&gate);
    CHECK(od_differs_at(memory, SIZE, generation, 0) == (size_t)-1, "the child sees other bytes");
    memset(memory, 0x11, SIZE);
    od_gate_open(&done, 1);
    _exit(0);
}

static void parent(pid_t pid, const char *how)
{
    CHECK(pid > 0, "%s: %s", how, strerror(errno));
    od_fill_at(memory, SIZE, ++generation, 0);
    od_gate_open(&gate, 1);
    od_gate_wait(&done);
    od_join(pid);
    CHECK(od_differs_at(memory, SIZE, generation, 0) == (size_t)-1, "%s: the parent's bytes", how);
}

static int start(void *argument)
{
    (void)argument;
    look();
    return 0;
}

static volatile pid_t from_handler;

static void handle(int number)
{
    (void)number;
    from_handler = fork();
}

static pid_t by_number(int way)
{
    struct clone_args arguments = {.exit_signal = SIGCHLD};
    switch (way) {
    case 0:
        return syscall(OD_FORK_CALL);
    case 1:
        return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    default:
        return syscall(SYS_clone3, &arguments, sizeof arguments);
    }
}

static void one_way(int way)
{
    static char stack[1 << 16];
    char text[32];
    snprintf(text, sizeof text, "way %d", way);
    pid_t pid = -1;
    int terminal = -1;
    switch (way) {
    case 0:
        pid = fork();
        break;
    case 1:
        pid = _Fork();
        break;
    case 2:
        pid = forkpty(&terminal, NULL, NULL, NULL);
        break;
    case 3:
        pid = clone(start, stack + sizeof stack, SIGCHLD, NULL);
        break;
    case 4:
        from_handler = -1;
        raise(SIGUSR1);
        pid = from_handler;
        break;
    default:
        pid = by_number(way - 5);
    }
    if (pid == 0)
        look();
    parent(pid, text);
    if (terminal >= 0)
        close(terminal);
}

/* A child that borrows this memory forks. */
static void fork_from_vfork(void)
{
    volatile pid_t grandchild = -1;
    pid_t pid = vfork();
    if (pid == 0) {
        grandchild = fork();
        if (grandchild == 0)
            look();
        od_fill_at(memory, SIZE, ++generation, 0);
        od_gate_open(&gate, 1);
        od_gate_wait(&done);
        _exit(grandchild > 0 ? 0 : 1);
    }
    od_join(pid);
    CHECK(od_differs_at(memory, SIZE, generation, 0) == (size_t)-1, "vfork: the parent's bytes");
}

/* Each thread has its half, and alone writes it. */
static void *fork_again(void *argument)
{
    size_t half = (uintptr_t)argument;
    char *mine = memory + half * SIZE / 2;
    for (uint64_t i = 0; i < 20; i++) {
        od_fill_at(mine, SIZE / 2, i, half);
        pid_t pid = fork();
        if (pid == 0) {
            for (int k = 0; k < 3; k++) {
                if (od_differs_at(mine, SIZE / 2, i, half) != (size_t)-1)
                    _exit(9);
                usleep(500);
            }
            _exit(0);
        }
        CHECK(pid > 0, "fork: %s", strerror(errno));
        od_fill_at(mine, SIZE / 2, i + 100, half);
        od_join(pid);
    }
    return NULL;
}

int main(void)
{
    signal(SIGUSR1, handle);
    memory = OK(
        mmap(NULL, SIZE + 2 * OD_MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    memory = (char *)(((uintptr_t)memory + 2 * OD_MB - 1) & -(2 * OD_MB));
    od_fill_at(memory, SIZE, generation, 0);
    od_gate_make(&gate);
    od_gate_make(&done);
    for (int round = 0; round < 3; round++)
        for (int way = 0; way < 8; way++)
            one_way(way);
    fork_from_vfork();
    pthread_t threads[2];
    for (uintptr_t i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, fork_again, (void *)i) == 0, "pthread_create");
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0, "pthread_join");
    return od_done();
}
