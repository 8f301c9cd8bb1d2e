//! How subjects and whole programs are started: this program again, with what its configuration
//! needs and nothing else.
//!
//! A plain subject has no LD_PRELOAD and no ODFORK_ variable, one of the configuration `image` has
//! exactly those it asks for; nothing else differs, not even the executable.

use std::path::{Path, PathBuf};
use std::process::Command as Process;

use crate::configuration::{Configuration, Freeze, Subject};
use crate::plan::Program;
use crate::workload::memory::Layout;
use crate::workload::python;

/// What every subject of a run shares.
#[derive(Clone, Debug)]
pub struct Stage {
    /// This program.
    pub program: PathBuf,
    /// `libodfork.so`.
    pub library: PathBuf,
    /// ODFORK_IMAGE, when the user chose one.
    pub image: Option<String>,
    /// The processor subjects are kept on.
    pub cpu: Option<usize>,
}

impl Stage {
    fn process(&self, program: &Path, preload: Option<Freeze>) -> Process {
        let mut process = Process::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ODFORK_") {
                process.env_remove(name);
            }
        }
        process.env_remove("LD_PRELOAD");
        if let Some(freeze) = preload {
            process.env("LD_PRELOAD", &self.library);
            process.env("ODFORK_FREEZE", freeze.word());
            if let Some(image) = &self.image {
                process.env("ODFORK_IMAGE", image);
            }
        }
        process
    }

    /// How a subject is started: this program, `subject` and what it holds; or Python with a
    /// program of its own.
    pub fn subject(&self, subject: &Subject) -> Process {
        if subject.is_python {
            let mut process = self.process(python::INTERPRETER.as_ref(), None);
            let memory = (subject.size, subject.touched.unwrap_or(subject.size));
            python::describe(&mut process, memory, self.cpu.filter(|_| subject.pinned));
            return process;
        }
        let mut process =
            self.process(&self.program, preload(subject.configuration, subject.freeze));
        process.arg("subject");
        self.describe(&mut process, subject.size, subject.layout, subject.pinned);
        process.args(["--threads", &subject.threads.to_string()]);
        if let Some(touched) = subject.touched {
            process.args(["--touched", &touched.to_string()]);
        }
        process.args(role_of(subject.configuration));
        process
    }

    /// How a program is started that does all its forks by itself.
    pub fn whole_program(&self, program: &Program) -> Process {
        let mut process =
            self.process(&self.program, preload(program.configuration, program.freeze));
        process.arg("program");
        self.describe(&mut process, program.size, Layout::Mapped, true);
        process.args(["--forks", &program.forks.to_string()]);
        process.args(role_of(program.configuration));
        process
    }

    fn describe(&self, process: &mut Process, size: u64, layout: Layout, pinned: bool) {
        process.args(["--size", &size.to_string(), "--layout", layout.word()]);
        if let Some(cpu) = self.cpu.filter(|_| pinned) {
            process.args(["--cpu", &cpu.to_string()]);
        }
    }
}

fn preload(configuration: Configuration, freeze: Freeze) -> Option<Freeze> {
    (configuration == Configuration::Image).then_some(freeze)
}

/// What a subject must be told of its configuration, where the environment does not say it.
fn role_of(configuration: Configuration) -> Option<&'static str> {
    match configuration {
        Configuration::Kernel => Some("--kernel-odf"),
        Configuration::Null => Some("--null"),
        _ => None,
    }
}

/// The reason for a point that is left out.
pub fn why_not_started(is_python: bool, error: &anyhow::Error) -> String {
    match is_python {
        true => format!("python-subprocess left out: {error:#}; install python3"),
        false => format!("{error:#}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    use Configuration::{Image, Kernel, Null, Plain};

    fn stage() -> Stage {
        Stage {
            program: "bench".into(),
            library: "libodfork.so".into(),
            image: Some("small".into()),
            cpu: Some(1),
        }
    }

    fn variable<'a>(process: &'a Process, name: &str) -> Option<&'a OsStr> {
        process
            .get_envs()
            .find(|(known, _)| *known == OsStr::new(name))
            .and_then(|(_, value)| value)
    }

    #[test]
    fn a_plain_subject_has_nothing_preloaded() {
        let process = stage().subject(&Subject::new(Plain, 4096));
        assert_eq!(variable(&process, "LD_PRELOAD"), None);
        assert_eq!(variable(&process, "ODFORK_FREEZE"), None);
    }

    #[test]
    fn a_preloaded_subject_has_the_switches_it_asks_for() {
        let process = stage().subject(&Subject::new(Image, 4096));
        assert_eq!(variable(&process, "LD_PRELOAD"), Some(OsStr::new("libodfork.so")));
        assert_eq!(variable(&process, "ODFORK_FREEZE"), Some(OsStr::new("eager")));
        assert_eq!(variable(&process, "ODFORK_IMAGE"), Some(OsStr::new("small")));
        let arguments: Vec<_> = process.get_args().collect();
        assert_eq!(arguments[0], "subject");
        assert!(arguments.contains(&OsStr::new("--cpu")));
    }

    #[test]
    fn a_subject_is_told_what_its_environment_does_not_say() {
        let arguments = |subject: Subject| -> Vec<String> {
            let process = stage().subject(&subject);
            assert_eq!(variable(&process, "LD_PRELOAD"), None);
            process.get_args().map(|word| word.to_string_lossy().into_owned()).collect()
        };
        let plain = arguments(Subject::new(Plain, 8192));
        let null = arguments(Subject::new(Null, 8192));
        assert_eq!(null[..plain.len()], plain);
        assert_eq!(null[plain.len()..], ["--null"]);
        let subject = Subject { touched: Some(4096), ..Subject::new(Kernel, 8192) };
        assert_eq!(arguments(subject)[plain.len()..], ["--touched", "4096", "--kernel-odf"]);
    }

    #[test]
    fn a_subject_that_is_python_is_not_this_program_and_is_missed_by_its_name() {
        let subject = Subject { is_python: true, touched: Some(4096), ..Subject::new(Plain, 8192) };
        let process = stage().subject(&subject);
        assert_eq!(process.get_program(), python::INTERPRETER);
        assert_eq!(variable(&process, "LD_PRELOAD"), None);
        let words: Vec<_> = process.get_args().collect();
        assert_eq!(words[3..6], ["8192", "4096", "1"]);
        let why = why_not_started(true, &anyhow::anyhow!("no such file"));
        assert!(why.contains("python-subprocess") && why.contains("install python3"), "{why}");
    }
}
