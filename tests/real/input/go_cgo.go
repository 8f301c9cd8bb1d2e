// A Go program whose C part holds 32 MB and forks: the preloaded library is in this process, the Go heap beside it.
package main

/*
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned char *block;

static void fill(void)
{
	block = malloc(32 << 20);
	for (int i = 0; i < 32 << 20; i++)
		block[i] = (unsigned char)(i * 5 + i / 4096);
}

static unsigned sum_in_child(int change)
{
	int ends[2], status;
	unsigned answer = 0;
	if (pipe(ends))
		return 1;
	pid_t pid = fork();
	if (pid == 0) {
		unsigned h = 5381;
		block[change] ^= 1;
		for (int i = 0; i < 32 << 20; i += 3)
			h = h * 33 + block[i];
		_exit(write(ends[1], &h, sizeof h) == sizeof h ? 0 : 1);
	}
	close(ends[1]);
	if (read(ends[0], &answer, sizeof answer) != sizeof answer)
		answer = 2;
	close(ends[0]);
	waitpid(pid, &status, 0);
	return status ? 3 : answer;
}
*/
import "C"

import (
	"os"
	"runtime"
	"strconv"
)

func main() {
	C.fill()
	heap := make([][]int, 2000)
	for turn := 0; turn < 5; turn++ {
		for i := turn; i < len(heap); i += turn + 1 {
			heap[i] = make([]int, 1000)
			for k := range heap[i] {
				heap[i][k] = i * k * (turn + 1)
			}
		}
		answer := uint32(C.sum_in_child(C.int(turn * 3)))
		runtime.GC()
		total := 0
		for _, row := range heap {
			for _, n := range row {
				total += n
			}
		}
		os.Stdout.WriteString("child " + strconv.Itoa(int(answer)) + " heap " + strconv.Itoa(total) + "\n")
	}
	os.Exit(8)
}
