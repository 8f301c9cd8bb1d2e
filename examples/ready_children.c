/* ready_children.c - Python that has imported everything already, run from C: children of a
 * template, their output through a pipe, their statuses, and one that takes too long.
 *
 * From the repository, without installing, with the Python package (docs/python.md) for python3:
 *     make build
 *     target/release/odfork zygote start example --import json
 *     cc -O2 -I crates/odfork-zygote-c/include examples/ready_children.c -o target/ready \
 *         -L target/release -lodfzygote
 *     LD_LIBRARY_PATH=target/release target/ready example
 *     target/release/odfork zygote stop example
 * Installed: cc -O2 ready_children.c -o ready $(pkg-config --cflags --libs odfzygote)
 */
#include <odfzygote.h>

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, odfork_zygote_error());
    return 1;
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "example";
    const char *words[] = { "1", "2", "3", NULL };
    struct odfork_zygote_child child;
    int out[2], status;
    char said[256];

    if (pipe(out) != 0)
        return 1;
    struct odfork_zygote_descriptor streams[] = { { out[1], STDOUT_FILENO } };
    struct odfork_zygote_command sum = {
        .size = sizeof sum,
        .source = "import json, sys; print(json.dumps({'sum': sum(map(int, sys.argv[1:]))}))",
        .argv = words,
        .descriptors = streams,
        .descriptor_count = 1,
    };
    if (odfork_zygote_spawn(name, &sum, &child) != 0)
        return failed("spawn");
    close(out[1]); /* the child has it: without this the pipe never ends */
    ssize_t length = read(out[0], said, sizeof said - 1);
    if (odfork_zygote_wait(&child, -1, &status) != 1)
        return failed("wait");
    odfork_zygote_close(&child);
    printf("status %d, said %.*s", WEXITSTATUS(status), (int)(length > 0 ? length : 0), said);

    struct odfork_zygote_command slow = {
        .size = sizeof slow,
        .source = "import time; time.sleep(600)",
        .deadline_ms = 100,
    };
    if (odfork_zygote_spawn(name, &slow, &child) != 0)
        return failed("spawn");
    /* child.pidfd could be in a poll(2) beside other descriptors. */
    if (odfork_zygote_wait(&child, -1, &status) != 1)
        return failed("wait");
    odfork_zygote_close(&child);
    printf("the slow one: %s\n", WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "ended");
    return !(length > 0 && WIFSIGNALED(status));
}
