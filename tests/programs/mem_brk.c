/* The break, up and down around a frozen heap: new parts read zeros, old parts stay.
 * No malloc here: the heap belongs to this program alone. */
// odtest: timeout=60
#include "odtest.h"

#define SIZE (16 * OD_MB)
#define STEP (4 * OD_MB)

static char *heap;

struct view {
    size_t kept, zeros;
    uint64_t gen;
};

static void verify(const struct view *v, const char *who)
{
    od_verify(heap, v->kept, v->gen, who);
    od_verify_zero(heap + v->kept, v->zeros, who);
    CHECK(sbrk(0) == heap + v->kept + v->zeros, "%s: the break is elsewhere", who);
}

static void child(void *argument)
{
    struct view *v = argument, mine = {v->kept - 3 * OD_PAGE, 3 * OD_PAGE + STEP, v->gen};
    verify(v, "child");
    OK(sbrk(-(long)(v->zeros + 3 * OD_PAGE)));
    OK(sbrk(3 * OD_PAGE + STEP));
    /* the cut page keeps its bytes */
    memset(heap + mine.kept, 0, -(uintptr_t)(heap + mine.kept) & (OD_PAGE - 1));
    verify(&mine, "child after moving the break");
    od_fill(heap, mine.kept + mine.zeros, 900);
    od_refreeze();
    od_verify(heap, mine.kept + mine.zeros, 900, "child after its writes");
}

/* The wrapper, brk() and the system call itself. */
static void set_break(char *to, int way)
{
    if (way == 0)
        OK(sbrk(to - (char *)sbrk(0)));
    else if (way == 1)
        OK(brk(to));
    else
        CHECK((char *)syscall(SYS_brk, to) == to, "brk refused");
    if (way == 2) {
        CHECK(brk(to) == 0, "brk to where it is"); /* lets libc know */
    }
}

static void up_and_down(int way, uint64_t gen)
{
    struct view v = {SIZE, 0, gen};
    od_fill(heap, SIZE, gen);
    od_run_child(child, &v);
    /* grow: zeros behind the frozen part */
    set_break(heap + SIZE + STEP, way);
    v.zeros = STEP;
    verify(&v, "grown");
    od_run_child(child, &v);
    /* shrink into the frozen part, not at a page border, and grow again */
    set_break(heap + SIZE - STEP - 100, way);
    set_break(heap + SIZE, way);
    v.kept = SIZE - STEP - 104;
    od_verify(heap, v.kept, gen, "shrunk");
    od_verify_zero(heap + SIZE - STEP, STEP, "grown back");
    memset(heap + SIZE - STEP - 104, 0, 104);
    v.zeros = STEP + 104;
    verify(&v, "cut page cleared");
    od_refreeze();
    verify(&v, "folded");
    od_run_child(child, &v);
    /* all the way down and up */
    set_break(heap, way);
    od_run_child((void (*)(void *))od_refreeze, NULL);
    set_break(heap + SIZE, way);
    od_verify_zero(heap, SIZE, "a new heap");
}

/* Many small steps, as malloc takes them, each with a fork. */
static void creep(void)
{
    od_fill(heap, SIZE, 5);
    for (int i = 0; i < 40; i++) {
        size_t step = 33 * OD_PAGE;
        struct view v = {SIZE + i * step, 0, 5};
        od_run_child(child, &v);
        OK(sbrk(step));
        od_verify_zero(heap + SIZE + i * step, step, "a step");
        od_fill_at(heap + SIZE + i * step, step, 5, (SIZE + i * step) / 8);
    }
    set_break(heap + SIZE, 0);
}

int main(void)
{
    static char buffer[512]; /* printf must not use the heap */
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    od_refreeze(); /* looks the runtime up before the heap is ours */
    heap = OK(sbrk(0));
    heap = OK(sbrk((-(uintptr_t)heap & (OD_PAGE - 1)) + SIZE)) + (-(uintptr_t)heap & (OD_PAGE - 1));
    for (int round = 0; round < 2; round++)
        for (int way = 0; way < 3; way++)
            up_and_down(way, 10 + 3 * round + way);
    creep();
    return 0; /* od_done() would use malloc */
}
