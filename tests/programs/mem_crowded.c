/* Areas that are frozen, given up in small parts beside a thread and thawed as a whole, one after
 * the other: the kernel's limit of mappings stays far away. Guards in every other page reach it:
 * each is had, and guards, or is refused. */
// odtest: expect=froze user=any timeout=120 mem=900
// odtest: link=-lpthread
#include "odtest.h"
#include <malloc.h>
#include <pthread.h>

#define GUARD_INSTALL 102 /* Linux 6.13 */
#define GUARDED (258 * OD_MB)
#define AREA (10 * OD_MB)
#define AREAS 24
#define PART 16384

static void nothing(void *argument) { (void)argument; }

static void guards(void)
{
    char *at = od_map(GUARDED), *had = od_map(GUARDED / OD_PAGE);
    od_fill(at, GUARDED, 1);
    od_run_child(nothing, NULL); /* eager: frozen here */
    if (madvise(at, OD_PAGE, GUARD_INSTALL)) {
        CHECK(errno == EINVAL, "guard: %s", strerror(errno));
        fprintf(stderr, "no guards: this kernel has none\n");
        return;
    }
    size_t count = 0;
    for (size_t page = 0; page < GUARDED; page += 2 * OD_PAGE) {
        int is_had = madvise(at + page, OD_PAGE, GUARD_INSTALL) == 0;
        CHECK(is_had || count > 16000, "guard %zu: %s", count, strerror(errno));
        had[page / OD_PAGE] = (char)is_had;
        count += (size_t)is_had;
    }
    for (size_t page = 0; page < GUARDED; page += 2 * OD_PAGE) {
        CHECK(!had[page / OD_PAGE] || !od_is_readable(at + page), "the guard at %zu is open", page);
        od_verify_at(at + page + OD_PAGE, OD_PAGE, 1, (page + OD_PAGE) / 8, "beside a guard");
    }
    OK(munmap(at, GUARDED));
}

static pthread_mutex_t stop = PTHREAD_MUTEX_INITIALIZER;

static void *idle(void *argument)
{
    pthread_mutex_lock(&stop);
    pthread_mutex_unlock(&stop);
    return argument;
}

static void give_up(char *area)
{
    pthread_t thread;
    od_run_child(nothing, NULL);
    pthread_mutex_lock(&stop);
    CHECK(pthread_create(&thread, NULL, idle, NULL) == 0, "pthread_create");
    for (size_t at = 0; at < AREA; at += 2 * PART)
        OK(madvise(area + at, PART, MADV_DONTNEED));
    pthread_mutex_unlock(&stop);
    pthread_join(thread, NULL);
    for (size_t at = 0; at < AREA; at += 2 * PART) {
        od_verify_zero(area + at, PART, "given up");
        od_verify_at(area + at + PART, PART, 1, (at + PART) / 8, "between");
    }
}

int main(void)
{
    for (int i = 0; i < AREAS; i++) {
        char *area = od_map(AREA);
        od_fill(area, AREA, 1);
        give_up(area);
        malloc_trim(0); /* thaws everything */
    }
    CHECK(od_mappings() < 5000, "%d mappings after %d areas", od_mappings(), AREAS);
    guards();
    return od_done();
}
