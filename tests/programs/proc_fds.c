// odtest: expect=frozen mem=64
/*
 * Descriptors: a fork that freezes or folds shows none that stock fork does not show. Compared are
 * number, target and close-on-exec flag of every descriptor below the limit, and the number the
 * next open() gives: in the process, in its children, and in a program a child executes; after
 * closing everything above 2, after dup2 over every number up to 1024 and up to the limit, and with
 * RLIMIT_NOFILE at, below and far below the descriptors in use.
 */
#include "proc_region.h"

static const size_t BYTES = 8 * OD_MB;
static void *region;
static rlim_t most; /* the limit at start */
static unsigned round_number;

/* A line per descriptor: number, flag, target. Nothing is opened to make it. */
static char *list(void)
{
    size_t room = 4 << 20, used = 0;
    char *text = malloc(room), path[48], target[256];
    CHECK(text, "malloc");
    text[0] = 0;
    for (int fd = 0; fd < (int)most; fd++) {
        int flag = fcntl(fd, F_GETFD);
        if (flag < 0)
            continue;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, target, sizeof target - 1);
        target[n < 0 ? 0 : n] = 0;
        used += (size_t)snprintf(text + used, room - used, "%d %d %s\n", fd, flag, target);
        CHECK(used < room, "list too long");
    }
    return text;
}

static int next_number(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return fd >= 0 ? fd : -errno;
}

static void same(const char *before, int next, const char *what)
{
    char *now = list();
    CHECK(strcmp(before, now) == 0, "%s: descriptors were\n%s... and now are\n%s", what, before,
          now);
    free(now);
    CHECK(next_number() == next, "%s: next open gave %d, now %d", what, next, next_number());
}

static void fork_and_compare(const char *what)
{
    char *before = list();
    int next = next_number();
    for (int i = 0; i < 4; i++) {
        region_touch(region, BYTES, 3, round_number++);
        pid_t pid = fork();
        CHECK(pid >= 0, "%s: fork: %s", what, strerror(errno));
        if (pid == 0) {
            same(before, next, what);
            region_look(region, BYTES, 3, what);
            same(before, next, what);
            _exit(0);
        }
        same(before, next, what);
        od_join(pid);
        if (i == 1)
            od_freeze();
        if (i == 2)
            od_refreeze();
        same(before, next, what);
    }
    od_thaw();
    same(before, next, what);
    region_check(region, BYTES, 3, REGION_STEP, what);
    free(before);
}

/* The executed program writes its list into a pipe on descriptor 9; it must be what the parent
 * expects. */
static void exec_and_compare(void)
{
    int pipe_end[2];
    static char got[65536];
    char want[4096];
    OK(pipe(pipe_end));
    pid_t pid = od_fork();
    if (pid == 0) {
        OK(dup2(pipe_end[1], 9));
        for (int fd = 10; fd < (int)most; fd++)
            close(fd);
        for (int fd = 3; fd < 9; fd++)
            close(fd);
        execv("/proc/self/exe", (char *[]){ "self", "list", NULL });
        _exit(127);
    }
    close(pipe_end[1]);
    size_t used = 0;
    ssize_t n;
    while ((n = read(pipe_end[0], got + used, sizeof got - 1 - used)) > 0)
        used += (size_t)n;
    got[used] = 0;
    close(pipe_end[0]);
    od_join(pid);
    snprintf(want, sizeof want, "0 1 2 9 next 3\n");
    CHECK(strcmp(got, want) == 0, "after exec the descriptors are %s, want %s", got, want);
}

static int list_after_exec(void)
{
    for (int fd = 0; fd < (int)most; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            dprintf(9, "%d ", fd);
    dprintf(9, "next %d\n", next_number());
    region = region_new(BYTES, 3);
    fork_and_compare("in the executed program");
    return 0;
}

static void set_limit(rlim_t soft)
{
    struct rlimit limit = { soft, most };
    OK(setrlimit(RLIMIT_NOFILE, &limit));
}

static void occupy(int from, int to)
{
    int null = OK(open("/dev/null", O_RDWR));
    for (int fd = from; fd < to; fd++)
        if (fd != null)
            OK(dup2(null, fd));
}

static void all_stages(void)
{
    fork_and_compare("as started");
    exec_and_compare();
    int holes[3];
    OK(pipe(holes));
    holes[2] = OK(fcntl(0, F_DUPFD, 700));
    fork_and_compare("with holes");
    set_limit(701);
    fork_and_compare("limit as tight as the highest");
    set_limit((rlim_t)holes[1]);
    fork_and_compare("limit below the highest");
    set_limit(3);
    fork_and_compare("limit 3");
    set_limit(0);
    fork_and_compare("limit 0");
    set_limit(most);
    for (int fd = 3; fd < (int)most; fd++)
        close(fd);
    fork_and_compare("all above 2 closed one by one");
    exec_and_compare();
    OK(close_range(3, ~0U, 0));
    fork_and_compare("all above 2 closed at once");
    occupy(3, 1024);
    fork_and_compare("occupied up to 1024");
    set_limit(1024);
    fork_and_compare("occupied up to the limit 1024");
    set_limit(most);
    closefrom(3);
    set_limit(256);
    occupy(3, 256);
    fork_and_compare("occupied up to the limit 256");
    set_limit(most);
    closefrom(3);
}

/* With 0, 1 and 2 closed too: a runtime that opens something gets the standard numbers. */
static void without_standard(void)
{
    int keep = OK(fcntl(2, F_DUPFD, 100));
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    fork_and_compare("standard descriptors closed");
    for (int fd = 0; fd < 3; fd++)
        OK(dup2(keep, fd));
    close(keep);
}

static int run_case(const char *when)
{
    region = region_new(BYTES, 3);
    if (!strcmp(when, "late"))
        region_grow_old(region, BYTES, 3);
    all_stages();
    without_standard();
    return 0;
}

int main(int argc, char **argv)
{
    struct rlimit limit;
    OK(getrlimit(RLIMIT_NOFILE, &limit));
    most = limit.rlim_cur > 1200 ? 1200 : limit.rlim_cur;
    set_limit(most);
    if (argc == 2)
        return strcmp(argv[1], "list") ? run_case(argv[1]) : list_after_exec();
    region = region_new(BYTES, 3);
    region_grow_old(region, BYTES, 3);
    for (int late = 0; late < 2; late++) {
        pid_t pid = od_fork();
        if (pid == 0) {
            execv("/proc/self/exe", (char *[]){ "self", late ? "late" : "early", NULL });
            _exit(127);
        }
        od_join(pid);
    }
    all_stages();
    return od_done();
}
