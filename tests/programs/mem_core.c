/* A core dump holds the heap: by default the kernel leaves private file mappings out of it. */
// odtest: needs=core timeout=60 mem=500
#include "odtest.h"
#include <elf.h>

#define SIZE (16 * OD_MB)

static char *world, *heap;

static char *read_core(size_t *size)
{
    char name[300] = "";
    DIR *dir = opendir(".");
    CHECK(dir, "opendir: %s", strerror(errno));
    for (struct dirent *entry; (entry = readdir(dir));)
        if (strncmp(entry->d_name, "core", 4) == 0)
            snprintf(name, sizeof name, "%s", entry->d_name);
    closedir(dir);
    CHECK(name[0], "no core file was written");
    int fd = OK(open(name, O_RDONLY));
    unlink(name);
    *size = OK(lseek(fd, 0, SEEK_END));
    char *core = OK(mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0));
    close(fd);
    return core;
}

/* The bytes the core holds for [at, at + size): all of them, of generation `gen`. */
static void verify_in_core(const char *core, size_t core_size, const char *at, size_t size,
                           uint64_t gen, const char *what)
{
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)core;
    const Elf64_Phdr *part = (const Elf64_Phdr *)(core + head->e_phoff);
    size_t found = 0;
    for (int i = 0; i < head->e_phnum; i++) {
        uint64_t start = part[i].p_vaddr, end = start + part[i].p_filesz;
        uint64_t from = (uintptr_t)at > start ? (uintptr_t)at : start;
        uint64_t to = (uintptr_t)at + size < end ? (uintptr_t)at + size : end;
        if (part[i].p_type != PT_LOAD || from >= to)
            continue;
        CHECK(part[i].p_offset + part[i].p_filesz <= core_size, "the core is cut short");
        od_verify_at(core + part[i].p_offset + (from - start), to - from, gen,
                     (from - (uintptr_t)at) / 8, what);
        found += to - from;
    }
    CHECK(found == size, "%s: the core holds %zu of %zu bytes", what, found, size);
}

struct death {
    uint64_t gen;
    int writes, forks;
};

static void die(void *argument)
{
    struct death *death = argument;
    struct rlimit limit;
    OK(getrlimit(RLIMIT_CORE, &limit));
    limit.rlim_cur = limit.rlim_max;
    OK(setrlimit(RLIMIT_CORE, &limit));
    if (death->writes) {
        od_fill(world, SIZE / 2, death->gen + 100);
        od_fill(heap, SIZE / 2, death->gen + 100);
    }
    if (death->forks) {
        od_refreeze();
        od_run_child((void (*)(void *))od_refreeze, NULL);
    }
    abort();
}

static void dump(struct death death)
{
    int status;
    size_t size;
    pid_t pid = od_spawn(die, &death);
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status), "the child did not die: %x",
          status);
    printf("signal %d, core %s\n", WTERMSIG(status), WCOREDUMP(status) ? "dumped" : "not dumped");
    char *core = read_core(&size);
    uint64_t first = death.gen + (death.writes ? 100 : 0);
    verify_in_core(core, size, world, SIZE / 2, first, "mapped memory");
    verify_in_core(core, size, heap, SIZE / 2, first, "heap");
    for (int i = 0; i < 2; i++) {
        char *second = (i ? heap : world) + SIZE / 2;
        const uint64_t *word = (const uint64_t *)second;
        CHECK(word[0] == od_word(death.gen, SIZE / 16), "the parent's own bytes changed");
    }
    OK(munmap(core, size));
}

/* What is asked for besides private file mappings (bit 2): an image is one, so that bit may differ.
 */
static long filter(void)
{
    char text[64] = "";
    int fd = open("/proc/self/coredump_filter", O_RDONLY);
    if (fd >= 0 && read(fd, text, sizeof text - 1) <= 0)
        text[0] = 0;
    close(fd);
    return strtol(text, NULL, 16) & ~4L;
}

static void set_filter(const char *text)
{
    int fd = OK(open("/proc/self/coredump_filter", O_WRONLY));
    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text), "coredump_filter: %s",
          strerror(errno));
    close(fd);
}

int main(void)
{
    struct rlimit limit;
    OK(getrlimit(RLIMIT_CORE, &limit));
    if (limit.rlim_max < 128 * OD_MB)
        od_skip("the hard limit of core files is %lld bytes", (long long)limit.rlim_max);
    world = od_map(SIZE);
    heap = OK(sbrk(SIZE + OD_PAGE));
    heap += -(uintptr_t)heap & (OD_PAGE - 1);
    for (uint64_t gen = 1; gen < 4; gen++) {
        od_fill(world, SIZE, gen);
        od_fill(heap, SIZE, gen);
        if (gen == 3) /* a program with a filter of its own that includes private mappings */
            set_filter("0x5");
        printf("filter before: %#lx\n", filter());
        dump((struct death){gen, 0, 0});
        dump((struct death){gen, 1, 0});
        dump((struct death){gen, 0, 1});
        dump((struct death){gen, 1, 1});
        od_refreeze();
    }
    return od_done();
}
