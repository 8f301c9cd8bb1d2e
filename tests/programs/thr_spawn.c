// odtest: expect=froze user=any timeout=120 mem=96
/*
 * system(), popen() and posix_spawn() of a process with threads while another thread freezes,
 * folds, thaws and forks: status and output are right, the shell gets no descriptor too many and
 * the signal mask and dispositions of stock, system() ignores SIGINT and SIGQUIT and puts
 * everything back, and a thread cancelled in it leaves no child behind.
 */
#include "proc_region.h"
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>

extern char **environ;

enum { ROUNDS = 25, TEXT = 4096 };
static const size_t BYTES = 16 * OD_MB;
static void *region;
static atomic_int stop, passes, interrupts;

static void *changes(void *unused)
{
    (void)unused;
    for (size_t round = 0; !stop; round++) {
        region_touch(region, BYTES, 29, round);
        round % 5 == 4 ? od_thaw() : od_refreeze();
        region_look(region, BYTES, 29, "beside the shells");
        passes++;
    }
    return NULL;
}

static void on_interrupt(int sig)
{
    (void)sig;
    interrupts++;
}

/* Everything a command says. */
static void said(const char *command, char *text)
{
    FILE *in = popen(command, "re");
    CHECK(in, "popen: %s", strerror(errno));
    size_t n = fread(text, 1, TEXT - 1, in);
    text[n] = 0;
    int status = pclose(in);
    CHECK(status == 0, "'%s' ended with %#x", command, (unsigned)status);
}

/* Descriptors and ignored signals of an executed program. */
static const char *INSIDE = "grep -E '^SigIgn' /proc/self/status; ls /proc/self/fd";

/* Blocked and ignored signals as posix_spawn gives them; a shell may change them. */
static void spawn_said(char *text)
{
    char *argv[] = { "grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status", NULL };
    posix_spawn_file_actions_t actions;
    int end[2], status;
    size_t n = 0;
    ssize_t got;
    pid_t pid;
    OK(pipe2(end, O_CLOEXEC));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, end[1], 1);
    int error = posix_spawnp(&pid, "grep", &actions, NULL, argv, environ);
    CHECK(error == 0, "posix_spawnp: %s", strerror(error));
    posix_spawn_file_actions_destroy(&actions);
    close(end[1]);
    while ((got = read(end[0], text + n, TEXT - 1 - n)) > 0)
        n += (size_t)got;
    text[n] = 0;
    close(end[0]);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0, "posix_spawnp: status %#x",
          (unsigned)status);
}

static void spawned(int round)
{
    char number[16], *argv[] = { "sh", "-c", "exit $0", number, NULL };
    pid_t pid;
    int status;
    snprintf(number, sizeof number, "%d", round % 100);
    int error = posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ);
    CHECK(error == 0, "posix_spawn: %s", strerror(error));
    CHECK(waitpid(pid, &status, 0) == pid, "waitpid: %s", strerror(errno));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == round % 100, "round %d: status %#x", round,
          (unsigned)status);
    argv[0] = "no-such-program-here";
    error = posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ);
    CHECK(error == ENOENT || error == EACCES, "posix_spawnp of nothing: %d", error);
}

static int same_action(int sig, void (*want)(int))
{
    struct sigaction now;
    OK(sigaction(sig, NULL, &now));
    return now.sa_handler == want;
}

static void systems(int round)
{
    sigset_t before, after;
    char command[64];
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    int had = interrupts;
    snprintf(command, sizeof command, "kill -INT $PPID; kill -QUIT $PPID; exit %d", round % 100);
    int status = system(command);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == round % 100, "system: status %#x",
          (unsigned)status);
    CHECK(interrupts == had, "SIGINT or SIGQUIT came through in system()");
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int sig = 1; sig < 65; sig++)
        CHECK(sigismember(&before, sig) == sigismember(&after, sig),
              "system() left signal %d's mask changed", sig);
    CHECK(same_action(SIGINT, on_interrupt) && same_action(SIGQUIT, on_interrupt),
          "system() left a disposition");
    status = system("kill -TERM $$");
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM, "system: killed shell gives %#x",
          (unsigned)status);
    OK(raise(SIGINT));
    CHECK(interrupts == had + 1, "SIGINT does not come through after system()");
}

static void pipes(const char *usual, const char *usual_signals)
{
    char text[TEXT];
    spawn_said(text);
    CHECK(!strcmp(text, usual_signals), "a program spawned beside a freeze has\n%swant\n%s", text,
          usual_signals);
    said(INSIDE, text);
    CHECK(!strcmp(text, usual), "a shell beside a freeze sees\n%swant\n%s", text, usual);
    FILE *to = popen("read word; test \"$word\" = hello", "we");
    CHECK(to && fputs("hello\n", to) >= 0, "popen for writing");
    int status = pclose(to);
    CHECK(status == 0, "popen for writing: status %#x", (unsigned)status);
}

static void *in_system(void *gate)
{
    od_gate_open(gate, 1);
    system("exec sleep 60");
    return NULL;
}

/* glibc kills and reaps the shell of a cancelled system(). */
static void cancelled(void)
{
    struct od_gate gate;
    pthread_t thread;
    void *result;
    double begin = seconds();
    od_gate_make(&gate);
    CHECK(pthread_create(&thread, NULL, in_system, &gate) == 0, "pthread_create");
    od_gate_wait(&gate);
    usleep(20000);
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0, "pthread_cancel");
    od_gate_drop(&gate);
    CHECK(result == PTHREAD_CANCELED, "system() is no cancellation point");
    CHECK(seconds() - begin < 50, "the cancelled system() waited for its shell");
    CHECK(same_action(SIGINT, on_interrupt) && same_action(SIGQUIT, on_interrupt),
          "a cancelled system() left a disposition");
}

int main(void)
{
    char usual[TEXT], usual_signals[TEXT];
    pthread_t thread;
    struct sigaction act = { .sa_handler = on_interrupt, .sa_flags = SA_RESTART };
    sigset_t some;
    OK(sigaction(SIGINT, &act, NULL));
    OK(sigaction(SIGQUIT, &act, NULL));
    signal(SIGUSR2, SIG_IGN);
    sigemptyset(&some);
    sigaddset(&some, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &some, NULL);
    said(INSIDE, usual);
    spawn_said(usual_signals);
    region = region_new(BYTES, 29);
    region_grow_old(region, BYTES, 29);
    CHECK(pthread_create(&thread, NULL, changes, NULL) == 0, "pthread_create");
    for (int round = 0; round < ROUNDS || passes < 5; round++) {
        spawned(round);
        systems(round);
        pipes(usual, usual_signals);
        if (round % 5 == 0)
            cancelled();
    }
    stop = 1;
    pthread_join(thread, NULL);
    region_check(region, BYTES, 29, 1, "at the end");
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD, "somebody is left");
    printf("%s%s", usual, usual_signals);
    return od_done();
}
