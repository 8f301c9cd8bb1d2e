/* Live memory ends for good when a program makes a semaphore for several processes, also where
 * a pass that would share memory again has been asked for by then: a fork has found new memory, and
 * that waits until the program hears of its child's end. */
// odtest: modes=stock,live,slices expect=froze live=shared slices=shared timeout=120 mem=300
#include "odtest.h"
#include <semaphore.h>

#define SIZE (16 * OD_MB)

static char *memory;

static char *map(void)
{
    char *room = OK(mmap(NULL, SIZE + 2 * OD_MB, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    room = (char *)(((uintptr_t)room + 2 * OD_MB - 1) & ~(2 * OD_MB - 1));
    memset(room, 1, SIZE);
    return room;
}

static size_t shared(void) { return od_shared(memory, SIZE); }

static void fork_once(void)
{
    pid_t pid = od_fork();
    if (pid == 0)
        _exit(0);
    memory[SIZE / 2]++;
    od_join(pid);
}

int main(void)
{
    int is_live = getenv("ODFORK_PROFILE") != NULL;
    memory = map();
    for (int i = 0; i < 3000 && (i < 3 || (is_live && shared() == 0)); i++) {
        fork_once();
        poll(NULL, 0, 1);
    }
    CHECK(!is_live || shared() > 0, "nothing is shared");
    /* No pass is under way any more. */
    poll(NULL, 0, 50);
    poll(NULL, 0, 50);

    map();
    struct od_gate gate;
    od_gate_make(&gate);
    pid_t pid = od_fork();
    if (pid == 0) {
        od_gate_wait(&gate);
        _exit(0);
    }
    sem_t semaphore;
    CHECK(sem_init(&semaphore, 1, 0) == 0, "sem_init");
    od_gate_open(&gate, 1);
    od_join(pid);
    for (int i = 0; i < 50; i++) {
        poll(NULL, 0, 1);
        CHECK(shared() == 0, "shared again: %zu bytes", shared());
        if (i % 10 == 9)
            fork_once();
    }
    return od_done();
}
