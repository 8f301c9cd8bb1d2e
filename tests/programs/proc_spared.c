// odtest: expect=frozen mem=64
/*
 * Calls that the runtime can go on without, forbidden with death by a filter that was there first,
 * as under a service manager: alone and together, by killing the process, the thread, or by SIGSYS.
 * Memory is frozen all the same, into what can still be had, and the program never notices.
 */
#include "proc_region.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

static const size_t BYTES = 16 * OD_MB;

static const int DEADLY[] = {SYS_fsopen,  SYS_fsconfig,    SYS_fsmount,
                             SYS_unshare, SYS_userfaultfd, SYS_mincore};
enum { COUNT = sizeof DEADLY / sizeof *DEADLY };

/* One of the calls, or all of them. */
static void install(int which, unsigned verdict)
{
    struct sock_filter code[2 * COUNT + 2];
    unsigned short n = 0;
    code[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < COUNT; i++) {
        if (i != which && which != COUNT)
            continue;
        code[n++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)DEADLY[i], 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, verdict);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = { n, code };
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "prctl");
}

static int is_loaded(void) { return dlsym(RTLD_DEFAULT, "odfork_freeze") != NULL; }

/* In mode huge nothing is frozen where there are no huge pages; the outer process is judged by its
 * statistics. */
static int must_freeze(int which)
{
    const char *kind = getenv("ODFORK_IMAGE");
    return is_loaded() && (!kind || strcmp(kind, "small") == 0 || which >= 3) && which != COUNT;
}

static int work_inside(int which)
{
    void *region = region_new(BYTES, 3);
    int frozen = od_call(OD_FREEZE);
    CHECK(frozen == 0 || !must_freeze(which), "call %d: odfork_freeze() = %d", which, frozen);
    region_look(region, BYTES, 3, "frozen");
    region_grow_old(region, BYTES, 3);
    /* A child alive while more is rewritten: what is dirty cannot go back in place. */
    int gate[2];
    char byte;
    OK(pipe(gate));
    pid_t pid = od_fork();
    if (pid == 0) {
        close(gate[1]);
        _exit(read(gate[0], &byte, 1) == 0 ? 0 : 1);
    }
    region_grow_old(region, BYTES, 3);
    close(gate[1]);
    close(gate[0]);
    od_join(pid);
    od_thaw();
    region_check(region, BYTES, 3, 1, "thawed");
    region_look(region, BYTES, 3, "again");
    return 0;
}

static void start_inside(int which, unsigned verdict)
{
    pid_t pid = od_fork();
    if (pid == 0) {
        char number[8];
        snprintf(number, sizeof number, "%d", which);
        install(which, verdict);
        execv("/proc/self/exe", (char *[]){ "self", number, NULL });
        _exit(127);
    }
    od_join(pid);
}

int main(int argc, char **argv)
{
    if (argc == 2)
        return work_inside(atoi(argv[1]));
    void *region = region_new(BYTES, 4);
    region_look(region, BYTES, 4, "outside");
    for (int which = 0; which <= COUNT; which++)
        start_inside(which, SECCOMP_RET_KILL_PROCESS);
    start_inside(COUNT, SECCOMP_RET_KILL_THREAD);
    start_inside(COUNT, SECCOMP_RET_TRAP);
    printf("%d calls, alone and together: fine\n", COUNT);
    return od_done();
}
