// odtest: expect=fold mem=64 link=-lm
/*
 * errno is left alone by every fork that succeeds, whatever a freeze, a fold or a fallback did
 * inside, in parent and child; so are the floating point environment, the signal mask, the umask,
 * the nice value, the working directory, timers, the alternate stack and the robust list; and the
 * times stay sane: at most the copying of a helper is charged to the children before there are any,
 * and getrusage never runs backwards.
 */
#include "proc_region.h"
#include <fenv.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/times.h>

static const size_t BYTES = 16 * OD_MB;
static void *region;

struct state {
    int rounding, nice_value, policy, timer_slack, deathsig, name_hash;
    sigset_t mask;
    mode_t mask_of_files;
    stack_t alternate;
    pid_t pid, parent, group, session;
    cpu_set_t cpus;
    unsigned long personality_bits;
    char directory[256];
};

static void observe(struct state *s)
{
    char name[16] = "";
    memset(s, 0, sizeof *s);
    s->rounding = fegetround();
    s->nice_value = getpriority(PRIO_PROCESS, 0);
    s->policy = sched_getscheduler(0);
    s->timer_slack = prctl(PR_GET_TIMERSLACK);
    prctl(PR_GET_PDEATHSIG, &s->deathsig);
    prctl(PR_GET_NAME, name);
    for (int i = 0; name[i]; i++)
        s->name_hash = s->name_hash * 31 + name[i];
    sigprocmask(SIG_SETMASK, NULL, &s->mask);
    s->mask_of_files = umask(027);
    umask(s->mask_of_files);
    sigaltstack(NULL, &s->alternate);
    s->pid = getpid();
    s->parent = getppid();
    s->group = getpgrp();
    s->session = getsid(0);
    sched_getaffinity(0, sizeof s->cpus, &s->cpus);
    CHECK(getcwd(s->directory, sizeof s->directory), "getcwd");
}

static void same(struct state *before, const char *when)
{
    struct state now;
    observe(&now);
    CHECK(memcmp(before, &now, sizeof now) == 0,
          "%s: something about the process changed (pid %d to %d, cwd %s to %s)", when, before->pid,
          now.pid, before->directory, now.directory);
}

static double spent(int who)
{
    struct rusage use;
    OK(getrusage(who, &use));
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

static void forks(const char *when)
{
    struct state before;
    observe(&before);
    double self = spent(RUSAGE_SELF), children = spent(RUSAGE_CHILDREN);
    for (size_t i = 0; i < 12; i++) {
        region_touch(region, BYTES, 18, i);
        int mark = i % 2 ? 77 : 0;
        errno = mark;
        pid_t pid = fork();
        int after = errno;
        CHECK(pid >= 0 && after == mark, "%s: errno %d became %d", when, mark, after);
        if (pid == 0) {
            struct state own = before, now;
            observe(&now);
            own.pid = now.pid;
            own.parent = before.pid;
            own.deathsig = 0; /* not inherited */
            same(&own, when);
            _exit(0);
        }
        same(&before, when);
        od_join(pid);
        double self_now = spent(RUSAGE_SELF), children_now = spent(RUSAGE_CHILDREN);
        CHECK(self_now >= self && children_now >= children, "%s: used time runs backwards", when);
        self = self_now;
        children = children_now;
    }
}

int main(void)
{
    static char alternate[65536];
    stack_t stack = { .ss_sp = alternate, .ss_size = sizeof alternate };
    sigset_t mask;
    struct tms times_now;
    struct timeval start, end;
    region = region_new(BYTES, 18);
    CHECK(times(&times_now) != (clock_t)-1, "times");
    CHECK(times_now.tms_cutime == 0 && times_now.tms_cstime == 0, "child time before any child");
    gettimeofday(&start, NULL);
    /* What it took to start and to fill the memory; freezing takes about five times that. */
    double own = spent(RUSAGE_SELF);
    od_freeze();
    CHECK(spent(RUSAGE_CHILDREN) < 50 * own, "a freeze counts as %f s of children, %f s were used",
          spent(RUSAGE_CHILDREN), own);
    forks("early");
    OK(sigaltstack(&stack, NULL));
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    sigaddset(&mask, SIGRTMIN + 3);
    OK(sigprocmask(SIG_BLOCK, &mask, NULL));
    fesetround(FE_UPWARD);
    umask(0137);
    OK(nice(3));
    OK(prctl(PR_SET_TIMERSLACK, 12345));
    OK(prctl(PR_SET_PDEATHSIG, SIGUSR2));
    OK(prctl(PR_SET_NAME, "another name"));
    od_thaw();
    region_grow_old(region, BYTES, 18);
    forks("late");
    gettimeofday(&end, NULL);
    CHECK(spent(RUSAGE_SELF) + spent(RUSAGE_CHILDREN) <
              2.0 * ((double)(end.tv_sec - start.tv_sec) + 1.0),
          "more time used than passed");
    fesetround(FE_TONEAREST);
    return od_done();
}
