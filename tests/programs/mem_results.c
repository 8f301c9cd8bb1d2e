/* Calls on heap memory answer as on stock: mincore, msync, mbind, get_mempolicy, move_pages,
 * remap_file_pages, process_madvise, mmap placement. What they answer is printed; the harness
 * compares with stock. */
// odtest: timeout=60
#include "odtest.h"

#define SIZE (16 * OD_MB)
#define PAGES (SIZE / OD_PAGE)
#define UNTOUCHED (8 * OD_MB) /* and then 8 MB never touched */

static char *world;
static int round_number;

static void show(const char *what, long result)
{
    if (result == -1)
        printf("round %d: %s: %s\n", round_number, what, strerrorname_np(errno));
    else
        printf("round %d: %s: %ld\n", round_number, what, result);
}

static void try_mincore(void)
{
    static unsigned char vector[PAGES];
    show("mincore", mincore(world, SIZE, vector));
    size_t touched = 0, untouched = 0;
    for (size_t page = 0; page < PAGES; page++)
        *(page < (SIZE - UNTOUCHED) / OD_PAGE ? &touched : &untouched) += vector[page] & 1;
    printf("touched pages in core: %zu, untouched pages in core: %zu\n", touched, untouched);
    show("mincore unaligned", mincore(world + 1, SIZE, vector));
    show("mincore past the end", mincore(world, SIZE + 64 * OD_PAGE, vector));
    show("mincore bad vector", mincore(world, SIZE, (unsigned char *)8));
}

static void try_msync(void)
{
    show("msync async", msync(world, SIZE, MS_ASYNC));
    show("msync sync", msync(world, SIZE, MS_SYNC));
    show("msync invalidate", msync(world, SIZE, MS_SYNC | MS_INVALIDATE));
    show("msync both", msync(world, SIZE, MS_SYNC | MS_ASYNC));
    show("msync unaligned", msync(world + 1, SIZE, MS_SYNC));
}

static void try_policies(void)
{
    unsigned long nodes = 1, got_nodes[16] = {0};
    int mode = -1;
    show("mbind bind", syscall(SYS_mbind, world, SIZE, 2, &nodes, 64, 0));
    show("get_mempolicy", syscall(SYS_get_mempolicy, &mode, got_nodes, 1024, world + OD_MB, 2));
    printf("policy %d nodes %lx\n", mode, got_nodes[0]);
    show("mbind part, move", syscall(SYS_mbind, world + OD_MB, OD_MB, 1, &nodes, 64, 2));
    show("mbind strict", syscall(SYS_mbind, world, SIZE, 2, &nodes, 64, 1));
    show("mbind default", syscall(SYS_mbind, world, SIZE, 0, NULL, 0, 0));
    show("mbind wrong", syscall(SYS_mbind, world, SIZE, 77, &nodes, 64, 0));
    int on_node = -99;
    void *pages[2] = {world, world + SIZE - OD_PAGE};
    int status[2] = {-99, -99};
    show("get_mempolicy of an address", syscall(SYS_get_mempolicy, &on_node, NULL, 0, world, 3));
    show("move_pages query", syscall(SYS_move_pages, 0, 2, pages, NULL, status, 0));
    printf("node %d, status of a touched page %d, of an untouched page %d\n", on_node, status[0],
           status[1]);
}

static void try_others(void)
{
    struct iovec {
        void *at;
        size_t size;
    } piece[2] = {{world, OD_MB}, {world + 2 * OD_MB, OD_MB}};
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    show("process_madvise cold", syscall(SYS_process_madvise, self, piece, 2, 20, 0));
    show("process_madvise willneed", syscall(SYS_process_madvise, self, piece, 2, 3, 0));
    show("process_madvise wrong", syscall(SYS_process_madvise, self, piece, 2, 77, 0));
    if (self >= 0)
        close(self);
    show("remap_file_pages", syscall(SYS_remap_file_pages, world, OD_MB, 0, 1, 0));
    show("set_mempolicy_home_node", syscall(450, world, OD_MB, 0, 0));
    show("mmap over, not replacing",
         (long)mmap(world, OD_PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
                    -1, 0));
    show("mprotect exec", mprotect(world, SIZE, PROT_READ | PROT_WRITE | PROT_EXEC));
    show("mprotect back", mprotect(world, SIZE, PROT_READ | PROT_WRITE));
    show("munmap unaligned", munmap(world + 1, OD_PAGE));
    show("munmap nothing", munmap(world, 0));
    show("readahead-like fadvise", posix_madvise(world, SIZE, POSIX_MADV_DONTNEED));
}

static void verify(void *who)
{
    od_verify(world, SIZE - UNTOUCHED, 3, who);
    if (round_number == 4)
        od_verify_zero(world + SIZE - UNTOUCHED, UNTOUCHED, who);
}

static void ask(void)
{
    try_mincore();
    try_msync();
    try_policies();
    try_others();
}

int main(void)
{
    char *at = od_map(SIZE + 4 * OD_MB);
    world = at + (-(uintptr_t)at & (2 * OD_MB - 1));
    OK(munmap(world + SIZE, OD_MB)); /* nothing behind it */
    od_fill(world, SIZE - UNTOUCHED, 3);
    for (round_number = 0; round_number < 5; round_number++) {
        ask();
        verify("parent");
        od_run_child(verify, "child");
        if (round_number == 2) {
            od_fill(world, SIZE - UNTOUCHED, 3);
            od_refreeze();
        }
    }
    return od_done();
}
