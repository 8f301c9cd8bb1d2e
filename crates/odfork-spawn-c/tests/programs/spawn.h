/* What the tests of odf_spawn share: options, a start, and hearing what a program says. Valid C and
 * valid C++. */
#ifndef SPAWN_H
#define SPAWN_H

#define _GNU_SOURCE 1
#include "odfspawn.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: %s (errno %d, error '%s', said '%s')\n", \
                    strrchr(__FILE__, '/') + 1, __LINE__, #what, errno, error.text, said); \
            _exit(1); \
        } \
    } while (0)

static __thread struct odf_spawn_error error;
static __thread char said[65536];
static __thread size_t said_size;

static inline struct odf_spawn_options plain(void)
{
    struct odf_spawn_options o;
    memset(&o, 0, sizeof o);
    o.size = sizeof o;
    return o;
}

static inline int start(struct odf_process *p, const char *file, const char *a, const char *b,
                        const char *c, const struct odf_spawn_options *o)
{
    char *argv[] = { (char *)a, (char *)b, (char *)c, NULL };
    memset(&error, 0x55, sizeof error);
    return odf_spawn(p, file, argv, NULL, o, &error);
}

/* What the program writes to standard output; the end must be good. */
static inline const char *hear(struct odf_process *p)
{
    ssize_t n;
    said_size = 0;
    while ((n = read(p->out, said + said_size, sizeof said - 1 - said_size)) > 0)
        said_size += (size_t)n;
    said[said_size] = 0;
    CHECK(n == 0 && odf_pclose(p) == 0);
    return said;
}

static inline const char *sh(const char *script, struct odf_spawn_options o)
{
    struct odf_process p;
    o.out.kind = ODF_STDIO_PIPE;
    CHECK(start(&p, "/bin/sh", "sh", "-c", script, &o) == 0);
    CHECK(error.step == 0 && error.errnum == 0 && error.text[0] == 0 &&
          !strcmp(error.step_name, "none"));
    CHECK(p.pid > 0 && p.in == -1 && p.err == -1 && fcntl(p.out, F_GETFD) == FD_CLOEXEC);
    return hear(&p);
}

/* A child that has a minute: a deadlock is a failure, whatever it blocks. */
static inline int ends_well(pid_t pid)
{
    int status = -1;
    for (int i = 0; i < 60000; i++) {
        pid_t got = waitpid(pid, &status, WNOHANG);
        if (got != 0)
            return got == pid && status == 0;
        usleep(1000);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    fprintf(stderr, "child %d hung\n", (int)pid);
    return 0;
}

/* The end of a thread that was cancelled while it worked and must get as far as this. */
static inline void *cancelled_here(int *reached)
{
    *reached = 1;
    pthread_testcancel();
    CHECK(!"cancelled");
    return NULL;
}

/* The thread reaches its end and is cancelled there, not before. */
static inline void check_cancelled_thread(void *(*body)(void *))
{
    pthread_t thread;
    void *result = NULL;
    int reached = 0;
    CHECK(pthread_create(&thread, NULL, body, &reached) == 0 && pthread_join(thread, &result) == 0);
    CHECK(reached && result == PTHREAD_CANCELED);
}

#endif
