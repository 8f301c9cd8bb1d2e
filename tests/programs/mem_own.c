/* The runtime's own memory is never frozen: it is written while memory moves. The kernel joins
 * mappings that lie side by side, so the program maps memory of its own beside the runtime's, as
 * like it as can be. */
// odtest: expect=froze user=any timeout=60 mem=200
#include "odtest.h"

#define SIZE (3 * OD_MB / 2) /* what fits beside the room */
#define ROOM ((size_t)16384 * 16) /* sixteen bytes for each of so many parts */

struct mapping {
    uintptr_t start, end;
    unsigned long inode;
    char name[200];
};

/* The first mapping for which `wanted` holds; false when there is none. */
static int find(int (*wanted)(const struct mapping *, uintptr_t), uintptr_t word, struct mapping *m)
{
    char line[600];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps, "maps: %s", strerror(errno));
    while (!found && fgets(line, sizeof line, maps)) {
        m->name[0] = 0;
        CHECK(sscanf(line, "%lx-%lx %*s %*s %*s %lu %199s", &m->start, &m->end, &m->inode,
                     m->name) >= 3, "maps: %s", line);
        found = strstr(line, " rw-p ") && wanted(m, word);
    }
    fclose(maps);
    return found;
}

static int is_room(const struct mapping *m, uintptr_t zone)
{
    return m->inode == 0 && m->start >= zone && m->end - m->start == ROOM;
}

static int is_library(const struct mapping *m, uintptr_t unused)
{
    (void)unused;
    return strstr(m->name, "/libodfork.so") != NULL;
}

static int is_around(const struct mapping *m, uintptr_t at)
{
    return m->start <= at && at < m->end;
}

static void nothing(void *argument) { (void)argument; }

/* Memory of the program at that place; NULL when it is taken. */
static char *beside(uintptr_t at)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    char *got = mmap((void *)at, SIZE, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (got == MAP_FAILED)
        return NULL;
    od_fill(got, SIZE, 3);
    return got;
}

/* The page at `own` is anonymous, or the library's. What memory beside it holds stays. */
static void check(const char *what, uintptr_t own, const char *memory)
{
    struct mapping m;
    CHECK(find(is_around, own, &m), "%s is not mapped", what);
    CHECK(m.inode == 0 || is_library(&m, 0), "%s shows %s", what, m.name);
    if (memory)
        od_verify(memory, SIZE, 3, what);
}

int main(void)
{
    struct mapping room, library;
    char *parent = od_map(8 * OD_MB);
    od_fill(parent, 8 * OD_MB, 1);
    od_freeze();
    od_run_child(nothing, NULL);
    if (find(is_library, 0, &library)) {
        CHECK(find(is_room, 0x680000000000, &room), "the room for addresses is not found");
        char *behind = beside(room.end), *late = beside(library.end);
        CHECK(behind, "memory beside the room for addresses: %s", strerror(errno));
        od_freeze();
        od_run_child(nothing, NULL);
        check("the room", room.start, behind);
        check("the room", room.end - 1, behind);
        check("the library", library.start, NULL);
        check("the library", library.end - 1, late);
    }
    od_verify(parent, 8 * OD_MB, 1, "parent");
    return od_done();
}
