/* Stacks in paged memory: fork from them, work on them under pressure; and fork in handlers that
 * interrupted malloc. Argument: which. */
#include "pages.h"
#include <pty.h>
#include <sys/time.h>
#include <ucontext.h>

#define STACK (1ul << 20)

static ucontext_t home, away;
static int (*how)(void);

static void finish(pid_t child, const char *what)
{
    int status = 0;
    if (child < 0)
        perror(what), abort();
    while (waitpid(child, &status, 0) != child)
        if (errno != EINTR)
            perror("waitpid"), abort();
    if (status != 0)
        fprintf(stderr, "%s: the child ended with %x\n", what, status), abort();
}

/* Content on this very stack, before and after. */
static __attribute__((noinline)) void fork_here(const char *what)
{
    volatile uint64_t page[8 * WORDS];
    for (unsigned n = 0; n < 8 * WORDS; n++)
        page[n] = mix(n + 1);
    pid_t child = how();
    for (unsigned n = 0; n < 8 * WORDS; n++)
        if (page[n] != mix(n + 1))
            fprintf(stderr, "WRONG %s: word %u of the stack\n", what, n), abort();
    if (child == 0) {
        char *own = malloc(1 << 20);
        need_paged(own);
        memset(own, 1, 1 << 20);
        _exit(0);
    }
    finish(child, what);
}

static int plain(void)
{
    return fork();
}

static int terminal(void)
{
    int master;
    return forkpty(&master, NULL, NULL, NULL);
}

static void routine(void)
{
    fork_here("coroutine");
    fork_here("coroutine again");
}

static void on_alternate(int signal)
{
    (void)signal;
    fork_here("alternate stack");
}

static void coroutines(void)
{
    char *stack = malloc(STACK);
    need_paged(stack);
    int (*ways[])(void) = {plain, terminal};
    for (int n = 0; n < 2; n++) {
        how = ways[n];
        getcontext(&away);
        away.uc_stack.ss_sp = stack;
        away.uc_stack.ss_size = STACK;
        away.uc_link = &home;
        makecontext(&away, routine, 0);
        swapcontext(&home, &away);
    }
    how = plain;
    stack_t alternate = {.ss_sp = malloc(STACK), .ss_size = STACK};
    struct sigaction action = {.sa_handler = on_alternate, .sa_flags = SA_ONSTACK};
    sigaltstack(&alternate, NULL);
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
}

/* A thread whose thread-local storage is paged as well: a fork may be refused there, and nothing
 * else. */
static void *fork_in_thread(void *nothing)
{
    (void)nothing;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    if (child > 0)
        finish(child, "thread");
    else if (errno != EAGAIN)
        perror("fork in a thread"), abort();
    return NULL;
}

/* Memory comes and goes on a stack of which most has been paged out. */
static __attribute__((noinline)) unsigned churn(unsigned depth, uint64_t *state)
{
    volatile char room[3 * PAGE];
    room[depth % sizeof room] = depth;
    if (depth > 0)
        return churn(depth - 1, state) + room[depth % sizeof room] - (char)depth;
    uint64_t r = next_random(state);
    size_t bytes = (64 + r % 64) * PAGE;
    char *one = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *two = malloc(bytes);
    memset(one, 1, bytes), memset(two, 2, bytes);
    one = mremap(one, bytes, 2 * bytes, MREMAP_MAYMOVE);
    madvise(one, 32 * PAGE, MADV_DONTNEED);
    if (one[31 * PAGE] != 0 || one[40 * PAGE] != 1 || two[PAGE] != 2)
        fprintf(stderr, "WRONG in churn\n"), abort();
    munmap(one, 2 * bytes);
    free(two);
    return 0;
}

static uint64_t deadline;

static void *churn_in_thread(void *argument)
{
    uint64_t state = (uintptr_t)argument;
    while (now_ns() < deadline)
        churn(next_random(&state) % 50, &state);
    return NULL;
}

/* Frames are short. */
static void *stream(void *argument)
{
    size_t pages = 4 << 8;
    uint64_t *own = paged(pages * PAGE), version = (uintptr_t)argument;
    for (; now_ns() < deadline; version++)
        for (size_t page = 0; page < pages; page++)
            own[page * WORDS] = version;
    munmap(own, pages * PAGE);
    return NULL;
}

/* Calls on a stack of which little is in memory, so that they touch a new page of it at any of
 * their steps. */
static void call_once(void)
{
    char *own = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(own, 64 * PAGE);
}

static void *edge(void *argument)
{
    char *stack = paged(STACK);
    ucontext_t back, there;
    for (uintptr_t n = (uintptr_t)argument; now_ns() < deadline; n++) {
        madvise(stack, STACK, MADV_DONTNEED);
        getcontext(&there);
        there.uc_stack.ss_sp = stack;
        there.uc_stack.ss_size = 8 * PAGE + n * 32 % PAGE;
        there.uc_link = &back;
        makecontext(&there, call_once, 0);
        swapcontext(&back, &there);
    }
    return NULL;
}

static pthread_t start(void *(*work)(void *), uintptr_t argument)
{
    pthread_attr_t attr;
    pthread_t thread;
    void *stack = paged(STACK);
    need_paged(stack);
    pthread_attr_init(&attr);
    if (pthread_attr_setstack(&attr, stack, STACK) != 0 ||
        pthread_create(&thread, &attr, work, (void *)argument) != 0)
        perror("thread"), abort();
    return thread;
}

#define FORKS 1500
static atomic_int forks;

/* Once: however long a fork takes, the program gets on. */
static void alarm_soon(void)
{
    struct itimerval soon = {{0}, {0, 300}};
    setitimer(ITIMER_REAL, &soon, NULL);
}

static void fork_in_handler(int signal)
{
    (void)signal;
    int error = errno;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    finish(child, "handler");
    if (atomic_fetch_add(&forks, 1) < FORKS - 1)
        alarm_soon();
    errno = error;
}

static void handlers(void)
{
    struct sigaction action = {.sa_handler = fork_in_handler};
    sigaction(SIGALRM, &action, NULL);
    alarm_soon();
    void *some[64] = {0};
    for (unsigned long n = 0; atomic_load(&forks) < FORKS; n++) {
        free(some[n % 64]);
        some[n % 64] = malloc((2 + n % 7) * PAGE);
    }
}

int main(int argc, char **argv)
{
    const char *which = argc > 1 ? argv[1] : "";
    size_t pages = 16 << 8;
    uint64_t *memory = paged(pages * PAGE);
    need_paged(memory);
    for (size_t page = 0; page < pages; page++)
        fill_page(memory + page * WORDS, page, 1);
    if (strcmp(which, "coroutines") == 0)
        coroutines();
    else if (strcmp(which, "thread") == 0)
        pthread_join(start(fork_in_thread, 0), NULL);
    else if (strcmp(which, "handlers") == 0) {
        munmap(memory, pages * PAGE);
        pages = 0;
        handlers();
    } else {
        deadline = now_ns() + 4000000000ull;
        pthread_t all[16];
        for (uintptr_t n = 0; n < 16; n++)
            if (n < 6)
                all[n] = start(churn_in_thread, n + 1);
            else
                pthread_create(&all[n], NULL, n < 14 ? stream : edge, (void *)n);
        for (int n = 0; n < 16; n++)
            pthread_join(all[n], NULL);
    }
    for (size_t page = 0; page < pages; page++)
        check_page("afterwards", memory + page * WORDS, page, 1);
    printf("ok\n");
    return 0;
}
