//! `odfork kernel` with bad input: a machine without the programs, a source that is none or another
//! one, a compiler that fails, a guest that does not come up. The source is a toy with the targets
//! of Linux' Makefile.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::stage::{bare, finish, odfork_path, output, scratch, script, skip, Outcome};

const COULD_NOT: Option<i32> = Some(125);

const MAKEFILE: &str = "\
VERSION = 6
PATCHLEVEL = 12
SUBLEVEL = 9
allnoconfig olddefconfig:
\ttouch $(O)/.config
bzImage:
\t@echo '  CC      mm/a.o'
\t@echo 'mm/a.c:3:1: error: expected something else'
\t@echo '  CC      mm/b.o'
\t@false
";

const PATCH: &str = "\
--- a/mm/a.c
+++ b/mm/a.c
@@ -1,3 +1,3 @@
 one
-two
+zwei
 three
";

/// A kernel folder, a toy source and a work folder.
struct Toy(tempfile::TempDir);

impl Toy {
    fn new() -> Toy {
        let toy = Toy(scratch());
        toy.write("tree/config/guest.config", "CONFIG_NUMA=y\n");
        toy.write("tree/patches/.keep", "");
        toy.write("linux/Makefile", MAKEFILE);
        toy.write("linux/Kconfig", "");
        toy.write("linux/mm/a.c", "one\ntwo\nthree\n");
        toy.write("linux/scripts/kconfig/.keep", "");
        script(&toy.path("linux/scripts/kconfig"), "merge_config.sh", "#!/bin/sh\nexit 0\n");
        toy
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn kernel(&self, words: &[&str]) -> Command {
        let mut command = bare(odfork_path());
        command.args(["kernel", words[0], "--tree"]).arg(self.path("tree"));
        command.arg("--dir").arg(self.path("work")).args(&words[1..]);
        command
    }

    fn build(&self) -> Outcome {
        finish(self.kernel(&["build", "--jobs", "1", "--source"]).arg(self.path("linux")))
    }
}

/// Whether this machine has what a build looks for first; else says so and the test is left.
fn can_build(test: &str) -> bool {
    let tools =
        "for t in gcc make ld flex bison bc patch tar xz perl; do command -v $t || exit 1; done";
    let headers = ["/usr/include/libelf.h", "/usr/include/openssl/opensslv.h"];
    let there = output(Command::new("sh").args(["-c", tools])).status.success()
        && headers.iter().all(|header| Path::new(header).exists());
    if !there {
        skip(test, "the programs of a kernel build are not installed (.ci/packages tests)");
    }
    there
}

#[test]
fn a_machine_without_the_programs_is_told_all_of_them() {
    let toy = Toy::new();
    fs::create_dir(toy.path("empty")).unwrap();
    let outcome = finish(toy.kernel(&["build"]).env("PATH", toy.path("empty")));
    assert_eq!(outcome.code, COULD_NOT, "{outcome:?}");
    assert_eq!(outcome.err.lines().count(), 1, "{outcome:?}");
    assert!(
        outcome.err.starts_with("odfork kernel build: building a kernel needs gcc, make,"),
        "{outcome:?}"
    );
    assert!(
        outcome.err.contains("apt-get install gcc make binutils flex bison bc patch"),
        "{outcome:?}"
    );

    let words = ["boot", "--kernel", "/bin/true", "--", "true"];
    let outcome = finish(toy.kernel(&words).env("PATH", toy.path("empty")));
    assert_eq!(outcome.code, COULD_NOT, "{outcome:?}");
    let last = outcome.err.lines().last().unwrap();
    assert!(
        last.ends_with(
            "a guest needs qemu-system-x86_64; install it: apt-get install qemu-system-x86"
        ),
        "{last}"
    );
}

#[test]
fn what_is_not_there_is_named_with_the_way_to_it() {
    let toy = Toy::new();
    let outcome = finish(&mut toy.kernel(&["boot", "--unpatched", "--debug", "--", "true"]));
    assert_eq!(outcome.code, COULD_NOT, "{outcome:?}");
    assert!(outcome.err.contains("no kernel (unpatched, debug configuration)"), "{outcome:?}");
    assert!(outcome.err.contains("odfork kernel build --unpatched --debug"), "{outcome:?}");

    let outcome = finish(bare(odfork_path()).args(["kernel", "build", "--tree", "/usr"]));
    assert_eq!(outcome.code, COULD_NOT);
    assert!(outcome.err.contains("/usr is no kernel folder of odfork"), "{outcome:?}");

    let outcome = finish(&mut toy.kernel(&["boot", "--memory", "4X"]));
    assert_eq!(outcome.code, Some(2));
    assert_eq!(outcome.err.lines().count(), 1, "{outcome:?}");
}

#[test]
fn a_patch_that_does_not_apply_is_named() {
    if !can_build("a_patch_that_does_not_apply_is_named") {
        return;
    }
    let toy = Toy::new();
    toy.write("tree/patches/0001-one.patch", PATCH);
    toy.write("tree/patches/0002-two.patch", &PATCH.replace("-two", "-deux"));
    let outcome = toy.build();
    assert_eq!(outcome.code, COULD_NOT, "{outcome:?}");
    let last = outcome.err.lines().last().unwrap();
    let expected = "odfork kernel build: the patch 0002-two.patch does not apply to Linux 6.12.9 \
                    (mm/a.c: Hunk #1 FAILED at 1)";
    assert!(last.starts_with(expected), "{last}");

    toy.write("notlinux/Makefile", "all:\n");
    let outcome = finish(toy.kernel(&["build", "--source"]).arg(toy.path("notlinux")));
    assert_eq!(outcome.code, COULD_NOT, "{outcome:?}");
    assert!(outcome.err.contains("is no source of Linux"), "{outcome:?}");
}

#[test]
fn a_build_that_fails_shows_the_compilers_words_and_the_log() {
    if !can_build("a_build_that_fails_shows_the_compilers_words_and_the_log") {
        return;
    }
    let toy = Toy::new();
    toy.write("tree/patches/0001-one.patch", PATCH);
    let outcome = toy.build();
    assert_eq!(outcome.code, COULD_NOT, "{outcome:?}");
    assert!(
        outcome.err.contains("odfork kernel build: mm/a.c:3:1: error: expected something else\n"),
        "{outcome:?}"
    );
    let log = outcome.err.lines().last().unwrap().split(" is in ").nth(1).unwrap();
    assert!(fs::read_to_string(log).unwrap().contains("CC      mm/b.o"), "{log}");
    assert!(outcome.err.contains("not taken into the configuration: CONFIG_NUMA=y"), "{outcome:?}");
    let tree = toy.path("work/source-patched/mm/a.c");
    assert_eq!(fs::read_to_string(tree).unwrap(), "one\nzwei\nthree\n");
    assert_eq!(fs::read_to_string(toy.path("work/source/mm/a.c")).unwrap(), "one\ntwo\nthree\n");
}

#[test]
fn a_guest_that_does_not_come_up_is_told_from_a_command_that_fails() {
    let init = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel/guest/init.c");
    let libc = output(Command::new("gcc").args(["-print-file-name=libc.a"]));
    if !libc.stdout.starts_with(b"/") {
        return skip("a_guest_that_does_not_come_up", "gcc and libc6-dev are not installed");
    }
    let toy = Toy::new();
    toy.write("tree/guest/init.c", &fs::read_to_string(init).unwrap());
    fs::create_dir(toy.path("bin")).unwrap();
    script(
        &toy.path("bin"),
        "qemu-system-x86_64",
        "#!/bin/sh\necho 'no machine today' >&2\nexit 1\n",
    );
    let path = format!("{}:/usr/bin:/bin", toy.path("bin").display());
    let words = ["boot", "--accel", "tcg", "--kernel", "/bin/true", "--", "true"];
    let outcome = finish(toy.kernel(&words).env("PATH", path));
    assert_eq!(outcome.code, Some(123), "{outcome:?}");
    assert!(
        outcome.err.contains("the guest ended without an answer: no machine today"),
        "{outcome:?}"
    );
    assert_eq!(fs::read_dir(toy.path("work/sessions")).unwrap().count(), 0);
}
