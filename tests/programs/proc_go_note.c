// odtest: expect=plain:go mem=64
/*
 * A program with the note that Go writes into its programs is left alone, and so are its forked
 * children. The note is looked for without the loader, in the headers that the kernel points to.
 */
#include "proc_alone.h"

/* Its alignment is no other note's, so that the linker makes a header for it. */
__asm__(".pushsection .note.go.buildid,\"a\",@note\n"
        ".balign 16\n"
        ".long 4, 4, 4\n"
        ".ascii \"Go\\0\\0\"\n"
        ".long 0\n"
        ".balign 16\n"
        ".popsection\n");

int main(void)
{
    return alone_main("with a note of Go");
}
