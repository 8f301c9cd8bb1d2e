// odtest: modes=stock,huge,small,auto expect=any needs=root mem=500 serial=yes timeout=200
/*
 * What a process holds above stock is bounded, whatever it does to frozen memory: bytes charged to
 * a memory control group are counted. On stock the same program stays below the same bounds. Part
 * 1, charged bytes; part 2, limits that stock's need just fits into.
 */
#include "proc_group.h"
#include <sched.h>

static struct group group;
#define STEPS_LIMIT (320 * OD_MB)

/* A tenth of the memory, and room for page tables and per-processor counters of the kernel. */
static size_t bound(size_t bytes) { return bytes + bytes / 10 + 24 * OD_MB; }

static void stays_below(const char *what, size_t most)
{
    size_t now = 0;
    for (int wait = 0; wait < 400; wait++) {
        now = group_charged(&group);
        if (now <= most)
            return;
        poll(NULL, 0, 50);
    }
    FAIL("%s: %zu MB charged, at most %zu may be", what, now / OD_MB, most / OD_MB);
}

static void forks(int n)
{
    for (int i = 0; i < n; i++) {
        pid_t pid = od_fork();
        if (pid == 0)
            _exit(0);
        od_join(pid);
    }
}

static char *filled(size_t bytes, int value)
{
    char *memory = od_map(bytes);
    memset(memory, value, bytes);
    return memory;
}

/* Children that stay while the parent rewrites a few pages here and there, and forks on. */
static void few_pages(void)
{
    enum { CHILDREN = 12, PAGES = 200 };
    size_t bytes = 64 * OD_MB, written = 0;
    struct od_gate gate;
    od_gate_make(&gate);
    char *memory = filled(bytes, 1);
    forks(20);
    for (size_t k = 0; k < CHILDREN; k++) {
        pid_t pid = od_fork();
        if (pid == 0) {
            close(gate.fd[1]); /* Should the parent fail, the wait ends. */
            od_gate_wait(&gate);
            for (size_t i = 0; i < PAGES; i++)
                CHECK(memory[(i * 80 + k) * OD_PAGE] == 1,
                      "child %zu sees a later write to page %zu", k, i);
            _exit(0);
        }
        for (size_t i = 0; i < PAGES; i++)
            memory[(i * 80 + k) * OD_PAGE] = 2;
        written += PAGES * OD_PAGE;
        forks(3);
        if (k % 4 == 3)
            od_refreeze();
    }
    stays_below("few pages rewritten beside living children", bound(bytes + written));
    od_gate_open(&gate, CHILDREN);
    for (int k = 0; k < CHILDREN; k++)
        OK(wait(NULL));
    forks(3);
    stays_below("the children are gone", bound(bytes));
}

/* The parent rewrites everything, a block at a time, beside a child for each state. */
static void whole_blocks(void)
{
    enum { BLOCKS = 4 };
    size_t bytes = 48 * OD_MB, block = bytes / BLOCKS;
    struct od_gate gate;
    od_gate_make(&gate);
    char *memory = filled(bytes, 1);
    forks(20);
    for (size_t k = 0; k < BLOCKS; k++) {
        pid_t pid = od_fork();
        if (pid == 0) {
            close(gate.fd[1]); /* Should the parent fail, the wait ends. */
            od_gate_wait(&gate);
            for (size_t i = 0; i < bytes; i += OD_PAGE)
                CHECK(memory[i] == (i < k * block ? 2 : 1), "child %zu: page %zu holds %d", k,
                      i / OD_PAGE, memory[i]);
            _exit(0);
        }
        memset(memory + k * block, 2, block);
        forks(3);
        od_refreeze();
    }
    /* The first child needs all old pages. */
    stays_below("blocks rewritten beside living children", bound(2 * bytes));
    od_gate_open(&gate, BLOCKS);
    for (int k = 0; k < BLOCKS; k++)
        OK(wait(NULL));
    forks(3);
    od_refreeze();
    stays_below("those children are gone", bound(bytes));
}

/* Of every `of` units of so many pages the first is left untouched; all of it is read. */
static void sparse(size_t unit, size_t of)
{
    size_t bytes = 96 * OD_MB, touched = 0, sum = 0;
    char what[80];
    snprintf(what, sizeof what, "1 of %zu blocks of %zu pages untouched", of, unit);
    char *memory = od_map(bytes);
    for (size_t at = 0; at < bytes; at += OD_PAGE)
        if (at / OD_PAGE / unit % of != 0) {
            memory[at] = 1;
            touched += OD_PAGE;
        }
    size_t before = group_charged(&group);
    forks(6);
    od_freeze();
    for (size_t at = 0; at < bytes; at += OD_PAGE)
        sum += ((volatile char *)memory)[at];
    CHECK(sum == touched / OD_PAGE, "%s: the sum is %zu", what, sum);
    stays_below(what, before + touched / 10 + 24 * OD_MB);
    memset(memory, 2, bytes);
    forks(3);
    stays_below(what, bound(before + bytes));
    OK(munmap(memory, bytes));
}

static void holes(void)
{
    static const size_t UNITS[] = { 1, 16, 600 }, SHARES[] = { 2, 4, 7, 12 };
    for (size_t u = 0; u < 3; u++)
        for (size_t s = 0; s < 4; s++)
            sparse(UNITS[u], SHARES[s]);
}

/* What was given up and is used again does not exist twice. */
static void reuse(void)
{
    size_t bytes = 96 * OD_MB;
    char *memory = filled(bytes, 1);
    forks(6);
    od_freeze();
    for (int round = 0; round < 3; round++) {
        OK(madvise(memory + 8 * OD_MB, bytes - 16 * OD_MB, MADV_DONTNEED));
        od_verify_zero(memory + 8 * OD_MB, OD_MB, "given up");
        memset(memory + 8 * OD_MB, 2, bytes - 16 * OD_MB);
        forks(3);
        od_refreeze();
    }
    stays_below("given up and used again", bound(bytes));
}

/* A few pages at a time are given up, here and there, until little is left. No memory is given back
 * for that where pauses are bounded, or memory is live. */
static void small_parts(void)
{
    size_t bytes = 192 * OD_MB, pages = bytes / OD_PAGE, left = pages;
    uint32_t seed = 5;
    char *memory = od_map(bytes);
    /* Stock keeps huge pages whole as long as it is not short of memory. */
    if (!getenv("LD_PRELOAD"))
        madvise(memory, bytes, MADV_NOHUGEPAGE);
    memset(memory, 1, bytes);
    forks(6);
    od_freeze();
    for (int call = 1; call <= 60000; call++) {
        size_t page = od_random(&seed) % (pages - 8), n = 1 + od_random(&seed) % 7;
        for (size_t i = page; i < page + n; i++)
            left -= memory[i * OD_PAGE] == 1;
        OK(madvise(memory + page * OD_PAGE, n * OD_PAGE, MADV_DONTNEED));
        for (size_t i = page; i < page + n; i++)
            CHECK(memory[i * OD_PAGE] == 0, "page %zu holds %d", i, memory[i * OD_PAGE]);
        if (call % 1000 == 0 && !getenv("ODFORK_PROFILE") && !getenv("ODFORK_MAX_PAUSE"))
            stays_below("small parts given up", left * OD_PAGE + bytes / 10 + 24 * OD_MB);
    }
    OK(munmap(memory, bytes));
}

/* A child whose parent has ended gives most of what it inherited back; who still shows so much of
 * it, and waits, holds nothing else. */
static void orphan_beside(size_t shown)
{
    size_t bytes = 96 * OD_MB;
    struct od_gate gate, done;
    od_gate_make(&gate);
    od_gate_make(&done);
    char *memory = filled(bytes, 7);
    forks(6);
    od_freeze();
    pid_t pid = od_fork();
    if (pid == 0) {
        pid_t parent = getpid();
        if (od_fork() != 0)
            _exit(0);
        while (getppid() == parent)
            poll(NULL, 0, 10);
        close(gate.fd[1]);
        od_gate_wait(&gate);
        OK(munmap(memory + 8 * OD_MB, bytes - 8 * OD_MB));
        forks(3);
        od_refreeze();
        for (size_t i = 0; i < 8 * OD_MB; i += 512)
            CHECK(memory[i] == 7, "byte %zu holds %d", i, memory[i]);
        stays_below("the orphan", bound(8 * OD_MB));
        od_gate_open(&done, 1);
        _exit(0);
    }
    od_join(pid);
    OK(munmap(memory + shown, bytes - shown));
    memset(memory, 8, shown);
    od_refreeze();
    od_gate_open(&gate, 1);
    close(done.fd[1]);
    od_gate_wait(&done);
    if (shown)
        OK(munmap(memory, shown));
}

static void orphan(void)
{
    orphan_beside(0);
    orphan_beside(2 * OD_PAGE);
}

/* The whole limit is mapped before the first fork, half of it populated. */
static void later(void)
{
    size_t bytes = 180 * OD_MB;
    char *memory = od_map(bytes);
    memset(memory, 1, bytes / 2);
    forks(30);
    od_freeze();
    memset(memory, 2, bytes);
    forks(2);
    memset(memory, 3, bytes);
}

/* Two thirds of the limit, rewritten. */
static void rewritten(void)
{
    size_t bytes = 130 * OD_MB;
    char *memory = filled(bytes, 1);
    forks(20);
    memset(memory, 2, bytes);
    forks(2);
    memset(memory, 3, bytes);
}

/* The groups above lie outside the namespace, and no mount in it shows the own one. */
static void in_a_namespace(void)
{
    OK(unshare(CLONE_NEWCGROUP));
    rewritten();
}

enum way {
    BY_MMAP, AFTER_REFREEZE, BESIDE_CACHE, OF_ZEROS, BY_MPROTECT, BY_SBRK, SHARED, SHARED_BEFORE
};

static char *shared(size_t bytes)
{
    return OK(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
}

static char *copy_of_zeros(size_t bytes)
{
    int fd = OK(open("/dev/zero", O_RDWR | O_CLOEXEC));
    char *memory = OK(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
    close(fd);
    return memory;
}

/* Half of the limit, forks, then nearly the other half, and the first half again. */
static void grows(enum way way)
{
    size_t first = 120 * OD_MB, more = 130 * OD_MB;
    char *two = NULL;
    if (way == BY_MPROTECT)
        two = OK(mmap(NULL, more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    else if (way == SHARED_BEFORE)
        two = shared(more);
    char *one = filled(first, 1);
    forks(30);
    od_freeze();
    if (way == AFTER_REFREEZE) {
        memset(one, 5, first);
        od_refreeze();
    }
    if (way == BESIDE_CACHE)
        group_fill_cache(&group, 300 * OD_MB);
    if (way == BY_MPROTECT)
        OK(mprotect(two, more, PROT_READ | PROT_WRITE));
    else if (way != SHARED_BEFORE)
        two = way == BY_SBRK    ? OK(sbrk(more))
              : way == SHARED   ? shared(more)
              : way == OF_ZEROS ? copy_of_zeros(more)
                                : od_map(more);
    memset(two, 2, more);
    memset(one, 3, first);
    forks(2);
    memset(one, 4, first);
    memset(two, 4, more);
    CHECK(one[first - 1] == 4 && two[more - 1] == 4, "lost");
}

static void growth(void) { grows(BY_MMAP); }
static void growth_after_refreeze(void) { grows(AFTER_REFREEZE); }
static void growth_beside_cache(void) { grows(BESIDE_CACHE); }
static void growth_of_zeros(void) { grows(OF_ZEROS); }
static void growth_by_mprotect(void) { grows(BY_MPROTECT); }
static void growth_by_sbrk(void) { grows(BY_SBRK); }
static void growth_of_shared(void) { grows(SHARED); }
static void shared_before(void) { grows(SHARED_BEFORE); }

/* Steps of one megabyte, as an arena grows, with forks between them. What is charged stays away
 * from the limit: near it, the kernel finds only by chance what it has charged in advance. */
static void steps(void)
{
    size_t used = 0, bytes = 120 * OD_MB;
    char *memory = filled(bytes, 1);
    forks(30);
    od_freeze();
    for (; used < 130 * OD_MB; used += OD_MB) {
        filled(OD_MB, 5);
        if (used % (16 * OD_MB) == 0)
            forks(1);
    }
    memset(memory, 2, bytes);
    size_t most = STEPS_LIMIT - 4 * OD_MB, peak = group_peak(&group);
    CHECK(peak <= most, "%zu KB were charged, at most %zu may be", peak / 1024, most / 1024);
}

/* The heap has grown by so much inside the C library, so that copies of what is frozen do not fit
 * any more; that part of the frozen memory is rewritten. */
static void unseen(size_t more, size_t part)
{
    size_t bytes = 120 * OD_MB, block = 64 * 1024 - 32;
    char *memory = od_map(bytes);
    od_fill(memory, bytes, 1);
    forks(30);
    od_freeze();
    memset(memory + 30 * OD_MB, 7, OD_MB);
    od_fill_at(memory + 30 * OD_MB, OD_MB, 1, 30 * OD_MB / 8);
    for (size_t used = 0; used < more; used += block) {
        char *heap = malloc(block);
        CHECK(heap, "malloc: %s", strerror(errno));
        memset(heap, 5, block);
    }
    /* What is free is measured at most every 100 ms. */
    for (int i = 0; i < 4; i++) {
        poll(NULL, 0, 120);
        forks(1);
    }
    od_verify(memory, bytes, 1, "after the heap has grown");
    od_fill(memory, part, 2);
    forks(1);
    od_verify(memory, part, 2, "rewritten");
    od_verify_at(memory + part, bytes - part, 1, part / 8, "not rewritten");
}

static void unseen_and_a_part(void) { unseen(110 * OD_MB, 40 * OD_MB); }
static void unseen_and_all(void) { unseen(90 * OD_MB, 120 * OD_MB); }
static void unseen_and_most(void) { unseen(150 * OD_MB, 80 * OD_MB); }

static const struct part {
    const char *name;
    void (*body)(void);
    size_t limit;
} PARTS[] = {
    { "few pages", few_pages, 0 },
    { "whole blocks", whole_blocks, 0 },
    { "holes", holes, 0 },
    { "reuse", reuse, 0 },
    { "small parts", small_parts, 0 },
    { "orphan", orphan, 0 },
    { "later", later, 200 * OD_MB },
    { "rewritten", rewritten, 200 * OD_MB },
    { "in a namespace", in_a_namespace, 200 * OD_MB },
    { "growth", growth, 320 * OD_MB },
    { "growth after a refreeze", growth_after_refreeze, 320 * OD_MB },
    { "growth beside page cache", growth_beside_cache, 320 * OD_MB },
    { "growth of a copy of zeros", growth_of_zeros, 320 * OD_MB },
    { "growth by mprotect", growth_by_mprotect, 320 * OD_MB },
    { "growth by sbrk", growth_by_sbrk, 320 * OD_MB },
    { "growth of shared memory", growth_of_shared, 320 * OD_MB },
    { "shared memory mapped before", shared_before, 320 * OD_MB },
    { "steps", steps, STEPS_LIMIT },
    { "unseen, a part rewritten", unseen_and_a_part, 320 * OD_MB },
    { "unseen, most rewritten", unseen_and_most, 320 * OD_MB },
    { "unseen, all rewritten", unseen_and_all, 320 * OD_MB },
};
enum { COUNT = sizeof PARTS / sizeof *PARTS };

/* The limit of a group with a long name, or of the one above it, is found. */
static void long_names(const struct group *top, int limit_on_top)
{
    struct group deep = *top;
    char name[120], path[4][700];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    snprintf(path[0], sizeof path[0], "%s", top->dir);
    for (int i = 1; i < 4; i++) {
        snprintf(path[i], sizeof path[i], "%.500s/%s", path[i - 1], name);
        /* Version 2 hands its limits down by request. */
        group_put(path[i - 1], "cgroup.subtree_control", "+memory");
        OK(mkdir(path[i], 0755));
    }
    int here = OK(open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    OK(chdir(path[3]));
    snprintf(deep.dir, sizeof deep.dir, ".");
    CHECK(group_set_limit(limit_on_top ? top : &deep, 200 * OD_MB) == 0,
          "cannot limit the deep group");
    group_run(&deep, "rewritten");
    OK(fchdir(here));
    close(here);
    for (int i = 3; i > 0; i--)
        group_drop(path[i]);
    printf("long names, limit %s: fine\n", limit_on_top ? "above" : "below");
}

int main(int argc, char **argv)
{
    if (argc == 4) {
        group_inside(&group, argv);
        for (int i = 0; i < COUNT; i++)
            if (strcmp(argv[1], PARTS[i].name) == 0)
                PARTS[i].body();
        return 0;
    }
    group_make(&group);
    for (int i = 0; i < COUNT; i++) {
        /* Nothing is charged for what an earlier part has left behind. */
        group_drop(group.dir);
        OK(mkdir(group.dir, 0755));
        if (PARTS[i].limit)
            CHECK(group_set_limit(&group, PARTS[i].limit) == 0, "cannot set a limit");
        group_run(&group, PARTS[i].name);
        printf("%s: fine\n", PARTS[i].name);
        fflush(stdout);
    }
    group_drop(group.dir);
    OK(mkdir(group.dir, 0755));
    long_names(&group, 0);
    long_names(&group, 1);
    group_drop(group.dir);
    return od_done();
}
