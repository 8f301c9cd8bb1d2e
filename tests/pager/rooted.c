/* Changes its root to an empty folder, without /proc, and forks. */
#include "pages.h"

int main(void)
{
    char folder[] = "/tmp/odpager-root-XXXXXX";
    uint64_t *memory = paged(1 << 20);
    need_paged(memory);
    fill_page(memory, 0, 1);
    mprotect(memory + WORDS, PAGE, PROT_NONE);
    if (!mkdtemp(folder) || chdir(folder) || rmdir(folder))
        return 5;
    if (chroot("."))
        return puts("ok: may not change its root"), 0;
    pid_t child = fork();
    if (child < 0)
        return perror("fork"), 6;
    if (child == 0) {
        check_page("child", memory, 0, 1);
        /* Protection is inherited as well. */
        pid_t grandchild = vfork();
        if (grandchild == 0)
            memory[WORDS] = 1, _exit(0);
        int status;
        _exit(wait(&status) < 0 || !WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV);
    }
    int status;
    if (wait(&status) != child || status != 0)
        return fprintf(stderr, "the child ended with %d\n", status), 7;
    check_page("parent", memory, 0, 1);
    puts("ok");
    return 0;
}
