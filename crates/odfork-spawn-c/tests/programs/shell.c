/* odf_popen2, odf_popen3, odf_communicate, odf_pclose, and odf_system beside the C library's
 * system() on the same commands: statuses, what the command inherits, the signals of the terminal's
 * keys, several threads, cancellation.
 *
 * system() is the judge. Valid C and valid C++; no preload. Prints "ok" at the end, and one line
 * "skip: ..." for what this user cannot do; exit status 1 and the failed check otherwise.
 */
#define _GNU_SOURCE 1
#include "odfspawn.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "shell.c:%d: %s (errno %d)\n", __LINE__, #what, errno); \
            _exit(1); \
        } \
    } while (0)

static char heard[1000];

static const char *line_from(int fd)
{
    size_t n = 0;
    while (n < sizeof heard - 1 && read(fd, heard + n, 1) == 1 && heard[n++] != '\n')
        ;
    heard[n] = 0;
    return heard;
}

/* ---- talking ---- */

static void check_dialogue(void)
{
    struct odf_process p;
    char line[40], want[40];
    CHECK(odf_popen2("while read a b; do echo $((a + b)); done; echo end; exit 3", &p) == 0);
    CHECK(p.pid > 0 && p.err == -1 && p.pidfd == -1);
    CHECK(fcntl(p.in, F_GETFD) == FD_CLOEXEC && fcntl(p.out, F_GETFD) == FD_CLOEXEC);
    for (int i = 0; i < 200; i++) {
        int n = snprintf(line, sizeof line, "%d %d\n", i, i * 7);
        snprintf(want, sizeof want, "%d\n", i * 8);
        CHECK(write(p.in, line, (size_t)n) == n && !strcmp(line_from(p.out), want));
    }
    CHECK(close(p.in) == 0);
    p.in = -1;
    CHECK(!strcmp(line_from(p.out), "end\n") && !strcmp(line_from(p.out), ""));
    int out = p.out, status = odf_pclose(&p);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    CHECK(fcntl(out, F_GETFD) == -1 && p.pid == 0 && p.out == -1);

    CHECK(odf_popen3("read a; echo \"out $a\"; echo \"err $a\" >&2", &p) == 0 && p.err > 2);
    CHECK(fcntl(p.err, F_GETFD) == FD_CLOEXEC && write(p.in, "x\n", 2) == 2);
    CHECK(!strcmp(line_from(p.err), "err x\n") && !strcmp(line_from(p.out), "out x\n") &&
          odf_pclose(&p) == 0);
}

/* A second program must not hold the first one's pipes: its input would never end. */
static void check_two_at_once(void)
{
    struct odf_process first, second;
    CHECK(odf_popen2("cat; echo first", &first) == 0 &&
          odf_popen2("cat; echo second", &second) == 0);
    close(first.in);
    first.in = -1;
    CHECK(!strcmp(line_from(first.out), "first\n") && odf_pclose(&first) == 0);
    close(second.in);
    second.in = -1;
    CHECK(!strcmp(line_from(second.out), "second\n") && odf_pclose(&second) == 0);
}

static void check_closing(void)
{
    struct odf_process p, zero;
    int status;
    CHECK(odf_popen2("exit 0", &p) == 0 && odf_pclose(&p) == 0);
    int again = open("/dev/null", O_RDONLY), more = open("/dev/null", O_RDONLY);
    errno = 0;
    CHECK(odf_pclose(&p) == -1 && errno == ECHILD && fcntl(again, F_GETFD) >= 0 &&
          fcntl(more, F_GETFD) >= 0);
    close(again);
    close(more);
    memset(&zero, 0, sizeof zero);
    CHECK(odf_pclose(&zero) == -1 && errno == ECHILD && fcntl(0, F_GETFD) >= 0);
    CHECK(odf_pclose(NULL) == -1 && errno == EINVAL);
    CHECK(odf_popen2(NULL, &p) == -1 && errno == EINVAL && odf_popen3("true", NULL) == -1 &&
          errno == EINVAL);
    CHECK(odf_popen2("kill -TERM $$", &p) == 0);
    status = odf_pclose(&p);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    CHECK(odf_popen2("no-such-command 2> /dev/null", &p) == 0 &&
          WEXITSTATUS(odf_pclose(&p)) == 127);
    /* no option of sh */
    CHECK(odf_popen2("-x 2> /dev/null", &p) == 0 && WEXITSTATUS(odf_pclose(&p)) == 127);
    CHECK(odf_popen2("exec yes", &p) == 0); /* ends by SIGPIPE when nobody reads */
    status = odf_pclose(&p);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
    CHECK(odf_popen2("exit 4", &p) == 0 && waitpid(p.pid, &status, 0) == p.pid);
    CHECK(odf_pclose(&p) == -1 && errno == ECHILD && p.pid == 0);
}

static void check_communication(void)
{
    struct odf_process p;
    struct odf_output o;
    size_t size = (size_t)3 << 20;
    char *much = (char *)malloc(size);
    for (size_t i = 0; i < size; i++)
        much[i] = (char)(i * 31 + i / 4096);
    /* more than any pipe holds, three ways at once */
    CHECK(odf_popen3("tee /dev/stderr; exit 5", &p) == 0);
    CHECK(WEXITSTATUS(odf_communicate(&p, much, size, &o)) == 5 && p.pid == 0 && p.in == -1 &&
          p.out == -1 && p.err == -1);
    CHECK(o.out_size == size && o.err_size == size && !memcmp(o.out, much, size) &&
          !memcmp(o.err, much, size));
    CHECK(o.out[size] == 0 && o.err[size] == 0);
    free(o.out);
    free(o.err);
    CHECK(odf_popen3("cat; echo other >&2", &p) == 0 && odf_communicate(&p, "one", 3, &o) == 0);
    CHECK(o.out_size == 3 && !strcmp(o.out, "one") && o.err_size == 6 && !strcmp(o.err, "other\n"));
    free(o.out);
    free(o.err);
    /* stops reading: SIGPIPE would end this program */
    CHECK(odf_popen2("read line; exec 0<&-; echo enough", &p) == 0);
    CHECK(odf_communicate(&p, much, size, &o) == 0 && !strcmp(o.out, "enough\n") && !o.err &&
          o.err_size == 0);
    free(o.out);
    CHECK(odf_popen2("cat", &p) == 0 && odf_communicate(&p, NULL, 0, &o) == 0 && o.out &&
          o.out[0] == 0 && o.out_size == 0);
    free(o.out);
    CHECK(odf_communicate(&p, NULL, 0, &o) == -1 && errno == ECHILD && !o.out && !o.err);
    CHECK(odf_communicate(NULL, NULL, 0, &o) == -1 && errno == EINVAL);
    CHECK(odf_popen2("cat", &p) == 0 && odf_communicate(&p, NULL, 1, &o) == -1 && errno == EINVAL &&
          odf_pclose(&p) == 0);
    CHECK(odf_popen2("cat", &p) == 0);
    /* and forgotten: an error, nobody hangs, and the pid is still there to be waited for */
    close(p.out);
    CHECK(odf_communicate(&p, much, 10, &o) == -1 && errno == EBADF && p.pid > 0 && p.out == -1);
    CHECK(odf_pclose(&p) >= 0);
    free(much);
}

/* ---- beside system() ---- */

static void check_statuses(void)
{
    const char *commands[] = {"exit 0",
                              "exit 3",
                              "exit 300",
                              "",
                              "true",
                              "false",
                              ":",
                              "no-such-command 2> /dev/null",
                              "kill -9 $$",
                              "kill -TERM $$",
                              "kill -SEGV $$",
                              "/etc/passwd 2> /dev/null",
                              "exec 2> /dev/null; eval '('",
                              "sleep 0.01; exit 9",
                              "exit $(printf %s \"\\377\" | wc -c)",
                              "exit 2 # \xff\xfe"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        int want = system(commands[i]), got = odf_system(commands[i]);
        if (got != want)
            fprintf(stderr, "shell.c: '%s': %#x, want %#x\n", commands[i], (unsigned)got,
                    (unsigned)want);
        CHECK(got == want);
    }
    errno = 4711;
    CHECK(odf_system("exit 1") == 1 << 8 && errno == 4711);
    CHECK(system(NULL) != 0 && odf_system(NULL) == 1);
    /* POSIX 2024; older libraries take it for an option */
    CHECK(WEXITSTATUS(odf_system("-x 2> /dev/null")) == 127);

    signal(SIGCHLD, SIG_IGN);
    int by_system, by_us;
    CHECK((by_system = system("exit 3")) == -1 && errno == ECHILD);
    errno = 0;
    CHECK((by_us = odf_system("exit 3")) == by_system && errno == ECHILD);
    signal(SIGCHLD, SIG_DFL);
}

static char from_system[20000], from_us[20000];

/* glibc's posix_spawn leaves the two signals it keeps for itself (32 and 33) ignored in the
 * program: not compared. */
static void read_whole(const char *name, char *text)
{
    char line[20];
    FILE *file = fopen(name, "re");
    CHECK(file);
    text[fread(text, 1, sizeof from_us - 1, file)] = 0;
    fclose(file);
    char *ignored = strstr(text, "SigIgn:\t");
    CHECK(ignored);
    unsigned long long set = strtoull(ignored + 8, NULL, 16) & ~(UINT64_C(3) << 31);
    snprintf(line, sizeof line, "%016llx", set);
    memcpy(ignored + 8, line, 16);
}

/* The same words from the same command. */
static __attribute__((format(printf, 1, 0))) void says_the_same(const char *what)
{
    char name[] = "/tmp/odf-shell-XXXXXX", command[200];
    int fd = mkostemp(name, O_CLOEXEC);
    CHECK(fd >= 0);
    snprintf(command, sizeof command, what, name);
    CHECK(system(command) == 0);
    read_whole(name, from_system);
    CHECK(odf_system(command) == 0);
    read_whole(name, from_us);
    unlink(name);
    close(fd);
    char *dashes = strstr(from_us, "-c -- ");
    if (dashes && !strstr(from_system, "-c -- ")) /* an older library */
        memmove(dashes + 3, dashes + 6, strlen(dashes + 6) + 1);
    if (strcmp(from_system, from_us))
        fprintf(stderr, "shell.c: system:\n%sodf_system:\n%s", from_system, from_us);
    CHECK(from_system[0] && !strcmp(from_system, from_us));
}

/* What the command finds ignored, blocked and open. dash itself unblocks signals, unless it becomes
 * another program. */
static void inherits_the_same(void)
{
    says_the_same("{ grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; ls /proc/self/fd; env; ps -o "
                  "args= $$; } > %s");
    says_the_same("exec grep -E '^Sig(Blk|Ign)' /proc/self/status > %s");
}

static volatile sig_atomic_t keys;

static void on_key(int signal)
{
    (void)signal;
    keys = keys + 1;
}

static void check_inheritance(void)
{
    sigset_t set, before;
    inherits_the_same();
    signal(SIGINT, SIG_IGN);
    inherits_the_same();
    signal(SIGINT, on_key);
    signal(SIGQUIT, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGINT);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, &before) == 0);
    inherits_the_same();
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    inherits_the_same();
    signal(SIGINT, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
}

static int restored(void)
{
    struct sigaction action;
    sigset_t mask;
    CHECK(sigaction(SIGINT, NULL, &action) == 0 && pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0);
    return action.sa_handler == on_key && action.sa_flags & SA_NODEFER &&
           sigismember(&action.sa_mask, SIGUSR2) == 1 && !sigismember(&mask, SIGCHLD);
}

/* The keys reach the command but not who waits for it; afterwards all is as before. */
static void check_keys(int (*run)(const char *))
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_key;
    action.sa_flags = SA_NODEFER;
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGUSR2);
    CHECK(sigaction(SIGINT, &action, NULL) == 0 && sigaction(SIGQUIT, &action, NULL) == 0 &&
          restored());
    keys = 0;
    CHECK(run("kill -INT $PPID; kill -QUIT $PPID") == 0 && keys == 0 && restored());
    int status = run("kill -INT $$; exit 1");
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT && restored());
    status = run("kill -QUIT $$; exit 1");
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGQUIT && restored());
    raise(SIGINT);
    raise(SIGQUIT);
    CHECK(keys == 2);
    signal(SIGINT, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
}

static volatile sig_atomic_t children, ticks;

static void on_child(int signal)
{
    (void)signal;
    children = children + 1;
}

static void on_tick(int signal)
{
    (void)signal;
    ticks = ticks + 1;
}

/* A handler of SIGCHLD that waits for any child must not take the status. */
static void take_any(int signal)
{
    int kept = errno;
    on_child(signal);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
    errno = kept;
}

static void check_signals_meanwhile(void)
{
    struct sigaction action, none;
    struct itimerval often = { { 0, 500 }, { 0, 500 } }, never = { { 0, 0 }, { 0, 0 } };
    struct odf_process p;
    memset(&action, 0, sizeof action);
    memset(&none, 0, sizeof none);
    action.sa_handler = take_any;
    CHECK(sigaction(SIGCHLD, &action, NULL) == 0);
    for (int i = 0; i < 20; i++)
        CHECK(odf_system("exit 7") == 7 << 8);
    CHECK(children > 0); /* it came when the wait was over */
    action.sa_handler = SIG_DFL;
    CHECK(sigaction(SIGCHLD, &action, NULL) == 0);
    action.sa_handler = on_tick; /* no SA_RESTART */
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
    while (ticks < 50) {
        CHECK(odf_system("sleep 0.02; exit 7") == 7 << 8);
        CHECK(odf_popen2("sleep 0.02; exit 8", &p) == 0 && odf_pclose(&p) == 8 << 8);
        struct odf_output o;
        CHECK(odf_popen2("cat; sleep 0.02; exit 9", &p) == 0 &&
              odf_communicate(&p, "abc", 3, &o) == 9 << 8);
        CHECK(!strcmp(o.out, "abc"));
        free(o.out);
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0 && sigaction(SIGALRM, &none, NULL) == 0);
}

/* Several threads inside at once; each command sends the key that nobody must see. */
static void *run_many(void *arg)
{
    char command[100];
    int mine = *(int *)arg;
    for (int i = 0; i < 25; i++) {
        snprintf(command, sizeof command, "kill -INT $PPID; sleep 0.00%d; exit %d", (mine + i) % 4,
                 (mine * 25 + i) % 256);
        int status = odf_system(command);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == (mine * 25 + i) % 256);
        sigset_t mask;
        CHECK(pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0 && !sigismember(&mask, SIGCHLD));
    }
    return NULL;
}

static void in_a_forked_child(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(odf_system("exit 6") == 6 << 8);
        signal(SIGINT, on_key); /* those of the parent's threads do not count here */
        CHECK(odf_system("kill -INT $PPID; exit 7") == 7 << 8 && keys == 0 &&
              signal(SIGINT, SIG_DFL) == on_key);
        _exit(0);
    }
    int status = -1;
    pid_t got = 0;
    for (int i = 0; i < 60000 && (got = waitpid(pid, &status, WNOHANG)) == 0; i++)
        usleep(1000);
    if (got == 0)
        kill(pid, SIGKILL); /* a deadlock is a failure, whatever it blocks */
    CHECK(got == pid && status == 0);
}

static void check_threads(void)
{
    pthread_t threads[6];
    int numbers[6];
    keys = 0;
    signal(SIGINT, on_key);
    for (int i = 0; i < 6; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, run_many, &numbers[i]) == 0);
    }
    for (int i = 0; i < 30; i++)
        in_a_forked_child();
    for (int i = 0; i < 6; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(keys == 0 && signal(SIGINT, SIG_DFL) == on_key);
}

static void *cancelled(void *arg)
{
    struct odf_process p;
    struct odf_output o;
    pthread_cancel(pthread_self());
    CHECK(odf_system("exit 7") == 7 << 8);
    CHECK(odf_popen3("cat; exit 8", &p) == 0 && odf_communicate(&p, "x", 1, &o) == 8 << 8 &&
          o.out_size == 1);
    free(o.out);
    free(o.err);
    CHECK(odf_popen2("exit 9", &p) == 0 && odf_pclose(&p) == 9 << 8);
    CHECK(odf_system(NULL) == 1);
    *(int *)arg = 1;
    pthread_testcancel();
    CHECK(!"cancelled");
    return NULL;
}

static void check_cancellation(void)
{
    pthread_t thread;
    void *result = NULL;
    int reached = 0;
    CHECK(pthread_create(&thread, NULL, cancelled, &reached) == 0 &&
          pthread_join(thread, &result) == 0);
    CHECK(reached && result == PTHREAD_CANCELED);
}

/* ---- where there is no shell, or no process ---- */

static void in_an_empty_root(void)
{
    char folder[] = "/tmp/odf-shell-XXXXXX";
    if (geteuid() != 0) {
        puts("skip: a root directory without a shell needs root");
        return;
    }
    CHECK(mkdtemp(folder));
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct odf_process p;
        CHECK(chroot(folder) == 0 && chdir("/") == 0);
        CHECK(system(NULL) == 0 && odf_system(NULL) == 0);
        CHECK(system("exit 0") == 127 << 8 && odf_system("exit 0") == 127 << 8);
        CHECK(odf_popen2("exit 0", &p) == -1 && errno == ENOENT && p.pid == 0 && p.in == -1);
        CHECK(waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid && rmdir(folder) == 0 && status == 0);
}

static void without_processes(void)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit none = { 0, 0 };
        struct odf_process p;
        CHECK(geteuid() != 0 || setresuid(65534, 65534, 65534) == 0);
        CHECK(setrlimit(RLIMIT_NPROC, &none) == 0);
        errno = 0;
        CHECK(odf_system("exit 0") == -1 && errno == EAGAIN);
        CHECK(odf_popen2("exit 0", &p) == -1 && errno == EAGAIN && p.pid == 0);
        struct rlimit few = { 3, 3 };
        CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
        CHECK(odf_popen2("exit 0", &p) == -1 && errno == EMFILE);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(void)
{
    alarm(300);
    signal(SIGPIPE, SIG_DFL); /* some starters ignore it */
    check_dialogue();
    check_two_at_once();
    check_closing();
    check_communication();
    check_statuses();
    check_inheritance();
    check_keys(system);
    check_keys(odf_system);
    check_signals_meanwhile();
    alarm(300);
    check_threads();
    check_cancellation();
    in_an_empty_root();
    without_processes();
    CHECK(waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
    puts("ok");
    return 0;
}
