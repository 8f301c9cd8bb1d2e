// SPDX-License-Identifier: GPL-2.0-only
/*
 * mode MODE COMMAND...: becomes the command with copy-on-write page tables in this mode: 0 off, 1
 * until exec (so of no use here), 2 kept over exec. Status 4 ("skip" of kernel tests) when the
 * kernel does not know the mode.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PR_SET_COW_FORK 0x43574601

int main(int count, char **words)
{
	if (count < 3) {
		fprintf(stderr, "usage: mode 0|1|2 COMMAND...\n");
		return 2;
	}
	int mode = atoi(words[1]);
	/* Off is what a kernel without the option is anyway. */
	if (prctl(PR_SET_COW_FORK, mode, 0, 0, 0) && mode) {
		fprintf(stderr, "mode: this kernel has no mode %d: %s\n", mode, strerror(errno));
		return 4;
	}
	execvp(words[2], words + 2);
	fprintf(stderr, "mode: cannot start %s: %s\n", words[2], strerror(errno));
	return 127;
}
