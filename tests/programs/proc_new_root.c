// odtest: modes=stock,huge,small expect=any mem=64 needs=root
/*
 * In a new root the loader of a program executed next could not open the library, and would say so
 * on stderr: the environment names it no more. Where it can be opened, it stays. A child that
 * borrows this memory and changes its own root changes nothing here.
 */
#include "odtest.h"
#include <sys/stat.h>

static char root[64];

/* The library's entry is in what this process passes on. */
static int passes_on(void)
{
    const char *list = getenv("LD_PRELOAD");
    return list && strstr(list, "libodfork.so");
}

static void in_new_root(void *unused)
{
    (void)unused;
    OK(chroot(root));
    CHECK(!passes_on(), "LD_PRELOAD=%s after chroot", getenv("LD_PRELOAD"));
}

static void in_new_root_by_number(void *unused)
{
    (void)unused;
    OK(syscall(SYS_chroot, root));
    CHECK(!passes_on(), "LD_PRELOAD=%s after chroot by number", getenv("LD_PRELOAD"));
}

static void in_same_root(void *had)
{
    OK(chroot("/"));
    OK(setresuid(0, 0, 0));
    CHECK(passes_on() == *(int *)had, "an entry that can be opened is gone");
}

int main(void)
{
    int had = passes_on(), status;
    snprintf(root, sizeof root, "/tmp/odtest-root-%d", (int)getpid());
    OK(mkdir(root, 0755));
    od_run_child(in_new_root, NULL);
    od_run_child(in_new_root_by_number, NULL);
    od_run_child(in_same_root, &had);
    pid_t pid = vfork();
    if (pid == 0)
        _exit(chroot(root) ? 1 : 0);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the borrower ended with %#x",
          (unsigned)status);
    CHECK(passes_on() == had, "the borrower changed the environment");
    OK(rmdir(root));
    return od_done();
}
