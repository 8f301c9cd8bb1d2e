/* The subject of `odfork bench paging`: one region, four walks over it, accesses of one word a
 * page, every one checked. Arguments: region in MB, seconds a walk, seed, file to map instead of
 * anonymous memory or "-", walks by letter (s w z p). Writes one line a walk: name, accesses, ns,
 * p50 and p99 of all accesses in ns, major and minor faults of this process. */
#include "pages.h"
#include <fcntl.h>
#include <math.h>
#include <sys/resource.h>
#include <sys/stat.h>

static uint64_t *memory;
static size_t pages;
static double seconds;
static uint32_t *versions;
static uint32_t histogram[64 * 16];

static void note(uint64_t ns)
{
    unsigned high = ns < 16 ? 0 : 60 - __builtin_clzll(ns);
    histogram[high * 16 + (ns >> high & 15)]++;
}

static uint64_t quantile(double share)
{
    uint64_t all = 0, seen = 0;
    for (unsigned n = 0; n < 64 * 16; n++)
        all += histogram[n];
    for (unsigned n = 0; n < 64 * 16; n++)
        if ((seen += histogram[n]) > 0 && seen >= all * share)
            return (uint64_t)(n & 15) << n / 16;
    return 0;
}

static inline void look(size_t page)
{
    peek_page("bench", memory + page * WORDS, page, versions[page]);
}

/* Changes the version and with it the words that are looked at. */
static inline void change(size_t page)
{
    look(page);
    fill_page(memory + page * WORDS, page, ++versions[page]);
}

/* Zipf with theta 0.9 over scattered pages, after Gray et al. 1994. */
static double zeta_n, zipf_alpha, zipf_eta;
static void zipf_start(void)
{
    const double theta = 0.9;
    for (size_t n = 1; n <= pages; n++)
        zeta_n += 1 / pow(n, theta);
    double zeta2 = 1 + 1 / pow(2, theta);
    zipf_alpha = 1 / (1 - theta);
    zipf_eta = (1 - pow(2.0 / pages, 1 - theta)) / (1 - zeta2 / zeta_n);
}
static size_t zipf(uint64_t *state)
{
    double u = (next_random(state) >> 11) * 0x1p-53, uz = u * zeta_n;
    size_t rank = 0;
    if (uz >= 1 + pow(0.5, 0.9))
        rank = (size_t)(pages * pow(zipf_eta * u - zipf_eta + 1, zipf_alpha));
    else if (uz >= 1)
        rank = 1;
    if (rank >= pages)
        rank = pages - 1;
    return mix(rank * 2 + 1) % pages;
}

static void walk(char which, uint64_t seed)
{
    static const char *names[128] = {
        ['s'] = "read", ['w'] = "readwrite", ['z'] = "zipf", ['p'] = "phases"};
    uint64_t state = seed, count = 0, start = now_ns(), end = start + (uint64_t)(seconds * 1e9),
             now = start;
    size_t next = 0, set = pages * 160 / 1024, base = 0, phases = 0;
    struct rusage before, after;
    memset(histogram, 0, sizeof histogram);
    getrusage(RUSAGE_SELF, &before);
    while (now < end) {
        size_t page;
        switch (which) {
        case 'z':
            page = zipf(&state);
            break;
        case 'p':
            if (count % (set * 4) == 0)
                base = phases++ % 8 * (pages - set) / 7;
            page = base + next_random(&state) % set;
            break;
        default:
            page = next++ % pages;
        }
        if (which == 'w')
            change(page);
        else
            look(page);
        count++;
        uint64_t then = now;
        now = now_ns();
        note(now - then);
    }
    getrusage(RUSAGE_SELF, &after);
    printf("%s %lu %lu %lu %lu %ld %ld\n", names[(int)which], count, now - start, quantile(0.5),
           quantile(0.99), after.ru_majflt - before.ru_majflt, after.ru_minflt - before.ru_minflt);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    size_t megabytes = argc > 1 ? atoi(argv[1]) : 64;
    seconds = argc > 2 ? atof(argv[2]) : 2;
    uint64_t seed = argc > 3 ? atoi(argv[3]) : 1;
    const char *file = argc > 4 ? argv[4] : "-", *walks = argc > 5 ? argv[5] : "swzp";
    pages = megabytes * 256;
    if (strcmp(file, "-") != 0) {
        int fd = open(file, O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (fd < 0 || ftruncate(fd, pages * PAGE) != 0)
            perror(file), exit(3);
        memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    } else {
        memory = paged(pages * PAGE);
    }
    versions = calloc(pages, sizeof *versions);
    uint64_t start = now_ns();
    for (size_t page = 0; page < pages; page++)
        fill_page(memory + page * WORDS, page, versions[page] = 1);
    printf("fill %zu %lu 0 0 0 0\n", pages, now_ns() - start);
    fflush(stdout);
    zipf_start();
    for (const char *which = walks; *which; which++)
        walk(*which, seed * 31 + *which);
    return 0;
}
