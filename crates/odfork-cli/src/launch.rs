//! `odfork run`: from the request to execve, in one reading.
//!
//! 1 warn about slips, 2 choose the engine, 3 inspect the program, 4 find the library, 5 make the
//! environment, 6 exec in place, 7 explain the failure. With the kernel engine, 4 and 5 are left
//! out and 6 asks the kernel first; see `counted` for the one case with a child. Nothing else of
//! the process is changed before exec: no signal disposition or mask, no descriptor (what is opened
//! here is close-on-exec and closed again), no memory limit. Whatever cannot be had, the program
//! still runs, unless the engine itself was asked for by name.

use std::ffi::{c_char, CString, OsStr, OsString};
use std::io::Error;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use rustix::fs::{Access, AtFlags};

use odfork_proc::cow_fork;

use crate::cli::Run;
use crate::counted::{self, Wish};
use crate::elf::{self, Header};
use crate::eligibility::{inspect, Answer, Eligibility, Obstacle, Refusal};
use crate::engine::{self, Engine};
use crate::environment::Environment;
use crate::library::{names_pager, preload_list, search, PRELOAD};
use crate::message::say;
use crate::options::{ENGINE, IMAGE_DIR, PID, QUIET, STATS, STATS_FILE};

/// As env(1) and the shells have them.
const NOT_FOUND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;
const WRONG_USAGE: i32 = 2;

/// Runs the program in place; returns an exit status only when that failed.
pub fn run(mut request: Run, environment: &Environment) -> i32 {
    let quiet = request.quiet || is_set(environment.get(QUIET));
    let settled = settle_image_dir(&mut request);
    if let Err(line) = settled.and_then(|()| settle_stats_file(&mut request, environment)) {
        say(&line);
        return WRONG_USAGE;
    }
    if !quiet {
        let given: Vec<&str> = request.settings.iter().map(|(variable, _)| *variable).collect();
        let file = unwritable_variable(&given, environment);
        environment.slips(&given).iter().chain(&file).for_each(|line| say(line));
    }
    let choice = match engine::choose(&request, environment, cow_fork::support) {
        Ok(choice) => choice,
        Err(line) => {
            say(&line);
            return WRONG_USAGE;
        }
    };
    let eligibility = inspect(&request.words[0], environment);
    let plan = match choice.engine {
        Engine::Image => plan(&request, environment, &eligibility),
        Engine::Kernel => kernel_plan(environment, &eligibility),
    };
    if !quiet {
        choice.note.iter().chain(&plan.line).for_each(|line| say(line));
    }
    let words: Vec<CString> =
        request.words.iter().filter_map(|word| CString::new(word.as_bytes()).ok()).collect();
    let mut error = match wish(&request, environment).filter(|_| plan.engine == Engine::Kernel) {
        Some(wish) => counted::run(&wish, &eligibility.name, || exec(&words, &plan)),
        None => exec(&words, &plan),
    };
    if error.raw_os_error() == Some(libc::E2BIG) && plan.accelerated {
        // Our few variables may be what made the block too big: the program goes first.
        error =
            exec(&words, &Plan { accelerated: false, environment: environment.clone(), ..plan });
    }
    say(&format!(
        "cannot run '{}': {}",
        request.words[0].to_string_lossy(),
        explain(&eligibility, &error, environment)
    ));
    status_of(&error)
}

fn is_set(value: Option<&OsStr>) -> bool {
    value.is_some_and(|value| !value.is_empty() && value != "0")
}

/// How the program will be started, and the line that says why it is not accelerated.
struct Plan {
    engine: Engine,
    /// The library is preloaded.
    accelerated: bool,
    environment: Environment,
    line: Option<String>,
    /// Exec this very file, without the shell as a stand-in for what the kernel refuses.
    file: Option<PathBuf>,
}

impl Plan {
    fn plain(engine: Engine, environment: &Environment) -> Plan {
        let environment = environment.clone();
        Plan { engine, accelerated: false, environment, line: None, file: None }
    }
}

/// Any program the kernel can run, with the environment as it is.
fn kernel_plan(environment: &Environment, eligibility: &Eligibility) -> Plan {
    let mut plan = Plan::plain(Engine::Kernel, environment);
    match &eligibility.answer {
        Answer::No(Refusal::Foreign(_)) => plan.file = eligibility.chain.first().cloned(),
        Answer::No(refusal @ Refusal::Privileged(privilege)) => {
            plan.line = Some(format!(
                "{} {}, so the kernel switches sharing off when it starts; running with plain \
                 fork: {}",
                behind(eligibility),
                privilege.words(),
                refusal.advice()
            ));
        }
        _ => {}
    }
    plan
}

/// What `--stats` and its variables ask of the kernel engine.
fn wish(request: &Run, environment: &Environment) -> Option<Wish> {
    let format = engine::value(request, environment, STATS)?;
    let known = format == "text" || format == "json";
    let file = engine::value(request, environment, STATS_FILE).map(PathBuf::from);
    known.then(|| Wish { json: format == "json", file })
}

fn plan(request: &Run, environment: &Environment, eligibility: &Eligibility) -> Plan {
    let mut plan = Plan::plain(Engine::Image, environment);
    match &eligibility.answer {
        // The failing exec will be explained; a line before it would be one too many.
        Answer::CannotRun(_) => return plan,
        Answer::No(refusal) => {
            if let Refusal::Foreign(header) = refusal {
                plan.file = eligibility.chain.first().cloned();
                if !perhaps_runnable(header) {
                    return plan;
                }
            }
            plan.line = Some(refusal_line(eligibility, refusal));
            return plan;
        }
        Answer::Yes | Answer::Unknown(_) => {}
    }
    if names_pager(environment.get(PRELOAD)) {
        plan.line = Some(format!(
            "the memory of {} is paged by 'odfork page run'; running with plain fork: start it \
             without one of the two",
            eligibility.name.to_string_lossy()
        ));
        return plan;
    }
    let found = search(environment);
    match &found.outcome {
        Err(problem) => {
            plan.line = Some(format!("{}; running with plain fork", found.complaint(problem)))
        }
        Ok(library) => {
            plan.accelerated = true;
            plan.environment = accelerated(request, environment, library);
        }
    }
    plan
}

/// "what, why, what to do" about a program that will run, but plainly.
pub fn refusal_line(eligibility: &Eligibility, refusal: &Refusal) -> String {
    let (behind, why) = (behind(eligibility), refusal.why());
    format!("{behind} {why}; running with plain fork: {}", refusal.advice())
}

/// The program's name, and the interpreter that a sentence about it is about.
fn behind(eligibility: &Eligibility) -> String {
    let name = eligibility.name.to_string_lossy();
    match eligibility.chain.last() {
        Some(last) if eligibility.chain.len() > 1 => {
            format!("{name} runs through {}, which", last.display())
        }
        _ => name.to_string(),
    }
}

/// i386 programs run on most x86-64 kernels, and any machine's with an emulator registered.
pub fn perhaps_runnable(header: &Header) -> bool {
    let emulators = Path::new("/proc/sys/fs/binfmt_misc").read_dir();
    let registered = emulators.is_ok_and(|entries| entries.count() > 2);
    registered || (cfg!(target_arch = "x86_64") && elf::machine_name(header.machine) == "i386")
}

fn accelerated(request: &Run, environment: &Environment, library: &Path) -> Environment {
    let mut extended = environment.clone();
    extended.set(PRELOAD, &preload_list(library, environment.get(PRELOAD)));
    for (variable, value) in &request.settings {
        // The library has no use for it, and a program that calls odfork again inherits no choice
        // of ours.
        if *variable != ENGINE {
            extended.set(variable, value);
        }
    }
    extended.set(PID, OsStr::new(&std::process::id().to_string()));
    extended
}

/// The program may change its directory before it freezes.
fn settle_image_dir(request: &mut Run) -> Result<(), String> {
    let given = request.settings.iter_mut().find(|(variable, _)| *variable == IMAGE_DIR);
    let Some((_, folder)) = given else { return Ok(()) };
    let cannot = |why: String| format!("--image-dir '{}': {why}", folder.to_string_lossy());
    let path = std::path::absolute(&*folder).map_err(|error| cannot(error.to_string()))?;
    if !path.is_dir() {
        return Err(cannot("there is no such directory".to_owned()));
    }
    *folder = OsString::from(path);
    Ok(())
}

/// The program may change its directory before it writes statistics, so a relative path is settled
/// now, and a directory that is missing is told now rather than at exit.
fn settle_stats_file(request: &mut Run, environment: &Environment) -> Result<(), String> {
    let wanted = request.settings.iter().any(|(variable, _)| *variable == STATS)
        || is_set(environment.get(STATS));
    let Some((_, file)) = request.settings.iter_mut().find(|(variable, _)| *variable == STATS_FILE)
    else {
        return Ok(());
    };
    if !wanted {
        return Err(
            "--stats-file needs --stats text or --stats json with it (see 'odfork run --help')"
                .to_owned(),
        );
    }
    let path = std::path::absolute(&*file)
        .map_err(|error| format!("--stats-file '{}': {error}", file.to_string_lossy()))?;
    if let Some(why) = unwritable(&path) {
        return Err(format!("--stats-file '{}' {why}", file.to_string_lossy()));
    }
    *file = OsString::from(path);
    Ok(())
}

/// The same of the variable, where statistics are asked for: a warning, since the program may be
/// one of many that inherit it. The library takes a relative path where it ends.
fn unwritable_variable(given: &[&str], environment: &Environment) -> Option<String> {
    let path = Path::new(environment.get(STATS_FILE)?);
    let wanted = given.contains(&STATS) || is_set(environment.get(STATS));
    let counts = wanted && !given.contains(&STATS_FILE) && path.is_absolute();
    let why = unwritable(path).filter(|_| counts)?;
    Some(format!("{STATS_FILE} '{}' {why}", path.display()))
}

/// Why no file can be written there, as far as that can be told before the program runs.
fn unwritable(path: &Path) -> Option<String> {
    let folder = path.parent().unwrap_or(path);
    if path.is_dir() {
        return Some("is a directory; name a file in it".to_owned());
    }
    if folder.to_string_lossy().contains("%p") {
        return None;
    }
    if !folder.is_dir() {
        return Some(format!("has no directory {}; make it first", folder.display()));
    }
    let (place, wanted) = match path.exists() {
        true => (path, Access::WRITE_OK),
        false => (folder, Access::WRITE_OK | Access::EXEC_OK),
    };
    let allowed = rustix::fs::accessat(rustix::fs::CWD, place, wanted, AtFlags::EACCESS);
    let error = Error::from(allowed.err()?);
    Some(format!("cannot be written: {}: {error}; name another place", place.display()))
}

/// Replaces this process; comes back only with the reason why not.
fn exec(words: &[CString], plan: &Plan) -> Error {
    let arguments = pointers(words);
    let block = pointers(plan.environment.entries());
    let file = plan.file.as_ref().and_then(|file| CString::new(file.as_os_str().as_bytes()).ok());
    match plan.engine {
        // One engine at a time: a switch inherited from a shell goes. Most kernels have none.
        Engine::Image => drop(cow_fork::set(cow_fork::Mode::Off)),
        Engine::Kernel => {
            if let Err(error) = cow_fork::set(cow_fork::Mode::OverExec) {
                say(&format!(
                    "cannot switch to the kernel engine: {error}; running with plain fork"
                ));
            }
        }
    }
    // SAFETY: both arrays end with a null pointer and point to C strings that outlive the call, as
    // does the file's name. execvpe searches the PATH of this process, which is the program's too.
    unsafe {
        match file {
            Some(file) => libc::execve(file.as_ptr(), arguments.as_ptr(), block.as_ptr()),
            None => libc::execvpe(arguments[0], arguments.as_ptr(), block.as_ptr()),
        };
    }
    Error::last_os_error()
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

fn status_of(error: &Error) -> i32 {
    match error.raw_os_error() {
        Some(libc::ENOENT) => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    }
}

/// The obstacle seen beforehand when there was one, else what the kernel said.
fn explain(eligibility: &Eligibility, error: &Error, environment: &Environment) -> String {
    match (&eligibility.answer, error.raw_os_error()) {
        (
            Answer::CannotRun(obstacle),
            Some(libc::ENOENT | libc::EACCES | libc::ELOOP | libc::ENOTDIR),
        ) => obstacle.words(&eligibility.name, environment),
        (Answer::No(refusal @ Refusal::Foreign(_)), Some(libc::ENOEXEC)) => {
            format!(
                "it {} and this kernel has no way to run it; {}",
                refusal.why(),
                refusal.advice()
            )
        }
        (_, Some(libc::E2BIG)) => {
            "its arguments and environment are too long; shorten them or raise 'ulimit -s'"
                .to_owned()
        }
        (_, Some(libc::ENOENT)) => Obstacle::Missing.words(&eligibility.name, environment),
        (_, Some(libc::EACCES)) => {
            "the kernel refuses (permission denied); look at the file's and its directories' modes"
                .to_owned()
        }
        _ => error.to_string(),
    }
}

/// The exit status that `odfork check PROGRAM` gives for an eligibility.
pub fn check_status(answer: &Answer) -> i32 {
    match answer {
        Answer::Yes | Answer::Unknown(_) => 0,
        Answer::No(_) => 1,
        Answer::CannotRun(Obstacle::Missing | Obstacle::Needs { .. }) => NOT_FOUND,
        Answer::CannotRun(_) => NOT_EXECUTABLE,
    }
}
