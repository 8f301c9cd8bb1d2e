// odtest: expect=plain:sanitizer cflags=-rdynamic mem=64
/*
 * A program that has what a sanitizer's runtime defines is left alone, and so are its forked children. The name here
 * stands for the real thing, which would want to be the first library.
 */
#include "proc_region.h"

static const size_t BYTES = 16 * OD_MB;

void __asan_init(void);
void __asan_init(void) {}

static void left_alone(const char *who)
{
    int (*freeze)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "odfork_freeze");
    CHECK(!freeze || freeze() == -1, "%s is frozen beside a sanitizer", who);
}

static void child(void *region)
{
    region_check(region, BYTES, 37, REGION_STEP, "child");
    left_alone("a child");
    region_look(region, BYTES, 37, "grandchild");
}

int main(void)
{
    void *region = region_new(BYTES, 37);
    pid_t pid = _Fork(); /* asks before its parent does */
    if (pid == 0) {
        child(region);
        _exit(0);
    }
    od_join(pid);
    region_look(region, BYTES, 37, "first fork");
    left_alone("the program");
    od_run_child(child, region);
    return od_done();
}
