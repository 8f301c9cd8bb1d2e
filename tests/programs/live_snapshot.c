/* Two threads write all the time, in pairs: first a number at one place, then the same number at
 * another. Every child must see each pair whole, but for the one write under way, and must see the
 * same for as long as it looks. Nothing that was written is lost in the parent. */
// odtest: modes=stock,huge,live expect=froze live=shared timeout=120 mem=200
#include "odtest.h"
#include <pthread.h>
#include <stdatomic.h>

#define SIZE (24 * OD_MB)
#define SLOTS (SIZE / 2 / 64)
#define WRITERS 2
#define ROUNDS 12

static char *memory;
static atomic_int stop;
static atomic_ulong written[WRITERS];

static _Atomic uint64_t *word(size_t slot, int second)
{
    return (_Atomic uint64_t *)(memory + slot * 64 + (second ? SIZE / 2 : 0));
}

static void *write_pairs(void *argument)
{
    uint64_t id = (uintptr_t)argument, seed = 7 + id;
    for (uint64_t n = 1; !stop; n++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        size_t slot = (seed >> 33) % (SLOTS / WRITERS) * WRITERS + id;
        atomic_store(word(slot, 0), n);
        atomic_store(word(slot, 1), n);
        written[id] = n;
    }
    return NULL;
}

/* A sum over all, and the number of pairs that are not whole. */
static uint64_t look(int *broken)
{
    uint64_t sum = 0;
    memset(broken, 0, WRITERS * sizeof *broken);
    for (size_t i = 0; i < SLOTS; i++) {
        uint64_t first = *word(i, 0), second = *word(i, 1);
        broken[i % WRITERS] += first != second;
        sum = sum * 31 + first + 7 * second;
    }
    return sum;
}

static void child(void *argument)
{
    (void)argument;
    int broken[WRITERS];
    uint64_t before = look(broken);
    for (int i = 0; i < WRITERS; i++)
        CHECK(broken[i] <= 1, "%d pairs of writer %d are torn", broken[i], i);
    for (int i = 0; i < 3; i++) {
        usleep(5000);
        CHECK(look(broken) == before, "the child's memory changed");
    }
    memset(memory, 0xee, SIZE / 2);
}

static void await_writes(void)
{
    uint64_t from[WRITERS];
    for (int i = 0; i < WRITERS; i++)
        from[i] = written[i];
    for (int i = 0; i < WRITERS; i++)
        while (written[i] < from[i] + 1000)
            usleep(100);
}

int main(void)
{
    memory = OK(mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    memset(memory, 0, SIZE);
    pthread_t threads[WRITERS];
    for (uintptr_t i = 0; i < WRITERS; i++)
        CHECK(pthread_create(&threads[i], NULL, write_pairs, (void *)i) == 0, "pthread_create");
    for (int round = 0; round < ROUNDS; round++) {
        await_writes();
        pid_t first = od_spawn(child, NULL);
        await_writes();
        /* Every third round has two children, the second of memory that is not clean. */
        pid_t second = round % 3 == 2 ? od_spawn(child, NULL) : 0;
        od_join(first);
        if (second)
            od_join(second);
    }
    stop = 1;
    for (int i = 0; i < WRITERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0, "pthread_join");
    int broken[WRITERS];
    look(broken);
    CHECK(broken[0] == 0 && broken[1] == 0, "%d and %d writes were lost", broken[0], broken[1]);
    return od_done();
}
