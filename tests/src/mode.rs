//! The modes a program is run under, and the environment that makes each of them.
//!
//! Owns: the names of the modes and the `ODFORK_*` variables each stands for. Does not own what a
//! mode must show in the statistics (`verdict`) or how a process is started (`run`).

/// One way of running a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// No preload: the judge.
    Stock,
    /// Eager freezing into an image of huge pages.
    Huge,
    /// Eager freezing into an image of 4 KB pages.
    Small,
    /// The default rule decides when to freeze.
    Auto,
    /// Eager freezing in a process without privileges.
    User,
    /// As `Huge`, and memory is shared while no child shows it.
    Live,
    /// As `Live`, in slices outside of forks.
    Slices,
}

/// The user and group a program of mode `user` runs as.
pub const UNPRIVILEGED: u32 = 65534;

impl Mode {
    pub const ALL: [Mode; 7] =
        [Mode::Stock, Mode::Huge, Mode::Small, Mode::Auto, Mode::User, Mode::Live, Mode::Slices];
    /// What a header without `modes=` means.
    pub const DEFAULT: [Mode; 4] = [Mode::Stock, Mode::Huge, Mode::Small, Mode::User];

    pub fn name(self) -> &'static str {
        match self {
            Mode::Stock => "stock",
            Mode::Huge => "huge",
            Mode::Small => "small",
            Mode::Auto => "auto",
            Mode::User => "user",
            Mode::Live => "live",
            Mode::Slices => "slices",
        }
    }

    pub fn parse(word: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|m| m.name() == word)
    }

    pub fn preloads(self) -> bool {
        self != Mode::Stock
    }

    pub fn unprivileged(self) -> bool {
        self == Mode::User
    }

    /// The switches of this mode; statistics are set up by the caller.
    pub fn switches(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Mode::Stock | Mode::Auto => &[],
            Mode::Huge => &[("ODFORK_FREEZE", "eager"), ("ODFORK_IMAGE", "huge")],
            Mode::Small => &[("ODFORK_FREEZE", "eager"), ("ODFORK_IMAGE", "small")],
            Mode::User => &[("ODFORK_FREEZE", "eager")],
            Mode::Live => {
                &[("ODFORK_FREEZE", "eager"), ("ODFORK_IMAGE", "huge"), ("ODFORK_PROFILE", "live")]
            }
            Mode::Slices => {
                &[("ODFORK_FREEZE", "eager"), ("ODFORK_MAX_PAUSE", "1"), ("ODFORK_PROFILE", "live")]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_back() {
        for mode in Mode::ALL {
            assert_eq!(Mode::parse(mode.name()), Some(mode));
        }
        assert_eq!(Mode::parse("hugo"), None);
    }
}
