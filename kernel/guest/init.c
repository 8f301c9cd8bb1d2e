// SPDX-License-Identifier: GPL-2.0-only
/*
 * The first process of a guest of the VM lab. It lies in the initial file system together with the
 * orders of the host (/session) and does, in this order:
 *
 *   1. lays a writable overlay in memory over the host's files, which come by 9p and are read-only
 *   2. mounts what a program expects (proc, sys, dev, cgroup, tracing), brings up lo and swap
 *   3. runs one command, hands its output to the host as it comes, and waits for it
 *   4. tells the host the exit status and switches the machine off
 *
 * Output goes through pipes of this process, not directly to a virtio port: a port can be opened
 * once only, and a program that opens /dev/stdout must not fail. Static, without a shell: a process
 * started over 9p costs 50 ms under emulation, and this needs none.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum port { PORT_OUT = 1, PORT_ERR = 2, PORT_CONTROL = 3 };

#define WORDS 4096
#define PORTS_MS 30000
/* After the command's end: how long output of processes it left behind is still collected. */
#define DRAIN_MS 300

static char *arguments[WORDS], *environment[WORDS];
static char settings[65536];
static int control = -1;

static void say(const char *format, ...)
{
	char line[512];
	va_list list;

	va_start(list, format);
	int length = vsnprintf(line, sizeof line, format, list);
	va_end(list);
	if (length >= (int)sizeof line)
		length = sizeof line - 1;
	int log = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
	if (log >= 0) {
		(void)!write(log, line, length);
		close(log);
	}
}

static long now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/*
 * Ports are announced by the host in messages of their own and may come after this process; the
 * first number in their name is that of the device among all virtio devices.
 */
static int open_port(enum port number)
{
	for (long end = now_ms() + PORTS_MS; now_ms() < end; usleep(5000)) {
		for (int device = 0; device < 16; device++) {
			char path[32];
			snprintf(path, sizeof path, "/dev/vport%dp%d", device, number);
			int port = open(path, O_WRONLY | O_CLOEXEC);
			if (port >= 0)
				return port;
		}
	}
	return -1;
}

static void switch_off(void)
{
	sync();
	reboot(RB_POWER_OFF);
	for (;;)
		pause();
}

/* The host reads: "failed WHY" instead of a status. */
static void give_up(const char *what)
{
	say("odfork guest: %s: %s", what, strerror(errno));
	if (control >= 0)
		dprintf(control, "failed %s: %s\n", what, strerror(errno));
	switch_off();
}

/* A whole file; the buffer is never freed. */
static char *read_file(const char *path, size_t *length)
{
	struct stat stat;
	int file = open(path, O_RDONLY | O_CLOEXEC);

	if (file < 0 || fstat(file, &stat))
		give_up(path);
	char *text = calloc(1, stat.st_size + 1);
	*length = 0;
	for (ssize_t got; (got = read(file, text + *length, stat.st_size - *length)) > 0;)
		*length += got;
	close(file);
	return text;
}

/* Words that end with a zero byte each. */
static void split(const char *path, char **words)
{
	size_t length, count = 0;
	char *text = read_file(path, &length);

	for (char *word = text; word < text + length && count < WORDS - 1; word += strlen(word) + 1)
		words[count++] = word;
	words[count] = NULL;
}

/* The value of a line "name value", or NULL. */
static const char *setting(const char *name)
{
	static char value[4096];
	size_t length = strlen(name);

	for (const char *line = settings; *line;) {
		size_t end = strcspn(line, "\n");
		if (!strncmp(line, name, length) && line[length] == ' ' && end - length < sizeof value) {
			memcpy(value, line + length + 1, end - length - 1);
			value[end - length - 1] = 0;
			return value;
		}
		line += end + (line[end] == '\n');
	}
	return NULL;
}

static void put(const char *path, const char *text)
{
	int file = open(path, O_WRONLY | O_CLOEXEC);

	if (file >= 0) {
		(void)!write(file, text, strlen(text));
		close(file);
	}
}

/* What a kernel lacks is left out: the guest also runs kernels of other configurations. */
static void mount_there(const char *type, const char *where, const char *options)
{
	mkdir(where, 0755);
	if (mount(type, where, type, 0, options))
		say("odfork guest: no %s at %s: %s", type, where, strerror(errno));
}

/* What a distribution's kernel has as modules, in the order the host found; one that is refused is
 * missed later. */
static void load_modules(void)
{
	for (int number = 0;; number++) {
		char path[64];
		snprintf(path, sizeof path, "/session/module%d", number);
		int file = open(path, O_RDONLY | O_CLOEXEC);
		if (file < 0)
			return;
		if (syscall(SYS_finit_module, file, "", 0) && errno != EEXIST)
			say("odfork guest: module %d: %s", number, strerror(errno));
		close(file);
		unlink(path);
	}
}

/* For modules the kernel asks for later. */
static void link_modules(void)
{
	const char *from = setting("modules");
	char to[512];

	if (!from)
		return;
	snprintf(to, sizeof to, "/lib/modules%s", strrchr(from, '/'));
	mkdir("/lib/modules", 0755);
	(void)!symlink(from, to);
}

static void mount_root(void)
{
	const char *transport = "trans=virtio,version=9p2000.L,msize=512000,cache=loose";

	mkdir("/host", 0755);
	mkdir("/over", 0755);
	mkdir("/root", 0755);
	if (mount("host", "/host", "9p", MS_RDONLY, transport))
		give_up("cannot mount the host's files by 9p");
	if (mount("tmpfs", "/over", "tmpfs", 0, "mode=755"))
		give_up("cannot mount a tmpfs");
	mkdir("/over/upper", 0755);
	mkdir("/over/work", 0755);
	if (mount("overlay", "/root", "overlay", 0,
		  "lowerdir=/host,upperdir=/over/upper,workdir=/over/work"))
		give_up("cannot lay an overlay over the host's files");
	if (chdir("/root") || mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".") || chdir("/"))
		give_up("cannot change the root");
}

static void mount_systems(void)
{
	mount_there("proc", "/proc", NULL);
	mount_there("sysfs", "/sys", NULL);
	mount_there("devtmpfs", "/dev", "mode=755");
	mount_there("devpts", "/dev/pts", "mode=620,ptmxmode=666");
	mount_there("tmpfs", "/dev/shm", "mode=1777");
	mount_there("mqueue", "/dev/mqueue", NULL);
	mount_there("tmpfs", "/run", "mode=755");
	mount_there("cgroup2", "/sys/fs/cgroup", NULL);
	mount_there("debugfs", "/sys/kernel/debug", NULL);
	mount_there("tracefs", "/sys/kernel/tracing", NULL);
	mount_there("securityfs", "/sys/kernel/security", NULL);
	/* Links a device manager would have made. */
	(void)!symlink("/proc/self/fd", "/dev/fd");
	(void)!symlink("/proc/self/fd/0", "/dev/stdin");
	(void)!symlink("/proc/self/fd/1", "/dev/stdout");
	(void)!symlink("/proc/self/fd/2", "/dev/stderr");
	put("/sys/fs/cgroup/cgroup.subtree_control", "+memory +pids +cpuset");
}

static void mount_share(void)
{
	mkdir("/mnt", 0755);
	mkdir("/mnt/share", 0755);
	if (setting("share") &&
	    mount("share", "/mnt/share", "9p", 0, "trans=virtio,version=9p2000.L,msize=512000,cache=none"))
		give_up("cannot mount the shared folder");
}

static void raise_loopback(void)
{
	struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (any >= 0) {
		ioctl(any, SIOCSIFFLAGS, &request);
		close(any);
	}
}

/* The header that mkswap writes: version 1, the last page, the magic at the page's end. */
static void make_swap(const char *device, unsigned long long bytes)
{
	char page[4096] = { 0 };
	unsigned int header[2] = { 1, (unsigned int)(bytes / sizeof page) - 1 };
	int disk = open(device, O_WRONLY | O_CLOEXEC);

	memcpy(page + 1024, header, sizeof header);
	memcpy(page + sizeof page - 10, "SWAPSPACE2", 10);
	if (disk < 0 || write(disk, page, sizeof page) != sizeof page || fsync(disk))
		give_up(device);
	close(disk);
	if (swapon(device, 0))
		give_up("swapon");
}

static void make_swaps(void)
{
	const char *bytes = setting("swap");

	if (bytes)
		make_swap("/dev/vda", strtoull(bytes, NULL, 10));
	if (setting("scratch"))
		(void)!symlink(setting("swap") ? "/dev/vdb" : "/dev/vda", "/dev/scratch");
	bytes = setting("zram");
	if (bytes) {
		put("/sys/block/zram0/disksize", bytes);
		make_swap("/dev/zram0", strtoull(bytes, NULL, 10));
	}
}

static void become_command(int in, int out, int err)
{
	const char *folder = setting("folder");

	setsid();
	dup2(in, 0);
	dup2(out, 1);
	dup2(err, 2);
	if (folder && chdir(folder))
		dprintf(2, "odfork guest: cannot go to %s (%s); starting in /\n", folder, strerror(errno));
	execvpe(arguments[0], arguments, environment);
	int status = errno == ENOENT ? 127 : 126;
	dprintf(2, "odfork guest: cannot start %s: %s\n", arguments[0], strerror(errno));
	_exit(status);
}

static void become_shell(void)
{
	const char *size = setting("window");
	struct winsize window = { 0 };
	int terminal;

	setsid();
	terminal = open("/dev/hvc0", O_RDWR);
	if (terminal < 0)
		give_up("/dev/hvc0");
	if (size && sscanf(size, "%hu %hu", &window.ws_row, &window.ws_col) == 2)
		ioctl(terminal, TIOCSWINSZ, &window);
	ioctl(terminal, TIOCSCTTY, 0);
	become_command(terminal, terminal, terminal);
}

/* Copies what is there; 0 at the end of the stream. */
static int pump(int from, int to)
{
	static char buffer[65536];
	ssize_t got = read(from, buffer, sizeof buffer);

	for (ssize_t done = 0; done < got;) {
		ssize_t put = write(to, buffer + done, got - done);
		if (put <= 0)
			break;
		done += put;
	}
	return got != 0;
}

/* Pumps both streams and reaps whoever ends, until the command has ended and its output is through.
 */
static int wait_for(pid_t command, struct pollfd *streams, const int *ports)
{
	int status = 0, open = 2;
	long end = 0;

	streams[0].events = streams[1].events = POLLIN;
	while (open && (!end || now_ms() < end)) {
		poll(streams, 2, 20);
		for (int i = 0; i < 2; i++) {
			if (streams[i].fd >= 0 && streams[i].revents && !pump(streams[i].fd, ports[i])) {
				streams[i].fd = -1;
				open--;
			}
		}
		int one;
		for (pid_t gone; (gone = waitpid(-1, &one, WNOHANG)) > 0;) {
			if (gone == command) {
				status = one;
				end = now_ms() + DRAIN_MS;
			}
		}
	}
	/* A command that closed its output lives on. */
	for (int one; !end;) {
		pid_t gone = waitpid(-1, &one, 0);
		if (gone == command || gone < 0) {
			status = one;
			end = 1;
		}
	}
	return status;
}

static int run(void)
{
	int out[2], err[2];
	int ports[2] = { open_port(PORT_OUT), open_port(PORT_ERR) };
	int interactive = setting("interactive") != NULL;

	if (ports[0] < 0 || ports[1] < 0 || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC))
		give_up("cannot open the ports to the host");
	dprintf(control, "ready\n");
	pid_t command = fork();
	if (command < 0)
		give_up("fork");
	if (command == 0 && interactive)
		become_shell();
	if (command == 0)
		become_command(open("/dev/null", O_RDONLY | O_CLOEXEC), out[1], err[1]);
	close(out[1]);
	close(err[1]);
	struct pollfd streams[2] = { { .fd = out[0] }, { .fd = err[0] } };
	return wait_for(command, streams, ports);
}

int main(void)
{
	size_t length;
	char *text = read_file("/session/settings", &length);

	memcpy(settings, text, length < sizeof settings ? length : sizeof settings - 1);
	split("/session/arguments", arguments);
	split("/session/environment", environment);
	mkdir("/dev", 0755);
	mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
	load_modules();
	control = open_port(PORT_CONTROL);
	if (control < 0)
		give_up("cannot open the port to the host");
	mount_root();
	link_modules();
	mount_systems();
	mount_share();
	sethostname("odfork", 6);
	raise_loopback();
	/* Under emulation with a loaded host nobody is hung after two minutes. */
	put("/proc/sys/kernel/hung_task_timeout_secs", "900");
	put("/proc/sys/kernel/hung_task_warnings", "-1");
	put("/proc/sys/kernel/watchdog_thresh", "60");
	make_swaps();

	int status = run();

	kill(-1, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
	/* The marker tells the host that the console's text is whole. */
	say("odfork guest: end");
	if (WIFSIGNALED(status))
		dprintf(control, "signal %d\n", WTERMSIG(status));
	else
		dprintf(control, "status %d\n", WEXITSTATUS(status));
	switch_off();
}
