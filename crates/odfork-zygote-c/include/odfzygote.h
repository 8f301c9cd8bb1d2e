/* odfzygote.h - ready processes from a warm one: a client of odfork's zygotes.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Link with -lodfzygote (pkg-config odfzygote). A template is started by `odfork zygote start`.
 *
 *     const char *words[] = { "--daily", NULL };
 *     struct odfork_zygote_command command = { .size = sizeof command };
 *     command.script = "report.py";
 *     command.argv = words;
 *     struct odfork_zygote_child child;
 *     int status;
 *     if (odfork_zygote_spawn("reports", &command, &child) == 0) {
 *         odfork_zygote_wait(&child, -1, &status);             // as waitpid(2) gives it
 *         odfork_zygote_close(&child);
 *     }
 *
 * The functions may be called from any thread, but not in a signal handler.
 */

#ifndef ODFZYGOTE_H
#define ODFZYGOTE_H

/* Generated from crates/odfork-zygote-c/src by `make header`; changes here are lost. */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// Flags of struct odfork_zygote_command. The child outlives its handle and the template.
#define ODFORK_ZYGOTE_DETACHED (1 << 0)

// The child has a session of its own.
#define ODFORK_ZYGOTE_SESSION (1 << 1)

// `umask` counts.
#define ODFORK_ZYGOTE_UMASK (1 << 2)

// A descriptor for the child: `ours` here, `theirs` there.
struct odfork_zygote_descriptor {
    int ours;
    int theirs;
};

// What a child runs, where and with what. Zero or NULL: the template's.
struct odfork_zygote_command {
    // sizeof (struct odfork_zygote_command).
    size_t size;
    // One of these three: `python SCRIPT`, `python -m MODULE`, `python -c SOURCE`.
    const char *script;
    const char *module;
    const char *source;
    // The program's arguments, without its name; a NULL ends them.
    const char *const *argv;
    // The whole environment; a NULL ends it.
    const char *const *envp;
    const char *directory;
    const struct odfork_zygote_descriptor *descriptors;
    size_t descriptor_count;
    unsigned int flags;
    unsigned int umask;
    // Milliseconds until the child is killed.
    uint64_t deadline_ms;
};

// A child. `pidfd` is readable when it has ended; pidfd_send_signal(2) signals it.
struct odfork_zygote_child {
    int pid;
    int pidfd;
    void *handle;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Starts a child in the template of this name. 0, or -1 with errno: ENOENT when no template
// listens there, EINVAL, EREMOTEIO when the template refused, or a system call's.
//
// # Safety
// `name` and the pointers in `command` are NULL or point to what they say, `child` to room.
int odfork_zygote_spawn(const char *name,
                        const struct odfork_zygote_command *command,
                        struct odfork_zygote_child *child);

// Waits at most `timeout_ms` for the child's end, -1: for ever. 1 with its status as waitpid(2)
// gives it, 0 while it runs, -1 with errno. It is no cancellation point. When the template has
// died, it waits until the child has ended, whatever the timeout; the status is SIGKILL's then.
//
// # Safety
// `child` was filled by odfork_zygote_spawn and not closed; `status` is NULL or points to room.
int odfork_zygote_wait(struct odfork_zygote_child *child, int timeout_ms, int *status);

// Frees the handle. The template kills a child that still runs, unless it is detached.
//
// # Safety
// `child` is NULL or was filled by odfork_zygote_spawn.
void odfork_zygote_close(struct odfork_zygote_child *child);

// What went wrong in the last call of this thread that failed: what happened, and how to fix it.
// Valid until the thread's next failure.
const char *odfork_zygote_error(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ODFZYGOTE_H */
