/* The first process of the guest: fills memory, says that it is ready, and then treats an input as
 * system calls. The emulator is forked at that word, so each input meets the same guest.
 *
 * It talks to the host by bytes to a port: 'R' ready, then 16 hexadecimal digits and 'D' done. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define PORT 0xe9
#define PAGE 4096
#define WARMUPS 1000
/* Bytes of an input. */
#define LENGTH 32

/* The host finds it by its first 16 bytes, which are made at run time: no other page has them. */
struct input {
    uint64_t mark[2];
    uint32_t length;
    uint8_t bytes[PAGE - 20];
};
static struct input input __attribute__((aligned(PAGE)));

#define START 14695981039346656037u

static uint64_t digest = START;
static uint64_t *held;
static size_t words;
static int files[4] = {-1, -1, -1, -1};

static void fold(uint64_t value)
{
    for (int i = 0; i < 8; i++)
        digest = (digest ^ (value >> (8 * i) & 255)) * 1099511628211u;
}

static void *anonymous(size_t bytes)
{
    return mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void one_call(uint8_t what, uint8_t which, uint16_t number)
{
    char text[64] = {0}, name[16];
    int *file = &files[which % 4];
    snprintf(name, sizeof name, "/f%u", which % 8);
    switch (what % 12) {
    case 0: fold(*file >= 0 ? close(*file) : 1); *file = open(name, O_RDWR | O_CREAT, 0600); break;
    case 1: fold(pwrite(*file, &input.bytes[number % 512], 1 + number % 64, number)); break;
    case 2: fold(pread(*file, text, sizeof text, number)); break;
    case 3: fold(ftruncate(*file, number)); break;
    case 4: fold(unlink(name)); break;
    case 5: fold(mkdir(name, 0700)); break;
    case 6: fold(rmdir(name)); break;
    case 7: { struct stat s; fold(stat(name, &s)); fold(s.st_size); break; }
    case 8: {
        int pair[2];
        fold(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
        fold(write(pair[0], name, 4));
        fold(read(pair[1], text, sizeof text));
        close(pair[0]), close(pair[1]);
        break;
    }
    case 9: {
        uint8_t *block = anonymous(PAGE * 4);
        block[number % PAGE] = which;
        fold(munmap(block, PAGE * 4));
        break;
    }
    case 10: held[(size_t)number * 509 % words] ^= which + 1; break;
    case 11: fold(held[(size_t)number * 509 % words]); break;
    }
    for (size_t i = 0; i < sizeof text; i++)
        fold(text[i]);
}

/* An input: a call for each four bytes. */
static void treat(const uint8_t *bytes, uint32_t length)
{
    for (uint32_t at = 0; at + 4 <= length; at += 4) {
        const uint8_t *four = &bytes[at];
        one_call(four[0], four[1], four[2] | four[3] << 8);
    }
}

/* Puts back what calls left behind, so that each warm-up begins where inputs begin. */
static void forget(void)
{
    for (int i = 0; i < 4; i++) {
        close(files[i]);
        files[i] = -1;
    }
    for (int i = 0; i < 8; i++) {
        char name[16];
        snprintf(name, sizeof name, "/f%d", i);
        if (unlink(name))
            rmdir(name);
    }
}

static uint32_t warm(void)
{
    static uint32_t state = 1;
    return state = state * 1664525 + 1013904223;
}

int main(void)
{
    char line[2048] = {0};
    mkdir("/proc", 0755);
    mount("proc", "/proc", "proc", 0, 0);
    int file = open("/proc/cmdline", O_RDONLY);
    if (read(file, line, sizeof line - 1) <= 0)
        return 1;
    close(file);
    char *place = strstr(line, "held=");
    size_t bytes = place ? strtoull(place + 5, 0, 10) : 0;
    words = bytes / sizeof *held;
    held = anonymous(bytes);
    if (!words || held == MAP_FAILED || iopl(3))
        return 1;
    for (size_t i = 0; i < words; i++)
        held[i] = i * 2654435761u;
    /* The emulator has then translated what inputs run, and children need not do it anew. */
    for (int i = 0; i < WARMUPS; i++) {
        uint8_t bytes[LENGTH];
        for (int at = 0; at < LENGTH; at++)
            bytes[at] = warm() >> 24;
        treat(bytes, sizeof bytes);
        forget();
    }
    digest = START;
    input.mark[0] = bytes ^ 0x6f64666f726b2121u;
    input.mark[1] = ~input.mark[0];
    outb('R', PORT);
    treat(input.bytes, input.length);
    for (int i = 60; i >= 0; i -= 4)
        outb("0123456789abcdef"[digest >> i & 15], PORT);
    outb('D', PORT);
    return 0;
}
