//! The runtime's switches, read once from the environment.
//!
//! Owns names, values and defaults. A value that is not understood counts as
//! unset: the launcher checks spelling, a library inside somebody's program
//! stays silent.

use core::ffi::CStr;

use crate::held::Holding;
use crate::source::Allowed;
use crate::step::Step;
use crate::sys::Fault;
use crate::vma::dec;

/// When to freeze.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Freeze {
    /// By the rental rule: never worse than twice the best choice in hindsight.
    #[default]
    Auto,
    /// At the first fork that finds something, and refreeze at every fork that does.
    Eager,
    /// Not at all, except by the API.
    Never,
}

/// How the program's own mapping of frozen memory is kept between forks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Profile {
    /// Static, or live where forks are long and few (`engine/choice.rs`).
    #[default]
    Auto,
    /// Always private.
    Static,
    /// Shared while no child shows the file (`live.rs`).
    Live,
}

/// In which form to report statistics at exit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Report {
    #[default]
    None,
    Text,
    Json,
}

/// All switches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    pub freeze: Freeze,
    pub image: Allowed,
    pub holding: Holding,
    pub profile: Profile,
    /// Longest time that a pass holds the program, in nanoseconds; 0: no bound.
    pub max_pause_ns: u64,
    /// Where files of huge pages are made; empty: wherever they can be had.
    pub image_dir: [u8; 256],
    pub report: Report,
    /// Where statistics go; empty: standard error.
    pub report_file: [u8; 256],
    /// Only the process with this pid reports; 0: every one.
    pub report_pid: i32,
    /// The name of the program that reports.
    pub program: [u8; 256],
    pub fault: Fault,
}

impl Options {
    /// All defaults.
    pub const fn new() -> Self {
        Options {
            freeze: Freeze::Auto,
            image: Allowed::Auto,
            holding: Holding::Auto,
            profile: Profile::Auto,
            max_pause_ns: 0,
            image_dir: [0; 256],
            report: Report::None,
            report_file: [0; 256],
            report_pid: 0,
            program: [0; 256],
            fault: Fault::None,
        }
    }

    /// Reads the environment of the process.
    pub fn from_env() -> Self {
        let mut o = Options::new();
        o.holding = match var(c"ODFORK_THREADS") {
            b"userfaultfd" => Holding::Userfaultfd,
            b"ptrace" => Holding::Ptrace,
            _ => Holding::Auto,
        };
        o.profile = match var(c"ODFORK_PROFILE") {
            b"live" => Profile::Live,
            b"static" => Profile::Static,
            _ => Profile::Auto,
        };
        o.complete([var(c"ODFORK_FREEZE"), var(c"ODFORK_IMAGE"), var(c"ODFORK_MAX_PAUSE")]);
        copy_path(var(c"ODFORK_IMAGE_DIR"), &mut o.image_dir, UNFIT);
        o.report = match var(c"ODFORK_STATS") {
            b"text" => Report::Text,
            b"json" => Report::Json,
            _ => Report::None,
        };
        copy_path(var(c"ODFORK_STATS_FILE"), &mut o.report_file, b"");
        o.report_pid = dec(var(c"ODFORK_PID")).unwrap_or(0) as i32;
        if o.report != Report::None {
            copy_path(program_name(), &mut o.program, b"?");
        }
        o.fault = parse_fault(var(c"ODFORK_FAULT"));
        o
    }
}

impl Options {
    /// What depends on the profile where nothing was said. Live memory in one piece, or by the
    /// rental rule, or of 4 KB pages, was slower than stock (docs/experiments/redis.md).
    fn complete(&mut self, [freeze, image, pause]: [&[u8]; 3]) {
        let said = match freeze {
            b"eager" => Some(Freeze::Eager),
            b"never" => Some(Freeze::Never),
            b"auto" => Some(Freeze::Auto),
            _ => None,
        };
        let (otherwise, kind, pause_ms) = match (self.profile, said) {
            (Profile::Live, None) => (Freeze::Eager, Allowed::Huge, LIVE_PAUSE_MS),
            _ => (Freeze::Auto, Allowed::Auto, 0),
        };
        self.freeze = said.unwrap_or(otherwise);
        self.image = match image {
            b"huge" => Allowed::Huge,
            b"small" => Allowed::Small,
            b"auto" => Allowed::Auto,
            _ => kind,
        };
        self.max_pause_ns = dec(pause).unwrap_or(pause_ms).saturating_mul(1_000_000);
        let is_open = self.freeze == Freeze::Auto && self.image != Allowed::Small;
        if self.profile == Profile::Auto && !is_open {
            self.profile = Profile::Static;
        }
    }

    /// The bound of slices where live memory was chosen.
    pub fn live_pause_ns(&self) -> u64 {
        match self.max_pause_ns {
            0 => LIVE_PAUSE_MS * 1_000_000,
            said => said,
        }
    }
}

/// Servers wait for longer than that now and then anyway.
const LIVE_PAUSE_MS: u64 = 5;

/// A path that leads nowhere, in place of one that is too long.
const UNFIT: &[u8] = b"/dev/null/path too long";

/// The path with a zero behind it; `unfit` if there is no room.
fn copy_path(path: &[u8], to: &mut [u8; 256], unfit: &[u8]) {
    let path = if path.len() < to.len() { path } else { unfit };
    to[..path.len()].copy_from_slice(path);
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

/// To be copied at once: it is a piece of the first argument, where servers write what `ps` shows.
fn program_name() -> &'static [u8] {
    extern "C" {
        static program_invocation_short_name: *const core::ffi::c_char;
    }
    // SAFETY: set by the C library before constructors run; the string as in `var`.
    unsafe {
        if program_invocation_short_name.is_null() {
            return b"?";
        }
        CStr::from_ptr(program_invocation_short_name).to_bytes()
    }
}

/// Empty, too, in a program that has more rights than whoever runs it, where /etc/ld.so.preload
/// brings this library: the caller must not choose its files.
fn var(name: &CStr) -> &'static [u8] {
    // SAFETY: read in the library's constructor, before the program can change
    // its environment; the string is copied from before control returns.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        if value.is_null() || libc::getauxval(libc::AT_SECURE) != 0 {
            &[]
        } else {
            CStr::from_ptr(value).to_bytes()
        }
    }
}

/// Parses `N:ERRNO`, `N+:ERRNO`, `step:ERRNO` or `slow:MS`.
pub fn parse_fault(text: &[u8]) -> Fault {
    let Some(colon) = text.iter().position(|&b| b == b':') else { return Fault::None };
    let (what, errno) = (&text[..colon], &text[colon + 1..]);
    let Some(errno) = dec(errno).filter(|&e| e > 0 && e < 4096).map(|e| e as i32) else {
        return Fault::None;
    };
    if what == b"slow" {
        return Fault::Slow { ms: errno as u32 };
    }
    let onward = what.last() == Some(&b'+');
    let number = if onward { &what[..what.len() - 1] } else { what };
    if let Some(nth) = dec(number) {
        return Fault::Nth { nth: nth as u32, onward, errno };
    }
    Step::named(what).map_or(Fault::None, |step| Fault::Step { step, errno })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_whole_or_lead_nowhere() {
        let mut to = [0; 256];
        copy_path(&[b'/'; 255], &mut to, UNFIT);
        assert_eq!((to[254], to[255]), (b'/', 0));
        let mut to = [0; 256];
        copy_path(&[b'/'; 256], &mut to, UNFIT);
        assert!(to.starts_with(b"/dev/null/") && to[255] == 0);
    }

    #[test]
    fn a_profile_chooses_what_was_not_said() {
        let complete = |profile, words: [&str; 3]| {
            let mut o = Options { profile, ..Options::new() };
            o.complete(words.map(str::as_bytes));
            (o.freeze, o.image, o.max_pause_ns)
        };
        let (still, live, ms) = (Profile::Static, Profile::Live, 1_000_000);
        let (auto, eager, any, huge) = (Freeze::Auto, Freeze::Eager, Allowed::Auto, Allowed::Huge);
        assert_eq!(complete(still, ["", "", ""]), (auto, any, 0));
        assert_eq!(complete(still, ["eager", "huge", "2"]), (eager, huge, 2 * ms));
        assert_eq!(complete(live, ["", "", ""]), (eager, huge, 5 * ms));
        assert_eq!(complete(live, ["", "auto", "0"]), (eager, any, 0));
        assert_eq!(complete(live, ["auto", "", ""]), (auto, any, 0));
        assert_eq!(complete(live, ["eager", "small", "1"]), (eager, Allowed::Small, ms));
        assert_eq!(complete(live, ["odd", "odd", "odd"]), (eager, huge, 5 * ms));
    }

    #[test]
    fn faults() {
        assert_eq!(parse_fault(b"7:12"), Fault::Nth { nth: 7, onward: false, errno: 12 });
        assert_eq!(parse_fault(b"7+:12"), Fault::Nth { nth: 7, onward: true, errno: 12 });
        assert_eq!(parse_fault(b"slow:20"), Fault::Slow { ms: 20 });
        assert_eq!(parse_fault(b"copy:5"), Fault::Step { step: Step::Copy, errno: 5 });
        for bad in ["", "7", "7:", "7:0", ":", "7:x"] {
            assert_eq!(parse_fault(bad.as_bytes()), Fault::None, "{bad:?}");
        }
    }
}
