// SPDX-License-Identifier: GPL-2.0-only
// What else a process does with memory in its life: exec, vfork, spawn, signals, futexes, the
// kernel's own writes to user memory.
#include "torture.h"
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>

static const char true_arguments[] = PRINT_MODE;

static long do_exec(struct world *w, int self, const long *a)
{
	(void)w, (void)self, (void)a;
	execl("/proc/self/exe", "torture", true_arguments, NULL);
	return -errno;
}

/* a[0] 0: the child execs, 1: the parent; the other one keeps what it had. */
static void exec_one(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);
	int who = (int)k->a[0];

	m_fork(w, 0);
	m_write(w, who, T2, 30);
	rpc_send(w, who, do_exec, (const long[7]){ 0 });
	waitpid(w->a[who].pid, NULL, __WALL);
	w->a[who].live = false;
	verify(w);
	m_write(w, 1 - who, T1, 3 * TP);
	m_fork(w, 1 - who);
	verify_deep(w);
	account(w);
	world_end(w);
}

static long do_vfork(struct world *w, int self, const long *a)
{
	(void)self;
	pid_t pid = vfork();

	if (pid == 0) {
		/* A vfork's child has the parent's memory itself: this write stays. */
		*(volatile uint64_t *)at(w, a[0]) = (uint64_t)a[1];
		_exit(0);
	}
	int status;

	return waitpid(pid, &status, 0) == pid && status == 0 ? 0 : -ECHILD;
}

static void vfork_case(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);

	(void)k;
	m_fork(w, 0);
	for (int i = 0; i < 2; i++) {
		uint64_t key = new_key(w);

		must(on(w, i, do_vfork, T2 + 8, (long)key) == 0, "vfork");
		w->a[i].page[T2 + 8].key = key;
		/* The child wrote the first word only: complete the page to compare it. */
		on(w, i, do_write, T2 + 8, 1);
		verify(w);
	}
	verify_deep(w);
	world_end(w);
}

static long do_spawn(struct world *w, int self, const long *a)
{
	char *arguments[] = { "torture", (char *)true_arguments, NULL }, *environment[] = { NULL };
	pid_t pid;
	int status;

	(void)w, (void)self, (void)a;
	int r = posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environment);

	if (r)
		return -r;
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? 0 : -ECHILD;
}

static void spawn_case(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);

	(void)k;
	m_fork(w, 0);
	for (int i = 0; i < 6; i++) {
		must(on(w, i % 2, do_spawn, 0) == 0, "posix_spawn");
		m_write(w, i % 2, T2 + 3 * i, 20);
		verify(w);
	}
	world_end(w);
}

static volatile sig_atomic_t handled;

static void handler(int signal)
{
	volatile char big[3 * 4096];

	memset((char *)big, signal, sizeof(big));
	handled += big[5000] == signal;
}

/* A signal stack in shared memory: the frame is written by the kernel, through a table not yet
 * unshared. */
static long do_signal_stack(struct world *w, int self, const long *a)
{
	stack_t s = {.ss_sp = at(w, a[0]), .ss_size = (size_t)a[1] * PAGE},
		off = {.ss_flags = SS_DISABLE};
	struct sigaction sa = { .sa_handler = handler, .sa_flags = SA_ONSTACK };

	(void)self;
	handled = 0;
	if (sigaltstack(&s, NULL) || sigaction(SIGUSR1, &sa, NULL))
		return -errno;
	for (int i = 0; i < 3; i++)
		kill(getpid(), SIGUSR1);
	sigaltstack(&off, NULL);
	return handled == 3 ? 0 : -EIO;
}

static void signal_stack(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);
	long p = T2 - 8, n = 16;

	(void)k;
	for (int i = 0; i < 3; i++) {
		if (i)
			m_fork(w, i - 1);
		must(on(w, i, do_signal_stack, p, n) == 0, "signals on a stack in shared memory");
		m_write(w, i, p, n);	/* the frames are not in the model */
		verify(w);
	}
	verify_deep(w);
	world_end(w);
}

static void *stack_thread(void *argument)
{
	volatile char deep[40000];

	memset((char *)deep, 7, sizeof(deep));
	pid_t pid = fork();

	if (pid == 0) {
		memset((char *)deep, 9, sizeof(deep));
		_exit(deep[20000] == 9 ? 0 : 1);
	}
	int status = 1;

	waitpid(pid, &status, 0);
	*(long *)argument = status == 0 && deep[20000] == 7;
	return NULL;
}

/* A thread whose stack, TLS and rseq area lie in the middle of a shared table forks from there. */
static long do_stack_thread(struct world *w, int self, const long *a)
{
	pthread_attr_t attr;
	pthread_t t;
	long good = 0;

	(void)self;
	pthread_attr_init(&attr);
	if (pthread_attr_setstack(&attr, at(w, a[0]), (size_t)a[1] * PAGE) ||
	    pthread_create(&t, &attr, stack_thread, &good))
		return -EINVAL;
	pthread_join(t, NULL);
	return good ? 0 : -EIO;
}

static void thread_stack(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);

	(void)k;
	for (int i = 0; i < 3; i++) {
		if (i)
			m_fork(w, i - 1);
		must(on(w, i, do_stack_thread, T2 + 64, 128) == 0, "a thread with its stack in shared memory");
		m_write(w, i, T2 + 64, 128);
		verify(w);
	}
	verify_deep(w);
	world_end(w);
}

struct futexes { struct world *w; uint32_t *word; _Atomic int woken; };

static void *futex_wait(void *argument)
{
	struct futexes *f = argument;

	syscall(SYS_futex, f->word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
	atomic_store(&f->woken, 1);
	return NULL;
}

/* A private futex in shared memory belongs to one process: the child's wake wakes nobody, the
 * parent's its thread. */
static long do_futex(struct world *w, int self, const long *a)
{
	uint32_t *word = (uint32_t *)at(w, a[0]);
	struct futexes f = { .w = w, .word = word };
	pthread_t t;
	int status;

	(void)self;
	*word = 0;
	if (pthread_create(&t, NULL, futex_wait, &f))
		return -EAGAIN;
	usleep(5000);
	pid_t pid = fork();

	if (pid == 0) {
		uint32_t before = *word;
		long n = syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 10, NULL, NULL, 0);

		/* FUTEX_WAKE_OP writes to user memory with page faults off. */
		syscall(SYS_futex, word, FUTEX_WAKE_OP_PRIVATE, 1, 1L, word + 1,
			FUTEX_OP(FUTEX_OP_ADD, 5, FUTEX_OP_CMP_EQ, 0));
		syscall(SYS_futex, word + 2, FUTEX_LOCK_PI_PRIVATE, 0, NULL, NULL, 0);
		_exit(n == 0 && before == 0 ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	bool early = atomic_load(&f.woken);
	*word = 1;
	for (int turn = 0; turn < 1000 && !atomic_load(&f.woken); turn++) {
		syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 10, NULL, NULL, 0);
		usleep(1000);
	}
	bool woken = atomic_load(&f.woken);

	if (!woken)
		return -ETIME;
	pthread_join(t, NULL);
	return status ? -ECHILD : early ? -EINTR : 0;
}

static void futex_case(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);

	(void)k;
	for (int i = 0; i < 3; i++) {
		if (i)
			m_fork(w, i - 1);
		long r = on(w, i, do_futex, T2 + 77);

		must(r == 0, "futexes of actor %d: %s", i,
		     r == -EINTR    ? "the child woke the parent's thread"
		     : r == -ETIME  ? "the parent's wake does not arrive"
		     : r == -ECHILD ? "the child's wake found a waiter"
				    : strerror((int)-r));
		m_write(w, i, T2 + 77, 1);
		verify(w);
	}
	verify_deep(w);
	world_end(w);
}

/* The kernel writes thread ids: of a new child into the child's memory only, zero when a thread
 * ends, and the mark of a dead owner into a robust futex. */
static int thread_of_clone(void *argument)
{
	struct robust_list_head *head = argument;

	syscall(SYS_set_robust_list, head, sizeof(*head));
	*(uint32_t *)((char *)head + 64 + 16) =
		(uint32_t)syscall(SYS_gettid); /* takes the lock and dies with it */
	return 0;
}

static long do_kernel_writes(struct world *w, int self, const long *a)
{
	char *page = at(w, a[0]);
	int *tid = (int *)page;
	struct robust_list_head *head = (struct robust_list_head *)(page + 1024);
	int status;

	(void)self;
	memset(page, 0, PAGE);
	*tid = 4711;
	pid_t pid = (pid_t)syscall(SYS_clone, CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD,
				   0, 0, tid, 0);

	if (pid == 0)
		_exit(*tid == getpid() ? 0 : 1);
	waitpid(pid, &status, 0);
	if (status || *tid != 4711)
		return -EILSEQ;
	/* A robust list of one entry, 64 bytes behind the head. */
	head->list.next = (struct robust_list *)((char *)head + 64);
	*(void **)((char *)head + 64) = &head->list;
	head->list_op_pending = NULL;
	head->futex_offset = 16;	/* the lock word lies behind the entry */
	uint32_t *lock = (uint32_t *)((char *)head + 64 + 16);

	*lock = 0;
	pid = (pid_t)clone(thread_of_clone, at(w, a[0] + 9),
			   CLONE_VM | SIGCHLD | CLONE_CHILD_CLEARTID, head, NULL, NULL, tid);
	waitpid(pid, &status, 0);
	if (status || *tid)
		return -EIO;
	return *lock & FUTEX_OWNER_DIED ? 0 : -EOWNERDEAD;
}

static void kernel_writes(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);

	(void)k;
	for (int i = 0; i < 3; i++) {
		if (i)
			m_fork(w, i - 1);
		long r = on(w, i, do_kernel_writes, T2 + 30);

		must(r == 0, "thread ids in memory of actor %d: %s", i, strerror((int)-r));
		m_write(w, i, T2 + 30, 10);
		verify(w);
	}
	verify_deep(w);
	world_end(w);
}

void cases_life(void)
{
	add("life/exec-parent", exec_one, 0, 0, 0, 0);
	add("life/exec-child", exec_one, 0, 1, 0, 0);
	add("life/vfork", vfork_case, 0, 0, 0, 0);
	add("life/posix_spawn", spawn_case, 0, 0, 0, 0);
	add("life/signal-stack", signal_stack, 0, 0, 0, 0);
	add("life/thread-stack", thread_stack, 0, 0, 0, 0);
	add("life/futex", futex_case, 0, 0, 0, 0);
	add("life/kernel-writes", kernel_writes, 0, 0, 0, 0);
}
