// odtest: expect=frozen mem=64
/*
 * Other ways to make a process: vfork + exec, posix_spawn with file actions and attributes, popen,
 * system, clone with only SIGCHLD, _Fork, forkpty, the raw fork and clone3 calls, and exec itself.
 * Early and late, each gives a child that sees the bytes of that instant (or the executed program),
 * the right status, and nothing more in the parent.
 */
#include "proc_region.h"
#include <linux/sched.h>
#include <pty.h>
#include <sched.h>
#include <spawn.h>
#include <termios.h>

extern char **environ;
static const size_t BYTES = 16 * OD_MB;
static void *region;
static uint64_t mark; /* changes with every way; a child must see the one of its own birth */

static void born(const char *what)
{
    volatile uint64_t *word = region;
    CHECK(word[1] == mark, "%s: child sees mark %llu, want %llu", what, (unsigned long long)word[1],
          (unsigned long long)mark);
    region_check(region, BYTES, 19, REGION_STEP, what);
    word[3] = 0xBAD;
    _exit(42);
}

static void expect_status(pid_t pid, int want, const char *what)
{
    int status;
    CHECK(pid > 0, "%s: pid %d: %s", what, pid, strerror(errno));
    CHECK(waitpid(pid, &status, 0) == pid, "%s: waitpid: %s", what, strerror(errno));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == want, "%s: status %#x, want %d", what,
          (unsigned)status, want);
    CHECK(((volatile uint64_t *)region)[3] == od_word(19, 3),
          "%s: the child's write is in the parent", what);
}

static void next_mark(void)
{
    ((volatile uint64_t *)region)[1] = ++mark;
    region_touch(region, BYTES, 19, mark);
    ((volatile uint64_t *)region)[1] = mark;
}

static int born_by_clone(void *what)
{
    born(what);
    return 0;
}

static void vforks(void)
{
    next_mark();
    pid_t pid = vfork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", "exit 42", (char *)NULL);
        _exit(127);
    }
    expect_status(pid, 42, "vfork and exec");
    volatile uint64_t *word = region;
    pid = vfork();
    if (pid == 0) {
        word[5] = 4711; /* shared with the parent */
        _exit(42);
    }
    expect_status(pid, 42, "vfork and exit");
    CHECK(word[5] == 4711, "the vfork child's write is lost");
    word[5] = od_word(19, 5);
}

static void spawns(void)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    char out[32] = "";
    int end[2];
    pid_t pid;
    next_mark();
    OK(pipe(end));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, end[1], 1);
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    char *argv[] = { "sh", "-c", "echo spawned; exit 42", NULL };
    int error = posix_spawn(&pid, "/bin/sh", &actions, &attributes, argv, environ);
    CHECK(error == 0, "posix_spawn: %s", strerror(error));
    close(end[1]);
    CHECK(read(end[0], out, sizeof out - 1) == 8 && !strcmp(out, "spawned\n"),
          "posix_spawn said %s", out);
    close(end[0]);
    expect_status(pid, 42, "posix_spawn");
    error = posix_spawnp(&pid, "no-such-program-here", NULL, NULL, argv, environ);
    CHECK(error == ENOENT || error == EACCES, "posix_spawnp of nothing: %d", error);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
}

static void shells(void)
{
    char text[32] = "";
    next_mark();
    CHECK(WEXITSTATUS(system("exit 42")) == 42, "system");
    FILE *in = popen("echo popened; exit 42", "re");
    CHECK(in && fgets(text, sizeof text, in) && !strcmp(text, "popened\n"), "popen gave %s", text);
    CHECK(WEXITSTATUS(pclose(in)) == 42, "pclose");
    FILE *to = popen("cat > /dev/null; exit 42", "we");
    CHECK(to && fputs("some", to) >= 0 && WEXITSTATUS(pclose(to)) == 42, "popen for writing");
}

static void clones(void)
{
    static char stack[65536] __attribute__((aligned(64)));
    next_mark();
    expect_status(clone(born_by_clone, stack + sizeof stack, SIGCHLD, (void *)"clone"), 42,
                  "clone");
    next_mark();
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, NULL, NULL, 0);
    if (pid == 0)
        born("raw clone");
    expect_status(pid, 42, "raw clone");
    next_mark();
    pid = (pid_t)syscall(OD_FORK_CALL);
    if (pid == 0)
        born("raw fork");
    expect_status(pid, 42, "raw fork");
    next_mark();
    struct clone_args args = { .exit_signal = SIGCHLD };
    pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0)
        born("clone3");
    if (pid > 0 || errno != ENOSYS)
        expect_status(pid, 42, "clone3");
}

static void forks(void)
{
    next_mark();
    errno = 77;
    pid_t pid = _Fork();
    if (pid == 0)
        born("_Fork");
    CHECK(errno == 77, "_Fork: errno %d", errno);
    expect_status(pid, 42, "_Fork");
    next_mark();
    pid = fork();
    if (pid == 0)
        born("fork");
    expect_status(pid, 42, "fork");
}

static void terminals(void)
{
    int control;
    char text[64] = "";
    next_mark();
    pid_t pid = forkpty(&control, NULL, NULL, NULL);
    if (pid < 0) {
        CHECK(errno == ENOENT || errno == EACCES || errno == EPERM || errno == ENOSPC,
              "forkpty: %s", strerror(errno));
        return; /* no pseudo-terminals here */
    }
    if (pid == 0) {
        struct termios mode;
        CHECK(isatty(0) && isatty(1) && tcgetattr(0, &mode) == 0, "no terminal");
        CHECK(getsid(0) == getpid(), "no session");
        CHECK(write(1, "on a terminal\n", 14) == 14, "write");
        born("forkpty");
    }
    ssize_t n = read(control, text, sizeof text - 1);
    CHECK(n > 0 && !strncmp(text, "on a terminal", 13), "forkpty's child said %s", text);
    while (read(control, text, sizeof text) > 0)
        ;
    expect_status(pid, 42, "forkpty");
    close(control);
}

static void all(const char *when)
{
    vforks();
    spawns();
    shells();
    clones();
    forks();
    terminals();
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD, "%s: somebody is left", when);
    ((volatile uint64_t *)region)[1] = od_word(19, 1);
    region_check(region, BYTES, 19, 1, when);
}

int main(void)
{
    region = region_new(BYTES, 19);
    all("early");
    region_grow_old(region, BYTES, 19);
    all("late");
    od_thaw();
    all("thawed");
    return od_done();
}
