/* A filter that kills for blocking signals, as a lock does, comes over exec. Mapping and unmapping
 * memory makes no such call. */
// odtest: modes=stock,auto expect=any mem=64
#include "odtest.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

#define SIZE (4 * OD_MB)

static void forbid(unsigned call)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof code / sizeof *code, code };
    OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

static void map_and_unmap(void)
{
    char *at = OK(mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    memset(at, 1, SIZE);
    OK(mmap(at, OD_PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    at = OK(mremap(at + SIZE / 2, SIZE / 2, SIZE, MREMAP_MAYMOVE));
    CHECK(at[0] == 1 && at[SIZE - 1] == 0, "content");
    OK(munmap(at, SIZE));
}

int main(int count, char **words)
{
    map_and_unmap();
    if (count == 1) {
        pid_t pid = od_fork();
        if (pid == 0) {
            /* Writing them would block signals. */
            unsetenv("ODFORK_STATS");
            forbid(SYS_rt_sigprocmask);
            execl("/proc/self/exe", words[0], "child", NULL);
            _exit(98);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the child ended with %#x", status);
        return od_done();
    }
    map_and_unmap();
    _exit(0);
}
