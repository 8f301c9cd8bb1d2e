/* MADV_DONTNEED on the frozen .bss of the program and of a library: zeros, at its start, in its
 * middle, at its end. On .data beside it: the file's content, as on stock. A library loaded where
 * frozen memory was shows its own content. */
// odtest: expect=froze user=any timeout=60 mem=200
#include "odtest.h"

#define SIZE (16 * OD_MB)

static char bss[SIZE] __attribute__((aligned(4096)));
static char data[4 * 4096] __attribute__((aligned(4096))) = {1, 2, 3};

static void nothing(void *argument) { (void)argument; }

static void drop(char *at, size_t bytes)
{
    OK(madvise(at, bytes, MADV_DONTNEED));
    od_verify_zero(at, bytes, "given up");
}

static void drop_parts(void *argument)
{
    static const size_t at[][2] = {{0, 1}, {1, 3}, {5, 16}, {600, 600}, {2000, 1}, {4095, 1}};
    char held[SIZE / OD_PAGE] = {0};
    (void)argument;
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        drop(bss + at[i][0] * OD_PAGE, at[i][1] * OD_PAGE);
        memset(held + at[i][0], 1, at[i][1]);
    }
    for (size_t page = 0; page < SIZE / OD_PAGE; page++)
        if (held[page])
            od_verify_zero(bss + page * OD_PAGE, OD_PAGE, "dropped page");
        else
            od_verify_at(bss + page * OD_PAGE, OD_PAGE, 5, page * 512, "kept page");
}

static void drop_data(void)
{
    char *page = data + 4096;
    data[0] = 9;
    page[0] = 9;
    OK(madvise(data, 2 * 4096, MADV_DONTNEED));
    CHECK(data[0] == 1 && data[1] == 2 && page[0] == 0, ".data: %d %d %d", data[0], data[1],
          page[0]);
}

int main(void)
{
    for (int round = 0; round < 3; round++) {
        od_fill(bss, SIZE, 5);
        od_run_child(nothing, NULL);
        od_run_child(drop_parts, NULL);
        drop_data();
        drop_parts(NULL);
        drop_data();
        od_run_child(nothing, NULL);
    }
    return od_done();
}
