// odtest: expect=frozen mem=64
/*
 * Children: wait finds exactly the program's own, in number and by pid, also with __WALL and
 * __WCLONE and when there are none (ECHILD); SIGCHLD comes once for each of them; no other task is
 * in the process, none in its group; an ignored SIGCHLD reaps; a subreaper gets exactly its
 * orphans; daemon() leaves a process that can go on forking.
 */
#include "proc_region.h"
#include <sys/prctl.h>

static const size_t BYTES = 16 * OD_MB;
static void *region;
static volatile sig_atomic_t told;

static void on_child(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)context;
    if (info->si_code == CLD_EXITED)
        told++;
    else
        told += 1000;
}

static int count_names(const char *path)
{
    DIR *dir = opendir(path);
    CHECK(dir, "opendir %s: %s", path, strerror(errno));
    int n = 0;
    for (struct dirent *e; (e = readdir(dir));)
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void no_children(const char *what)
{
    static const int FLAGS[] = {WNOHANG, WNOHANG | __WALL, WNOHANG | __WCLONE,
                                WNOHANG | WUNTRACED | WCONTINUED, 0};
    for (int i = 0; i < 5; i++) {
        errno = 0;
        pid_t got = waitpid(-1, NULL, FLAGS[i]);
        CHECK(got == -1 && errno == ECHILD, "%s: waitpid(-1, %#x) = %d, errno %d", what,
              (unsigned)FLAGS[i], got, errno);
    }
    siginfo_t info;
    CHECK(waitid(P_ALL, 0, &info, WEXITED | WNOHANG | __WALL) == -1 && errno == ECHILD,
          "%s: waitid finds one", what);
    char path[64], text[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
    int fd = open(path, O_RDONLY | O_CLOEXEC); /* absent without CONFIG_PROC_CHILDREN */
    if (fd >= 0) {
        /* One that the kernel reaps by itself is listed a moment longer than wait finds it. */
        ssize_t got;
        for (int look = 0; (got = pread(fd, text, sizeof text - 1, 0)) > 0 && look < 1000; look++)
            usleep(1000);
        text[got > 0 ? got : 0] = 0;
        CHECK(got == 0, "%s: children are %s", what, text);
        close(fd);
    }
    CHECK(count_names("/proc/self/task") == 1, "%s: %d tasks", what,
          count_names("/proc/self/task"));
}

static void ten_children(const char *what)
{
    pid_t pid[10];
    sigset_t block, before;
    struct sigaction action = {.sa_sigaction = on_child, .sa_flags = SA_SIGINFO | SA_RESTART}, old;
    OK(sigaction(SIGCHLD, &action, &old));
    sigemptyset(&block);
    sigaddset(&block, SIGCHLD);
    told = 0;
    for (int i = 0; i < 10; i++) {
        region_touch(region, BYTES, 4, (size_t)i);
        /* One at a time, as standard signals do not queue: blocked until the child has ended. */
        OK(sigprocmask(SIG_BLOCK, &block, &before));
        pid[i] = fork();
        CHECK(pid[i] >= 0, "%s: fork", what);
        if (pid[i] == 0) {
            no_children("a new child");
            region_check(region, BYTES, 4, REGION_STEP, what);
            _exit(100 + i);
        }
        siginfo_t info;
        OK(waitid(P_PID, (id_t)pid[i], &info, WEXITED | WNOWAIT));
        OK(sigprocmask(SIG_SETMASK, &before, NULL));
        CHECK(told == i + 1, "%s: %d SIGCHLD after %d children", what, (int)told, i + 1);
        if (i == 4)
            od_refreeze();
        if (i == 7)
            od_thaw();
        if (i == 8)
            od_freeze();
        CHECK(told == i + 1, "%s: SIGCHLD without a child", what);
        CHECK(count_names("/proc/self/task") == 1, "%s: more tasks than one", what);
    }
    unsigned seen = 0;
    for (int i = 0; i < 10; i++) {
        int status;
        pid_t got = waitpid(-1, &status, __WALL);
        for (int k = 0; k < 10; k++)
            if (got == pid[k] && WIFEXITED(status) && WEXITSTATUS(status) == 100 + k)
                seen |= 1u << k;
    }
    CHECK(seen == 0x3FF, "%s: wait gave another set of children: %#x", what, seen);
    no_children(what);
    OK(sigaction(SIGCHLD, &old, NULL));
}

/* Children are reaped by the kernel; wait then waits for all and says ECHILD. */
static void ignored(const char *what)
{
    struct sigaction action = { .sa_handler = SIG_IGN }, old;
    OK(sigaction(SIGCHLD, &action, &old));
    for (int i = 0; i < 4; i++) {
        region_touch(region, BYTES, 4, (size_t)i);
        pid_t pid = fork();
        CHECK(pid >= 0, "%s: fork", what);
        if (pid == 0)
            _exit(3);
    }
    CHECK(wait(NULL) == -1 && errno == ECHILD, "%s: wait with SIGCHLD ignored", what);
    OK(sigaction(SIGCHLD, &old, NULL));
    no_children(what);
}

/* A subreaper inherits the orphan of its child, and nothing the runtime could have left. */
static void subreaper(const char *what)
{
    OK(prctl(PR_SET_CHILD_SUBREAPER, 1));
    int end[2];
    OK(pipe(end));
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        pid_t orphan = fork();
        if (orphan == 0) {
            usleep(20000);
            region_check(region, BYTES, 4, REGION_STEP, what);
            _exit(5);
        }
        CHECK(write(end[1], &orphan, sizeof orphan) == sizeof orphan, "pipe");
        _exit(orphan < 0);
    }
    od_join(child);
    pid_t orphan = 0;
    int status = 0;
    CHECK(read(end[0], &orphan, sizeof orphan) == sizeof orphan, "pipe");
    pid_t got = waitpid(-1, &status, 0);
    CHECK(got == orphan && WEXITSTATUS(status) == 5, "%s: subreaper reaped %d, want %d", what, got,
          orphan);
    OK(prctl(PR_SET_CHILD_SUBREAPER, 0));
    close(end[0]);
    close(end[1]);
    no_children(what);
}

static void become_daemon(const char *what)
{
    int end[2];
    char answer = 0;
    OK(pipe(end));
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        OK(daemon(1, 1));
        no_children("the daemon");
        region_look(region, BYTES, 4, what);
        region_grow_old(region, BYTES, 4);
        no_children("the daemon");
        CHECK(getppid() != 0, "parent");
        CHECK(write(end[1], "d", 1) == 1, "pipe");
        _exit(0);
    }
    od_join(pid);
    close(end[1]);
    CHECK(read(end[0], &answer, 1) == 1 && answer == 'd', "%s: the daemon did not do its work",
          what);
    CHECK(read(end[0], &answer, 1) == 0, "somebody keeps the pipe");
    close(end[0]);
    no_children(what);
}

static void all(const char *what)
{
    no_children(what);
    ten_children(what);
    ignored(what);
    subreaper(what);
    become_daemon(what);
}

int main(void)
{
    region = region_new(BYTES, 4);
    all("early");
    region_grow_old(region, BYTES, 4);
    all("late");
    return od_done();
}
