/* odfimage.h - memory saved to files, and opened by another run without reading them in.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Link with -lodfimage (pkg-config odfimage).
 *
 *     size_t size;
 *     struct index *index = odfork_image_map("index.img", "index", 0, &size, NULL);
 *     if (!index) {                                            // the first run
 *         index = odfork_image_reserve(size = 1 << 30);
 *         build(index, size);
 *         struct odfork_image_region region = { "index", index, size, 0 };
 *         odfork_image_save("index.img", &region, 1, NULL, NULL);
 *     }
 *
 * The functions may be called from any thread, but not in a signal handler, nor in the child of a
 * fork() of a process with threads. When memory for their own bookkeeping cannot be had, the
 * process is ended, as by Rust's allocator.
 */

#ifndef ODFIMAGE_H
#define ODFIMAGE_H

/* Generated from crates/odfork-image-c/src by `make header`; changes here are lost. */

#include <stddef.h>
#include <stdint.h>

// Size of `text` of struct odfork_image_error, the closing zero byte included.
#define ODFORK_IMAGE_TEXT 512

// Flags of odfork_image_map(). Map it anywhere: for memory without pointers into itself.
#define ODFORK_IMAGE_ANYWHERE (1 << 0)

// Every page is checked before it is seen; anonymous memory, served by a thread (userfaultfd).
#define ODFORK_IMAGE_CHECKED (1 << 1)

// Everything is read and checked before the call returns.
#define ODFORK_IMAGE_READ_IN (1 << 2)

// Read single pages only: for few touches far apart.
#define ODFORK_IMAGE_READ_PAGE (1 << 3)

// Begin to read everything in the background.
#define ODFORK_IMAGE_READ_ALL (1 << 4)

// Where userfaultfd is forbidden, take one that fails system calls on memory that has not come yet
// (EFAULT), in place of reading everything in.
#define ODFORK_IMAGE_USER_FAULTS (1 << 5)

// Values of `compress`.
#define ODFORK_IMAGE_PLAIN 0

#define ODFORK_IMAGE_LZ4 1

#define ODFORK_IMAGE_ZSTD 2

// Memory to be saved: whole pages.
struct odfork_image_region {
    // NULL: none.
    const char *name;
    void *address;
    size_t size;
    // PROT_READ and others, for when it is mapped again; 0: read and write.
    int protection;
};

// How an image is written. All zero but `size`: uncompressed, whole, and on the disk when the call
// returns.
struct odfork_image_options {
    // sizeof (struct odfork_image_options).
    size_t size;
    int compress;
    // Pages compressed and read together: 1, 2, 4 ... 64; 0: 16.
    unsigned int cluster_pages;
    // Save only what differs from this image; NULL: everything.
    const char *base;
    // Other than 0: pages of equal checksum count as equal without being compared.
    int trust_checksums;
    // Other than 0: do not wait for the disk.
    int no_sync;
};

// What went wrong.
struct odfork_image_error {
    // What the function returned; 0: nothing.
    int errnum;
    // What happened, what was needed, how to fix it; after odfork_image_map() that went well, why
    // it is not in the best form, if so. Always ends with a zero byte, cut if it is too long.
    char text[ODFORK_IMAGE_TEXT];
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Saves `count` regions of the calling process to the file `path`, readable by its owner alone; an
// older file of this name is replaced once the new one is whole. options NULL: the defaults.
// Returns 0, or an errno and fills `error` (may be NULL). errno itself is not kept.
//
// Nobody should write to the regions meanwhile: what is saved of a page that changes is the page
// before, after or in between. A forked child may save while its parent goes on. No function here
// is a cancellation point.
//
// # Safety
// The pointers point to what is said here.
int odfork_image_save(const char *path,
                      const struct odfork_image_region *regions,
                      size_t count,
                      const struct odfork_image_options *options,
                      struct odfork_image_error *error);

// Puts the regions named `name` (NULL: all) of the image `path` into memory, at the addresses
// where they were saved, and returns where the first one begins, and its size; NULL on failure.
// path NULL: the file that `odfork image load` named (the variable ODFORK_IMAGE_FILE; never in a
// program with more rights than its caller, set-user-ID for example). Pages are
// read when they are touched; pages that are written to become the process's own. flags: 0, or
// ODFORK_IMAGE_ANYWHERE and others, added. size and error may be NULL.
//
// An uncompressed image is mapped (MAP_PRIVATE of the file). With ODFORK_IMAGE_CHECKED, and for
// compressed images, a thread reads, checks and unpacks pages; a page that is damaged is a SIGBUS.
// Where that is forbidden (userfaultfd) everything is read in before the call returns, and
// `error->text` says so. fork() in a process with such memory first brings in what is missing.
//
// # Safety
// The pointers point to what is said here.
void *odfork_image_map(const char *path,
                       const char *name,
                       int flags,
                       size_t *size,
                       struct odfork_image_error *error);

// Gives back all that one call of odfork_image_map() has mapped; `address` is what it returned. 0,
// or EINVAL.
int odfork_image_unmap(void *address);

// Brings in everything that has not come yet. 0, or EINVAL.
int odfork_image_populate(void *address);

// Memory of `size` bytes (rounded up to whole pages) to build in: at an address that will be free
// in another run. A program that reserves the same sizes in the same order finds the same
// addresses. NULL: none is to be had. It is the caller's, to be given back by munmap().
void *odfork_image_reserve(size_t size);

// Writes what differs between two images as a delta; `base` of the options is not used. Returns as
// odfork_image_save().
//
// # Safety
// The pointers point to what is said here.
int odfork_image_delta(const char *base,
                       const char *newer,
                       const char *path,
                       const struct odfork_image_options *options,
                       struct odfork_image_error *error);

// Writes a delta and the images below it as one whole image. Returns as odfork_image_save().
//
// # Safety
// The pointers point to what is said here.
int odfork_image_apply(const char *delta,
                       const char *path,
                       const struct odfork_image_options *options,
                       struct odfork_image_error *error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ODFIMAGE_H */
