// odtest: expect=froze timeout=120 mem=200
/*
 * A supervisor stops a whole process group while memory is frozen, and lets the process alone go
 * on: it goes on, because the task that freezes is in no group of the program's.
 */
#include "odtest.h"
#include <time.h>

#define SIZE (48 * OD_MB)
enum { STOPS = 5, SECONDS = 30 };

static volatile int *is_over; /* shared */

static void freeze_much(void)
{
    char *memory = od_map(SIZE);
    for (uint64_t round = 1; !*is_over; round++) {
        od_fill(memory, SIZE, round);
        od_freeze();
        od_verify(memory, SIZE, round, "frozen");
    }
}

static void rest_us(long us)
{
    struct timespec time = { 0, us * 1000 };
    nanosleep(&time, NULL);
}

/* Its task that freezes, which it waits for and which has left the group; 0: none now. */
static pid_t task_of(pid_t worker)
{
    char path[64];
    int task = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", worker, worker);
    FILE *file = fopen(path, "re");
    CHECK(file, "%s: %s", path, strerror(errno));
    if (fscanf(file, "%d", &task) != 1 || getpgid(task) != task)
        task = 0;
    fclose(file);
    return task;
}

int main(void)
{
    int status, stops = 0, is_covered = od_number("pid") != 0;
    is_over = mmap(NULL, OD_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t worker = od_fork();
    if (worker == 0) {
        OK(setpgid(0, 0));
        freeze_much();
        _exit(0);
    }
    setpgid(worker, worker);
    for (time_t end = time(NULL) + SECONDS; stops < STOPS && time(NULL) < end;) {
        rest_us(200);
        if (is_covered && !task_of(worker))
            continue;
        OK(kill(-worker, SIGSTOP));
        rest_us(1000);
        OK(kill(worker, SIGCONT));
        stops++;
        rest_us(100 * 1000);
    }
    *is_over = 1;
    for (time_t end = time(NULL) + SECONDS; OK(waitpid(worker, &status, WNOHANG)) == 0;) {
        rest_us(10 * 1000);
        if (time(NULL) > end) {
            kill(-worker, SIGKILL);
            CHECK(0, "the process did not go on, after %d stops", stops);
        }
    }
    CHECK(status == 0, "the worker ended with %#x", status);
    CHECK(stops > 0, "no task of the process was in another group");
    char *own = od_map(16 * OD_MB);
    od_fill(own, 16 * OD_MB, 3);
    od_freeze();
    od_verify(own, 16 * OD_MB, 3, "the supervisor's own");
    return od_done();
}
