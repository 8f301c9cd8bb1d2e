/* All memory of a program under a limit (--memory any): what only that way pages, and what the
 * kernel does to pages that are away. any CASE: small, given, robust, written, forked, raw,
 * unhandled, changed, grows, many, shared, hot, waits, together, unshared, walks,
 * unwritten, filtered, crowded, replaced, divided, cloned, forking, sharing,
 * masks; rush HOW. */
#include "pages.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static char *press;
static const size_t pressed = 24 << 20;
static atomic_bool stop;

static void fail(const char *what)
{
    printf("WRONG: %s\n", what);
    exit(1);
}

static char *map(size_t len)
{
    char *at = mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        fail("no memory");
    return at;
}

/* Walks over more than fits, so that all else leaves. */
static void push_out(void)
{
    static unsigned round;
    round++;
    for (size_t at = 0; at < pressed; at += PAGE)
        press[at] += round;
}

/* Until what is in memory is under the limit of 8 MB. */
static void settle(void)
{
    for (int nap = 0;; nap++) {
        unsigned long all, resident, files;
        FILE *sizes = fopen("/proc/self/statm", "r");
        if (!sizes || fscanf(sizes, "%lu %lu %lu", &all, &resident, &files) != 3)
            fail("statm");
        fclose(sizes);
        /* What forks left shared is measured now and then. */
        if ((resident - files) * PAGE <= (8 << 20) + (128 << 10))
            return;
        if (nap == 12000)
            fail("it stays above its limit");
        usleep(10000);
    }
}

static void *keep_pushing(void *unused)
{
    while (!stop)
        push_out();
    return unused;
}

/* A list of small blocks from the heap, three times what fits. */
static void small(void)
{
    struct block {
        struct block *next;
        uint64_t number;
        char text[40];
    } *list = NULL;
    enum { COUNT = 400000 };
    for (uint64_t number = 0; number < COUNT; number++) {
        struct block *block = malloc(sizeof *block);
        block->next = list;
        block->number = mix(number);
        memset(block->text, (char)number, sizeof block->text);
        list = block;
    }
    settle();
    for (int round = 0; round < 3; round++) {
        uint64_t number = COUNT;
        for (struct block *block = list; block; block = block->next) {
            number--;
            if (block->number != mix(number) || block->text[39] != (char)number)
                fail("a small block");
        }
    }
}

/* Memory given up reads as zeros, wherever its pages were; the rest stays, also where it moves. */
static void given(void)
{
    enum { PAGES = 2048 };
    uint64_t *at = (void *)map(PAGES * PAGE);
    for (int round = 1; round <= 4; round++) {
        for (uint64_t page = 0; page < PAGES; page++)
            fill_page(at + page * WORDS, page, round);
        push_out();
        settle();
        for (uint64_t page = round % 2; page < PAGES; page += 3)
            madvise(at + page * WORDS, PAGE, round % 2 ? MADV_DONTNEED : MADV_FREE);
        syscall(SYS_madvise, at, 64 * PAGE, MADV_DONTNEED);
        uint64_t *moved = mremap(at, PAGES * PAGE, 2 * PAGES * PAGE, MREMAP_MAYMOVE);
        if (moved == MAP_FAILED)
            fail("mremap");
        for (uint64_t page = 0; page < 2 * PAGES; page++) {
            bool is_gone = page < 64 || page >= PAGES || page % 3 == (unsigned)round % 2;
            check_page("given", moved + page * WORDS, page, is_gone ? 0 : round);
        }
        munmap(moved + PAGES * WORDS, PAGES * PAGE);
        at = moved;
    }
}

static pthread_mutex_t *mutex;

static void *lock_and_end(void *unused)
{
    pthread_mutex_lock(mutex);
    push_out();
    settle();
    return unused;
}

/* A mutex whose owner ended while its page could have been away. */
static void robust(void)
{
    mutex = (void *)(map(1 << 20) + 10 * PAGE);
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(mutex, &kind);
    for (int round = 0; round < 3; round++) {
        pthread_t thread;
        pthread_create(&thread, NULL, lock_and_end, NULL);
        pthread_join(thread, NULL);
        alarm(120);
        if (pthread_mutex_lock(mutex) != EOWNERDEAD)
            fail("the owner's end was not told");
        pthread_mutex_consistent(mutex);
        pthread_mutex_unlock(mutex);
    }
}

/* What process_vm_writev says it wrote is there, with other threads pressing. */
static void written(void)
{
    enum { LEN = 8 << 20, PIECE = 2 << 20 };
    char *at = map(LEN), *from = map(PIECE);
    pthread_t thread;
    memset(at, 1, LEN);
    push_out();
    settle();
    pthread_create(&thread, NULL, keep_pushing, NULL);
    for (int round = 1; round <= 3; round++) {
        for (size_t piece = 0; piece < LEN; piece += PIECE) {
            memset(from, round * 16 + (int)(piece / PIECE), PIECE);
            struct iovec local = {from, PIECE}, remote = {at + piece, PIECE};
            if (process_vm_writev(getpid(), &local, 1, &remote, 1, 0) != PIECE)
                fail("process_vm_writev");
        }
        for (size_t page = 0; page < LEN; page += PAGE)
            if (at[page] != (char)(round * 16 + page / PIECE))
                fail("bytes that were written");
    }
    stop = true;
    pthread_join(thread, NULL);
}

static void expect_child(pid_t child, const char *what)
{
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        fail(what);
}

/* Each way through the C library that runs no handlers, in turn. */
static pid_t unhandled_fork(void)
{
    struct {
        uint64_t flags, pidfd, child, parent, signal, stack, size, tls;
    } arguments = {.signal = SIGCHLD};
    static int turn;
    switch (turn++ % 4) {
    case 0:
        return _Fork();
    case 1:
        return syscall(SYS_clone3, &arguments, sizeof arguments);
    case 2:
        return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    default:
#ifdef SYS_fork
        return syscall(SYS_fork);
#else
        return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
#endif
    }
}

/* A child has all content, of its own, but zeros where it is to have zeros. Also one that nobody
 * announced. */
static void forked(pid_t (*copy)(void), int rounds)
{
    enum { PAGES = 1024 };
    uint64_t *at = (void *)map(PAGES * PAGE), *wiped = (void *)map(PAGES * PAGE);
    madvise(wiped, PAGES * PAGE, MADV_WIPEONFORK);
    for (int round = 1; round <= rounds; round++) {
        for (uint64_t page = 0; page < PAGES; page++) {
            fill_page(at + page * WORDS, page, round);
            fill_page(wiped + page * WORDS, page, round);
        }
        push_out();
        if (round == 1)
            settle();
        pid_t child = copy();
        if (child == 0) {
            for (uint64_t page = 0; page < PAGES; page++) {
                check_page("a child's", at + page * WORDS, page, round);
                check_page("a wiped", wiped + page * WORDS, page, 0);
                fill_page(at + page * WORDS, page, 99);
            }
            _exit(0);
        }
        for (uint64_t page = 0; page < PAGES; page++) {
            check_page("the parent's", at + page * WORDS, page, round);
            check_page("the parent's", wiped + page * WORDS, page, round);
        }
        expect_child(child, "a child's memory");
    }
}

enum { CLONED = 1024 };
static uint64_t *cloned_from;

static int cloned_child(void *round)
{
    sigset_t mask;
    if (sigprocmask(SIG_BLOCK, NULL, &mask) || sigismember(&mask, SIGUSR1))
        return 1;
    for (uint64_t page = 0; page < CLONED; page++)
        check_page("a cloned", cloned_from + page * WORDS, page, *(int *)round);
    /* It may fork in its turn. */
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    expect_child(child, "a child's child");
    return 0;
}

/* A child of clone(2) with a function of its own has all content, and may fork; and so has one
 * that is made while another thread forks. */
static void cloned(void)
{
    enum { STACK = 256 << 10 };
    cloned_from = (void *)map(CLONED * PAGE);
    char *stack = map(STACK);
    for (int round = 1; round <= 3; round++) {
        for (uint64_t page = 0; page < CLONED; page++)
            fill_page(cloned_from + page * WORDS, page, round);
        push_out();
        if (round == 1)
            settle();
        expect_child(clone(cloned_child, stack + STACK, SIGCHLD, &round), "a cloned child");
    }
}

extern int __clone(int (*)(void *), void *, int, void *, ...);

static int forks_in_turn(void *round)
{
    for (int turn = 0; turn < 2; turn++) {
        pid_t child = turn ? fork() : _Fork();
        if (child == 0)
            _exit(cloned_child(round));
        expect_child(child, "a child of a process that shares the memory");
    }
    return 0;
}

/* Processes that share the memory fork: one of vfork, and one of clone. And the other name of
 * clone. */
static void sharing(void)
{
    enum { STACK = 256 << 10 };
    cloned_from = (void *)map(CLONED * PAGE);
    char *stack = map(STACK);
    int round = 1;
    for (uint64_t page = 0; page < CLONED; page++)
        fill_page(cloned_from + page * WORDS, page, round);
    push_out();
    settle();
    expect_child(clone(forks_in_turn, stack + STACK, CLONE_VM | SIGCHLD, &round), "a sharer");
    push_out();
    settle();
    expect_child(clone(forks_in_turn, stack + STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, &round),
                 "a sharer that is waited for");
    push_out();
    settle();
    expect_child(__clone(cloned_child, stack + STACK, SIGCHLD, &round), "a child of __clone");
}

static pthread_mutex_t world = PTHREAD_MUTEX_INITIALIZER;
static atomic_int answers, forks_made;

static void lock_world(void)
{
    pthread_mutex_lock(&world);
}

static void unlock_world(void)
{
    pthread_mutex_unlock(&world);
}

static void answer(int unused)
{
    (void)unused;
    answers++;
}

static void *fork_on(void *unused)
{
    while (!stop) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
            ;
        forks_made++;
    }
    return unused;
}

static void expect_no_mask(const char *who)
{
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    for (int number = 1; number < 32; number++)
        if (sigismember(&mask, number))
            fail(who);
}

/* A program with handlers of fork: signals are not blocked for longer than the fork, and a thread
 * whose handler waits for a lock still gets the signal of who holds it. */
static void masks(void)
{
    pthread_t forker;
    pthread_atfork(lock_world, unlock_world, unlock_world);
    signal(SIGUSR1, answer);
    push_out();
    settle();
    pid_t child = fork();
    expect_no_mask("a mask after a fork");
    if (child == 0)
        _exit(0);
    expect_child(child, "a child");
    pthread_create(&forker, NULL, fork_on, NULL);
    for (int round = 0; round < 300 || forks_made < 20; round++) {
        pthread_mutex_lock(&world);
        int before = answers;
        pthread_kill(forker, SIGUSR1);
        for (int nap = 0; answers == before; nap++) {
            if (nap == 300000)
                fail("a signal waits for ever");
            usleep(100);
        }
        pthread_mutex_unlock(&world);
        usleep(200);
    }
    stop = true;
    pthread_join(forker, NULL);
    expect_no_mask("a mask at the end");
    push_out();
    settle();
}

static void *fork_often(void *unused)
{
    for (int round = 0; round < 20; round++) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        expect_child(child, "a child of a thread");
    }
    return unused;
}

/* Several threads fork at once, while another one has more memory than fits. */
static void forking(void)
{
    pthread_t pusher, threads[4];
    push_out();
    settle();
    pthread_create(&pusher, NULL, keep_pushing, NULL);
    for (int at = 0; at < 4; at++)
        pthread_create(&threads[at], NULL, fork_often, NULL);
    for (int at = 0; at < 4; at++)
        pthread_join(threads[at], NULL);
    stop = true;
    pthread_join(pusher, NULL);
    push_out();
    settle();
}

/* A child of a raw fork that changes its mappings, and forks, before it has everything. */
static void changed(void)
{
    enum { PAGES = 2048, EACH = 256 };
    for (int round = 1; round <= 3; round++) {
        uint64_t *at = (void *)map(PAGES * PAGE);
        for (uint64_t page = 0; page < PAGES; page++)
            fill_page(at + page * WORDS, page, round);
        push_out();
        if (round == 1)
            settle();
        pid_t child = raw_fork(), grandchild = -1;
        if (child == 0) {
            uint64_t *moved = mremap(at, EACH * PAGE, 2 * EACH * PAGE, MREMAP_MAYMOVE);
            munmap(at + EACH * WORDS, EACH * PAGE);
            madvise(at + 2 * EACH * WORDS, EACH * PAGE, MADV_DONTNEED);
            grandchild = raw_fork();
            for (uint64_t page = 0; page < 2 * EACH; page++)
                check_page("a moved", moved + page * WORDS, page, page < EACH ? round : 0);
            for (uint64_t page = 2 * EACH; page < PAGES; page++)
                check_page("a child's", at + page * WORDS, page, page < 3 * EACH ? 0 : round);
            if (grandchild)
                expect_child(grandchild, "a grandchild's memory");
            _exit(0);
        }
        for (uint64_t page = 0; page < PAGES; page++)
            check_page("the parent's", at + page * WORDS, page, round);
        expect_child(child, "a child's memory");
        munmap(at, PAGES * PAGE);
    }
}

/* Small blocks, many times what fits: the heap grows by small steps that nobody announces. */
static void grows(void)
{
    enum { COUNT = 1500, BLOCK = 1000, EACH = 100 };
    static char *blocks[COUNT][EACH];
    for (int step = 0; step < COUNT; step++)
        for (int at = 0; at < EACH; at++)
            memset(blocks[step][at] = malloc(BLOCK), step + at, BLOCK);
    for (int step = 0; step < COUNT; step++)
        for (int at = 0; at < EACH; at++)
            if (blocks[step][at][BLOCK - 1] != (char)(step + at))
                fail("a block");
}

/* More mappings than the pager could ever take over one by one. */
static void many(void)
{
    enum { COUNT = 5000, LEN = 64 << 10 };
    static char *maps[COUNT];
    for (int at = 0; at < COUNT; at++) {
        maps[at] = map(LEN);
        /* Its neighbour must be another mapping. */
        if (at % 2)
            madvise(maps[at], LEN, MADV_NOHUGEPAGE);
        memset(maps[at], at, LEN);
    }
    settle();
    for (int at = 0; at < COUNT; at++)
        for (int page = 0; page < LEN; page += PAGE)
            if (maps[at][page] != (char)at)
                fail("a mapping");
}

/* Shared memory is not paged, but counts. */
static void shared(void)
{
    for (size_t len = 24 << 20; len < 100 << 20; len *= 3) {
        /* At once: while it is touched, less is told of on a busy machine. */
        int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE;
        char *at = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (at == MAP_FAILED)
            fail("no memory");
        memset(at, 1, len);
        puts("ready");
        fflush(stdout);
        char line[8];
        if (!fgets(line, sizeof line, stdin))
            pause();
    }
}

/* How many of these pages are not in memory. */
static int absent(int pagemap, const char *at, int pages)
{
    uint64_t entries[1024];
    int sum = 0;
    if (pread(pagemap, entries, pages * 8, (uintptr_t)at / PAGE * 8) != pages * 8)
        fail("pagemap");
    for (int page = 0; page < pages; page++)
        sum += !(entries[page] >> 63);
    return sum;
}

/* Pages written all the time stay, while others come and go in no order. */
static void hot(void)
{
    enum { PAGES = 512, ROUNDS = 600, TOUCHES = 32 };
    char *at = map(PAGES * PAGE);
    int pagemap = open("/proc/self/pagemap", O_RDONLY), sum = 0;
    uint64_t state = 1;
    push_out();
    for (int round = 0; round < ROUNDS; round++) {
        sum += absent(pagemap, at, PAGES);
        for (int page = 0; page < PAGES; page++)
            at[page * PAGE] += 1;
        for (int touch = 0; touch < TOUCHES; touch++)
            press[next_random(&state) % (pressed / PAGE) * PAGE] += 1;
    }
    for (int page = 0; page < PAGES; page++)
        if (at[page * PAGE] != (char)ROUNDS)
            fail("a page that is written all the time");
    /* None was there at first; the second time for all is one too many. */
    if (sum >= 2 * PAGES)
        fail("pages in use were taken");
}

/* Stands still with pages in the store, until it is asked. Says where. */
static void waits(void)
{
    char *at = map(pressed);
    memset(at, 7, pressed);
    settle();
    printf("ready %lu\n", (unsigned long)at);
    fflush(stdout);
    getchar();
    for (size_t page = 0; page < pressed; page += PAGE)
        if (at[page] != 7)
            fail("a page that waited");
}

enum { THREADS = 3, WALKS = 12, STRIDE = 7 };
static pthread_barrier_t barrier;

/* Each thread counts in a word of its own; the first one only reads, and is the first to. */
static void *walk(void *word)
{
    size_t pages = pressed / PAGE, own = (size_t)word;
    for (size_t at = 0; at < WALKS * pages; at++) {
        uint64_t *page = (void *)(press + at * STRIDE % pages * PAGE);
        if (at % 4 == 0)
            pthread_barrier_wait(&barrier);
        if (own)
            page[own] += 1;
        else if (*(volatile uint64_t *)page != 1)
            fail("a page that others write");
    }
    return NULL;
}

/* Threads touch the same pages at the same time, after the others have pushed them out. */
static void together(void)
{
    pthread_t threads[THREADS];
    for (size_t at = 0; at < pressed; at += PAGE)
        *(uint64_t *)(press + at) = 1;
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (size_t own = 0; own < THREADS; own++)
        pthread_create(&threads[own], NULL, walk, (void *)own);
    for (size_t own = 0; own < THREADS; own++)
        pthread_join(threads[own], NULL);
    for (size_t at = 0; at < pressed; at += PAGE)
        for (size_t own = 1; own < THREADS; own++)
            if (((uint64_t *)(press + at))[own] != WALKS)
                fail("a count of one thread");
}

/* What a fork left shared leaves memory, too: while the child has it, and when it has ended. */
static void unshared(void)
{
    enum { PAGES = 1700 };
    uint64_t *at = (void *)map(PAGES * PAGE);
    for (int round = 1; round <= 4; round++) {
        int tell[2];
        char byte;
        for (uint64_t page = 0; page < PAGES; page++)
            fill_page(at + page * WORDS, page, round);
        if (pipe(tell))
            fail("no pipe");
        pid_t child = round % 2 ? raw_fork() : fork();
        if (child == 0) {
            close(tell[1]);
            bool is_kept = read(tell[0], &byte, 1) == 1;
            for (uint64_t page = 0; is_kept && page < PAGES; page++)
                check_page("a child's", at + page * WORDS, page, round);
            _exit(0);
        }
        close(tell[0]);
        if (round > 2) {
            close(tell[1]);
            expect_child(child, "a child that ended");
        }
        push_out();
        settle();
        for (uint64_t page = 0; page < PAGES; page++)
            check_page("the parent's", at + page * WORDS, page, round);
        if (round <= 2) {
            if (write(tell[1], "", 1) != 1)
                fail("the pipe");
            close(tell[1]);
            expect_child(child, "a child that had its memory");
        }
    }
}

/* Walks in several places in turn, as a merge does, over three times what fits. */
static void walks(void)
{
    enum { PLACES = 3, ROUNDS = 3 };
    size_t part = pressed / PLACES;
    push_out();
    for (int round = 0; round < ROUNDS; round++)
        for (size_t at = 0; at < part; at += PAGE)
            for (int place = 0; place < PLACES; place++)
                if (((volatile char *)press)[place * part + at] != 1)
                    fail("a page of a walk");
}

/* Reads all of its half, and writes to more of its pages in each round. */
static char *half_written;

static void *read_and_write(void *half)
{
    enum { COUNT = 8 << 10, STEP_OF_WRITES = 7 };
    volatile char *at = half_written + (size_t)half * COUNT * PAGE;
    for (int round = 1; round < STEP_OF_WRITES; round++)
        for (int walk = 0; walk < 2; walk++)
            for (int page = 0; page < COUNT; page++) {
                bool is_written = page % STEP_OF_WRITES < round - !walk;
                if (at[page * PAGE] != (is_written ? (char)(page | 1) : 0))
                    fail("a page that is half written");
                if (!walk && page % STEP_OF_WRITES < round)
                    at[page * PAGE] = (char)(page | 1);
            }
    return NULL;
}

static void unwritten(void)
{
    pthread_t other;
    half_written = map(64 << 20);
    pthread_create(&other, NULL, read_and_write, (void *)1);
    read_and_write(NULL);
    pthread_join(other, NULL);
}

/* From now on userfaultfd and its ioctl kill, as in a jail. */
static void confine(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program))
        fail("no filter");
}

/* A program that jails itself goes on, and so do its children. */
static void filtered(void)
{
    if (mlockall(MCL_CURRENT) != -1 || errno != ENOMEM)
        fail("the pager's own memory was locked");
    push_out();
    confine();
    char *more = map(pressed);
    memset(more, 3, pressed);
    pid_t child = fork();
    if (!child)
        for (size_t at = 0; at < pressed; at += PAGE)
            if (more[at] != 3)
                _exit(1);
    if (!child)
        _exit(0);
    expect_child(child, "a child behind a filter");
    for (size_t at = 0; at < pressed; at += PAGE)
        if (more[at] != 3)
            fail("a page behind a filter");
}

/* A block, and what it holds. */
static void *rushed(char *at, size_t len, size_t number)
{
    for (size_t page = 0; page < len; page += PAGE)
        at[page] = (char)number;
    at[len - 1] = (char)number;
    return at;
}

enum { RUSHED = 24 << 20, RUSHERS = 4, SMALL = 1000, LARGE = 1 << 20, STEP = 64 << 10 };

static char *was_read;

/* Memory from each way there is to get it, in steps of the size that goes with it. */
static char *get(const char *how, size_t *len)
{
    static const char *last;
    char *at;
    *len = STEP;
    if (!strcmp(how, "mapped"))
        return map(STEP);
    if (!strcmp(how, "read")) {
        *len = RUSHED;
        return was_read;
    }
    if (!strcmp(how, "broken"))
        return sbrk(STEP);
    if (!strcmp(how, "protected")) {
        at = mmap(0, STEP, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return mprotect(at, STEP, PROT_READ | PROT_WRITE) ? NULL : at;
    }
    if (!strcmp(how, "moved")) {
        at = map(PAGE);
        return mremap(at, PAGE, STEP, MREMAP_MAYMOVE);
    }
    if (!strcmp(how, "once")) {
        *len = RUSHED;
        return map(RUSHED);
    }
    *len = strcmp(how, "large") ? SMALL : LARGE;
    at = last != how ? calloc(1, *len) : malloc(*len);
    last = how;
    return at;
}

static const char *how;

static void *rush(void *share)
{
    static __thread char *blocks[RUSHED / SMALL];
    size_t count = 0, len, sum = 0;
    for (; sum < RUSHED / (size_t)share; sum += len, count++) {
        blocks[count] = get(how, &len);
        if (!blocks[count] || blocks[count] == MAP_FAILED)
            fail("no memory");
        rushed(blocks[count], len, count);
    }
    for (size_t at = 0; at < count; at++)
        if (blocks[at][0] != (char)at || blocks[at][len - 1] != (char)at)
            fail("a block that was got in a hurry");
    return NULL;
}

/* Makes memory its own as fast as it can, when it is told to. */
static void rushes(void)
{
    pthread_t threads[RUSHERS];
    bool is_alone = strcmp(how, "threads");
    if (!strcmp(how, "read")) {
        was_read = map(RUSHED);
        for (int at = 0; at < RUSHED; at += PAGE)
            if (((volatile char *)was_read)[at])
                fail("a page that nobody wrote");
    }
    puts("ready");
    fflush(stdout);
    getchar();
    if (is_alone)
        rush((void *)1);
    for (int at = 0; !is_alone && at < RUSHERS; at++)
        pthread_create(&threads[at], NULL, rush, (void *)RUSHERS);
    for (int at = 0; !is_alone && at < RUSHERS; at++)
        pthread_join(threads[at], NULL);
}

/* As many mappings as there may be. */
static void crowded(void)
{
    enum { MOST = 80000, LEN = 2 * PAGE };
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, count = 0;
    char *place = mmap(NULL, (size_t)MOST * LEN, PROT_NONE, flags, -1, 0);
    push_out();
    /* Past the C library: each would be looked at. */
    int prot = PROT_READ | PROT_WRITE;
    while (count < MOST && !syscall(SYS_mprotect, place + count * LEN, PAGE, prot))
        count++;
    for (int round = 0; round < 2; round++) {
        push_out();
        for (int at = 0; at < count; at++) {
            if (round && place[at * LEN] != (char)at)
                fail("one of many mappings");
            place[at * LEN] = (char)at;
        }
    }
    for (size_t at = PAGE; at < pressed; at += PAGE)
        if (press[at] != press[0])
            fail("what lies beside many mappings");
}

enum { REPLACERS = 4, REPLACED = 256 };
static pthread_barrier_t all_ready;

/* Moves its memory away and maps new memory, by a fixed address, where it came to. */
static void *replace(void *unused)
{
    size_t len = REPLACED * PAGE;
    char *from = map(2 * len + 4 * PAGE), *to = from + len + 4 * PAGE;
    int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    mprotect(from + len, 4 * PAGE, PROT_NONE);
    pthread_barrier_wait(&all_ready);
    for (int round = 1; round < 100; round++) {
        for (int page = 0; page < REPLACED; page++)
            from[page * PAGE] = (char)round;
        if (mremap(from, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to ||
            mmap(to, len, prot, flags, -1, 0) != to)
            fail("no memory");
        for (int page = 0; page < REPLACED; page++)
            if (((volatile char *)to)[page * PAGE])
                fail("an old page in new memory");
        if (mmap(from, len, prot, flags, -1, 0) != from)
            fail("no memory");
    }
    return unused;
}

/* Under a limit of 16 MB they are what does not fit. */
static void replaced(void)
{
    pthread_t threads[REPLACERS];
    size_t len = 14 << 20;
    char *rest = map(len);
    memset(rest, 1, len);
    pthread_barrier_init(&all_ready, NULL, REPLACERS);
    for (int at = 0; at < REPLACERS; at++)
        pthread_create(&threads[at], NULL, replace, NULL);
    for (int at = 0; at < REPLACERS; at++)
        pthread_join(threads[at], NULL);
    for (size_t at = 0; at < len; at++)
        if (rest[at] != 1)
            fail("what was not moved");
}

/* Memory that is one mapping on stock, and two for who fills it through a userfaultfd: the second
 * half was touched before it was watched. mremap of the whole grows, shrinks, moves and keeps. */
static void divided(void)
{
    enum { HALF = 40, ALL = 2 * HALF, MORE = 120 };
    for (int round = 0; round < 8; round++) {
        push_out();
        char *at = map(ALL * PAGE);
        munmap(at + HALF * PAGE, HALF * PAGE);
        for (uint64_t page = 0; page < HALF; page++)
            fill_page((uint64_t *)(at + page * PAGE), page, 1);
        char *behind = mmap(at + HALF * PAGE, HALF * PAGE, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        if (behind == MAP_FAILED ||
            syscall(SYS_mprotect, behind, HALF * PAGE, PROT_READ | PROT_WRITE))
            fail("no second half");
        for (uint64_t page = HALF; page < ALL; page++)
            fill_page((uint64_t *)(at + page * PAGE), page, 1);
        push_out();
        settle();
        char *to = mremap(at, ALL * PAGE, MORE * PAGE, MREMAP_MAYMOVE);
        if (to == MAP_FAILED)
            fail("mremap of two halves");
        for (uint64_t page = 0; page < MORE; page++)
            check_page("moved", (uint64_t *)(to + page * PAGE), page, page < ALL);
        char *place = map(MORE * PAGE);
        push_out();
        if (mremap(to, MORE * PAGE, HALF * PAGE + PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place) !=
            place)
            fail("mremap to a place");
        for (uint64_t page = 0; page <= HALF; page++)
            check_page("placed", (uint64_t *)(place + page * PAGE), page, 1);
        munmap(place, MORE * PAGE);
    }
}

int main(int count, char **words)
{
    const char *which = count > 1 ? words[1] : "";
    int rounds = count > 2 ? atoi(words[2]) : 3;
    if (!strcmp(which, "rush")) {
        how = words[2];
        rushes();
        puts("ok");
        return 0;
    }
    if (!strcmp(which, "replaced")) {
        replaced();
        puts("ok");
        return 0;
    }
    press = map(pressed);
    if (!strcmp(which, "small"))
        small();
    else if (!strcmp(which, "given"))
        given();
    else if (!strcmp(which, "robust"))
        robust();
    else if (!strcmp(which, "written"))
        written();
    else if (!strcmp(which, "forked"))
        forked(fork, rounds);
    else if (!strcmp(which, "raw"))
        forked(raw_fork, rounds);
    else if (!strcmp(which, "unhandled"))
        forked(unhandled_fork, rounds);
    else if (!strcmp(which, "cloned"))
        cloned();
    else if (!strcmp(which, "forking"))
        forking();
    else if (!strcmp(which, "sharing"))
        sharing();
    else if (!strcmp(which, "masks"))
        masks();
    else if (!strcmp(which, "changed"))
        changed();
    else if (!strcmp(which, "grows"))
        grows();
    else if (!strcmp(which, "many"))
        many();
    else if (!strcmp(which, "shared"))
        shared();
    else if (!strcmp(which, "hot"))
        hot();
    else if (!strcmp(which, "waits"))
        waits();
    else if (!strcmp(which, "together"))
        together();
    else if (!strcmp(which, "unshared"))
        unshared();
    else if (!strcmp(which, "crowded"))
        crowded();
    else if (!strcmp(which, "filtered"))
        filtered();
    else if (!strcmp(which, "unwritten"))
        unwritten();
    else if (!strcmp(which, "walks"))
        walks();
    else if (!strcmp(which, "divided"))
        divided();
    else
        fail("no such case");
    puts("ok");
    return 0;
}
