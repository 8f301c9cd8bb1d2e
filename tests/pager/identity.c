/* A program that gives up its rights: no thread keeps them, its memory stays, and it can still
 * fork. Needs root. */
#include "pages.h"
#include <dirent.h>
#include <grp.h>
#include <sys/syscall.h>
#include <linux/capability.h>

int capset(void *header, const void *data);

#define USER 61234
#define GROUP 61235

/* Lines of a thread's status that say who it is. */
static void identity(const char *thread, char *into, size_t room)
{
    char path[300], line[4096];
    snprintf(path, sizeof path, "/proc/self/task/%s/status", thread);
    FILE *status = fopen(path, "r");
    into[0] = 0;
    while (status && fgets(line, sizeof line, status))
        if (strncmp(line, "Uid:", 4) == 0 || strncmp(line, "Gid:", 4) == 0 ||
            strncmp(line, "Groups:", 7) == 0 || strncmp(line, "CapEff:", 7) == 0 ||
            strncmp(line, "CapPrm:", 7) == 0)
            strncat(into, line, room - strlen(into) - 1);
    if (status)
        fclose(status);
}

static void all_alike(const char *when)
{
    char own[8192], other[8192], number[20];
    unsigned threads = 0;
    snprintf(number, sizeof number, "%d", gettid());
    identity(number, own, sizeof own);
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry; tasks && (entry = readdir(tasks));) {
        if (entry->d_name[0] == '.')
            continue;
        threads++;
        identity(entry->d_name, other, sizeof other);
        if (strcmp(own, other) != 0)
            fprintf(stderr, "%s: a thread is\n%sand not\n%s", when, other, own), abort();
    }
    if (tasks)
        closedir(tasks);
    if (threads < 2)
        fprintf(stderr, "no thread of the agent's was seen\n"), abort();
}

static void need(int answer, const char *what)
{
    if (answer != 0)
        perror(what), abort();
    all_alike(what);
}

int main(void)
{
    size_t pages = 24 << 8;
    uint64_t *memory = paged(pages * PAGE);
    need_paged(memory);
    for (size_t page = 0; page < pages; page++)
        fill_page(memory + page * WORDS, page, 1);
    all_alike("at first");
    gid_t groups[3] = {GROUP, GROUP + 1, GROUP + 2};
    need(setgroups(3, groups), "setgroups");
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct rights[2];
    if (syscall(SYS_capget, &header, rights) != 0)
        perror("capget"), abort();
    rights[0].effective &= ~(1u << CAP_SYS_TIME), rights[0].permitted &= ~(1u << CAP_SYS_TIME);
    need(capset(&header, rights), "capset");
    need(setegid(GROUP), "setegid");
    need(seteuid(USER), "seteuid");
    need(seteuid(0), "seteuid back");
    need(setegid(0), "setegid back");
    need(setresgid(GROUP, GROUP, GROUP), "setresgid");
    need(setuid(USER), "setuid");
    if (setuid(0) == 0)
        fprintf(stderr, "root is back\n"), abort();
    all_alike("at last");
    for (size_t page = 0; page < pages; page++) {
        check_page("afterwards", memory + page * WORDS, page, 1);
        fill_page(memory + page * WORDS, page, 2);
    }
    pid_t child = fork();
    if (child < 0)
        perror("fork"), abort();
    if (child == 0) {
        all_alike("child");
        for (size_t page = 0; page < pages; page++)
            check_page("child", memory + page * WORDS, page, 2);
        need_paged(memory);
        uint64_t *more = paged(1 << 20);
        need_paged(more);
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        fprintf(stderr, "the child ended with %x\n", status), abort();
    for (size_t page = 0; page < pages; page++)
        check_page("at the end", memory + page * WORDS, page, 2);
    printf("ok\n");
    return 0;
}
