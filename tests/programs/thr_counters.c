// odtest: expect=froze timeout=60 mem=200
/*
 * No lost write: four threads count in a 64 MB region, plainly and atomically, while the main
 * thread forks 200 times. Sums must be exact at the end. Each thread's pages move on with every
 * fork, so that all of the region is written, yet a fold has only some megabytes to do.
 * Cause before effect, in every child: y is written after x, and b after having read a.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 4, FORKS = 200, PAGES = 16384, WINDOW = 128, PAIRS = 32 };
static const size_t BYTES = PAGES * OD_PAGE;

struct pair { /* one page apart: x in one mapping half, y in the other */
    volatile uint64_t *x, *y;
};

static unsigned char *region;
static struct pair pairs[THREADS][PAIRS];
static volatile uint64_t *announced[THREADS]; /* in the region: additions completed by the thread */
/* a by thread 0; b by thread 1 after it has read a */
static _Atomic uint64_t *token_a, *token_b;
static uint64_t *oracle;                       /* MAP_SHARED, never frozen: truth per thread */
static atomic_int epoch, stop;

/* Page p of thread t holds a plain count at byte 8 * (p % 200), an atomic one at 2048 + the same.
 */
static volatile uint64_t *plain_slot(unsigned page)
{
    return (uint64_t *)(region + page * OD_PAGE + 8 * (page % 200));
}
static _Atomic uint64_t *atomic_slot(unsigned page)
{
    return (_Atomic uint64_t *)(region + page * OD_PAGE + 2048 + 8 * (page % 200));
}

static void *count(void *arg)
{
    unsigned me = (unsigned)(uintptr_t)arg, seed = me + 1;
    uint64_t done = 0;
    while (!atomic_load(&stop)) {
        unsigned start = (unsigned)atomic_load(&epoch) * WINDOW;
        for (unsigned i = 0; i < 200; i++) {
            seed = seed * 1103515245 + 12345;
            unsigned page = ((start + (seed >> 16) % WINDOW) * THREADS + me) % (PAGES - 64);
            (*plain_slot(page))++;
            atomic_fetch_add(atomic_slot(((start + (seed >> 8) % WINDOW) * THREADS) % (PAGES - 64)),
                             1);
            oracle[me * 8] = ++done;
            atomic_thread_fence(memory_order_seq_cst);
            *announced[me] = done;
            struct pair *p = &pairs[me][(seed >> 20) % PAIRS];
            *p->x = *p->x + 1;
            atomic_thread_fence(memory_order_seq_cst);
            *p->y = *p->y + 1;
            if (me == 0)
                atomic_fetch_add(token_a, 1);
            if (me == 1)
                atomic_store(token_b, atomic_load(token_a));
        }
        struct timespec pause = { 0, 50000 };
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static void look(unsigned fork_number)
{
    for (unsigned t = 0; t < THREADS; t++)
        for (unsigned i = 0; i < PAIRS; i++) {
            uint64_t x = *pairs[t][i].x, y = *pairs[t][i].y;
            CHECK(y <= x && x <= y + 1, "fork %u: thread %u pair %u shows x=%lu y=%lu", fork_number,
                  t, i, x, y);
        }
    uint64_t a = atomic_load(token_a), b = atomic_load(token_b);
    CHECK(b <= a, "fork %u: effect b=%lu without its cause a=%lu", fork_number, b, a);
    if (fork_number % 20)
        return;
    for (unsigned t = 0; t < THREADS; t++) {
        uint64_t sum = 0, told = *announced[t];
        for (unsigned page = t; page < PAGES - 64; page += THREADS)
            sum += *plain_slot(page);
        CHECK(sum >= told && sum <= told + 1, "fork %u: thread %u sum %lu, announced %lu",
              fork_number, t, sum, told);
    }
}

static void lay_out(void)
{
    region = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    oracle = mmap(NULL, OD_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(region != MAP_FAILED && oracle != MAP_FAILED, "mmap");
    for (unsigned page = 0; page < PAGES; page++)
        region[page * OD_PAGE + 4095] = 0xA5;
    for (unsigned t = 0; t < THREADS; t++) {
        for (unsigned i = 0; i < PAIRS; i++) { /* at offsets no slot uses */
            size_t low = (size_t)(t * PAIRS + i) * 61, high = PAGES - 65 - low;
            pairs[t][i].x = (uint64_t *)(region + (i % 2 ? low : high) * OD_PAGE + 4080);
            pairs[t][i].y = (uint64_t *)(region + (i % 2 ? high : low) * OD_PAGE + 4072);
        }
        announced[t] = (uint64_t *)(region + (PAGES - 1 - 8 * t) * OD_PAGE);
    }
    token_a = (_Atomic uint64_t *)(region + 64 * OD_PAGE + 4000);
    token_b = (_Atomic uint64_t *)(region + (PAGES - 64) * OD_PAGE + 4000);
}

int main(void)
{
    pthread_t thread[THREADS];
    lay_out();
    for (uintptr_t t = 0; t < THREADS; t++)
        CHECK(pthread_create(&thread[t], NULL, count, (void *)t) == 0, "pthread_create");
    for (unsigned n = 0; n < FORKS; n++) {
        pid_t pid = fork();
        CHECK(pid >= 0, "fork %u", n);
        if (pid == 0) {
            look(n);
            _exit(0);
        }
        atomic_fetch_add(&epoch, 1);
        if (n % 40 == 39)
            od_refreeze();
        if (n == 120)
            od_thaw();
        od_join(pid);
    }
    atomic_store(&stop, 1);
    uint64_t plain = 0, atomic = 0, truth = 0;
    for (unsigned t = 0; t < THREADS; t++)
        pthread_join(thread[t], NULL);
    for (unsigned t = 0; t < THREADS; t++) {
        uint64_t sum = 0;
        for (unsigned page = t; page < PAGES - 64; page += THREADS)
            sum += *plain_slot(page);
        CHECK(sum == oracle[t * 8], "thread %u counted %lu, region holds %lu", t, oracle[t * 8],
              sum);
        plain += sum;
        truth += oracle[t * 8];
    }
    for (unsigned page = 0; page < PAGES; page++) {
        CHECK(region[page * OD_PAGE + 4095] == 0xA5, "mark of page %u", page);
        atomic += atomic_load(atomic_slot(page));
    }
    CHECK(plain == truth && atomic == truth, "plain %lu atomic %lu truth %lu", plain, atomic,
          truth);
    look(FORKS);
    CHECK(truth > 10000, "threads hardly ran: %lu", truth);
    printf("counters exact\n");
    return 0;
}
