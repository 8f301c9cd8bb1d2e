/*
 * Pages of a world, each with what it was last filled with. Define SIZE before.
 */
#ifndef MEM_PAGES_H
#define MEM_PAGES_H

#include "odtest.h"

#define PAGES (SIZE / OD_PAGE)

static char *world;
static uint32_t gen_of[PAGES]; /* 0: zeros */

static void verify(const char *who)
{
    for (size_t page = 0; page < PAGES; page++)
        if (gen_of[page])
            od_verify_at(world + page * OD_PAGE, OD_PAGE, gen_of[page], page * 512, who);
        else
            od_verify_zero(world + page * OD_PAGE, OD_PAGE, who);
}

#endif
