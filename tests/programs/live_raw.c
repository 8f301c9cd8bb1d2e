/* Forks that go past every wrapper: the program's code says so, and its memory is never live. Code
 * that is made at run time does not say so: its child then misses what is live, and must not share
 * it. Either way the parent's bytes are its own. */
// odtest: modes=stock,huge,live expect=froze live=shared timeout=60 mem=100
#include "odtest.h"

#define SIZE (8 * OD_MB)

static char *memory;

/* A fork, written so that no search for it finds it before it is made. */
#if defined __aarch64__
/* mov x0, SIGCHLD; mov x1 to x4, 0; mov x8, clone; svc 0 but for its last bit; ret */
static uint32_t bytes[] = {0xd2800220, 0xd2800001, 0xd2800002, 0xd2800003, 0xd2800004,
                           0xd2800008 | SYS_clone << 5, 0xd4000000, 0xd65f03c0};
enum { CALL = 6 };
#else
/* xor %eax, %eax; mov $57, %al; syscall but for a bit; ret */
static unsigned char bytes[] = {0x31, 0xc0, 0xb0, 57, 0x0f, 0x04, 0xc3};
enum { CALL = 5 };
#endif

static long (*make_fork(void))(void)
{
    char *code =
        OK(mmap(NULL, OD_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    bytes[CALL] |= 1;
    memcpy(code, bytes, sizeof bytes);
    OK(mprotect(code, OD_PAGE, PROT_READ | PROT_EXEC));
    __builtin___clear_cache(code, code + sizeof bytes);
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
