// odtest: expect=frozen mem=64
/*
 * Filters that refuse calls with an error instead of killing. One refusal at a time of every call a
 * freeze could want, with EPERM and with ENOSYS, before the first fork and late; then all of them
 * together. The program needs none of these calls, so stock fork does not notice.
 */
#include "proc_region.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static const size_t BYTES = 8 * OD_MB;
static void *region;

struct refusal {
    const char *name;
    long nr;
    int arg;           /* -1, or the argument that must have one of `bits` set for the refusal */
    unsigned bits;
};

static const struct refusal REFUSALS[] = {
    { "memfd_create", SYS_memfd_create, -1, 0 },
    { "fsopen", SYS_fsopen, -1, 0 },
    { "fsconfig", SYS_fsconfig, -1, 0 },
    { "fsmount", SYS_fsmount, -1, 0 },
    { "mount", SYS_mount, -1, 0 },
#ifdef SYS_open
    { "open", SYS_open, -1, 0 },
    { "vfork", SYS_vfork, -1, 0 },
#endif
    { "openat", SYS_openat, -1, 0 },
    { "openat2", SYS_openat2, -1, 0 },
    { "ioctl", SYS_ioctl, -1, 0 },
    { "userfaultfd", SYS_userfaultfd, -1, 0 },
    { "unshare", SYS_unshare, -1, 0 },
    { "clone with CLONE_VM", SYS_clone, 0, CLONE_VM },
    { "clone3", SYS_clone3, -1, 0 },
    { "mmap of a file", SYS_mmap, 4, 0x80000000U }, /* sign bit clear: see build() */
    { "mremap", SYS_mremap, -1, 0 },
    { "ftruncate", SYS_ftruncate, -1, 0 },
    { "fallocate", SYS_fallocate, -1, 0 },
    { "pread64", SYS_pread64, -1, 0 },
    { "pwrite64", SYS_pwrite64, -1, 0 },
    { "read", SYS_read, -1, 0 },
    { "lseek", SYS_lseek, -1, 0 },
    { "fstat", SYS_newfstatat, -1, 0 },
    { "close", SYS_close, -1, 0 },
    { "madvise", SYS_madvise, -1, 0 },
    { "mincore", SYS_mincore, -1, 0 },
    { "mprotect", SYS_mprotect, -1, 0 },
    { "munmap", SYS_munmap, -1, 0 },
    { "prctl", SYS_prctl, -1, 0 },
    { "getrlimit", SYS_prlimit64, -1, 0 },
    { "kill", SYS_kill, -1, 0 },
    { "tgkill", SYS_tgkill, -1, 0 },
    { "rt_sigaction", SYS_rt_sigaction, -1, 0 },
    { "getdents64", SYS_getdents64, -1, 0 },
    { "readlink", SYS_readlinkat, -1, 0 },
    { "process_vm_readv", SYS_process_vm_readv, -1, 0 },
    { "process_vm_writev", SYS_process_vm_writev, -1, 0 },
    { "recvmsg", SYS_recvmsg, -1, 0 },
    { "socketpair", SYS_socketpair, -1, 0 },
    { "pipe2", SYS_pipe2, -1, 0 },
    { "sched_yield", SYS_sched_yield, -1, 0 },
    { "gettid", SYS_gettid, -1, 0 },
};
enum { COUNT = sizeof REFUSALS / sizeof *REFUSALS };

static struct sock_filter code[6 * COUNT + 8];
static unsigned short length;

static void emit(unsigned short op, unsigned k, unsigned char yes, unsigned char no)
{
    code[length++] = (struct sock_filter){ op, yes, no, k };
}

static void build(const struct refusal *r, int error)
{
    emit(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
    if (r->arg < 0) {
        emit(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)r->nr, 0, 1);
    } else {
        emit(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)r->nr, 0, 3);
        emit(BPF_LD | BPF_W | BPF_ABS,
             (unsigned)(offsetof(struct seccomp_data, args) + 8 * (size_t)r->arg), 0, 0);
        int refused_when_set = r->nr != SYS_mmap;
        emit(BPF_JMP | BPF_JSET | BPF_K, r->bits, !refused_when_set, refused_when_set);
    }
    emit(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error, 0, 0);
}

static void install(int first, int last, int error)
{
    for (int i = first; i < last; i++)
        build(&REFUSALS[i], error);
    emit(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
    struct sock_fprog program = { length, code };
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "prctl");
}

static void work_inside(const char *what)
{
    volatile uint64_t *word = region;
    for (size_t round = 0; round < 3; round++) {
        errno = 77;
        pid_t pid = fork();
        CHECK(pid >= 0 && errno == 77, "%s: fork gave %d", what, pid);
        if (pid == 0) {
            region_check(region, BYTES, 8, 64, what);
            for (size_t i = 1; i < BYTES / 8; i += 4096)
                word[i] = ~word[i];
            region_look(region, BYTES, 8, what);
            _exit(0);
        }
        od_join(pid);
        region_check(region, BYTES, 8, 64, what);
        for (size_t i = round; i < BYTES / 8; i += 1024)
            word[i] = od_word(8, i);
        if (round == 1)
            od_refreeze();
    }
}

static int run_case(int old, int which, int error)
{
    char what[96];
    snprintf(what, sizeof what, "%s %s with errno %d", old ? "late" : "early",
             which < COUNT ? REFUSALS[which].name : "all", error);
    region = region_new(BYTES, 8);
    if (old)
        region_grow_old(region, BYTES, 8);
    install(which < COUNT ? which : 0, which < COUNT ? which + 1 : COUNT, error);
    work_inside(what);
    if (old)
        _exit(0);
    return 0;
}

static void start_case(int old, int which, int error)
{
    char a[4], b[8], c[8];
    snprintf(a, sizeof a, "%d", old);
    snprintf(b, sizeof b, "%d", which);
    snprintf(c, sizeof c, "%d", error);
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        unsetenv("ODFORK_STATS"); /* its file may be out of reach there */
        execv("/proc/self/exe", (char *[]){ "self", a, b, c, NULL });
        _exit(127);
    }
    od_join(pid);
}

int main(int argc, char **argv)
{
    if (argc == 4)
        return run_case(atoi(argv[1]), atoi(argv[2]), atoi(argv[3]));
    region = region_new(BYTES, 8);
    region_grow_old(region, BYTES, 8);
    for (int which = 0; which <= COUNT; which++) {
        start_case(0, which, EPERM);
        start_case(1, which, which % 2 ? ENOSYS : EPERM);
    }
    printf("%d refusals, early and late: fine\n", COUNT);
    return 0;
}
