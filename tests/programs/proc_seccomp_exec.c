// odtest: expect=any mem=64
/*
 * A program that starts inside somebody else's filter, as under a service manager or a container:
 * the fence is put up, then the program is executed. Once the calls a freeze wants are refused,
 * once they kill. Mount and file system calls outside the usual service set are the ones such
 * filters name.
 */
#include "proc_region.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static const size_t BYTES = 16 * OD_MB;

static const int MOUNTS[] = {
    SYS_fsopen,      SYS_fsconfig,  SYS_fsmount,    SYS_mount, SYS_umount2, SYS_unshare, SYS_setns,
    SYS_userfaultfd, SYS_open_tree, SYS_move_mount, 0};
static const int MEMORY_FILES[] = {SYS_memfd_create, SYS_userfaultfd,      SYS_fsopen,
                                   SYS_fsmount,      SYS_process_vm_readv, 0};

static void install(const int *list, unsigned verdict)
{
    struct sock_filter code[64];
    unsigned short n = 0;
    code[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (; *list; list++) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)*list, 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, verdict);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = { n, code };
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "prctl");
}

static int work_inside(const char *what)
{
    void *region = region_new(BYTES, 9);
    region_look(region, BYTES, 9, what);
    region_grow_old(region, BYTES, 9);
    od_freeze();
    od_thaw();
    region_grow_old(region, BYTES, 9);
    region_check(region, BYTES, 9, 1, what);
    return 0;
}

static void start_inside(const char *what, const int *list, unsigned verdict)
{
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        install(list, verdict);
        execv("/proc/self/exe", (char *[]){ "self", (char *)what, NULL });
        _exit(127);
    }
    od_join(pid);
    printf("%s: fine\n", what);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc == 2)
        return work_inside(argv[1]);
    start_inside("mount calls refused", MOUNTS, SECCOMP_RET_ERRNO | EPERM);
    start_inside("memory files refused", MEMORY_FILES, SECCOMP_RET_ERRNO | ENOSYS);
    start_inside("mount calls kill", MOUNTS, SECCOMP_RET_KILL_PROCESS);
    start_inside("memory files kill", MEMORY_FILES, SECCOMP_RET_KILL_PROCESS);
    start_inside("mount calls trap", MOUNTS, SECCOMP_RET_TRAP);
    return 0;
}
