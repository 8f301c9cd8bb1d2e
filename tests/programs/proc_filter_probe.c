/* Asking which flags seccomp(2) knows, as libseccomp does when it is loaded: a call that cannot
 * install a filter keeps nobody from freezing. */
// odtest: expect=frozen mem=64
#include "proc_region.h"
#include <linux/seccomp.h>
#include <sys/syscall.h>

static const size_t BYTES = 64 * OD_MB;

int main(void)
{
    void *region = region_new(BYTES, 3);
    for (unsigned flag = 1; flag < 64; flag <<= 1) {
        errno = 0;
        CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flag, NULL) == -1,
              "a filter of nothing");
        CHECK(errno == EFAULT || errno == EINVAL, "flag %u: %s", flag, strerror(errno));
    }
    region_grow_old(region, BYTES, 3);
    region_check(region, BYTES, 3, 1, "at the end");
    return od_done();
}
