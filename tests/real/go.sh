#!/bin/bash
# Go programs, whose runtime maps memory by raw system calls: a static one and one with cgo, where C
# code forks beside the Go heap. Both must run exactly as without the launcher.
# odfork: expect=any modes=huge,auto
. "$(dirname "$0")/stage.sh"
go=$(first_of /usr/bin/go /usr/local/go/bin/go) ||
    skip "no Go toolchain; install the Debian package golang-go"
need /usr/bin/gcc gcc
export GOCACHE=$KEEP/go-build GOPATH=$KEEP/go GOFLAGS= GOTOOLCHAIN=local GO111MODULE=off
build_go() { (cd "$input" && CGO_ENABLED=$1 "$go" build -o "$OUT.tmp" "$2") >&2 &&
    mv "$OUT.tmp" "$OUT"; }
build_once go-static build_go 0 go_static.go
run "$OUT" one two 2>/dev/null
echo "exit status $?"
build_once go-cgo build_go 1 go_cgo.go
run "$OUT" 2>/dev/null
echo "exit status $?"
