/* The program's own userfaultfd: registered before the freeze, and later on memory already frozen.
 * A child process serves the faults, so the program has one thread. */
// odtest: expect=froze needs=uffd timeout=60
#include "odtest.h"
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

#define SIZE (8 * OD_MB)
#define PAGES (SIZE / OD_PAGE)

struct served {
    int fd;
    pid_t server;
    char *at;
    uint64_t gen;
};

static char *world;
static uint32_t *protect_events; /* shared */

static void resolve(const struct served *s, const struct uffd_msg *message)
{
    static uint64_t page[512];
    uint64_t address = message->arg.pagefault.address & ~(uint64_t)(OD_PAGE - 1);
    if (message->arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP) {
        struct uffdio_writeprotect open = {.range = {address, OD_PAGE}};
        ++*protect_events;
        OK(ioctl(s->fd, UFFDIO_WRITEPROTECT, &open));
        return;
    }
    od_fill_at(page, OD_PAGE, s->gen, (address - (uintptr_t)s->at) / 8);
    struct uffdio_copy copy = {.dst = address, .src = (uintptr_t)page, .len = OD_PAGE};
    if (ioctl(s->fd, UFFDIO_COPY, &copy) != 0)
        CHECK(errno == EEXIST || errno == EAGAIN, "UFFDIO_COPY: %s", strerror(errno));
}

static void serve(void *argument)
{
    struct uffd_msg message;
    while (read(((struct served *)argument)->fd, &message, sizeof message) == sizeof message)
        if (message.event == UFFD_EVENT_PAGEFAULT)
            resolve(argument, &message);
}

static void add_range(struct served *s, size_t bytes, int mode)
{
    struct uffdio_register range = {.range = {(uintptr_t)s->at, bytes}, .mode = mode};
    OK(ioctl(s->fd, UFFDIO_REGISTER, &range));
}

static void start(struct served *s, char *at, uint64_t gen)
{
    struct uffdio_api api = {.api = UFFD_API};
    s->fd = OK(syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY));
    OK(ioctl(s->fd, UFFDIO_API, &api));
    s->at = at;
    s->gen = gen;
    s->server = 0;
}

static void stop(struct served *s)
{
    int status;
    OK(kill(s->server, SIGKILL));
    CHECK(waitpid(s->server, &status, 0) == s->server && WIFSIGNALED(status),
          "the server ended by itself: %x", status);
    close(s->fd);
}

/* In a child the range is not registered: what the parent never touched reads zeros. */
static void child(void *argument)
{
    struct served *s = argument;
    for (size_t page = 0; page < PAGES; page++) {
        if (page % 2)
            od_verify_zero(s->at + page * OD_PAGE, OD_PAGE, "child, never touched");
        else
            od_verify_at(s->at + page * OD_PAGE, OD_PAGE, s->gen, page * 512, "child, touched");
    }
    od_verify(world, SIZE, 5, "child");
}

/* Registered from the start; half the pages are touched before the freeze, half after. */
static void missing_from_the_start(uint64_t gen)
{
    struct served s;
    char *at = od_map(SIZE);
    start(&s, at, gen);
    add_range(&s, SIZE, UFFDIO_REGISTER_MODE_MISSING);
    s.server = od_spawn(serve, &s);
    for (size_t page = 0; page < PAGES; page += 2)
        od_verify_at(at + page * OD_PAGE, OD_PAGE, gen, page * 512, "served");
    od_run_child(child, &s);
    od_refreeze();
    od_run_child(child, &s);
    od_verify(at, SIZE, gen, "served, all");
    OK(madvise(at + OD_MB, OD_MB, MADV_DONTNEED));
    od_verify(at, SIZE, gen, "served again after DONTNEED");
    od_fill(at, SIZE, 8);
    od_verify(at, SIZE, 8, "written over");
    stop(&s);
    OK(munmap(at, SIZE));
}

/* Registered on a part of memory that is frozen: dropped before or after registering, then served.
 */
static void missing_on_frozen(uint64_t gen, int drop_first)
{
    struct served s;
    char *at = od_map(3 * SIZE);
    od_fill(at, 3 * SIZE, 6);
    od_run_child((void (*)(void *))od_refreeze, NULL);
    start(&s, at + SIZE, gen);
    if (drop_first)
        OK(madvise(at + SIZE, SIZE, MADV_DONTNEED));
    add_range(&s, SIZE, UFFDIO_REGISTER_MODE_MISSING);
    s.server = od_spawn(serve, &s);
    if (!drop_first) {
        od_verify_at(at + SIZE, SIZE, 6, SIZE / 8, "registered, still there");
        OK(madvise(at + SIZE, SIZE, MADV_DONTNEED));
    }
    for (size_t page = 0; page < PAGES; page += 2)
        od_verify_at(at + SIZE + page * OD_PAGE, OD_PAGE, gen, page * 512,
                     "served in frozen memory");
    od_run_child(child, &s);
    od_refreeze();
    od_verify(at + SIZE, SIZE, gen, "served in frozen memory, all");
    od_verify(at, SIZE, 6, "before");
    od_verify_at(at + 2 * SIZE, SIZE, 6, 2 * SIZE / 8, "after");
    stop(&s);
    OK(munmap(at, 3 * SIZE));
}

/* Write-protected by the program: each first write is one event, in frozen memory too. */
static void protected_on_frozen(void)
{
    struct served s;
    char *at = od_map(SIZE);
    od_fill(at, SIZE, 6);
    od_run_child((void (*)(void *))od_refreeze, NULL);
    start(&s, at, 0);
    add_range(&s, SIZE, UFFDIO_REGISTER_MODE_WP);
    s.server = od_spawn(serve, &s);
    struct uffdio_writeprotect close_it = {.range = {(uintptr_t)at, SIZE},
                                           .mode = UFFDIO_WRITEPROTECT_MODE_WP};
    OK(ioctl(s.fd, UFFDIO_WRITEPROTECT, &close_it));
    *protect_events = 0;
    for (size_t page = 0; page < PAGES; page += 4)
        *(volatile uint64_t *)(at + page * OD_PAGE) = page;
    printf("write-protect events: %u\n", *protect_events);
    od_run_child((void (*)(void *))od_refreeze, NULL);
    for (size_t page = 0; page < PAGES; page += 4)
        *(uint64_t *)(at + page * OD_PAGE) = od_word(6, page * 512);
    od_verify(at, SIZE, 6, "after write protection");
    stop(&s);
    OK(munmap(at, SIZE));
}

int main(void)
{
    protect_events =
        OK(mmap(NULL, OD_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    world = od_map(SIZE);
    od_fill(world, SIZE, 5);
    for (int round = 0; round < 2; round++) {
        missing_from_the_start(20 + round);
        missing_on_frozen(30 + round, 0);
        missing_on_frozen(40 + round, 1);
        protected_on_frozen();
    }
    od_verify(world, SIZE, 5, "parent");
    return od_done();
}
