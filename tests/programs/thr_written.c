// odtest: expect=fold timeout=60 mem=160
/*
 * A refreeze beside threads writes what the program has written, not all of the frozen memory:
 * marks of holding the threads look like dirty pages to those whom the kernel shows less. Where the
 * kernel moves a page, or somebody still reads the map of a child that has ended, a refreeze may
 * write all: most must not. So may all while the machine has swap space, which another test may
 * give it. Every child reads what its parent had written until then.
 */
#include "odtest.h"
#include <pthread.h>

static const size_t BYTES = 48 * OD_MB;
static const size_t STEP = 96 * OD_PAGE;
static const int ROUNDS = 40;

static unsigned char *memory;

/* Bytes that refreezes have written; 0 under stock fork. */
static size_t refrozen(void)
{
    char text[16384];
    size_t (*json)(char *, size_t) =
        (size_t (*)(char *, size_t))dlsym(RTLD_DEFAULT, "odfork_stats_json");
    if (!json)
        return 0;
    json(text, sizeof text);
    const char *fold = strstr(text, "\"fold\":");
    const char *bytes = fold ? strstr(fold, "\"bytes\":") : NULL;
    CHECK(bytes, "no bytes in %s", text);
    return strtoul(bytes + sizeof "\"bytes\":" - 1, NULL, 10);
}

static int is_swap(void) { return od_proc_kb("/proc/meminfo", "SwapTotal:") != 0; }

static void *sleeper(void *unused)
{
    pause();
    return unused;
}

static void reads(void *round)
{
    for (size_t at = 0; at < BYTES; at += OD_PAGE) {
        int want = at % STEP == 0 ? *(int *)round : 77;
        CHECK(memory[at] == want, "round %d: %d at page %zu, not %d", *(int *)round, memory[at],
              at / OD_PAGE, want);
    }
}

int main(void)
{
    pthread_t thread;
    int few = 0, many = 0;
    memory = (unsigned char *)od_map(BYTES);
    memset(memory, 77, BYTES);
    CHECK(pthread_create(&thread, NULL, sleeper, NULL) == 0, "no thread");
    for (int round = 0; round < ROUNDS; round++) {
        size_t before = refrozen();
        int is_exact = !is_swap();
        for (size_t at = 0; at < BYTES; at += STEP)
            memory[at] = (unsigned char)round;
        od_run_child(reads, &round);
        /* There may be none this time, and other memory of the process is frozen too. */
        size_t bytes = is_exact && !is_swap() ? refrozen() - before : 0;
        few += bytes > 0 && bytes < BYTES / 2;
        many += bytes >= BYTES / 2;
    }
    CHECK(od_number("rebuilt") > 0 || few >= many, "%d of %d refreezes wrote all", many,
          few + many);
    printf("refrozen: no more than what was written\n");
    return od_done();
}
