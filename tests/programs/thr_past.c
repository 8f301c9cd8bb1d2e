// odtest: expect=froze timeout=60 mem=64
/*
 * A handler of SIGCHLD that was set by the C library's own function, past any wrapper, changes
 * the access to frozen memory. The signal comes all the time, before that and after: in passes and
 * between them.
 */
#include "proc_region.h"
#include <dlfcn.h>
#include <signal.h>
#include <sys/prctl.h>

enum { ROUNDS = 60 };
static const size_t BYTES = 8 * OD_MB;
static volatile sig_atomic_t handled;
static void *region;

static void on_child(int unused)
{
    int saved = errno;
    (void)unused;
    if (mprotect(region, OD_PAGE, PROT_READ | PROT_WRITE) != 0)
        _exit(3);
    handled++;
    errno = saved;
}

static void set_handler(void)
{
    struct sigaction action = { .sa_handler = on_child, .sa_flags = SA_RESTART };
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD), *found;
    int (*set)(int, const struct sigaction *, struct sigaction *);
    CHECK(libc && (found = dlsym(libc, "sigaction")), "no sigaction: %s", dlerror());
    memcpy(&set, &found, sizeof set);
    OK(set(SIGCHLD, &action, NULL));
}

static void send_signals(void *unused)
{
    (void)unused;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (kill(getppid(), SIGCHLD) == 0)
        usleep(20);
}

int main(void)
{
    region = region_new(BYTES, 30);
    pid_t storm = od_spawn(send_signals, NULL);
    for (size_t round = 0; round < ROUNDS; round++) {
        if (round == ROUNDS / 4)
            set_handler();
        region_touch(region, BYTES, 30, round);
        region_look(region, BYTES, 30, "beside a handler");
        od_refreeze();
        usleep(1000);
    }
    OK(kill(storm, SIGKILL));
    CHECK(waitpid(storm, NULL, 0) == storm, "waitpid: %s", strerror(errno));
    CHECK(handled > 0, "no handler ran");
    region_check(region, BYTES, 30, 1, "at the end");
    return od_done();
}
