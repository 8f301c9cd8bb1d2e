// odtest: expect=froze timeout=90 mem=64
/*
 * Another process stops this one and lets it go on, at any moment, while its threads are held. Each
 * time all its tasks are really stopped, and after it all go on; no byte changes, nobody stays
 * behind.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

enum { THREADS = 4, STOPS = 60 };
static const size_t BYTES = 8 * OD_MB;
static void *region;
static struct shared {
    atomic_int done;
} *shared;
static atomic_long counters[THREADS];
static int pair[2];

static void *count(void *arg)
{
    long me = (long)arg;
    char byte;
    while (!shared->done) {
        counters[me]++;
        if (me == 1)
            usleep(300);
        if (me == 2)
            CHECK(read(pair[0], &byte, 1) == 1, "read: %s", strerror(errno));
    }
    return NULL;
}

/* Every task of the process, by the letter of its state. */
static int all_are(pid_t pid, char letter)
{
    char path[300], line[256];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    CHECK(tasks, "%s", path);
    int all = 1;
    for (struct dirent *entry; all && (entry = readdir(tasks));) {
        if (*entry->d_name == '.')
            continue;
        snprintf(path, sizeof path, "/proc/%d/task/%s/stat", (int)pid, entry->d_name);
        FILE *stat = fopen(path, "re");
        if (stat && fgets(line, sizeof line, stat))
            all = strrchr(line, ')')[2] == letter;
        if (stat)
            fclose(stat);
    }
    closedir(tasks);
    return all;
}

static void stopper(void *unused)
{
    (void)unused;
    pid_t pid = getppid();
    uint32_t seed = 7;
    for (int i = 0; i < STOPS; i++) {
        double since = seconds();
        usleep(od_random(&seed) % 4000);
        OK(kill(pid, SIGSTOP));
        while (!all_are(pid, 'T')) {
            usleep(200);
            CHECK(seconds() - since < 60, "stop %d: a task goes on", i);
        }
        OK(kill(pid, SIGCONT));
    }
    shared->done = 1;
}

int main(void)
{
    pthread_t thread[THREADS];
    shared = OK(mmap(NULL, OD_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    region = region_new(BYTES, 30);
    OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], NULL, count, (void *)i) == 0, "pthread_create");
    pid_t pid = od_spawn(stopper, NULL);
    for (size_t round = 0; !shared->done || round < 20; round++) {
        int status;
        region_touch(region, BYTES, 30, round);
        region_look(region, BYTES, 30, "between stops");
        OK(write(pair[1], "x", 1));
        CHECK(waitpid(pid, &status, WNOHANG) != pid || status == 0, "the stopper failed");
    }
    OK(write(pair[1], "yyyyyyyy", 8));
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    while (waitpid(pid, NULL, 0) > 0) {
    }
    close(pair[0]), close(pair[1]);
    return od_done();
}
