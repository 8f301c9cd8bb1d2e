// odtest: expect=any timeout=90 mem=200 user=any
/*
 * Somebody kills every process of a group that is not the program itself: also one that works for
 * the program. Calls that would not fail on stock do not fail for that, and no byte changes.
 */
#include "proc_region.h"
#include <stdatomic.h>

enum { ROUNDS = 12 };
static const size_t BYTES = 16 * OD_MB;
static atomic_int *round_now; /* shared with the killer; -1: the end */

/* Kills the first child of the parent that is not itself, once in every round. */
static void killer(void *unused)
{
    char path[64], text[256];
    pid_t victim = getppid();
    int last = 0; /* in which it killed; 0: none */
    (void)unused;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)victim, (int)victim);
    while (*round_now >= 0) {
        int now = *round_now, fd = open(path, O_RDONLY);
        ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
        close(fd);
        text[got > 0 ? got : 0] = 0;
        for (char *word = text, *end; now != 0 && now != last && (strtol(word, &end, 10));
             word = end) {
            pid_t child = (pid_t)strtol(word, NULL, 10);
            if (child != getpid()) {
                kill(child, SIGKILL);
                last = now;
            }
        }
    }
}

static void give_away(unsigned char *region, int round)
{
    size_t from = (size_t)round % 5 * OD_PAGE, bytes = BYTES / 2;
    switch (round % 4) {
    case 0:
        OK(madvise(region + from, bytes, MADV_WIPEONFORK));
        OK(madvise(region + from, bytes, MADV_KEEPONFORK));
        break;
    case 1:
        OK(madvise(region + from, bytes, MADV_DONTFORK));
        OK(madvise(region + from, bytes, MADV_DOFORK));
        break;
    case 2:
        OK(madvise(region + from, bytes, MADV_DONTNEED));
        od_verify_zero(region + from, bytes, "given up");
        od_fill_at(region + from, bytes, 4, from / 8);
        break;
    default:
        OK(madvise(region, BYTES, MADV_WIPEONFORK));
        OK(madvise(region, BYTES, MADV_KEEPONFORK));
    }
}

int main(void)
{
    round_now = OK(mmap(NULL, OD_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    pid_t pid = od_spawn(killer, NULL);
    for (int round = 1; round <= ROUNDS; round++) {
        unsigned char *region = region_new(BYTES, 4);
        od_freeze();
        *round_now = round;
        give_away(region, round);
        *round_now = 0;
        od_verify(region, BYTES, 4, "after it");
        munmap(region, BYTES);
    }
    *round_now = -1;
    od_join(pid);
    void *region = region_new(BYTES, 4);
    region_look(region, BYTES, 4, "at the end");
    region_look(region, BYTES, 4, "at the end");
    return od_done();
}
