/* A write is to wait, whoever makes it. Without privileges the kernel's own writes fail instead. */
#include "wish.h"
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

int main(void)
{
    int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY), pipes[2];
    char *page = map(PAGE, MAP_PRIVATE, -1);
    struct uffdio_api api = {UFFD_API, UFFD_FEATURE_PAGEFAULT_FLAG_WP, 0};
    struct uffdio_range range = {(uintptr_t)page, PAGE};
    struct uffdio_register watch = {range, UFFDIO_REGISTER_MODE_WP, 0};
    struct uffdio_writeprotect protect = {range, UFFDIO_WRITEPROTECT_MODE_WP};
    *page = 'a';
    EXPECT(uffd >= 0 && ioctl(uffd, UFFDIO_API, &api) == 0);
    EXPECT(ioctl(uffd, UFFDIO_REGISTER, &watch) == 0 &&
           ioctl(uffd, UFFDIO_WRITEPROTECT, &protect) == 0);
    EXPECT(pipe(pipes) == 0 && write(pipes[1], "b", 1) == 1);
    ssize_t got = read(pipes[0], page, 1);
    printf("read(2) into a page that anybody may protect: %s\n",
           got < 0 ? strerror(errno) : "done");
    EXPECT(got < 0 && errno == EFAULT && *page == 'a');
    return 0;
}
