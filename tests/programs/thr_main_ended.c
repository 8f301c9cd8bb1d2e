// odtest: expect=any mem=100 timeout=60
/*
 * The main thread has ended, and one of the others reads past the page cache while one forks: no
 * read is lost. The reader's descriptor is in the common table or in a table of the reader's own,
 * in memory that is frozen or new.
 */
#include "proc_region.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { FORKS = 80, BUFFER = 1 << 20 };
static const size_t BYTES = 24 * OD_MB;
static unsigned char *region;
static char path[64];
static atomic_int stop, reads;

static void *reader(void *own_table)
{
    volatile uint64_t *buffer = (uint64_t *)(region + 8 * OD_MB);
    if (own_table)
        OK(unshare(CLONE_FILES));
    int file = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    while (!stop && file >= 0) {
        for (size_t i = 0; i < BUFFER / 8; i += 512)
            buffer[i] = 0;
        CHECK(pread(file, (void *)buffer, BUFFER, 0) == BUFFER, "pread: %s", strerror(errno));
        for (size_t i = 0; i < BUFFER / 8; i += 512)
            CHECK(buffer[i] == od_word(5, i), "page %zu of read %d holds %#llx", i / 512,
                  (int)reads, (unsigned long long)buffer[i]);
        reads++;
    }
    if (file >= 0)
        close(file);
    return NULL;
}

static void beside_reader(void *own_table)
{
    pthread_t thread;
    stop = 0;
    CHECK(pthread_create(&thread, NULL, reader, own_table) == 0, "no reader");
    for (int i = 0; i < FORKS; i++) {
        region_touch(region + 16 * OD_MB, 8 * OD_MB, 3, (size_t)i);
        region_look(region + 16 * OD_MB, 8 * OD_MB, 3, "beside the reader");
    }
    stop = 1;
    pthread_join(thread, NULL);
}

static void *forker(void *main_thread)
{
    pthread_join(*(pthread_t *)main_thread, NULL);
    beside_reader(NULL);
    beside_reader(&stop);
    unlink(path);
    region_look(region + 16 * OD_MB, 8 * OD_MB, 3, "at the end");
    fflush(stdout);
    _exit(0);
}

int main(void)
{
    static pthread_t self;
    pthread_t thread;
    self = pthread_self();
    region = od_map(BYTES);
    od_fill(region, BUFFER, 5);
    snprintf(path, sizeof path, "/tmp/odtest-direct-%d", (int)getpid());
    int file = OK(open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600));
    CHECK(write(file, region, BUFFER) == BUFFER, "write: %s", strerror(errno));
    OK(fsync(file));
    close(file);
    od_fill(region + 16 * OD_MB, 8 * OD_MB, 3);
    memset(region + 8 * OD_MB, 1, 8 * OD_MB);
    od_freeze();
    CHECK(pthread_create(&thread, NULL, forker, &self) == 0, "no thread");
    pthread_exit(NULL);
}
