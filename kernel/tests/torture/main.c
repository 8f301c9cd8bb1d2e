// SPDX-License-Identifier: GPL-2.0-only
// Options, the table of cases, the loop over them and the closing line. How one case runs is
// run.c's matter.
#include "torture.h"
#include <fnmatch.h>
#include <getopt.h>

struct options opt = { .mode = -1, .dir = "/tmp" };

static struct kase *table;
static size_t cases, room;
static int sysctl_before = -1, sysctl_now = -1;	/* vm.cow_fork as found, and during the run */

void add(const char *name, void (*run)(const struct kase *), unsigned need, long a0, long a1,
	 long a2)
{
	if (cases == room) {
		room = room ? 2 * room : 512;
		table = realloc(table, room * sizeof(*table));
		if (!table)
			exit(2);
	}
	struct kase *k = &table[cases++];
	*k = (struct kase){ .run = run, .need = need, .a = { a0, a1, a2 } };
	snprintf(k->name, sizeof(k->name), "%s", name);
}

static const char *missing(unsigned need)
{
	if ((need & NEED_ROOT) && geteuid() != 0)
		return "needs root";
	if ((need & NEED_COW) && !opt.has_cow)
		return "needs a kernel with CONFIG_COW_PTE_TABLES";
	if ((need & NEED_GUEST) && !opt.guest)
		return "changes the whole machine: only with --guest";
	if ((need & NEED_SWAP) && !swap_is_on())
		return "needs swap, none is on (swapon)";
	return NULL;
}

static const char usage[] =
	"torture [OPTIONS]: does to forked memory whatever can be done to it and checks every "
	"page\n"
	"  --list        the names of the cases, one per line\n"
	"  --only GLOB   only cases whose name matches, e.g. 'mem/munmap/*'; may be repeated\n"
	"  --quick       fewer actors and rounds per case\n"
	"  --seed N      of everything random (default: the time; printed at the end)\n"
	"  --mode M      0: option off, 1: prctl (default if the kernel has it), all: sysctl "
	"vm.cow_fork=2\n"
	"  --guest       also cases that change the machine (swapoff, compaction, memory failure, "
	"...)\n"
	"  --slow        time limits times ten, for emulated guests with a debug kernel\n"
	"  --dir DIR     for files of O_DIRECT and core dumps (default /tmp)\n"
	"  -v            one line per case instead of a dot\n";

static _Noreturn void bad(const char *what, const char *found)
{
	fprintf(stderr, "torture: %s, not '%s' (see --help)\n", what, found);
	exit(2);
}

static void read_mode(const char *text)
{
	if (!strcmp(text, "0"))
		opt.mode = MODE_OFF;
	else if (!strcmp(text, "1"))
		opt.mode = MODE_ON;
	else if (!strcmp(text, "all"))
		opt.mode = MODE_ALL;
	else
		bad("--mode takes 0, 1 or all", text);
}

static bool read_options(int argc, char **argv)
{
	static const struct option known[] = {
		{ "list", 0, 0, 'l' }, { "only", 1, 0, 'o' }, { "quick", 0, 0, 'q' }, { "seed", 1, 0, 's' },
		{ "mode", 1, 0, 'm' }, { "guest", 0, 0, 'g' }, { "slow", 0, 0, 'w' }, { "dir", 1, 0, 'd' },
		{ "help", 0, 0, 'h' }, { 0, 0, 0, 0 },
	};
	bool list = false;
	int c;

	while ((c = getopt_long(argc, argv, "v", known, NULL)) != -1) {
		char *end;

		switch (c) {
		case 'l': list = true; break;
		case 'o':
			if (opt.globs == MOST_GLOBS)
				bad("--only at most 32 times", optarg);
			opt.only[opt.globs++] = optarg;
			break;
		case 'q': opt.quick = true; break;
		case 'g': opt.guest = true; break;
		case 'w': opt.slow = true; break;
		case 'd': opt.dir = optarg; break;
		case 'v': opt.verbose = true; break;
		case 'm': read_mode(optarg); break;
		case 's':
			opt.seed = strtoull(optarg, &end, 0);
			if (*end || !*optarg)
				bad("--seed takes a number", optarg);
			break;
		case 'h': fputs(usage, stdout); exit(0);
		default: exit(2);
		}
	}
	if (optind < argc)
		bad("no arguments but options are known", argv[optind]);
	return list;
}

static void set_sysctl(int value)
{
	char text[16];

	if (value < 0)
		return;
	snprintf(text, sizeof(text), "%d", value);
	write_file(COW_SYSCTL, text);
}

static void interrupted(int signal)
{
	set_sysctl(sysctl_before);
	(void)!write(1, "\ninterrupted\n", 13);
	_exit(128 + signal);
}

static void settle_mode(void)
{
	char text[16];

	opt.has_cow = cow_get() >= 0;
	if (opt.mode < 0)
		opt.mode = opt.has_cow ? MODE_ON : MODE_OFF;
	if (opt.mode != MODE_OFF && !opt.has_cow) {
		fprintf(stderr, "torture: this kernel does not know PR_SET_COW_FORK; needed: one with "
			"CONFIG_COW_PTE_TABLES, or --mode 0\n");
		exit(2);
	}
	if (read_file(COW_SYSCTL, text, sizeof(text)) > 0)
		sysctl_before = sysctl_now = atoi(text);
	signal(SIGINT, interrupted);
	signal(SIGTERM, interrupted);
	if (opt.mode != MODE_ALL)
		return;
	sysctl_now = 2;
	if (write_file(COW_SYSCTL, "2")) {
		fprintf(stderr, "torture: --mode all needs root to write %s\n", COW_SYSCTL);
		exit(2);
	}
}

static bool wanted(const struct kase *k)
{
	for (int i = 0; i < opt.globs; i++)
		if (fnmatch(opt.only[i], k->name, 0) == 0)
			return true;
	return !opt.globs;
}

static void progress(const struct kase *k, enum verdict v, const char *message)
{
	static const char *const word[] = { "ok", "FAILED", "skipped" };
	static int column;

	if (v != PASSED || opt.verbose) {
		printf("%s%s %s%s%s", column ? "\n" : "", word[v], k->name, message[0] ? ": " : "", message);
		if (v == FAILED)
			printf(" [seed %llu]", (unsigned long long)opt.seed);
		puts("");
		column = 0;
	} else {
		putchar('.');
		if (++column == 80) {
			puts("");
			column = 0;
		}
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	int count[3] = { 0 };

	if (argc == 2 && !strcmp(argv[1], PRINT_MODE))
		return cow_print_mode();
	bool list = read_options(argc, argv);

	add_all_cases();
	if (list) {
		for (size_t i = 0; i < cases; i++)
			if (wanted(&table[i]))
				puts(table[i].name);
		return 0;
	}
	if (!opt.seed)
		opt.seed = (uint64_t)time(NULL);
	settle_mode();
	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	for (size_t i = 0; i < cases; i++) {
		static char message[2000];
		enum verdict v = SKIPPED;

		if (!wanted(&table[i]))
			continue;
		const char *reason = missing(table[i].need);

		message[0] = 0;
		if (reason)
			snprintf(message, sizeof(message), "%s", reason);
		else
			v = run_case(&table[i], message, sizeof(message));
		if (v == FAILED)
			set_sysctl(sysctl_now);
		progress(&table[i], v, message);
		count[v]++;
	}
	set_sysctl(sysctl_before);
	if (count[0] + count[1] + count[2] == 0)
		bad("--only must match a case (--list shows them)", opt.globs ? opt.only[0] : "");
	printf("\n%d passed, %d failed, %d skipped (mode %s, seed %llu)\n", count[PASSED],
	       count[FAILED], count[SKIPPED],
	       opt.mode == MODE_OFF  ? "0"
	       : opt.mode == MODE_ON ? "1"
				     : "all",
	       (unsigned long long)opt.seed);
	return count[FAILED] != 0;
}
