/* mlockall(MCL_FUTURE): new mappings are locked, memory that was there before is not, and is given
 * up by MADV_DONTNEED as on stock. Asked for before the first freeze, after it, past libc, in a
 * child, on fault; taken back; with a limit of locked memory. A child inherits none of it. */
// odtest: expect=froze user=any auto=any timeout=90
#include "raw_call.h"

#define SIZE (16 * OD_MB)
#define PART (64 * 1024)

enum { RAW = 1, LATE = 2, LIMITED = 4 };

static char *world;

static void check(void *argument)
{
    od_verify(world, SIZE / 2, *(uint64_t *)argument, "child");
}

/* A child of a process with locks, which has none. */
static void child(void *argument)
{
    check(argument);
    OK(madvise(world, PART, MADV_DONTNEED));
    od_fill(world, SIZE, 9);
    uint64_t gen = 9;
    od_run_child(check, &gen);
    OK(madvise(world + SIZE / 2, PART, MADV_DONTNEED));
    od_verify_zero(world + SIZE / 2, PART, "given up in a child");
}

/* Every other part of the upper half, after each of which a fork may freeze. */
static void give_up(uint64_t gen, const char *when)
{
    od_fill(world, SIZE, gen);
    for (size_t at = SIZE / 2; at < SIZE; at += SIZE / 8) {
        od_run_child(check, &gen);
        od_freeze();
        for (size_t part = at; part < at + SIZE / 8; part += 2 * PART) {
            CHECK(madvise(world + part, PART, MADV_DONTNEED) == 0, "%s: %s at %zu", when,
                  strerror(errno), part);
            CHECK(madvise(world + part, PART, MADV_DONTNEED) == 0, "%s: again: %s", when,
                  strerror(errno));
        }
        for (size_t part = at; part < at + SIZE / 8; part += 2 * PART) {
            od_verify_zero(world + part, PART, when);
            od_verify_at(world + part + PART, PART, gen, (part + PART) / 8, when);
        }
    }
    od_run_child(child, &gen);
    od_verify(world, SIZE / 2, gen, when);
}

static void lock_all(int flags, int how)
{
    long answer = how & RAW ? raw_call(SYS_mlockall, flags, 0, 0, 0, 0, 0) : mlockall(flags);
    CHECK(answer == 0, "mlockall(%d): %ld, %s", flags, answer, strerror(errno));
}

static void check_new(const char *when, int locked)
{
    char *at = od_map(PART);
    CHECK((madvise(at, PART, MADV_DONTNEED) != 0) == locked, "%s: new memory", when);
    OK(munmap(at, PART));
}

/* In a process of its own, which has frozen nothing yet, or has before it asks for locks. */
static void one(int flags, int how, const char *when)
{
    uint64_t gen = 1;
    world = od_map(SIZE);
    if (how & LIMITED) {
        struct rlimit limit = {OD_MB, OD_MB};
        OK(setrlimit(RLIMIT_MEMLOCK, &limit));
        if (geteuid() == 0)
            OK(setuid(65534));
    }
    if (how & LATE) {
        od_fill(world, SIZE, gen);
        od_run_child(check, &gen);
        od_freeze();
    }
    lock_all(flags, how);
    check_new(when, 1);
    if (how & RAW) {
        od_fill(world, SIZE, gen);
        od_run_child(check, &gen); /* the library finds out here */
        od_freeze();
    }
    give_up(2, when);
    CHECK(od_number("frozen_bytes") == 0, "%s: frozen beside locks", when);
    OK(munlockall());
    check_new(when, 0);
    give_up(3, when);
}

static void in_a_child(int flags, int how, const char *when)
{
    fflush(NULL);
    pid_t pid = OK(fork());
    if (pid == 0) {
        one(flags, how, when);
        _exit(0);
    }
    od_join(pid);
    printf("%s: done\n", when);
}

int main(void)
{
    in_a_child(MCL_FUTURE, 0, "before a freeze");
    in_a_child(MCL_FUTURE, LATE, "after a freeze");
    in_a_child(MCL_FUTURE | MCL_ONFAULT, LATE, "on fault");
    in_a_child(MCL_FUTURE, RAW, "past libc before a freeze");
    in_a_child(MCL_FUTURE, RAW | LATE, "past libc after a freeze");
    in_a_child(MCL_FUTURE, LIMITED, "with a limit before a freeze");
    in_a_child(MCL_FUTURE, LIMITED | LATE, "with a limit after a freeze");
    one(MCL_FUTURE, LATE, "in the parent");
    return od_done();
}
