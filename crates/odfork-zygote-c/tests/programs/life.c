/* A life with a template called "test": started by the test, asked for children from here.
 * Prints "ok" at the end; a line and status 1 for the first thing that is not as it should be. */
#include <errno.h>
#include <odfzygote.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(truth)                                                                              \
    if (!(truth)) {                                                                               \
        printf("line %d: %s: %s\n", __LINE__, #truth, odfork_zygote_error());                     \
        return 1;                                                                                 \
    }

static struct odfork_zygote_command blank(void)
{
    struct odfork_zygote_command command;
    memset(&command, 0, sizeof command);
    command.size = sizeof command;
    return command;
}

static int came_back;

/* A request to end is pending over the calls: none ends in one of them. */
static void *cancelled(void *command)
{
    struct odfork_zygote_child child;
    int status = -1;
    pthread_cancel(pthread_self());
    came_back += odfork_zygote_spawn("test", (struct odfork_zygote_command *)command, &child) == 0;
    came_back += odfork_zygote_wait(&child, -1, &status) == 1;
    odfork_zygote_close(&child);
    came_back++;
    pthread_testcancel();
    return NULL;
}

int main(void)
{
    struct odfork_zygote_child child;
    struct odfork_zygote_command command = blank();
    int status, out[2];
    char said[64] = "";

    CHECK(odfork_zygote_spawn("test", &command, &child) == -1 && errno == EINVAL);
    command.source = "import os, sys; print(sys.argv[1:], os.environ['WORD'], os.getcwd());"
                     "sys.exit(7)";
    const char *words[] = { "a", "--b", NULL }, *variables[] = { "WORD=w=1", NULL };
    CHECK(pipe(out) == 0);
    struct odfork_zygote_descriptor descriptors[] = { { out[1], 1 } };
    command.argv = words, command.envp = variables, command.directory = "/usr";
    command.descriptors = descriptors, command.descriptor_count = 1;
    CHECK(odfork_zygote_spawn("nobody", &command, &child) == -1 && errno == ENOENT);
    CHECK(odfork_zygote_spawn("test", &command, &child) == 0);
    close(out[1]);
    CHECK(odfork_zygote_wait(&child, -1, &status) == 1 && WEXITSTATUS(status) == 7);
    CHECK(odfork_zygote_wait(&child, 0, &status) == 1 && WEXITSTATUS(status) == 7);
    odfork_zygote_close(&child);
    CHECK(odfork_zygote_wait(&child, 0, &status) == -1);
    CHECK(read(out[0], said, sizeof said - 1) > 0);
    CHECK(strcmp(said, "['a', '--b'] w=1 /usr\n") == 0);

    struct odfork_zygote_command bare = blank();
    const char *nothing[] = { NULL };
    bare.source = "import os, sys; sys.exit(len(os.environ))";
    bare.envp = nothing;
    CHECK(odfork_zygote_spawn("test", &bare, &child) == 0);
    CHECK(odfork_zygote_wait(&child, -1, &status) == 1 && status == 0);
    odfork_zygote_close(&child);

    pthread_t thread;
    void *ended;
    CHECK(pthread_create(&thread, NULL, cancelled, &bare) == 0);
    CHECK(pthread_join(thread, &ended) == 0 && ended == PTHREAD_CANCELED && came_back == 3);

    struct odfork_zygote_command sleeper = blank();
    sleeper.source = "import time; time.sleep(600)";
    CHECK(odfork_zygote_spawn("test", &sleeper, &child) == 0);
    CHECK(odfork_zygote_wait(&child, 10, &status) == 0);
    odfork_zygote_close(&child); /* and the template kills it */
    sleeper.deadline_ms = 50;
    CHECK(odfork_zygote_spawn("test", &sleeper, &child) == 0);
    CHECK(odfork_zygote_wait(&child, -1, &status) == 1 && WTERMSIG(status) == 9);
    odfork_zygote_close(&child);

    /* No descriptor is left for the connection: that is what is said. */
    struct rlimit limit, none;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    none = limit, none.rlim_cur = 3;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    CHECK(odfork_zygote_spawn("test", &sleeper, &child) == -1 && errno == EMFILE);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    puts("ok");
    return 0;
}
