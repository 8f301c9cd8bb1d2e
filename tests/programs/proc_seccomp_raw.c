// odtest: modes=stock,auto expect=any mem=64
/*
 * As proc_seccomp_kill.c, but the filter is installed by a raw system call instruction: nothing in
 * the process hears of it, and asking for the seccomp state is itself a call that kills. The
 * allow-list names what fork, wait and allocation need under stock fork. Early, late, and in a
 * child of a frozen process.
 */
#include "proc_region.h"
#define UNANNOUNCED
#include "proc_strict.h"
#include "raw_call.h"

static const size_t BYTES = 16 * OD_MB;
static void *region;

static void install(void)
{
    struct sock_fprog program = strict_filter();
    CHECK(raw_call(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0) == 0, "no_new_privs");
    CHECK(raw_call(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (long)&program, 0, 0, 0) == 0,
          "raw prctl");
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
        if (round == 3)
            od_refreeze();
        if (round == 4)
            od_freeze();
    }
}

static int run_case(const char *when)
{
    region = region_new(BYTES, 7);
    if (!strcmp(when, "late"))
        region_grow_old(region, BYTES, 7);
    install();
    work_inside(when);
    return 0;
}

static void start_case(char *self, char *when)
{
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        execv(self, (char *[]){ self, when, NULL });
        _exit(127);
    }
    od_join(pid);
    printf("%s: fine\n", when);
    fflush(stdout);
}

static void in_child(void)
{
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        install();
        work_inside("inherited");
        _exit(0);
    }
    od_join(pid);
    printf("inherited: fine\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc == 2)
        return run_case(argv[1]);
    region = region_new(BYTES, 7);
    region_grow_old(region, BYTES, 7);
    start_case("/proc/self/exe", "early");
    start_case("/proc/self/exe", "late");
    in_child();
    return 0;
}
