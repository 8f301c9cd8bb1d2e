// odtest: modes=stock,huge,small expect=any needs=root mem=300 serial=yes
/*
 * A memory control group with room for what stock fork needs: the program inside it, 64 MB of memory, children
 * that read and write some. A freeze that holds a region twice at its peak, or whose image stays beside what was
 * dirtied, must give up in time: content right, nobody killed. Ample and tight. A limit lowered below image
 * plus rewritten pages after freezing is beyond us: docs/limits.md.
 */
#include "proc_region.h"
#include <sys/stat.h>

static const size_t BYTES = 64 * OD_MB;
static char group[160];
static const char *limit_file;

static int put(const char *dir, const char *file, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = write(fd, text, strlen(text));
    close(fd);
    return n == (ssize_t)strlen(text) ? 0 : -1;
}

/* Version 1 below our own group, else version 2; skip when neither lets us. */
static int make_group(void)
{
    static const char *ROOTS[] = { "/sys/fs/cgroup/memory", "/sys/fs/cgroup", NULL };
    static const char *LIMITS[] = { "memory.limit_in_bytes", "memory.max" };
    for (int i = 0; ROOTS[i]; i++) {
        char control[220];
        snprintf(group, sizeof group, "%s/odprog-%d", ROOTS[i], getpid());
        if (mkdir(group, 0755) != 0)
            continue;
        snprintf(control, sizeof control, "%s/%s", group, LIMITS[i]);
        if (access(control, W_OK) == 0) {
            limit_file = LIMITS[i];
            return 0;
        }
        rmdir(group);
    }
    return -1;
}

static int set_limit(size_t bytes)
{
    char text[32];
    snprintf(text, sizeof text, "%zu", bytes);
    return put(group, limit_file, text);
}

static void work(const char *what, void *region)
{
    volatile uint64_t *word = region;
    for (size_t round = 0; round < 8; round++) {
        region_touch(region, BYTES, 17, round);
        pid_t pid = fork();
        CHECK(pid >= 0, "%s: fork: %s", what, strerror(errno));
        if (pid == 0) {
            region_check(region, BYTES, 17, REGION_STEP, what);
            for (size_t i = 1; i < 4 * OD_MB / 8; i += 512)
                word[i] = ~word[i];
            region_look(region, BYTES, 17, what);
            _exit(0);
        }
        od_join(pid);
        if (round == 3)
            od_refreeze();
        if (round == 5)
            od_thaw();
        if (round == 6)
            od_freeze();
    }
    region_check(region, BYTES, 17, 1, what);
}

/* The child joins the group before it touches memory. Nothing may kill it. */
static void inside(const char *what, size_t first, size_t later)
{
    CHECK(set_limit(first) == 0, "cannot set the limit to %zu", first);
    pid_t pid = od_fork();
    if (pid == 0) {
        char number[16];
        snprintf(number, sizeof number, "%zu", later);
        CHECK(put(group, "cgroup.procs", "0") == 0, "cannot join: %s", strerror(errno));
        execv("/proc/self/exe", (char *[]){ "self", (char *)what, number, group, (char *)limit_file, NULL });
        _exit(127);
    }
    int status = 0;
    OK(waitpid(pid, &status, 0));
    if (status)
        rmdir(group);
    CHECK(!WIFSIGNALED(status), "%s: killed by signal %d", what, WTERMSIG(status));
    CHECK(status == 0, "%s: status %d", what, WEXITSTATUS(status));
    printf("%s: fine\n", what);
}

int main(int argc, char **argv)
{
    if (argc == 5) {
        size_t later = strtoul(argv[2], NULL, 10);
        snprintf(group, sizeof group, "%s", argv[3]);
        limit_file = argv[4];
        void *region = region_new(BYTES, 17);
        work(argv[1], region);
        if (later && set_limit(later) == 0)
            work(argv[1], region);
        return 0;
    }
    if (make_group() != 0)
        od_skip("no memory control group can be made below /sys/fs/cgroup: mount the memory controller writable");
    inside("ample, 300 MB", 300 * OD_MB, 0);
    inside("tight, 140 MB", 140 * OD_MB, 0);
    inside("tight, 100 MB", 100 * OD_MB, 0);
    inside("tighter, 84 MB", 84 * OD_MB, 0);
    CHECK(rmdir(group) == 0, "rmdir %s: %s", group, strerror(errno));
    return od_done();
}
