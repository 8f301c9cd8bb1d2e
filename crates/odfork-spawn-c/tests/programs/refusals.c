/* What odf_spawn refuses, and every step of a spawn that can fail: number, name, errno or signal,
 * words, nothing left.
 *
 * A system-call filter in a child of its own makes steps fail that would not. Valid C and valid
 * C++; no preload. Prints "ok" at the end, and one line "skip: ..." for what this user cannot do;
 * exit status 1 and the failed check otherwise. Words: "stack" runs the one check that needs a
 * process that never started a program.
 */
#include "spawn.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* ---- what is refused ---- */

static int refused(const char *file, char **argv, struct odf_spawn_options *o, const char *words)
{
    struct odf_process p;
    memset(&p, 0, sizeof p);
    memset(&error, 0x55, sizeof error);
    int got = odf_spawn(&p, file, argv, NULL, o, &error);
    return got == EINVAL && error.errnum == EINVAL && error.step == ODF_STEP_REQUEST &&
           error.signal == 0 && p.pid == 0 && p.in == -1 && p.out == -1 && p.err == -1 &&
           p.pidfd == -1 && strstr(error.text, words);
}

static int refuses(struct odf_spawn_options o, const char *words)
{
    char *argv[] = { (char *)"true", NULL };
    return refused("/bin/true", argv, &o, words);
}

#define REFUSES(assignment, words) \
    do { \
        struct odf_spawn_options o = plain(); \
        assignment; \
        CHECK(refuses(o, words)); \
    } while (0)

static void check_bad_input(void)
{
    char *argv[] = { (char *)"true", NULL }, *empty[] = { NULL };
    struct odf_fd twice[] = { { 0, 7 }, { 1, 7 } }, below = { -4, 7 }, below_to = { 0, -4 };
    const gid_t group = 65534;
    CHECK(odf_spawn(NULL, "/bin/true", argv, NULL, NULL, &error) == EINVAL &&
          strstr(error.text, "process is NULL"));
    CHECK(odf_spawn(NULL, NULL, NULL, NULL, NULL, NULL) == EINVAL);
    CHECK(refused(NULL, argv, NULL, "file is NULL"));
    CHECK(refused("/bin/true", NULL, NULL, "argv is NULL or empty"));
    CHECK(refused("/bin/true", empty, NULL, "argv is NULL or empty"));
    /* A number that is not open does not become the library's own pipe. */
    int number = dup(0);
    close(number);
    struct odf_fd closed = { number, number + 9 };
    struct odf_process p;
    struct odf_spawn_options piped = plain();
    piped.fds = &closed, piped.fd_count = 1, piped.in.kind = ODF_STDIO_PIPE;
    CHECK(odf_spawn(&p, "/bin/true", argv, NULL, &piped, &error) == EBADF &&
          error.step == ODF_STEP_DESCRIPTORS);
    REFUSES(o.size = 0, "size");
    REFUSES(o.size -= 8, "too small");
    REFUSES(o.size = (size_t)-1, "no size");
    REFUSES(o.flags = UINT64_C(1) << 63, "unknown bits");
    REFUSES(o.flags = 1 << 12, "unknown bits");
    REFUSES(o.reserved = 1, "unknown bits");
    REFUSES(o.uid = 65534, "ODF_SPAWN_UID");
    REFUSES(o.gid = 65534, "ODF_SPAWN_GID");
    REFUSES(o.umask = 077, "ODF_SPAWN_UMASK");
    REFUSES(o.group_count = 1, "ODF_SPAWN_GROUPS");
    REFUSES(o.groups = &group, "ODF_SPAWN_GROUPS");
    REFUSES(o.process_group = 1, "ODF_SPAWN_PROCESS_GROUP");
    REFUSES(o.controlling_terminal = 1, "ODF_SPAWN_CONTROLLING_TERMINAL");
    REFUSES(o.foreground = 1, "ODF_SPAWN_FOREGROUND");
    REFUSES(o.in.kind = 4, "no kind");
    REFUSES(o.out.kind = -1, "no kind");
    REFUSES(o.err.fd = 5, "ODF_STDIO_FD");
    REFUSES((o.in.kind = ODF_STDIO_FD, o.in.fd = -1), "below zero");
    REFUSES(o.fd_count = 1, "is NULL");
    REFUSES((o.fds = twice, o.fd_count = ODF_SPAWN_MAX_FDS + 1), "too large");
    REFUSES((o.fds = twice, o.fd_count = (size_t)-1), "too large");
    REFUSES(o.limit_count = (size_t)1 << 60, "too large");
    REFUSES((o.flags = ODF_SPAWN_GROUPS, o.group_count = 65537), "too large");
    REFUSES((o.fds = twice, o.fd_count = 2), "descriptor 7 is given twice");
    REFUSES((o.fds = &below, o.fd_count = 1), "descriptor -4");
    REFUSES((o.fds = &below_to, o.fd_count = 1), "descriptor -4");

    struct {
        struct odf_spawn_options known;
        uint64_t unknown;
    } newer;
    memset(&newer, 0, sizeof newer);
    newer.known.size = sizeof newer;
    CHECK(odf_spawn(&p, "/bin/true", argv, NULL, &newer.known, &error) == 0 && odf_pclose(&p) == 0);
    newer.unknown = 1;
    CHECK(refused("/bin/true", argv, &newer.known, "newer version"));

    char *longest = (char *)malloc(100001);
    memset(longest, 'x', 100000);
    longest[100000] = 0;
    CHECK(odf_spawn(&p, longest, argv, NULL, NULL, &error) == ENAMETOOLONG);
    CHECK(memchr(error.text, 0, sizeof error.text) && strlen(error.text) > sizeof error.text - 8);
    for (size_t i = 2; i < 100000; i += 3)
        memcpy(longest + i - 2, "\xe2\x82\xac", 3); /* cut between characters only */
    longest[99999] = 0;
    CHECK(odf_spawn(&p, longest, argv, NULL, NULL, &error) == ENAMETOOLONG);
    size_t end = strlen(error.text);
    CHECK(end >= sizeof error.text - 4 && !memcmp(error.text + end - 3, "\xe2\x82\xac", 3));
    free(longest);
}

/* ---- steps that fail ---- */

static void filter(int number, unsigned answer)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, answer),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { 4, code };
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0);
}

static struct odf_spawn_options everything(void)
{
    struct odf_spawn_options o = plain();
    static struct odf_limit limit = { RLIMIT_CORE, 0, 0 };
    static gid_t group = 65534;
    static struct odf_fd fd = { 0, 9 };
    o.flags = ODF_SPAWN_SESSION | ODF_SPAWN_CLOSE_OTHERS;
    o.limits = &limit;
    o.limit_count = 1;
    o.fds = &fd;
    o.fd_count = 1;
    o.directory = "/";
    o.parent_death_signal = SIGTERM;
    if (geteuid() == 0) {
        o.flags |= ODF_SPAWN_GROUPS | ODF_SPAWN_UID | ODF_SPAWN_GID;
        o.groups = &group;
        o.group_count = 1;
        o.uid = o.gid = 65534;
    }
    return o;
}

/* In a child of its own: the filter stays. `answer` 0 kills. */
static void fails_at(int step, int number, int answer, struct odf_spawn_options o)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct odf_process p;
        /* and its other ways: a table of its own, and what that lists */
        if (number == SYS_close_range) {
            filter(SYS_unshare, SECCOMP_RET_ERRNO | (unsigned)answer);
            filter(SYS_getdents64, SECCOMP_RET_ERRNO | (unsigned)answer);
        }
        filter(number, answer ? SECCOMP_RET_ERRNO | (unsigned)answer : SECCOMP_RET_KILL_PROCESS);
        int got = start(&p, "/bin/true", "true", NULL, NULL, &o);
        CHECK(got == (answer ? answer : ECHILD) && error.errnum == got &&
              error.signal == (answer ? 0 : SIGSYS));
        CHECK(error.step == step && !strcmp(error.step_name, odf_step_name(step)) &&
              strstr(error.text, error.step_name));
        CHECK(p.pid == 0 && waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
        _exit(0);
    }
    int status;
    if (!(waitpid(pid, &status, 0) == pid && status == 0)) {
        fprintf(stderr, "refusals.c: step %s, call %d\n", odf_step_name(step), number);
        exit(1);
    }
}

static void check_steps(void)
{
    struct odf_process p;
    struct odf_spawn_options o = everything(), group = plain(), quiet = plain(), pipes = plain(),
                             defaults = plain();
    int root = geteuid() == 0;
    sigset_t all;
    sigfillset(&all);
    defaults.default_signals = &all;
    group.flags = ODF_SPAWN_PROCESS_GROUP;
    pipes.out.kind = ODF_STDIO_PIPE;
    quiet.flags = ODF_SPAWN_NO_NEW_PRIVILEGES;
    fails_at(ODF_STEP_PIPE, SYS_pipe2, EMFILE, pipes);
    fails_at(ODF_STEP_CLONE, SYS_clone3, EAGAIN, o);
    fails_at(ODF_STEP_SIGNALS, SYS_rt_sigaction, EPERM, defaults);
    fails_at(ODF_STEP_SESSION, SYS_setsid, EPERM, o);
    fails_at(ODF_STEP_SESSION, SYS_setsid, 0, o);
    fails_at(ODF_STEP_PROCESS_GROUP, SYS_setpgid, EACCES, group);
    fails_at(ODF_STEP_DESCRIPTORS, SYS_dup3, EBUSY, o);
    fails_at(ODF_STEP_CLOSE_OTHERS, SYS_close_range, EIO, o);
    fails_at(ODF_STEP_LIMITS, SYS_prlimit64, EPERM, o);
    if (root) {
        fails_at(ODF_STEP_GROUPS, SYS_setgroups, EPERM, o);
        fails_at(ODF_STEP_GID, SYS_setresgid, EPERM, o);
        fails_at(ODF_STEP_UID, SYS_setresuid, EPERM, o);
        fails_at(ODF_STEP_UID, SYS_setresuid, 0, o);
    } else {
        puts("skip: steps groups, gid and uid with rights need root");
    }
    fails_at(ODF_STEP_NO_NEW_PRIVILEGES, SYS_prctl, EIO, quiet);
    fails_at(ODF_STEP_DIRECTORY, SYS_chdir, EIO, o);
    fails_at(ODF_STEP_SIGNAL_MASK, SYS_rt_sigprocmask, EINVAL, o);
    fails_at(ODF_STEP_EXEC, SYS_execve, ENOMEM, o);

    o = plain();
    o.cgroup = "/no/such/cgroup";
    CHECK(start(&p, "/bin/true", "true", NULL, NULL, &o) == ENOENT &&
          error.step == ODF_STEP_CGROUP);
    o = plain();
    o.flags = ODF_SPAWN_FOREGROUND;
    o.in.kind = ODF_STDIO_NULL;
    CHECK(start(&p, "/bin/true", "true", NULL, NULL, &o) == ENOTTY &&
          error.step == ODF_STEP_TERMINAL);
    o = plain();
    o.out.kind = ODF_STDIO_FD;
    o.out.fd = 999;
    CHECK(start(&p, "/bin/true", "true", NULL, NULL, &o) == EBADF &&
          error.step == ODF_STEP_DESCRIPTORS);
    CHECK(strstr(error.text, "descriptor 999") && strstr(error.text, "must be open"));
    o = plain();
    o.parent_death_signal = 999;
    CHECK(start(&p, "/bin/true", "true", NULL, NULL, &o) == EINVAL &&
          error.step == ODF_STEP_PARENT_DEATH);
    o = plain();
    o.flags = ODF_SPAWN_UID;
    o.uid = (uid_t)-1;
    CHECK(start(&p, "/bin/true", "true", NULL, NULL, &o) == EINVAL && error.step == ODF_STEP_UID);
    CHECK(start(&p, "/no/such", "true", NULL, NULL, NULL) == ENOENT && error.step == ODF_STEP_EXEC);
    CHECK(start(&p, "/etc/passwd", "true", NULL, NULL, NULL) == EACCES &&
          error.step == ODF_STEP_EXEC);

    char script[] = "/tmp/odf-spawn-XXXXXX";
    int fd = mkstemp(script);
    CHECK(fd >= 0 && write(fd, "#!/no/such/shell\n", 17) == 17 && fchmod(fd, 0700) == 0 &&
          close(fd) == 0);
    int got = start(&p, script, "script", NULL, NULL, NULL);
    unlink(script);
    CHECK(got == ENOENT && error.step == ODF_STEP_INTERPRETER &&
          strstr(error.text, "/no/such/shell"));
}

static void check_names(void)
{
    CHECK(!strcmp(odf_step_name(ODF_STEP_REQUEST), "request") &&
          !strcmp(odf_step_name(ODF_STEP_INTERPRETER), "interpreter"));
    CHECK(!strcmp(odf_step_name(ODF_STEP_NO_NEW_PRIVILEGES), "no-new-privileges") &&
          !strcmp(odf_step_name(0), "none"));
    CHECK(!strcmp(odf_step_name(22), "unknown") && !strcmp(odf_step_name(-1), "unknown"));
}

/* Of a process that has no stack for children yet and may not map one. */
static int stack(void)
{
    struct odf_process p;
    struct rlimit limit = { 1 << 20, RLIM_INFINITY };
    void *volatile heap = malloc(1000); /* room for small things from now on */
    CHECK(heap);
    free(heap);
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    CHECK(start(&p, "/bin/true", "true", NULL, NULL, NULL) == ENOMEM &&
          error.step == ODF_STEP_STACK);
    puts("stack");
    return 0;
}

static void check_stack(const char *self)
{
    struct odf_process p;
    struct odf_spawn_options o = plain();
    o.out.kind = ODF_STDIO_PIPE;
    CHECK(start(&p, self, self, "stack", NULL, &o) == 0);
    CHECK(!strcmp(hear(&p), "stack\n"));
}

int main(int count, char **words)
{
    if (count > 1 && !strcmp(words[1], "stack"))
        return stack();
    alarm(300);
    check_names();
    check_bad_input();
    check_steps();
    check_stack(words[0]);
    CHECK(waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
    puts("ok");
    return 0;
}
