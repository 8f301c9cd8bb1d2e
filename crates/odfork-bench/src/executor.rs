//! The real executor: starts this program again as subjects, talks to them, times whole programs.
//!
//! A stock subject has no LD_PRELOAD and no ODFORK_ variable, an odfork subject has exactly those its
//! specification asks for; nothing else differs, not even the executable.

use std::path::PathBuf;
use std::process::Command as Process;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::experiments::{Act, Engine, ProgramSpec, SubjectSpec};
use crate::link::{Link, Loss};
use crate::pairing::{Executor, Reply};
use crate::workload::memory::{warm_free_memory, Layout};
use crate::workload::protocol::{Answer, Command};
use crate::workload::python;
use odfork_proc::interrupt;
use odfork_samples::environment;
use odfork_samples::stats::median;

/// No act takes longer than this, not even loading 8 GB next to another subject; repetitions add to it.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often memory is sampled while an act is watched.
const WATCH_STEP: Duration = Duration::from_millis(1);

/// What every subject of a run shares.
#[derive(Clone, Debug)]
pub struct Stage {
    /// This program.
    pub program: PathBuf,
    pub library: PathBuf,
    /// ODFORK_IMAGE, when the user chose one.
    pub image: Option<String>,
    /// The processor subjects are kept on.
    pub cpu: Option<usize>,
}

/// Talks to processes.
pub struct Processes {
    stage: Stage,
    links: Vec<Option<Link>>,
    sizes: Vec<u64>,
    start: Instant,
}

impl Stage {
    fn process(&self, engine: Engine) -> Process {
        let mut process = match engine {
            Engine::Python => Process::new(python::INTERPRETER),
            _ => Process::new(&self.program),
        };
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ODFORK_") {
                process.env_remove(name);
            }
        }
        process.env_remove("LD_PRELOAD");
        if let Engine::Odfork(freeze) = engine {
            process.env("LD_PRELOAD", &self.library);
            process.env("ODFORK_FREEZE", freeze.word());
            if let Some(image) = &self.image {
                process.env("ODFORK_IMAGE", image);
            }
        }
        process
    }

    /// How a subject is started: this program, `subject` and what it holds; or Python with a program of its own.
    pub fn subject(&self, spec: &SubjectSpec) -> Process {
        let mut process = self.process(spec.engine);
        if spec.engine == Engine::Python {
            let memory = (spec.size, spec.touched.unwrap_or(spec.size));
            python::describe(&mut process, memory, self.cpu.filter(|_| spec.pinned));
            return process;
        }
        process.arg("subject");
        self.describe(&mut process, spec.size, spec.layout, spec.pinned);
        process.args(["--threads", &spec.threads.to_string()]);
        if let Some(touched) = spec.touched {
            process.args(["--touched", &touched.to_string()]);
        }
        process.args(role_of(spec.engine));
        process
    }

    fn whole_program(&self, spec: &ProgramSpec) -> Process {
        let mut process = self.process(spec.engine);
        process.arg("program");
        self.describe(&mut process, spec.size, Layout::Mapped, true);
        process.args(["--forks", &spec.forks.to_string()]);
        process.args(role_of(spec.engine));
        process
    }

    fn describe(&self, process: &mut Process, size: u64, layout: Layout, pinned: bool) {
        process.args(["--size", &size.to_string(), "--layout", layout.word()]);
        if let Some(cpu) = self.cpu.filter(|_| pinned) {
            process.args(["--cpu", &cpu.to_string()]);
        }
    }
}

/// What a subject must be told of its engine, where the environment does not say it.
fn role_of(engine: Engine) -> Option<&'static str> {
    match engine {
        Engine::Stock | Engine::Odfork(_) | Engine::Python => None,
        Engine::Kernel => Some("--kernel-odf"),
        Engine::Null => Some("--null"),
    }
}

/// How long a command may take: bytes copied at 100 MB/s, page tables at 2 GB/s, programs in 10 ms.
fn patience(command: Command, size: u64) -> Duration {
    let size = size as f64;
    let seconds = match command {
        Command::Grid { forks, permille } => {
            f64::from(forks) * (size / 2e9 + size * f64::from(permille) / 1e11 + 0.01)
        }
        Command::Fork { calls } => f64::from(calls) * (size / 2e9 + 0.01),
        Command::Touch { .. } | Command::Service => size / 1e8,
        Command::Rounds { rounds, .. } => f64::from(rounds) * size / 1e8,
        Command::Exec { count, .. } => f64::from(count) * (size / 2e9 + 0.01),
        _ => 0.0,
    };
    PATIENCE + Duration::from_secs_f64(seconds)
}

impl Processes {
    pub fn new(stage: Stage) -> Self {
        Processes { stage, links: Vec::new(), sizes: Vec::new(), start: Instant::now() }
    }

    /// Memory that should be ready before the act is timed.
    fn appetite(&self, act: &Act) -> u64 {
        match act {
            // The program's own memory, and the image if it freezes: the same for every engine.
            Act::Run(program) => 2 * program.size,
            Act::Ask { subjects, command, .. } => {
                subjects.iter().map(|&subject| command.appetite(self.sizes[subject])).sum()
            }
        }
    }

    fn ask(&mut self, subjects: &[usize], command: Command) -> Reply {
        for &subject in subjects {
            if let Err(loss) = self.send(subject, command) {
                return self.lose(subject, loss);
            }
        }
        let mut answers = Vec::new();
        for &subject in subjects {
            let patience = patience(command, self.sizes[subject]);
            match self.receive(subject, patience) {
                Ok(answer) => answers.push(answer),
                Err(loss) => return self.lose(subject, loss),
            }
        }
        combine(answers)
    }

    /// Asks while the memory of the first subject is watched, then lets it thaw, unwatched.
    fn ask_watched(&mut self, subjects: &[usize], command: Command) -> Reply {
        let pid = match self.link(subjects[0]) {
            Ok(link) => link.pid(),
            Err(loss) => return self.lose(subjects[0], loss),
        };
        let (reply, peak) = watched(pid, || self.ask(subjects, command));
        let Reply::Values(mut values) = reply else {
            return reply;
        };
        values.push(("extra".into(), peak.held as f64));
        values.push(("extra-system".into(), peak.system as f64));
        match self.ask(subjects, Command::Thaw) {
            Reply::Values(_) => Reply::Values(values),
            other => other,
        }
    }

    fn link(&mut self, subject: usize) -> Result<&mut Link, Loss> {
        self.links
            .get_mut(subject)
            .and_then(Option::as_mut)
            .ok_or_else(|| Loss::Ended("it is gone".into()))
    }

    fn send(&mut self, subject: usize, command: Command) -> Result<(), Loss> {
        self.link(subject)?.send(&command.to_string())
    }

    fn receive(&mut self, subject: usize, patience: Duration) -> Result<Answer, Loss> {
        let line = self.link(subject)?.receive(patience)?;
        line.parse().map_err(|error| Loss::Ended(format!("it said {error}")))
    }

    fn lose(&mut self, subject: usize, loss: Loss) -> Reply {
        if loss == Loss::Interrupted {
            return Reply::Interrupted;
        }
        self.links[subject] = None;
        Reply::Wrong(loss.to_string())
    }

    fn run(&self, spec: &ProgramSpec) -> Reply {
        let mut process = self.stage.whole_program(spec);
        let start = Instant::now();
        let mut link = match Link::spawn(&mut process) {
            Ok(link) => link,
            Err(error) => return Reply::Wrong(format!("{error:#}")),
        };
        let finished = link.finish(PATIENCE);
        let time = start.elapsed();
        match finished {
            Ok(status) if status.success() => {
                Reply::Values(vec![("program".into(), time.as_nanos() as f64)])
            }
            Ok(status) => Reply::Wrong(format!("the program ended with {status}")),
            Err(Loss::Interrupted) => Reply::Interrupted,
            Err(loss) => Reply::Wrong(loss.to_string()),
        }
    }

    fn ready(&mut self, subject: usize) -> Option<String> {
        match self.receive(subject, PATIENCE) {
            Ok(Answer::Text(_)) => None,
            Ok(Answer::Unavailable(reason)) => Some(reason),
            Ok(other) => Some(format!("it began with: {other}")),
            Err(loss) => Some(loss.to_string()),
        }
    }
}

impl Executor for Processes {
    fn start(&mut self, specs: &[SubjectSpec]) -> Vec<Option<String>> {
        self.sizes = specs.iter().map(|spec| spec.size).collect();
        let mut failures = Vec::new();
        for spec in specs {
            match Link::spawn(&mut self.stage.subject(spec)) {
                Ok(link) => {
                    self.links.push(Some(link));
                    failures.push(None);
                }
                Err(error) => {
                    self.links.push(None);
                    failures.push(Some(why_not_started(spec.engine, &error)));
                }
            }
        }
        for (subject, failure) in failures.iter_mut().enumerate() {
            if failure.is_none() {
                *failure = self.ready(subject);
            }
        }
        failures
    }

    fn perform(&mut self, act: &Act) -> Reply {
        warm_free_memory(self.appetite(act));
        match act {
            Act::Run(spec) => self.run(spec),
            Act::Ask { subjects, command, watch: false } => self.ask(subjects, *command),
            Act::Ask { subjects, command, .. } => self.ask_watched(subjects, *command),
        }
    }

    fn stop(&mut self) {
        self.links.clear();
        self.sizes.clear();
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn available(&self) -> u64 {
        environment::memory_available()
    }

    fn interrupted(&self) -> bool {
        interrupt::asked()
    }
}

fn why_not_started(engine: Engine, error: &anyhow::Error) -> String {
    match engine {
        Engine::Python => format!("python-subprocess left out: {error:#}; install python3"),
        _ => format!("{error:#}"),
    }
}

/// One reply for several subjects: the median of each label; anything but values wins over values.
fn combine(answers: Vec<Answer>) -> Reply {
    let mut labels: Vec<(String, Vec<f64>)> = Vec::new();
    for answer in answers {
        match answer {
            Answer::Values(values) => {
                for (label, number) in values {
                    match labels.iter_mut().find(|(known, _)| *known == label) {
                        Some((_, numbers)) => numbers.push(number),
                        None => labels.push((label, vec![number])),
                    }
                }
            }
            Answer::Text(text) => return Reply::Text(text),
            Answer::Unavailable(reason) => return Reply::Unavailable(reason),
            Answer::Wrong(what) => return Reply::Wrong(what),
        }
    }
    let middle = |(label, numbers): (String, Vec<f64>)| Some((label, median(&numbers)?));
    Reply::Values(labels.into_iter().filter_map(middle).collect())
}

/// Memory taken beyond what was there at the start, in bytes.
#[derive(Clone, Copy, Default)]
struct Peak {
    /// By the process and its image: see `memory_held`.
    held: u64,
    /// By everything on the machine: how far MemAvailable fell.
    system: u64,
}

/// Does the act while a thread samples memory.
fn watched(pid: u32, act: impl FnOnce() -> Reply) -> (Reply, Peak) {
    let (stop, stopped) = mpsc::channel::<()>();
    let held = environment::memory_held(pid).unwrap_or(u64::MAX);
    let available = environment::memory_available();
    let watcher = std::thread::spawn(move || {
        let mut peak = Peak::default();
        while stopped.recv_timeout(WATCH_STEP) == Err(RecvTimeoutError::Timeout) {
            let now = environment::memory_held(pid).unwrap_or(0);
            peak.held = peak.held.max(now.saturating_sub(held));
            let gone = available.saturating_sub(environment::memory_available());
            peak.system = peak.system.max(gone);
        }
        peak
    });
    let reply = act();
    drop(stop);
    (reply, watcher.join().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::Freeze;
    use std::ffi::OsStr;

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
    fn a_stock_subject_has_nothing_preloaded() {
        let process = stage().subject(&SubjectSpec::new(Engine::Stock, 4096));
        assert_eq!(variable(&process, "LD_PRELOAD"), None);
        assert_eq!(variable(&process, "ODFORK_FREEZE"), None);
    }

    #[test]
    fn an_odfork_subject_has_the_switches_of_its_specification() {
        let engine = Engine::Odfork(Freeze::Eager);
        let process = stage().subject(&SubjectSpec::new(engine, 4096));
        assert_eq!(variable(&process, "LD_PRELOAD"), Some(OsStr::new("libodfork.so")));
        assert_eq!(variable(&process, "ODFORK_FREEZE"), Some(OsStr::new("eager")));
        assert_eq!(variable(&process, "ODFORK_IMAGE"), Some(OsStr::new("small")));
        let arguments: Vec<_> = process.get_args().collect();
        assert_eq!(arguments[0], "subject");
        assert!(arguments.contains(&OsStr::new("--cpu")));
    }

    #[test]
    fn a_subject_is_told_what_its_environment_does_not_say() {
        let arguments = |spec: SubjectSpec| -> Vec<String> {
            let process = stage().subject(&spec);
            assert_eq!(variable(&process, "LD_PRELOAD"), None);
            process.get_args().map(|word| word.to_string_lossy().into_owned()).collect()
        };
        let plain = arguments(SubjectSpec::new(Engine::Stock, 8192));
        let null = arguments(SubjectSpec::new(Engine::Null, 8192));
        assert_eq!(null[..plain.len()], plain);
        assert_eq!(null[plain.len()..], ["--null"]);
        let spec = SubjectSpec { touched: Some(4096), ..SubjectSpec::new(Engine::Kernel, 8192) };
        assert_eq!(arguments(spec)[plain.len()..], ["--touched", "4096", "--kernel-odf"]);
    }

    #[test]
    fn a_subject_that_is_python_is_not_this_program_and_is_missed_by_its_name() {
        let spec = SubjectSpec { touched: Some(4096), ..SubjectSpec::new(Engine::Python, 8192) };
        let process = stage().subject(&spec);
        assert_eq!(process.get_program(), python::INTERPRETER);
        assert_eq!(variable(&process, "LD_PRELOAD"), None);
        let words: Vec<_> = process.get_args().collect();
        assert_eq!(words[3..6], ["8192", "4096", "1"]);
        let why = why_not_started(Engine::Python, &anyhow::anyhow!("no such file"));
        assert!(why.contains("python-subprocess") && why.contains("install python3"), "{why}");
    }

    #[test]
    fn repetitions_of_large_subjects_are_waited_for() {
        assert_eq!(patience(Command::Read, 8 << 30), PATIENCE);
        let grid = Command::Grid { forks: 100, permille: 1000 };
        assert!(patience(grid, 4 << 30) > Duration::from_secs(4000));
    }

    #[test]
    fn several_answers_become_their_median() {
        let answers = [3.0, 1.0, 2.0].map(|number| Answer::value("fork", number));
        assert_eq!(combine(answers.to_vec()), Reply::Values(vec![("fork".into(), 2.0)]));
        let mixed = vec![Answer::value("fork", 1.0), Answer::Wrong("page 1".into())];
        assert_eq!(combine(mixed), Reply::Wrong("page 1".into()));
    }

    #[test]
    fn watching_sees_memory_that_is_held_for_a_while() {
        // Other tests of this process take and free memory meanwhile: the best of some tries.
        let best = (0..10).map(|_| {
            let (reply, peak) = watched(std::process::id(), || {
                let block = std::hint::black_box(vec![1u8; 64 << 20]);
                std::thread::sleep(Duration::from_millis(50));
                Reply::Text(std::hint::black_box(&block).len().to_string())
            });
            assert_eq!(reply, Reply::Text((64 << 20).to_string()));
            peak.held
        });
        let best = best.max().unwrap_or(0);
        assert!(best >= 60 << 20, "{best}");
    }
}
