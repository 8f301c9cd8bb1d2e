// SPDX-License-Identifier: GPL-2.0-only
// The option's interface as the harness uses it.
#include "torture.h"

int cow_get(void)
{
	int r = prctl(PR_GET_COW_FORK, 0, 0, 0, 0);

	return r < 0 ? -errno : r;
}

int cow_set(long mode)
{
	return prctl(PR_SET_COW_FORK, mode, 0, 0, 0) ? -errno : 0;
}

bool sharing_on(void)
{
	return opt.has_cow && opt.mode != MODE_OFF;
}

void cow_apply_mode(void)
{
	if (!opt.has_cow)
		return;
	int r = cow_set(opt.mode == MODE_ON);

	must(r == 0, "PR_SET_COW_FORK: %s, expected success", strerror(-r));
}

/* 10 + mode, 20 + mode after an exec that changed the user, 0 without the option. */
int cow_print_mode(void)
{
	int mode = cow_get();

	return mode < 0 ? 0 : (geteuid() != getuid() ? 20 : 10) + mode;
}
