/* Says what a program sees of the process it was started in. One word selects the question; output
 * is exact and stable. Used through `odfork run` and without it, so that both answers can be
 * compared. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

/* Entries end with a zero byte, so that values with line breaks stay apart. */
static void print_environment(void) {
    for (char **entry = environ; *entry; entry++) {
        fputs(*entry, stdout);
        putchar(0);
    }
}

static void print_arguments(int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        fputs(argv[i], stdout);
        putchar(0);
    }
}

/* "D" default, "I" ignored, "H" handled for every signal, then the blocked ones. */
static void print_signals(void) {
    for (int signal = 1; signal < 65; signal++) {
        struct sigaction action;
        if (sigaction(signal, NULL, &action) != 0)
            continue;
        char letter = action.sa_handler == SIG_DFL ? 'D' : action.sa_handler == SIG_IGN ? 'I' : 'H';
        printf("%d%c ", signal, letter);
    }
    sigset_t blocked;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    printf("blocked:");
    for (int signal = 1; signal < 65; signal++)
        if (sigismember(&blocked, signal) == 1)
            printf(" %d", signal);
    printf("\n");
}

/* Open descriptors with their flags. */
static void print_descriptors(FILE *out) {
    for (int fd = 0; fd < 64; fd++) {
        int flags = fcntl(fd, F_GETFD);
        if (flags != -1 && fd != fileno(out))
            fprintf(out, "%d:%d ", fd, flags);
    }
    fprintf(out, "\n");
}

int main(int argc, char **argv) {
    const char *question = argc > 1 ? argv[1] : "";
    if (!strcmp(question, "environment"))
        print_environment();
    else if (!strcmp(question, "arguments"))
        print_arguments(argc, argv);
    else if (!strcmp(question, "signals"))
        print_signals();
    else if (!strcmp(question, "preloaded"))
        puts(dlsym(RTLD_DEFAULT, "stub_is_loaded") ? "yes" : "no");
    else if (!strcmp(question, "pid"))
        printf("%d\n", (int)getpid());
    else if (!strcmp(question, "exit"))
        return atoi(argv[2]);
    else if (!strcmp(question, "die"))
        raise(atoi(argv[2]));
    else if (!strcmp(question, "descriptors") && argc > 2) {
        FILE *out = fopen(argv[2], "we");
        print_descriptors(out);
        fclose(out);
    } else
        return 99;
    return 0;
}
