// odtest: modes=stock,huge,small,user,auto expect=any mem=64
/*
 * What the library adds to a program that is executed and ends: system(), popen() and posix_spawn()
 * of a program below
 * `odfork run` pay it each time. Counted, not timed: this program executes itself with the library
 * preloaded and without, and compares system calls (by ptrace), files and mappings at the end, and
 * page faults. Stock has no library and compares a thing with itself. And the constructor leaves
 * nothing behind that the program could ask for.
 */
#include "proc_cost.h"
#include <sys/ptrace.h>

enum { ROUNDS = 101, TEXT = 1 << 16 };
/* Of the library's own file: openat, read, fstat, two mmap, close, mprotect; getpid. Faults are
 * counted closely where the linker orders the library by its script. On aarch64 12 calls were
 * counted: probably the loader maps more than it needs and gives it back, for pages of 64 KB. */
#ifdef __x86_64__
enum { MOST_CALLS = 8, MOST_FILES = 1, MOST_MAPPINGS = 4, MOST_FAULTS = 7 };
#else
enum { MOST_CALLS = 12, MOST_FILES = 1, MOST_MAPPINGS = 4, MOST_FAULTS = 14 };
#endif

struct cost {
    long calls, files, mappings;
};

static _Noreturn void become(int with)
{
    char *argv[] = { "cost", "child", NULL };
    execve("/proc/self/exe", argv, settings(with));
    _exit(99);
}

/* Reads the map of a process that is about to end. */
static void look_at_map(pid_t pid, struct cost *cost)
{
    static char text[TEXT];
    char path[64], last[256] = "";
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *map = fopen(path, "r");
    CHECK(map, "%s: %s", path, strerror(errno));
    while (fgets(text, sizeof text, map)) {
        char *name = strchr(text, '/');
        cost->mappings++;
        if (name && strcmp(name, last)) {
            cost->files++;
            snprintf(last, sizeof last, "%s", name);
        }
    }
    fclose(map);
}

static pid_t start_traced(int with)
{
    int status;
    pid_t pid = od_fork();
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0) < 0)
            _exit(OD_SKIP_STATUS);
        raise(SIGSTOP);
        become(with);
    }
    CHECK(waitpid(pid, &status, 0) == pid, "waitpid: %s", strerror(errno));
    if (WIFEXITED(status) && WEXITSTATUS(status) == OD_SKIP_STATUS)
        od_skip("ptrace is not allowed here; needs kernel.yama.ptrace_scope below 3");
    CHECK(WIFSTOPPED(status), "the child did not stop (%#x)", (unsigned)status);
    OK(ptrace(PTRACE_SETOPTIONS, pid, 0,
              PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEEXIT));
    return pid;
}

/* System calls from exec to exit, and the map at the end. */
static struct cost trace(int with)
{
    struct cost cost = { 0, 0, 0 };
    int status, executed = 0;
    pid_t pid = start_traced(with);
    for (;;) {
        OK(ptrace(PTRACE_SYSCALL, pid, 0, 0));
        CHECK(waitpid(pid, &status, 0) == pid, "waitpid: %s", strerror(errno));
        if (!WIFSTOPPED(status))
            break;
        if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXEC << 8))
            executed = 1;
        else if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXIT << 8))
            look_at_map(pid, &cost);
        else if (WSTOPSIG(status) == (SIGTRAP | 0x80))
            cost.calls += executed;
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the executed program ended with %#x",
          (unsigned)status);
    CHECK(executed && cost.mappings > 5, "nothing was traced (%ld mappings)", cost.mappings);
    cost.calls = (cost.calls + 1) / 2; /* a stop before and after each, but for exit_group */
    return cost;
}

static int by_size(const void *a, const void *b)
{
    long x = *(const long *)a, y = *(const long *)b;
    return (x > y) - (x < y);
}

/* Minor faults of one life, the middle one of several: where the stack begins is random. */
static long faults(int with)
{
    long seen[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        struct rusage used;
        int status;
        pid_t pid = vfork();
        if (pid == 0)
            become(with);
        CHECK(wait4(pid, &status, 0, &used) == pid && status == 0, "executed: status %#x",
              (unsigned)status);
        seen[i] = used.ru_minflt;
    }
    qsort(seen, ROUNDS, sizeof *seen, by_size);
    return seen[ROUNDS / 2];
}

static void at_most(const char *what, long with, long without, long bound)
{
    CHECK(with - without <= bound, "%ld %s with the library, %ld without: want at most %ld more",
          with, what, without, bound);
}

int main(int count, char **words)
{
    const char *error = dlerror();
    CHECK(!error, "dlerror() before anything was asked: %s", error);
    if (count > 1 && !strcmp(words[1], "child"))
        return 0;
    struct cost with = trace(1), without = trace(0);
    at_most("system calls", with.calls, without.calls, MOST_CALLS);
    at_most("mapped files", with.files, without.files, MOST_FILES);
    at_most("mappings", with.mappings, without.mappings, MOST_MAPPINGS);
    at_most("page faults", faults(1), faults(0), MOST_FAULTS);
    return od_done();
}
