/* Preloaded into an unmodified QEMU: when the guest says that it is ready, the emulator is forked
 * for each input, in the thread that runs the guest.
 *
 * The child has that thread alone. It goes on inside the guest, without timers and devices, until
 * the guest says that it is done. That is enough for a guest that computes and makes system calls.
 *
 * Commands on standard input: "run MILLISECONDS". The answer is one line: executions, nanoseconds
 * in all, nanoseconds in fork, digest of all results, how many results changed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define INPUTS 64
#define LENGTH 32
#define PATIENCE 60000

static int (*next_madvise)(void *, size_t, int);
static ssize_t (*next_writev)(int, const struct iovec *, int);
static char *memory;
static size_t size;
static int is_child, digits;
static uint64_t result, *answer, expected[INPUTS];
static long runs;

__attribute__((constructor)) static void init(void)
{
    next_madvise = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "madvise");
    next_writev = (ssize_t(*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
    /* Shared with all children. */
    answer = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static void die(const char *why)
{
    dprintf(1, "error %s\n", why);
    _exit(1);
}

/* QEMU takes the guest's memory away from children, for the sake of KVM. Here they need it. */
int madvise(void *place, size_t length, int advice)
{
    if (advice == MADV_DONTFORK) {
        if (length > size)
            memory = place, size = length;
        return 0;
    }
    if (advice == MADV_HUGEPAGE && getenv("FORKER_SMALL"))
        return 0;
    return next_madvise(place, length, advice);
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

/* The page of the guest that takes the input. */
static char *input(void)
{
    for (size_t at = 0; at + PAGE <= size; at += PAGE) {
        uint64_t mark[2];
        memcpy(mark, memory + at, sizeof mark);
        if (mark[0] >> 32 == 0x6f64666f && mark[1] == ~mark[0])
            return memory + at;
    }
    die("the guest's input page is not found");
    return 0;
}

/* Input `number`: the same in every run. */
static void give(char *page, uint64_t number)
{
    uint32_t length = LENGTH;
    memcpy(page + 16, &length, sizeof length);
    uint64_t state = number + 1;
    for (size_t i = 0; i < LENGTH; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        page[20 + i] = state >> 56;
    }
}

static void await(pid_t child)
{
    struct pollfd done = {.fd = syscall(SYS_pidfd_open, child, 0), .events = POLLIN};
    int status, ended = poll(&done, 1, PATIENCE);
    close(done.fd);
    if (ended != 1)
        kill(child, SIGKILL);
    if (waitpid(child, &status, 0) != child || status != 0)
        die(ended == 1 ? "a child died" : "a child hangs");
}

/* Forks for inputs until the time is over. Returns in children only. */
static void slice(long milliseconds)
{
    char *page = input();
    uint64_t begin = now(), forks = 0, executions = 0, changed = 0, all = 0;
    while (now() - begin < milliseconds * 1000000ull) {
        uint64_t number = runs % INPUTS, before = now();
        *answer = 0;
        pid_t child = fork();
        if (child == 0) {
            is_child = 1;
            give(page, number);
            return;
        }
        forks += now() - before;
        if (child < 0)
            die("fork failed");
        await(child);
        changed += runs >= INPUTS && expected[number] != *answer;
        expected[number] = *answer;
        executions++, runs++;
    }
    for (int i = 0; i < INPUTS; i++)
        all = all * 31 + expected[i];
    dprintf(1, "%lu %lu %lu %016lx %lu %ld\n", executions, now() - begin, forks, all, changed,
            runs);
}

static void ready(void)
{
    char line[64];
    long milliseconds;
    dprintf(1, "ready %zu\n", size);
    for (;;) {
        size_t length = 0;
        while (length < sizeof line - 1 && read(0, &line[length], 1) == 1 && line[length] != '\n')
            length++;
        line[length] = 0;
        if (sscanf(line, "run %ld", &milliseconds) != 1)
            _exit(0);
        slice(milliseconds);
        if (is_child)
            return;
    }
}

/* The guest's port is QEMU's file of one byte a write. */
ssize_t writev(int file, const struct iovec *parts, int count)
{
    if (!memory || count != 1 || parts[0].iov_len != 1)
        return next_writev(file, parts, count);
    char byte = *(char *)parts[0].iov_base;
    if (!is_child && byte == 'R') {
        ready();
    } else if (is_child && byte == 'D') {
        *answer = digits == 16 ? result : 0;
        _exit(digits != 16);
    } else if (is_child) {
        result = result << 4 | (byte <= '9' ? byte - '0' : byte - 'a' + 10);
        digits++;
    }
    return 1;
}
