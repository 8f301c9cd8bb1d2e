/* Outsiders that read smaps and pagemap and write clear_refs, between writes, forks and folds:
 * nothing is lost, and pages written since a clear are reported as written. */
// odtest: timeout=60
#include "odtest.h"

#define SIZE (16 * OD_MB)
#define PAGES (SIZE / OD_PAGE)
#define SOFT_DIRTY (UINT64_C(1) << 55)

static char *world;
static uint32_t gen_of[PAGES];
static unsigned char written[PAGES];

static void verify(void *who)
{
    for (size_t page = 0; page < PAGES; page++)
        od_verify_at(world + page * OD_PAGE, OD_PAGE, gen_of[page], page * 512, who);
}

static void write_some(uint32_t *dice, int count, uint32_t gen)
{
    for (int i = 0; i < count; i++) {
        size_t page = od_random(dice) % PAGES;
        gen_of[page] = gen;
        written[page] = 1;
        od_fill_at(world + page * OD_PAGE, OD_PAGE, gen, page * 512);
    }
}

static int open_of(pid_t pid, const char *name, int flags)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    return open(path, flags | O_CLOEXEC);
}

static void read_all(pid_t pid, const char *name)
{
    static char buffer[65536];
    int fd = open_of(pid, name, O_RDONLY);
    if (fd < 0)
        return;
    while (read(fd, buffer, sizeof buffer) > 0)
        ;
    close(fd);
}

static void clear(pid_t pid, const char *what)
{
    int fd = OK(open_of(pid, "clear_refs", O_WRONLY));
    ssize_t put = write(fd, what, 1);
    CHECK(put == 1 || (put == -1 && *what > '3'), "clear_refs %s: %s", what, strerror(errno));
    close(fd);
}

/* Does this kernel keep soft-dirty bits at all? */
static int has_soft_dirty;

static uint64_t entry_of(pid_t pid, const char *at)
{
    uint64_t entry = 0;
    int fd = OK(open_of(pid, "pagemap", O_RDONLY));
    CHECK(pread(fd, &entry, 8, (uintptr_t)at / OD_PAGE * 8) == 8, "pagemap: %s", strerror(errno));
    close(fd);
    return entry;
}

static void look(void *argument)
{
    pid_t target = *(pid_t *)argument;
    static const char *const names[] = {"maps",      "smaps",  "smaps_rollup",
                                        "numa_maps", "status", "statm"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        read_all(target, names[i]);
    for (const char *what = "12345"; *what; what++)
        clear(target, what);
    verify("outsider");
}

static void check_written(void *argument)
{
    static uint64_t entry[PAGES];
    int fd = OK(open_of(*(pid_t *)argument, "pagemap", O_RDONLY));
    CHECK(pread(fd, entry, sizeof entry, (uintptr_t)world / OD_PAGE * 8) == (ssize_t)sizeof entry,
          "pagemap: %s", strerror(errno));
    close(fd);
    for (size_t page = 0; page < PAGES; page++)
        CHECK(!has_soft_dirty || !written[page] || (entry[page] & SOFT_DIRTY),
              "page %zu: written, not soft-dirty", page);
}

int main(void)
{
    uint32_t dice = 3;
    pid_t me = getpid();
    world = od_map(SIZE);
    for (size_t page = 0; page < PAGES; page++) {
        gen_of[page] = 1;
        od_fill_at(world + page * OD_PAGE, OD_PAGE, 1, page * 512);
    }
    clear(me, "4");
    *(volatile char *)world = *(volatile char *)world;
    has_soft_dirty = (entry_of(me, world) & SOFT_DIRTY) != 0;
    for (int round = 0; round < 8; round++) {
        write_some(&dice, 500, 100 + round);
        od_run_child(look, &me); /* clears what tells which pages are dirty */
        memset(written, 0, PAGES);
        write_some(&dice, 500, 200 + round);
        od_run_child(check_written, &me);
        clear(me, round % 2 ? "4" : "1");
        od_refreeze();
        verify("parent, folded after a clear");
        od_run_child(verify, "child, folded after a clear");
        write_some(&dice, 300, 300 + round);
        look(&me);
        od_run_child(verify, "child");
        verify("parent");
    }
    return od_done();
}
