// odtest: expect=any mem=100 timeout=60
/*
 * A tracer that follows forks hears of those of the program and of no other task, whether it traces
 * from the start or comes later, with or without threads in the program; what it follows are the
 * program's children.
 */
#include "proc_region.h"
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>

enum { FORKS = 6, FOLLOW = PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE };
static const size_t BYTES = 16 * OD_MB;
static struct od_gate ready, traced;

struct events {
    int forks, others, ends;
};

static void fork_often(void *region, int count)
{
    for (int i = 0; i < count; i++) {
        region_touch(region, BYTES, 5, (size_t)i);
        region_look(region, BYTES, 5, "traced");
    }
}

static void *idle(void *unused)
{
    pause();
    return unused;
}

static void work(int with_thread, int late)
{
    void *region = region_new(BYTES, 5);
    pthread_t thread;
    if (with_thread)
        CHECK(pthread_create(&thread, NULL, idle, NULL) == 0, "no thread");
    if (late)
        fork_often(region, 2);
    prctl(PR_SET_PTRACER, getppid(), 0, 0, 0);
    od_gate_open(&ready, 1);
    od_gate_wait(&traced);
    fork_often(region, FORKS);
    _exit(0);
}

static void note(struct events *events, pid_t pid, int status)
{
    int event = status >> 16, sig = WSTOPSIG(status);
    if (!WIFSTOPPED(status)) {
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%d ended with %#x", (int)pid,
              (unsigned)status);
        events->ends++;
        return;
    }
    events->forks += event == PTRACE_EVENT_FORK;
    events->others += event == PTRACE_EVENT_VFORK || event == PTRACE_EVENT_CLONE;
    ptrace(PTRACE_CONT, pid, 0, event || sig == SIGSTOP || sig == SIGTRAP ? 0 : sig);
}

static void trace(int with_thread, int late)
{
    struct events events = { 0, 0, 0 };
    int status;
    pid_t wanted = od_fork(), pid;
    if (wanted == 0)
        work(with_thread, late);
    od_gate_wait(&ready);
    if (ptrace(PTRACE_SEIZE, wanted, 0, FOLLOW | PTRACE_O_EXITKILL) < 0)
        od_skip("ptrace is not allowed here; needs kernel.yama.ptrace_scope below 3");
    od_gate_open(&traced, 1);
    while ((pid = waitpid(-1, &status, __WALL)) > 0)
        note(&events, pid, status);
    CHECK(events.forks == FORKS && events.others == 0 && events.ends == FORKS + 1,
          "thread %d, late %d: %d forks, %d others, %d ends", with_thread, late, events.forks,
          events.others, events.ends);
}

int main(void)
{
    od_gate_make(&ready);
    od_gate_make(&traced);
    for (int setting = 0; setting < 4; setting++)
        trace(setting & 1, setting >> 1);
    return od_done();
}
