// odtest: expect=froze timeout=60 mem=64
/*
 * Another process traces one thread of this program, not the main one: forks go on, with memory as
 * it was, and that thread stays traced by whom it was. When the tracer has gone, memory is frozen.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>

static const size_t BYTES = 8 * OD_MB;
static struct shared {
    atomic_int tid, traced, done;
} *shared;
static int stop[2];

static void *wait_there(void *unused)
{
    char byte;
    (void)unused;
    shared->tid = (int)syscall(SYS_gettid);
    CHECK(read(stop[0], &byte, 1) == 1, "read: %s", strerror(errno));
    return NULL;
}

static long tracer_of(int tid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/status", tid);
    return od_proc_kb(path, "TracerPid:");
}

static void tracer(void *unused)
{
    (void)unused;
    shared->traced = ptrace(PTRACE_SEIZE, shared->tid, 0, 0) == 0 ? 1 : -1;
    while (shared->traced > 0 && !shared->done)
        usleep(1000);
    if (shared->traced > 0 && OK(ptrace(PTRACE_INTERRUPT, shared->tid, 0, 0)) == 0) {
        OK(waitpid(shared->tid, NULL, __WALL));
        OK(ptrace(PTRACE_DETACH, shared->tid, 0, 0));
    }
}

int main(void)
{
    pthread_t thread;
    shared = OK(mmap(NULL, OD_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    OK(pipe2(stop, O_CLOEXEC));
    CHECK(pthread_create(&thread, NULL, wait_there, NULL) == 0, "pthread_create");
    while (!shared->tid)
        usleep(1000);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    pid_t pid = od_spawn(tracer, NULL);
    while (!shared->traced)
        usleep(1000);
    if (shared->traced < 0)
        od_skip("one may not trace here");
    void *region = region_new(BYTES, 30);
    for (size_t round = 0; round < 5; round++) {
        region_touch(region, BYTES, 30, round);
        region_look(region, BYTES, 30, "beside a tracer");
        CHECK(tracer_of(shared->tid) == pid, "the tracer is %ld", tracer_of(shared->tid));
    }
    shared->done = 1;
    od_join(pid);
    for (size_t round = 0; round < 5; round++) {
        region_touch(region, BYTES, 30, round);
        region_look(region, BYTES, 30, "after it");
    }
    OK(write(stop[1], "!", 1));
    pthread_join(thread, NULL);
    CHECK(tracer_of((int)getpid()) == 0, "traced at the end");
    close(stop[0]), close(stop[1]);
    return od_done();
}
