// Tries every kernel behaviour the runtime relies on or uses where it is there, and prints one
// line for each: "BEHAVIOUR | ANSWER", the first and one other cell of the table in
// ARCHITECTURE.md.
//
//   cc -O1 -pthread -o behaviours behaviours.c && ./behaviours
//
// Answers are yes, no, or what stands in the way. Exit status 0 when all could be asked.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define HUGE (2ul << 20)
#define SPAN (4 * HUGE)
#define PRESENT (1ull << 63)
#define EXCLUSIVE (1ull << 56)
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static const char *yes_no(int yes) { return yes ? "yes" : "no"; }

// The reason of a failed call, as an answer.
static const char *why(void) {
    static char text[64];
    snprintf(text, sizeof text, "no (%s)", strerrorname_np(errno));
    return text;
}

static void must(int good, const char *what) {
    if (good) return;
    printf("%s: %s\n", what, strerror(errno));
    exit(1);
}

// An unnamed file: of a tmpfs mounted nowhere whose pages are huge, or of 4 KB pages; -1 if
// refused.
static int make_file(const char *huge, size_t size) {
    int fs = syscall(SYS_fsopen, "tmpfs", 1);
    if (fs < 0) return -1;
    if (syscall(SYS_fsconfig, fs, 1, "huge", huge, 0) || syscall(SYS_fsconfig, fs, 6, 0, 0, 0))
        return -1;
    int mounted = syscall(SYS_fsmount, fs, 1, 0);
    int file = openat(mounted, ".", O_TMPFILE | O_RDWR, 0600);
    return file >= 0 && ftruncate(file, size) == 0 ? file : -1;
}

// Content by a shared mapping, then a private mapping at a place that may hold huge pages.
static char *fill_and_map(int file) {
    char *shared = mmap(0, SPAN, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    must(shared != MAP_FAILED, "a shared mapping");
    memset(shared, 7, SPAN);
    munmap(shared, SPAN);
    char *place = mmap(0, SPAN + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    place = (char *)(((uintptr_t)place + HUGE - 1) & -HUGE);
    char *private = mmap(place, SPAN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0);
    must(private != MAP_FAILED, "a private mapping");
    for (size_t at = 0; at < SPAN; at += PAGE) *(volatile char *)(private + at);
    return private;
}

// The entry of a page in /proc/self/pagemap.
static uint64_t entry(const void *page) {
    uint64_t value = 0;
    int map = open("/proc/self/pagemap", O_RDONLY);
    must(map >= 0, "/proc/self/pagemap");
    must(pread(map, &value, 8, (uintptr_t)page / PAGE * 8) == 8, "an entry");
    close(map);
    return value;
}

// A number of kB in the paragraph of /proc/self/smaps that holds the address.
static long smaps_kb(const void *address, const char *name) {
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[512];
    unsigned long from, to;
    long kb = 0;
    int inside = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            inside = (uintptr_t)address >= from && (uintptr_t)address < to;
        else if (inside && !strncmp(line, name, strlen(name)))
            kb += atol(line + strlen(name) + 1);
    }
    if (maps) fclose(maps);
    return kb;
}

// Runs a question in a child; its exit status is the answer.
static int in_child(int (*ask)(void)) {
    pid_t child = fork();
    if (child == 0) _exit(ask());
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static char *asked;

static int page_is_mapped(void) { return (entry(asked) & PRESENT) != 0; }

static const char *fork_skips_tables(void) {
    int file = memfd_create("behaviour", 0);
    must(!ftruncate(file, SPAN), "a size");
    asked = fill_and_map(file);
    int before = page_is_mapped();
    return yes_no(before && !in_child(page_is_mapped));
}

static const char *huge_by_private_mapping(void) {
    int file = make_file("always", SPAN);
    if (file < 0) return why();
    char *private = fill_and_map(file);
    long mapped = smaps_kb(private, "FilePmdMapped:") + smaps_kb(private, "ShmemPmdMapped:");
    private[5 * PAGE] = 1;
    long copied = smaps_kb(private, "Anonymous:");
    static char text[64];
    if (mapped == SPAN / 1024 && copied == 4) return "yes";
    snprintf(text, sizeof text, "no (%ld kB huge, %ld kB copied)", mapped, copied);
    return text;
}

static int put(const char *path, const char *text) {
    int file = open(path, O_WRONLY);
    int bad = file < 0 || write(file, text, strlen(text)) < 0;
    if (file >= 0) close(file);
    return bad;
}

static int namespace_has_huge(void) {
    if (getuid() == 0 && (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)))
        return errno;
    char users[32], groups[32];
    snprintf(users, sizeof users, "0 %d 1", getuid());
    snprintf(groups, sizeof groups, "0 %d 1", getgid());
    // Whoever changes its user is not dumpable, and may not write these files.
    prctl(PR_SET_DUMPABLE, 1);
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) || put("/proc/self/setgroups", "deny")
        || put("/proc/self/uid_map", users) || put("/proc/self/gid_map", groups))
        return errno;
    return make_file("always", SPAN) < 0 ? errno : 0;
}

static const char *huge_in_namespace(void) {
    errno = in_child(namespace_has_huge);
    return errno ? why() : "yes";
}

static const char *shared_doubled(void) {
    int file = memfd_create("behaviour", 0);
    must(!ftruncate(file, SPAN), "a size");
    char *shared = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    char *twin = mremap(shared, 0, SPAN, MREMAP_MAYMOVE);
    if (twin == MAP_FAILED) return why();
    shared[0] = 9;
    return yes_no(twin[0] == 9);
}

static const char *private_moved_and_kept(void) {
    int file = memfd_create("behaviour", 0);
    must(!ftruncate(file, SPAN), "a size");
    char *private = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    char *twin = mremap(private, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
    return twin == MAP_FAILED ? why() : yes_no(private[0] == 0 && twin[0] == 0);
}

static int wait_for_byte(int *pipe) {
    char byte;
    return read(pipe[0], &byte, 1) == 1;
}

// A page of the file: exclusive with one process, not exclusive while a child maps it too.
static const char *exclusive_bit(void) {
    int file = memfd_create("behaviour", 0), gate[2], told[2];
    must(!ftruncate(file, SPAN) && !pipe(gate) && !pipe(told), "a file and pipes");
    char *private = fill_and_map(file);
    int alone = (entry(private) & EXCLUSIVE) != 0;
    pid_t child = fork();
    if (child == 0) {
        *(volatile char *)private;
        if (write(told[1], "x", 1) != 1) _exit(1);
        wait_for_byte(gate);
        _exit(0);
    }
    wait_for_byte(told);
    int together = (entry(private) & EXCLUSIVE) != 0;
    must(write(gate[1], "x", 1) == 1, "a byte");
    waitpid(child, 0, 0);
    return yes_no(alone && !together && (entry(private) & EXCLUSIVE));
}

// A mapping that fails after the kernel has looked at the old one: a sealed file's.
static const char *failed_map_keeps(void) {
    char *old = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int file = memfd_create("behaviour", MFD_ALLOW_SEALING);
    must(!ftruncate(file, PAGE) && !fcntl(file, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), "a seal");
    *old = 5;
    char *new = mmap(old, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
    must(new == MAP_FAILED, "a refused mapping");
    unsigned char there;
    return yes_no(mincore(old, PAGE, &there) == 0 && *old == 5);
}

static const char *hole_reads_zero(void) {
    int file = memfd_create("behaviour", 0);
    if (ftruncate(file, 1l << 50)) return why();
    char *far = mmap(0, PAGE, PROT_READ, MAP_PRIVATE, file, (1l << 50) - PAGE);
    return far == MAP_FAILED ? why() : yes_no(*far == 0);
}

// What a userfaultfd offers; 0 without one.
static uint64_t features(int fd) {
    struct uffdio_api api = { .api = UFFD_API };
    uint64_t offered = fd >= 0 && !ioctl(fd, UFFDIO_API, &api) ? api.features : 0;
    if (fd >= 0) close(fd);
    return offered;
}

static const char *feature(int bit) {
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
    return fd < 0 ? why() : yes_no(features(fd) >> bit & 1);
}

static const char *watches_shmem(void) { return feature(12); }
static const char *watches_unpopulated(void) { return feature(13); }
static const char *watches_async(void) { return feature(15); }

static const char *uffd_device(void) {
    int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    if (device < 0) return why();
    return yes_no(features(ioctl(device, _IO(0xAA, 0), O_CLOEXEC)) != 0);
}

// Places of a private file mapping that show the kernel's page of zeros instead.
static const char *zero_page(void) {
    int file = memfd_create("behaviour", 0);
    must(!ftruncate(file, SPAN), "a size");
    char *private = fill_and_map(file);
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = { .api = UFFD_API };
    struct uffdio_register range = {{(uintptr_t) private, SPAN}, UFFDIO_REGISTER_MODE_MISSING, 0};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &range)) return why();
    must(!madvise(private, PAGE, MADV_DONTNEED), "DONTNEED");
    struct uffdio_zeropage zero = { { (uintptr_t)private, PAGE }, 0, 0 };
    if (ioctl(fd, UFFDIO_ZEROPAGE, &zero)) return why();
    close(fd);
    return yes_no(private[0] == 0 && private[PAGE] == 7);
}

struct scan {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, mask, any, want;
};
struct region {
    uint64_t start, end, categories;
};

// Every second page is populated: more regions than the kernel's own buffer of 512 holds.
static const char *scan_pages(void) {
    enum { MANY = 4096, TAKEN = 512 };
    static struct region regions[TAKEN];
    int map = open("/proc/self/pagemap", O_RDONLY);
    char *pages = mmap(0, MANY * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(pages, MANY * PAGE, MADV_NOHUGEPAGE);
    for (int i = 0; i < MANY; i += 2) pages[i * PAGE] = 1;
    struct scan scan = { .size = sizeof scan, .start = (uintptr_t)pages, .vec_len = TAKEN };
    scan.end = scan.start + MANY * PAGE;
    scan.vec = (uintptr_t)regions;
    scan.mask = scan.want = 1 << 3;
    int found = ioctl(map, _IOWR('f', 16, struct scan), &scan);
    if (found < 0) return why();
    must(found > 0, "regions");
    return scan.walk_end < regions[found - 1].end ? "yes, end before regions" : "yes";
}

struct query {
    uint64_t size, flags, address, start, end, access, page, offset, inode;
    uint32_t major, minor, name_size, build_size;
    uint64_t name, build;
};

static const char *one_mapping(void) {
    struct query query = { .size = sizeof query, .address = (uintptr_t)&yes_no };
    int maps = open("/proc/self/maps", O_RDONLY);
    if (ioctl(maps, _IOWR('f', 17, struct query), &query)) return why();
    return yes_no(query.start <= query.address && query.address < query.end);
}

static const char *guard_regions(void) {
    char *page = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return madvise(page, PAGE, 102) ? why() : "yes";
}

static const char *free_tells(void) {
    int file = memfd_create("behaviour", 0);
    must(!ftruncate(file, SPAN), "a size");
    char *private = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    char *page = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int anonymous = madvise(page, PAGE, MADV_FREE), of_file = madvise(private, PAGE, MADV_FREE);
    return yes_no(anonymous == 0 && of_file == -1 && errno == EINVAL);
}

static void *wait_for_end(void *pipe) {
    wait_for_byte(pipe);
    return 0;
}

static const char *alone_is_told(void) {
    int alone = unshare(CLONE_VM), gate[2];
    pthread_t thread;
    must(!pipe(gate) && !pthread_create(&thread, 0, wait_for_end, gate), "a thread");
    int together = unshare(CLONE_VM);
    must(write(gate[1], "x", 1) == 1, "a byte");
    pthread_join(thread, 0);
    return yes_no(alone == 0 && together == -1);
}

static const char *advice_for_self(void) {
    char *page = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct iovec part = { page, PAGE };
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    *page = 1;
    if (syscall(SYS_process_madvise, self, &part, 1, MADV_DONTNEED, 0) < 0) return why();
    return yes_no(*page == 0);
}

static const char *moves_several(void) {
    char *two = mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *to = mmap(0, 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(!mprotect(two, PAGE, PROT_READ), "mprotect");
    void *moved = mremap(two, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    return moved == MAP_FAILED ? why() : "yes";
}

static const struct {
    const char *name, *(*ask)(void);
} BEHAVIOURS[] = {
    { "fork skips a private file mapping without an `anon_vma`", fork_skips_tables },
    { "tmpfs `huge=always`: a private mapping shows 2 MB pages, copied on write 4 KB at a time",
      huge_by_private_mapping },
    { "the same for an ordinary user, in a user namespace", huge_in_namespace },
    { "`mremap` with old size 0 doubles a shared mapping", shared_doubled },
    { "`MREMAP_DONTUNMAP` on a private file mapping", private_moved_and_kept },
    { "pagemap bit 56: mapped exclusively", exclusive_bit },
    { "a failed `mmap(MAP_FIXED)` leaves the old mapping", failed_map_keeps },
    { "a file hole reads as zeros up to 2^50", hole_reads_zero },
    { "`MADV_FREE` tells anonymous memory from a file's", free_tells },
    { "`unshare(CLONE_VM)` tells whether a process is alone in its memory", alone_is_told },
    { "userfaultfd write-protects mappings of shared memory", watches_shmem },
    { "userfaultfd puts the zero page into a private file mapping", zero_page },
    { "`/dev/userfaultfd`", uffd_device },
    { "userfaultfd write-protects what is not populated", watches_unpopulated },
    { "userfaultfd `WP_ASYNC`", watches_async },
    { "`PAGEMAP_SCAN`", scan_pages },
    { "`PROCMAP_QUERY`", one_mapping },
    { "guard regions (`MADV_GUARD_INSTALL`)", guard_regions },
    { "`process_madvise` gives own content up", advice_for_self },
    { "`mremap` moves several mappings", moves_several },
};

int main(void) {
    setlinebuf(stdout);
    for (size_t i = 0; i < sizeof BEHAVIOURS / sizeof *BEHAVIOURS; i++)
        printf("%s | %s\n", BEHAVIOURS[i].name, BEHAVIOURS[i].ask());
    return 0;
}
