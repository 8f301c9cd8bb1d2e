/* MAP_SHARED stays shared, both ways, whatever else is frozen around it. */
// odtest: serial=yes timeout=60
#include "odtest.h"
#include <sys/ipc.h>
#include <sys/shm.h>

#define SIZE (8 * OD_MB)
#define KINDS 6

static const char *const name[KINDS] = {"anonymous", "file",  "memfd",
                                        "System V",  "POSIX", "/dev/zero"};
static char *shared[KINDS];
static char *private_world;

static char *map_descriptor(int fd, int truncate_it)
{
    OK(fd);
    if (truncate_it)
        OK(ftruncate(fd, SIZE));
    char *at = OK(mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    close(fd);
    return at;
}

static void map_all(void)
{
    shared[0] = OK(mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    shared[1] = map_descriptor(open("mem_shared.file", O_RDWR | O_CREAT | O_EXCL, 0600), 1);
    unlink("mem_shared.file");
    shared[2] = map_descriptor(memfd_create("mem_shared", MFD_CLOEXEC), 1);
    int id = OK(shmget(IPC_PRIVATE, SIZE, IPC_CREAT | 0600));
    shared[3] = OK(shmat(id, NULL, 0));
    OK(shmctl(id, IPC_RMID, NULL));
    char posix[64];
    snprintf(posix, sizeof posix, "/odprog-shared-%d", (int)getpid());
    shared[4] = map_descriptor(shm_open(posix, O_RDWR | O_CREAT | O_EXCL, 0600), 1);
    shm_unlink(posix);
    shared[5] = map_descriptor(open("/dev/zero", O_RDWR), 0);
}

static void child(void *argument)
{
    uint64_t gen = *(uint64_t *)argument;
    for (int kind = 0; kind < KINDS; kind++) {
        od_verify(shared[kind], SIZE, gen + kind, name[kind]);
        od_fill(shared[kind], SIZE, gen + 100 + kind);
    }
    od_fill(private_world, SIZE, gen + 100);
    od_refreeze();
}

/* The child is alive while the parent writes: it must see that, too. */
static void watcher(void *argument)
{
    struct od_gate *gate = argument;
    od_gate_wait(gate);
    for (int kind = 0; kind < KINDS; kind++)
        od_verify(shared[kind], SIZE, 9000 + kind, name[kind]);
}

int main(void)
{
    map_all();
    private_world = od_map(SIZE);
    for (uint64_t gen = 1; gen < 6; gen++) {
        struct od_gate gate;
        od_gate_make(&gate);
        od_fill(private_world, SIZE, gen);
        for (int kind = 0; kind < KINDS; kind++)
            od_fill(shared[kind], SIZE, gen + kind);
        od_run_child(child, &gen);
        for (int kind = 0; kind < KINDS; kind++)
            od_verify(shared[kind], SIZE, gen + 100 + kind, name[kind]);
        od_verify(private_world, SIZE, gen, "private memory");
        pid_t pid = od_spawn(watcher, &gate);
        for (int kind = 0; kind < KINDS; kind++)
            od_fill(shared[kind], SIZE, 9000 + kind);
        od_refreeze();
        od_gate_open(&gate, 1);
        od_join(pid);
        od_gate_drop(&gate);
    }
    return od_done();
}
