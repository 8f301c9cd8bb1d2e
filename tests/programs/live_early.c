/* Memory that is loaded before anything forks moves in the program's own waits, beside a thread
 * that counts in it, and goes on being written meanwhile. Whether it was frozen before the first
 * fork the program looks up itself: nothing has asked for it but its waits. Half of it is loaded
 * when some of the first half has moved: the pass that is under way has not seen it. Forks come
 * before all of it is shared again; the address space does not grow by that. */
// odtest: modes=stock,slices expect=shared slices=shared timeout=120 mem=400
#include "odtest.h"
#include <pthread.h>
#include <stdatomic.h>

#define SIZE (32 * OD_MB)
#define HALF (SIZE / OD_PAGE)
#define PAGES (2 * HALF)

static char *memory[2];
static uint32_t expected[PAGES];
static atomic_int stop;

/* The last word of the first page is the thread's. */
static _Atomic uint32_t *counter(void)
{
    return (_Atomic uint32_t *)(memory[0] + OD_PAGE - sizeof(uint32_t));
}

static void *count(void *argument)
{
    (void)argument;
    for (uint32_t last = 0; !stop; last++) {
        CHECK(atomic_load(counter()) == last, "a count was lost");
        atomic_store(counter(), last + 1);
        if (last % 1024 == 0)
            usleep(100);
    }
    return NULL;
}

static uint32_t *at(size_t page)
{
    return (uint32_t *)(memory[page / HALF] + page % HALF * OD_PAGE);
}

static void put(size_t page, uint32_t value)
{
    expected[page] = value;
    *at(page) = value;
}

/* One half, on borders of 2 MB, so that all of it is dense. */
static void load(size_t half)
{
    char *room = OK(mmap(NULL, SIZE + 2 * OD_MB, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    memory[half] = (char *)(((uintptr_t)room + 2 * OD_MB - 1) & ~(2 * OD_MB - 1));
    for (size_t page = half * HALF; page < (half + 1) * HALF; page++)
        put(page, (uint32_t)page + 1);
}

static void check(const char *who)
{
    for (size_t page = 0; page < PAGES; page++) {
        uint32_t value = *at(page);
        CHECK(value == expected[page], "%s: page %zu is %x, want %x", who, page, value,
              expected[page]);
    }
}

/* So much of a half shows a file. */
static size_t frozen(size_t half)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL, "maps: %s", strerror(errno));
    char line[400];
    size_t from, to, shown = 0;
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%zx-%zx", &from, &to) == 2 && strstr(line, "(deleted)")
            && from >= (size_t)memory[half] && to <= (size_t)memory[half] + SIZE)
            shown += to - from;
    fclose(maps);
    return shown;
}

static int is_frozen(void)
{
    return frozen(0) + frozen(1) == 2 * SIZE;
}

/* MB of address space. */
static size_t space(void)
{
    FILE *statm = fopen("/proc/self/statm", "r");
    size_t pages = 0;
    CHECK(statm != NULL && fscanf(statm, "%zu", &pages) == 1, "statm");
    fclose(statm);
    return pages * OD_PAGE / OD_MB;
}

static void child(void *argument)
{
    (void)argument;
    check("child");
    put(3, 77);
    usleep(5000);
    check("child, later");
}

int main(void)
{
    load(0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, count, NULL) == 0, "pthread_create");
    /* Until it is: on a slow machine each of its slices is a long one. */
    int waits = getenv("ODFORK_PROFILE") ? 1000000 : 20;
    for (int i = 0; i < waits && !frozen(0); i++) {
        put((size_t)i * 37 % HALF, (uint32_t)i);
        poll(NULL, 0, 1);
    }
    load(1);
    for (int i = 0; i < waits && !(i % 16 == 15 && is_frozen()); i++) {
        put((size_t)i * 37 % PAGES, (uint32_t)i);
        poll(NULL, 0, 1);
    }
    CHECK(!getenv("ODFORK_PROFILE") || is_frozen(), "not frozen before the first fork");
    check("parent");
    size_t before = 0;
    for (int round = 0; round < 24; round++) {
        pid_t pid = od_spawn(child, NULL);
        for (size_t page = 0; page < PAGES; page += 5)
            put(page, (uint32_t)(page + (size_t)round));
        od_join(pid);
        for (int i = 0; i < (round < 4 ? 50 : round % 8); i++)
            poll(NULL, 0, 1);
        check("parent, later");
        if (round == 3)
            before = space();
    }
    CHECK(space() < before + 4 * SIZE / OD_MB, "grew from %zu MB to %zu", before, space());
    stop = 1;
    CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
    return od_done();
}
