/* What every test program shares: checks, patterns, children, and a look at oneself.
 *
 * A program checks itself byte by byte and exits 0, or says on stderr what differed and exits 1.
 * od_skip() ends it with status 77 and a reason when the machine cannot do what it needs.
 * What it prints on stdout must not depend on anything but stock semantics: the harness compares
 * the bytes with those of the same program under stock fork. main() ends with `return od_done();`,
 * which prints the descriptors, children and threads the process sees.
 * Memory meant to be frozen is 8 MB or more in one piece; smaller mappings are left alone. */
#ifndef ODTEST_H
#define ODTEST_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define OD_UNUSED __attribute__((unused))
#define OD_PAGE ((size_t)4096)
#define OD_MB ((size_t)1 << 20)
#define OD_SKIP_STATUS 77

/* ---- ending ---------------------------------------------------------------------------- */

static OD_UNUSED __attribute__((format(printf, 3, 4), noreturn)) void
od_fail_at(const char *file, int line, const char *format, ...)
{
    char text[600];
    int used = snprintf(text, sizeof text, "%s:%d: [pid %d] ",
                        strrchr(file, '/') ? strrchr(file, '/') + 1 : file, line, (int)getpid());
    va_list list;
    va_start(list, format);
    used += vsnprintf(text + used, sizeof text - used - 1, format, list);
    va_end(list);
    if (used > (int)sizeof text - 2)
        used = sizeof text - 2;
    text[used++] = '\n';
    if (write(2, text, used) != used)
        _exit(3);
    _exit(1);
}

#define FAIL(...) od_fail_at(__FILE__, __LINE__, __VA_ARGS__)

/* The condition holds, or the program ends with the words after it. */
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            FAIL(__VA_ARGS__);                                                                     \
    } while (0)

/* A call that answers -1 or MAP_FAILED must not. */
#define OK(call)                                                                                   \
    __extension__({                                                                                \
        __typeof__(call) od_result = (call);                                                       \
        if ((long)od_result == -1)                                                                 \
            FAIL("%s: %s", #call, strerror(errno));                                                \
        od_result;                                                                                 \
    })

static OD_UNUSED __attribute__((format(printf, 1, 2), noreturn)) void od_skip(const char *format,
                                                                              ...)
{
    va_list list;
    va_start(list, format);
    printf("SKIP: ");
    vprintf(format, list);
    printf("\n");
    va_end(list);
    fflush(stdout);
    exit(OD_SKIP_STATUS);
}

/* ---- the runtime, when it is there ----------------------------------------------------- */

enum od_wish { OD_FREEZE, OD_REFREEZE, OD_THAW };

/* Looks the functions up once: a failing dlsym uses malloc. */
static OD_UNUSED int od_call(enum od_wish wish)
{
    static int (*function[3])(void);
    static int looked;
    if (!looked) {
        function[OD_FREEZE] = (int (*)(void))dlsym(RTLD_DEFAULT, "odfork_freeze");
        function[OD_REFREEZE] = (int (*)(void))dlsym(RTLD_DEFAULT, "odfork_refreeze");
        function[OD_THAW] = (int (*)(void))dlsym(RTLD_DEFAULT, "odfork_thaw");
        looked = 1;
    }
    return function[wish] ? function[wish]() : -1;
}

/* Freeze now, fold now, thaw now: hints; nothing happens under stock fork. */
static OD_UNUSED void od_freeze(void) { od_call(OD_FREEZE); }
static OD_UNUSED void od_refreeze(void) { od_call(OD_REFREEZE); }
static OD_UNUSED void od_thaw(void) { od_call(OD_THAW); }

/* A number of the library's statistics by its key, the first of that name; 0 under stock fork. */
static OD_UNUSED long od_number(const char *key)
{
    static size_t (*json)(char *, size_t);
    static int looked;
    static char text[16384];
    char quoted[64];
    if (!looked)
        json = (size_t (*)(char *, size_t))dlsym(RTLD_DEFAULT, "odfork_stats_json");
    looked = 1;
    if (!json)
        return 0;
    json(text, sizeof text);
    int length = snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(text, quoted);
    CHECK(at, "no %s in %s", key, text);
    return atol(at + length);
}

/* fork(2) by its number; a machine that has none has clone(2). Arguments of syscall(2). */
#ifdef SYS_fork
#define OD_FORK_CALL SYS_fork
#else
#define OD_FORK_CALL SYS_clone, SIGCHLD, 0, 0, 0, 0
#endif

/* ---- children -------------------------------------------------------------------------- */

static OD_UNUSED pid_t od_fork(void)
{
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0, "fork: %s", strerror(errno));
    return pid;
}

/* A child that runs body(argument) and exits 0. */
static OD_UNUSED pid_t od_spawn(void (*body)(void *), void *argument)
{
    pid_t pid = od_fork();
    if (pid == 0) {
        body(argument);
        fflush(NULL);
        _exit(0);
    }
    return pid;
}

/* Waits for one child, which must exit 0. */
static OD_UNUSED void od_join(pid_t pid)
{
    int status = 0;
    pid_t got;
    do
        got = waitpid(pid, &status, 0);
    while (got < 0 && errno == EINTR);
    CHECK(got == pid, "waitpid(%d) = %d: %s", (int)pid, (int)got, strerror(errno));
    CHECK(!WIFSIGNALED(status), "child %d died of signal %d", (int)pid, WTERMSIG(status));
    CHECK(WEXITSTATUS(status) == 0, "child %d exited with status %d", (int)pid,
          WEXITSTATUS(status));
}

static OD_UNUSED void od_run_child(void (*body)(void *), void *argument)
{
    od_join(od_spawn(body, argument));
}

/* A gate: processes wait at it, and another lets some of them through. */
struct od_gate {
    int fd[2];
};

static OD_UNUSED void od_gate_make(struct od_gate *gate) { OK(pipe(gate->fd)); }

static OD_UNUSED void od_gate_wait(struct od_gate *gate)
{
    char byte;
    ssize_t got;
    do
        got = read(gate->fd[0], &byte, 1);
    while (got < 0 && errno == EINTR);
    CHECK(got == 1, "gate: read %zd: %s", got, strerror(errno));
}

static OD_UNUSED void od_gate_open(struct od_gate *gate, int processes)
{
    for (int i = 0; i < processes; i++)
        CHECK(write(gate->fd[1], "!", 1) == 1, "gate: write: %s", strerror(errno));
}

static OD_UNUSED void od_gate_drop(struct od_gate *gate)
{
    close(gate->fd[0]);
    close(gate->fd[1]);
}

/* ---- patterns -------------------------------------------------------------------------- */

/* The word at index `i` of generation `gen`: every word of every generation differs. */
static OD_UNUSED inline uint64_t od_word(uint64_t gen, size_t i)
{
    uint64_t x = gen * UINT64_C(0x9e3779b97f4a7c15) + i * UINT64_C(0xd1b54a32d192ed03) + 1;
    return x ^ (x >> 29);
}

/* Fills whole words; `at` is the index of the first word in the pattern. */
static OD_UNUSED void od_fill_at(void *memory, size_t bytes, uint64_t gen, size_t at)
{
    uint64_t *word = memory;
    for (size_t i = 0; i < bytes / 8; i++)
        word[i] = od_word(gen, at + i);
}

/* Index of the first wrong byte, or (size_t)-1. */
static OD_UNUSED size_t od_differs_at(const void *memory, size_t bytes, uint64_t gen, size_t at)
{
    const volatile uint64_t *word = memory;
    for (size_t i = 0; i < bytes / 8; i++)
        if (word[i] != od_word(gen, at + i))
            return i * 8;
    return (size_t)-1;
}

static OD_UNUSED void od_fill(void *memory, size_t bytes, uint64_t gen)
{
    od_fill_at(memory, bytes, gen, 0);
}

static OD_UNUSED void od_verify_at_line(const char *file, int line, const void *memory,
                                        size_t bytes, uint64_t gen, size_t at, const char *what)
{
    size_t wrong = od_differs_at(memory, bytes, gen, at);
    if (wrong != (size_t)-1) {
        const uint64_t *word = (const uint64_t *)((const char *)memory + wrong);
        od_fail_at(file, line,
                   "%s: byte %zu of %zu (page %zu, %p) holds %#llx, want %#llx of generation %llu",
                   what, wrong, bytes, wrong / OD_PAGE, (const void *)word,
                   (unsigned long long)*word, (unsigned long long)od_word(gen, at + wrong / 8),
                   (unsigned long long)gen);
    }
}

#define od_verify_at(memory, bytes, gen, at, what)                                                 \
    od_verify_at_line(__FILE__, __LINE__, memory, bytes, gen, at, what)
#define od_verify(memory, bytes, gen, what) \
    od_verify_at_line(__FILE__, __LINE__, memory, bytes, gen, 0, what)

static OD_UNUSED void od_verify_zero_line(const char *file, int line, const void *memory,
                                          size_t bytes, const char *what)
{
    const volatile unsigned char *byte = memory;
    size_t i = 0;
    for (; i < bytes && ((uintptr_t)(byte + i) & 7); i++)
        if (byte[i])
            od_fail_at(file, line, "%s: byte %zu of %zu holds %#x, want zero", what, i, bytes,
                       byte[i]);
    for (; i + 8 <= bytes; i += 8)
        if (*(const volatile uint64_t *)(byte + i))
            od_fail_at(file, line, "%s: byte %zu of %zu holds %#llx, want zero", what, i, bytes,
                       (unsigned long long)*(const volatile uint64_t *)(byte + i));
    for (; i < bytes; i++)
        if (byte[i])
            od_fail_at(file, line, "%s: byte %zu of %zu holds %#x, want zero", what, i, bytes,
                       byte[i]);
}

#define od_verify_zero(memory, bytes, what) \
    od_verify_zero_line(__FILE__, __LINE__, memory, bytes, what)

/* Private anonymous memory, readable and writable. */
static OD_UNUSED void *od_map(size_t bytes)
{
    return OK(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

/* Where huge pages are for every program: memory that is to have pages of 4 KB, each a fault. */
static OD_UNUSED void od_small_pages(void *at, size_t bytes)
{
    char line[64] = "";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
    if (!file)
        return;
    if (fgets(line, sizeof line, file) && strstr(line, "[always]"))
        OK(madvise(at, bytes, MADV_NOHUGEPAGE));
    fclose(file);
}

/* May memory be read? Asked of the kernel, which answers EFAULT instead of a signal. */
static OD_UNUSED int od_is_readable(const char *at)
{
    static int pipes[2] = {-1, -1};
    char byte;
    if (pipes[0] < 0)
        OK(pipe2(pipes, O_CLOEXEC | O_NONBLOCK));
    if (write(pipes[1], at, 1) != 1)
        return 0;
    CHECK(read(pipes[0], &byte, 1) == 1, "pipe");
    return 1;
}

/* Mappings of this process. */
static OD_UNUSED int od_mappings(void)
{
    FILE *file = fopen("/proc/self/maps", "re");
    int lines = 0, c;
    while ((c = getc(file)) != EOF)
        lines += c == '\n';
    fclose(file);
    return lines;
}

/* Bytes of a range in mappings that are shared, as live memory is. */
static OD_UNUSED size_t od_shared(const void *at, size_t bytes)
{
    FILE *file = fopen("/proc/self/maps", "re");
    char line[512], access[8];
    size_t from, to, start = (size_t)at, end = start + bytes, sum = 0;
    CHECK(file, "maps: %s", strerror(errno));
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%zx-%zx %4s", &from, &to, access) == 3 && access[3] == 's'
            && from < end && to > start)
            sum += (to < end ? to : end) - (from > start ? from : start);
    fclose(file);
    return sum;
}

/* No part of a range is a mapping of a file, as frozen memory is. */
static OD_UNUSED int od_is_anonymous(const void *at, size_t bytes)
{
    FILE *file = fopen("/proc/self/maps", "re");
    char line[512];
    unsigned long start, end, inode;
    int files = 0;
    CHECK(file, "maps: %s", strerror(errno));
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%lx-%lx %*s %*s %*s %lu", &start, &end, &inode) == 3 && inode)
            files += start < (uintptr_t)at + bytes && end > (uintptr_t)at;
    fclose(file);
    return !files;
}

/* A small generator, the same sequence everywhere. */
static OD_UNUSED uint32_t od_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* ---- a look at oneself ----------------------------------------------------------------- */

/* A field of a /proc file in kB, such as ("/proc/self/status", "VmRSS:"); -1 if absent. */
static OD_UNUSED long od_proc_kb(const char *path, const char *field)
{
    FILE *file = fopen(path, "re");
    char line[256];
    long value = -1;
    if (!file)
        return -1;
    while (value < 0 && fgets(line, sizeof line, file))
        if (strncmp(line, field, strlen(field)) == 0)
            value = atol(line + strlen(field));
    fclose(file);
    return value;
}

/* Prints the open descriptors, on one line. */
static OD_UNUSED void od_print_descriptors(void)
{
    printf("descriptors:");
    for (int fd = 0; fd < 4096; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            printf(" %d", fd);
    printf("\n");
}

/* Threads that are not about to end: one that was joined stays in the list for a moment, on stock
 * too. Flag 4 of the seventh field behind the name is the kernel's PF_EXITING. */
static OD_UNUSED int od_threads(void)
{
    DIR *dir = opendir("/proc/self/task");
    int count = 0;
    for (struct dirent *one; dir && (one = readdir(dir));) {
        char path[300], text[600];
        unsigned flags;
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", one->d_name);
        FILE *file = one->d_name[0] == '.' ? NULL : fopen(path, "r");
        char *end = file && fgets(text, sizeof text, file) ? strrchr(text, ')') : NULL;
        if (end && sscanf(end, ") %*c %*d %*d %*d %*d %*d %u", &flags) == 1)
            count += !(flags & 4);
        if (file)
            fclose(file);
    }
    if (dir)
        closedir(dir);
    return count;
}

/* The end of main(): what is visible in this process besides its memory. */
static OD_UNUSED int od_done(void)
{
    od_print_descriptors();
    pid_t pid = waitpid(-1, NULL, WNOHANG);
    printf("children: %s\n", pid < 0 && errno == ECHILD ? "none" : "some");
    printf("threads: %d\n", od_threads());
    sigset_t pending;
    sigpending(&pending);
    for (int sig = 1; sig < 65; sig++)
        if (sigismember(&pending, sig) == 1)
            printf("pending signal %d\n", sig);
    fflush(stdout);
    return 0;
}

#endif
