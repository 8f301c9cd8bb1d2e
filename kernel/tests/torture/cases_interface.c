// SPDX-License-Identifier: GPL-2.0-only
// The interface: prctl, /proc/PID/use_odf, the sysctl, inheritance, and the counters.
#include "torture.h"
#include <pthread.h>
#include <sys/stat.h>

static void set_ok(long mode)
{
	int r = cow_set(mode);

	must(r == 0 && cow_get() == mode, "mode %ld: prctl says %s, mode is %d", mode, strerror(-r),
	     cow_get());
}

/* Without the option every call must be refused, whatever the kernel. */
static void prctl_values(const struct kase *k)
{
	(void)k;
	if (!opt.has_cow) {
		must(cow_set(1) == -EINVAL && cow_get() == -EINVAL,
		     "a kernel without the option accepts the prctl");
		return;
	}
	for (long mode = 0; mode <= 2; mode++)
		set_ok(mode);
	static const long bad[] = { 3, 4, -1, 0x100000000, 0x7fffffffffffffff };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		must(cow_set(bad[i]) == -EINVAL, "mode %ld gives %s, expected EINVAL", bad[i],
		     strerror(-cow_set(bad[i])));
	for (int i = 0; i < 3; i++) {
		must(prctl(PR_SET_COW_FORK, 1L, i == 0 ? 1L : 0, i == 1 ? 1L : 0, i == 2 ? 1L : 0) <
				     0 &&
			     errno == EINVAL,
		     "PR_SET_COW_FORK with argument %d set is not refused", i + 3);
	}
	for (int i = 0; i < 4; i++)
		must(prctl(PR_GET_COW_FORK, i == 0 ? 1L : 0, i == 1 ? 1L : 0, i == 2 ? 1L : 0,
			   i == 3 ? 1L : 0) < 0 &&
			     errno == EINVAL,
		     "PR_GET_COW_FORK with argument %d set is not refused", i + 2);
	must(cow_get() == 2, "refused calls changed the mode to %d", cow_get());
}

static int exec_mode(const char *path)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		execl(path, path, PRINT_MODE, NULL);
		_exit(99 - 1);
	}
	waitpid(pid, &status, 0);
	must(WIFEXITED(status), "wait status 0x%x after exec", status);
	return WEXITSTATUS(status);
}

static void inheritance(const struct kase *k)
{
	(void)k;
	for (int mode = 0; mode <= 2; mode++) {
		set_ok(mode);
		pid_t pid = fork();

		if (pid == 0) {
			must(cow_get() == mode, "the child of a process with mode %d has mode %d", mode, cow_get());
			if (fork() == 0) {
				must(cow_get() == mode, "the grandchild has mode %d, expected %d", cow_get(), mode);
				set_ok(0);
				_exit(0);
			}
			int status;

			wait(&status);
			must(status == 0 && cow_get() == mode, "a child's change of mode reaches its parent");
			_exit(0);
		}
		wait_ok(pid, "the child");
		int after = exec_mode("/proc/self/exe"), expected = 10 + (mode == 2 ? 2 : 0);

		must(after == expected, "after exec with mode %d: %d, expected %d (10 + mode)",
		     mode, after, expected);
	}
}

static void *thread_mode(void *argument)
{
	if (*(int *)argument >= 0)
		set_ok(*(int *)argument);
	return (void *)(long)cow_get();
}

static void threads(const struct kase *k)
{
	pthread_t t;
	void *seen;

	(void)k;
	for (int mode = 0; mode <= 2; mode++) {
		int none = -1;

		set_ok(mode);
		pthread_create(&t, NULL, thread_mode, &none);
		pthread_join(t, &seen);
		must((long)seen == mode, "a thread sees mode %ld, expected %d", (long)seen, mode);
		int other = (mode + 1) % 3;

		pthread_create(&t, NULL, thread_mode, &other);
		pthread_join(t, &seen);
		must(cow_get() == other, "mode set by a thread: the process has %d, expected %d",
		     cow_get(), other);
	}
}

static int read_odf(pid_t pid)
{
	char path[40], text[16];

	snprintf(path, sizeof(path), "/proc/%d/use_odf", pid);
	long n = read_file(path, text, sizeof(text));

	must(n == 2 && text[1] == '\n', "%s: %ld bytes '%s', expected a digit and a newline", path,
	     n, n > 0 ? text : "");
	return text[0] - '0';
}

static long write_odf(pid_t pid, const char *text)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/%d/use_odf", pid);
	return write_file(path, text);
}

static void proc_file(const struct kase *k)
{
	static const char *const good[] = { "0", "1", "2", "1\n", "0\n", "2\n" };
	static const char *const bad[] = {
		"3",
		"abc",
		"-1",
		"1x",
		"\n",
		"99999999999999999999",
		"0x1",
		"1 2",
		"+",
		"11111111111111111111111111111111111111111111111111111111111111111111111111111111"};

	(void)k;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		long r = write_odf(getpid(), good[i]);

		must(r == 0 && cow_get() == good[i][0] - '0' && read_odf(getpid()) == cow_get(),
		     "'%c' to use_odf: %s, mode is %d", good[i][0], strerror((int)-r), cow_get());
	}
	set_ok(2);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		long r = write_odf(getpid(), bad[i]);

		/* "0x1" and "+" are the parser's business, as long as what is accepted is a mode. */
		if (r == 0 && !strcmp(bad[i], "0x1")) {
			set_ok(2);
			continue;
		}
		must(r < 0, "'%s' to use_odf is accepted", bad[i]);
		must(cow_get() == 2, "'%s' to use_odf changed the mode to %d", bad[i], cow_get());
	}
	write_odf(getpid(), "");
	must(cow_get() == 2, "an empty write changed the mode to %d", cow_get());
}

static pid_t pausing_child(uid_t user)
{
	pid_t pid = fork();

	if (pid == 0) {
		if (user && setuid(user))
			_exit(1);
		prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
		for (;;)
			pause();
	}
	usleep(20000);
	return pid;
}

static void by_others(const struct kase *k)
{
	pid_t target, other;

	(void)k;
	set_ok(0);
	target = pausing_child(0);
	must(write_odf(target, "1") == 0 && read_odf(target) == 1,
	     "root cannot set the mode of another process");
	must(cow_get() == 0, "setting another's mode changed one's own");
	other = fork();
	if (other == 0) {
		if (setuid(65534))
			_exit(98);
		long r = write_odf(target, "2");

		must(r == -EACCES || r == -EPERM,
		     "another user writes use_odf: %s, expected EACCES", strerror((int)-r));
		_exit(0);
	}
	wait_ok(other, "another user");
	must(read_odf(target) == 1, "a refused write changed the mode to %d", read_odf(target));
	kill(target, SIGKILL);
	target = pausing_child(65534);
	other = fork();
	if (other == 0) {
		if (setuid(65534))
			_exit(98);
		for (int turn = 0; turn < 100 && write_odf(target, "2") == -EACCES; turn++)
			usleep(10000);	/* until the target is dumpable */
		must(read_odf(target) == 2, "the same user cannot set the mode of another process");
		_exit(0);
	}
	wait_ok(other, "the same user");
	kill(target, SIGKILL);
}

static void set_uid(const struct kase *k)
{
	char path[200];
	static char copy[1 << 16];
	ssize_t n;

	(void)k;
	snprintf(path, sizeof(path), "%s/torture-setuid.%d", opt.dir, getpid());
	remove_later(path);
	int in = open("/proc/self/exe", O_RDONLY), out = open(path, O_WRONLY | O_CREAT | O_EXCL, 0755);

	must(in >= 0 && out >= 0, "%s: %s", path, strerror(errno));
	while ((n = read(in, copy, sizeof(copy))) > 0)
		must(write(out, copy, (size_t)n) == n, "%s: %s", path, strerror(errno));
	close(out);
	must(chmod(path, 04755) == 0, "%s: %s", path, strerror(errno));
	int shared_status;
	pid_t pid = fork();

	if (pid == 0) {
		if (setuid(65534))
			_exit(98);
		set_ok(2);
		_exit(exec_mode(path));
	}
	waitpid(pid, &shared_status, 0);
	unlink(path);
	int code = WIFEXITED(shared_status) ? WEXITSTATUS(shared_status) : -1;

	if (code == 12 || code == 98)
		skip("%s does not allow set-uid programs (--dir)", opt.dir);
	must(code == 20, "after a set-uid exec: %d, expected 20 (20 + mode 0)", code);
}

/* Shares of one fork of three whole tables. */
static long shares_of_a_fork(void)
{
	struct world *w = layout_world(L_ONE);
	long before = vmstat("cowpt_share");

	m_fork(w, 0);
	long shares = vmstat("cowpt_share") - before;

	verify(w);
	world_end(w);
	return shares;
}

static void sysctl_values(const struct kase *k)
{
	static const struct { const char *sysctl; int mode; bool shares; } rows[] = {
		{ "0", 0, false }, { "0", 1, false }, { "0", 2, false }, { "1", 0, false }, { "1", 1, true },
		{ "1", 2, true }, { "2", 0, true }, { "2", 1, true },
	};
	char text[16] = "1";

	(void)k;
	read_file(COW_SYSCTL, text, sizeof(text));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		must(write_file(COW_SYSCTL, rows[i].sysctl) == 0, "%s to %s is refused",
		     rows[i].sysctl, COW_SYSCTL);
		set_ok(rows[i].mode);
		long n = shares_of_a_fork();

		must(rows[i].shares ? n >= 3 : n == 0,
		     "sysctl %s, mode %d: a fork of three tables shared %ld", rows[i].sysctl,
		     rows[i].mode, n);
	}
	static const char *const bad[] = { "3", "-1", "abc", "4294967296" };

	write_file(COW_SYSCTL, "1");
	for (size_t i = 0; i < 4; i++)
		must(write_file(COW_SYSCTL, bad[i]) < 0, "'%s' to %s is accepted", bad[i], COW_SYSCTL);
	write_file(COW_SYSCTL, text);
}

/* Switching off while tables are shared: nothing new is shared, and everything still works. */
static void switched_off(const struct kase *k)
{
	char text[16] = "1";

	(void)k;
	read_file(COW_SYSCTL, text, sizeof(text));
	write_file(COW_SYSCTL, "1");
	set_ok(1);
	struct world *w = layout_world(L_ONE);

	m_fork(w, 0);
	write_file(COW_SYSCTL, "0");
	long before = vmstat("cowpt_share");

	m_fork(w, 0);
	m_fork(w, 1);
	must(vmstat("cowpt_share") == before, "%ld tables were shared with the sysctl at 0",
	     vmstat("cowpt_share") - before);
	m_write(w, 1, T2, 9);
	m_write(w, 3, T1, TP);
	verify(w);
	account(w);
	actor_end(w, 0);
	verify_deep(w);
	world_end(w);
	write_file(COW_SYSCTL, text);
}

static void cowpte_value(const struct kase *k)
{
	(void)k;
	must(sharing_on(), "the test itself is wrong");
	struct world *w = layout_world(L_ONE);
	long zero = status_value(w->a[0].pid, "CowPTE");

	must(zero >= 0, "status has no line CowPTE");
	int child = m_fork(w, 0);

	for (int i = 0; i < 2; i++) {
		long now = status_value(w->a[i].pid, "CowPTE");

		must(now >= zero + 12,
		     "CowPTE of actor %d is %ld kB after three tables were shared, before %ld", i,
		     now, zero);
	}
	m_write(w, child, T2, 1);
	long two = status_value(w->a[child].pid, "CowPTE"), three = status_value(w->a[0].pid, "CowPTE");

	must(two == three - 4,
	     "CowPTE %ld kB after one of three tables was written, the parent has %ld", two, three);
	for (long t = T1; t < T4; t += TP)
		m_write(w, child, t, 1), m_write(w, 0, t, 1);
	long end = status_value(w->a[0].pid, "CowPTE");

	must(end <= three - 12, "CowPTE %ld kB after every table was written, before %ld", end, three);
	verify_deep(w);
	world_end(w);
}

static void skip_off(const struct kase *k)
{
	if (!sharing_on())
		skip("the option is off (--mode 0)");
	cowpte_value(k);
}

/* share = copies + reuses + drops, and nothing fails. */
static void counters(const struct kase *k)
{
	static const char *const names[] = {"cowpt_share",    "cowpt_copy",    "cowpt_reuse",
					    "cowpt_drop",     "cowpt_release", "cowpt_eager",
					    "cowpt_copy_fail"};
	long before[7];

	(void)k;
	for (int i = 0; i < 7; i++) {
		before[i] = vmstat(names[i]);
		must(before[i] >= 0, "/proc/vmstat has no %s", names[i]);
	}
	set_ok(1);
	struct world *w = layout_world(L_ONE);

	m_fork(w, 0);
	m_write(w, 1, T1, 1);		/* copy */
	m_write(w, 0, T1, 1);		/* reuse */
	m_unmap(w, 1, T2, TP);		/* drop */
	m_write(w, 0, T2, 1);		/* reuse */
	verify(w);
	static const int least[] = { 3, 1, 2, 1 };

	for (int i = 0; i < 4; i++)
		must(vmstat(names[i]) >= before[i] + least[i],
		     "%s rose by %ld, expected at least %d", names[i], vmstat(names[i]) - before[i],
		     least[i]);
	must(vmstat("cowpt_copy_fail") == before[6], "cowpt_copy_fail rose without need");
	world_end(w);
}

void cases_interface(void)
{
	add("interface/prctl", prctl_values, 0, 0, 0, 0);
	add("interface/inheritance", inheritance, NEED_COW, 0, 0, 0);
	add("interface/threads", threads, NEED_COW, 0, 0, 0);
	add("interface/use_odf", proc_file, NEED_COW, 0, 0, 0);
	add("interface/use_odf-others", by_others, NEED_COW | NEED_ROOT, 0, 0, 0);
	add("interface/set-uid", set_uid, NEED_COW | NEED_ROOT, 0, 0, 0);
	add("interface/sysctl", sysctl_values, NEED_COW | NEED_ROOT, 0, 0, 0);
	add("interface/switched-off", switched_off, NEED_COW | NEED_ROOT, 0, 0, 0);
	add("interface/cowpte", skip_off, NEED_COW, 0, 0, 0);
	add("interface/counters", counters, NEED_COW, 0, 0, 0);
}
