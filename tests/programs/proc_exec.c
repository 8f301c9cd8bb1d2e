// odtest: expect=frozen mem=64 slices=no
/*
 * Over exec: the environment of the executed program is the one its parent gave (also an empty one,
 * also with variables of the runtime removed or changed by the program), the coredump filter,
 * signal dispositions, limits, personality, umask and descriptors are those of stock. A chain of
 * ten programs, each of them forking and freezing before it executes the next; and exec without
 * fork from an old process.
 */
#include "proc_region.h"
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/stat.h>

extern char **environ;
static const size_t BYTES = 16 * OD_MB;
static void *region;

static unsigned hash_text(unsigned h, const char *text)
{
    for (; *text; text++)
        h = h * 31 + (unsigned char)*text;
    return h;
}

/* Everything exec passes on, except the pid, as words; the program's own pages have no part in it.
 */
static const char *passed_on(void)
{
    static char text[600];
    unsigned ignored = 0, blocked = 0, pending_ones = 0, limits = 0, files = 0;
    char filter[32] = "none";
    sigset_t mask, pending;
    int fd = open("/proc/self/coredump_filter", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = read(fd, filter, sizeof filter - 1);
        CHECK(n > 1, "coredump_filter");
        filter[n - 1] = 0;
        close(fd);
    }
    sigprocmask(SIG_SETMASK, NULL, &mask);
    sigpending(&pending);
    for (int sig = 1; sig < 65; sig++) {
        struct sigaction now;
        ignored = ignored * 31 + (sigaction(sig, NULL, &now) == 0 && now.sa_handler == SIG_IGN);
        blocked = blocked * 31 + (unsigned)sigismember(&mask, sig);
        pending_ones = pending_ones * 31 + (unsigned)sigismember(&pending, sig);
    }
    for (int what = 0; what < RLIM_NLIMITS; what++) {
        struct rlimit limit;
        if (getrlimit((__rlimit_resource_t)what, &limit) == 0)
            limits = limits * 31 + (unsigned)limit.rlim_cur + 7 * (unsigned)limit.rlim_max;
    }
    for (int i = 3; i < 100; i++)
        files = files * 31 + (fcntl(i, F_GETFD) >= 0);
    mode_t creation = umask(0);
    umask(creation);
    snprintf(text, sizeof text,
             "coredump_filter %s ignored %x blocked %x pending %x limits %x files %x umask %o "
             "personality %x dumpable %d "
             "no_new_privs %d thp_disable %d timerslack %d group %d session %d",
             filter, ignored, blocked, pending_ones, limits, files, (unsigned)creation,
             (unsigned)personality(0xffffffff), prctl(PR_GET_DUMPABLE),
             prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0),
             prctl(PR_GET_TIMERSLACK), getpgrp(), getsid(0));
    return text;
}

static unsigned hash_environment(void)
{
    unsigned h = 5;
    for (char **e = environ; e && *e; e++)
        h = hash_text(h * 31 + 1, *e);
    return h;
}

/* argv: expect ENVIRONMENT PASSED-ON LINKS-LEFT */
static int link_of_chain(char **argv)
{
    char left[16], env[16];
    snprintf(env, sizeof env, "%x", hash_environment());
    const char *passed = passed_on();
    CHECK(!strcmp(argv[2], env), "environment is %s, was given %s", env, argv[2]);
    CHECK(!strcmp(argv[3], passed), "what exec passes on was\n%s\nand is\n%s", argv[3], passed);
    int links = atoi(argv[4]);
    if (links == 0)
        return 0;
    snprintf(left, sizeof left, "%d", links - 1);
    region = region_new(BYTES, 21);
    region_look(region, BYTES, 21, "in the chain");
    region_touch(region, BYTES, 21, 1);
    region_look(region, BYTES, 21, "in the chain");
    execv("/proc/self/exe", (char *[]){ "self", "expect", env, (char *)passed, left, NULL });
    FAIL("exec: %s", strerror(errno));
}

static void execute(char **environment, const char *what)
{
    pid_t pid = od_fork();
    if (pid == 0) {
        char env[16];
        char *passed = (char *)passed_on();
        environ = environment;
        snprintf(env, sizeof env, "%x", hash_environment());
        execve("/proc/self/exe", (char *[]){"self", "expect", env, passed, "3", NULL}, environment);
        FAIL("%s: exec: %s", what, strerror(errno));
    }
    od_join(pid);
}

/* What env(1) prints must be what was given, whatever the C library of this process believes. */
static void ask_env(char **environment, const char *want)
{
    int end[2];
    char text[4096] = "";
    OK(pipe(end));
    pid_t pid = od_fork();
    if (pid == 0) {
        dup2(end[1], 1);
        closefrom(3);
        execve("/usr/bin/env", (char *[]){ "env", NULL }, environment);
        _exit(127);
    }
    close(end[1]);
    size_t used = 0;
    ssize_t n;
    while ((n = read(end[0], text + used, sizeof text - 1 - used)) > 0)
        used += (size_t)n;
    close(end[0]);
    od_join(pid);
    CHECK(!strcmp(text, want), "env printed:\n%s... want:\n%s", text, want);
}

static void all(void)
{
    char *empty[] = { NULL }, *two[] = { "A=1", "B=two words", NULL };
    char *own_preload[] = { "LD_PRELOAD=", "ODFORK_FREEZE=never", "Z=", NULL };
    execute(environ, "own environment");
    execute(empty, "empty environment");
    execute(two, "two variables");
    execute(own_preload, "variables of the runtime");
    ask_env(empty, "");
    ask_env(two, "A=1\nB=two words\n");
    ask_env(own_preload, "LD_PRELOAD=\nODFORK_FREEZE=never\nZ=\n");
    unsigned before = hash_environment();
    region_look(region, BYTES, 21, "environment");
    CHECK(hash_environment() == before, "the environment of the process changed");
}

int main(int argc, char **argv)
{
    if (argc == 5)
        return link_of_chain(argv);
    region = region_new(BYTES, 21);
    all();
    region_grow_old(region, BYTES, 21);
    all();
    char *preload = getenv("LD_PRELOAD") ? strdup(getenv("LD_PRELOAD")) : NULL;
    unsetenv("LD_PRELOAD");
    all(); /* the program took the runtime away from its children */
    if (preload)
        setenv("LD_PRELOAD", preload, 1);
    signal(SIGUSR1, SIG_IGN);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGRTMIN + 7);
    OK(sigprocmask(SIG_BLOCK, &mask, NULL));
    int fd = open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        CHECK(write(fd, "0x13", 4) == 4, "coredump_filter");
        close(fd);
    }
    od_refreeze();
    all();
    return od_done();
}
