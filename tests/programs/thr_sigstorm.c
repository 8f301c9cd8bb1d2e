// odtest: expect=froze timeout=60 mem=64 user=any
/*
 * A storm of SIGALRM, a thousand a second, whose handler counts in frozen memory, over 200 forks
 * with freezes and folds: no count may be lost. First in a single-threaded process, then with the
 * signals taken by another thread while the main one forks. The truth is kept in shared memory,
 * which is never frozen.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/time.h>

enum { PAGES = 4096, FORKS = 100 };
static const size_t BYTES = PAGES * OD_PAGE;
static unsigned char *region;
static volatile uint64_t *truth;        /* MAP_SHARED: handler runs of the first process */
static volatile uint64_t in_data;       /* .bss: small, yet it may be frozen with its neighbours */
static pid_t first;

static volatile uint64_t *slot(uint64_t n)
{
    return (volatile uint64_t *)(region + n * 17 % PAGES * OD_PAGE + 504);
}

static void on_alarm(int sig)
{
    (void)sig;
    if (getpid() != first)
        return;
    int saved = errno;
    uint64_t n = *truth;
    for (int i = 0; i < 3; i++)
        (*slot(n + (uint64_t)i * 1000))++;
    in_data++;
    *truth = n + 1;
    errno = saved;
}

static void clear(void)
{
    for (uint64_t n = 0; n < PAGES; n++)
        *slot(n) = 0;
    in_data = *truth = 0;
}

static void set_timer(long microseconds)
{
    struct itimerval timer = { { 0, microseconds }, { 0, microseconds } };
    OK(setitimer(ITIMER_REAL, &timer, NULL));
}

static void count_up(const char *when)
{
    uint64_t sum = 0;
    for (uint64_t n = 0; n < PAGES; n++)
        sum += *slot(n);
    CHECK(sum == 3 * *truth && in_data == *truth,
          "%s: %llu handler runs, %llu counts (want 3 each), %llu in .bss", when,
          (unsigned long long)*truth, (unsigned long long)sum, (unsigned long long)in_data);
}

static void fork_in_the_storm(const char *when)
{
    for (int i = 0; i < FORKS || *truth < 200; i++) {
        CHECK(i < 1000 * FORKS, "%s: only %llu signals in %d forks", when,
              (unsigned long long)*truth, i);
        errno = 77;
        uint64_t before = *truth;
        pid_t pid = fork();
        CHECK(pid >= 0 && errno == 77, "%s: fork gave %d: %s", when, pid, strerror(errno));
        if (pid == 0) {
            uint64_t sum = 0;
            for (uint64_t n = 0; n < PAGES; n++)
                sum += *slot(n);
            CHECK(sum >= 3 * before, "%s: child sees %llu, %llu were made before fork", when,
                  (unsigned long long)sum, (unsigned long long)(3 * before));
            _exit(0);
        }
        od_join(pid);
        if (i % 25 == 10)
            od_refreeze();
        if (i == 60)
            od_thaw();
    }
}

static volatile int storm_over;

static void *take_signals(void *unused)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    while (!storm_over)
        pause();
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    return unused;
}

int main(void)
{
    struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
    pthread_t thread;
    sigset_t set;
    first = getpid();
    region = region_new(BYTES, 32);
    truth = OK(mmap(NULL, OD_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    OK(sigaction(SIGALRM, &action, NULL));
    clear();
    set_timer(1000);
    fork_in_the_storm("one thread");
    set_timer(0);
    count_up("one thread");
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    clear();
    CHECK(pthread_create(&thread, NULL, take_signals, NULL) == 0, "pthread_create");
    set_timer(1000);
    fork_in_the_storm("another thread");
    storm_over = 1;
    usleep(20000);
    set_timer(0);
    pthread_kill(thread, SIGALRM); /* should it still be in pause() */
    pthread_join(thread, NULL);
    count_up("another thread");
    region_check(region, BYTES, 32, 512, "at the end"); /* the first word of each page: no slot */
    struct timespec none = { 0, 0 };
    while (sigtimedwait(&set, NULL, &none) > 0)
        ;
    return od_done();
}
