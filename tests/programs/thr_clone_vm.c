// odtest: expect=any timeout=60 mem=64
/*
 * No lost write by tasks that share the memory without being threads of the process:
 * a raw clone(CLONE_VM) sibling, and a vfork child that works before it ends.
 * Both count in the region while the process forks and freezes; the process sees every count.
 * A child has memory of its own, and may freeze it. Calls that make memory anonymous again lose no
 * count either: of the process, and of a vfork child beside another thread.
 */
#include "proc_region.h"
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { PAGES = 4096, FORKS = 60 };
static const size_t BYTES = PAGES * OD_PAGE;
static unsigned char *region;
static volatile uint64_t *oracle; /* MAP_SHARED: [0] counts made, [1] stop, [2] running */

/* Counter of a page: its last word, which the pattern check leaves out (step 64 never lands on
 * 511). */
static volatile uint64_t *slot(uint64_t n)
{
    return (uint64_t *)(region + n % PAGES * OD_PAGE + 4088);
}

static inline void rest_a_little(void)
{
#if defined __x86_64__
    __asm__ volatile("pause");
#else
    __asm__ volatile("yield");
#endif
}

/* Nothing but memory writes here: this task shares even the thread pointer with its maker. */
static int count_without_libc(void *unused)
{
    (void)unused;
    oracle[2] = 1;
    while (!oracle[1]) {
        uint64_t n = oracle[0];
        (*slot(n * 7))++;
        oracle[0] = n + 1;
        for (int i = 0; i < 300; i++)
            rest_a_little();
    }
    return 0;
}

static void clear_slots(void)
{
    for (uint64_t n = 0; n < PAGES; n++)
        *slot(n) = 0;
    oracle[0] = oracle[1] = oracle[2] = 0;
}

static void check_slots(const char *when)
{
    uint64_t sum = 0;
    for (uint64_t n = 0; n < PAGES; n++)
        sum += *slot(n);
    CHECK(sum == oracle[0], "%s: %lu writes made, %lu found", when, oracle[0], sum);
    CHECK(sum > 1000, "%s: the sibling hardly ran (%lu)", when, sum);
    region_check(region, BYTES, 5, 64, when);
}

static void make_anonymous(void)
{
    OK(madvise(region, BYTES, MADV_DONTDUMP));
    OK(madvise(region, BYTES, MADV_DODUMP));
    malloc_trim(0);
}

static void fork_much(const char *when)
{
    while (!oracle[2])
        sched_yield();
    for (int i = 0; i < FORKS; i++) {
        uint64_t before = oracle[0];
        pid_t pid = fork();
        CHECK(pid >= 0, "%s: fork", when);
        if (pid == 0) {
            uint64_t sum = 0;
            for (uint64_t n = 0; n < PAGES; n++)
                sum += *slot(n);
            CHECK(sum >= before, "%s: child sees %lu, %lu were made before fork", when, sum,
                  before);
            _exit(0);
        }
        od_join(pid);
        if (i % 10 == 5)
            od_refreeze();
        if (i % 10 == 7)
            make_anonymous();
        if (i == 30)
            od_thaw();
        if (i == 40)
            od_freeze();
    }
}

/* What it shares with its living parent is not worth it. */
static void freezes(void *when)
{
    int is_covered = od_number("pid") != 0;
    unsigned char *own = region_new(16 * OD_MB, 6);
    CHECK(!is_covered || od_call(OD_FREEZE) == 0, "a child's memory cannot be frozen");
    region_check(own, 16 * OD_MB, 6, 64, when);
}

/* The C library's other name for it, in no header. */
int __clone(int (*run)(void *), void *stack, int flags, void *argument, ...);
typedef int (*Maker)(int (*run)(void *), void *stack, int flags, void *argument, ...);

static void with_clone_sibling(Maker make, const char *when)
{
    static unsigned char stack[65536] __attribute__((aligned(64)));
    clear_slots();
    pid_t sibling = make(count_without_libc, stack + sizeof stack,
                         CLONE_VM | CLONE_FS | CLONE_FILES | SIGCHLD, NULL);
    CHECK(sibling > 0, "clone(CLONE_VM)");
    fork_much(when);
    od_run_child(freezes, (void *)when);
    oracle[1] = 1;
    od_join(sibling);
    check_slots(when);
}

static void *vfork_and_count(void *unused)
{
    pid_t pid = vfork();
    if (pid == 0) {
        count_without_libc(unused);
        _exit(0);
    }
    CHECK(pid > 0, "vfork");
    od_join(pid);
    return NULL;
}

static void with_vfork_sibling(const char *when)
{
    pthread_t thread;
    clear_slots();
    CHECK(pthread_create(&thread, NULL, vfork_and_count, NULL) == 0, "pthread_create");
    fork_much(when);
    oracle[1] = 1;
    pthread_join(thread, NULL);
    check_slots(when);
}

static void *count(void *unused)
{
    count_without_libc(unused);
    return NULL;
}

static void with_a_borrower(const char *when)
{
    pthread_t thread;
    clear_slots();
    CHECK(pthread_create(&thread, NULL, count, NULL) == 0, "pthread_create");
    while (!oracle[2])
        sched_yield();
    for (int i = 0; i < 10; i++) {
        od_freeze();
        od_refreeze();
        pid_t pid = OK(vfork());
        if (pid == 0) {
            make_anonymous();
            _exit(0);
        }
        od_join(pid);
        for (uint64_t was = oracle[0]; oracle[0] < was + 500;)
            sched_yield();
    }
    oracle[1] = 1;
    pthread_join(thread, NULL);
    check_slots(when);
}

int main(void)
{
    region = region_new(BYTES, 5);
    oracle = mmap(NULL, OD_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    region_grow_old(region, OD_PAGE, 5);
    with_a_borrower("a vfork child's calls");
    with_clone_sibling(__clone, "__clone sibling, early");
    with_clone_sibling(clone, "clone sibling, early");
    region_grow_old(region, OD_PAGE, 5);
    od_freeze();
    with_clone_sibling(clone, "clone sibling, late");
    with_vfork_sibling("vfork sibling, early");
    with_vfork_sibling("vfork sibling, late");
    printf("no write of a memory-sharing sibling lost\n");
    return 0;
}
