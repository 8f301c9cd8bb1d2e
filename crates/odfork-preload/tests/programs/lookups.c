/* A library that gets the C library's functions with RTLD_NEXT, by calls of its own where it was
 * loaded with RTLD_DEEPBIND, or that stands before some of them and goes on to them; and the
 * program that uses it (LOOKUPS_PROGRAM). Its word says how; prints "ok". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int give_up(void *at, size_t bytes);
int give_up_by_next(void *at, size_t bytes);
int calls_of_fork(void);

#ifdef LOOKUPS_PROGRAM
enum { MB = 1 << 20, BYTES = 32 * MB };

static void check(int condition, const char *what)
{
    if (condition)
        return;
    printf("%s\n", what);
    exit(1);
}

static char *frozen(void)
{
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int (*freeze)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "odfork_freeze");
    check(memory != MAP_FAILED && freeze, "no memory, or no library");
    memset(memory, 1, BYTES);
    check(freeze() == 0, "it cannot be frozen");
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    check(child > 0 && waitpid(child, NULL, 0) == child, "fork");
    return memory;
}

static void check_empty(const char *memory)
{
    for (size_t i = 0; i < BYTES; i++)
        check(memory[i] == !(MB <= i && i < 2 * MB), "wrong bytes after it gave memory up");
}

static void give_up_by(int (*give)(void *, size_t), char *memory)
{
    check(give && give(memory + MB, MB) == 0, "madvise");
    check_empty(memory);
}

/* Its fork goes on to what the C library's handle has: not to itself. */
static void fork_by_handle(void)
{
    pid_t (*by_handle)(void) =
        (pid_t(*)(void))dlsym(dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD), "fork");
    struct timespec now;
    check(clock_gettime(CLOCK_MONOTONIC, &now) == 0, "no time");
    frozen();
    int file = open("/dev/null", O_RDONLY);
    check(file >= 0, "open");
    close(file);
    check(calls_of_fork() == 1, "its fork was not called once");
    pid_t child = by_handle();
    if (child == 0)
        _exit(0);
    check(child > 0 && waitpid(child, NULL, 0) == child, "fork by a handle");
    check(calls_of_fork() == 1, "it was called by a handle of the C library");
}

static void give_up_deep(const char *path)
{
    char *memory = frozen();
    void *library = dlopen(path, RTLD_NOW | RTLD_DEEPBIND);
    check(library != NULL, "the library cannot be loaded");
    give_up_by((int (*)(void *, size_t))dlsym(library, "give_up"), memory);
}

/* Another library at the same addresses, in the same file: what was known of the code is not true
 * any more. */
static void reload(const char *path, const char *other)
{
    char command[1024];
    char *memory = frozen();
    void *library = dlopen(path, RTLD_NOW);
    check(library != NULL, "the library cannot be loaded");
    int (*freeze)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "odfork_freeze");
    freeze();
    dlclose(library);
    snprintf(command, sizeof command, "cat '%s' >'%s'", other, path);
    check(system(command) == 0, "the library cannot be written");
    library = dlopen(path, RTLD_NOW);
    check(library != NULL, "the other library cannot be loaded");
    freeze();
    give_up_by((int (*)(void *, size_t))dlsym(library, "give_up"), memory);
}

int main(int argc, char **argv)
{
    check(argc > 1, "which way?");
    if (!strcmp(argv[1], "next"))
        give_up_by(give_up_by_next, frozen());
    else if (!strcmp(argv[1], "before"))
        fork_by_handle();
    else if (!strcmp(argv[1], "none"))
        frozen();
    else if (argc > 2)
        reload(argv[1], argv[2]);
    else
        give_up_deep(argv[1]);
    printf("ok\n");
    return 0;
}
#else
static int forks;

int calls_of_fork(void) { return forks; }

#ifdef LOOKUPS_RAW
/* By the instruction itself. */
int give_up(void *at, size_t bytes)
{
#ifdef __x86_64__
    long result;
    __asm__ volatile("mov $28, %%eax; syscall"
                     : "=&a"(result)
                     : "D"(at), "S"(bytes), "d"(4L)
                     : "rcx", "r11", "memory");
    return (int)result;
#else
    register long x8 __asm__("x8") = 233, x0 __asm__("x0") = (long)at;
    register long x1 __asm__("x1") = (long)bytes, x2 __asm__("x2") = 4;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return (int)x0;
#endif
}
#else
int give_up(void *at, size_t bytes) { return madvise(at, bytes, MADV_DONTNEED); }
#endif

int give_up_by_next(void *at, size_t bytes)
{
    int (*next)(void *, size_t, int) = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "madvise");
    return next(at, bytes, MADV_DONTNEED);
}

#ifdef LOOKUPS_BEFORE
pid_t fork(void)
{
    static pid_t (*next)(void);
    if (!next)
        next = (pid_t(*)(void))dlsym(dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD), "fork");
    if (forks++ > 9)
        abort();
    return next();
}

/* By another name of the same function. */
int open(const char *path, int flags, ...)
{
    static int (*next)(const char *, int, ...);
    if (!next)
        next = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    return next(path, flags, 0);
}

/* Touches memory that may be moving just then. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    static char touched[4 << 20] = { 1 };
    static int (*next)(clockid_t, struct timespec *);
    if (!next)
        next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    memset(touched, 2, sizeof touched);
    return next(clock, now);
}
#endif

#ifdef LOOKUPS_HOOK
#ifdef __x86_64__
#define FIRST "GLIBC_2.2.5"
#else
#define FIRST "GLIBC_2.17"
#endif
/* As tools do that put themselves between a program and what it loads. */
void *dlsym(void *handle, const char *name)
{
    static void *(*next)(void *, const char *);
    if (!next)
        next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", FIRST);
    return next(handle, name);
}
#endif
#endif
