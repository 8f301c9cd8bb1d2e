/* For programs that execute themselves with the library and without, and compare counts. */
#ifndef PROC_COST_H
#define PROC_COST_H
#include "odtest.h"

extern char **environ;

/* The environment with the library, or without; without the switches either way. */
static OD_UNUSED char **settings(int with)
{
    static char *kept[2][512];
    size_t n = 0;
    for (char **entry = environ; *entry && n < 511; entry++)
        if (strncmp(*entry, "ODFORK_", 7) && (with || strncmp(*entry, "LD_PRELOAD=", 11)))
            kept[with][n++] = *entry;
    kept[with][n] = NULL;
    return kept[with];
}

#endif
