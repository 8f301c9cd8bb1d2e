#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define PAGE 4096L
static volatile char *pages(long count) {
    char *at = mmap(0, (count + 2) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(at + PAGE, count * PAGE, PROT_READ | PROT_WRITE);
    madvise(at + PAGE, count * PAGE, MADV_NOHUGEPAGE);
    return at + PAGE;
}
int main(int argc, char **argv) {
    volatile char *at = pages(1000);
    for (long i = 0; i < 1000; i++) at[i * PAGE] = 1;
    if (argc > 1 && write(1, "r", 1) != 1) return 1;
    while (argc > 1) { at[7 * PAGE]++; usleep(10000); }
    raise(SIGURG);
    for (long i = 0; i < 100; i++) at[i * PAGE + 5] = 7;
    raise(SIGURG);
    for (long i = 200; i < 237; i++) { at[i * PAGE + 6] = 7; at[i * PAGE + 4095] = 9; }
    volatile char *more = pages(50);
    for (long i = 0; i < 50; i++) more[i * PAGE] = 1;
    munmap((void *)(at + 990 * PAGE), 10 * PAGE);
    raise(SIGURG);
    return 7;
}
