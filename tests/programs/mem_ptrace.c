/* A debugger that stops a process, reads and writes its frozen memory, and lets it go; and a
 * process that forks while it is being traced. */
// odtest: expect=froze timeout=60
#include "odtest.h"
#include <sys/prctl.h>
#include <sys/ptrace.h>

#define SIZE (16 * OD_MB)
#define STEP (37 * OD_PAGE + 8)

static char *world;
static struct od_gate seized, finished;

struct session {
    pid_t target;
    uint64_t gen;
};

static void verify(uint64_t gen, int poked, const char *who)
{
    uint64_t *word = (uint64_t *)world;
    for (size_t at = 0; at < SIZE && poked; at += STEP) {
        CHECK(word[at / 8] == ~od_word(gen, at / 8), "%s: the word written at %zu", who, at);
        word[at / 8] = od_word(gen, at / 8);
    }
    od_verify(world, SIZE, gen, who);
}

static void poke_all(const struct session *s)
{
    for (size_t at = 0; at < SIZE; at += STEP) {
        errno = 0;
        uint64_t word = ptrace(PTRACE_PEEKDATA, s->target, world + at, NULL);
        CHECK(errno == 0 && word == od_word(s->gen, at / 8), "PEEKDATA at %zu: %llx", at,
              (unsigned long long)word);
        OK(ptrace(PTRACE_POKEDATA, s->target, world + at, ~word));
    }
}

/* Lets the target go on from whatever stops it, until it says it has finished. */
static void pass_stops_on(pid_t target)
{
    int status;
    struct pollfd done = {.fd = finished.fd[0], .events = POLLIN};
    while (poll(&done, 1, 1) == 0)
        if (waitpid(target, &status, WNOHANG | __WALL) == target)
            OK(ptrace(PTRACE_CONT, target, NULL, status >> 16 ? 0 : WSTOPSIG(status)));
}

static void debug_parent(void *argument)
{
    struct session *s = argument;
    int status;
    OK(ptrace(PTRACE_SEIZE, s->target, NULL, NULL));
    OK(ptrace(PTRACE_INTERRUPT, s->target, NULL, NULL));
    CHECK(waitpid(s->target, &status, __WALL) == s->target && WIFSTOPPED(status), "no stop");
    poke_all(s);
    OK(ptrace(PTRACE_CONT, s->target, NULL, NULL));
    od_gate_open(&seized, 1); /* the target forks now, traced */
    pass_stops_on(s->target);
    OK(ptrace(PTRACE_INTERRUPT, s->target, NULL, NULL));
    while (waitpid(s->target, &status, __WALL) == s->target && WIFSTOPPED(status))
        if (status >> 16 == PTRACE_EVENT_STOP)
            break; /* the interrupt; whatever else stopped it is passed on */
        else
            OK(ptrace(PTRACE_CONT, s->target, NULL, WSTOPSIG(status)));
    OK(ptrace(PTRACE_DETACH, s->target, NULL, NULL));
    od_verify(world, SIZE, s->gen, "the debugger's own memory");
}

static void traced(void *argument)
{
    uint64_t gen = *(uint64_t *)argument;
    OK(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
    raise(SIGSTOP);
    verify(gen, 1, "traced child");
    od_run_child((void (*)(void *))od_refreeze, NULL);
    od_verify(world, SIZE, gen, "traced child after its fork");
}

static void debug_child(uint64_t gen)
{
    int status;
    struct session s = {od_spawn(traced, &gen), gen};
    CHECK(waitpid(s.target, &status, 0) == s.target && WIFSTOPPED(status), "no stop: %x", status);
    poke_all(&s);
    od_verify(world, SIZE, gen, "parent while its child was written to");
    OK(ptrace(PTRACE_CONT, s.target, NULL, NULL));
    while (waitpid(s.target, &status, 0) == s.target && WIFSTOPPED(status))
        OK(ptrace(PTRACE_CONT, s.target, NULL, WSTOPSIG(status) == SIGCHLD ? SIGCHLD : 0));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "traced child ended with %x", status);
}

int main(void)
{
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    world = od_map(SIZE);
    for (uint64_t gen = 1; gen < 6; gen++) {
        struct session s = {getpid(), gen};
        od_fill(world, SIZE, gen);
        od_gate_make(&seized);
        od_gate_make(&finished);
        od_run_child((void (*)(void *))od_refreeze, NULL);
        pid_t debugger = od_spawn(debug_parent, &s);
        od_gate_wait(&seized);
        verify(gen, 1, "parent after the debugger wrote");
        od_run_child((void (*)(void *))od_refreeze, NULL);
        od_verify(world, SIZE, gen, "parent after a traced fork");
        od_gate_open(&finished, 1);
        od_join(debugger);
        od_gate_drop(&seized);
        od_gate_drop(&finished);
        debug_child(gen);
        od_refreeze();
    }
    return od_done();
}
