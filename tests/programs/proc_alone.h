/*
 * What a program that is left alone must show: neither it nor a forked child is frozen when asked,
 * whoever asks first, and memory is right in all of them.
 */
#ifndef PROC_ALONE_H
#define PROC_ALONE_H

#include "proc_region.h"

static const size_t ALONE_BYTES = 16 * OD_MB;

static void left_alone(const char *who, const char *because)
{
    int (*freeze)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "odfork_freeze");
    CHECK(!freeze || freeze() == -1, "%s is frozen %s", who, because);
}

static const char *alone_because;

static void alone_child(void *region)
{
    region_check(region, ALONE_BYTES, 37, REGION_STEP, "child");
    left_alone("a child", alone_because);
    region_look(region, ALONE_BYTES, 37, "grandchild");
}

static int alone_main(const char *because)
{
    void *region = region_new(ALONE_BYTES, 37);
    alone_because = because;
    pid_t pid = _Fork(); /* asks before its parent does */
    if (pid == 0) {
        alone_child(region);
        _exit(0);
    }
    od_join(pid);
    region_look(region, ALONE_BYTES, 37, "first fork");
    left_alone("the program", because);
    od_run_child(alone_child, region);
    return od_done();
}

#endif
