/* The C interface, linked: every function once, with content checks. Valid C and valid C++; no
 * preload.
 *
 * Owns its memory and checks it byte for byte after every step. Prints one line when all is well;
 * exit status 1 and the failed check otherwise. With the word "plain" it checks the answers of a
 * process in which freezing fails (the test sees to that).
 */
#define _GNU_SOURCE 1
#include "odfork.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MB ((size_t)1 << 20)
#define SIZE (32 * MB)

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "api.c:%d: %s (errno %d, reason '%s')\n", __LINE__, #what, errno, \
                    odfork_reason()); \
            _exit(1); \
        } \
    } while (0)

static unsigned char *world;
static uint64_t in_bss[8 * MB / 8];

static unsigned char byte_of(size_t i, unsigned gen)
{
    return (unsigned char)(i * 31 + i / 4096 + gen);
}

static void fill(unsigned gen)
{
    for (size_t i = 0; i < SIZE; i++)
        world[i] = byte_of(i, gen);
    for (size_t i = 0; i < sizeof in_bss / 8; i++)
        in_bss[i] = i * 7 + gen;
}

static int holds(unsigned gen)
{
    for (size_t i = 0; i < SIZE; i++)
        if (world[i] != byte_of(i, gen))
            return 0;
    for (size_t i = 0; i < sizeof in_bss / 8; i++)
        if (in_bss[i] != i * 7 + gen)
            return 0;
    return 1;
}

static struct odfork_stats now(void)
{
    struct odfork_stats s;
    memset(&s, 0xff, sizeof s);
    CHECK(odfork_stats(&s, sizeof s) == sizeof s);
    return s;
}

/* A child that checks what it inherited, writes, and ends; the parent's memory must not change. */
static void fork_and_check(pid_t (*fork_by)(void), unsigned gen)
{
    pid_t pid = fork_by();
    CHECK(pid >= 0);
    if (pid == 0) {
        int good = holds(gen);
        fill(gen + 100);
        _exit(good && holds(gen + 100) ? 0 : 2);
    }
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(holds(gen));
}

/* The program's own calls must reach the library's wrappers, or frozen memory would show the image
 * again. */
static void check_wrappers(void)
{
    unsigned char *at = world + 5 * MB;
    CHECK(madvise(at, 3 * MB, MADV_DONTNEED) == 0);
    for (size_t i = 0; i < 3 * MB; i++)
        CHECK(at[i] == 0);
    for (size_t i = 0; i < 3 * MB; i++)
        at[i] = byte_of(5 * MB + i, 2);
    unsigned char *moved = (unsigned char *)mremap(world, SIZE, SIZE + 8 * MB, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED);
    for (size_t i = SIZE; i < SIZE + 8 * MB; i++)
        CHECK(moved[i] == 0);
    world = (unsigned char *)mremap(moved, SIZE + 8 * MB, SIZE, MREMAP_MAYMOVE);
    CHECK(world != MAP_FAILED && holds(2));
}

static void check_realloc(void)
{
    uint64_t *block = (uint64_t *)malloc(24 * MB);
    CHECK(block);
    for (size_t i = 0; i < 3 * MB; i++)
        block[i] = i ^ 0x5555;
    CHECK(odfork_freeze() == 0);
    block = (uint64_t *)realloc(block, 96 * MB);
    CHECK(block);
    for (size_t i = 0; i < 3 * MB; i++)
        CHECK(block[i] == (i ^ 0x5555));
    memset(block + 3 * MB, 1, 72 * MB);
    free(block);
}

static void check_json(void)
{
    char small[20], *all;
    memset(small, 'x', sizeof small);
    size_t need = odfork_stats_json(small, sizeof small);
    CHECK(need > 100 && strlen(small) == sizeof small - 1);
    CHECK(odfork_stats_json(NULL, 0) > 100);
    all = (char *)malloc(2 * need);
    CHECK(odfork_stats_json(all, 2 * need) < 2 * need);
    CHECK(strncmp(all, "{\"schema\":1,", 12) == 0 && strrchr(all, '}') >= all + strlen(all) - 2);
    CHECK(memcmp(all, small, sizeof small - 1) == 0);
    free(all);
}

static int plain(void)
{
    CHECK(odfork_freeze() == -1 && errno != 0);
    CHECK(odfork_reason()[0] != 0);
    fork_and_check(odfork_fork, 1);
    CHECK(now().engine == 0 && now().frozen_bytes == 0 && now().forks == 1);
    CHECK(madvise(world, SIZE, MADV_DONTNEED) == 0 && world[0] == 0 && world[SIZE - 1] == 0);
    puts("plain");
    return 0;
}

int main(int count, char **words)
{
    world = (unsigned char *)mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                                  -1, 0);
    CHECK(world != MAP_FAILED);
    fill(1);
    if (count > 1 && strcmp(words[1], "plain") == 0)
        return plain();
    CHECK(now().freezes == 0 && now().forks == 0);

    CHECK(odfork_freeze() == 0);
    CHECK(holds(1));
    CHECK(now().engine >= 1 && now().freezes == 1 && now().freeze_bytes >= SIZE &&
          now().frozen_bytes >= SIZE);
    fork_and_check(odfork_fork, 1);
    fork_and_check(fork, 1);
    CHECK(now().forks == 2 && now().forks_failed == 0);
    CHECK(now().fork_min_ns > 0 && now().fork_min_ns <= now().fork_p50_ns &&
          now().fork_p50_ns <= now().fork_max_ns);

    fill(2);
    CHECK(odfork_refreeze() == 0);
    CHECK(holds(2));
    CHECK(now().folds_in_place + now().folds_rebuilt >= 1 && now().fold_bytes >= SIZE);
    fork_and_check(odfork_fork, 2);
    check_wrappers();
    check_realloc();
    check_json();

    CHECK(odfork_thaw() == 0);
    CHECK(holds(2));
    CHECK(now().thaws >= 1 && now().frozen_bytes == 0 && now().engine == 0);
    fork_and_check(odfork_fork, 2);

    struct odfork_stats part;
    memset(&part, 0xff, sizeof part);
    /* an older caller: nothing beyond its size is written */
    CHECK(odfork_stats(&part, 16) == sizeof part);
    CHECK(part.freezes >= 2 && part.freeze_ns == UINT64_MAX);
    CHECK(odfork_stats(NULL, 0) == sizeof part);
    puts("ok");
    return 0;
}
