// odtest: expect=plain:go mem=64
/*
 * A program with the note that Go writes into its programs is left alone, and so are its forked children. The note is
 * looked for without the loader, in the headers that the kernel points to.
 */
#include "proc_region.h"

static const size_t BYTES = 16 * OD_MB;

/* Its alignment is no other note's, so that the linker makes a header for it. */
__asm__(".pushsection .note.go.buildid,\"a\",@note\n"
        ".balign 16\n"
        ".long 4, 4, 4\n"
        ".ascii \"Go\\0\\0\"\n"
        ".long 0\n"
        ".balign 16\n"
        ".popsection\n");

static void left_alone(const char *who)
{
    int (*freeze)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "odfork_freeze");
    CHECK(!freeze || freeze() == -1, "%s is frozen with a note of Go", who);
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
