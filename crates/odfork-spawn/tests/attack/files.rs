//! Files that cannot be executed, and searches that pass them over.
//!
//! Owns the step `exec` and its neighbour `interpreter`: which of the two, which errno, which path.

use std::os::unix::fs::symlink;

use odfork_spawn::{Command, Step};

use crate::failures::fails;
use crate::kernel::{self, Folder};
use crate::Case;

pub const CASES: &[(&str, Case)] = &[
    ("exec_of_files_that_are_no_programs", no_programs),
    ("interpreters_that_are_missing", interpreters),
    ("relative_programs_count_from_the_new_directory", relative),
    ("searches_of_path", searches),
    ("a_file_system_without_exec", noexec),
    ("arguments_too_long", too_long),
];

fn exec_fails(program: &std::path::Path, errno: i32) {
    fails(&mut Command::new(program), Step::Exec, errno, program.to_str().unwrap());
}

fn no_programs() -> Result<(), String> {
    let folder = Folder::new();
    exec_fails(&folder.file("empty", b"", 0o755), libc::ENOEXEC);
    exec_fails(&folder.file("text", b"echo hello\n", 0o755), libc::ENOEXEC);
    exec_fails(&folder.file("cut", b"\x7fELF\x02\x01\x01", 0o755), libc::ENOEXEC);
    exec_fails(&folder.file("plain", b"#!/bin/sh\n", 0o644), libc::EACCES);
    exec_fails(&folder.path().join("absent"), libc::ENOENT);
    exec_fails(&folder.path().join("text/below"), libc::ENOTDIR);
    exec_fails(folder.path(), libc::EACCES);
    exec_fails(&folder.path().join("n".repeat(300)), libc::ENAMETOOLONG);
    fails(&mut Command::new(""), Step::Exec, libc::ENOENT, "");
    symlink("round", folder.path().join("round")).unwrap();
    exec_fails(&folder.path().join("round"), libc::ELOOP);
    let copy = folder.file("busy", &std::fs::read("/bin/true").unwrap(), 0o755);
    let writer = std::fs::File::options().write(true).open(&copy).unwrap();
    exec_fails(&copy, libc::ETXTBSY);
    drop(writer);
    assert!(Command::new(&copy).status().unwrap().success());
    Ok(())
}

fn interpreters() -> Result<(), String> {
    let folder = Folder::new();
    let absent = folder.path().join("absent");
    let names = |name: &str, interpreter: &std::path::Path| {
        folder.file(name, format!("#!{} -x\n", interpreter.display()).as_bytes(), 0o755)
    };
    let missing = |program: &std::path::Path, errno, what: &std::path::Path| {
        fails(&mut Command::new(program), Step::Interpreter, errno, what.to_str().unwrap());
    };
    let first = names("first", &absent);
    missing(&first, libc::ENOENT, &absent);
    let plain = folder.file("plain", b"#!/bin/sh\n", 0o644);
    missing(&names("second", &plain), libc::EACCES, &plain);
    // The interpreter of an interpreter: the one that is missing is named.
    missing(&names("outer", &first), libc::ENOENT, &absent);
    missing(&names("of_folder", folder.path()), libc::EACCES, folder.path());
    let loader = b"/lib64/ld-linux-x86-64.so.2";
    let mut elf = std::fs::read("/bin/true").unwrap();
    let at = elf.windows(loader.len()).position(|w| w == loader).expect("a loader's name");
    elf[at + 1] = b'X';
    missing(&folder.file("elf", &elf, 0o755), libc::ENOENT, "/Xib64/ld-linux-x86-64.so.2".as_ref());
    // Scripts that name each other: the kernel gives up.
    let (this, that) = (folder.path().join("this"), folder.path().join("that"));
    names("this", &that);
    names("that", &this);
    exec_fails(&this, libc::ELOOP);
    Ok(())
}

/// Whether the interpreter is missing must be looked at where the program would have been found.
fn relative() -> Result<(), String> {
    let folder = Folder::new();
    let (here, there) = (folder.folder("here", 0o755), folder.folder("there", 0o755));
    folder.file("here/script", b"#!/no/such/interpreter\n", 0o755);
    folder.file("there/only", b"#!/no/such/interpreter\n", 0o755);
    folder.file("there/runs", b"#!/bin/sh\nexit 0\n", 0o755);
    std::env::set_current_dir(&here).unwrap();
    let mut command = Command::new("./script");
    fails(command.current_dir(&there), Step::Exec, libc::ENOENT, "./script");
    let mut command = Command::new("./only");
    fails(command.current_dir(&there), Step::Interpreter, libc::ENOENT, "/no/such/interpreter");
    let mut command = Command::new("only");
    command.env("PATH", ":/no/such");
    fails(command.current_dir(&there), Step::Interpreter, libc::ENOENT, "/no/such/interpreter");
    assert!(Command::new("./runs").current_dir(&there).status().unwrap().success());
    assert!(Command::new("runs")
        .env("PATH", "/no/such:")
        .current_dir(&there)
        .status()
        .unwrap()
        .success());
    Ok(())
}

fn searches() -> Result<(), String> {
    let folder = Folder::new();
    let (a, b, c) =
        (folder.folder("a", 0o755), folder.folder("b", 0o755), folder.folder("c", 0o755));
    folder.file("a/tool", b"#!/bin/sh\nexit 1\n", 0o644);
    folder.file("b/tool", b"#!/bin/sh\nexit 42\n", 0o755);
    folder.file("c/tool", b"#!/no/such/interpreter\n", 0o755);
    folder.file("c/text", b"words\n", 0o755);
    let path = |folders: &[&std::path::Path]| {
        let texts: Vec<&str> = folders.iter().map(|f| f.to_str().unwrap()).collect();
        texts.join(":")
    };
    let tool = |path: String| {
        let mut command = Command::new("tool");
        command.env("PATH", path);
        command
    };
    assert_eq!(tool(path(&[&a, &b])).status().unwrap().code(), Some(42));
    assert_eq!(tool(path(&[&c, &b])).status().unwrap().code(), Some(42));
    assert_eq!(
        tool(path(&["/no".as_ref(), "/bin/sh".as_ref(), &b])).status().unwrap().code(),
        Some(42)
    );
    assert_eq!(tool(path(&[&a.join("x".repeat(5000)), &b])).status().unwrap().code(), Some(42));
    fails(
        &mut tool(path(&[&a, "/no".as_ref()])),
        Step::Exec,
        libc::EACCES,
        a.join("tool").to_str().unwrap(),
    );
    fails(&mut tool(path(&[&a, &c])), Step::Exec, libc::EACCES, a.join("tool").to_str().unwrap());
    fails(
        &mut tool(path(&["/no".as_ref(), &c, "/no".as_ref()])),
        Step::Interpreter,
        libc::ENOENT,
        "/no/such/interpreter",
    );
    fails(&mut tool("/no:/nowhere".into()), Step::Exec, libc::ENOENT, "not in PATH");
    let mut text = Command::new("text");
    fails(
        text.env("PATH", path(&[&a, &c, &b])),
        Step::Exec,
        libc::ENOEXEC,
        c.join("text").to_str().unwrap(),
    );
    // Without a PATH the standard one; with an empty one, or an empty part, the working directory.
    assert!(Command::new("true").env_remove("PATH").status().unwrap().success());
    assert!(Command::new("true").env_clear().status().unwrap().success());
    std::env::set_current_dir(&b).unwrap();
    for path in ["", ":", "/no:", ":/no", "/no::/no"] {
        assert_eq!(tool(path.into()).status().unwrap().code(), Some(42), "{path:?}");
    }
    Ok(())
}

fn noexec() -> Result<(), String> {
    kernel::require_root()?;
    let folder = Folder::new();
    let target = std::ffi::CString::new(folder.path().to_str().unwrap()).unwrap();
    // SAFETY: strings that end with a zero byte. The namespace ends with this process, and so does
    // the mount.
    let mounted = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                std::ptr::null(),
                c"/".as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ) == 0
            && libc::mount(
                c"none".as_ptr(),
                target.as_ptr(),
                c"tmpfs".as_ptr(),
                libc::MS_NOEXEC,
                std::ptr::null(),
            ) == 0
    };
    if !mounted {
        return Err(format!("no mount of one's own: {}", std::io::Error::last_os_error()));
    }
    let script = folder.file("script", b"#!/bin/sh\n", 0o755);
    exec_fails(&script, libc::EACCES);
    let error = Command::new(&script).spawn().map(drop).unwrap_err();
    assert!(error.to_string().contains("noexec"), "{error}");
    // SAFETY: as above.
    assert_eq!(unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) }, 0);
    Ok(())
}

fn too_long() -> Result<(), String> {
    let mut command = Command::new("/bin/true");
    fails(command.arg("x".repeat(200_000)), Step::Exec, libc::E2BIG, "/bin/true");
    let mut command = Command::new("/bin/true");
    command.args(std::iter::repeat_n("y".repeat(1000), 9000));
    fails(&mut command, Step::Exec, libc::E2BIG, "/bin/true");
    let mut command = Command::new("/bin/true");
    fails(command.env("LONG", "z".repeat(200_000)), Step::Exec, libc::E2BIG, "/bin/true");
    let mut command = Command::new("/bin/true");
    command.args(std::iter::repeat_n("y".repeat(1000), 500)).limit(
        libc::RLIMIT_STACK,
        1 << 20,
        1 << 20,
    );
    fails(&mut command, Step::Exec, libc::E2BIG, "/bin/true");
    Ok(())
}
