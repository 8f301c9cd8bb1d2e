//! A user to whom the kernel forbids userfaultfd: everything is read in, and that is said.
//!
//! The tests run this program again as nobody; only root can do that.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use common::{expect, image, open, options, Folder};
use odfork_image::{Codec, Form, MapOptions, PAGE};

const NOBODY: u32 = 65534;

/// True in the second run.
fn as_nobody(test: &str) -> bool {
    if std::env::var_os("AS_NOBODY").is_some() {
        return true;
    }
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: {test}: needs root, to run as another user");
        return false;
    }
    let folder = Folder::new();
    let open_to_all = |path: &std::path::Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    };
    // Where this program is, nobody may not be able to go.
    let place = tempfile::Builder::new().tempdir_in("/var/tmp").unwrap();
    open_to_all(place.path());
    let program = place.path().join("program");
    // By another process: what is open for writing here, a child of the other test has too between
    // fork and exec, and then it cannot be executed (ETXTBSY).
    let copy = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status();
    assert!(copy.unwrap().success());
    open_to_all(&program);
    drop(folder);
    let output = Command::new(&program)
        .args(["--exact", test, "--nocapture"])
        .env("AS_NOBODY", "1")
        .env("TMPDIR", place.path())
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    text.lines().filter(|line| line.starts_with("skipped")).for_each(|line| eprintln!("{line}"));
    false
}

fn is_forbidden(test: &str) -> bool {
    // SAFETY: flags only; ours.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
    let device = std::fs::File::open("/dev/userfaultfd").is_ok();
    if fd >= 0 || device {
        eprintln!("skipped: {test}: userfaultfd is allowed to everybody here");
    }
    fd < 0 && !device
}

#[test]
fn everything_is_read_in_where_faults_are_forbidden() {
    let test = "everything_is_read_in_where_faults_are_forbidden";
    if !as_nobody(test) || !is_forbidden(test) {
        return;
    }
    let folder = Folder::new();
    let path = folder.file("image");
    image(&path, 300, 1, options(Codec::Lz4, 16));
    let image = open(&path);
    for form in [Form::Auto, Form::Faulted] {
        let mapped = image.map(None, &MapOptions { form, ..MapOptions::default() }).unwrap();
        assert_eq!(mapped.form(), Form::ReadIn);
        let note = mapped.note().unwrap();
        assert!(note.contains("userfaultfd") && note.contains("read in"), "{note}");
        expect(mapped.address("state").unwrap(), 300, 1);
    }
    let wish = MapOptions { form: Form::Faulted, fall_back: false, ..MapOptions::default() };
    let line = image.map(None, &wish).unwrap_err().to_string();
    assert!(line.contains("vm.unprivileged_userfaultfd"), "{line}");
}

#[test]
fn faults_of_the_program_alone_can_be_had() {
    let test = "faults_of_the_program_alone_can_be_had";
    if !as_nobody(test) || !is_forbidden(test) {
        return;
    }
    let folder = Folder::new();
    let path = folder.file("image");
    image(&path, 300, 1, options(Codec::Lz4, 16));
    let wish = MapOptions { form: Form::Faulted, user_faults: true, ..MapOptions::default() };
    let mapped = open(&path).map(None, &wish).unwrap();
    assert_eq!(mapped.form(), Form::Faulted);
    let at = mapped.address("state").unwrap();
    // A system call does not find page 200, the program does.
    let (_end, start) = std::io::pipe().unwrap();
    // SAFETY: mapped memory.
    let write = || unsafe {
        use std::os::fd::AsRawFd;
        libc::write(start.as_raw_fd(), at.add(200 * PAGE).cast(), 16)
    };
    assert_eq!((write(), std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EFAULT)));
    expect(at, 300, 1);
    assert_eq!(write(), 16);
}
