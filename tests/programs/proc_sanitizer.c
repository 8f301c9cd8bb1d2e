// odtest: expect=plain:sanitizer cflags=-rdynamic mem=64
/*
 * A program that has what a sanitizer's runtime defines is left alone, and so are its forked
 * children. The name here stands for the real thing, which would want to be the first library.
 */
#include "proc_alone.h"

void __asan_init(void);
void __asan_init(void) {}

int main(void)
{
    return alone_main("beside a sanitizer");
}
