/* Memory that is given back in the middle of live memory: what lies behind it is shared again after
 * the next child, as what lies before it is. New memory that is found beside a child is frozen and
 * shared once the child has ended. All the while each child sees the memory of its fork. */
// odtest: modes=stock,slices expect=shared slices=shared timeout=120 mem=200
#include "odtest.h"

#define SIZE (32 * OD_MB)
#define MORE (16 * OD_MB)
#define PAGES ((SIZE + MORE) / OD_PAGE)
#define HOLE_AT (12 * OD_MB)
#define HOLE (1 * OD_MB)

static char *memory;
static uint32_t expected[PAGES];

static void put(size_t page, uint32_t value)
{
    expected[page] = value;
    *(uint32_t *)(memory + page * OD_PAGE) = value;
}

static void check(const char *who, size_t size)
{
    for (size_t page = 0; page < size / OD_PAGE; page++) {
        uint32_t value = *(const uint32_t *)(memory + page * OD_PAGE);
        CHECK(value == expected[page], "%s: page %zu is %x, want %x", who, page, value,
              expected[page]);
    }
}

/* Waits until so much is; with stock, for a moment. */
static void wait_until(const char *what, size_t start, size_t size, size_t least)
{
    int is_live = getenv("ODFORK_PROFILE") != NULL;
    size_t from = (size_t)memory + start, now = 0;
    for (int i = 0; i < (is_live ? 20000 : 20); i++) {
        if (i % 16 == 15 && (now = od_shared((void *)from, size)) >= least)
            return;
        poll(NULL, 0, 1);
    }
    CHECK(!is_live, "%s: %zu of %zu MB are shared, want %zu", what, now / OD_MB, size / OD_MB,
          least / OD_MB);
}

static void child(void *argument)
{
    size_t size = *(size_t *)argument;
    check("child", size);
    put(3, 77);
    usleep(5000);
    check("child, later", size);
}

/* A child, beside which the parent writes. */
static void round_of(size_t size, uint32_t number)
{
    pid_t pid = od_spawn(child, &size);
    for (size_t page = 0; page < size / OD_PAGE; page += 3)
        put(page, (uint32_t)page + number);
    od_join(pid);
}

int main(void)
{
    char *room = OK(mmap(NULL, SIZE + MORE + 2 * OD_MB, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    memory = (char *)(((uintptr_t)room + 2 * OD_MB - 1) & ~(2 * OD_MB - 1));
    for (size_t page = 0; page < SIZE / OD_PAGE; page++)
        put(page, (uint32_t)page + 1);
    wait_until("before the first fork", 0, SIZE, SIZE);
    CHECK(madvise(memory + HOLE_AT, HOLE, MADV_DONTNEED) == 0, "madvise");
    for (size_t page = HOLE_AT / OD_PAGE; page < (HOLE_AT + HOLE) / OD_PAGE; page++)
        expected[page] = 0;
    check("parent", SIZE);
    for (uint32_t number = 0; number < 4; number++) {
        round_of(SIZE, number);
        wait_until("around a hole", 0, SIZE, SIZE - HOLE);
        check("parent, later", SIZE);
    }
    for (size_t page = SIZE / OD_PAGE; page < PAGES; page++)
        put(page, (uint32_t)page + 1);
    round_of(SIZE + MORE, 100);
    wait_until("new memory", SIZE, MORE, MORE);
    round_of(SIZE + MORE, 101);
    check("parent, at last", SIZE + MORE);
    return od_done();
}
