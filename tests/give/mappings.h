/* How many mappings the process has. */
#ifndef MAPPINGS_H
#define MAPPINGS_H

#include <stdio.h>

static long mappings(void)
{
    long n = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    for (int c; f && (c = getc(f)) != EOF;)
        n += c == '\n';
    if (f)
        fclose(f);
    return n;
}

#endif
