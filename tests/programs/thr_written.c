// odtest: expect=fold timeout=60 mem=160
/*
 * A refreeze beside threads writes what the program has written, not all of the frozen memory:
 * marks of holding the threads look like dirty pages to those whom the kernel shows less. Every
 * child reads what its parent had written until then.
 */
#include "odtest.h"
#include <pthread.h>

static const size_t BYTES = 48 * OD_MB;
static const size_t STEP = 96 * OD_PAGE;
static const int ROUNDS = 12;

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
    size_t written = 0;
    memory = (unsigned char *)od_map(BYTES);
    memset(memory, 77, BYTES);
    CHECK(pthread_create(&thread, NULL, sleeper, NULL) == 0, "no thread");
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t at = 0; at < BYTES; at += STEP, written += OD_PAGE)
            memory[at] = (unsigned char)round;
        od_run_child(reads, &round);
    }
    /* Other memory of the process may be frozen too. */
    CHECK(od_number("rebuilt") > 0 || refrozen() <= written + 4 * OD_MB,
          "%zu KB were refrozen, %zu KB written", refrozen() / 1024, written / 1024);
    printf("refrozen: no more than what was written\n");
    return od_done();
}
