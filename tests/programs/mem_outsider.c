/* Writes from another process, through /proc/PID/mem and process_vm_writev, reach exactly one
 * process. */
// odtest: timeout=60
#include "odtest.h"
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#define SIZE (16 * OD_MB)
#define PAGES (SIZE / OD_PAGE)
#define PROTECTED 1000 /* this page is read-only in the target */

static char *world;

struct deed {
    pid_t target;
    uint64_t old, new;
    int by_file;
};

static int is_hit(size_t page) { return page % 7 == 3 || page == PROTECTED; }

static void verify(uint64_t old, uint64_t new, const char *who)
{
    for (size_t page = 0; page < PAGES; page++)
        od_verify_at(world + page * OD_PAGE, OD_PAGE, is_hit(page) ? new : old, page * 512, who);
}

/* A write to a page that its owner may not write. Since Linux 6.12 it may be left to tracers
 * (proc_mem.force_override); the end of this process ends the tracing. */
static void force(int fd, pid_t target, const void *page_of, off_t where)
{
    ssize_t put = pwrite(fd, page_of, OD_PAGE, where);
    if (put == -1 && errno == EIO) {
        OK(ptrace(PTRACE_SEIZE, target, NULL, NULL));
        put = pwrite(fd, page_of, OD_PAGE, where);
    }
    CHECK(put == (ssize_t)OD_PAGE, "pwrite: %s", strerror(errno));
}

static void write_by_file(const struct deed *deed)
{
    char path[64];
    static uint64_t page_of[512];
    snprintf(path, sizeof path, "/proc/%d/mem", (int)deed->target);
    int fd = OK(open(path, O_RDWR | O_CLOEXEC));
    for (size_t page = 0; page < PAGES; page++) {
        off_t where = (uintptr_t)world + page * OD_PAGE;
        CHECK(pread(fd, page_of, OD_PAGE, where) == (ssize_t)OD_PAGE, "pread: %s", strerror(errno));
        od_verify_at(page_of, OD_PAGE, deed->old, page * 512, "read through /proc/PID/mem");
        if (!is_hit(page))
            continue;
        od_fill_at(page_of, OD_PAGE, deed->new, page * 512);
        force(fd, deed->target, page_of, where);
    }
    close(fd);
}

static void write_by_call(const struct deed *deed)
{
    static uint64_t page_of[512];
    for (size_t page = 0; page < PAGES; page++) {
        struct iovec here = {page_of, OD_PAGE}, there = {world + page * OD_PAGE, OD_PAGE};
        CHECK(process_vm_readv(deed->target, &here, 1, &there, 1, 0) == (ssize_t)OD_PAGE,
              "readv: %s", strerror(errno));
        od_verify_at(page_of, OD_PAGE, deed->old, page * 512, "read by process_vm_readv");
        if (!is_hit(page))
            continue;
        od_fill_at(page_of, OD_PAGE, deed->new, page * 512);
        ssize_t put = process_vm_writev(deed->target, &here, 1, &there, 1, 0);
        if (page == PROTECTED && put == -1 && errno == EFAULT)
            continue; /* process_vm_writev respects protection; the caller writes by file */
        CHECK(put == (ssize_t)OD_PAGE, "page %zu: writev: %zd %s", page, put, strerror(errno));
    }
}

static void intrude(void *argument)
{
    struct deed *deed = argument;
    verify(deed->old, deed->old, "intruder before");
    if (deed->by_file) {
        write_by_file(deed);
    } else {
        struct deed rest = *deed;
        write_by_call(deed);
        char path[64];
        static uint64_t page_of[512];
        snprintf(path, sizeof path, "/proc/%d/mem", (int)rest.target);
        int fd = OK(open(path, O_RDWR | O_CLOEXEC));
        od_fill_at(page_of, OD_PAGE, rest.new, PROTECTED * 512);
        force(fd, rest.target, page_of, (off_t)((uintptr_t)world + PROTECTED * OD_PAGE));
        close(fd);
    }
    verify(deed->old, deed->old, "intruder after");
}

struct bystander {
    struct od_gate gate;
    uint64_t old, new;
};

static void watch(void *argument)
{
    struct bystander *b = argument;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    od_gate_wait(&b->gate);
    verify(b->old, b->new, "bystander");
    od_refreeze();
    verify(b->old, b->new, "bystander, folded");
}

int main(void)
{
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); /* for machines where Yama restricts it */
    world = od_map(SIZE);
    OK(mprotect(world + PROTECTED * OD_PAGE, OD_PAGE, PROT_READ | PROT_WRITE));
    for (uint64_t gen = 10; gen < 60; gen += 10) {
        int by_file = gen / 10 % 2;
        struct bystander untouched = {.old = gen, .new = gen}, hit = {.old = gen, .new = gen + 2};
        od_gate_make(&untouched.gate);
        od_gate_make(&hit.gate);
        od_fill(world, SIZE, gen);
        OK(mprotect(world + PROTECTED * OD_PAGE, OD_PAGE, PROT_READ));
        pid_t first = od_spawn(watch, &untouched), second = od_spawn(watch, &hit);
        if (gen == 40)
            od_refreeze();
        struct deed on_me = {getpid(), gen, gen + 1, by_file},
                    on_child = {second, gen, gen + 2, !by_file};
        od_run_child(intrude, &on_child);
        verify(gen, gen, "parent while a child was written to");
        od_run_child(intrude, &on_me);
        verify(gen, gen + 1, "parent after it was written to");
        od_refreeze();
        verify(gen, gen + 1, "parent, folded");
        od_gate_open(&untouched.gate, 1);
        od_gate_open(&hit.gate, 1);
        od_join(first);
        od_join(second);
        od_gate_drop(&untouched.gate);
        od_gate_drop(&hit.gate);
        od_run_child((void (*)(void *))od_refreeze, NULL);
        verify(gen, gen + 1, "parent, later");
        OK(mprotect(world + PROTECTED * OD_PAGE, OD_PAGE, PROT_READ | PROT_WRITE));
    }
    return od_done();
}
