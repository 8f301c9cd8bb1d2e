/* read(2) from a FUSE file that goes past the page cache: the kernel writes straight into the
 * program's pages when the server answers, here only once other memory has pushed them out. Nothing
 * asks for O_DIRECT. "none": FUSE is not to be had. */
#include "pages.h"
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <sys/mount.h>

#define BYTES (64ul * PAGE)
#define PRESSURE (40ul << 8)

static int device, told[2];

static void answer(uint64_t question, int error, const void *data, size_t length)
{
    static char bytes[sizeof(struct fuse_out_header) + BYTES];
    struct fuse_out_header head = {
        .len = sizeof head + length, .error = -error, .unique = question};
    memcpy(bytes, &head, sizeof head);
    memcpy(bytes + sizeof head, data, length);
    if (write(device, bytes, head.len) < 0 && errno != ENOENT)
        _exit(1);
}

static struct fuse_attr attributes(uint64_t node)
{
    struct fuse_attr about = {.ino = node, .nlink = 1, .blksize = PAGE, .mode = S_IFDIR | 0755};
    if (node == 2)
        about.mode = S_IFREG | 0644, about.size = BYTES;
    return about;
}

/* The answer to a read waits until the other memory has been walked. */
static void answer_read(uint64_t question, const struct fuse_read_in *wish)
{
    static uint64_t content[BYTES / 8];
    char byte;
    if (wish->offset >= BYTES)
        return answer(question, 0, content, 0);
    if (wish->offset == 0 && read(told[0], &byte, 1) != 1)
        _exit(1);
    for (size_t page = 0; page < BYTES / PAGE; page++)
        fill_page(content + page * WORDS, page, 7);
    size_t most = BYTES - wish->offset;
    answer(question, 0, (char *)content + wish->offset, wish->size < most ? wish->size : most);
}

static void serve_one(const struct fuse_in_header *head, const void *body)
{
    struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 1 << 17};
    struct fuse_entry_out entry = {
        .nodeid = 2, .attr_valid = 100, .entry_valid = 100, .attr = attributes(2)};
    struct fuse_attr_out about = {.attr_valid = 100, .attr = attributes(head->nodeid)};
    struct fuse_open_out opened = {.fh = 1, .open_flags = FOPEN_DIRECT_IO};
    switch (head->opcode) {
    case FUSE_INIT: return answer(head->unique, 0, &init, sizeof init);
    case FUSE_LOOKUP: return answer(head->unique, 0, &entry, sizeof entry);
    case FUSE_GETATTR: return answer(head->unique, 0, &about, sizeof about);
    case FUSE_OPEN: return answer(head->unique, 0, &opened, sizeof opened);
    case FUSE_READ: return answer_read(head->unique, body);
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET: return;
    case FUSE_RELEASE:
    case FUSE_FLUSH: return answer(head->unique, 0, "", 0);
    default: answer(head->unique, ENOSYS, "", 0);
    }
}

static void serve(void)
{
    static union { struct fuse_in_header head; char bytes[1 << 18]; } question;
    for (;;) {
        ssize_t got = read(device, &question, sizeof question);
        if (got > 0)
            serve_one(&question.head, &question.head + 1);
        else if (errno != EINTR && errno != ENOENT)
            _exit(0);
    }
}

/* Twice over all of it, while the read waits; then the server may answer. */
static void *walk(void *memory)
{
    for (int round = 1; round <= 2; round++)
        for (size_t page = 0; page < PRESSURE; page++)
            fill_page((uint64_t *)memory + page * WORDS, page, round);
    if (write(told[1], "", 1) != 1)
        abort();
    return NULL;
}

static int read_all(const char *path, char *to)
{
    int file = open(path, O_RDONLY);
    size_t done = 0;
    while (file >= 0 && done < BYTES) {
        ssize_t got = read(file, to + done, BYTES - done);
        if (got <= 0)
            return perror("read"), 1;
        done += got;
    }
    return file < 0 ? perror("open"), 1 : close(file);
}

int main(void)
{
    char folder[] = "/tmp/odpager-direct-XXXXXX", path[64], options[80];
    /* Seen by nobody else: programs of other tests would be left to the kernel, too. */
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return puts("none ok"), 0;
    device = open("/dev/fuse", O_RDWR);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
    if (device < 0 || pipe(told) != 0 || !mkdtemp(folder) ||
        mount("test", folder, "fuse.test", 0, options) != 0)
        return puts("none ok"), 0;
    pid_t server = fork();
    if (server == 0)
        serve();
    /* With the last descriptor the connection ends, and whoever waits for an answer. */
    close(device);
    close(told[0]);
    uint64_t *memory = paged(BYTES), *other = paged(PRESSURE * PAGE);
    for (size_t page = 0; page < BYTES / PAGE; page++)
        fill_page(memory + page * WORDS, page, 1);
    pthread_t walker;
    pthread_create(&walker, NULL, walk, other);
    snprintf(path, sizeof path, "%s/file", folder);
    int failed = read_all(path, (char *)memory);
    pthread_join(walker, NULL);
    umount2(folder, MNT_DETACH);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    rmdir(folder);
    for (size_t page = 0; page < BYTES / PAGE; page++)
        check_page("read", memory + page * WORDS, page, 7);
    return failed ? failed : puts("ok") < 0;
}
