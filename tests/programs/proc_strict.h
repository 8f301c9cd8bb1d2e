/*
 * A strict allow-list: what fork, wait and allocation need under stock fork; any other call kills
 * the process. Who installs it unannounced allows `rt_sigaction`, which the library's lock calls.
 */
#ifndef PROC_STRICT_H
#define PROC_STRICT_H

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static const int ALLOWED[] = {
    SYS_read,         SYS_write,           SYS_close,           SYS_clone,   SYS_clone3,
    SYS_exit,         SYS_exit_group,      SYS_wait4,           SYS_waitid,  SYS_rt_sigprocmask,
    SYS_rt_sigreturn, SYS_set_robust_list, SYS_rseq,            SYS_getpid,  SYS_gettid,
    SYS_munmap,       SYS_mprotect,        SYS_madvise,         SYS_brk,     SYS_futex,
    SYS_restart_syscall, SYS_getrandom,
#ifdef UNANNOUNCED
    SYS_rt_sigaction,
#endif
};
enum { COUNT = sizeof ALLOWED / sizeof *ALLOWED };

/* load nr; mmap of no file -> allow; each allowed nr -> allow; else kill */
static struct sock_fprog strict_filter(void)
{
    static struct sock_filter code[2 * COUNT + 8];
    unsigned short n = 0;
    code[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < COUNT; i++) {
        code[n++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)ALLOWED[i], 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                             offsetof(struct seccomp_data, args[4]));
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xFFFFFFFFU, 0, 1);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    return (struct sock_fprog){ .len = n, .filter = code };
}

#endif
