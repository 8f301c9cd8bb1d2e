/* Passes in slices: memory moves a little at each wait of the program, and is whole after each of
 * them. Pages change all the time, between slices and beside children; a thread counts in memory of
 * its own. A child made in the middle of a pass sees what there was, the parent loses nothing.
 * Parts are unmapped, protected, given a property and mapped again while they are moved. */
// odtest: modes=stock,slices expect=shared slices=shared timeout=120 mem=300
#include "odtest.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <time.h>

#define SIZE (48 * OD_MB)
#define PAGES (SIZE / OD_PAGE)
#define ROUNDS 12

static char *memory;
/* What the page says, by its number; not in memory that moves. */
static uint32_t *expected;
static uint64_t seed = 20261123;
static _Atomic uint64_t *counter;
static atomic_int stop;

static uint64_t draw(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

static void put(size_t page, uint32_t value)
{
    expected[page] = value;
    uint32_t *words = (uint32_t *)(memory + page * OD_PAGE);
    words[page % 1024] = value;
    words[(page + 512) % 1024] = ~value;
}

static void check(const char *who)
{
    for (size_t page = 0; page < PAGES; page++) {
        const uint32_t *words = (const uint32_t *)(memory + page * OD_PAGE);
        uint32_t value = expected[page];
        CHECK(words[page % 1024] == value && words[(page + 512) % 1024] == (value ? ~value : 0),
              "%s: page %zu is %x, want %x", who, page, words[page % 1024], value);
    }
}

static void *count(void *argument)
{
    (void)argument;
    uint64_t last = 0;
    while (!stop) {
        CHECK(atomic_load(counter) == last, "a count was lost");
        atomic_store(counter, ++last);
        if (last % 4096 == 0)
            usleep(100);
    }
    return NULL;
}

static void change(int pages)
{
    for (int i = 0; i < pages; i++) {
        put(draw(PAGES), (uint32_t)draw(1u << 31) + 1);
        if (i % 64 == 0)
            poll(NULL, 0, 0);
    }
}

static void forget(size_t page, size_t pages)
{
    memset(expected + page, 0, pages * sizeof *expected);
}

/* What the program may do with memory that a pass is in the middle of. */
static void disturb(int round)
{
    size_t page = draw(PAGES - 600), pages = 1 + draw(600);
    char *at = memory + page * OD_PAGE;
    size_t len = pages * OD_PAGE;
    switch (round % 6) {
    case 0:
        OK(mmap(at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
        forget(page, pages);
        break;
    case 1:
        OK(madvise(at, len, MADV_DONTNEED));
        forget(page, pages);
        break;
    case 2:
        OK(mprotect(at, len, PROT_READ));
        change(0);
        poll(NULL, 0, 3);
        OK(mprotect(at, len, PROT_READ | PROT_WRITE));
        break;
    case 3:
        OK(madvise(at, len, MADV_DONTDUMP));
        break;
    case 4:
        OK(munmap(at, len));
        poll(NULL, 0, 3);
        OK(mmap(at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
        forget(page, pages);
        break;
    default:
        break;
    }
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Waits end when something happens, and not before their time when nothing does. */
static void wait_for_events(void)
{
    int ends[2], set = OK(epoll_create1(EPOLL_CLOEXEC));
    OK(pipe2(ends, O_CLOEXEC));
    struct pollfd end = {.fd = ends[0], .events = POLLIN};
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7}, found;
    OK(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event));
    uint64_t began = now_ns();
    CHECK(poll(&end, 1, 40) == 0 && epoll_wait(set, &found, 1, 40) == 0, "an event");
    CHECK(now_ns() - began >= 80000000, "waits ended early");
    pid_t pid = od_fork();
    if (pid == 0) {
        for (int i = 0; i < 2; i++) {
            usleep(20000);
            CHECK(write(ends[1], "x", 1) == 1, "write");
        }
        _exit(0);
    }
    char byte;
    CHECK(poll(&end, 1, -1) == 1 && read(ends[0], &byte, 1) == 1, "poll: %s", strerror(errno));
    CHECK(epoll_wait(set, &found, 1, -1) == 1 && found.data.u64 == 7, "epoll_wait");
    od_join(pid);
    close(ends[0]);
    close(ends[1]);
    close(set);
}

/* The child must stay alive for a while, beside changes of the parent. */
static void look(void)
{
    check("child");
    usleep(20000);
    check("child, later");
    put(draw(PAGES), 7);
    check("child, itself");
    _exit(0);
}

int main(void)
{
    memory = OK(mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    expected = OK(mmap(NULL, PAGES * sizeof *expected, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (size_t page = 0; page < PAGES; page++)
        put(page, (uint32_t)page + 1);
    pthread_t thread;
    for (int round = 0; round < ROUNDS; round++) {
        /* Alone first, then beside a thread. */
        if (round == ROUNDS / 2) {
            counter = OK(mmap(NULL, 8 * OD_MB, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
            memset((void *)counter, 0, 8 * OD_MB);
            CHECK(pthread_create(&thread, NULL, count, NULL) == 0, "pthread_create");
        }
        pid_t pid = od_fork();
        if (pid == 0)
            look();
        change(3000);
        od_join(pid);
        for (int i = 0; i < 60; i++) {
            change(20);
            poll(NULL, 0, 1);
            if (round > 1 && i == 20)
                disturb(round);
        }
        if (round % 4 == 1)
            wait_for_events();
        check("parent");
    }
    stop = 1;
    pthread_join(thread, NULL);
    check("parent, at last");
    return od_done();
}
