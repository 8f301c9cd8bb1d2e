/* Reads under way into live memory while the process forks: bytes that arrive after the fork are
 * the parent's alone. A thread waits in read(2) for a pipe; another reads a file past the page
 * cache (O_DIRECT), opened after memory became live, over and over. */
// odtest: modes=stock,huge,live expect=any live=shared timeout=120 mem=200
#include "odtest.h"
#include <pthread.h>
#include <stdatomic.h>

#define SIZE (8 * OD_MB)
#define BLOCK (256 * 1024)
#define ROUNDS 10

static char *memory;
static int pipes[2], file = -1;
static atomic_int stop, reading;

static void *read_pipe(void *argument)
{
    (void)argument;
    reading = 1;
    size_t got = 0;
    while (got < BLOCK)
        got += OK(read(pipes[0], memory + OD_MB + got, BLOCK - got));
    return NULL;
}

static void *read_file(void *argument)
{
    (void)argument;
    for (int i = 0; !stop; reading = ++i)
        OK(pread(file, memory + 4 * OD_MB, BLOCK, (i & 1) * BLOCK));
    return NULL;
}

static uint64_t sum(void)
{
    uint64_t all = 0;
    for (size_t i = 0; i < SIZE / 8; i++)
        all = all * 31 + ((volatile uint64_t *)memory)[i];
    return all;
}

static void look(void)
{
    /* A read takes some 0.1 ms: what is under way at the fork shows in the first look, or never. */
    static char first[BLOCK];
    memcpy(first, memory + 4 * OD_MB, BLOCK);
    usleep(2000);
    CHECK(memcmp(first, memory + 4 * OD_MB, BLOCK) == 0, "a read under way goes on in the child");
    uint64_t before = sum();
    for (int i = 0; i < 3; i++) {
        usleep(5000);
        CHECK(sum() == before, "what was read after the fork is seen by the child");
    }
}

static void fork_and_look(int bytes)
{
    static char text[BLOCK];
    pid_t pid = od_fork();
    if (pid == 0) {
        look();
        _exit(0);
    }
    for (int done = 0; done < bytes; done += OD_PAGE)
        CHECK(write(pipes[1], memset(text, 'x', OD_PAGE), OD_PAGE) == (ssize_t)OD_PAGE, "write");
    od_join(pid);
}

int main(void)
{
    memory = OK(
        mmap(NULL, SIZE + 2 * OD_MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    memory = (char *)(((uintptr_t)memory + 2 * OD_MB - 1) & -(2 * OD_MB));
    od_fill_at(memory, SIZE, 1, 0);
    OK(pipe(pipes));
    fork_and_look(0);
    fork_and_look(0);
    for (int i = 0; i < ROUNDS; i++) {
        pthread_t thread;
        reading = 0;
        CHECK(pthread_create(&thread, NULL, read_pipe, NULL) == 0, "pthread_create");
        while (!reading)
            usleep(100);
        fork_and_look(BLOCK);
        pthread_join(thread, NULL);
        for (size_t k = 0; k < BLOCK; k++)
            CHECK(memory[OD_MB + k] == 'x', "byte %zu that was read is lost", k);
        memset(memory + OD_MB, 0, BLOCK);
    }
    int plain = OK(open("blocks", O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    static char text[2 * BLOCK];
    memset(text, 'a', BLOCK);
    memset(text + BLOCK, 'b', BLOCK);
    CHECK(write(plain, text, sizeof text) == (ssize_t)sizeof text, "write");
    file = open("blocks", O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (file >= 0) {
        /* The first fork is the one that finds live memory, where anything has gone wrong. */
        pthread_t thread;
        reading = 0;
        CHECK(pthread_create(&thread, NULL, read_file, NULL) == 0, "pthread_create");
        while (reading < 10)
            usleep(100);
        for (int i = 0; i < ROUNDS; i++)
            fork_and_look(0);
        stop = 1;
        pthread_join(thread, NULL);
        close(file);
    }
    close(plain);
    unlink("blocks");
    return od_done();
}
