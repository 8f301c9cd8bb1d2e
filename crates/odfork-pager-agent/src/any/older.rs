//! What is done without on older kernels.

use odfork_sys::{args, raw};

/// Linux 6.12 moves a part of a huge page by splitting it first, and tries that without end where a
/// page of it is pinned: seen on 6.12.117, not on 6.18.
const SPLITS: (u32, u32) = (6, 18);

/// No huge pages in this process, nor in what it forks and executes.
pub fn avoid_huge_pages() {
    // SAFETY: a structure of numbers and text, filled in by the kernel.
    let mut name: libc::utsname = unsafe { core::mem::zeroed() };
    // SAFETY: room for what is told; numbers.
    unsafe {
        raw(libc::SYS_uname, args![&raw mut name]);
        if version(&name.release.map(|letter| letter as u8)) < SPLITS {
            raw(libc::SYS_prctl, args![libc::PR_SET_THP_DISABLE, 1, 0, 0, 0]);
        }
    }
}

fn version(release: &[u8]) -> (u32, u32) {
    let mut numbers = release.split(|byte| !byte.is_ascii_digit()).map(|digits| {
        let text = core::str::from_utf8(digits).unwrap_or_default();
        text.parse().unwrap_or_default()
    });
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_told_apart() {
        assert_eq!(version(b"6.12.117+deb13-amd64\0"), (6, 12));
        assert_eq!(version(b"7.0-rc1\0"), (7, 0));
        assert!(version(b"6.9.1\0") < SPLITS && version(b"6.18.44\0") >= SPLITS);
        assert_eq!(version(b""), (0, 0));
    }
}
