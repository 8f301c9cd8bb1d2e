/* odf_spawn from C: every option once, odd strings, threads, cancellation, forks.
 *
 * Owns what C sees of a started program; how the child is made is tested in the crate odfork-spawn,
 * what is refused and what fails in refusals.c. Valid C and valid C++; no preload. Prints "ok" at
 * the end, and one line "skip: ..." for what this user cannot do; exit status 1 and the failed
 * check otherwise.
 */
#include "spawn.h"

#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

static const char *status_line(const char *name, struct odf_spawn_options o)
{
    char script[100];
    snprintf(script, sizeof script, "exec grep ^%s: /proc/self/status", name);
    return sh(script, o);
}

/* The same, of this process, through posix_spawn's elder brother. */
static int as_here(const char *name)
{
    char line[600], want[600] = "";
    FILE *file = fopen("/proc/thread-self/status", "re");
    CHECK(file);
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ':')
            strcpy(want, line);
    fclose(file);
    return want[0] && !strcmp(want, status_line(name, plain()));
}

static void check_nothing_changes(void)
{
    sigset_t some, before;
    sigemptyset(&some);
    sigaddset(&some, SIGUSR1);
    sigaddset(&some, SIGRTMAX);
    CHECK(pthread_sigmask(SIG_BLOCK, &some, &before) == 0);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGUSR2, SIG_IGN);
    CHECK(as_here("SigBlk") && as_here("SigIgn") && as_here("Groups") && as_here("Uid") &&
          as_here("NoNewPrivs"));
    CHECK(strtoull(strchr(status_line("SigIgn", plain()), ':') + 1, NULL, 16) &
          1u << (SIGPIPE - 1));

    struct odf_spawn_options o = plain();
    sigset_t mask, defaults;
    sigemptyset(&mask);
    sigaddset(&mask, SIGHUP);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGUSR2);
    o.signal_mask = &mask;
    o.default_signals = &defaults;
    CHECK(strtoull(strchr(status_line("SigBlk", o), ':') + 1, NULL, 16) == 1);
    unsigned long long ignored = strtoull(strchr(status_line("SigIgn", o), ':') + 1, NULL, 16);
    CHECK(ignored & 1u << (SIGPIPE - 1) && !(ignored & 1u << (SIGUSR2 - 1)));
    signal(SIGPIPE, SIG_DFL);
    signal(SIGUSR2, SIG_DFL);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
}

static void check_strings(void)
{
    struct odf_process p;
    struct odf_spawn_options o = plain();
    char *argv[] = {(char *)"cat\xff", (char *)"/proc/self/cmdline", (char *)"/proc/self/environ",
                    (char *)"--", NULL};
    char *envp[] = {(char *)"NOEQUALS",
                    (char *)"DUP=1",
                    (char *)"DUP=2",
                    (char *)"=x",
                    (char *)"",
                    (char *)"B=\xfe\n",
                    NULL};
    static const char want[] = "cat\xff\0/proc/self/cmdline\0/proc/self/environ\0--\0"
                               "NOEQUALS\0DUP=1\0DUP=2\0=x\0\0B=\xfe\n";
    o.out.kind = ODF_STDIO_PIPE;
    CHECK(odf_spawn(&p, "/bin/cat", argv, envp, &o, &error) == 0);
    hear(&p);
    CHECK(said_size == sizeof want && !memcmp(said, want, sizeof want));

    char *none[] = { NULL };
    CHECK(odf_spawn(&p, "/bin/cat", argv, none, &o, &error) == 0);
    hear(&p);
    CHECK(said_size == 46);

    setenv("ODF_OWN", "mine", 1);
    CHECK(!strcmp(sh("printf %s \"$ODF_OWN\"", plain()), "mine"));
    extern char **environ;
    char **kept = environ;
    environ = NULL;
    CHECK(odf_spawn(&p, "/bin/cat", argv, NULL, &o, &error) == 0);
    environ = kept;
    hear(&p);
    CHECK(said_size == 46);
}

static void check_search(void)
{
    struct odf_process p;
    struct odf_spawn_options o = plain();
    CHECK(start(&p, "sh", "sh", "-c", "exit 0", NULL) == ENOENT && error.step == ODF_STEP_EXEC &&
          p.pid == 0);
    o.flags = ODF_SPAWN_SEARCH_PATH;
    CHECK(start(&p, "sh", "sh", "-c", "exit 7", &o) == 0 && WEXITSTATUS(odf_pclose(&p)) == 7);
    o.directory = "/bin";
    CHECK(start(&p, "sh", "sh", "-c", "exit 8", &o) == 0 && WEXITSTATUS(odf_pclose(&p)) == 8);
    o.flags = 0; /* without PATH it is a file of the directory */
    CHECK(start(&p, "sh", "sh", "-c", "exit 9", &o) == 0 && WEXITSTATUS(odf_pclose(&p)) == 9);
    char *argv[] = { (char *)"sh", (char *)"-c", (char *)"exit 6", NULL };
    char *envp[] = { (char *)"PATH=/nowhere", NULL };
    o = plain();
    o.flags = ODF_SPAWN_SEARCH_PATH; /* the caller's PATH, as posix_spawnp */
    CHECK(odf_spawn(&p, "sh", argv, envp, &o, NULL) == 0 && WEXITSTATUS(odf_pclose(&p)) == 6);
}

static void check_descriptors(void)
{
    struct odf_process p;
    struct odf_spawn_options o = plain();
    int a = open("/dev/zero", O_RDONLY | O_CLOEXEC), b = open("/dev/full", O_RDWR | O_CLOEXEC),
        open_on = dup(a);
    struct odf_fd fds[] = { { a, b }, { b, a }, { a, 17 } };
    char script[400];
    CHECK(a > 2 && b > 2 && open_on > 2);
    o.fds = fds;
    o.fd_count = 3;
    o.in.kind = ODF_STDIO_NULL;
    o.err.kind = ODF_STDIO_FD;
    o.err.fd = b;
    snprintf(script, sizeof script,
             "for i in 0 2 %d %d 17 %d; do readlink /proc/$$/fd/$i || echo closed; done", a, b,
             open_on);
    CHECK(!strcmp(sh(script, o),
                  "/dev/null\n/dev/full\n/dev/full\n/dev/zero\n/dev/zero\n/dev/zero\n"));
    o.flags = ODF_SPAWN_CLOSE_OTHERS;
    CHECK(
        !strcmp(sh(script, o), "/dev/null\n/dev/full\n/dev/full\n/dev/zero\n/dev/zero\nclosed\n"));

    o = plain(); /* all three as pipes, and the list in place of one of the three */
    o.in.kind = o.err.kind = ODF_STDIO_PIPE;
    fds[0].from = b;
    fds[0].to = 1;
    o.fds = fds;
    o.fd_count = 1;
    CHECK(start(&p, "/bin/sh", "sh", "-c",
                "read line; echo \"$line\" >&2; out=$(readlink /proc/$$/fd/1); echo $out >&2",
                &o) == 0);
    CHECK(p.in > 2 && p.err > 2 && p.out == -1 && write(p.in, "to\n", 3) == 3);
    p.out = p.err;
    p.err = -1;
    CHECK(!strcmp(hear(&p), "to\n/dev/full\n"));
    CHECK(p.pid == 0 && p.in == -1 && p.out == -1);
    close(a);
    close(b);
    close(open_on);
}

static void check_numbers(void)
{
    struct odf_process p;
    struct odf_spawn_options o = plain();
    char want[100];
    o.flags = ODF_SPAWN_SESSION;
    CHECK(!strcmp(sh("set -- $(cat /proc/$$/stat); [ $6 = $$ ] && echo session", o), "session\n"));
    o.flags = ODF_SPAWN_PROCESS_GROUP;
    CHECK(!strcmp(sh("set -- $(cat /proc/$$/stat); [ $5 = $$ ] && echo group", o), "group\n"));
    o.process_group = getpgrp();
    snprintf(want, sizeof want, "%d\n", getpgrp());
    CHECK(!strcmp(sh("set -- $(cat /proc/$$/stat); echo $5", o), want));
    o = plain();
    o.flags = ODF_SPAWN_UMASK;
    o.umask = 0135;
    CHECK(!strcmp(sh("umask", o), "0135\n"));
    o = plain();
    o.directory = "/usr";
    CHECK(!strcmp(sh("pwd", o), "/usr\n"));
    struct odf_limit limits[] = { { RLIMIT_CORE, 0, 0 }, { RLIMIT_NOFILE, 55, 66 } };
    o.limits = limits;
    o.limit_count = 2;
    CHECK(!strcmp(sh("ulimit -c; ulimit -n; ulimit -Hn", o), "0\n55\n66\n"));
    o = plain();
    o.flags = ODF_SPAWN_NO_NEW_PRIVILEGES;
    CHECK(!strcmp(status_line("NoNewPrivs", o), "NoNewPrivs:\t1\n"));
    o = plain();
    o.flags = ODF_SPAWN_PIDFD;
    CHECK(start(&p, "/bin/sh", "sh", "-c", "exit 5", &o) == 0);
    struct pollfd ended = { p.pidfd, POLLIN, 0 };
    CHECK(p.pidfd > 2 && fcntl(p.pidfd, F_GETFD) == FD_CLOEXEC && poll(&ended, 1, 60000) == 1);
    int pidfd = p.pidfd;
    CHECK(WEXITSTATUS(odf_pclose(&p)) == 5 && fcntl(pidfd, F_GETFD) == -1);
}

static void *start_dying(void *arg)
{
    struct odf_process *p = (struct odf_process *)arg;
    struct odf_spawn_options o = plain();
    o.parent_death_signal = SIGTERM;
    CHECK(start(p, "/bin/sleep", "sleep", "600", NULL, &o) == 0);
    return NULL;
}

static void check_parent_death(void)
{
    struct odf_process p;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, start_dying, &p) == 0 && pthread_join(thread, NULL) == 0);
    int status = odf_pclose(&p);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

static void check_identity(void)
{
    struct odf_spawn_options o = plain();
    gid_t groups[] = { 1001, 1002 };
    if (geteuid() != 0) {
        puts("skip: uid, gid and groups need root");
        return;
    }
    o.flags = ODF_SPAWN_UID | ODF_SPAWN_GID;
    o.uid = 65533;
    o.gid = 65532;
    CHECK(!strcmp(sh("echo $(id -u) $(id -g) $(id -G)", o), "65533 65532 65532\n"));
    o.flags |= ODF_SPAWN_GROUPS;
    o.groups = groups;
    o.group_count = 2;
    CHECK(!strcmp(sh("echo $(id -u) $(id -g) $(id -G)", o), "65533 65532 65532 1001 1002\n"));
    CHECK(prctl(PR_GET_DUMPABLE) == 1);
}

/* A terminal of its own, in the foreground there. */
static void check_terminal(void)
{
    int control = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    char name[64];
    if (control < 0 || grantpt(control) || unlockpt(control) ||
        ptsname_r(control, name, sizeof name)) {
        puts("skip: no pseudo-terminals here");
        return;
    }
    int terminal = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    struct odf_spawn_options o = plain();
    struct odf_fd fds[] = { { terminal, 5 } };
    CHECK(terminal > 2);
    o.flags = ODF_SPAWN_SESSION | ODF_SPAWN_CONTROLLING_TERMINAL | ODF_SPAWN_FOREGROUND;
    o.fds = fds;
    o.fd_count = 1;
    o.controlling_terminal = o.foreground = 5;
    CHECK(!strcmp(
        sh("set -- $(cat /proc/$$/stat); [ $7 != 0 ] && [ $8 = $$ ] && : > /dev/tty && echo tty",
           o),
        "tty\n"));
    close(terminal);
    close(control);
}

static void check_cgroup(void)
{
    char name[64];
    const char *roots[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };
    for (size_t i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s/odf-spawn-%d", roots[i], (int)getpid());
        char procs[96];
        snprintf(procs, sizeof procs, "%s/cgroup.procs", name);
        if (mkdir(name, 0755) != 0)
            continue;
        if (access(procs, W_OK) == 0) {
            struct odf_spawn_options o = plain();
            o.cgroup = name;
            CHECK(strstr(sh("cat /proc/self/cgroup", o), strrchr(name, '/')));
            CHECK(rmdir(name) == 0);
            return;
        }
        rmdir(name);
    }
    puts("skip: no cgroup can be made here");
}

/* ---- who else runs ---- */

/* read() in hear() would be a cancellation point of ours: this thread only starts and waits. */
static void *cancelled(void *arg)
{
    struct odf_process p;
    struct odf_spawn_options o = plain();
    o.in.kind = ODF_STDIO_NULL; /* open and close are cancellation points of libc */
    o.out.kind = ODF_STDIO_PIPE;
    pthread_cancel(pthread_self());
    errno = 4711;
    CHECK(start(&p, "/bin/true", "true", NULL, NULL, &o) == 0 && errno == 4711 &&
          odf_pclose(&p) == 0);
    CHECK(start(&p, "/bin/true", "true", NULL, NULL, NULL) == 0 && errno == 4711 &&
          odf_pclose(&p) == 0);
    CHECK(start(&p, "/no/such", "true", NULL, NULL, NULL) == ENOENT && errno == 4711);
    CHECK(start(&p, "/bin/true", "true", NULL, NULL, NULL) == 0);
    CHECK(odf_pclose(&p) == 0 && errno == 4711);
    return cancelled_here((int *)arg);
}

static void check_cancellation(void)
{
    check_cancelled_thread(cancelled);
    int state = 0;
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state) == 0 &&
          state == PTHREAD_CANCEL_ENABLE);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    sh("true", plain());
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state) == 0 &&
          state == PTHREAD_CANCEL_DISABLE);
}

static volatile int stop;

static void *hammer(void *arg)
{
    struct odf_spawn_options o = plain();
    char number[32], script[64];
    size_t mine = *(size_t *)arg;
    if (mine % 2 && geteuid() == 0) { /* the way with a lock */
        o.flags = ODF_SPAWN_UID;
        o.uid = 65534;
    }
    for (size_t i = 0; i < 30 || (!stop && i < 100000); i++) {
        snprintf(number, sizeof number, "%zu\n", mine * 1000000 + i);
        snprintf(script, sizeof script, "echo %s", number);
        CHECK(!strcmp(sh(script, o), number));
    }
    return NULL;
}

/* While threads start programs, children of fork start some, too. */
static void check_threads_and_forks(void)
{
    pthread_t threads[4];
    size_t numbers[4];
    for (size_t i = 0; i < 4; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, hammer, &numbers[i]) == 0);
    }
    for (int i = 0; i < 40; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            struct odf_spawn_options o = plain();
            o.directory = "/usr";
            if (geteuid() == 0) {
                o.flags = ODF_SPAWN_UID;
                o.uid = 65534;
            }
            CHECK(!strcmp(sh("pwd", o), "/usr\n"));
            _exit(0);
        }
        CHECK(ends_well(pid));
    }
    stop = 1;
    for (size_t i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(void)
{
    alarm(300);
    signal(SIGPIPE, SIG_DFL); /* some starters ignore it */
    check_nothing_changes();
    check_strings();
    check_search();
    check_descriptors();
    check_numbers();
    check_parent_death();
    check_identity();
    check_terminal();
    check_cgroup();
    check_cancellation();
    check_threads_and_forks();
    CHECK(waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
    puts("ok");
    return 0;
}
