#!/bin/bash
# make -j4 building a small C tree: compilers as children, recursive make with the job server,
# $(shell ...), a rule that fails; the digest is of everything that was built.
# odfork: expect=any modes=huge,small
. "$(dirname "$0")/stage.sh"
need /usr/bin/make make
need /usr/bin/gcc gcc
need /usr/include/stdio.h libc6-dev
tree=$SCRATCH/tree
mkdir -p "$tree/lib" && cd "$tree" || exit 1

for number in 0 1 2 3 4 5 6 7; do
    cat >"lib/part$number.c" <<C
#include <string.h>
unsigned part$number(const char *s) {
    unsigned h = $number, i;
    for (i = 0; i < strlen(s); i++) h = h * 33u + (unsigned char)s[i];
    return h;
}
C
done
cat >main.c <<'C'
#include <stdio.h>
#include "parts.h"
int main(void) { printf("%08x built by %s\n", ALL("odfork"), BUILDER); return 0; }
C
cat >lib/Makefile <<'MAKE'
objects := $(patsubst %.c,%.o,$(sort $(wildcard part*.c)))
libparts.a: $(objects)
	ar rcsD $@ $(objects)
%.o: %.c
	gcc -O2 -c -o $@ $<
MAKE
cat >Makefile <<'MAKE'
BUILDER := $(shell printf 'make in a %s tree' "$$(ls lib/part*.c | wc -l)-part")
all: program listing.txt
program: main.o lib/libparts.a
	gcc -o $@ main.o lib/libparts.a
main.o: main.c parts.h
	gcc -O2 -DBUILDER='"$(BUILDER)"' -c -o $@ $<
parts.h: $(wildcard lib/part*.c)
	{ for n in 0 1 2 3 4 5 6 7; do echo "unsigned part$$n(const char *);"; done; \
	  echo '#define ALL(s) (part0(s)^part1(s)^part2(s)^part3(s)^part4(s)^part5(s)^part6(s)^part7(s))'; } > $@
lib/libparts.a: FORCE
	$(MAKE) -C lib libparts.a
listing.txt: program
	./program > $@; nm -p lib/libparts.a | grep ' T ' | sort >> $@
broken:
	@false
FORCE:
MAKE

build() { run /usr/bin/make --no-print-directory -Otarget "$@"; }
build -s -j4 all >make.log 2>&1
echo "make -j4: status $?, messages: $(wc -l <make.log)"
cat listing.txt
echo "objects $(cat main.o lib/*.o | digest) archive $(digest <lib/libparts.a) program $(digest <program)"
build -j4 all 2>&1 | sed 's/make\[[0-9]*\]/make/' # up to date
build -j2 -k broken listing.txt >broken.log 2>&1
echo "broken: status $?"
grep 'broken' broken.log | sed 's/Makefile:[0-9]*/Makefile/'
touch lib/part3.c
build -n -j4 all | sort | digest
