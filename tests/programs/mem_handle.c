// odtest: expect=froze mem=200
/*
 * The C library's own functions, got past the search order: by the library's handle, by a version,
 * and in a namespace of its own. Advice and growth by those must do to frozen memory what they do
 * on stock; and what a child's own setresuid or prctl is, its parent's later writes stay hidden
 * (proc_secrets has the ways).
 */
#include "odtest.h"

static const size_t BYTES = 16 * OD_MB;

struct functions {
    int (*advise)(void *, size_t, int);
    void *(*remap)(void *, size_t, size_t, int, ...);
    int (*unmap)(void *, size_t);
    long (*number)(long, ...);
    void *(*resize)(void *, size_t);
};

static void exercise(const struct functions *of, uint64_t gen, const char *how)
{
    char *memory = od_map(BYTES);
    od_fill(memory, BYTES, gen);
    od_freeze();
    od_run_child((void (*)(void *))od_refreeze, NULL);
    OK(of->advise(memory + OD_MB, OD_MB, MADV_DONTNEED));
    od_verify_zero(memory + OD_MB, OD_MB, how);
    OK(of->number(SYS_madvise, memory + 3 * OD_MB, OD_MB, MADV_DONTNEED));
    od_verify_zero(memory + 3 * OD_MB, OD_MB, how);
    char *grown = OK(of->remap(memory + 8 * OD_MB, 4 * OD_MB, 8 * OD_MB, MREMAP_MAYMOVE));
    od_verify_at(grown, 4 * OD_MB, gen, OD_MB, how);
    od_verify_zero(grown + 4 * OD_MB, 4 * OD_MB, how);
    od_verify(memory, OD_MB, gen, how);
    OK(of->unmap(grown, 8 * OD_MB));
    char *block = malloc(6 * OD_MB);
    od_fill(block, 6 * OD_MB, gen);
    od_freeze();
    block = of->resize(block, 12 * OD_MB);
    od_verify(block, 6 * OD_MB, gen, how);
    od_fill(block, 12 * OD_MB, gen + 1);
    od_run_child((void (*)(void *))od_refreeze, NULL);
    od_verify(block, 12 * OD_MB, gen + 1, how);
    free(block);
    OK(munmap(memory, 8 * OD_MB));
    OK(munmap(memory + 12 * OD_MB, 4 * OD_MB));
}

static void find(struct functions *of, void *(*look)(void *, const char *), void *handle)
{
    of->advise = (int (*)(void *, size_t, int))look(handle, "madvise");
    of->remap = (void *(*)(void *, size_t, size_t, int, ...))look(handle, "mremap");
    of->unmap = (int (*)(void *, size_t))look(handle, "munmap");
    of->number = (long (*)(long, ...))look(handle, "syscall");
    of->resize = (void *(*)(void *, size_t))look(handle, "realloc");
    CHECK(of->advise && of->remap && of->unmap && of->number && of->resize, "%s", dlerror());
}

/* The version of the first glibc of this machine. */
static void *look_by_version(void *handle, const char *name)
{
#ifdef __x86_64__
    return dlvsym(handle, name, "GLIBC_2.2.5");
#else
    return dlvsym(handle, name, "GLIBC_2.17");
#endif
}

/* What is asked for and how it is refused stays the C library's. */
static void check_answers(void *library)
{
    CHECK(!dlsym(library, "no such function"), "a function that is not there");
    const char *error = dlerror();
    CHECK(error && strstr(error, "no such function"), "dlerror: %s", error ? error : "nothing");
    CHECK(!dlerror(), "an error twice");
    CHECK(!dlvsym(library, "madvise", "GLIBC_9.9"), "a version that is not there");
    CHECK(dlerror(), "no error for it");
    CHECK(dlsym(RTLD_DEFAULT, "madvise") == dlsym(library, "madvise"), "two functions");
    CHECK(dlsym(library, "strlen") && dlsym(RTLD_NEXT, "strlen"), "strlen: %s", dlerror());
    CHECK(!dlopen("no such library", RTLD_NOW), "a library that is not there");
    CHECK(dlerror(), "no error for it");
}

/* Another C library, without any wrapper. The rest of it is not used: it has an allocator too. */
static void other_namespace(void)
{
    void *other = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);
    if (!other) {
        printf("no second C library: %s\n", dlerror());
        return;
    }
    int (*advise)(void *, size_t, int) =
        (int (*)(void *, size_t, int))dlsym(other, "madvise");
    CHECK(advise, "madvise: %s", dlerror());
    char *memory = od_map(BYTES);
    od_fill(memory, BYTES, 9);
    od_freeze();
    od_run_child((void (*)(void *))od_refreeze, NULL);
    OK(advise(memory + OD_MB, OD_MB, MADV_DONTNEED));
    od_verify_zero(memory + OD_MB, OD_MB, "in another namespace");
}

int main(void)
{
    struct functions of;
    void *library = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        od_skip("no libc.so.6");
    check_answers(library);
    find(&of, dlsym, library);
    exercise(&of, 1, "by a handle");
    find(&of, look_by_version, library);
    exercise(&of, 3, "by a version");
    find(&of, look_by_version, RTLD_DEFAULT);
    exercise(&of, 5, "the first of a version");
    find(&of, look_by_version, RTLD_NEXT);
    exercise(&of, 11, "the next of a version");
    find(&of, dlsym, RTLD_NEXT);
    exercise(&of, 13, "the next");
    char *kept = od_map(BYTES);
    od_fill(kept, BYTES, 7);
    od_freeze();
    other_namespace();
    od_verify(kept, BYTES, 7, "frozen before");
    return od_done();
}
