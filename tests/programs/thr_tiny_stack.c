// odtest: expect=froze timeout=90 mem=64
/*
 * A coroutine of a thread waits on a stack with little room: what lies below it, and what it uses
 * below its stack pointer (the red zone), stays as it was while the thread is held. So do the
 * arguments of its calls: a limit of time in a register, one in memory.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>

enum { SIZE = 4096, RED = 128, ROOM = 256, ROUNDS = 3 };
static const size_t BYTES = 8 * OD_MB;
static const long LIMIT_MS = 300;
static const struct timespec FIXED = { 0, 300000000 };
static atomic_int done;

/* A call on another stack; r10 must be as it was. */
static long call_on(char *top, long number, long a, long b, long c, long d, long e)
{
    long ret = number;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = 0;
    __asm__ volatile("mov %%rsp, %%rbx\n\tmov %[top], %%rsp\n\tsyscall\n\tmov %%rbx, %%rsp"
                     : "+a"(ret), "+r"(r10), "+r"(r8), "+D"(a), "+S"(b), "+d"(c)
                     : [top] "r"(top), "r"(r9)
                     : "rbx", "rcx", "r11", "memory");
    CHECK(r10 == d && r8 == e, "arguments came back as %#lx, %#lx", r10, r8);
    return ret;
}

static void *wait_there(void *arg)
{
    static const char BELOW = 0x5a, BESIDE = 0x33;
    long in_memory = (long)arg;
    char *stack = OK(mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    char *top = stack + SIZE - 512;
    int set = OK(epoll_create1(EPOLL_CLOEXEC));
    struct epoll_event e;
    for (int round = 0; round < ROUNDS; round++) {
        memset(stack, BELOW, SIZE);
        memset(top - RED, BESIDE, RED);
        long n = in_memory ? call_on(top, SYS_pselect6, 0, 0, 0, 0, (long)&FIXED)
                           : call_on(top, SYS_epoll_wait, set, (long)&e, 1, LIMIT_MS, 7);
        CHECK(n == 0, "the wait answered %ld", n);
        for (char *at = stack; at < stack + SIZE; at++) {
            if (at >= top - ROOM && at < top - RED)
                continue;
            CHECK(*at == (at >= top - RED && at < top ? BESIDE : BELOW),
                  "%ld bytes from the stack pointer: %#x", (long)(at - top), *at);
        }
    }
    close(set);
    munmap(stack, SIZE);
    done++;
    return NULL;
}

int main(void)
{
    pthread_t thread[2];
    void *region = region_new(BYTES, 30);
    for (long i = 0; i < 2; i++)
        CHECK(pthread_create(&thread[i], NULL, wait_there, (void *)i) == 0, "pthread_create");
    double since = seconds();
    for (size_t round = 0; done < 2 || round < 10; round++) {
        region_touch(region, BYTES, 30, round);
        region_look(region, BYTES, 30, "beside coroutines");
        usleep(5000);
        CHECK(seconds() - since < 100, "the limits are not reached");
    }
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    return od_done();
}
