// odtest: expect=any timeout=60 mem=64
/*
 * The runtime's lock between threads and borrowers of their memory: vfork children give memory up
 * while threads give memory up and grow it, and another thread freezes and thaws. Whoever took the
 * lock from its holder, or read what is frozen while it changed, would let the kernel show a page's
 * old bytes where zeros must be.
 */
#include "odtest.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { THREADS = 2, ROUNDS = 40 };
static const size_t BYTES = 2 * OD_MB;
static atomic_int stop, old_bytes;

static char *map(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED, "mmap: %s", strerror(errno));
    return at;
}

static void count_old(const char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += OD_PAGE)
        old_bytes += at[i] != 0;
}

/* Advice may fail while memory moves (EAGAIN), and so may growing (ENOMEM); what succeeds must show
 * zeros. */
static void *give_up_and_grow(void *unused)
{
    while (!stop) {
        char *at = map(BYTES), *grown;
        memset(at, 7, BYTES);
        usleep(300);
        int given_up = madvise(at, BYTES, MADV_DONTNEED) == 0;
        if (given_up)
            count_old(at, BYTES);
        grown = mremap(at, BYTES, 2 * BYTES, MREMAP_MAYMOVE);
        if (grown != MAP_FAILED)
            count_old(given_up ? grown : grown + BYTES, given_up ? 2 * BYTES : BYTES);
        munmap(grown == MAP_FAILED ? at : grown, grown == MAP_FAILED ? BYTES : 2 * BYTES);
    }
    return unused;
}

static void *freeze_and_thaw(void *unused)
{
    while (!stop) {
        od_freeze();
        usleep(500);
        od_thaw();
    }
    return unused;
}

int main(void)
{
    pthread_t threads[THREADS + 1];
    char *region = map(16 * OD_MB), *own = map(BYTES);
    od_fill(region, 16 * OD_MB, 1);
    CHECK(pthread_create(&threads[0], NULL, freeze_and_thaw, NULL) == 0, "pthread_create");
    for (int i = 1; i <= THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, give_up_and_grow, NULL) == 0, "pthread_create");
    for (int round = 0; round < ROUNDS; round++) {
        int status;
        memset(own, 5, BYTES);
        pid_t pid = vfork();
        if (pid == 0) {
            if (madvise(own, BYTES, MADV_DONTNEED) == 0)
                count_old(own, BYTES);
            _exit(0);
        }
        CHECK(pid > 0, "vfork: %s", strerror(errno));
        CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the vfork child ended with %#x",
              (unsigned)status);
    }
    stop = 1;
    for (int i = 0; i <= THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(old_bytes == 0, "%d pages showed bytes that were given up", old_bytes);
    od_verify(region, 16 * OD_MB, 1, "region");
    return od_done();
}
