/* Forks from coroutines whose stacks lie in the memory that is being frozen. */
// odtest: timeout=60
#include "odtest.h"
#include <ucontext.h>

#define COROUTINES 8
#define STACK (2 * OD_MB)
#define TURNS 30

static char *stacks;
static ucontext_t main_context, context[COROUTINES];
static int turn_of[COROUTINES];
static int in_child;

static void body(int self)
{
    uint64_t local[20000];
    for (int turn = 0;; turn++) {
        od_fill(local, sizeof local, self * 1000 + turn);
        __asm__ volatile("" : : "r"(local) : "memory");
        pid_t pid = 1;
        if (turn % 5 == self % 5 && !in_child) {
            pid = od_fork();
            if (pid == 0)
                in_child = 1;
            else
                od_join(pid);
        }
        od_verify(local, sizeof local, self * 1000 + turn,
                  pid ? "coroutine" : "coroutine in the child");
        turn_of[self]++;
        swapcontext(&context[self], &main_context);
        od_verify(local, sizeof local, self * 1000 + turn, "coroutine after its pause");
    }
}

/* A child born in a coroutine goes on with all of them for two rounds, then ends. */
static void finish_child(void)
{
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < COROUTINES; i++) {
            int before = turn_of[i];
            swapcontext(&main_context, &context[i]);
            CHECK(turn_of[i] == before + 1, "coroutine %d lost its turn", i);
        }
    _exit(0);
}

static void run_all(void)
{
    for (int i = 0; i < COROUTINES; i++) {
        getcontext(&context[i]);
        context[i].uc_stack.ss_sp = stacks + i * STACK;
        context[i].uc_stack.ss_size = STACK;
        context[i].uc_link = NULL;
        makecontext(&context[i], (void (*)(void))body, 1, i);
        turn_of[i] = 0;
    }
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < COROUTINES; i++) {
            swapcontext(&main_context, &context[i]);
            if (in_child)
                finish_child();
            if (turn == 17 && i == 3)
                od_refreeze();
        }
    for (int i = 0; i < COROUTINES; i++)
        CHECK(turn_of[i] == TURNS, "coroutine %d had %d turns", i, turn_of[i]);
}

int main(void)
{
    stacks = malloc(COROUTINES * STACK);
    CHECK(stacks, "malloc");
    memset(stacks, 1, COROUTINES * STACK);
    run_all();
    free(stacks);
    stacks = od_map(COROUTINES * STACK);
    memset(stacks, 1, COROUTINES * STACK);
    for (int i = 1; i < COROUTINES; i++) /* a guard page below each stack */
        OK(mprotect(stacks + i * STACK, OD_PAGE, PROT_NONE));
    run_all();
    return od_done();
}
