/* Memory is given up in parts of 4 KB to 1 MB, at random, between writes and forks: by the parent,
 * by children, with another thread there or not, through every call that gives content up, under
 * every access. A model knows each page. */
// odtest: expect=froze user=any timeout=90 mem=300
// odtest: link=-lpthread
#define SIZE (24 * OD_MB)
#include "mem_pages.h"
#include <pthread.h>

#define ROUNDS 3
#define CALLS 160

static uint32_t seed = 7;

static void set(size_t page, size_t pages, uint32_t gen)
{
    for (size_t i = page; i < page + pages; i++)
        gen_of[i] = gen;
    if (gen)
        od_fill_at(world + page * OD_PAGE, pages * OD_PAGE, gen, page * 512);
}

/* Mostly a few pages, sometimes up to 1 MB. */
static size_t some_pages(void)
{
    static const size_t most[] = {1, 1, 2, 4, 4, 8, 15, 16, 17, 64, 256};
    return 1 + od_random(&seed) % most[od_random(&seed) % 11];
}

static void give_up(size_t page, size_t pages)
{
    char *start = world + page * OD_PAGE;
    size_t bytes = pages * OD_PAGE;
    switch (od_random(&seed) % 6) {
    case 0:
        OK(syscall(SYS_madvise, start, bytes, MADV_DONTNEED));
        break;
    case 1:
        OK(mprotect(start, bytes, PROT_READ));
        OK(madvise(start, bytes, MADV_DONTNEED));
        for (size_t i = 0; i < bytes; i += OD_PAGE)
            CHECK(start[i] == 0, "page %zu of memory that can only be read", i / OD_PAGE);
        OK(mprotect(start, bytes, PROT_READ | PROT_WRITE));
        break;
    case 2:
        OK(mprotect(start, bytes, PROT_NONE));
        OK(madvise(start, bytes, MADV_DONTNEED));
        OK(mprotect(start, bytes, PROT_READ | PROT_WRITE));
        break;
    case 3: /* written anew at once: the kernel may keep the content or not */
        OK(madvise(start, bytes, MADV_FREE));
        set(page, pages, 1 + od_random(&seed) % 1000);
        return;
    case 4:
        CHECK(mmap(start, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                   -1, 0) == start,
              "mmap: %s", strerror(errno));
        break;
    default:
        OK(madvise(start, bytes, MADV_DONTNEED));
    }
    set(page, pages, 0);
}

static void play(int calls)
{
    for (int i = 0; i < calls; i++) {
        size_t pages = some_pages(), page = od_random(&seed) % (PAGES - pages);
        if (od_random(&seed) % 4 == 0)
            set(page, pages, 1 + od_random(&seed) % 1000);
        else
            give_up(page, pages);
    }
}

static void grandchild(void *who) { verify(who); }

static void child(void *argument)
{
    seed += 13 + *(int *)argument;
    verify("child");
    play(CALLS);
    verify("child after its calls");
    od_run_child(grandchild, "grandchild");
    play(CALLS / 4);
    od_refreeze();
    od_run_child(grandchild, "grandchild after a fold");
    verify("child at the end");
}

static pthread_mutex_t stop = PTHREAD_MUTEX_INITIALIZER;

static void *idle(void *argument)
{
    pthread_mutex_lock(&stop);
    pthread_mutex_unlock(&stop);
    return argument;
}

static void with_a_thread(void)
{
    pthread_t thread;
    int number = 99;
    pthread_mutex_lock(&stop);
    CHECK(pthread_create(&thread, NULL, idle, NULL) == 0, "pthread_create");
    play(CALLS);
    verify("parent with a thread");
    od_run_child(child, &number);
    play(CALLS);
    verify("parent with a thread, after a child");
    pthread_mutex_unlock(&stop);
    pthread_join(thread, NULL);
}

int main(void)
{
    world = od_map(SIZE);
    for (int round = 0; round < ROUNDS; round++) {
        set(0, PAGES, 2000 + round);
        od_run_child(child, &round); /* eager: frozen here */
        pid_t early = od_spawn(child, &round);
        play(CALLS);
        verify("parent");
        od_join(early);
        od_refreeze();
        verify("parent after a fold");
        od_run_child(child, &round);
        with_a_thread();
        verify("parent at the end of a round");
    }
    return od_done();
}
