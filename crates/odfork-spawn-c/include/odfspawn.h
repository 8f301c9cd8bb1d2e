/* odfspawn.h - starts programs and talks to them, at a price that does not depend on the memory of
 * who starts them.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Link with -lodfspawn (pkg-config odfspawn). It needs nothing of libodfork and goes with it; of
 * the two static libraries a program takes one, the other shared (each has a Rust runtime of its
 * own).
 *
 *     struct odf_spawn_options options = { sizeof options };   // the rest zero: as posix_spawn
 *     options.flags = ODF_SPAWN_SEARCH_PATH | ODF_SPAWN_CLOSE_OTHERS;
 *     options.out.kind = ODF_STDIO_PIPE;
 *     if (odf_spawn(&process, "worker", argv, NULL, &options, &error) != 0)
 *         fputs(error.text, stderr);
 *     ...                                                      // read from process.out
 *     int status = odf_pclose(&process);
 *
 * The functions may be called from any thread, and in the child of a fork() of a process with
 * threads where malloc() may (glibc), but not in a signal handler. They are no cancellation points.
 * When memory for their own few kilobytes cannot be had, the process is ended, as by Rust's
 * allocator.
 */

#ifndef ODFSPAWN_H
#define ODFSPAWN_H

/* Generated from crates/odfork-spawn-c/src by `make header`; changes here are lost. */

#include <stddef.h>
#include <stdint.h>
#include <sys/select.h>
#include <sys/types.h>

// Reading what was asked for: strings with zero bytes, a descriptor named twice.
#define ODF_STEP_REQUEST 1

// Opening `/dev/null` or making a pipe.
#define ODF_STEP_PIPE 2

// Memory for the child's stack.
#define ODF_STEP_STACK 3

// Making the process (`clone3`, `clone`).
#define ODF_STEP_CLONE 4

// Signal handlers and default signals.
#define ODF_STEP_SIGNALS 5

// Joining the cgroup.
#define ODF_STEP_CGROUP 6

// A session of its own (`setsid`).
#define ODF_STEP_SESSION 7

// The process group (`setpgid`).
#define ODF_STEP_PROCESS_GROUP 8

// Putting descriptors in their places.
#define ODF_STEP_DESCRIPTORS 9

// The controlling terminal, or its foreground group.
#define ODF_STEP_TERMINAL 10

// Closing all other descriptors.
#define ODF_STEP_CLOSE_OTHERS 11

// Resource limits.
#define ODF_STEP_LIMITS 12

// Supplementary groups.
#define ODF_STEP_GROUPS 13

// The group.
#define ODF_STEP_GID 14

// The user.
#define ODF_STEP_UID 15

// `no_new_privs`.
#define ODF_STEP_NO_NEW_PRIVILEGES 16

// The working directory.
#define ODF_STEP_DIRECTORY 17

// The signal at the parent's death.
#define ODF_STEP_PARENT_DEATH 18

// The signal mask.
#define ODF_STEP_SIGNAL_MASK 19

// Executing the program.
#define ODF_STEP_EXEC 20

// The program is there, but not the interpreter it names (`#!` line or ELF).
#define ODF_STEP_INTERPRETER 21

// `file` without a slash is searched in the caller's PATH, as posix_spawnp does; without it, it is
// a file of the working directory, as posix_spawn has it.
#define ODF_SPAWN_SEARCH_PATH (1 << 0)

// Closes everything but 0, 1, 2 and what `fds` gives, marked close-on-exec or not.
#define ODF_SPAWN_CLOSE_OTHERS (1 << 1)

// A session of its own, without a terminal (setsid).
#define ODF_SPAWN_SESSION (1 << 2)

// `process_group` counts; 0 there: a group of its own.
#define ODF_SPAWN_PROCESS_GROUP (1 << 3)

// `controlling_terminal` counts; goes with ODF_SPAWN_SESSION.
#define ODF_SPAWN_CONTROLLING_TERMINAL (1 << 4)

// `foreground` counts.
#define ODF_SPAWN_FOREGROUND (1 << 5)

// `umask` counts.
#define ODF_SPAWN_UMASK (1 << 6)

// `uid` counts (real, effective and saved). Root that names a user and no groups gives up all
// supplementary groups.
#define ODF_SPAWN_UID (1 << 7)

// `gid` counts (real, effective and saved).
#define ODF_SPAWN_GID (1 << 8)

// `groups` and `group_count` count; 0 groups: none.
#define ODF_SPAWN_GROUPS (1 << 9)

// No program executed from now on gains rights by its file (setuid, capabilities).
#define ODF_SPAWN_NO_NEW_PRIVILEGES (1 << 10)

// Fill `pidfd` of struct odf_process: a close-on-exec descriptor, readable once the program has
// ended.
#define ODF_SPAWN_PIDFD (1 << 11)

// Kinds of struct odf_stdio. The parent's own.
#define ODF_STDIO_INHERIT 0

// /dev/null.
#define ODF_STDIO_NULL 1

// A pipe; the parent's end is in struct odf_process.
#define ODF_STDIO_PIPE 2

// The parent's descriptor `fd`; it stays open in the parent.
#define ODF_STDIO_FD 3

// Most entries of `fds`, of `groups` (the kernel's own limit) and of `limits`.
#define ODF_SPAWN_MAX_FDS 1024

#define ODF_SPAWN_MAX_GROUPS 65536

#define ODF_SPAWN_MAX_LIMITS 64

// Size of `text` of struct odf_spawn_error, the closing zero byte included.
#define ODF_SPAWN_TEXT 512

// A started program. The descriptors are the parent's ends of pipes, close-on-exec, -1 where there
// is none; who closes one himself sets it to -1.
struct odf_process {
    // 0: none, or waited for already by odf_pclose() or odf_communicate().
    pid_t pid;
    // With ODF_SPAWN_PIDFD, where the kernel has them.
    int pidfd;
    // To write to the program's standard input.
    int in;
    // To read its standard output.
    int out;
    // To read its standard error.
    int err;
};

// Where a standard descriptor of the program comes from. All zero: inherited.
struct odf_stdio {
    // ODF_STDIO_INHERIT, ODF_STDIO_NULL, ODF_STDIO_PIPE or ODF_STDIO_FD.
    int kind;
    // With ODF_STDIO_FD only, otherwise 0.
    int fd;
};

// The parent's descriptor `from` is the program's descriptor `to`. Any numbers may be exchanged.
struct odf_fd {
    int from;
    int to;
};

// A resource limit (RLIMIT_CORE and others of <sys/resource.h>, in their units; UINT64_MAX: none).
struct odf_limit {
    int resource;
    uint64_t soft;
    uint64_t hard;
};

// How the program shall differ from its parent. All zero but `size`: in nothing, as with
// posix_spawn without attributes (signal mask and ignored signals are inherited too; handlers
// become defaults).
//
//     struct odf_spawn_options options = { sizeof options };   // the rest is zero
//
// A member that needs a flag and is not zero without it is refused with EINVAL.
struct odf_spawn_options {
    // sizeof(struct odf_spawn_options). A library older than the program accepts a larger
    // structure if what it does not know is zero.
    size_t size;
    // ODF_SPAWN_ flags.
    uint64_t flags;
    // Working directory, entered with the program's user and group; NULL: the parent's. A relative
    // `file` counts from there.
    const char *directory;
    // Standard input, output and error.
    struct odf_stdio in;
    struct odf_stdio out;
    struct odf_stdio err;
    // More descriptors for the program, each number named once, 0 to 2 in place of the members
    // above.
    const struct odf_fd *fds;
    size_t fd_count;
    // Signals blocked in the program; NULL: those of the calling thread.
    const sigset_t *signal_mask;
    // Signals that have their default in the program although they are ignored here; NULL: none.
    const sigset_t *default_signals;
    // With ODF_SPAWN_PROCESS_GROUP.
    pid_t process_group;
    // The program's descriptor, with ODF_SPAWN_CONTROLLING_TERMINAL.
    int controlling_terminal;
    // The program's descriptor of the terminal whose foreground group its group becomes, with
    // ODF_SPAWN_FOREGROUND.
    int foreground;
    // File mode creation mask, with ODF_SPAWN_UMASK.
    mode_t umask;
    // With ODF_SPAWN_UID.
    uid_t uid;
    // With ODF_SPAWN_GID.
    gid_t gid;
    // With ODF_SPAWN_GROUPS.
    const gid_t *groups;
    size_t group_count;
    // Resource limits, set before user and group change.
    const struct odf_limit *limits;
    size_t limit_count;
    // Directory of the cgroup to be born in; NULL: the parent's.
    const char *cgroup;
    // A signal the program gets when the thread that started it ends; 0: none.
    int parent_death_signal;
    // Zero.
    int reserved;
};

// Why a program was not started.
struct odf_spawn_error {
    // The step that failed, 1 to 21 (ODF_STEP_); 0: none.
    int step;
    // What odf_spawn() returned.
    int errnum;
    // The signal that killed the child before it became the program (SIGSYS: a system-call
    // filter); else 0.
    int signal;
    // odf_step_name(step), a constant string.
    const char *step_name;
    // What happened, what was needed, how to fix it. Always ends with a zero byte, cut if it is
    // too long.
    char text[ODF_SPAWN_TEXT];
};

// What a program wrote: malloc'd, for the caller to free(); one zero byte behind `out_size` and
// `err_size` bytes. NULL where the program had no pipe.
struct odf_output {
    char *out;
    size_t out_size;
    char *err;
    size_t err_size;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The name of a step (`exec`, `descriptors`), `none` for 0, `unknown` for any other number. A
// constant string, never freed.
const char *odf_step_name(int step);

// Starts the program `file` with `argv` and `envp`, both as given (argv[0] too; entries of envp
// need no `=`), each ended by NULL. envp NULL: the caller's environ. options NULL: none, as
// posix_spawn without attributes. At the price of vfork: what the caller's memory holds is not
// copied, whatever its size.
//
// Returns 0 once the program is executed, and fills `process`; else an errno, and nothing is left
// of the child. Errors come from the step that failed; EINVAL also for wishes that make no sense,
// ECHILD when the child was killed before it became the program. `error` may be NULL; it is filled
// in any case. errno is not touched.
//
// Any thread may call it, and so may the child of a fork() of a program with threads. It is no
// cancellation point (a pending request acts at the next one) and not to be called with
// asynchronous cancellation. Signals that arrive meanwhile wait until the program is executed.
// Nobody may change the strings or environ meanwhile.
//
// # Safety
// All pointers are NULL where that is allowed, or point to what is said here.
int odf_spawn(struct odf_process *process,
              const char *file,
              char *const *argv,
              char *const *envp,
              const struct odf_spawn_options *options,
              struct odf_spawn_error *error);

// Starts `/bin/sh -c -- command` with a pipe on standard input and one on standard output:
// popen(3) in both directions, with descriptors in place of a FILE. Ignored signals and the signal
// mask are inherited, as there. 0, or -1 with errno (EINVAL: a pointer is NULL).
//
// A program that reads and writes much at once may wait for its output to be read while the caller
// waits for its input to be taken: see odf_communicate(). To say that there is no more input,
// close(process->in) and set it to -1. Threads, cancellation, forked children: as for odf_spawn().
//
// # Safety
// `command` is a string, `process` writable.
int odf_popen2(const char *command, struct odf_process *process);

// As odf_popen2(), with a pipe on standard error too.
//
// # Safety
// As for odf_popen2().
int odf_popen3(const char *command, struct odf_process *process);

// Closes the ends of the pipes and the pidfd, waits for the program, and returns its wait status
// (see waitpid(2)).
// -1 with errno: EINVAL for NULL, ECHILD when there is nothing to wait for: closed before, never
// started, or taken by another wait. Afterwards `process` is empty, so that a second call closes
// nothing. For programs of odf_spawn() too.
//
// Waits as long as the program runs, whatever signals arrive; no cancellation point. Two threads
// must not close one process at the same time.
//
// # Safety
// `process` is NULL or a process filled by this library, or all zero.
int odf_pclose(struct odf_process *process);

// Writes `size` bytes of `input` to the program and closes its input, while reading what it writes
// to standard output and error to their ends, all at once, so that no full pipe can block either
// side. Then as odf_pclose(): waits, returns the wait status and leaves `process` empty. If the
// program stops reading, the rest of the input is dropped, and SIGPIPE is not raised. Pipes the
// process does not have are left out.
//
// -1 with errno: EINVAL for NULL (`input` may be NULL if `size` is 0), ECHILD when there is
// nothing to wait for, ENOMEM when the output does not fit in memory, or what poll(2) and read(2)
// say. `output` is empty then, the pipes are closed, and if `process` still has its pid, the
// program has to be ended and waited for by odf_pclose().
//
// # Safety
// `process` as for odf_pclose(), `input` points to `size` readable bytes, `output` is writable.
int odf_communicate(struct odf_process *process,
                    const void *input,
                    size_t size,
                    struct odf_output *output);

// system(3): runs `/bin/sh -c -- command` and waits for it. While it waits, the process ignores
// SIGINT and SIGQUIT and the thread blocks SIGCHLD; the command has the dispositions and the mask
// of before. Several threads may be here at once.
//
// Returns the wait status (see waitpid(2)); that of exit(127) when the shell cannot be executed.
// -1 with errno when no child could be made (EAGAIN, ENOMEM) or it cannot be waited for (ECHILD:
// SIGCHLD is ignored). command NULL: 1 if there is a shell, else 0. Unlike system(3) it is no
// cancellation point. Forked children: as for odf_spawn(); a child that another thread forks
// meanwhile inherits the ignored signals.
//
// # Safety
// `command` is NULL or a string.
int odf_system(const char *command);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ODFSPAWN_H */
