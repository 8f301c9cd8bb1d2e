/* talk_to_programs.c - starts programs from a process that holds a lot of memory, and talks to
 * them, at a price that does not depend on that memory.
 *
 * From the repository, without installing:
 *     make build
 *     cc -O2 -I crates/odfork-spawn-c/include examples/talk_to_programs.c -o target/talk -L
 *     target/release -lodfspawn LD_LIBRARY_PATH=target/release target/talk
 * Installed: cc -O2 talk_to_programs.c -o talk $(pkg-config --cflags --libs odfspawn)
 */
#include <odfspawn.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SIZE ((size_t)512 << 20)

static double microseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* A dialogue: a question, an answer, and again. */
static void ask_calculator(void)
{
    struct odf_process calculator;
    if (odf_popen2("while read a b; do echo $((a * b)); done", &calculator) != 0)
        fail("calculator");
    FILE *answers = fdopen(calculator.out, "r");
    calculator.out = -1; /* fclose closes it */
    if (!answers)
        fail("fdopen");
    for (int i = 6; i < 9; i++) {
        int product = 0;
        if (dprintf(calculator.in, "%d 7\n", i) < 0 || fscanf(answers, "%d", &product) != 1 ||
            product != i * 7)
            fail("dialogue");
        printf("dialogue:    %d * 7 = %d\n", i, product);
    }
    fclose(answers);
    if (odf_pclose(&calculator) != 0) /* closes its input, which ends it, and waits */
        fail("end of the dialogue");
}

/* All of the input and all of the output at once: neither side can block the other. */
static void sort_numbers(void)
{
    struct odf_process sort;
    struct odf_output output;
    if (odf_popen2("sort -n", &sort) != 0 ||
        odf_communicate(&sort, "30\n4\n100\n", 9, &output) != 0)
        fail("sort");
    for (char *c = output.out; *c; c++)
        if (*c == '\n')
            *c = ' ';
    printf("sorted:      %s\n", output.out);
    free(output.out);
}

/* What posix_spawn cannot be asked for, and an error that says what to do. */
static void ask_for_more(void)
{
    struct odf_process process;
    struct odf_spawn_options options;
    struct odf_spawn_error error;
    struct odf_limit limits[] = { { RLIMIT_CORE, 0, 0 }, { RLIMIT_NOFILE, 64, 64 } };
    char *argv[] = {(char *)"sh", (char *)"-c",
                    (char *)"echo \"worker:      in $(pwd), $(ulimit -n) descriptors\"", NULL};
    memset(&options, 0, sizeof options); /* all zero: everything inherited */
    options.size = sizeof options;
    options.flags = ODF_SPAWN_SEARCH_PATH | ODF_SPAWN_CLOSE_OTHERS | ODF_SPAWN_SESSION;
    options.directory = "/";
    options.in.kind = ODF_STDIO_NULL;
    options.limits = limits;
    options.limit_count = 2;
    if (odf_spawn(&process, "sh", argv, NULL, &options, &error) != 0) {
        fprintf(stderr, "%s\n", error.text);
        exit(1);
    }
    if (odf_pclose(&process) != 0)
        fail("worker");
    options.directory = "/no/such/directory";
    if (odf_spawn(&process, "sh", argv, NULL, &options, &error) != 0)
        printf("an error:    %s\n", error.text);
}

int main(void)
{
    unsigned char *memory = malloc(SIZE);
    if (!memory)
        fail("malloc");
    memset(memory, 1, SIZE);
    setvbuf(stdout, NULL, _IOLBF, 0);

    ask_calculator();
    sort_numbers();
    ask_for_more();

    double begin = microseconds();
    for (int i = 0; i < 20; i++)
        if (odf_system("exit 0") != 0)
            fail("odf_system");
    double shells = (microseconds() - begin) / 20;
    begin = microseconds();
    for (int i = 0; i < 5; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            execl("/bin/sh", "sh", "-c", "exit 0", (char *)NULL);
            _exit(127);
        }
        if (pid < 0 || waitpid(pid, NULL, 0) != pid)
            fail("fork");
    }
    printf("odf_system:  %8.0f us a shell, with %zu MB in use\n", shells, SIZE >> 20);
    printf("fork + exec: %8.0f us\n", (microseconds() - begin) / 5);
    return memory[SIZE / 2] == 1 ? 0 : 1;
}
