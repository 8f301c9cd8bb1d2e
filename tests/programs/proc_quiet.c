// odtest: expect=fold mem=64 serial=yes
/*
 * Quiet: nothing appears on stdout or stderr, in the working directory, in /tmp, in /dev/shm, among
 * the mounts, the System V objects, the sockets or the files in use, while the process forks,
 * freezes, folds and thaws, and while a child lives. Buffered output of the program is written
 * once. Statistics the harness asked for are not counted.
 */
#include "proc_region.h"

static const size_t BYTES = 16 * OD_MB;
static void *region;

/* Names in a directory that could be ours: made since the start by a process of this user. */
static int names_in(const char *path, const char *ignore)
{
    DIR *dir = opendir(path);
    int n = 0;
    if (!dir)
        return -1;
    for (struct dirent *e; (e = readdir(dir));)
        n += strncmp(e->d_name, ignore, strlen(ignore)) != 0;
    closedir(dir);
    return n;
}

static int lines_of(const char *path, const char *with)
{
    char line[1024];
    FILE *file = fopen(path, "re");
    int n = 0;
    if (!file)
        return -1;
    while (fgets(line, sizeof line, file))
        n += strstr(line, with) != NULL;
    fclose(file);
    return n;
}

static int odd_names(const char *path)
{
    DIR *dir = opendir(path);
    int n = 0;
    if (!dir)
        return -1;
    for (struct dirent *e; (e = readdir(dir));)
        n += strstr(e->d_name, "odfork-image") || strstr(e->d_name, "memfd");
    closedir(dir);
    return n;
}

struct view {
    int here, tmp, shm, mounts, sysv;
};

static struct view look_around(void)
{
    struct view v = { names_in(".", "odstats."), odd_names("/tmp"), odd_names("/dev/shm"),
                      lines_of("/proc/self/mounts", " "), lines_of("/proc/sysvipc/shm", "") };
    return v;
}

static void same(const struct view *before, const char *when)
{
    struct view now = look_around();
    CHECK(!memcmp(before, &now, sizeof now),
          "%s: here %d to %d, /tmp %d to %d, /dev/shm %d to %d, mounts %d to %d, shm %d to %d",
          when, before->here, now.here, before->tmp, now.tmp, before->shm, now.shm, before->mounts,
          now.mounts, before->sysv, now.sysv);
}

/* Both standard streams are a file while the work is done; the file must stay as the program wrote
 * it. */
static void work_in_silence(const struct view *before)
{
    int keep_out = OK(dup(1)), keep_err = OK(dup(2));
    FILE *file = tmpfile();
    CHECK(file, "tmpfile");
    fflush(NULL);
    OK(dup2(fileno(file), 1));
    OK(dup2(fileno(file), 2));
    for (size_t i = 0; i < 10; i++) {
        region_touch(region, BYTES, 22, i);
        pid_t pid = fork();
        if (pid == 0) {
            struct view seen = *before;
            same(&seen, "in a child");
            region_check(region, BYTES, 22, REGION_STEP, "quiet");
            _exit(0);
        }
        same(before, "while a child lives");
        od_join(pid);
        if (i == 5)
            od_refreeze();
        if (i == 7)
            od_thaw();
    }
    off_t size = lseek(fileno(file), 0, SEEK_END);
    char text[512] = "";
    CHECK(pread(fileno(file), text, sizeof text - 1, 0) >= 0, "pread");
    OK(dup2(keep_out, 1));
    OK(dup2(keep_err, 2));
    close(keep_out);
    close(keep_err);
    fclose(file);
    CHECK(size == 0, "%ld bytes were written: %s", (long)size, text);
}

int main(void)
{
    struct view before = look_around();
    region = region_new(BYTES, 22);
    work_in_silence(&before);
    same(&before, "early");
    region_grow_old(region, BYTES, 22);
    work_in_silence(&before);
    same(&before, "late");
    printf("half a line, ");
    fflush(stdout);
    printf("and the rest, held in the buffer over a fork");
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    od_join(pid);
    printf(" and written once\n");
    return od_done();
}
