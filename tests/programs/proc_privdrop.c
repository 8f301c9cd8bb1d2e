// odtest: modes=stock,huge,small expect=any needs=root mem=64
/*
 * Privileges given up after start: setuid and setgid, capabilities dropped, not dumpable, no new
 * privileges. What a freeze could do before it may not do now (mounts, userfaultfd, its own /proc
 * files belong to root). Before the first fork, late, and in the child of a frozen process; the
 * frozen process itself keeps its privileges. Nothing about the identity or the dumpable flag is
 * changed by a fork.
 */
#include "proc_region.h"
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>

static const size_t BYTES = 16 * OD_MB;
static const uid_t NOBODY = 65534;
static void *region;

static void to_nobody(void)
{
    OK(setgroups(0, NULL));
    OK(setresgid(NOBODY, NOBODY, NOBODY));
    OK(setresuid(NOBODY, NOBODY, NOBODY));
}

static void to_nobody_for_a_while(void)
{
    OK(setegid(NOBODY));
    OK(seteuid(NOBODY));
}

static void without_capabilities(void)
{
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct none[2] = { { 0, 0, 0 }, { 0, 0, 0 } };
    for (int cap = 0; cap < 64; cap++)
        prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
    OK(syscall(SYS_capset, &header, none));
}

static void not_dumpable(void) { OK(prctl(PR_SET_DUMPABLE, 0)); }
static void no_new_privileges(void) { OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)); }

static void all_of_them(void)
{
    no_new_privileges();
    without_capabilities();
    not_dumpable();
}

static const struct step {
    const char *name;
    void (*go)(void);
} STEPS[] = {
    { "setuid", to_nobody },
    { "seteuid", to_nobody_for_a_while },
    { "no capabilities", without_capabilities },
    { "not dumpable", not_dumpable },
    { "no new privileges", no_new_privileges },
    { "everything", all_of_them },
};
enum { COUNT = sizeof STEPS / sizeof *STEPS };

struct identity {
    uid_t uid[3];
    gid_t gid[3];
    int groups, dumpable, no_new, securebits, keep;
};

static struct identity who(void)
{
    struct identity id;
    memset(&id, 0, sizeof id);
    getresuid(&id.uid[0], &id.uid[1], &id.uid[2]);
    getresgid(&id.gid[0], &id.gid[1], &id.gid[2]);
    id.groups = getgroups(0, NULL);
    id.dumpable = prctl(PR_GET_DUMPABLE);
    id.no_new = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
    id.securebits = prctl(PR_GET_SECUREBITS);
    id.keep = prctl(PR_GET_KEEPCAPS);
    return id;
}

static void same(const struct identity *before, const char *what)
{
    struct identity now = who();
    CHECK(memcmp(before, &now, sizeof now) == 0,
          "%s: identity changed: uid %d to %d, dumpable %d to %d", what, before->uid[1], now.uid[1],
          before->dumpable, now.dumpable);
}

static void work_inside(const char *what)
{
    struct identity before = who();
    for (size_t round = 0; round < 6; round++) {
        region_touch(region, BYTES, 15, round);
        pid_t pid = fork();
        CHECK(pid >= 0, "%s: fork: %s", what, strerror(errno));
        if (pid == 0) {
            same(&before, what);
            region_check(region, BYTES, 15, REGION_STEP, what);
            region_look(region, BYTES, 15, what);
            _exit(0);
        }
        od_join(pid);
        same(&before, what);
        if (round == 2)
            od_refreeze();
        if (round == 3)
            od_thaw();
        if (round == 4)
            od_freeze();
        same(&before, what);
    }
    region_check(region, BYTES, 15, 1, what);
}

int main(int argc, char **argv)
{
    region = region_new(BYTES, 15);
    if (argc == 3) {
        const struct step *step = &STEPS[atoi(argv[2])];
        if (!strcmp(argv[1], "late"))
            region_grow_old(region, BYTES, 15);
        step->go();
        work_inside(step->name);
        _exit(0);
    }
    region_grow_old(region, BYTES, 15);
    for (int i = 0; i < COUNT; i++) {
        char number[8];
        snprintf(number, sizeof number, "%d", i);
        for (int way = 0; way < 3; way++) {
            pid_t pid = od_fork();
            if (pid == 0 && way < 2) {
                execv("/proc/self/exe", (char *[]){ "self", way ? "late" : "early", number, NULL });
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
    region_look(region, BYTES, 15, "with all privileges");
    return od_done();
}
