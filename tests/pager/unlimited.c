/* What has no limit, or is refused, and says so. unlimited CASE: small (blocks below the size that
 * is paged), many (more mappings than there is room for), robust (a robust mutex in paged memory,
 * and one elsewhere), bounded (a limit of address space). */
#include "pages.h"
#include <sys/resource.h>

static void fail(const char *what)
{
    printf("WRONG: %s\n", what);
    exit(1);
}

static void small(void)
{
    enum { COUNT = 20000, LEN = 1000 };
    for (int at = 0; at < COUNT; at++)
        memset(malloc(LEN), at, LEN);
}

static void many(void)
{
    for (int at = 0; at < 4200; at++)
        *(char *)paged(256 << 10) = 1;
}

static void robust(void)
{
    static pthread_mutex_t elsewhere;
    pthread_mutex_t *mutex = paged(1 << 20);
    need_paged(mutex);
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    if (pthread_mutex_init(mutex, &kind) != 0)
        fail("a plain mutex in paged memory");
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    if (pthread_mutex_init(mutex, &kind) != ENOTSUP)
        fail("a robust mutex in paged memory");
    if (pthread_mutex_init(&elsewhere, &kind) != 0)
        fail("a robust mutex elsewhere");
}

static void bounded(void)
{
    struct rlimit limit = {6000l << 20, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
    char *block = malloc(200000);
    need_paged(block);
    if (mmap(0, 2560ul << 20, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED)
        fail("mmap of 2.5 GB of 6");
}

int main(int count, char **words)
{
    const char *which = count > 1 ? words[1] : "";
    if (!strcmp(which, "small"))
        small();
    else if (!strcmp(which, "many"))
        many();
    else if (!strcmp(which, "robust"))
        robust();
    else if (!strcmp(which, "bounded"))
        bounded();
    else
        fail("no such case");
    puts("ok");
    return 0;
}
