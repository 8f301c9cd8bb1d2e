// odtest: expect=any mem=64 link=-z,now
/*
 * Handlers on alternate stacks with little room beside the signal's own frame: one forks, with
 * memory that is due to be frozen or folded; one ends the program, which is when the report is
 * written. Linked at once: the loader needs more room.
 */
#include "proc_region.h"
#include <sys/auxv.h>

enum { FORK_ROOM = 16384, EXIT_ROOM = 2048 };
static const size_t BYTES = 16 * OD_MB;
static void *region;

/* What a signal's frame takes here. */
static size_t frame(void)
{
    size_t least = getauxval(AT_MINSIGSTKSZ);
    return least ? least : 4096;
}

/* An alternate stack with a page below that nobody may touch. */
static void set_stack(size_t room)
{
    size_t bytes = (frame() + room + OD_PAGE - 1) / OD_PAGE * OD_PAGE;
    char *at = od_map(bytes + OD_PAGE);
    OK(mprotect(at, OD_PAGE, PROT_NONE));
    size_t used = frame() + room;
    stack_t stack = { .ss_sp = at + OD_PAGE, .ss_size = used };
    OK(sigaltstack(&stack, NULL));
}

static void set_handler(void (*handler)(int))
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_ONSTACK };
    OK(sigaction(SIGUSR1, &action, NULL));
}

static void forks(int sig)
{
    (void)sig;
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    int status = 1;
    if (waitpid(pid, &status, 0) != pid || status)
        _exit(1);
}

static void ends(int sig)
{
    (void)sig;
    _exit(0);
}

int main(void)
{
    region = region_new(BYTES, 9);
    set_stack(FORK_ROOM);
    set_handler(forks);
    for (size_t round = 0; round < 4; round++) {
        raise(SIGUSR1);
        region_look(region, BYTES, 9, "after a fork in a handler");
        region_touch(region, BYTES, 9, round);
    }
    od_done();
    set_stack(EXIT_ROOM);
    set_handler(ends);
    raise(SIGUSR1);
    return 1;
}
