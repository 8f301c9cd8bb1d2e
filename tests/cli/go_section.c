/* The witness, with the section in which Go programs carry their build facts. */
__attribute__((section(".go.buildinfo"), used)) static const char buildinfo[16] = "imitation";
#include "witness.c"
