/* The witness, with the note by which the Go linker names its build. */
__asm__(".section .note.imitation,\"a\",@note\n"
        ".long 3, 4, 4\n"
        ".ascii \"Go\\0\\0\"\n"
        ".ascii \"abcd\"\n"
        ".text\n");
#include "witness.c"
