// odtest: expect=froze timeout=90 mem=64
/*
 * A thread opens a named pipe and waits for the other end. Whoever knows that it waits may open the
 * other end without waiting: it is never told that nobody is there, while the program forks again
 * and again.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

enum { TURNS = 40 };
static const size_t BYTES = 8 * OD_MB;
static atomic_int *tid, *turns, *visits;

static void *open_again(void *unused)
{
    (void)unused;
    for (int i = 0; i < TURNS; i++) {
        char byte = 0;
        *tid = (int)syscall(SYS_gettid);
        int fd = OK(open("pipe", O_RDONLY | O_CLOEXEC));
        *tid = 0;
        CHECK(read(fd, &byte, 1) == 1 && byte == 'x', "read: %d", byte);
        close(fd);
        while (*visits <= i)
            usleep(100);
        *turns = i + 1;
    }
    return NULL;
}

/* In the kernel's function, which Yama does not hide as it hides the call. */
static int waits(int thread)
{
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/%d/task/%d/wchan", (int)getppid(), thread);
    FILE *file = fopen(path, "re");
    if (file) {
        if (!fgets(line, sizeof line, file))
            *line = 0;
        fclose(file);
    }
    return strcmp(line, "wait_for_partner") == 0;
}

static void visit(void *unused)
{
    (void)unused;
    for (int i = 0; i < TURNS; i++) {
        while (*turns < i || !*tid || !waits(*tid))
            usleep(500);
        usleep(20000); /* it has waited for long */
        int fd = open("pipe", O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        CHECK(fd >= 0, "turn %d: somebody waits there, and open says: %s", i, strerror(errno));
        CHECK(write(fd, "x", 1) == 1, "write");
        close(fd);
        *visits = i + 1;
    }
}

int main(void)
{
    pthread_t thread;
    tid = OK(mmap(NULL, OD_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    turns = tid + 1, visits = tid + 2;
    OK(mkfifo("pipe", 0600));
    pid_t visitor = od_spawn(visit, NULL);
    void *region = region_new(BYTES, 30);
    region_look(region, BYTES, 30, "before");
    CHECK(pthread_create(&thread, NULL, open_again, NULL) == 0, "pthread_create");
    for (size_t round = 0; *turns < TURNS; round++) {
        int status;
        region_touch(region, BYTES, 30, round);
        region_look(region, BYTES, 30, "while one waits");
        CHECK(waitpid(visitor, &status, WNOHANG) != visitor || status == 0, "the visitor failed");
    }
    pthread_join(thread, NULL);
    while (waitpid(visitor, NULL, 0) > 0) {
    }
    unlink("pipe");
    return od_done();
}
