//! One fuzzer: started, let run for a slice, stopped, asked, ended.
//!
//! Only the fuzzer itself is stopped: its fork server then waits for it. What the target has done
//! meanwhile is in the pipe when the fuzzer goes on, so a stop is never taken for a hang.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use odfork_proc::interrupt;

use crate::foreign::{bind, clear, last_words};

/// Making a database of 4 GB, then running the seeds, under stock fork on a busy machine.
const PATIENCE: Duration = Duration::from_secs(1200);
/// Ending by itself.
const GRACE: Duration = Duration::from_secs(20);
const STEP: Duration = Duration::from_millis(20);
/// An execution is taken for a hang after so many milliseconds: none is, the first fork included.
const HANG: &str = "60000";

/// How the target is run: by a fuzzer, or to see what its inputs do.
#[derive(Clone, Debug)]
pub struct Run {
    /// This program, which asks the kernel to share page tables, for the tool and the target.
    pub through: Option<PathBuf>,
    pub program: PathBuf,
    pub bytes: u64,
    /// Executions in one process.
    pub loops: u32,
    /// What AFL preloads into the target.
    pub preload: Option<PathBuf>,
    pub variables: Vec<(String, String)>,
}

impl Run {
    /// The tool with its words, and the target behind them.
    pub fn command(&self, tool: &Path, words: Vec<OsString>) -> Command {
        let mut command = self.begin(tool);
        command.args(words).arg("--").arg(&self.program);
        for (name, value) in [
            ("AFL_NO_UI", "1"),
            ("AFL_NO_AFFINITY", "1"),
            ("AFL_SKIP_CPUFREQ", "1"),
            ("AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES", "1"),
            ("AFL_FORKSRV_INIT_TMOUT", "1200000"),
        ] {
            command.env(name, value);
        }
        if let Some(library) = &self.preload {
            command.env("AFL_PRELOAD", library);
        }
        // It then ends as by Ctrl-C: its target goes with it, and so does its shared memory. One
        // that is stopped is woken by the kernel, which leaves no orphaned process group stopped.
        self.end(command, libc::SIGINT)
    }

    /// The target alone, with what a tool tells it: where it forks, and that it has a loop.
    pub fn target(&self) -> Command {
        let mut command = self.begin(&self.program);
        for name in ["__AFL_DEFER_FORKSRV", "__AFL_PERSISTENT", "AFL_OLD_FORKSERVER"] {
            command.env(name, "1");
        }
        if let Some(library) = &self.preload {
            command.env("LD_PRELOAD", library);
        }
        self.end(command, libc::SIGKILL)
    }

    fn begin(&self, program: &Path) -> Command {
        let mut command = Command::new(self.through.as_deref().unwrap_or(program));
        clear(&mut command, &["AFL_", "ODFORK_", "__AFL"]);
        if self.through.is_some() {
            command.args(["run", "--engine", "kernel", "--"]).arg(program);
        }
        command
    }

    /// `signal` ends it when this program ends.
    fn end(&self, mut command: Command, signal: i32) -> Command {
        command.args([self.bytes.to_string(), self.loops.to_string()]);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        bind(&mut command, None, signal);
        command
    }
}

pub struct Fuzzer {
    child: Child,
    folder: PathBuf,
    executions: File,
    /// From its start until it fuzzes: the database, the first fork, the seeds.
    pub ready: Duration,
    /// While it was not stopped.
    pub active: f64,
}

impl Fuzzer {
    /// Starts it, waits until it has run its seeds, and stops it.
    pub fn start(
        tool: &Path,
        run: &Run,
        (seeds, dictionary): (&Path, Option<&Path>),
        folder: &Path,
        seed: u64,
    ) -> Result<Fuzzer, String> {
        let said = |error: std::io::Error| format!("{}: {error}", folder.display());
        fs::create_dir_all(folder).map_err(said)?;
        let counted = folder.join("executions");
        fs::write(&counted, [0; 4096]).map_err(said)?;
        let mut words: Vec<OsString> = vec!["-i".into(), seeds.into()];
        words.extend(["-o".into(), folder.join("out").into()]);
        words.extend(["-t".into(), HANG.into(), "-s".into(), seed.to_string().into()]);
        if let Some(dictionary) = dictionary {
            words.extend(["-x".into(), dictionary.into()]);
        }
        let log = File::create(folder.join("log")).map_err(said)?;
        let copy = log.try_clone().map_err(said)?;
        let mut command = run.command(tool, words);
        command.env("EXECUTIONS", &counted);
        let begin = Instant::now();
        let child = command.stdin(Stdio::null()).stdout(log).stderr(copy).spawn().map_err(said)?;
        let executions = File::open(&counted).map_err(said)?;
        let (folder, ready) = (folder.to_owned(), Duration::ZERO);
        let mut fuzzer = Fuzzer { child, folder, executions, ready, active: 0.0 };
        while !fuzzer.results().join("fuzzer_stats").exists() {
            if !fuzzer.is_alive() || begin.elapsed() > PATIENCE || interrupt::asked() {
                return Err(fuzzer.lost());
            }
            std::thread::sleep(STEP);
        }
        fuzzer.ready = begin.elapsed();
        fuzzer.signal(libc::SIGSTOP);
        Ok(fuzzer)
    }

    pub fn results(&self) -> PathBuf {
        self.folder.join("out/default")
    }

    /// Executions and seconds of a slice.
    pub fn slice(&mut self, length: Duration) -> Result<(u64, f64), String> {
        let before = self.executions()?;
        let begin = Instant::now();
        self.signal(libc::SIGCONT);
        while begin.elapsed() < length && !interrupt::asked() {
            if !self.is_alive() {
                return Err(self.lost());
            }
            std::thread::sleep(STEP.min(length.saturating_sub(begin.elapsed())));
        }
        self.signal(libc::SIGSTOP);
        let seconds = begin.elapsed().as_secs_f64();
        self.active += seconds;
        Ok((self.executions()? - before, seconds))
    }

    fn executions(&self) -> Result<u64, String> {
        let mut word = [0; 8];
        self.executions.read_exact_at(&mut word, 0).map_err(|error| error.to_string())?;
        Ok(u64::from_ne_bytes(word))
    }

    /// Edges found, as it wrote them down last, at most five seconds ago.
    pub fn edges(&self) -> Option<f64> {
        last_of(&fs::read_to_string(self.results().join("plot_data")).ok()?, "edges_found")
    }

    /// The process that forks.
    pub fn server(&self) -> Option<i32> {
        let pid = self.child.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    }

    /// Ends it; what it wrote about itself.
    pub fn finish(&mut self) -> Result<BTreeMap<String, String>, String> {
        if !self.end(PATIENCE) {
            return Err("the fuzzer does not end".into());
        }
        // Killed, it has not written what it found last.
        if matches!(self.child.try_wait(), Ok(Some(status)) if status.signal().is_some()) {
            return Err(self.lost());
        }
        let text = fs::read_to_string(self.results().join("fuzzer_stats"));
        Ok(fields(&text.map_err(|error| format!("fuzzer_stats: {error}"))?))
    }

    /// Asks it to end, as it does by itself: it then takes away its shared memory.
    fn end(&mut self, patience: Duration) -> bool {
        self.signal(libc::SIGINT);
        self.signal(libc::SIGCONT);
        let begin = Instant::now();
        while self.is_alive() && begin.elapsed() < patience {
            std::thread::sleep(STEP);
        }
        !self.is_alive()
    }

    fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a child that is not reaped before it is dropped.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    fn lost(&self) -> String {
        format!("the fuzzer is lost; it said: {}", last_words(&self.folder.join("log")))
    }
}

impl Drop for Fuzzer {
    fn drop(&mut self) {
        if self.is_alive() && !self.end(GRACE) {
            // The fork server ends when its pipe does.
            self.signal(libc::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

/// "name : value" in each line.
fn fields(text: &str) -> BTreeMap<String, String> {
    let pair = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    };
    text.lines().filter_map(pair).collect()
}

/// The last value of a column of AFL's plot file, whose first line names them.
fn last_of(text: &str, column: &str) -> Option<f64> {
    let mut lines = text.lines();
    let head = lines.next()?.trim_start_matches('#');
    let place = head.split(',').position(|name| name.trim() == column)?;
    lines.next_back()?.split(',').nth(place)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_fuzzer_writes_is_read_by_name() {
        let all = fields("stability         : 99.50%\nedges_found       : 812\nno field\n");
        assert_eq!((all["stability"].as_str(), all.len()), ("99.50%", 2));
        let plot = "# relative_time, total_execs, edges_found\n0, 12, 7\n5, 400, 31\n";
        assert_eq!(last_of(plot, "edges_found"), Some(31.0));
        assert_eq!(last_of(plot, "gone"), None);
        assert_eq!(last_of("# a, edges_found\n", "edges_found"), None);
    }

    #[test]
    fn a_fuzzer_that_was_killed_is_lost_whatever_it_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let results = folder.path().join("out/default");
        fs::create_dir_all(&results).unwrap();
        fs::write(results.join("fuzzer_stats"), "edges_found : 7\n").unwrap();
        let finish = |script: &str| {
            let child = Command::new("sh").args(["-c", script]).spawn().unwrap();
            let executions = File::open("/dev/null").unwrap();
            let (folder, ready) = (folder.path().to_owned(), Duration::ZERO);
            let mut fuzzer = Fuzzer { child, folder, executions, ready, active: 0.0 };
            while fuzzer.is_alive() {
                std::thread::sleep(STEP);
            }
            fuzzer.finish()
        };
        assert_eq!(finish("exit 0").unwrap()["edges_found"], "7");
        assert!(finish("kill -9 $$").unwrap_err().contains("lost"));
    }

    #[test]
    fn the_target_gets_what_is_preloaded_and_nothing_else_of_ours() {
        let mut run = Run {
            through: None,
            program: "target".into(),
            bytes: 7,
            loops: 1,
            preload: Some("libodfork.so".into()),
            variables: vec![("ODFORK_FREEZE".into(), "eager".into())],
        };
        let command = run.command(Path::new("afl-fuzz"), vec!["-i".into(), "seeds".into()]);
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        assert_eq!(words, ["-i", "seeds", "--", "target", "7", "1"]);
        let set = |name: &str| {
            let found = command.get_envs().find(|(known, _)| *known == name);
            found.and_then(|(_, value)| value).map(|value| value.to_string_lossy().into_owned())
        };
        assert_eq!(set("AFL_PRELOAD").as_deref(), Some("libodfork.so"));
        assert_eq!(set("ODFORK_FREEZE").as_deref(), Some("eager"));
        assert_eq!(set("LD_PRELOAD"), None);
        let alone = run.target();
        let words: Vec<_> = alone.get_args().map(|word| word.to_string_lossy()).collect();
        assert_eq!(
            (alone.get_program(), &words[..]),
            ("target".as_ref(), &["7".into(), "1".into()][..])
        );
        run.through = Some("odfork".into());
        let command = run.command(Path::new("afl-fuzz"), vec!["-i".into()]);
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        assert_eq!(command.get_program(), "odfork");
        assert_eq!(words[..6], ["run", "--engine", "kernel", "--", "afl-fuzz", "-i"]);
    }
}
