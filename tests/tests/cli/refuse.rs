//! Programs that cannot be accelerated: one line that says what, why and what to do; then they run
//! as without odfork.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::stage::{
    alter, bare, compiled, copy, finish, mode, odfork, output, root, run, scratch, script, skip,
    Outcome,
};

const NOBODY: u32 = 65534;

/// The program runs with the environment it would have had, after one line with these words; and
/// silently when quiet.
fn runs_plainly(program: &Path, words: &str) -> Outcome {
    let outcome = finish(&mut run(program, &["environment"]));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let line = outcome.only_line();
    assert!(line.contains(words) && line.contains("running with plain fork: "), "{line}");
    assert!(
        !outcome.out.contains("LD_PRELOAD") && !outcome.out.contains("ODFORK_PID"),
        "{outcome:?}"
    );

    let mut quiet = odfork(&["run", "-q", "--"]);
    let quiet = finish(quiet.arg(program).arg("environment"));
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), (outcome.out.as_str(), ""));
    let mut quiet = run(program, &["exit", "7"]);
    let quiet = finish(quiet.env("ODFORK_QUIET", "1"));
    assert_eq!((quiet.code, quiet.err.as_str()), (Some(7), ""));
    outcome
}

fn is_accelerated(program: &Path) {
    let outcome = finish(&mut run(program, &["preloaded"])).silent();
    assert_eq!(outcome.out, "yes\n", "{}", program.display());
}

fn check(program: &Path) -> Outcome {
    finish(&mut odfork(&["check", program.to_str().unwrap()]))
}

#[test]
fn static_programs() {
    // dlopen in a static program draws a linker warning, nothing more.
    let program = compiled("static", "witness.c", &["-static"]);
    runs_plainly(&program, "is statically linked");
    let program = compiled("static-pie", "witness.c", &["-static-pie"]);
    runs_plainly(&program, "is statically linked");
    assert_eq!(check(&program).code, Some(1));
}

/// A pipe would be waited for. The kernel refuses it.
#[test]
fn a_script_whose_interpreter_is_a_pipe() {
    let folder = scratch();
    let pipe = folder.path().join("pipe");
    let name = CString::new(pipe.as_os_str().as_bytes()).unwrap();
    // SAFETY: a valid path.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o755) }, 0);
    let program = script(folder.path(), "script", format!("#!{}\n", pipe.display()));
    let answer = check(&program);
    assert!(format!("{answer:?}").contains("it is no regular file"), "{answer:?}");
    assert_ne!(finish(&mut run(&program, &[])).code, Some(0));
}

#[test]
fn dynamic_programs_of_every_shape_are_taken() {
    is_accelerated(&compiled("no-pie", "witness.c", &["-no-pie"]));
    let stripped = compiled("stripped", "witness.c", &["-s"]);
    is_accelerated(&stripped);
    assert_eq!(check(&stripped).code, Some(0));
}

#[test]
fn the_loader_called_by_hand_is_no_static_program() {
    let loader = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
    let Some(loader) = loader.iter().find(|path| Path::new(path).exists()) else {
        return skip("the_loader_called_by_hand_is_no_static_program", "no loader at a known path");
    };
    let program = crate::stage::witness();
    let outcome = finish(&mut run(loader, &[program.to_str().unwrap(), "preloaded"])).silent();
    assert_eq!(outcome.out, "yes\n");
}

#[test]
fn setuid_and_setgid_programs_of_another_user() {
    if !root() {
        return skip("setuid_and_setgid_programs_of_another_user", "needs root to give files away");
    }
    let folder = scratch();
    let foreign = copy(folder.path(), "setuid-nobody");
    chown(&foreign, Some(NOBODY), None).unwrap();
    mode(&foreign, 0o4755);
    if finish(bare(&foreign).arg("exit").arg("0")).code != Some(0) {
        return skip("setuid_and_setgid_programs_of_another_user", "cannot run them here");
    }
    runs_plainly(&foreign, "is setuid to user 65534");

    let group = copy(folder.path(), "setgid-nogroup");
    chown(&group, None, Some(NOBODY)).unwrap();
    mode(&group, 0o2755);
    runs_plainly(&group, "is setgid to group 65534");

    // Already that user: the loader heeds LD_PRELOAD, so the program is accelerated.
    let own = copy(folder.path(), "setuid-root");
    mode(&own, 0o4755);
    is_accelerated(&own);
    let mut command = run(&own, &["environment"]);
    let outcome = finish(command.uid(NOBODY).gid(NOBODY));
    assert!(outcome.only_line().contains("is setuid to user 0"), "{outcome:?}");
    let mut command = run(&foreign, &["preloaded"]);
    assert_eq!(finish(command.uid(NOBODY).gid(NOBODY)).silent().out, "yes\n");
}

#[test]
fn programs_with_file_capabilities() {
    if !root() {
        return skip("programs_with_file_capabilities", "needs root to set them");
    }
    let folder = scratch();
    let program = copy(folder.path(), "capable");
    // vfs_cap_data version 2 with the effective flag: CAP_NET_RAW (bit 13) permitted.
    let mut value = [0u8; 20];
    value[..4].copy_from_slice(&0x0200_0001u32.to_le_bytes());
    value[4..8].copy_from_slice(&(1u32 << 13).to_le_bytes());
    let path = CString::new(program.as_os_str().as_bytes()).unwrap();
    // SAFETY: C strings and a buffer with its length.
    let set = unsafe {
        libc::setxattr(
            path.as_ptr(),
            c"security.capability".as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    if set != 0 {
        return skip(
            "programs_with_file_capabilities",
            "the file system takes no security.capability",
        );
    }
    is_accelerated(&program);
    let mut command = run(&program, &["environment"]);
    let outcome = finish(command.uid(NOBODY).gid(NOBODY));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.only_line().contains("has file capabilities"), "{outcome:?}");
    assert!(!outcome.out.contains("LD_PRELOAD"), "{outcome:?}");
}

/// Writes a 16-bit number into a copy of the program's ELF header.
fn patched(folder: &Path, name: &str, at: usize, value: u16) -> std::path::PathBuf {
    let path = copy(folder, name);
    alter(&path, |bytes| bytes[at..at + 2].copy_from_slice(&value.to_le_bytes()));
    path
}

#[test]
fn programs_for_another_machine_are_told_apart_from_missing_ones() {
    let folder = scratch();
    let program = patched(folder.path(), "foreign", 18, 243);
    let outcome = finish(&mut run(&program, &[]));
    assert_eq!(outcome.code, Some(126), "{outcome:?}");
    let line = outcome.only_line();
    assert!(
        line.contains("program for riscv")
            && line.contains("use a build of the program for this machine"),
        "{line}"
    );

    let answer = check(&program);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.out.contains("64-bit program for riscv"), "{answer:?}");
}

#[test]
fn programs_of_32_bits() {
    let folder = scratch();
    let program = copy(folder.path(), "narrow");
    alter(&program, |bytes| {
        bytes[4] = 1;
        bytes[18..20].copy_from_slice(&3u16.to_le_bytes());
    });
    let answer = check(&program);
    assert!(answer.out.contains("is a 32-bit program for i386"), "{answer:?}");
}

/// A copy whose PT_INTERP names another loader of at most the same length.
fn with_loader(folder: &Path, name: &str, loader: &str) -> std::path::PathBuf {
    let path = copy(folder, name);
    let old = b"/lib64/ld-linux-x86-64.so.2\0";
    assert!(loader.len() < old.len());
    alter(&path, |bytes| {
        let place = bytes.windows(old.len()).position(|window| window == old).expect("its loader");
        bytes[place..place + old.len()].fill(0);
        bytes[place..place + loader.len()].copy_from_slice(loader.as_bytes());
    });
    path
}

#[test]
#[cfg(target_arch = "x86_64")]
fn musl_programs_and_missing_loaders() {
    let folder = tempfile::Builder::new().prefix("m").rand_bytes(3).tempdir_in("/tmp").unwrap();
    let musl = folder.path().join("ld-musl-x.so");
    std::os::unix::fs::symlink("/lib64/ld-linux-x86-64.so.2", &musl).unwrap();
    let program = with_loader(folder.path(), "musl", musl.to_str().unwrap());
    runs_plainly(&program, "is built for musl libc");

    let other = folder.path().join("loader.so");
    std::os::unix::fs::symlink("/lib64/ld-linux-x86-64.so.2", &other).unwrap();
    let program = with_loader(folder.path(), "other", other.to_str().unwrap());
    runs_plainly(&program, "asks for the loader");

    let program = with_loader(folder.path(), "orphan", "/tmp/ld-linux-no.so");
    let outcome = finish(&mut run(&program, &[]));
    assert_eq!(outcome.code, Some(127), "{outcome:?}");
    assert!(
        outcome.only_line().contains("needs /tmp/ld-linux-no.so, which is not there"),
        "{outcome:?}"
    );
}

#[test]
fn a_real_go_program() {
    let go =
        ["/usr/local/go/bin/go", "/usr/bin/go"].into_iter().find(|path| Path::new(path).exists());
    let Some(go) = go else {
        return skip("a_real_go_program", "no Go toolchain here; the imitation below still runs");
    };
    let folder = scratch();
    let source = folder.path().join("hello.go");
    let text = "package main\nimport \"os\"\nfunc main() {\n\
                os.Stdout.WriteString(os.Getenv(\"LD_PRELOAD\") + \"|\\n\")\n\
                if len(os.Args) > 2 { os.Exit(7) }\n}\n";
    fs::write(&source, text).unwrap();
    let program = folder.path().join("hello");
    let mut build = Command::new(go);
    build.args(["build", "-o"]).arg(&program).arg(&source).env("GOTOOLCHAIN", "local");
    // Kept between runs: building Go's own packages takes half a minute.
    build.env("GOCACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/go")).current_dir(&folder);
    let built = output(&mut build);
    assert!(built.status.success(), "{}", crate::stage::text(&built.stderr));
    assert_eq!(runs_plainly(&program, "is a Go program").out, "|\n");
}

#[test]
fn programs_with_go_marks_in_a_section_or_a_note() {
    // The linker makes a PT_NOTE of the note section; strip removes symbols, not the marks.
    let note = compiled("go-note", "go_note.c", &[]);
    runs_plainly(&note, "is a Go program");
    let section = compiled("go-section", "go_section.c", &["-s"]);
    runs_plainly(&section, "is a Go program");
}

#[test]
fn programs_with_the_address_sanitizer() {
    let probe =
        output(Command::new("cc").args(["-fsanitize=address", "-print-file-name=libasan.so"]));
    if !crate::stage::text(&probe.stdout).contains('/') {
        return skip("programs_with_the_address_sanitizer", "the compiler has no libasan");
    }
    let program = compiled("asan", "witness.c", &["-fsanitize=address"]);
    runs_plainly(&program, "is built with AddressSanitizer");
}

#[test]
fn a_script_is_judged_by_what_interprets_it() {
    let folder = scratch();
    let fixed = compiled("static", "witness.c", &["-static"]);
    let mut previous = fixed.clone();
    // Five scripts, each the interpreter of the next: as deep as the kernel goes.
    for depth in 1..=5 {
        let path =
            script(folder.path(), &format!("s{depth}"), format!("#!{}\n", previous.display()));
        let outcome = finish(&mut run(&path, &[]));
        assert!(outcome.only_line().contains("runs through"), "{depth}: {outcome:?}");
        assert!(outcome.only_line().contains("statically linked"), "{depth}: {outcome:?}");
        previous = path;
    }
    let path = script(folder.path(), "s6", format!("#!{}\n", previous.display()));
    let outcome = finish(&mut run(&path, &[]));
    assert_eq!(outcome.code, Some(126), "{outcome:?}");
    assert!(outcome.only_line().contains("interpret each other"), "{outcome:?}");
}

#[test]
fn a_file_that_cannot_be_read_is_tried() {
    if !root() {
        return skip("a_file_that_cannot_be_read_is_tried", "needs root to become nobody");
    }
    let folder = scratch();
    let program = copy(folder.path(), "unreadable");
    mode(&program, 0o711);
    let mut command = run(&program, &["preloaded"]);
    assert_eq!(finish(command.uid(NOBODY).gid(NOBODY)).silent().out, "yes\n");
}
