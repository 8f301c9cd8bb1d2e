/* A memory control group of the test's own, for the programs that count charged bytes.
 *
 * Owns: making one (version 1, else 2), its limit, what it is charged, and running this program
 * again inside it. The program joins before it touches memory. Groups go when the test ends well or
 * fails inside. */
#ifndef PROC_GROUP_H
#define PROC_GROUP_H
#include "odtest.h"
#include <sys/stat.h>

struct group {
    char dir[200];
    const char *limit, *used, *peak;
};

static OD_UNUSED int group_put(const char *dir, const char *file, const char *text)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = write(fd, text, strlen(text));
    close(fd);
    return n == (ssize_t)strlen(text) ? 0 : -1;
}

static OD_UNUSED void group_names(struct group *g, int first_version)
{
    g->limit = first_version ? "memory.limit_in_bytes" : "memory.max";
    g->used = first_version ? "memory.usage_in_bytes" : "memory.current";
    g->peak = first_version ? "memory.max_usage_in_bytes" : "memory.peak";
}

/* Version 1 below our own group, else version 2; skips when neither lets us. */
static OD_UNUSED void group_make(struct group *g)
{
    for (int first = 1; first >= 0; first--) {
        char control[260];
        snprintf(g->dir, sizeof g->dir, "%s/odprog-%d",
                 first ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup", getpid());
        group_names(g, first);
        if (mkdir(g->dir, 0755) != 0)
            continue;
        snprintf(control, sizeof control, "%s/%s", g->dir, g->limit);
        if (access(control, W_OK) == 0)
            return;
        rmdir(g->dir);
    }
    od_skip("no memory control group can be made below /sys/fs/cgroup: mount the memory controller "
            "writable");
}

/* Nothing goes to swap space instead: else a test would not notice what is above the limit. */
static OD_UNUSED int group_set_limit(const struct group *g, size_t bytes)
{
    char text[32];
    if (group_put(g->dir, "memory.swappiness", "0") != 0)
        group_put(g->dir, "memory.swap.max", "0");
    snprintf(text, sizeof text, "%zu", bytes);
    return group_put(g->dir, g->limit, text);
}

/* A number of the group; 0 where the kernel has none (version 2 has a peak since Linux 5.19). */
static OD_UNUSED size_t group_number(const struct group *g, const char *file)
{
    char path[260], text[32] = "";
    snprintf(path, sizeof path, "%s/%s", g->dir, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    CHECK(read(fd, text, sizeof text - 1) > 0, "%s: %s", path, strerror(errno));
    close(fd);
    return strtoul(text, NULL, 10);
}

/* Bytes charged now. */
static OD_UNUSED size_t group_charged(const struct group *g)
{
    size_t bytes = group_number(g, g->used);
    CHECK(bytes > 0, "%s/%s: nothing", g->dir, g->used);
    return bytes;
}

/* The most that was ever charged. */
static OD_UNUSED size_t group_peak(const struct group *g) { return group_number(g, g->peak); }

/* The group of a program that group_run() has started: its arguments are "self NAME DIR VERSION".
 */
static OD_UNUSED void group_inside(struct group *g, char **argv)
{
    snprintf(g->dir, sizeof g->dir, "%s", argv[2]);
    group_names(g, argv[3][0] == '1');
}

/* Runs this program as "self NAME DIR VERSION" in the group. Nothing may kill it. */
static OD_UNUSED void group_run(const struct group *g, const char *name)
{
    pid_t pid = od_fork();
    if (pid == 0) {
        const char *version = strstr(g->limit, "_in_bytes") ? "1" : "2";
        CHECK(group_put(g->dir, "cgroup.procs", "0") == 0, "cannot join: %s", strerror(errno));
        execv("/proc/self/exe",
              (char *[]){"self", (char *)name, (char *)g->dir, (char *)version, NULL});
        _exit(127);
    }
    int status = 0;
    OK(waitpid(pid, &status, 0));
    if (status)
        rmdir(g->dir);
    CHECK(!WIFSIGNALED(status), "%s: killed by signal %d", name, WTERMSIG(status));
    CHECK(status == 0, "%s: status %d", name, WEXITSTATUS(status));
}

static OD_UNUSED void group_write(int fd, size_t bytes)
{
    static char block[4096] = "x";
    for (size_t at = 0; at < bytes; at += sizeof block)
        CHECK(write(fd, block, sizeof block) == (ssize_t)sizeof block, "write: %s",
              strerror(errno));
    OK(fsync(fd));
}

/* Page cache that is charged to the group: the kernel drops it before it kills. None where the file
 * lies in memory. The file stays open, so the cache stays. */
static OD_UNUSED void group_fill_cache(const struct group *g, size_t bytes)
{
    char name[] = "/var/tmp/odfork-budget-XXXXXX";
    int fd = OK(mkstemp(name));
    OK(unlink(name));
    group_write(fd, 16 * OD_MB);
    size_t before = group_charged(g);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    if (group_charged(g) + 8 * OD_MB < before)
        group_write(fd, bytes);
    else
        fprintf(stderr, "/var/tmp lies in memory: no page cache\n");
}

/* Removes a group once its last process is gone. */
static OD_UNUSED void group_drop(const char *dir)
{
    int done = -1;
    for (int wait = 0; wait < 100 && (done = rmdir(dir)) != 0 && errno == EBUSY; wait++)
        poll(NULL, 0, 20);
    CHECK(done == 0, "rmdir %s: %s", dir, strerror(errno));
}

#endif
