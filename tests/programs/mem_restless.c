/* A program gives parts of frozen memory back so often that the memory becomes anonymous again, in
 * the middle of its calls: while another thread writes beside them, after it, with a child that
 * still shows the files, and through later forks. A model knows each page. */
// odtest: expect=froze user=any timeout=120 mem=300
// odtest: link=-lpthread
#define SIZE (48 * OD_MB)
#define PAGES (SIZE / OD_PAGE)
#include "odtest.h"
#include <pthread.h>
#include <stdatomic.h>

static char *world;
static uint32_t gen_of[PAGES]; /* 0: zeros */

/* More than it takes until the calls have cost what a thaw costs. */
#define MOST_CALLS 60000
/* The page in so many that a thread writes all the time: it is never given back. */
#define BUSY 64

static uint32_t seed = 11;
static atomic_int stop;
static atomic_long written;

/* Bytes of the world that show a file. */
static size_t frozen(void)
{
    size_t bytes = 0;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, end, inode;
        CHECK(sscanf(line, "%lx-%lx %*s %*s %*s %lu", &start, &end, &inode) == 3, "%s", line);
        unsigned long from = (unsigned long)world, to = from + SIZE;
        from = from > start ? from : start;
        to = to < end ? to : end;
        if (inode && from < to)
            bytes += to - from;
    }
    OK(fclose(maps));
    return bytes;
}

static void set(size_t page, size_t pages, uint32_t gen)
{
    for (size_t i = page; i < page + pages; i++) {
        if (i % BUSY == 0)
            continue;
        gen_of[i] = gen;
        if (gen)
            od_fill_at(world + i * OD_PAGE, OD_PAGE, gen, i * 512);
    }
}

/* Some pages between two busy ones are given back, and some of them written again. */
static void play(int calls)
{
    for (int i = 0; i < calls; i++) {
        size_t page = od_random(&seed) % PAGES / BUSY * BUSY + 1 + od_random(&seed) % (BUSY - 8);
        size_t pages = 1 + od_random(&seed) % 7;
        OK(madvise(world + page * OD_PAGE, pages * OD_PAGE, MADV_DONTNEED));
        set(page, pages, 0);
        set(page, 1 + od_random(&seed) % pages, 1 + od_random(&seed) % 1000);
    }
}

static void check(const char *who)
{
    for (size_t page = 0; page < PAGES; page++)
        if (page % BUSY == 0)
            continue;
        else if (gen_of[page])
            od_verify_at(world + page * OD_PAGE, OD_PAGE, gen_of[page], page * 512, who);
        else
            od_verify_zero(world + page * OD_PAGE, OD_PAGE, who);
}

static void child(void *who)
{
    play(300);
    check(who);
}

/* Adds to a word of every busy page, round after round: no addition is ever lost. */
static void *add(void *argument)
{
    long rounds = 0;
    while (!stop) {
        for (size_t page = 0; page < PAGES; page += BUSY) {
            long *word = (long *)(world + page * OD_PAGE) + 7;
            CHECK(*word == rounds, "page %zu: %ld in round %ld", page, *word, rounds);
            *word = rounds + 1;
        }
        written = ++rounds;
    }
    return argument;
}

static void clear_busy(void)
{
    for (size_t page = 0; page < PAGES; page += BUSY)
        memset(world + page * OD_PAGE, 0, OD_PAGE);
}

/* Nothing is thawed for this where memory is live, or moves in slices. */
static int may_thaw(void) { return !getenv("ODFORK_PROFILE") && !getenv("ODFORK_MAX_PAUSE"); }

/* Gives back until nothing shows a file. */
static void until_anonymous(const char *who)
{
    int calls = 0;
    while (may_thaw() && frozen() > 0 && calls < MOST_CALLS) {
        play(500);
        calls += 500;
    }
    check(who);
    CHECK(!may_thaw() || frozen() == 0, "%s: %zu bytes show a file after %d calls", who, frozen(),
          calls);
}

/* So many page faults that the next fork looks what there is. */
static void fault(void)
{
    char *fresh = od_map(2 * OD_MB);
    od_small_pages(fresh, 2 * OD_MB);
    memset(fresh, 1, 2 * OD_MB);
    OK(munmap(fresh, 2 * OD_MB));
}

static void with_a_thread(void)
{
    pthread_t thread;
    clear_busy();
    stop = 0;
    CHECK(pthread_create(&thread, NULL, add, NULL) == 0, "pthread_create");
    while (written < 3)
        usleep(100);
    for (int round = 0; round < 40; round++) {
        if (round >= 6 && (!may_thaw() || frozen() == 0))
            break;
        play(600);
        od_run_child(child, "child beside a thread");
    }
    stop = 1;
    pthread_join(thread, NULL);
    check("parent with a thread");
}

int main(void)
{
    world = od_map(SIZE);
    set(0, PAGES, 77);
    clear_busy();
    od_run_child(child, "first child"); /* eager: frozen here */
    size_t before = frozen();
    struct od_gate gate;
    od_gate_make(&gate);
    pid_t early = od_fork();
    if (early == 0) {
        od_gate_wait(&gate);
        check("child that waited");
        _exit(0);
    }
    play(3000);
    check("parent beside a child");
    od_gate_open(&gate, 1);
    od_join(early);
    od_gate_drop(&gate);
    until_anonymous("parent");
    set(0, PAGES, 78);
    od_run_child(child, "child of anonymous memory");
    CHECK(!may_thaw() || frozen() <= before / 2, "frozen again at once: %zu bytes", frozen());
    for (int i = 0; i < 70; i++) {
        fault();
        od_run_child(child, "one of many children");
    }
    check("parent after many");
    CHECK(frozen() >= before / 2, "not frozen again after many forks: %zu bytes", frozen());
    until_anonymous("parent, once more");
    set(0, PAGES, 79);
    od_freeze();
    od_run_child(child, "child after a freeze");
    with_a_thread();
    return od_done();
}
