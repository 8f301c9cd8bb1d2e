// odtest: expect=any mem=64
/*
 * vmsplice: a pipe holds references to the program's pages. What was put in and not written since
 * must come out, however the memory was frozen, folded, thawed, unmapped, discarded or read by
 * children in between. Put in before the first fork, from frozen clean pages, and from frozen dirty
 * ones. Also tee, splice to a file, and reading by a child.
 */
#include "proc_region.h"
#include <sys/uio.h>

enum { PIECE = 8 * 4096 };
static const size_t BYTES = 16 * OD_MB;
static unsigned char *region;

static void put_in(int fd, size_t offset)
{
    struct iovec v = { region + offset, PIECE };
    while (v.iov_len) {
        ssize_t n = vmsplice(fd, &v, 1, 0);
        CHECK(n > 0, "vmsplice: %s", strerror(errno));
        v.iov_base = (char *)v.iov_base + n;
        v.iov_len -= (size_t)n;
    }
}

static void take_out(int fd, size_t offset, const char *what)
{
    static unsigned char text[PIECE];
    size_t got = 0;
    while (got < PIECE) {
        ssize_t n = read(fd, text + got, PIECE - got);
        CHECK(n > 0, "%s: read: %zd %s", what, n, strerror(errno));
        got += (size_t)n;
    }
    od_verify_at(text, PIECE, 42, offset / 8, what);
}

static void nothing(size_t offset) { (void)offset; }
static void fork_some(size_t offset)
{
    (void)offset;
    for (int i = 0; i < 3; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0, "fork");
        if (pid == 0)
            _exit(0);
        od_join(pid);
    }
}
static void freeze(size_t offset) { (void)offset, od_freeze(); }
static void fold(size_t offset) { (void)offset, od_refreeze(); }
static void thaw(size_t offset) { (void)offset, od_thaw(); }
static void fold_neighbours(size_t offset)
{
    /* every page outside the piece is dirtied, then folded */
    for (size_t at = 0; at < BYTES; at += OD_PAGE)
        if (at < offset || at >= offset + PIECE)
            *(volatile unsigned char *)(region + at) = region[at];
    od_refreeze();
    fork_some(0);
    od_refreeze();
}
static void discard(size_t offset) { OK(madvise(region + offset, PIECE, MADV_DONTNEED)); }
static void unmap(size_t offset) { OK(munmap(region + offset, PIECE)); }
static void map_over(size_t offset)
{
    OK(mmap(region + offset, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
            -1, 0));
}
static void child_writes(size_t offset)
{
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        memset(region + offset, 0xCC, PIECE);
        _exit(0);
    }
    od_join(pid);
}

static const struct { const char *name; void (*go)(size_t); int gone;
} MEANWHILE[] = {
    {"nothing", nothing, 0},
    {"forks", fork_some, 0},
    {"freeze", freeze, 0},
    {"fold", fold, 0},
    {"thaw", thaw, 0},
    {"freeze again", freeze, 0},
    {"fold of all else", fold_neighbours, 0},
    {"a child's writes", child_writes, 0},
    {"DONTNEED", discard, 1},
    {"munmap", unmap, 2},
    {"a new mapping", map_over, 1},
};
enum { WAYS = sizeof MEANWHILE / sizeof *MEANWHILE };

/* All ways, each followed by a second one, on a piece of its own that is whole again afterwards. */
static void all(const char *when, int dirty)
{
    for (int i = 0; i < WAYS; i++) {
        char what[120];
        int end[2];
        size_t offset = (size_t)(2 + i) * OD_MB + 5 * OD_PAGE;
        int second = (i * 5 + 2) % 7; /* one that leaves the piece mapped and whole */
        snprintf(what, sizeof what, "%s, %s, then %s", when, MEANWHILE[i].name,
                 MEANWHILE[second].name);
        OK(pipe(end));
        if (dirty)
            od_fill_at(region + offset, PIECE, 42, offset / 8);
        put_in(end[1], offset);
        MEANWHILE[i].go(offset);
        if (MEANWHILE[i].gone == 1)
            od_verify_zero(region + offset, PIECE, what);
        if (!MEANWHILE[i].gone)
            od_verify_at(region + offset, PIECE, 42, offset / 8, what);
        od_freeze();
        if (MEANWHILE[second].go != fold_neighbours || !MEANWHILE[i].gone)
            MEANWHILE[second].go(offset);
        take_out(end[0], offset, what);
        if (MEANWHILE[i].gone == 2)
            map_over(offset);
        if (MEANWHILE[i].gone)
            od_fill_at(region + offset, PIECE, 42, offset / 8);
        close(end[0]), close(end[1]);
    }
    region_check(region, BYTES, 42, 1, when);
}

/* A child drains the pipe while the parent goes on freezing and writing other pages. */
static void drained_by_child(void)
{
    int end[2];
    OK(pipe(end));
    size_t offset = 3 * OD_MB;
    put_in(end[1], offset);
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        usleep(20000);
        take_out(end[0], offset, "drained by a child");
        _exit(0);
    }
    fold_neighbours(offset);
    od_thaw();
    od_join(pid);
    close(end[0]), close(end[1]);
}

int main(void)
{
    region = region_new(BYTES, 42);
    all("put in early", 0);
    drained_by_child();
    region_grow_old(region, BYTES, 42);
    od_freeze();
    all("put in from clean pages", 0);
    all("put in from dirty pages", 1);
    drained_by_child();
    return od_done();
}
