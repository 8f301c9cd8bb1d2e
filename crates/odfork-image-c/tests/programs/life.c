// The whole interface once: reserve, save, map in every way, delta, apply, and what is refused.
// Prints "ok" at the end.
#include "odfimage.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                         \
    do {                                                                                    \
        if (!(what)) {                                                                      \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, error.text);              \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)

enum { PAGES = 700, PAGE = 4096 };

static struct odfork_image_error error;

static const char *cancelled_file;
static int came_back;

/* A request to end is pending over the calls: none ends in one of them. */
static void *cancelled(void *region)
{
    struct odfork_image_error none;
    pthread_cancel(pthread_self());
    came_back += odfork_image_save(cancelled_file, (struct odfork_image_region *)region, 1, NULL,
                                   &none) == 0;
    void *at = odfork_image_map(cancelled_file, NULL, ODFORK_IMAGE_ANYWHERE | ODFORK_IMAGE_READ_IN,
                                NULL, &none);
    came_back += at != NULL && odfork_image_populate(at) == 0;
    came_back += odfork_image_unmap(at) == 0;
    pthread_testcancel();
    return NULL;
}

static unsigned char value(int page, int generation)
{
    return (unsigned char)(page % 5 == 0 ? 0 : page * 7 + generation);
}

static void fill(unsigned char *at, int generation)
{
    for (int page = 0; page < PAGES; page++)
        memset(at + page * PAGE, value(page, page % 50 == 3 ? generation : 0), PAGE);
}

static int is(const unsigned char *at, int generation)
{
    for (int page = 0; page < PAGES; page++)
        for (int i = 0; i < PAGE; i += 512)
            if (at[page * PAGE + i] != value(page, page % 50 == 3 ? generation : 0))
                return 0;
    return 1;
}

int main(int argc, char **argv)
{
    char base[256], newer[256], delta[256], whole[256];
    const char *folder = argc > 1 ? argv[1] : ".";
    snprintf(base, sizeof base, "%s/base.img", folder);
    snprintf(newer, sizeof newer, "%s/newer.img", folder);
    snprintf(delta, sizeof delta, "%s/delta.img", folder);
    snprintf(whole, sizeof whole, "%s/whole.img", folder);

    unsigned char *at = (unsigned char *)odfork_image_reserve(PAGES * PAGE);
    CHECK(at != NULL);
    struct odfork_image_region region = { "state", at, PAGES * PAGE, 0 };
    struct odfork_image_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    fill(at, 0);
    CHECK(odfork_image_save(base, &region, 1, NULL, &error) == 0);
    fill(at, 9);
    options.compress = ODFORK_IMAGE_ZSTD;
    options.no_sync = 1;
    CHECK(odfork_image_save(newer, &region, 1, &options, &error) == 0);
    options.base = base;
    options.compress = ODFORK_IMAGE_LZ4;
    CHECK(odfork_image_save(delta, &region, 1, &options, &error) == 0);
    CHECK(odfork_image_delta(base, newer, delta, NULL, &error) == 0);
    CHECK(odfork_image_apply(delta, whole, &options, &error) == 0);

    // The place is taken.
    CHECK(odfork_image_map(base, NULL, 0, NULL, &error) == NULL && error.errnum == EINVAL);
    CHECK(strstr(error.text, "in use") != NULL);
    pthread_t thread;
    void *ended;
    cancelled_file = whole;
    CHECK(pthread_create(&thread, NULL, cancelled, &region) == 0);
    CHECK(pthread_join(thread, &ended) == 0 && ended == PTHREAD_CANCELED && came_back == 3);
    munmap(at, PAGES * PAGE);

    const char *files[] = { base, newer, delta, whole };
    const int flags[] = {0, ODFORK_IMAGE_CHECKED, ODFORK_IMAGE_READ_IN,
                         ODFORK_IMAGE_ANYWHERE | ODFORK_IMAGE_READ_ALL};
    for (int file = 0; file < 4; file++) {
        for (int way = 0; way < 4; way++) {
            size_t size = 0;
            unsigned char *mapped =
                (unsigned char *)odfork_image_map(files[file], "state", flags[way], &size, &error);
            CHECK(mapped != NULL);
            CHECK(size == PAGES * PAGE && (mapped == at || way == 3));
            CHECK(mapped[3 * PAGE] == value(3, file == 0 ? 0 : 9));
            pid_t child = fork();
            if (child == 0)
                _exit(is(mapped, file == 0 ? 0 : 9) ? 0 : 1);
            int status = -1;
            CHECK(waitpid(child, &status, 0) == child && status == 0);
            CHECK(odfork_image_populate(mapped) == 0);
            CHECK(is(mapped, file == 0 ? 0 : 9));
            mapped[PAGE] = 77;
            CHECK(odfork_image_unmap(mapped) == 0);
            CHECK(odfork_image_unmap(mapped) == EINVAL);
        }
    }
    setenv("ODFORK_IMAGE_FILE", newer, 1);
    unsigned char *named = (unsigned char *)odfork_image_map(NULL, NULL, 0, NULL, &error);
    CHECK(named != NULL && is(named, 9));
    CHECK(odfork_image_unmap(named) == 0);

    unsetenv("ODFORK_IMAGE_FILE");
    CHECK(odfork_image_map(NULL, NULL, 0, NULL, &error) == NULL &&
          strstr(error.text, "ODFORK_IMAGE_FILE"));
    CHECK(odfork_image_map(base, "other", 0, NULL, &error) == NULL && error.errnum == EINVAL);
    CHECK(odfork_image_map("/nowhere/x", NULL, 0, NULL, &error) == NULL && error.errnum == ENOENT);
    CHECK(odfork_image_map(base, NULL, 1 << 20, NULL, NULL) == NULL);
    CHECK(odfork_image_save(NULL, &region, 1, NULL, &error) == EINVAL);
    CHECK(odfork_image_save(base, NULL, 0, NULL, &error) == EINVAL);
    // Sizes that nobody has are refused, and no end of the program.
    struct odfork_image_region vast = region;
    vast.size = 1UL << 60;
    CHECK(odfork_image_save(base, &vast, 1, NULL, &error) == EINVAL);
    vast.size = 1UL << 55;
    CHECK(odfork_image_save(base, &vast, 1, NULL, &error) != 0);
    options.size = 3;
    CHECK(odfork_image_save(base, &region, 1, &options, &error) == EINVAL);
    // Not mapped any more.
    CHECK(odfork_image_save(whole, &region, 1, NULL, &error) != 0);
    CHECK(odfork_image_save("/nowhere/x", &region, 1, NULL, &error) == ENOENT);
    CHECK(odfork_image_unmap(NULL) == EINVAL && odfork_image_populate(NULL) == EINVAL);
    puts("ok");
    return 0;
}
