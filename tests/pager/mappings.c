/* Everything a program may do to a large mapping, against a plain copy in the kernel's memory.
 * Arguments: steps, seed. */
#include "pages.h"

#define PAGES 2048ul
static uint64_t *memory;
static uint32_t versions[PAGES];
static uint8_t readable[PAGES], writable[PAGES], mapped[PAGES];

static void check_all(const char *what)
{
    for (size_t page = 0; page < PAGES; page++)
        if (mapped[page] && readable[page])
            peek_page(what, memory + page * WORDS, page, versions[page]);
}

int main(int argc, char **argv)
{
    unsigned steps = argc > 1 ? atoi(argv[1]) : 3000;
    uint64_t state = argc > 2 ? atoi(argv[2]) : 1;
    memory = paged(PAGES * PAGE);
    need_paged(memory);
    memset(readable, 1, PAGES), memset(writable, 1, PAGES), memset(mapped, 1, PAGES);
    for (unsigned step = 0; step < steps; step++) {
        uint64_t r = next_random(&state);
        size_t page = r % PAGES, run = 1 + (r >> 20) % 96;
        if (page + run > PAGES)
            run = PAGES - page;
        char *at = (char *)(memory + page * WORDS);
        switch ((r >> 40) % 12) {
        case 0: /* zeros again */
            for (size_t n = page; n < page + run; n++)
                if (!mapped[n])
                    goto skip;
            if (madvise(at, run * PAGE, MADV_DONTNEED) != 0)
                perror("madvise"), abort();
            memset(versions + page, 0, run * sizeof *versions);
            break;
        case 1: { /* read-only, none, and back */
            int prot = (r >> 50) % 3 == 0   ? PROT_NONE
                       : (r >> 50) % 3 == 1 ? PROT_READ
                                            : PROT_READ | PROT_WRITE;
            for (size_t n = page; n < page + run; n++)
                if (!mapped[n])
                    goto skip;
            if (mprotect(at, run * PAGE, prot) != 0)
                perror("mprotect"), abort();
            memset(readable + page, prot != PROT_NONE, run);
            memset(writable + page, (prot & PROT_WRITE) != 0, run);
            break;
        }
        case 2: /* a hole, sometimes */
            if ((r >> 50) % 4 == 0) {
                if (munmap(at, run * PAGE) != 0)
                    perror("munmap"), abort();
                memset(mapped + page, 0, run);
                memset(versions + page, 0, run * sizeof *versions);
            }
            break;
        case 3: /* the kernel's memory in its place */
            if ((r >> 50) % 4 == 0) {
                if (mmap(at, run * PAGE, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != at)
                    perror("mmap"), abort();
                memset(mapped + page, 1, run), memset(readable + page, 1, run),
                    memset(writable + page, 1, run);
                memset(versions + page, 0, run * sizeof *versions);
            }
            break;
        case 4: /* hints must do nothing */
            madvise(at, run * PAGE, MADV_HUGEPAGE), madvise(at, run * PAGE, MADV_COLD);
            madvise(at, run * PAGE, MADV_WILLNEED), madvise(at, run * PAGE, MADV_SEQUENTIAL);
            break;
        case 5: { /* another mapping, moved and grown and dropped */
            size_t bytes = (64 + run) * PAGE, more = bytes + run * PAGE;
            uint64_t *other = paged(bytes);
            fill_page(other + 5 * WORDS, 5, step + 1);
            fill_page(other + bytes / 8 - WORDS, 77, step + 1);
            uint64_t *moved = mremap(other, bytes, more, MREMAP_MAYMOVE);
            if (moved == MAP_FAILED)
                perror("mremap"), abort();
            check_page("moved", moved + 5 * WORDS, 5, step + 1);
            check_page("moved", moved + bytes / 8 - WORDS, 77, step + 1);
            check_page("grown", moved + bytes / 8, 0, 0);
            if (mremap(moved, more, 64 * PAGE, 0) != (void *)moved)
                perror("shrink"), abort();
            check_page("shrunk", moved + 5 * WORDS, 5, step + 1);
            if (munmap(moved, 64 * PAGE) != 0)
                perror("munmap"), abort();
            break;
        }
        default: /* write */
            for (size_t n = page; n < page + run; n++)
                if (mapped[n] && writable[n]) {
                    peek_page("before write", memory + n * WORDS, n, versions[n]);
                    fill_page(memory + n * WORDS, n, versions[n] = step + 1);
                }
        }
        for (int n = 0; n < 20; n++) {
            size_t some = next_random(&state) % PAGES;
            if (mapped[some] && readable[some])
                peek_page("some", memory + some * WORDS, some, versions[some]);
        }
skip:;
    }
    check_all("at the end");
    if (munmap(memory, PAGES * PAGE) != 0)
        perror("munmap"), abort();
    uint64_t *fresh = paged(PAGES * PAGE);
    need_paged(fresh);
    for (size_t page = 0; page < PAGES; page++)
        check_page("fresh", fresh + page * WORDS, page, 0);
    printf("ok %u steps\n", steps);
    return 0;
}
