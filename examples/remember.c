/* A program that builds a big table once and finds it again in the next run without reading it in.
 *
 *     cc -O2 remember.c -lodfimage -o remember
 *     ./remember FILE    the first run builds and saves
 *     ./remember FILE    the second answers at once
 */
#include <odfimage.h>

#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { ROWS = 8 << 20 };

/* A row knows its neighbour by address: the table is mapped where it was. */
struct row {
    uint64_t value;
    struct row *next;
};

static double now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

int main(int argc, char **argv)
{
    const char *file = argc > 1 ? argv[1] : "remember.img";
    struct odfork_image_error error;
    double begin = now_ms();
    size_t size = ROWS * sizeof(struct row);
    if (access(file, F_OK) == 0) {
        struct row *table = odfork_image_map(file, "table", 0, &size, &error);
        if (!table) {
            fprintf(stderr, "%s\n", error.text);
            return 1;
        }
        int right = table[4711].next->value == 3 * 4712;
        printf("answered after %.3f ms\n", now_ms() - begin);
        return right ? 0 : 1;
    }
    struct row *table = odfork_image_reserve(size);
    if (!table)
        return 1;
    for (size_t i = 0; i < ROWS; i++)
        table[i] = (struct row){ 3 * i, &table[(i + 1) % ROWS] };
    printf("built %zu MB in %.0f ms\n", size >> 20, now_ms() - begin);
    struct odfork_image_region region = { "table", table, size, 0 };
    if (odfork_image_save(file, &region, 1, NULL, &error) != 0) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    printf("saved to %s; run me again\n", file);
    return 0;
}
