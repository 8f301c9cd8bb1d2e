/* Forks that go past every wrapper: the program's code says so, and its memory is never live. Code
 * that is made at run time does not say so: its child then misses what is live, and must not share
 * it. Either way the parent's bytes are its own. */
// odtest: modes=stock,huge,live expect=froze live=shared timeout=60 mem=100
#include "odtest.h"

#define SIZE (8 * OD_MB)

static char *memory;

/* mov $57, %eax; syscall; ret, written so that no search for it finds it before it is made. */
static long (*make_fork(void))(void)
{
    unsigned char *code =
        OK(mmap(NULL, OD_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    unsigned char bytes[] = {0x31, 0xc0, 0xb0, 57, 0x0f, 0x05, 0xc3};
    memcpy(code, bytes, sizeof bytes);
    OK(mprotect(code, OD_PAGE, PROT_READ | PROT_EXEC));
    return (long (*)(void))code;
}

int main(void)
{
    long (*raw_fork)(void) = make_fork();
    memory = OK(
        mmap(NULL, SIZE + 2 * OD_MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    memory = (char *)(((uintptr_t)memory + 2 * OD_MB - 1) & -(2 * OD_MB));
    od_fill_at(memory, SIZE, 1, 0);
    for (int i = 0; i < 3; i++) {
        pid_t pid = od_fork();
        if (pid == 0)
            _exit(0);
        od_join(pid);
        struct od_gate gate;
        od_gate_make(&gate);
        pid = raw_fork();
        if (pid == 0) {
            /* Dies here of a missing page, or sees and writes a copy. */
            od_gate_wait(&gate);
            int wrong = od_differs_at(memory, SIZE, 1 + i, 0) != (size_t)-1;
            memset(memory, 0xcc, SIZE);
            _exit(wrong ? 9 : 0);
        }
        CHECK(pid > 0, "raw fork");
        od_fill_at(memory, SIZE, 2 + i, 0);
        od_gate_open(&gate, 1);
        int status;
        OK(waitpid(pid, &status, 0));
        CHECK(WIFSIGNALED(status) ? WTERMSIG(status) == SIGSEGV : WEXITSTATUS(status) == 0,
              "the child sees what is written after the fork: status %x", status);
        CHECK(od_differs_at(memory, SIZE, 2 + i, 0) == (size_t)-1, "the child's bytes are seen");
        od_gate_drop(&gate);
    }
    return od_done();
}
