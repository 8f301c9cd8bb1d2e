//! What the cases ask the kernel about this process, and do to it.
//!
//! Owns: counting descriptors and children, signal dispositions and masks, becoming another user, a
//! folder of one's own. Plain libc calls; it judges nothing but that no child and no descriptor is
//! left.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Open descriptors of this process, without the one that reads the list.
pub fn descriptors() -> BTreeSet<i32> {
    if has_a_sanitizer() && !std::env::args().any(|word| word == "--probe") {
        return BTreeSet::new();
    }
    let list = std::fs::read_dir("/proc/self/fd").expect("/proc");
    let open = |fd: &i32| {
        // SAFETY: asks only.
        unsafe { libc::fcntl(*fd, libc::F_GETFD) >= 0 }
    };
    let numbers: Vec<i32> =
        list.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    numbers.into_iter().filter(open).collect()
}

/// ThreadSanitizer starts a program of its own that finds names, and keeps it and its pipes.
fn has_a_sanitizer() -> bool {
    std::env::var_os("TSAN_OPTIONS").is_some()
}

/// No child of this process is left, ended or not.
pub fn no_child_is_left() {
    if has_a_sanitizer() {
        return;
    }
    // SAFETY: no status is stored.
    let found = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL) };
    let error = std::io::Error::last_os_error();
    assert_eq!((found, error.raw_os_error()), (-1, Some(libc::ECHILD)), "a child is left");
}

/// Runs `work` and requires that it leaves neither descriptors nor children.
pub fn leaves_nothing<T>(work: impl FnOnce() -> T) -> T {
    let before = descriptors();
    let result = work();
    assert_eq!(descriptors(), before, "descriptors before and after differ");
    no_child_is_left();
    result
}

/// The mask of the calling thread.
pub fn mask() -> u64 {
    let mut set = 0u64;
    // SAFETY: reads 8 bytes, the kernel's size of a set.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, 0, &raw mut set, 8) };
    set
}

/// Handler, flags and mask of every signal, as the kernel has them.
pub fn dispositions() -> Vec<[u64; 4]> {
    let of = |signal: i32| {
        let mut action = [0u64; 4];
        // SAFETY: the kernel's action is four words on x86-64.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, 0, &raw mut action, 8) };
        action
    };
    (1..=64).map(of).collect()
}

/// Sets a handler, `SIG_IGN` or `SIG_DFL`.
pub fn on(signal: i32, handler: usize, flags: i32) {
    // SAFETY: a zeroed action is valid; the handlers of the cases only store atomics.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (action.sa_sigaction, action.sa_flags) = (handler, flags);
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

pub fn set_limit(resource: u32, soft: u64) -> u64 {
    // SAFETY: both structures are valid.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        assert_eq!(libc::getrlimit(resource, &mut limit), 0);
        let old = std::mem::replace(&mut limit.rlim_cur, soft);
        assert_eq!(libc::setrlimit(resource, &limit), 0);
        old
    }
}

pub fn is_root() -> bool {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() == 0 }
}

pub fn require_root() -> Result<(), String> {
    if is_root() {
        return Ok(());
    }
    Err("needs root".into())
}

/// The user the cases become: nobody's number on Debian, but any number will do.
pub const USER: u32 = 65534;

/// Becomes `user`, without a way back.
pub fn become_user(user: u32) {
    // SAFETY: numbers only.
    unsafe {
        assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
        assert_eq!(libc::setgid(user), 0);
        assert_eq!(libc::setuid(user), 0);
    }
}

/// A folder that is removed with all it holds, and entered by everybody.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        let mut template = *b"/tmp/odfork-attack-XXXXXX\0";
        // SAFETY: a template of our own that ends with a zero byte.
        let made = unsafe { libc::mkdtemp(template.as_mut_ptr().cast()) };
        assert!(!made.is_null(), "mkdtemp: {}", std::io::Error::last_os_error());
        let path = PathBuf::from(std::str::from_utf8(&template[..template.len() - 1]).unwrap());
        set_mode(&path, 0o755);
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A file with this content and mode; its path.
    pub fn file(&self, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        set_mode(&path, mode);
        path
    }

    pub fn folder(&self, name: &str, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir(&path).unwrap();
        set_mode(&path, mode);
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}
