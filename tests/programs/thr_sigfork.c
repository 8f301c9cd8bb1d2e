// odtest: expect=frozen mem=100
/*
 * Fork inside a signal handler that interrupted malloc, free and realloc, or a fork. The child does
 * what is async-signal-safe: compares and writes memory, forks once more, leaves with _exit. The
 * interrupted program goes on with its heap intact. Nothing on the way of a fork may need a lock
 * the interrupted code holds.
 */
#include "proc_region.h"
#include <sys/time.h>

enum { BLOCKS = 200, HANDLED = 90 };
static const size_t BYTES = 16 * OD_MB;
static void *region;
static volatile sig_atomic_t handled, failed;
static pid_t first;

static volatile sig_atomic_t ringing;

/* One shot, set again at the end of the handler: the interrupted code gets on however long a fork
 * takes. */
static void set_timer(long microseconds)
{
    struct itimerval timer = { { 0, 0 }, { 0, microseconds } };
    ringing = microseconds != 0;
    OK(setitimer(ITIMER_REAL, &timer, NULL));
}

static int intact(void)
{
    const volatile uint64_t *word = region;
    for (size_t i = 0; i < BYTES / 8; i += REGION_STEP)
        if (word[i] != od_word(33, i))
            return 0;
    return 1;
}

static void on_alarm(int sig)
{
    (void)sig;
    if (getpid() != first)
        return;
    int saved = errno, status = 0;
    errno = 77;
    pid_t pid = fork();
    if (pid == 0) {
        int good = intact();
        ((volatile uint64_t *)region)[1] = 5;
        pid_t second = fork();
        if (second == 0)
            _exit(!intact());
        if (second < 0 || waitpid(second, &status, 0) != second || status)
            _exit(2);
        _exit(!good);
    }
    if (pid < 0 || errno != 77)
        failed = 1;
    else if (waitpid(pid, &status, 0) != pid || status)
        failed = 2;
    handled++;
    if (ringing)
        set_timer(1000 + handled % 7 * 300);
    errno = saved;
}

struct block {
    unsigned char *data;
    size_t size;
    unsigned char mark;
};

static void check_block(const struct block *b)
{
    for (size_t i = 0; i < b->size; i += 97)
        CHECK(b->data[i] == b->mark, "block of %zu bytes holds %d at %zu, want %d", b->size,
              b->data[i], i, b->mark);
}

static void work_the_heap(int until, const char *when)
{
    static struct block blocks[BLOCKS];
    uint32_t random = 33;
    while (handled < until) {
        CHECK(!failed, "%s: fork in the handler went wrong: %d", when, (int)failed);
        struct block *b = &blocks[od_random(&random) % BLOCKS];
        size_t size = od_random(&random) % 4 ? od_random(&random) % 3000 + 1
                                             : od_random(&random) % 400000 + 1;
        if (b->data)
            check_block(b);
        if (b->data && od_random(&random) % 2) {
            free(b->data);
            b->data = NULL;
        } else {
            size_t old = b->data ? b->size : 0;
            b->data = realloc(b->data, size);
            CHECK(b->data, "realloc");
            for (size_t i = 0; i < (old < size ? old : size); i += 97)
                CHECK(b->data[i] == b->mark, "realloc lost byte %zu", i);
            b->mark = (unsigned char)od_random(&random);
            b->size = size;
            memset(b->data, b->mark, size);
        }
        if (handled % 30 == 20)
            region_touch(region, BYTES, 33, (size_t)handled);
    }
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i].data)
            check_block(&blocks[i]);
}

int main(void)
{
    struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
    first = getpid();
    region = region_new(BYTES, 33);
    OK(sigaction(SIGALRM, &action, NULL));
    set_timer(1000);
    work_the_heap(HANDLED / 2, "early");
    set_timer(0);
    region_grow_old(region, BYTES, 33);
    set_timer(1000);
    work_the_heap(HANDLED, "late");
    /* The interrupted code is itself a fork. */
    int before = handled;
    for (int i = 0; i < 3000 && handled < before + 25; i++) {
        region_touch(region, BYTES, 33, (size_t)i);
        region_look(region, BYTES, 33, "interrupted fork");
        CHECK(!failed, "fork in a handler that interrupted fork: %d", (int)failed);
    }
    set_timer(0);
    region_check(region, BYTES, 33, 1, "at the end");
    return od_done();
}
