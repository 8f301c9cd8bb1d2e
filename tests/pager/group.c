/* Several processes under one limit. group fill MB ROUNDS; together COUNT MB ROUNDS: so many of
 * those at a time; idle MB ROUNDS: holds as much, and does nothing while one of those runs; kin
 * COUNT MB ROUNDS: so many children read what their parent has filled. */
#include "pages.h"
#include <spawn.h>

extern char **environ;

static uint64_t *filled(size_t pages)
{
    uint64_t *start = paged(pages * PAGE);
    for (size_t page = 0; page < pages; page++)
        fill_page(start + page * WORDS, page, 1);
    return start;
}

static void check(const uint64_t *start, size_t pages)
{
    for (size_t page = 0; page < pages; page++)
        peek_page("memory", start + page * WORDS, page, 1);
}

static pid_t start_fill(char *self, char *size, char *rounds)
{
    char *words[] = {self, "fill", size, rounds, NULL};
    pid_t child;
    if (posix_spawn(&child, self, NULL, NULL, words, environ)) {
        perror("posix_spawn");
        exit(3);
    }
    return child;
}

static void await(int count)
{
    for (int status; count > 0; count--)
        if (wait(&status) < 0 || status) {
            fprintf(stderr, "WRONG: a child ended with %x\n", status);
            exit(1);
        }
}

int main(int count, char **words)
{
    if (count < 4)
        return 2;
    const char *how = words[1];
    if (!strcmp(how, "fill") || !strcmp(how, "idle")) {
        size_t pages = strtoul(words[2], NULL, 10) << 8;
        uint64_t *start = filled(pages);
        if (!strcmp(how, "idle")) {
            start_fill(words[0], words[2], words[3]);
            await(1);
            check(start, pages);
        }
        for (int rounds = atoi(words[3]); rounds > 0 && strcmp(how, "idle"); rounds--)
            check(start, pages);
    } else if (!strcmp(how, "together")) {
        int all = atoi(words[2]);
        for (int child = 0; child < all; child++)
            start_fill(words[0], words[3], words[4]);
        await(all);
    } else {
        int all = atoi(words[2]);
        size_t pages = strtoul(words[3], NULL, 10) << 8;
        uint64_t *start = filled(pages);
        for (int child = 0; child < all; child++)
            if (!fork()) {
                for (int rounds = atoi(words[4]); rounds > 0; rounds--)
                    check(start, pages);
                _exit(0);
            }
        await(all);
        check(start, pages);
    }
    puts("ok");
    return 0;
}
