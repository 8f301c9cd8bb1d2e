/* Built against installed headers and libraries, by the flags of pkg-config. */
#include <odfork.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    int status;
    pid_t child = odfork_fork();
    if (child == 0)
        _exit(7);
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 1;
    return !WIFEXITED(status) || WEXITSTATUS(status) != 7;
}
