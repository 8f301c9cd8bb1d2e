/* Private and shared mappings of hugetlbfs pages beside frozen memory. Sets vm.nr_hugepages and
 * restores it. */
// odtest: modes=stock,huge,small needs=root,hugetlb serial=yes timeout=60 mem=500
#include "odtest.h"

#define HUGE_PAGE (2 * OD_MB)
#define PAGES 8
#define SIZE (PAGES * HUGE_PAGE)
#define SYSCTL "/proc/sys/vm/nr_hugepages"

static long pages_before;
static char *private_huge, *shared_huge, *world;

static long read_pool(void)
{
    long pages = -1;
    FILE *file = fopen(SYSCTL, "r");
    if (!file || fscanf(file, "%ld", &pages) != 1)
        pages = -1;
    if (file)
        fclose(file);
    return pages;
}

static int write_pool(long pages)
{
    FILE *file = fopen(SYSCTL, "w");
    if (!file)
        return -1;
    int put = fprintf(file, "%ld\n", pages);
    return fclose(file) == 0 && put > 0 ? 0 : -1;
}

/* A child that gives the pool back when the program ends, however it ends. */
static pid_t start_keeper(int alive[2])
{
    char byte;
    OK(pipe(alive));
    pid_t pid = od_fork();
    if (pid == 0) {
        close(alive[1]);
        while (read(alive[0], &byte, 1) > 0)
            ;
        _exit(write_pool(pages_before) == 0 ? 0 : 1);
    }
    return pid;
}

static void verify(uint64_t gen, uint64_t shared_gen, const char *who)
{
    od_verify(world, SIZE, gen, who);
    od_verify(private_huge, SIZE, gen + 1, who);
    od_verify(shared_huge, SIZE, shared_gen, who);
}

static void child(void *argument)
{
    uint64_t gen = *(uint64_t *)argument;
    verify(gen, gen + 2, "child");
    od_fill(world, SIZE, 900);
    od_fill(private_huge, SIZE, 901);
    od_fill(shared_huge, SIZE, gen + 5);
    od_refreeze();
    verify(900, gen + 5, "child after its own writes");
}

/* The kernel maps whole pages of whatever length it is asked for, here over frozen memory. */
static void map_a_part(int fd)
{
    char *frozen = od_map(SIZE + HUGE_PAGE);
    frozen += HUGE_PAGE - (uintptr_t)frozen % HUGE_PAGE;
    od_fill(frozen, SIZE, 70);
    pid_t pid = OK(fork());
    if (pid == 0)
        _exit(0);
    od_join(pid);
    int flags = MAP_SHARED | MAP_FIXED | (fd < 0 ? MAP_ANONYMOUS | MAP_HUGETLB : 0);
    char *huge = frozen + 2 * HUGE_PAGE;
    OK(mmap(huge, OD_PAGE, PROT_READ | PROT_WRITE, flags, fd, 0));
    od_fill(huge, HUGE_PAGE, 71);
    OK(madvise(huge, HUGE_PAGE, MADV_DONTNEED));
    od_verify(huge, HUGE_PAGE, 71, "shared huge memory that was given up");
    OK(munmap(huge, HUGE_PAGE));
    OK(munmap(frozen, SIZE));
}

int main(void)
{
    int alive[2];
    pages_before = read_pool();
    pid_t keeper = start_keeper(alive);
    if (pages_before < 0 || write_pool(pages_before + 4 * PAGES) != 0)
        od_skip("cannot change " SYSCTL ": %s", strerror(errno));
    if (read_pool() < pages_before + 4 * PAGES)
        od_skip("only %ld of %ld huge pages could be had", read_pool() - pages_before, 4L * PAGES);
    int flags = MAP_ANONYMOUS | MAP_HUGETLB;
    private_huge = OK(mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | flags, -1, 0));
    shared_huge = OK(mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | flags, -1, 0));
    world = od_map(SIZE);
    for (uint64_t gen = 10; gen < 60; gen += 10) {
        od_fill(world, SIZE, gen);
        od_fill(private_huge, SIZE, gen + 1);
        od_fill(shared_huge, SIZE, gen + 2);
        od_run_child(child, &gen);
        verify(gen, gen + 5, "parent");
        if (gen == 30)
            od_refreeze();
        OK(madvise(private_huge, HUGE_PAGE, MADV_DONTNEED));
        od_verify_zero(private_huge, HUGE_PAGE, "after DONTNEED");
    }
    int file = OK(memfd_create("huge", MFD_HUGETLB));
    map_a_part(-1);
    map_a_part(file);
    OK(munmap(private_huge, SIZE));
    OK(munmap(shared_huge, SIZE));
    close(alive[0]);
    close(alive[1]);
    od_join(keeper);
    CHECK(read_pool() == pages_before, "the pool is not what it was");
    return od_done();
}
