/* Random layouts, random changes of them, and forks in between, checked page by page against a
 * plain copy in shared memory. A failure names seed and step: run `mem_random SEED 1 12` (and
 * `wild` behind it to move ranges that are not uniformly readable, too). */
// odtest: expect=froze mem=900 timeout=90
#include "odtest.h"

#define ARENA (288 * OD_MB) /* seen by wide seeds; the others use the first 64 MB */
#define HEAP (12 * OD_MB)
#define ARENA_PAGES (ARENA / OD_PAGE)
#define PAGES (ARENA_PAGES + HEAP / OD_PAGE)
#define WINDOW (2 * OD_MB / OD_PAGE)
#define CHILDREN 3

enum { UNMAPPED, NONE, READS, WRITES };

/* What memory must hold: of each page a value (0: zeros) and what may be done with it. */
struct world {
    uint64_t value[PAGES];
    unsigned char state[PAGES];
    size_t used, heap; /* pages of the arena in use; pages of the heap */
};

/* the parent's, those of children and grandchildren, this process's */
static struct world *own, *copies, *now;
static char *arena, *heap;
static uint64_t seed, generation;
static uint32_t chance;
static int step, wild;
static struct {
    pid_t pid;
    int born, gate;
} children[CHILDREN];

static size_t below(size_t n)
{
    return n ? ((size_t)od_random(&chance) << 20 ^ od_random(&chance)) % n : 0;
}
static int one_in(size_t n) { return below(n) == 0; }
static char *at(size_t page)
{
    return page < ARENA_PAGES ? arena + page * OD_PAGE : heap + (page - ARENA_PAGES) * OD_PAGE;
}
static size_t middle(uint64_t value) { return 1 + value % 510; }

#define MUST(condition, format, ...) \
    CHECK(condition, "seed %llu step %d%s: " format, (unsigned long long)seed, step, \
          now == own ? "" : " (child)", __VA_ARGS__)

static void write_page(size_t page)
{
    if (now->state[page] != WRITES)
        return;
    uint64_t *word = (uint64_t *)at(page), value = od_word(++generation, page) | 1;
    word[0] = word[511] = word[middle(value)] = now->value[page] = value;
}

/* Everything that was written, and, since reading changes what is populated, zeros only when deep.
 */
static void verify(const char *when, int deep)
{
    for (size_t page = 0; page < PAGES; page++) {
        if (now->state[page] < READS || (!deep && !now->value[page]))
            continue;
        const volatile uint64_t *word = (const volatile uint64_t *)at(page);
        uint64_t want = now->value[page];
        MUST(word[0] == want && word[511] == want && word[middle(want)] == want,
             "%s: page %zu (%p) holds %llx %llx %llx, not %llx", when, page, (void *)at(page),
             (unsigned long long)word[0], (unsigned long long)word[middle(want)],
             (unsigned long long)word[511], (unsigned long long)want);
    }
}

static void forget(size_t from, size_t pages, unsigned char state)
{
    memset(now->value + from, 0, pages * sizeof now->value[0]);
    memset(now->state + from, state, pages);
}

/* A range of the arena; half of them begin and end at 2 MB, some hang over by pages. */
static size_t range(size_t most, size_t *pages)
{
    size_t from = below(now->used), length = 1 + below(most);
    if (one_in(2)) {
        from = from / WINDOW * WINDOW;
        length = (length + WINDOW - 1) / WINDOW * WINDOW;
    }
    if (one_in(4))
        from += below(3);
    if (from >= now->used)
        from = now->used - 1;
    *pages = length < now->used - from ? length : now->used - from;
    return from;
}

static int all(size_t from, size_t pages, unsigned char state)
{
    for (size_t i = 0; i < pages; i++)
        if (now->state[from + i] != state)
            return 0;
    return 1;
}

static const size_t counts[] = {1, 63, 64, 65, 511, 512, 513, 1023, 1024, 1025, 2048, 3000};
static const size_t fills[] = {512, 512, 384, 383, 385, 64, 63, 8, 1, 0, 0};
#define ANY(list) list[below(sizeof list / sizeof list[0])]

/* So many runs of so many pages, so far apart. */
static void write_runs(size_t from, size_t end)
{
    size_t runs = ANY(counts), length = one_in(2) ? 1 : 1 + below(40),
           gap = 1 + below(one_in(2) ? 8 : 100);
    for (; runs > 0 && from < end; runs--, from += gap)
        for (size_t i = 0; i < length && from < end; i++)
            write_page(from++);
}

/* Each 2 MB filled differently. */
static void write_windows(size_t from, size_t end)
{
    int alternate = one_in(2);
    while (from < end) {
        size_t stop = (from / WINDOW + 1) * WINDOW,
               fill = alternate ? (from / WINDOW & 1 ? 100 : 512) : ANY(fills);
        size_t shift = below(WINDOW - fill + 1);
        for (size_t page = from / WINDOW * WINDOW + shift; fill > 0; page++, fill--)
            if (page >= from && page < end)
                write_page(page);
        from = stop;
    }
}

static void populate(size_t from, size_t end)
{
    if (one_in(2))
        write_windows(from, end);
    else
        write_runs(from, end);
    if (one_in(3))
        for (size_t page = from; page < end; page += 1 + below(20))
            if (now->state[page] >= READS)
                (void)*(volatile char *)at(page);
}

static void map_new(size_t from, size_t pages)
{
    int reserve = one_in(4) ? MAP_NORESERVE : 0;
    OK(mmap(at(from), pages * OD_PAGE, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | reserve, -1, 0));
    forget(from, pages, WRITES);
    if (one_in(3))
        madvise(at(from), pages * OD_PAGE, one_in(2) ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    if (!one_in(4))
        populate(from, from + pages);
}

static void give_up(size_t from, size_t pages)
{
    /* goes on over holes */
    madvise(at(from), pages * OD_PAGE - (one_in(4) ? below(OD_PAGE) : 0), MADV_DONTNEED);
    memset(now->value + from, 0, pages * sizeof now->value[0]);
}

static void protect(size_t from, size_t pages)
{
    static const int protections[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE};
    size_t choice = one_in(2) ? 2 : below(3);
    for (size_t i = 0; i < pages; i++)
        if (now->state[from + i] == UNMAPPED)
            return;
    OK(mprotect(at(from), pages * OD_PAGE, protections[choice]));
    memset(now->state + from, NONE + choice, pages);
}

/* Moves a range, sometimes growing or shrinking it, sometimes leaving zeros behind. */
static void move(size_t from, size_t pages)
{
    size_t to = below(now->used), fresh = pages;
    int how = MREMAP_MAYMOVE | MREMAP_FIXED;
    unsigned char state = now->state[from];
    if (state == UNMAPPED || (!wild && (state == NONE || !all(from, pages, state))))
        return;
    if (one_in(3))
        fresh = one_in(2) ? pages + 1 + below(2 * WINDOW) : 1 + below(pages);
    else if (one_in(3))
        how |= MREMAP_DONTUNMAP;
    if (to + fresh > now->used || (to < from + pages && from < to + fresh))
        return;
    if (mremap(at(from), pages * OD_PAGE, fresh * OD_PAGE, how, at(to)) == MAP_FAILED) {
        /* Of several mappings: where they went is not told. Both ends begin anew. */
        map_new(from, pages);
        map_new(to, fresh);
        return;
    }
    size_t kept = fresh < pages ? fresh : pages;
    memcpy(now->value + to, now->value + from, kept * sizeof now->value[0]);
    memcpy(now->state + to, now->state + from, kept);
    forget(to + kept, fresh - kept, state);
    if (how & MREMAP_DONTUNMAP)
        memset(now->value + from, 0, pages * sizeof now->value[0]);
    else
        forget(from, pages, UNMAPPED);
}

static void grow_heap(void)
{
    size_t want = below(HEAP / OD_PAGE + 1), have = now->heap;
    if (sbrk(0) != heap + have * OD_PAGE || brk(heap + want * OD_PAGE) != 0)
        return; /* malloc went on behind it */
    if (want > have)
        forget(ARENA_PAGES + have, want - have, WRITES);
    else
        forget(ARENA_PAGES + want, have - want, UNMAPPED);
    now->heap = want;
}

static void change(void)
{
    size_t pages, from = range(one_in(3) ? 8 * WINDOW : 2 * WINDOW, &pages);
    switch (below(12)) {
    case 0:
    case 1:
    case 2:
        write_runs(from, from + pages);
        break;
    case 3:
        write_windows(from, from + pages);
        break;
    case 4:
    case 5:
        give_up(from, pages);
        break;
    case 6:
        protect(from, pages);
        break;
    case 7:
        OK(munmap(at(from), pages * OD_PAGE));
        forget(from, pages, UNMAPPED);
        break;
    case 8:
        map_new(from, pages);
        break;
    case 9:
        move(from, pages);
        break;
    case 10:
        madvise(at(from), pages * OD_PAGE,
                one_in(2)   ? MADV_HUGEPAGE
                : one_in(2) ? MADV_NOHUGEPAGE
                            : 25 /* COLLAPSE */);
        break;
    default:
        if (one_in(2))
            grow_heap();
        else if (now->heap)
            give_up(ARENA_PAGES + below(now->heap), 1);
        write_runs(ARENA_PAGES, ARENA_PAGES + now->heap);
    }
}

static void change_some(void)
{
    for (size_t n = 1 + below(6); n > 0; n--)
        change();
}

static void nudge(void)
{
    switch (below(6)) {
    case 0:
        od_freeze();
        break;
    case 1:
        od_refreeze();
        break;
    case 2:
        if (one_in(4))
            od_thaw();
    }
}

/* The instant of the fork, twice if the child lives on; then its own life. */
static void child_lives(struct world *copy, int gate)
{
    int deep = one_in(4);
    char byte;
    now = copy;
    generation += (uint64_t)getpid() << 32;
    verify("instant of fork", deep);
    if (gate >= 0) {
        CHECK(read(gate, &byte, 1) <= 0, "a gate is only closed");
        verify("instant of fork, later", deep);
    }
    change_some();
    verify("after its own changes", deep);
    nudge();
    verify("after its own freeze", 0);
    if (one_in(2)) {
        memcpy(copy + CHILDREN, copy, sizeof *copy);
        pid_t grandchild = od_fork();
        if (grandchild == 0) {
            now = copy + CHILDREN;
            verify("in a grandchild", one_in(4));
            change_some();
            verify("in a grandchild, changed", 0);
            _exit(0);
        }
        change_some();
        od_join(grandchild);
        verify("beside a grandchild", deep);
    }
    _exit(0);
}

static void end_child(int slot)
{
    if (children[slot].pid == 0)
        return;
    if (children[slot].gate >= 0)
        close(children[slot].gate);
    od_join(children[slot].pid);
    children[slot].pid = 0;
}

static void fork_one(int slot)
{
    int gate[2] = {-1, -1};
    if (one_in(2))
        OK(pipe(gate));
    memcpy(&copies[slot], own, sizeof *own);
    uint32_t fate = od_random(&chance);
    pid_t pid = od_fork();
    if (pid == 0) {
        for (int i = 0; i < CHILDREN; i++)
            if (children[i].pid && children[i].gate >= 0)
                close(children[i].gate);
        if (gate[1] >= 0)
            close(gate[1]);
        chance = fate;
        child_lives(&copies[slot], gate[0]);
    }
    if (gate[0] >= 0)
        close(gate[0]);
    children[slot].pid = pid;
    children[slot].born = step;
    children[slot].gate = gate[1];
}

static void run_seed(int steps)
{
    chance = (uint32_t)(seed * 2654435761u + 12345);
    now = own;
    memset(own->value, 0, ARENA_PAGES * sizeof own->value[0]);
    memset(own->state, UNMAPPED, ARENA_PAGES);
    OK(munmap(arena, ARENA));
    int wide = seed % 4 == 3;
    own->used = (wide ? ARENA : 64 * OD_MB) / OD_PAGE;
    step = 0;
    if (wide) {
        map_new(below(600), ARENA_PAGES - 700);
        write_windows(0, own->used);
    } else
        for (size_t n = 3 + below(12); n > 0; n--) {
            size_t pages, from = range(14 * WINDOW, &pages);
            map_new(from, pages);
        }
    verify("layout", 0);
    for (step = 1; step <= steps; step++) {
        int slot = (int)below(CHILDREN);
        end_child(slot);
        nudge();
        verify("before a fork", one_in(6));
        fork_one(slot);
        change_some();
        verify("after a fork", one_in(6));
        if (children[slot].gate < 0)
            end_child(slot);
        verify("after a child", 0);
    }
    for (int slot = 0; slot < CHILDREN; slot++)
        end_child(slot);
    verify("at the end", 1);
}

static void *shared(size_t bytes)
{
    int fd = OK(memfd_create("mem_random", MFD_CLOEXEC));
    OK(ftruncate(fd, (off_t)bytes));
    void *memory = OK(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    close(fd);
    return memory;
}

int main(int argc, char **argv)
{
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 0) : 100,
             count = argc > 2 ? strtoull(argv[2], NULL, 0) : 4;
    int steps = argc > 3 ? atoi(argv[3]) : 12;
    wild = argc > 4;
    own = shared(sizeof *own);
    copies = shared(2 * CHILDREN * sizeof *copies);
    char *room = OK(mmap(NULL, ARENA + 2 * OD_MB, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    arena = (char *)(((uintptr_t)room + 2 * OD_MB - 1) & ~(2 * OD_MB - 1));
    od_refreeze();
    heap = (char *)(((uintptr_t)sbrk(0) + 2 * OD_PAGE) & ~(OD_PAGE - 1));
    OK(brk(heap));
    for (seed = first; seed < first + count; seed++)
        run_seed(steps);
    return od_done();
}
