// odtest: expect=froze timeout=90 mem=64
/*
 * A coroutine of a thread waits on a stack with little room: what lies below it, and what it uses
 * below its stack pointer (the red zone), stays as it was while the thread is held. So do the
 * arguments of its calls: a buffer in a register, a vector in memory.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>

enum { SIZE = 4096, RED = 128, ROOM = 336, ROUNDS = 3, SENT = 300000, TAKEN = 20000 };
enum { MOST_IDLE = 2000 };
static const size_t BYTES = 8 * OD_MB;
static char text[SENT];
static const struct iovec PARTS[2] = { { text, SENT / 3 }, { text + SENT / 3, SENT - SENT / 3 } };
static int ends[2][2];
static atomic_int done;

/* A call on another stack; r10 must be as it was. */
static long call_on(char *top, long number, long a, long b, long c, long d, long e)
{
#if defined __x86_64__
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
#else
    (void)top, (void)number, (void)a, (void)b, (void)c, (void)d, (void)e;
    od_skip("threads are held by ptrace on x86-64 only");
#endif
}

static void *wait_there(void *arg)
{
    static const char BELOW = 0x5a, BESIDE = 0x33;
    long which = (long)arg;
    char *stack = OK(mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    char *top = stack + SIZE - 512;
    for (int round = 0; round < ROUNDS; round++) {
        memset(stack, BELOW, SIZE);
        memset(top - RED, BESIDE, RED);
        long n = which ? call_on(top, SYS_writev, ends[1][1], (long)PARTS, 2, 5, 6)
                       : call_on(top, SYS_write, ends[0][1], (long)text, SENT, 5, 7);
        CHECK(n == SENT, "the call answered %ld", n);
        for (char *at = stack; at < stack + SIZE; at++) {
            if (at >= top - ROOM && at < top - RED)
                continue;
            CHECK(*at == (at >= top - RED && at < top ? BESIDE : BELOW),
                  "%ld bytes from the stack pointer: %#x", (long)(at - top), *at);
        }
    }
    munmap(stack, SIZE);
    done++;
    return NULL;
}

int main(void)
{
    pthread_t thread[2];
    void *region = region_new(BYTES, 30);
    for (int i = 0; i < 2; i++) {
        OK(pipe2(ends[i], O_CLOEXEC));
        OK(fcntl(ends[i][0], F_SETFL, O_NONBLOCK));
    }
    for (long i = 0; i < 2; i++)
        CHECK(pthread_create(&thread[i], NULL, wait_there, (void *)i) == 0, "pthread_create");
    int idle = 0; /* rounds in a row in which nothing came */
    for (size_t round = 0; done < 2; round++) {
        static char got[TAKEN];
        idle++;
        region_touch(region, BYTES, 30, round);
        region_look(region, BYTES, 30, "beside coroutines");
        for (int i = 0; i < 2; i++) {
            ssize_t n = read(ends[i][0], got, TAKEN);
            CHECK(n > 0 || errno == EAGAIN, "read: %s", strerror(errno));
            idle = n > 0 ? 0 : idle;
        }
        CHECK(idle < MOST_IDLE, "not all arrives");
    }
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL), close(ends[i][0]), close(ends[i][1]);
    return od_done();
}
