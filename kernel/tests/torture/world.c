// SPDX-License-Identifier: GPL-2.0-only
// Worlds and actors. An actor is a process that executes functions of this program on request
// (rpc). Actors fork one another with CLONE_PARENT, so that the case process is the parent of all
// and sees each one die.
#include "torture.h"
#include <poll.h>
#include <sched.h>

struct command { actor_fn fn; long a[7]; };

static _Noreturn void serve(struct world *w, int self)
{
	for (;;) {
		struct command c;
		ssize_t n = read(w->a[self].command[0], &c, sizeof(c));

		if (n < 0 && errno == EINTR)
			continue;
		if (n != (ssize_t)sizeof(c))
			_exit(98);
		long r = c.fn(w, self, c.a);

		if (write(w->a[self].answer[1], &r, sizeof(r)) != sizeof(r))
			_exit(98);
	}
}

static void dead(struct world *w, int actor)
{
	int status = 0;

	waitpid(w->a[actor].pid, &status, __WALL);
	w->a[actor].live = false;
	if (WIFEXITED(status) && WEXITSTATUS(status) == VERDICT_GIVEN)
		_exit(VERDICT_GIVEN);
	fail("actor %d died: wait status 0x%x%s, expected it to live", actor, status,
	     WIFSIGNALED(status) ? " (by a signal)" : "");
}

void rpc_send(struct world *w, int actor, actor_fn fn, const long a[7])
{
	struct command c = { .fn = fn };

	memcpy(c.a, a, sizeof(c.a));
	if (write(w->a[actor].command[1], &c, sizeof(c)) != sizeof(c))
		fail("command to actor %d: %s", actor, strerror(errno));
}

long rpc_answer(struct world *w, int actor)
{
	struct actor *x = &w->a[actor];
	long r;

	for (;;) {
		struct pollfd p[2] = {{.fd = x->answer[0], .events = POLLIN},
				      {.fd = x->pidfd, .events = POLLIN}};

		if (poll(p, 2, -1) < 0) {
			must(errno == EINTR, "poll: %s", strerror(errno));
			continue;
		}
		if (p[0].revents & POLLIN) {
			must(read(x->answer[0], &r, sizeof(r)) == sizeof(r), "short answer of actor %d", actor);
			return r;
		}
		if (p[1].revents)
			dead(w, actor);
	}
}

long rpc(struct world *w, int actor, actor_fn fn, const long a[7])
{
	must(w->a[actor].live, "the test itself is wrong: actor %d is dead", actor);
	rpc_send(w, actor, fn, a);
	return rpc_answer(w, actor);
}

long do_syscall(struct world *w, int self, const long *a)
{
	(void)w, (void)self;
	long r = syscall(a[0], a[1], a[2], a[3], a[4], a[5], a[6]);

	return r < 0 ? -errno : r;
}

static void prepare_actor(struct world *w, int i)
{
	struct actor *x = &w->a[i];

	must(i < MAX_ACTORS, "the test itself is wrong: more than %d actors", MAX_ACTORS);
	must(pipe2(x->command, O_CLOEXEC) == 0 && pipe2(x->answer, O_CLOEXEC) == 0, "pipe: %s",
	     strerror(errno));
}

static void adopt(struct world *w, int i, pid_t pid)
{
	w->a[i].pid = pid;
	w->a[i].pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	must(w->a[i].pidfd >= 0, "pidfd_open: %s", strerror(errno));
	w->a[i].live = true;
}

/* a[0]: number of the new actor. The child serves it for ever. */
static long do_fork(struct world *w, int self, const long *a)
{
	(void)self;
	long pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);

	if (pid == 0)
		serve(w, (int)a[0]);
	return pid < 0 ? -errno : pid;
}

static void fork_model(struct world *w, int from, int to)
{
	for (long p = 0; p < ARENA_PAGES; p++) {
		struct page_model m = w->a[from].page[p];

		if (m.flags & F_WIPE)
			m.key = 0, m.flags &= ~F_MAYZERO;
		if (m.flags & F_DONTFORK)
			m = (struct page_model){ .prot = P_UNMAPPED, .flags = F_EVER };
		w->a[to].page[p] = m;
	}
}

/*
 * The pipes of all actors are made before the first one starts, because a child must have the ends
 * of its own. The case process may make two actors at once (threads), hence the lock-free number.
 */
int m_fork(struct world *w, int actor)
{
	int child = __atomic_fetch_add(&w->actors, 1, __ATOMIC_SEQ_CST);

	must(child < MAX_ACTORS, "the test itself is wrong: more than %d actors", MAX_ACTORS);
	fork_model(w, actor, child);
	long pid = on(w, actor, do_fork, child);

	must(pid > 0, "fork by actor %d: %s, expected success", actor, strerror((int)-pid));
	adopt(w, child, (pid_t)pid);
	return child;
}

static long do_exit(struct world *w, int self, const long *a)
{
	(void)w, (void)self;
	_exit((int)a[0]);
}

int actor_end(struct world *w, int actor)
{
	struct actor *x = &w->a[actor];
	int status = 0;

	rpc_send(w, actor, do_exit, (const long[7]){ 0 });
	while (waitpid(x->pid, &status, __WALL) < 0 && errno == EINTR)
		;
	x->live = false;
	close(x->pidfd);
	must(status == 0, "actor %d exited with wait status 0x%x, expected 0", actor, status);
	return status;
}

void actor_kill(struct world *w, int actor)
{
	struct actor *x = &w->a[actor];

	kill(x->pid, SIGKILL);
	while (waitpid(x->pid, NULL, __WALL) < 0 && errno == EINTR)
		;
	x->live = false;
	close(x->pidfd);
}

#define ARENA_AT ((char *)0x1000000000UL)	/* far from the program, its heap and where mmap begins */
#define SCRATCH (1UL << 20)

struct world *world_new(void)
{
	struct world *w = shared_memory(sizeof(*w));

	w->base = ARENA_AT;
	w->next_key = case_seed;
	w->scratch = shared_memory(SCRATCH);
	w->share_before = vmstat("cowpt_share");
	for (int i = 0; i < MAX_ACTORS; i++)
		prepare_actor(w, i);
	pid_t pid = fork();

	must(pid >= 0, "fork: %s", strerror(errno));
	if (pid == 0) {
		catch_faults();
		serve(w, 0);
	}
	w->actors = 1;
	adopt(w, 0, pid);
	return w;
}

void world_end(struct world *w)
{
	for (int i = 0; i < w->actors; i++)
		if (w->a[i].live)
			actor_end(w, i);
	for (int i = 0; i < MAX_ACTORS; i++)
		for (int k = 0; k < 2; k++)
			close(w->a[i].command[k]), close(w->a[i].answer[k]);
	munmap(w->scratch, SCRATCH);
	munmap(w, sizeof(*w));
}
