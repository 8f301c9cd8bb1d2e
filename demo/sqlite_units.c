/* sqlite_units.c - a unit-test runner over one big in-memory database, each test in its own child.
 *
 * Owns: the command loop, fork and reap of a test, the clock. It knows nothing of odfork: this is
 * the program a project would write with plain fork(). Usage: sqlite_units [BYTES]; then on stdin
 *   select SEED | delete SEED | update SEED | key SEED | verify | quit
 * and on stdout one line an answer, times in microseconds:
 *   ready BYTES ROWS INIT_US RSS_KB        test KIND SEED FORK TEST TOTAL ok|failed [message]
 *   verify ok|failed US                    bye TESTS FAILED
 * Exit status: 0 when every check passed, 1 when one failed, 2 for wrong use or a failed load.
 */
#include "shop_load.h"
#include "shop_tests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The page a child answers through; shared, so it survives the child. */
struct answer { double test_us; int finished; struct verdict verdict; };

struct tally { long tests, failed; };

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static long resident_kb(void)
{
    long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f)
        return 0;
    if (fscanf(f, "%ld %ld", &size, &resident) != 2)
        resident = 0;
    fclose(f);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void child_main(const struct shop *shop, shop_test test, uint64_t seed, struct answer *a)
{
    double start = now_us();
    test(shop, seed, &a->verdict);
    a->test_us = now_us() - start;
    a->finished = 1;
    _exit(a->verdict.message[0] ? 1 : 0);
}

/* Reaps the child; when it died without an answer, writes the cause into the verdict. */
static int reap(pid_t pid, struct answer *a)
{
    int status = 0;
    pid_t got = waitpid(pid, &status, 0);
    if (got == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0 && a->finished)
        return 0;
    if (!a->verdict.message[0])
        snprintf(a->verdict.message, sizeof a->verdict.message, "child ended with wait status 0x%x",
                 status);
    return -1;
}

static void run_test(const struct shop *shop, const char *kind, uint64_t seed, struct answer *a,
                     struct tally *t)
{
    shop_test test = shop_test_named(kind);
    memset(a, 0, sizeof *a);
    double start = now_us();
    pid_t pid = fork();
    if (pid == 0)
        child_main(shop, test, seed, a);
    double forked = now_us();
    int bad = pid < 0 ? -1 : reap(pid, a);
    double end = now_us();
    if (pid < 0)
        snprintf(a->verdict.message, sizeof a->verdict.message, "fork failed");
    t->tests++;
    t->failed += bad ? 1 : 0;
    printf("test %s %llu %.1f %.1f %.1f %s %s\n", kind, (unsigned long long)seed, forked - start,
           a->test_us, end - start, bad ? "failed" : "ok", a->verdict.message);
}

static void run_verify(const struct shop *shop, struct tally *t)
{
    double start = now_us();
    int bad = shop_verify(shop);
    t->tests++;
    t->failed += bad ? 1 : 0;
    printf("verify %s %.0f\n", bad ? "failed" : "ok", now_us() - start);
}

static void serve(const struct shop *shop, struct answer *a, struct tally *t)
{
    char line[128], kind[16];
    unsigned long long seed;
    while (fgets(line, sizeof line, stdin)) {
        int words = sscanf(line, "%15s %llu", kind, &seed);
        if (words >= 1 && strcmp(kind, "quit") == 0)
            return;
        if (words == 1 && strcmp(kind, "verify") == 0)
            run_verify(shop, t);
        else if (words == 2 && shop_test_named(kind))
            run_test(shop, kind, seed, a, t);
        else
            printf("error: expected `select|delete|update|key SEED`, `verify` or `quit`, got: %s\n",
                   line);
    }
}

int main(int argc, char **argv)
{
    struct shop shop;
    struct tally tally = { 0, 0 };
    char *end = "";
    long long bytes = argc > 1 ? strtoll(argv[1], &end, 10) : 1LL << 30;
    if (argc > 2 || *end || bytes < 1) {
        fprintf(stderr,
                "usage: sqlite_units [BYTES]   (BYTES of database pages, default 1073741824)\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct answer *a =
        mmap(NULL, sizeof *a, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double start = now_us();
    if (a == MAP_FAILED || shop_load(&shop, bytes) < 0)
        return 2;
    printf("ready %lld %lld %.0f %ld\n", (long long)shop.bytes,
           (long long)(shop.orders + shop.customers), now_us() - start, resident_kb());
    serve(&shop, a, &tally);
    printf("bye %ld %ld\n", tally.tests, tally.failed);
    return tally.failed ? 1 : 0;
}
