// odtest: expect=froze timeout=120 mem=64
/*
 * The task that holds the threads is killed at any moment. Everybody goes on, no byte is lost, no
 * thread stays stopped; a thread may see one EINTR where it was held, not more of them than tasks
 * were killed. Forks succeed.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { KILLS = 60, COUNTERS = 2 };
static const size_t BYTES = 8 * OD_MB;
static void *region;
static struct shared {
    atomic_int under_way, kills, done;
} *shared;
static uint64_t *counter[COUNTERS];
static atomic_int interrupted;
static int pair[2], woken[2];

static void killer(void *unused)
{
    char path[64], text[256];
    pid_t parent = getppid();
    uint32_t seed = 5;
    (void)unused;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    while (shared->kills < KILLS) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
        close(fd);
        text[got > 0 ? got : 0] = 0;
        for (char *word = text, *end; strtol(word, &end, 10) && end != word; word = end) {
            pid_t child = (pid_t)strtol(word, NULL, 10);
            if (child == getpid() || !shared->under_way)
                continue;
            usleep(od_random(&seed) % 1500);
            if (shared->under_way && kill(child, SIGKILL) == 0)
                shared->kills++;
        }
    }
    shared->done = 1;
}

static void *count(void *arg)
{
    uint64_t *mine = counter[(long)arg];
    for (uint64_t n = 1; !shared->done; n++) {
        for (size_t at = 0; at < 64; at++) {
            CHECK(mine[at * 1024] == n - 1, "a count is %llu, want %llu",
                  (unsigned long long)mine[at * 1024], (unsigned long long)(n - 1));
            mine[at * 1024] = n;
        }
    }
    return NULL;
}

static void *wait_for_ever(void *unused)
{
    struct epoll_event e = { .events = EPOLLIN };
    int set = OK(epoll_create1(EPOLL_CLOEXEC)), n;
    (void)unused;
    OK(epoll_ctl(set, EPOLL_CTL_ADD, woken[0], &e));
    while ((n = epoll_wait(set, &e, 1, -1)) < 0) {
        CHECK(errno == EINTR, "epoll_wait: %s", strerror(errno));
        interrupted++;
    }
    close(set);
    return NULL;
}

static void *echo(void *unused)
{
    char text[64];
    (void)unused;
    for (ssize_t n; (n = read(pair[0], text, sizeof text)) > 0;)
        OK(write(pair[0], text, (size_t)n));
    return NULL;
}

/* The runtime is loaded. */
static int od_is_here(void) { return dlsym(RTLD_DEFAULT, "odfork_freeze") != NULL; }

int main(void)
{
    pthread_t thread[COUNTERS + 2];
    shared = OK(mmap(NULL, OD_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    region = region_new(BYTES, 30);
    OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
    OK(pipe2(woken, O_CLOEXEC));
    for (long i = 0; i < COUNTERS; i++) {
        counter[i] = od_map(BYTES);
        CHECK(pthread_create(&thread[i], NULL, count, (void *)i) == 0, "pthread_create");
    }
    CHECK(pthread_create(&thread[COUNTERS], NULL, wait_for_ever, NULL) == 0, "pthread_create");
    CHECK(pthread_create(&thread[COUNTERS + 1], NULL, echo, NULL) == 0, "pthread_create");
    pid_t pid = od_spawn(killer, NULL);
    for (size_t round = 0; !shared->done; round++) {
        char byte = (char)round;
        region_touch(region, BYTES, 30, round);
        shared->under_way = 1;
        od_refreeze();
        od_freeze();
        shared->under_way = 0;
        region_look(region, BYTES, 30, "after a kill");
        OK(write(pair[1], &byte, 1));
        CHECK(read(pair[1], &byte, 1) == 1 && byte == (char)round, "no echo");
        if (!od_is_here() && round == 20) { /* no helper to be killed */
            shared->done = 1;
            kill(pid, SIGKILL);
        }
    }
    OK(write(woken[1], "!", 1));
    shutdown(pair[1], SHUT_WR);
    for (int i = 0; i < COUNTERS + 2; i++)
        pthread_join(thread[i], NULL);
    CHECK(interrupted <= shared->kills, "%d EINTR after %d kills", (int)interrupted,
          (int)shared->kills);
    while (waitpid(pid, NULL, 0) > 0) {
    }
    shared->under_way = 0;
    region_look(region, BYTES, 30, "at the end");
    region_look(region, BYTES, 30, "at the end");
    close(pair[0]), close(pair[1]), close(woken[0]), close(woken[1]);
    return od_done();
}
