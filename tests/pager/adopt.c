/* A program that gets its pager while it runs: adopt busy | deep | handler | blocked CALL |
 * signals | grows | freed | forked | headless | idle; or that gets none: adopt refused WHY. It says
 * "ready", is adopted, and gets a line. What it sees must be what it would have seen without. */
#include "pages.h"
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>

enum { MEMORY = 64 << 20, PAGES = MEMORY / PAGE, THREADS = 8 };

static atomic_bool stop;
static atomic_int handled;
static uint64_t *memory;

static void fail(const char *what)
{
    printf("WRONG: %s (%s)\n", what, strerror(errno));
    exit(1);
}

static void say_ready(void)
{
    if (write(1, "ready\n", 6) != 6)
        fail("write");
}

static void fill(void)
{
    memory = paged(MEMORY);
    for (uint64_t page = 0; page < PAGES; page++)
        fill_page(memory + page * WORDS, page, 1);
}

static bool is_said(void)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};
    return poll(&input, 1, 0) == 1;
}

/* Until what is in memory is below so much. */
static void settle(size_t most)
{
    for (int nap = 0; nap < 12000; nap++) {
        unsigned long all, resident, files;
        FILE *sizes = fopen("/proc/self/statm", "r");
        if (!sizes || fscanf(sizes, "%lu %lu %lu", &all, &resident, &files) != 3)
            fail("statm");
        fclose(sizes);
        if ((resident - files) * PAGE <= most)
            return;
        usleep(10000);
    }
    fail("it stays above its limit");
}

/* Under a limit of 16 MB most of it is away before it is looked at. */
static void check_all(const char *what, uint64_t version)
{
    settle(16 << 20);
    for (uint64_t page = 0; page < PAGES; page++)
        check_page(what, memory + page * WORDS, page, version);
}

/* Blocks of all sizes come and go, each with content of its own. */
static void *allocate(void *seed)
{
    enum { BLOCKS = 64 };
    struct block {
        unsigned char *at, byte;
        size_t len;
    } blocks[BLOCKS] = {0};
    uint64_t state = (uint64_t)seed;
    while (!stop) {
        struct block *one = &blocks[next_random(&state) % BLOCKS];
        for (size_t at = 0; at < one->len; at += 61)
            if (one->at[at] != one->byte)
                fail("a block");
        free(one->at);
        one->len = 1 + next_random(&state) % (next_random(&state) % 16 ? 4000 : 400000);
        one->byte = (unsigned char)next_random(&state);
        one->at = malloc(one->len);
        if (!one->at)
            fail("malloc");
        memset(one->at, one->byte, one->len);
    }
    return NULL;
}

/* Checks and changes all of its memory, beside threads that allocate, while it is adopted. */
static void busy(void)
{
    pthread_t threads[THREADS];
    fill();
    for (uint64_t at = 0; at < THREADS; at++)
        pthread_create(&threads[at], NULL, allocate, (void *)(at + 1));
    say_ready();
    uint64_t version = 1;
    for (int more = 2; more > 0; more -= is_said()) {
        for (uint64_t page = 0; page < PAGES; page++) {
            check_page("busy", memory + page * WORDS, page, version);
            fill_page(memory + page * WORDS, page, version + 1);
        }
        version++;
    }
    stop = true;
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);
    check_all("busy", version);
}

/* All registers that a compiler would not keep for us, in a loop without calls: sums that a lost
 * one makes wrong. On a stack of its own, with no room to spare. */
static atomic_bool is_going;

static void *spin(void *unused)
{
    double sums[8] = {0};
    uint64_t words[6] = {1, 2, 3, 4, 5, 6}, rounds = 0;
    is_going = true;
    while (!stop) {
        for (int at = 0; at < 8; at++)
            sums[at] += at + 1;
        for (int at = 0; at < 6; at++)
            words[at] += at + 1;
        rounds++;
    }
    for (int at = 0; at < 8; at++)
        if (sums[at] != (double)rounds * (at + 1))
            fail("a vector");
    for (int at = 0; at < 6; at++)
        if (words[at] != (rounds + 1) * (at + 1))
            fail("a register");
    return unused;
}

static void *wait_and_stop(void *unused)
{
    wait_for_line();
    stop = true;
    return unused;
}

static void deep(void)
{
    pthread_t thread;
    fill();
    pthread_create(&thread, NULL, wait_and_stop, NULL);
    say_ready();
    spin(NULL);
    pthread_join(thread, NULL);
    check_all("deep", 1);
}

/* A loop in a handler of a signal, on a stack of its own, that interrupted malloc. */
static void in_handler(int signal)
{
    (void)signal;
    say_ready();
    /* A call that is made there, and one in a loop without any. */
    struct pollfd input = {.fd = 0, .events = POLLIN};
    while (poll(&input, 1, 0) == 0)
        for (volatile int round = 0; round < 100000; round++)
            ;
    handled++;
}

static void handler(void)
{
    struct sigaction action = {.sa_handler = in_handler, .sa_flags = SA_ONSTACK};
    stack_t stack = {.ss_sp = paged(SIGSTKSZ), .ss_size = SIGSTKSZ};
    struct itimerval soon = {.it_value.tv_usec = 20000};
    fill();
    sigaltstack(&stack, NULL);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &soon, NULL);
    for (int round = 0; !handled; round++) {
        char *volatile block = malloc(round % 3000 + 1);
        *block = (char)round;
        free(block);
    }
    check_all("handler", 1);
}

/* Who ends the waiting of a call: another process, when it gets the line. */
static int give_line_to(int fd, int signal)
{
    pid_t program = getpid(), child = fork();
    if (child == 0) {
        wait_for_line();
        usleep(100000);
        if (signal)
            kill(program, signal);
        _exit(fd >= 0 && write(fd, "\1\0\0\0\0\0\0\0", 8) != 8);
    }
    return child;
}

static void count(int signal)
{
    (void)signal;
    handled++;
}

static const uint64_t least = 999000000;

/* Each waits for its time, or for the line, and answers as it does when nobody disturbs it. */
static bool blocked_by_time(const char *call)
{
    struct timespec time = {1, 500000000};
    static int pair[2], queue = -1;
    if (queue < 0) {
        queue = epoll_create1(0);
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
            fail("socketpair");
    }
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(queue, EPOLL_CTL_ADD, pair[0], &event);
    struct pollfd one = {.fd = pair[0], .events = POLLIN};
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    if (!strcmp(call, "nanosleep"))
        return nanosleep(&time, NULL) == 0;
    if (!strcmp(call, "clock_nanosleep")) {
        clock_gettime(CLOCK_MONOTONIC, &time);
        time.tv_sec += 2;
        return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == 0;
    }
    if (!strcmp(call, "poll"))
        return poll(&one, 1, 1500) == 0;
    if (!strcmp(call, "ppoll"))
        return ppoll(&one, 1, &time, NULL) == 0;
    if (!strcmp(call, "select")) {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(pair[0], &set);
        return select(pair[0] + 1, &set, NULL, NULL, &(struct timeval){1, 500000}) == 0;
    }
    if (!strcmp(call, "epoll_limited"))
        return epoll_wait(queue, &event, 1, 1500) == 0;
    if (!strcmp(call, "sigtimedwait")) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigprocmask(SIG_BLOCK, &set, NULL);
        return sigtimedwait(&set, NULL, &time) == -1 && errno == EAGAIN;
    }
    if (!strcmp(call, "condition")) {
        clock_gettime(CLOCK_REALTIME, &time);
        time.tv_sec += 2;
        pthread_mutex_lock(&mutex);
        return pthread_cond_timedwait(&condition, &mutex, &time) == ETIMEDOUT;
    }
    fail("no such call");
    return false;
}

static bool blocked_by_others(const char *call)
{
    int pair[2], queue = epoll_create1(0);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        fail("socketpair");
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(queue, EPOLL_CTL_ADD, pair[0], &event);
    struct sigaction action = {.sa_handler = count};
    char bytes[8];
    bool is_blocked = !strncmp(call, "sig", 3);
    bool is_signal = is_blocked || !strcmp(call, "pause") || !strcmp(call, "epoll_signalled");
    sigset_t set, none;
    sigemptyset(&none);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    if (is_blocked)
        sigprocmask(SIG_BLOCK, &set, NULL);
    if (is_signal)
        sigaction(SIGUSR1, &action, NULL);
    int child = give_line_to(is_signal ? -1 : pair[1], is_signal ? SIGUSR1 : 0), number;
    say_ready();
    if (!strcmp(call, "read"))
        return read(pair[0], bytes, 8) == 8;
    if (!strcmp(call, "recv_all"))
        return recv(pair[0], bytes, 8, MSG_WAITALL) == 8;
    if (!strcmp(call, "epoll"))
        return epoll_wait(queue, &event, 1, -1) == 1;
    /* As ever when a handler runs. */
    if (!strcmp(call, "epoll_signalled"))
        return epoll_wait(queue, &event, 1, -1) == -1 && errno == EINTR && handled == 1;
    if (!strcmp(call, "poll_endless"))
        return poll(&(struct pollfd){.fd = pair[0], .events = POLLIN}, 1, -1) == 1;
    if (!strcmp(call, "wait"))
        return waitpid(child, &number, 0) == child && number == 0;
    if (!strcmp(call, "pause"))
        return pause() == -1 && errno == EINTR && handled == 1;
    if (!strcmp(call, "sigsuspend"))
        return sigsuspend(&none) == -1 && errno == EINTR && handled == 1;
    if (!strcmp(call, "sigwait"))
        return sigwait(&set, &number) == 0 && number == SIGUSR1 && !handled;
    if (!strcmp(call, "sigwaitinfo"))
        return sigwaitinfo(&set, NULL) == SIGUSR1 && !handled;
    fail("no such call");
    return false;
}

static void blocked(const char *call)
{
    static const char *const by_time[] = {"nanosleep", "clock_nanosleep", "poll", "ppoll", "select",
                                          "epoll_limited", "sigtimedwait", "condition"};
    bool is_by_time = false;
    for (size_t at = 0; at < sizeof by_time / sizeof *by_time; at++)
        is_by_time |= !strcmp(call, by_time[at]);
    fill();
    if (is_by_time)
        say_ready();
    /* It is adopted in one of them. */
    do {
        uint64_t begin = now_ns();
        if (!(is_by_time ? blocked_by_time(call) : blocked_by_others(call)))
            fail(call);
        if (is_by_time && now_ns() - begin < least)
            fail("it ended too early");
    } while (is_by_time && !is_said());
    for (uint64_t page = 0; page < PAGES; page++)
        check_page("blocked", memory + page * WORDS, page, 1);
    while (waitpid(-1, NULL, 0) > 0)
        ;
}

/* A thousand signals a second, each with its number, from a child: none is lost, all in order. */
static atomic_int next_number, lost;

static void note(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    int expected = next_number++;
    lost += info->si_value.sival_int != expected;
}

static void signals(void)
{
    struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO | SA_RESTART};
    pid_t program = getpid();
    sigaction(SIGRTMIN, &action, NULL);
    pid_t child = fork();
    if (child == 0) {
        int sent = 0;
        while ((!is_said() || sent < 500) && getppid() == program) {
            if (sigqueue(program, SIGRTMIN, (union sigval){.sival_int = sent}) == 0)
                sent++;
            usleep(200);
        }
        _exit(sent == 0);
    }
    fill();
    say_ready();
    int status;
    while (waitpid(child, &status, WNOHANG) == 0) {
        for (uint64_t page = 0; page < PAGES; page++)
            check_page("signals", memory + page * WORDS, page, 1);
    }
    if (status != 0 || next_number < 100)
        fail("no signals");
    if (lost)
        fail("signals were lost");
    check_all("signals", 1);
}

/* Memory given up by MADV_FREE is written anew, and does leave: under a limit of 16 MB. */
static void freed(void)
{
    fill();
    say_ready();
    wait_for_line();
    settle(16 << 20);
    for (int round = 2; round < 5; round++) {
        for (uint64_t page = 0; page < PAGES; page += 256) {
            if (madvise(memory + page * WORDS, 256 * PAGE, MADV_FREE))
                fail("MADV_FREE");
            for (uint64_t at = page; at < page + 256; at++)
                fill_page(memory + at * WORDS, at, round);
        }
        settle(16 << 20);
        for (uint64_t page = 0; page < PAGES; page++)
            check_page("freed", memory + page * WORDS, page, round);
    }
    if (mlockall(MCL_FUTURE) != -1 || errno != ENOMEM)
        fail("mlockall is not refused");
}

/* The number in a line of /proc/self/status. */
static long status_of(const char *name)
{
    char line[256];
    long number = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, name, strlen(name)))
            number = atol(line + strlen(name));
    if (status)
        fclose(status);
    return number;
}

/* So many MB more, at full speed; under a limit of 64 MB. What was in memory at most, in KB. */
static void grows(size_t megabytes)
{
    fill();
    say_ready();
    wait_for_line();
    settle(64 << 20);
    int clear = open("/proc/self/clear_refs", O_WRONLY);
    if (clear < 0 || write(clear, "5", 1) != 1)
        fail("clear_refs");
    char **blocks = malloc(megabytes * 1024 * sizeof *blocks);
    for (size_t at = 0; at < megabytes * 1024; at++) {
        blocks[at] = malloc(1000);
        memset(blocks[at], (char)at, 1000);
    }
    for (size_t at = 0; at < megabytes * 1024; at++)
        if (blocks[at][0] != (char)at || blocks[at][999] != (char)at)
            fail("a block");
    long most = status_of("VmHWM:") - status_of("RssFile:");
    printf("%ld KB at most\n", most);
    if (most > 3 * 65536)
        fail("far above the limit");
    for (uint64_t page = 0; page < PAGES; page++)
        check_page("grows", memory + page * WORDS, page, 1);
}

/* Children of its own: each has all memory, and a limit; they fork again. */
static void forked(void)
{
    fill();
    say_ready();
    wait_for_line();
    settle(16 << 20);
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        if (child == 0) {
            if (round == 2 && (child = fork()))
                _exit(waitpid(child, &round, 0) != child || round);
            for (uint64_t page = 0; page < PAGES; page++) {
                check_page("child", memory + page * WORDS, page, 1);
                fill_page(memory + page * WORDS, page, 9);
            }
            settle(17 << 20);
            for (uint64_t page = 0; page < PAGES; page++)
                check_page("child", memory + page * WORDS, page, 9);
            _exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status)
            fail("a child");
        for (uint64_t page = 0; page < PAGES; page++)
            check_page("parent", memory + page * WORDS, page, 1);
    }
}

static int pause_on(void *unused)
{
    (void)unused;
    return pause();
}

/* What is not adopted, and why. */
static void refused(const char *why)
{
    struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {1, &allow};
    pid_t program = getpid(), child = 0;
    if (!strcmp(why, "filtered") && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        fail("prctl");
    if (!strcmp(why, "watching") && syscall(SYS_userfaultfd, O_CLOEXEC) < 0)
        fail("userfaultfd");
    if (!strcmp(why, "locking") && mlockall(MCL_FUTURE))
        fail("mlockall");
    if (!strcmp(why, "traced") && (child = fork()) == 0) {
        if (ptrace(PTRACE_SEIZE, program, 0, 0))
            _exit(1);
        say_ready();
        pause();
    }
    static char stack[64 << 10];
    if (!strcmp(why, "sharing"))
        child = clone(pause_on, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
    if (strcmp(why, "traced"))
        say_ready();
    wait_for_line();
    if (child)
        kill(child, SIGKILL);
}

static void *sleep_on(void *unused)
{
    while (!stop)
        usleep(1000);
    return unused;
}

/* The first thread has ended. */
static void *headless(void *unused)
{
    usleep(100000);
    say_ready();
    wait_for_line();
    check_all("headless", 1);
    puts("ok");
    exit(0);
    return unused;
}

int main(int count, char **words)
{
    const char *which = count > 1 ? words[1] : "";
    pthread_t thread;
    if (!strcmp(which, "busy"))
        busy();
    else if (!strcmp(which, "deep"))
        deep();
    else if (!strcmp(which, "handler"))
        handler();
    else if (!strcmp(which, "blocked") && count > 2)
        blocked(words[2]);
    else if (!strcmp(which, "signals"))
        signals();
    else if (!strcmp(which, "freed"))
        freed();
    else if (!strcmp(which, "grows"))
        grows(256);
    else if (!strcmp(which, "forked"))
        forked();
    else if (!strcmp(which, "refused") && count > 2)
        refused(words[2]);
    else if (!strcmp(which, "idle")) {
        pthread_create(&thread, NULL, sleep_on, NULL);
        say_ready();
        wait_for_line();
    } else if (!strcmp(which, "headless")) {
        fill();
        pthread_create(&thread, NULL, headless, NULL);
        pthread_exit(NULL);
    } else
        fail("no such case");
    puts("ok");
    return 0;
}
