// odtest: expect=froze mem=200 timeout=60
/*
 * A child that gave up rights in any of the ways there are, and keeps inherited memory while it
 * drops pages it does not know: what its parent writes after the fork stays hidden, whatever the
 * parent does until it forks again. The same for a child that lets a pipe keep the pages and ends.
 */
#include "proc_region.h"
#include <grp.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <sched.h>
#include <setjmp.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/uio.h>

/* The C library's, in no header. */
int capset(void *head, void *data);

static const size_t BYTES = 16 * OD_MB;
enum { OLD = 1, NEW = 2 };
static void *region;

static void by_all_ids(void)
{
    OK(setresgid(65534, 65534, 65534));
    OK(setresuid(65534, 65534, 65534));
}
static void by_setgroups(void) { OK(setgroups(0, NULL)); }
static void by_group(void) { OK(setgid(65534)); }
static void by_effective_group(void) { OK(setegid(65534)); }
static void by_real_group(void) { OK(setregid(65534, -1)); }
static void by_all_groups(void) { OK(setresgid(65534, 65534, 65534)); }
static void by_effective_user(void) { OK(seteuid(65534)); }
static void by_real_user(void) { OK(setreuid(65534, 65534)); }
static void by_all_users(void) { OK(setresuid(65534, 65534, 65534)); }
static void by_plain_setuid(void) { OK(setuid(65534)); }
static void by_number(void) { OK(syscall(SYS_setresuid, 65534, 65534, 65534)); }
static void by_supplementary_groups(void) { OK(initgroups("nobody", 65534)); }
static void by_all_capabilities(void)
{
    struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct none[2] = { { 0 }, { 0 } };
    OK(capset(&head, none));
}
/* Both return the number before. */
static void by_file_user(void) { OK(setfsuid(65534)); }
static void by_file_group(void) { OK(setfsgid(65534)); }
static void by_chroot(void) { OK(chroot("/tmp")); }
static void by_capability(void) { OK(prctl(PR_CAPBSET_DROP, 21, 0, 0, 0)); }
static void by_no_new_privileges(void) { OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)); }
static void by_hiding(void) { OK(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)); }
static void by_hiding_by_number(void) { OK(syscall(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0)); }
static void by_namespace(void)
{
    if (unshare(CLONE_NEWUSER) < 0)
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

/* Into its own again: the call counts. */
static void by_setns(void)
{
    int name = OK(open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC));
    OK(setns(name, CLONE_NEWUTS));
}

static void by_handle(void)
{
    int (*change)(uid_t, uid_t, uid_t) = (int (*)(uid_t, uid_t, uid_t))dlsym(
        OK(dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD)), "setresuid");
    OK(change(65534, 65534, 65534));
}
/* Its children are born with other rights. */
static pid_t born_by_number(void)
{
    fflush(NULL);
    return (pid_t)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
}
static pid_t born_by_arguments(void)
{
    struct clone_args arguments;
    memset(&arguments, 0, sizeof arguments);
    arguments.flags = CLONE_NEWUSER;
    arguments.exit_signal = SIGCHLD;
    fflush(NULL);
    return (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
}

/* The C library's clone wants a function: it goes back to where the parent was. */
static jmp_buf place;
static int go_back(void *unused)
{
    (void)unused;
    longjmp(place, 1);
}
static pid_t born_by_clone(void)
{
    static char stack[65536] __attribute__((aligned(64)));
    fflush(NULL);
    if (setjmp(place))
        return 0;
    return clone(go_back, stack + sizeof stack, CLONE_NEWUSER | SIGCHLD, NULL);
}

static const struct way {
    const char *name;
    void (*drop)(void);
    int needs_root;
} WAYS[] = {
    { "no_new_privs", by_no_new_privileges, 0 },
    { "not dumpable", by_hiding, 0 },
    { "not dumpable, by number", by_hiding_by_number, 0 },
    { "user namespace", by_namespace, 0 },
    { "all ids", by_all_ids, 1 },
    { "setgroups", by_setgroups, 1 },
    { "setgid", by_group, 1 },
    { "setegid", by_effective_group, 1 },
    { "setregid", by_real_group, 1 },
    { "setresgid", by_all_groups, 1 },
    { "seteuid", by_effective_user, 1 },
    { "setreuid", by_real_user, 1 },
    { "setresuid", by_all_users, 1 },
    { "setuid", by_plain_setuid, 1 },
    { "setns", by_setns, 1 },
    { "setresuid by number", by_number, 1 },
    { "initgroups", by_supplementary_groups, 1 },
    { "capset", by_all_capabilities, 0 },
    { "setfsuid", by_file_user, 1 },
    { "setfsgid", by_file_group, 1 },
    { "chroot", by_chroot, 1 },
    { "capability", by_capability, 1 },
    { "libc's own setresuid", by_handle, 1 },
};
static pid_t (*const BIRTHS[])(void) = { born_by_number, born_by_arguments, born_by_clone };
enum {
    COUNT = sizeof WAYS / sizeof *WAYS,
    BORN = COUNT + sizeof BIRTHS / sizeof *BIRTHS,
};

/* Unmaps private pages that nobody writes and that lie alone: one may say who shares memory. */
static void drop_unknown(void)
{
    unsigned long start[64], end[64];
    char line[512], rights[8];
    size_t found = 0;
    FILE *map = fopen("/proc/self/maps", "r");
    while (map && found < 64 && fgets(line, sizeof line, map))
        if (sscanf(line, "%lx-%lx %7s", &start[found], &end[found], rights) == 3 &&
            (!strcmp(rights, "r--p") || !strcmp(rights, "---p")) &&
            end[found] - start[found] <= 2 * OD_PAGE && !strchr(line, '/') && !strchr(line, '['))
            found++;
    if (map)
        fclose(map);
    for (size_t i = 0; i < found; i++)
        munmap((void *)start[i], end[i] - start[i]);
}

/* The parent writes, and forks until nothing is dirty any more. */
static void write_secrets(void)
{
    od_fill(region, BYTES, NEW);
    for (int i = 0; i < 3; i++)
        region_look(region, BYTES, NEW, "the parent's own");
}

static void nothing(void) {}

static void watch_by_mapping(pid_t (*birth)(void), const struct way *way)
{
    struct od_gate ready, written;
    od_gate_make(&ready);
    od_gate_make(&written);
    pid_t child = birth();
    if (child < 0) {
        printf("%s: %s\n", way->name, strerror(errno));
        return;
    }
    if (child == 0) {
        way->drop();
        drop_unknown();
        od_gate_open(&ready, 1);
        od_gate_wait(&written);
        od_verify(region, BYTES, OLD, way->name);
        _exit(0);
    }
    od_gate_wait(&ready);
    write_secrets();
    od_gate_open(&written, 1);
    od_join(child);
    od_gate_drop(&ready);
    od_gate_drop(&written);
}

static void watch_by_pipe(void)
{
    int ends[2];
    OK(pipe(ends));
    pid_t child = od_fork();
    if (child == 0) {
        struct iovec pages = { (char *)region + 4 * OD_PAGE, 8 * OD_PAGE };
        OK(vmsplice(ends[1], &pages, 1, 0));
        munmap(region, BYTES);
        drop_unknown();
        _exit(0);
    }
    od_join(child);
    write_secrets();
    static char got[8 * OD_PAGE];
    for (size_t n = 0; n < sizeof got;)
        n += (size_t)OK(read(ends[0], got + n, sizeof got - n));
    od_verify_at(got, sizeof got, OLD, 4 * OD_PAGE / 8, "from the pipe");
    close(ends[0]);
    close(ends[1]);
}

static void attempt(size_t way)
{
    region = region_new(BYTES, OLD);
    od_freeze();
    region_look(region, BYTES, OLD, "before");
    region_touch(region, BYTES, OLD, 0);
    region_look(region, BYTES, OLD, "folded");
    const struct way other = { "another namespace", nothing, 0 };
    if (way < COUNT)
        watch_by_mapping(od_fork, &WAYS[way]);
    else if (way < BORN)
        watch_by_mapping(BIRTHS[way - COUNT], &other);
    else
        watch_by_pipe();
}

/* Each way in a family of its own, begun by exec: what one child does is remembered by all. */
static void begin_family(void *number)
{
    char way[16];
    snprintf(way, sizeof way, "%zu", (size_t)(uintptr_t)number);
    OK(execl("/proc/self/exe", "proc_secrets", way, NULL));
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        attempt((size_t)atol(argv[1]));
        return 0;
    }
    for (size_t way = 0; way <= BORN; way++)
        if (way >= COUNT || !WAYS[way].needs_root || geteuid() == 0)
            od_run_child(begin_family, (void *)(uintptr_t)way);
    region_look(region_new(BYTES, 3), BYTES, 3, "a freeze for the statistics");
    return od_done();
}
