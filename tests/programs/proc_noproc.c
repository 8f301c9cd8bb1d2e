// odtest: modes=stock,huge,small expect=any needs=root mem=64
/*
 * No /proc, no /dev, no /sys: an empty file system mounted over /proc in a mount namespace of the
 * program's own; a chroot into an empty directory; both together with privileges dropped; a /proc
 * that does not tell how much memory is free. Put up before the first fork, late, and in the child
 * of a frozen process. Fork has to work as on stock, whatever the runtime can still find out.
 */
#include "proc_region.h"
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

static const size_t BYTES = 16 * OD_MB;
static void *region;
static char empty[256];

static void hide_proc(void)
{
    OK(unshare(CLONE_NEWNS));
    OK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    OK(mount("none", "/proc", "tmpfs", 0, "size=4k"));
    CHECK(access("/proc/self", F_OK) != 0, "/proc is still there");
}

static void go_nowhere(void)
{
    OK(chroot(empty));
    OK(chdir("/"));
    CHECK(access("/proc", F_OK) != 0 && access("/tmp", F_OK) != 0, "the root is not empty");
}

static void hide_and_drop(void)
{
    hide_proc();
    go_nowhere();
    OK(setgroups(0, NULL));
    OK(setresgid(65534, 65534, 65534));
    OK(setresuid(65534, 65534, 65534));
}

/* A /proc whose files answer something else: the process map of nobody. */
static void false_proc(void)
{
    OK(unshare(CLONE_NEWNS));
    OK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    OK(mount("none", "/proc", "tmpfs", 0, "size=64k"));
    OK(mkdir("/proc/self", 0755));
    static const char *NAMES[] = {"maps", "smaps",        "pagemap", "status",
                                  "stat", "smaps_rollup", NULL};
    for (const char **name = NAMES; *name; name++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/%s", *name);
        int fd = OK(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0444));
        dprintf(fd, "nothing to see here\n");
        close(fd);
    }
}

/* What systemd mounts for ProcSubset=pid. */
static void processes_alone(void)
{
    OK(unshare(CLONE_NEWNS));
    OK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    OK(mount("proc", "/proc", "proc", 0, "subset=pid"));
    CHECK(access("/proc/meminfo", F_OK) != 0, "/proc/meminfo is there");
}

static const struct step {
    const char *name;
    void (*go)(void);
} STEPS[] = {
    { "no /proc", hide_proc },
    { "chroot", go_nowhere },
    { "no /proc, chroot, no privileges", hide_and_drop },
    { "false /proc", false_proc },
    { "/proc of processes alone", processes_alone },
};
enum { COUNT = sizeof STEPS / sizeof *STEPS };

static void work_inside(const char *what)
{
    for (size_t round = 0; round < 6; round++) {
        region_touch(region, BYTES, 16, round);
        errno = 77;
        pid_t pid = fork();
        CHECK(pid >= 0 && errno == 77, "%s: fork gave %d: %s", what, pid, strerror(errno));
        if (pid == 0) {
            region_check(region, BYTES, 16, REGION_STEP, what);
            region_look(region, BYTES, 16, what);
            _exit(0);
        }
        od_join(pid);
        if (round == 2)
            od_refreeze();
        if (round == 3)
            od_thaw();
        if (round == 4)
            od_freeze();
    }
    region_check(region, BYTES, 16, 1, what);
    DIR *root = opendir("/");
    CHECK(root, "opendir /");
    int names = 0;
    for (struct dirent *e; (e = readdir(root));)
        names += e->d_name[0] != '.';
    closedir(root);
    if (strstr(what, "chroot"))
        CHECK(names == 0, "%s: %d names in the root now", what, names);
}

int main(int argc, char **argv)
{
    region = region_new(BYTES, 16);
    if (argc == 4) {
        const struct step *step = &STEPS[atoi(argv[2])];
        snprintf(empty, sizeof empty, "%s", argv[3]);
        if (!strcmp(argv[1], "late"))
            region_grow_old(region, BYTES, 16);
        step->go();
        work_inside(step->name);
        if (!strcmp(argv[1], "early"))
            CHECK(od_number("frozen_bytes") == 0, "%s: memory is frozen", step->name);
        _exit(0);
    }
    snprintf(empty, sizeof empty, "%s/odprogXXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    CHECK(mkdtemp(empty), "mkdtemp");
    OK(chmod(empty, 0755));
    region_grow_old(region, BYTES, 16);
    for (int i = 0; i < COUNT; i++) {
        char number[8];
        snprintf(number, sizeof number, "%d", i);
        for (int way = 0; way < 3; way++) {
            pid_t pid = od_fork();
            if (pid == 0 && way < 2) {
                unsetenv("ODFORK_STATS"); /* its file may be out of reach there */
                execv("/proc/self/exe",
                      (char *[]){"self", way ? "late" : "early", number, empty, NULL});
                _exit(127);
            }
            if (pid == 0) {
                STEPS[i].go();
                work_inside(STEPS[i].name);
                _exit(0);
            }
            od_join(pid);
        }
        printf("%s: fine\n", STEPS[i].name);
    }
    OK(rmdir(empty));
    return od_done();
}
