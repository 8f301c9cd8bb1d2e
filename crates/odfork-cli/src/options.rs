//! The one table of everything a user can set: flag of `odfork run`, environment variable, values,
//! default, words.
//!
//! The parser, `--help`, the man pages, docs/options.md and the typo check are all made from
//! `SETTINGS`; none of them keeps a list of its own. What a setting does lives in the runtime
//! crate, not here.

/// One value that a setting accepts by name.
pub struct Choice {
    pub name: &'static str,
    pub help: &'static str,
}

/// What may stand after a flag or in a variable.
pub enum Values {
    OneOf(&'static [Choice]),
    File,
    Switch,
    /// What it should be, and whether it is.
    Words(&'static str, fn(&str) -> bool),
}

/// Who acts on a setting, and so who must know its variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reader {
    Library,
    Launcher,
    Tests,
}

pub struct Setting {
    /// Long flag of `odfork run`, without the dashes; None when only a variable exists.
    pub flag: Option<&'static str>,
    pub short: Option<char>,
    pub variable: &'static str,
    pub metavar: &'static str,
    pub values: Values,
    pub default: &'static str,
    pub reader: Reader,
    /// One line for `--help`.
    pub help: &'static str,
    /// What the documents say beyond that line.
    pub detail: &'static str,
}

pub const ENGINE: &str = "ODFORK_ENGINE";
pub const FREEZE: &str = "ODFORK_FREEZE";
pub const IMAGE: &str = "ODFORK_IMAGE";
pub const IMAGE_DIR: &str = "ODFORK_IMAGE_DIR";
pub const THREADS: &str = "ODFORK_THREADS";
pub const PROFILE: &str = "ODFORK_PROFILE";
pub const MAX_PAUSE: &str = "ODFORK_MAX_PAUSE";
pub const STATS: &str = "ODFORK_STATS";
pub const STATS_FILE: &str = "ODFORK_STATS_FILE";
pub const PID: &str = "ODFORK_PID";
pub const LIB: &str = "ODFORK_LIB";
pub const QUIET: &str = "ODFORK_QUIET";

/// Every variable of ours starts so; anything else that does is a typing error.
pub const PREFIX: &str = "ODFORK_";

/// Not a slip, though it is no setting of `run`: the folder of `odfork kernel`, the file of `odfork
/// image load`.
pub const OF_OTHER_COMMANDS: [&str; 2] = ["ODFORK_KERNEL_TREE", crate::image::FILE];

pub static SETTINGS: [Setting; 13] = [
    Setting {
        flag: Some("engine"),
        short: None,
        variable: ENGINE,
        metavar: "ENGINE",
        values: Values::OneOf(&[
            Choice {
                name: "auto",
                help: "kernel where the kernel can and no option is the image's alone, else image",
            },
            Choice { name: "image", help: "the preloaded library moves memory into an image" },
            Choice {
                name: "kernel",
                help: "fork shares page tables; nothing is preloaded; any program",
            },
        ]),
        default: "auto",
        reader: Reader::Launcher,
        help: "What makes forks cheap",
        detail: "The kernel engine needs Linux built with CONFIG_COW_PTE_TABLES (`odfork kernel \
                 deb`) and `vm.cow_fork` other than 0; `kernel` without it is an error (exit \
                 status 2), `auto` takes the image then. It works for static, Go and threaded \
                 programs, and programs they start; setuid programs are left out. `--freeze` and \
                 `--image` mean nothing to it, so with them `auto` is `image`. With `--stats`, \
                 odfork stays as the program's parent, as time(1) does, and writes what the kernel \
                 counted meanwhile, for the whole system.",
    },
    Setting {
        flag: Some("freeze"),
        short: None,
        variable: FREEZE,
        metavar: "MODE",
        values: Values::OneOf(&[
            Choice {
                name: "auto",
                help: "when the plain forks have cost as much as a freeze would",
            },
            Choice { name: "eager", help: "at the first fork that finds memory worth freezing" },
            Choice {
                name: "never",
                help: "only when the program asks by the API; else plain fork",
            },
        ]),
        default: "auto",
        reader: Reader::Library,
        help: "When to move the program's memory into an image",
        detail: "Freezing costs about one copy of the memory in use, and pays when the program \
                 forks often. `auto` never costs more than twice the better of the two choices. \
                 `eager` is for a program known to fork many times; it also refreezes dirty memory \
                 before a fork, when 256 page faults or more have passed.",
    },
    Setting {
        flag: Some("image"),
        short: None,
        variable: IMAGE,
        metavar: "KIND",
        values: Values::OneOf(&[
            Choice { name: "auto", help: "huge when this machine gives one, else small" },
            Choice {
                name: "huge",
                help: "2 MB pages or no freezing, with the reason in the statistics",
            },
            Choice { name: "small", help: "4 KB pages, to be had everywhere" },
        ]),
        default: "auto",
        reader: Reader::Library,
        help: "Pages that the image is made of",
        detail: "Children read a huge image through 2 MB mappings, yet copy only 4 KB where they \
                 write. `odfork check` tells which kind this machine and this user can have.",
    },
    Setting {
        flag: Some("image-dir"),
        short: None,
        variable: IMAGE_DIR,
        metavar: "DIR",
        values: Values::File,
        default: "none",
        reader: Reader::Library,
        help: "Make huge images in this directory, or none",
        detail: "For containers and services that may not mount: `mount -t tmpfs -o \
                 huge=always,size=0,mode=1777 odfork DIR` on the host, and DIR passed in. The \
                 files have no name and are open to their owner only. DIR must be on a tmpfs \
                 without size limit, not mounted noexec, belong to root or the user, and be \
                 writable to nobody else unless it is sticky; else nothing is frozen \
                 (`image-dir`), and `odfork check`, with this variable, says why. The flag turns a \
                 relative path into an absolute one.",
    },
    Setting {
        flag: Some("threads"),
        short: None,
        variable: THREADS,
        metavar: "WAY",
        values: Values::OneOf(&[
            Choice { name: "auto", help: "by userfaultfd where it is allowed, else by ptrace" },
            Choice { name: "userfaultfd", help: "whoever writes waits; else plain fork" },
            Choice { name: "ptrace", help: "all are stopped, without a privilege" },
        ]),
        default: "auto",
        reader: Reader::Library,
        help: "How other threads are held while memory moves",
        detail: "Under `ptrace` calls that wait are begun again unseen. Threads in calls that \
                 cannot be are not held: then that fork is plain (`busy`). It needs a process that \
                 may be dumped and, under Yama, `ptrace_scope` 0 or 1; a filter must allow ptrace.",
    },
    Setting {
        flag: Some("profile"),
        short: None,
        variable: PROFILE,
        metavar: "PROFILE",
        values: Values::OneOf(&[
            Choice { name: "auto", help: "static, or live where forks are long and few" },
            Choice {
                name: "static",
                help:
                    "frozen memory is private: what is rewritten is copied, and refrozen at forks",
            },
            Choice {
                name: "live",
                help: "frozen memory is shared with its file while no child shows it",
            },
        ]),
        default: "auto",
        reader: Reader::Library,
        help: "How the program's own frozen memory is mapped between forks",
        detail: "`live` is for servers that rewrite memory between forks and wait for their \
                 children. Unless told otherwise it takes `--freeze eager --image huge --max-pause \
                 5`. It applies to huge images, and to memory that the program maps itself; what \
                 it does not apply to is static. `auto` becomes `live` after two forks in a row \
                 that took 2 ms or more and less than a 160th of the time since the one before; \
                 eight that are no better, or too much work, and it is `static` for good. With \
                 `--freeze eager` or `never`, or `--image small`, it is `static`. See \
                 docs/limits.md.",
    },
    Setting {
        flag: Some("max-pause"),
        short: None,
        variable: MAX_PAUSE,
        metavar: "MS",
        values: Values::Words("whole milliseconds", is_number),
        default: "no bound",
        reader: Reader::Library,
        help: "Freeze and refreeze outside of forks, in slices no longer than this",
        detail: "0 is no bound. A slice is made when the program is about to wait (poll, \
                 epoll_wait, select, a sleep, wait and their kin) or maps memory, and the program \
                 runs for as long as the slice took before the next one. With threads it takes \
                 `--threads auto` or `ptrace`. See docs/limits.md.",
    },
    Setting {
        flag: Some("stats"),
        short: None,
        variable: STATS,
        metavar: "FORMAT",
        values: Values::OneOf(&[
            Choice { name: "text", help: "a short table for people" },
            Choice { name: "json", help: "one line, one object, with a schema number" },
        ]),
        default: "none",
        reader: Reader::Library,
        help: "Write statistics when the program exits",
        detail: "Written at exit(), return from main and _exit(). A program killed by a signal \
                 writes none. What the kernel engine writes instead: ODFORK_ENGINE.",
    },
    Setting {
        flag: Some("stats-file"),
        short: None,
        variable: STATS_FILE,
        metavar: "FILE",
        values: Values::File,
        default: "standard error",
        reader: Reader::Library,
        help: "Where the statistics go (%p becomes the pid)",
        detail: "The flag turns a relative path into an absolute one, so that the program may \
                 change its directory; the variable is taken as it is.",
    },
    Setting {
        flag: Some("quiet"),
        short: Some('q'),
        variable: QUIET,
        metavar: "1",
        values: Values::Switch,
        default: "off",
        reader: Reader::Launcher,
        help: "No line when the program cannot be accelerated",
        detail: "Also hides warnings about unknown ODFORK_* variables. Errors are shown all the \
                 same.",
    },
    Setting {
        flag: None,
        short: None,
        variable: LIB,
        metavar: "PATH",
        values: Values::File,
        default: "found beside the launcher",
        reader: Reader::Launcher,
        help: "The libodfork.so to preload",
        detail: "Without it the launcher looks beside itself, then in ../lib/odfork/, ../lib/, \
                 Debian's folder below that, and ../lib64/.",
    },
    Setting {
        flag: None,
        short: None,
        variable: PID,
        metavar: "PID",
        values: Values::Words("a process id", is_number),
        default: "unset",
        reader: Reader::Library,
        help: "Only the process with this id reports statistics",
        detail: "`odfork run` sets it to its own id, which becomes the program's. Unset, every \
                 process that loads the library by exec reports.",
    },
    Setting {
        flag: None,
        short: None,
        variable: "ODFORK_FAULT",
        metavar: "WHERE:ERRNO",
        values: Values::Words("N:ERRNO, N+:ERRNO, STEP:ERRNO or slow:MS", is_fault),
        default: "unset",
        reader: Reader::Tests,
        help: "Tests only: make a call of the freeze path fail",
        detail:
            "The N-th call, every call from the N-th on, or every call of the named step fails \
                 with that errno number; `slow` delays every call of the step `copy`.",
    },
];

/// As the library reads numbers: decimal digits alone.
fn is_number(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii_digit()) && value.parse::<u64>().is_ok()
}

fn is_fault(value: &str) -> bool {
    value.split_once(':').is_some_and(|(place, errno)| !place.is_empty() && is_number(errno))
}

/// The setting behind an environment variable.
pub fn by_variable(variable: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.variable == variable)
}

/// The settings that `odfork run` offers as flags, in the order of its help.
pub fn flags() -> impl Iterator<Item = (&'static str, &'static Setting)> {
    SETTINGS.iter().filter_map(|setting| setting.flag.map(|flag| (flag, setting)))
}

impl Setting {
    /// The values in words: `auto, eager or never`.
    pub fn accepted(&self) -> String {
        match &self.values {
            Values::OneOf(choices) => {
                listed(&choices.iter().map(|choice| choice.name).collect::<Vec<_>>())
            }
            Values::File => "a path".to_owned(),
            Values::Switch => "1".to_owned(),
            Values::Words(words, _) => (*words).to_owned(),
        }
    }

    /// Whether the value is one that its reader understands.
    pub fn accepts(&self, value: &str) -> bool {
        match &self.values {
            Values::OneOf(choices) => choices.iter().any(|choice| choice.name == value),
            Values::File | Values::Switch => true,
            Values::Words(_, fits) => fits(value),
        }
    }

    /// The accepted value that the user most likely meant.
    pub fn nearest_value(&self, value: &str) -> Option<&'static str> {
        match &self.values {
            Values::OneOf(choices) => nearest(value, choices.iter().map(|choice| choice.name)),
            _ => None,
        }
    }
}

/// The candidate closest to what was typed, when it is close enough to be a slip: one edit per
/// three characters, at least one. An edit is an insertion, deletion, substitution or swap of
/// neighbours.
pub fn nearest<'a>(typed: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (typed.chars().count() / 3).max(1);
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(typed, candidate), candidate))
        .filter(|(distance, candidate)| {
            *distance <= allowed && *distance < candidate.chars().count()
        })
        .min()
        .map(|(_, candidate)| candidate)
}

/// `a`, `a or b`, `a, b or c`.
pub fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [head @ .., last] => format!("{} or {last}", head.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_has_the_prefix_and_stands_once() {
        for (index, setting) in SETTINGS.iter().enumerate() {
            assert!(setting.variable.starts_with(PREFIX), "{}", setting.variable);
            assert!(SETTINGS[index + 1..].iter().all(|other| other.variable != setting.variable));
        }
    }

    #[test]
    fn a_default_of_a_choice_is_one_of_its_values() {
        for setting in &SETTINGS {
            if matches!(setting.values, Values::OneOf(_)) {
                assert!(
                    setting.default == "none" || setting.accepts(setting.default),
                    "{}",
                    setting.variable
                );
            }
        }
    }

    #[test]
    fn slips_find_their_name_and_other_words_do_not() {
        let names = || SETTINGS.iter().map(|setting| setting.variable);
        assert_eq!(nearest("ODFORK_FREZE", names()), Some("ODFORK_FREEZE"));
        assert_eq!(nearest("ODFORK_STAST", names()), Some("ODFORK_STATS"));
        assert_eq!(nearest("pyton3", ["python3", "perl"].into_iter()), Some("python3"));
        assert_eq!(nearest("x", ["y", "ab"].into_iter()), None);
        assert_eq!(nearest("gimp", ["python3"].into_iter()), None);
    }

    #[test]
    fn lists_read_like_english() {
        assert_eq!(listed(&["a"]), "a");
        assert_eq!(listed(&["a", "b"]), "a or b");
        assert_eq!(listed(&["a", "b", "c"]), "a, b or c");
    }
}
