//! PostgreSQL: a cluster of its own, pgbench's transactions each on a connection of its own, and
//! the sums that must agree at the end.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use anyhow::{bail, Result};

use super::service::{Launch, Server, Service};
use crate::foreign::open_loop::{Schedule, Slice};
use crate::foreign::user::User;
use crate::foreign::{bind, clear, last_lines, make_folder};

const PACKAGE: &str = "the Debian package postgresql";
const DEBIAN: &str = "/usr/lib/postgresql";
const SETTINGS: &str = "listen_addresses = ''\nfsync = off\nshared_buffers = 64MB\n";
/// Both sides of every transaction, and how many there were.
const SUMS: &str = "select coalesce(sum(delta), 0), (select sum(abalance) from pgbench_accounts), \
                    (select sum(tbalance) from pgbench_tellers), \
                    (select sum(bbalance) from pgbench_branches), count(*) from pgbench_history";

/// The folder of the programs: of the newest version.
pub fn tools() -> Result<PathBuf> {
    let versions = fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let number = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.map(|entry| entry.path()).max_by_key(|path| number(path));
    let folder = newest.map(|version| version.join("bin")).unwrap_or_default();
    match ["initdb", "postgres", "pgbench", "psql"].iter().find(|it| !folder.join(it).is_file()) {
        None => Ok(folder),
        Some(missing) => bail!("{missing} is not below {DEBIAN}; install {PACKAGE}"),
    }
}

/// How this server's clients are run.
struct Clients {
    /// Who everything runs as: the server refuses root.
    user: Option<User>,
    tools: PathBuf,
    folder: PathBuf,
}

pub struct Postgres {
    service: Service,
    clients: Clients,
    seed: u64,
    done: u64,
}

pub fn start(launch: &Launch) -> Result<Postgres, String> {
    let user = match rustix::process::geteuid().is_root() {
        true => Some(User::named("postgres").or_else(|_| User::named("nobody"))?),
        false => None,
    };
    let (tools, folder) = (launch.tools, launch.folder);
    make_folder(folder, user.as_ref())?;
    let data = folder.join("data");
    let words = ["--auth=trust", "--no-sync", "--no-locale", "--encoding=UTF8", "-U", "odfork"];
    let mut command = Command::new(tools.join("initdb"));
    command.arg("-D").arg(&data).args(words);
    finished(command, user.as_ref(), folder)?;
    let socket = format!("unix_socket_directories = '{}'\n", folder.display());
    let file = data.join("postgresql.auto.conf");
    fs::write(file, SETTINGS.to_owned() + &socket).map_err(|error| error.to_string())?;
    let mut command = launch.command(&tools.join("postgres"));
    command.arg("-D").arg(&data).current_dir(folder);
    // Its backends end with it by this signal, and leave nothing in shared memory.
    let mut service = Service::start(command, folder.join("log"), user.as_ref(), libc::SIGQUIT)?;
    let clients = Clients { user, tools: tools.into(), folder: folder.into() };
    service.wait_until(|| clients.tell("psql", ["-c", "select 1"]).is_ok())?;
    clients.tell("pgbench", ["-i", "-q", "-s", "4"])?;
    Ok(Postgres { service, clients, seed: launch.seed, done: 0 })
}

/// Runs it to its end, which must be a good one.
fn finished(mut command: Command, user: Option<&User>, folder: &Path) -> Result<Output, String> {
    clear(&mut command, &["ODFORK_", "PG"]);
    bind(&mut command, user, libc::SIGKILL);
    command.current_dir(folder).stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(output),
        false => {
            let name = Path::new(command.get_program()).display().to_string();
            let why = cause(&String::from_utf8_lossy(&output.stderr));
            Err(format!("{name}: {}: {why}", output.status))
        }
    }
}

/// The first line that tells of an error; what follows may be how it tidies up.
fn cause(text: &str) -> String {
    let tells = |line: &&str| ["error", "ERROR", "FATAL"].iter().any(|word| line.contains(word));
    text.lines().find(tells).map_or_else(|| last_lines(text), str::to_owned)
}

impl Clients {
    /// What a client of the server prints.
    fn tell<W: AsRef<OsStr>>(
        &self,
        program: &str,
        words: impl IntoIterator<Item = W>,
    ) -> Result<String, String> {
        let mut command = Command::new(self.tools.join(program));
        command.arg("-h").arg(&self.folder).args(["-U", "odfork"]).args(words).arg("postgres");
        let output = finished(command, self.user.as_ref(), &self.folder)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// What pgbench wrote of each transaction, into the slice; the files are removed.
    fn take(&self, slice: &mut Slice) -> Result<(), String> {
        let said = |error: std::io::Error| format!("{}: {error}", self.folder.display());
        for entry in fs::read_dir(&self.folder).map_err(said)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with("transactions.") {
                let text = fs::read_to_string(entry.path()).map_err(said)?;
                for line in text.lines() {
                    let (latency, late) = times(line).ok_or(format!("pgbench wrote {line:?}"))?;
                    slice.latencies.saturating_record(latency * 1_000);
                    slice.late.saturating_record(late * 1_000);
                }
                fs::remove_file(entry.path()).map_err(said)?;
            }
        }
        Ok(())
    }
}

/// Microseconds of a line of pgbench's log: from when the transaction was due to its end, and until
/// its connection stood. Fields: client, number, time, script, seconds, microseconds, lag.
fn times(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split(' ');
    Some((words.nth(2)?.parse().ok()?, words.nth(3)?.parse().ok()?))
}

impl Server for Postgres {
    /// pgbench keeps to a schedule itself: `--rate`, with exponential pauses.
    fn load(&mut self, schedule: Schedule) -> Result<Slice, String> {
        let each = schedule.requests.div_ceil(schedule.clients as u64).max(1);
        let log = format!("--log-prefix={}", self.clients.folder.join("transactions").display());
        let [clients, each_words] = [schedule.clients as u64, each].map(|it| it.to_string());
        let (rate, seed) = (schedule.rate.to_string(), (self.seed + self.done).to_string());
        let begin = Instant::now();
        self.clients.tell(
            "pgbench",
            [
                "--no-vacuum",
                "--connect",
                "--log",
                &log,
                "--rate",
                &rate,
                "--client",
                &clients,
                "--jobs",
                &clients,
                "--transactions",
                &each_words,
                "--random-seed",
                &seed,
            ],
        )?;
        let mut slice = Slice::new();
        slice.seconds = begin.elapsed().as_secs_f64();
        self.clients.take(&mut slice)?;
        let wanted = each * schedule.clients as u64;
        self.done += wanted;
        match slice.latencies.len() == wanted {
            true => Ok(slice),
            false => Err(format!("{} of {wanted} transactions ended", slice.latencies.len())),
        }
    }

    /// Nothing is lost, nothing is there twice.
    fn check(&mut self) -> Result<(), String> {
        let text = self.clients.tell("psql", ["-X", "-A", "-t", "-c", SUMS])?;
        agree(text.trim_end(), self.done)
    }

    fn pid(&self) -> i32 {
        self.service.pid()
    }
}

/// Whether the four sums are one, and the count is that of all transactions.
fn agree(line: &str, done: u64) -> Result<(), String> {
    let words: Vec<&str> = line.split('|').collect();
    let is_one = words.len() == 5 && words[..4].iter().all(|sum| *sum == words[0]);
    match is_one && words[4] == done.to_string() {
        true => Ok(()),
        false => Err(format!("after {done} transactions the sums and the count are {line}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_and_lag_are_read_of_a_line() {
        assert_eq!(times("0 7 15231 0 1700000000 123456 4100"), Some((15_231, 4_100)));
        assert_eq!(times("0 7 15231 0 1700000000 123456"), None);
        assert_eq!(times("0 7 skipped 0 1700000000 123456 9"), None);
    }

    #[test]
    fn the_cause_of_a_failure_is_told_and_not_the_tidying_behind_it() {
        let text = "initdb: error: could not write: No space left\ninitdb: removing data\n";
        assert_eq!(cause(text), "initdb: error: could not write: No space left");
        assert_eq!(cause("one\ntwo\n"), "one / two");
    }

    #[test]
    fn a_lost_or_doubled_transaction_is_seen() {
        assert_eq!(agree("-77|-77|-77|-77|120", 120), Ok(()));
        for wrong in ["-77|-77|-77|-78|120", "-77|-77|-77|-77|119", "", "1|1|1|1"] {
            assert!(agree(wrong, 120).is_err(), "{wrong}");
        }
    }
}
