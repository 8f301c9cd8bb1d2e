/* What locking a page of frozen memory takes, in a process of thousands of mappings: as many system
 * calls of the library as in one of few, and none for a page that was locked before. The library
 * counts its own calls; stock has none. */
// odtest: expect=froze user=any auto=any timeout=60
#include "odtest.h"

enum { OWN = 6000 /* mappings of the program's */, PAGES = 16, MOST = 250 };

#define SIZE (16 * OD_MB)

static char *world;

static void check(void *argument)
{
    od_verify(world, SIZE, 1, argument);
}

static void lock_pages(const char *when, long most)
{
    for (size_t i = 0; i < PAGES; i++) {
        char *page = world + (8 * i + 1) * OD_PAGE;
        long before = od_number("calls");
        OK(mlock(page, OD_PAGE));
        long taken = od_number("calls") - before;
        OK(munlock(page, OD_PAGE));
        CHECK(taken <= most, "page %zu %s: %ld calls", i, when, taken);
    }
}

int main(void)
{
    char *own = od_map(OWN * OD_PAGE);
    for (size_t i = 0; i < OWN; i += 2)
        OK(mprotect(own + i * OD_PAGE, OD_PAGE, PROT_READ));
    world = od_map(SIZE);
    od_fill(world, SIZE, 1);
    od_run_child(check, "child"); /* eager: frozen here */
    lock_pages("the first time", MOST);
    lock_pages("again", 0);
    check("parent");
    od_run_child(check, "another child");
    lock_pages("after a fork", 0);
    check("parent at the end");
    return od_done();
}
