//! perf: recording the stacks of one process, and reading which part of fork they were in.
//!
//! Samples count only below the fork system call of the parent: what children do, and memory being
//! filled, is not part of it. Shares are by the innermost function that names a part; what the
//! kernel's compiler put inline belongs to the function it was put into (often the counts of struct
//! page, into copy_page_range).

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{mkfifoat, Mode, CWD};
use tempfile::TempDir;

use super::Part;

/// A perf that neither answers nor ends is given up after this time; so is one that does not write
/// its file.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Samples a second: no divisor of timer frequencies.
const FREQUENCY: &str = "1999";
/// Fewer samples than this say nothing about shares.
const SAMPLES_AT_LEAST: usize = 30;

/// perf, attached to a process and not to its children.
pub struct Recorder {
    perf: Child,
    folder: TempDir,
}

impl Recorder {
    /// The error says why there is no perf here. perf has attached when it acknowledges a command,
    /// and has failed when it ends: how long either takes decides nothing.
    pub fn attach(pid: u32) -> Result<Recorder, String> {
        let failed = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
        let folder = tempfile::Builder::new().prefix("odfork-profile-").tempdir();
        let folder = folder.map_err(|error| failed("no temporary folder", &error))?;
        let control = Control::open(folder.path());
        let control = control.map_err(|error| failed("perf: no pipes to it", &error))?;
        let errors = File::create(folder.path().join("errors"));
        let started = errors.and_then(|errors| {
            Command::new("perf")
                .args(["record", "-e", "cpu-clock:k", "-F", FREQUENCY, "-g"])
                .args(["--kernel-callchains", "--no-inherit", "-p", &pid.to_string()])
                .args(["--control", &control.option, "-o"])
                .arg(folder.path().join("data"))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(errors)
                // Ctrl-C at the terminal is for the driver.
                .process_group(0)
                .spawn()
        });
        let perf = started.map_err(|error| {
            failed("perf cannot be started; install it (Debian: linux-perf)", &error)
        })?;
        let mut recorder = Recorder { perf, folder };
        match control.is_acknowledged(|| !matches!(recorder.perf.try_wait(), Ok(None))) {
            true => Ok(recorder),
            false => Err(recorder.complaint()),
        }
    }

    /// What perf said when it failed.
    fn complaint(&self) -> String {
        let text = fs::read_to_string(self.folder.path().join("errors")).unwrap_or_default();
        let said = text.lines().map(str::trim).find(|line| !line.is_empty() && *line != "Error:");
        let said = said.unwrap_or("it ended early").trim_end_matches('.');
        format!("perf: {said}; needed: root, or kernel.perf_event_paranoid at most 1")
    }

    /// Ends the recording; the stacks as text.
    pub fn finish(mut self) -> Result<String, String> {
        // SAFETY: a child of ours that was not reaped, so its number is still its own.
        unsafe { libc::kill(self.perf.id() as libc::pid_t, libc::SIGINT) };
        let start = Instant::now();
        while let Ok(None) = self.perf.try_wait() {
            if start.elapsed() > TIMEOUT {
                return Err("perf did not end".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let script = Command::new("perf")
            .args(["script", "--no-inline", "-F", "comm,ip,sym", "-i"])
            .arg(self.folder.path().join("data"))
            .stdin(Stdio::null())
            .output();
        match script {
            Ok(output) if output.status.success() => {
                Ok(String::from_utf8_lossy(&output.stdout).into_owned())
            }
            Ok(_) => Err(self.complaint()),
            Err(error) => Err(format!("perf script: {error}")),
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Ok(None) = self.perf.try_wait() {
            let _ = self.perf.kill();
            let _ = self.perf.wait();
        }
    }
}

/// Two named pipes: commands to perf, acknowledgements from it.
struct Control {
    commands: File,
    answers: File,
    option: String,
}

impl Control {
    fn open(folder: &Path) -> std::io::Result<Control> {
        let pipe = |name: &str| {
            let path = folder.join(name);
            mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR)?;
            // For both directions: opening waits for nobody.
            let mut file = File::options();
            file.read(true).write(true).custom_flags(libc::O_NONBLOCK);
            Ok::<_, std::io::Error>((file.open(&path)?, path))
        };
        let ((commands, to), (answers, from)) = (pipe("commands")?, pipe("answers")?);
        let option = format!("fifo:{},{}", to.display(), from.display());
        Ok(Control { commands, answers, option })
    }

    /// Whether perf answers before it ends.
    fn is_acknowledged(&self, has_ended: impl FnMut() -> bool) -> bool {
        let mut has_ended = has_ended;
        let start = Instant::now();
        if (&self.commands).write_all(b"enable\n").is_err() {
            return false;
        }
        while start.elapsed() < TIMEOUT {
            let is_over = has_ended();
            if matches!((&self.answers).read(&mut [0; 16]), Ok(1..)) {
                return true;
            }
            if is_over {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

/// Functions the parent is in while it forks: the system call and its body, by the names of several
/// kernels.
const FORK: [&str; 4] = ["copy_process", "kernel_clone", "_do_fork", "do_fork"];

/// Not fork's own: an interrupt, or another task's turn. Wherever it is in a stack.
const FOREIGN: &str = "asm_sysvec_ asm_common_interrupt __schedule apic_timer";
const FOREIGN_NAME: &str = "interrupts and other tasks";
const REST_NAME: &str = "rest of fork (copy_process)";

/// Parts by beginnings of function names; the innermost function that has one decides. Old names
/// and new.
const GROUPS: [(&str, &str); 4] = [
    (
        "struct page: look-up, count, rmap (vm_normal_page)",
        "vm_normal_ compound_head PageHuge page_ref_inc page_dup __page_dup folio_try_dup \
         folio_dup folio_ref folio_get __folio_dup",
    ),
    (
        "new page tables (pte_alloc)",
        "__pte_alloc pte_alloc __pmd_alloc __pud_alloc __p4d_alloc pgd_alloc",
    ),
    (
        "page-table entries (copy_page_range)",
        "copy_page_range copy_p copy_one_pte copy_huge_p copy_hugetlb_page_range",
    ),
    ("VMAs (dup_mmap)", "dup_mm vm_area_dup anon_vma_ __mt_dup"),
];

/// What the stacks say.
pub struct Shares {
    pub samples: usize,
    pub parts: Vec<Part>,
    /// Share of the one instruction that was met most often.
    pub hottest: f64,
}

impl Shares {
    pub fn of(script: &str) -> Result<Shares, String> {
        let mut counts: Vec<(&'static str, usize)> = Vec::new();
        let mut instructions: Vec<&str> = Vec::new();
        for stack in stacks(script) {
            let Some(part) = part_of(&stack) else { continue };
            instructions.push(stack[0].0);
            match counts.iter_mut().find(|(name, _)| *name == part) {
                Some((_, count)) => *count += 1,
                None => counts.push((part, 1)),
            }
        }
        let samples = instructions.len();
        if samples < SAMPLES_AT_LEAST {
            return Err(format!(
                "perf saw fork in {samples} samples, {SAMPLES_AT_LEAST} are needed; \
                 kernel symbols must be readable (kernel.kptr_restrict 0, or root)"
            ));
        }
        let share = |count: usize| count as f64 / samples as f64;
        instructions.sort_unstable();
        let hottest = instructions.chunk_by(|one, next| one == next).map(<[_]>::len).max();
        let parts = counts.into_iter();
        Ok(Shares {
            samples,
            hottest: share(hottest.unwrap_or(0)),
            parts: parts.map(|(name, n)| Part { name: name.into(), share: share(n) }).collect(),
        })
    }
}

/// The stacks of `perf script -F comm,ip,sym`, innermost first: addresses and functions. A sample
/// is a line with the name of the process, lines of frames, an empty line.
fn stacks(script: &str) -> impl Iterator<Item = Vec<(&str, &str)>> {
    script.split("\n\n").filter_map(|sample| {
        let frames: Vec<(&str, &str)> = sample
            .lines()
            .filter(|line| line.starts_with(char::is_whitespace))
            .filter_map(|line| line.trim().split_once(' '))
            .collect();
        (!frames.is_empty()).then_some(frames)
    })
}

/// The part a stack belongs to; None when the parent was not in fork.
fn part_of(stack: &[(&str, &str)]) -> Option<&'static str> {
    let fork = stack.iter().position(|(_, function)| FORK.contains(function))?;
    let below = &stack[..fork];
    let is_one = |function: &str, names: &str| names.split(' ').any(|n| function.starts_with(n));
    if below.iter().any(|(_, function)| is_one(function, FOREIGN)) {
        return Some(FOREIGN_NAME);
    }
    let group = |function: &str| GROUPS.iter().find(|(_, names)| is_one(function, names));
    let found = below.iter().find_map(|(_, function)| group(function));
    Some(found.map_or(REST_NAME, |(name, _)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded on Linux 6.18 with perf 6.1, shortened to one sample of each kind.
    const SCRIPT: &str = include_str!("../../tests/golden/perf-script.txt");

    #[test]
    fn stacks_are_sorted_into_the_parts_of_fork() {
        let parts: Vec<_> = stacks(SCRIPT).map(|stack| part_of(&stack)).collect();
        let expected = [
            Some("page-table entries (copy_page_range)"),
            Some("struct page: look-up, count, rmap (vm_normal_page)"),
            Some(FOREIGN_NAME),
            Some("new page tables (pte_alloc)"),
            Some("VMAs (dup_mmap)"),
            None,
            None,
            Some(REST_NAME),
        ];
        assert_eq!(parts, expected);
    }

    #[test]
    fn names_of_the_published_profile_are_known() {
        let part = |below: &'static str| part_of(&[("1", below), ("2", "_do_fork")]).unwrap();
        assert_eq!(part("copy_one_pte"), part("copy_page_range"));
        assert_eq!(part("compound_head"), part("page_ref_inc"));
        assert_eq!(part("copy_huge_pmd"), part("copy_present_pte"));
    }

    #[test]
    fn shares_are_of_the_samples_in_fork() {
        // Six of the eight samples are in fork.
        let shares = Shares::of(&SCRIPT.repeat(10)).unwrap();
        assert_eq!(shares.samples, 60);
        assert!((shares.parts.iter().map(|part| part.share).sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(shares.parts.iter().all(|part| (part.share - 1.0 / 6.0).abs() < 1e-9));
        assert!((shares.hottest - 1.0 / 6.0).abs() < 1e-9);
    }

    #[test]
    fn too_few_samples_or_none_are_a_reason() {
        for script in ["", "nonsense", SCRIPT] {
            assert!(Shares::of(script).err().unwrap().contains("are needed"));
        }
    }

    #[test]
    fn a_process_that_is_not_there_is_a_reason_too() {
        let why = Recorder::attach(u32::MAX >> 2).err().unwrap();
        assert!(why.starts_with("perf"), "{why}");
    }
}
