// odtest: expect=frozen mem=64
/*
 * A strict allow-list filter that kills the process on every call it does not name, installed while
 * the program runs: through prctl() and through syscall(SYS_seccomp).
 * (proc_seccomp_raw.c does it by a raw instruction, which nobody can interpose.) It names what
 * fork, wait and allocation need under stock fork, and nothing else: no open, no mapping of a file,
 * no memfd_create, no userfaultfd, no mount call. Early: before the first fork. Late: after forks,
 * freezes and folds, with dirty pages left. Inherited: by a child of a frozen process.
 */
#include "proc_region.h"
#include "proc_strict.h"

static const size_t BYTES = 16 * OD_MB;
static void *region;

static void install(const char *how)
{
    struct sock_fprog program = strict_filter();
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
    if (!strcmp(how, "prctl"))
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "prctl");
    else
        CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0, "seccomp");
}

/* What the program does inside the fence: forks of two generations, writes, allocations. */
static void work_inside(const char *what)
{
    volatile uint64_t *word = region;
    for (size_t round = 0; round < 6; round++) {
        pid_t pid = fork();
        CHECK(pid >= 0, "%s: fork", what);
        if (pid == 0) {
            region_check(region, BYTES, 7, 64, what);
            for (size_t i = 1; i < BYTES / 8; i += 4096)
                word[i] = ~word[i]; /* beside the words that are compared */
            region_look(region, BYTES, 7, what);
            _exit(0);
        }
        od_join(pid);
        region_check(region, BYTES, 7, 64, what);
        for (size_t i = round; i < BYTES / 8; i += 1024)
            word[i] = od_word(7, i);
        char *block = malloc(3 * OD_MB);
        CHECK(block, "malloc");
        memset(block, 1, 3 * OD_MB);
        free(block);
        OK(madvise(region, OD_PAGE, MADV_DONTFORK));
        OK(madvise(region, OD_PAGE, MADV_DOFORK));
        OK(mprotect(region, OD_PAGE, PROT_READ));
        OK(mprotect(region, OD_PAGE, PROT_READ | PROT_WRITE));
        if (round == 3)
            od_refreeze();
        if (round == 4)
            od_freeze();
    }
}

static int run_case(const char *when, const char *how)
{
    region = region_new(BYTES, 7);
    if (!strcmp(when, "late"))
        region_grow_old(region, BYTES, 7);
    install(how);
    work_inside(when);
    return 0;
}

static void start_case(char *self, char *when, char *how)
{
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        execv(self, (char *[]){ self, when, how, NULL });
        _exit(127);
    }
    od_join(pid);
    printf("%s, installed by %s: fine\n", when, how);
    fflush(stdout);
}

static void in_child(const char *how)
{
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        install(how);
        work_inside("inherited");
        _exit(0);
    }
    od_join(pid);
    printf("inherited, installed by %s: fine\n", how);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static char *ways[] = { "prctl", "syscall", NULL };
    if (argc == 3)
        return run_case(argv[1], argv[2]);
    region = region_new(BYTES, 7);
    region_grow_old(region, BYTES, 7);
    for (char **way = ways; *way; way++) {
        start_case("/proc/self/exe", "early", *way);
        start_case("/proc/self/exe", "late", *way);
        in_child(*way);
    }
    return 0;
}
