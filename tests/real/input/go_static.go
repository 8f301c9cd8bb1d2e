// A Go program with a 64 MB heap, goroutines and collections, that starts itself as a child.
package main

import (
	"os"
	"runtime"
	"syscall"
)

func sum(data [][]byte) (h uint32) {
	for _, piece := range data {
		for _, b := range piece {
			h = h*33 + uint32(b)
		}
	}
	return h
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "child" {
		println2("child", len(os.Args))
		os.Exit(9)
	}
	data := make([][]byte, 1024)
	done := make(chan bool)
	for g := 0; g < 4; g++ {
		go func(g int) {
			for i := g; i < len(data); i += 4 {
				data[i] = make([]byte, 65536)
				for k := range data[i] {
					data[i][k] = byte(i*k + g)
				}
			}
			done <- true
		}(g)
	}
	for g := 0; g < 4; g++ {
		<-done
	}
	println2("sum", int(sum(data)))
	for i := 0; i < 5; i++ {
		process, err := os.StartProcess("/proc/self/exe", []string{"go", "child", "x"}, &os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}})
		if err != nil {
			println2("start failed", i)
			os.Exit(1)
		}
		state, _ := process.Wait()
		println2("child status", state.Sys().(syscall.WaitStatus).ExitStatus())
		for k := i; k < len(data); k += 7 {
			data[k] = make([]byte, 65536)
		}
		runtime.GC()
		println2("sum", int(sum(data)))
	}
	os.Exit(len(os.Args))
}

func println2(word string, number int) {
	digits := ""
	for n := number; n > 0 || digits == ""; n /= 10 {
		digits = string(rune('0'+n%10)) + digits
	}
	os.Stdout.WriteString(word + " " + digits + "\n")
}
