/* odfork.h - fork() of a process of any size in microseconds.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Link with -lodfork (pkg-config odfork), or leave the program as it is and preload libodfork.so.
 * Linked or preloaded, every fork() of the program is wrapped; the functions below are for those
 * who want to say when to freeze, or to ask what happened. Environment variables (ODFORK_FREEZE and
 * others) count in both cases.
 *
 *     load_everything();
 *     odfork_freeze();              // once: about the time of copying the memory in use
 *     for (;;) {
 *         pid_t pid = fork();       // from now on: microseconds
 *         ...
 *     }
 *
 * The functions may be called from any thread, except that none but odfork_fork() may be called in
 * a signal handler, or in the child of a multi-threaded process before it executes another program.
 */

#ifndef ODFORK_H
#define ODFORK_H

/* Generated from src/api.rs by `make header`; changes here are lost. */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// Statistics of the calling process. Times in nanoseconds, sizes in bytes.
struct odfork_stats {
    // Engine in use: 0 plain, 1 backing file of 4 KB pages, 2 backing file of huge pages.
    uint32_t engine;
    // Why the latest pass was not made (index into the words of `odfork_reason`), 0 for none.
    uint32_t reason;
    // Freezes: how often, time, bytes.
    uint64_t freezes;
    uint64_t freeze_ns;
    uint64_t freeze_bytes;
    // Refreezes: written back in place, rebuilt in a new backing file, time, bytes.
    uint64_t folds_in_place;
    uint64_t folds_rebuilt;
    uint64_t fold_ns;
    uint64_t fold_bytes;
    // Thaws: how often, bytes.
    uint64_t thaws;
    uint64_t thaw_bytes;
    // Forks: successful, failed, latency (median and 99th percentile are upper ends of
    // histogram buckets).
    uint64_t forks;
    uint64_t forks_failed;
    uint64_t fork_min_ns;
    uint64_t fork_p50_ns;
    uint64_t fork_p99_ns;
    uint64_t fork_max_ns;
    // Dirty pages (4 KB) at the latest scan.
    uint64_t dirty_pages;
    // Bytes written into backing files that are in use.
    uint64_t image_bytes;
    // Bytes of address space that show backing files.
    uint64_t frozen_bytes;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// fork(2) with the engine: the same returns, the same errno.
//
// # Safety
// As for fork(2): in the child of a multi-threaded process only async-signal-safe
// functions may be called.
int odfork_fork(void);

// Freezes the process's anonymous memory now, and refreezes what is dirty, whatever
// the rental rule says. 0, or -1 with errno (EAGAIN when the reason is no system
// call's; see odfork_reason()). After a failure memory is as it was or partly
// frozen; its content never changes.
int odfork_freeze(void);

// Writes dirty pages back now, and freezes what is new. As odfork_freeze().
int odfork_refreeze(void);

// Turns all frozen memory back into anonymous memory with the same content.
// 0, or -1 with errno.
int odfork_thaw(void);

// Fills `out` with the first `size` bytes of the statistics (pass
// sizeof(struct odfork_stats)). Returns the size this library knows, so that a
// newer caller can tell which fields were filled.
//
// # Safety
// `out` is NULL or points to `size` writable bytes.
size_t odfork_stats(struct odfork_stats *out, size_t size);

// Writes the statistics as one JSON object (schema 1) with a closing zero byte
// into `buf` of `len` bytes, cut if they do not fit. Returns the length needed
// without the zero byte.
//
// # Safety
// `buf` is NULL or points to `len` writable bytes.
size_t odfork_stats_json(char *buf, size_t len);

// One sentence: why memory is not frozen, and what to do; empty when nothing
// stood in the way. A constant string, never freed.
const char *odfork_reason(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ODFORK_H */
