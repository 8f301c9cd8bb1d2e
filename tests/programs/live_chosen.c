/* A server with threads that nobody has set anything for: its forks are long and few, so its memory
 * becomes live in its waits. Pages change all the time, a thread counts; every child sees what
 * there was. */
// odtest: modes=stock,auto expect=shared auto=shared timeout=300 mem=1200
#include "odtest.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <time.h>

#define SIZE (512 * OD_MB)
#define PAGES (SIZE / OD_PAGE)

static char *memory;
static uint32_t expected[PAGES];
static atomic_int stop;

static uint32_t *at(size_t page) { return (uint32_t *)(memory + page * OD_PAGE); }

static void put(size_t page, uint32_t value) { *at(page) = expected[page] = value; }

static void check(const char *who)
{
    for (size_t page = 0; page < PAGES; page++)
        CHECK(*at(page) == expected[page], "%s: page %zu is %x, want %x", who, page, *at(page),
              expected[page]);
}

static void *count(void *argument)
{
    (void)argument;
    _Atomic uint32_t *word = (_Atomic uint32_t *)(memory + OD_PAGE - sizeof *word);
    for (uint32_t last = 0; !stop; last++) {
        CHECK(atomic_load(word) == last, "a count was lost");
        atomic_store(word, last + 1);
        usleep(50);
    }
    return NULL;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void grandchild(void *argument)
{
    (void)argument;
    check("grandchild");
}

/* It waits before it forks, as its parent does. */
static void child(void *argument)
{
    static uint32_t seed = 7;
    check("child");
    for (int i = 0; i < 5; i++) {
        put(od_random(&seed) % PAGES, od_random(&seed));
        poll(NULL, 0, 1);
    }
    od_run_child(grandchild, argument);
    poll(NULL, 0, 1);
    check("child, later");
}

/* One request after the other, as long as that. */
static void serve(uint64_t until_ns)
{
    static uint32_t seed = 20261128;
    while (now_ns() < until_ns) {
        put(od_random(&seed) % PAGES, od_random(&seed));
        poll(NULL, 0, 1);
    }
}

int main(void)
{
    /* Where huge pages are everywhere, forks are short. */
    OK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0));
    int has_library = getenv("LD_PRELOAD") != NULL;
    char *room = OK(mmap(NULL, SIZE + 2 * OD_MB, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    memory = (char *)(((uintptr_t)room + 2 * OD_MB - 1) & ~(2 * OD_MB - 1));
    for (size_t page = 0; page < PAGES; page++)
        put(page, (uint32_t)page + 1);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, count, NULL) == 0, "pthread_create");
    uint64_t longest_ns = 0;
    int rounds = has_library ? 40 : 3, live = 0;
    for (int round = 0; round < rounds && live < 3; round++) {
        uint64_t began_ns = now_ns();
        pid_t pid = od_spawn(child, NULL);
        uint64_t took_ns = now_ns() - began_ns;
        longest_ns = took_ns > longest_ns ? took_ns : longest_ns;
        serve(now_ns() + 50000000);
        od_join(pid);
        /* Forks are few. */
        uint64_t rest_ns = has_library && live == 0 ? longest_ns * 200 : 1500000000;
        serve(now_ns() + (rest_ns < 20000000000 ? rest_ns : 20000000000));
        check("parent");
        live += od_shared(memory, SIZE) > 0;
    }
    CHECK(!has_library || live == 3 || longest_ns < 2000000, "never live");
    stop = 1;
    CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
    return od_done();
}
