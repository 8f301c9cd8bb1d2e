//! The servers of a case, one for each arm, and what is done with them: a slice of load with one
//! snapshot in it, and the check of what the snapshot left.
//!
//! While one server has load, the others are idle and have no child.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::content::Content;
use super::load::{self, Slice};
use super::server::{Launch, Server};
use super::snapshot::{compare, fill, wait_for_quiet, Kind};
use crate::baselines::cgroup::Limit;
use crate::foreign::arms::Arm;
use crate::foreign::open_loop::{percentiles, quantile, Whole};
use crate::foreign::seats::Stand;
use crate::foreign::user::User;
use crate::rounds::Site;
use crate::runner::{Number, Point};

/// What all arms of a group have in common.
#[derive(Clone, Debug)]
pub struct Case {
    pub server: PathBuf,
    pub bytes: u64,
    pub size: usize,
    pub disable_thp: &'static str,
}

#[derive(Clone, Debug)]
pub struct Target {
    pub arm: Arm,
    pub case: Case,
}

/// What all cases have in common.
pub struct Settings {
    /// A folder on a disk: dumps, sockets.
    pub folder: PathBuf,
    /// Words before the launcher's.
    pub through: Vec<OsString>,
    pub user: Option<User>,
    pub changes: u64,
    /// Requests a second; None: by size.
    pub rate: Option<f64>,
    pub seed: u64,
}

pub struct Trial<'a> {
    site: &'a Site,
    settings: &'a Settings,
    pub whole: Whole,
}

/// A server that is alive.
pub struct Seat {
    case: Case,
    folder: PathBuf,
    server: Server,
    content: Content,
}

/// Bytes of values a second, where the rate is not told, and its bounds.
const FLOW: f64 = 24e6;
const RATES: (f64, f64) = (400.0, 4_000.0);

pub fn rate(settings: &Settings, size: usize) -> f64 {
    settings.rate.unwrap_or((FLOW / size as f64).clamp(RATES.0, RATES.1))
}

impl<'a> Trial<'a> {
    pub fn new(site: &'a Site, settings: &'a Settings) -> Trial<'a> {
        Trial { site, settings, whole: Whole::default() }
    }

    fn options(&self, case: &Case, folder: &Path, dump: &str) -> Vec<OsString> {
        let words = [
            ("--dbfilename", dump),
            ("--save", ""),
            ("--appendonly", "no"),
            ("--auto-aof-rewrite-percentage", "0"),
            ("--disable-thp", case.disable_thp),
            ("--repl-diskless-sync-delay", "0"),
            ("--hz", "100"),
        ];
        let mut all: Vec<OsString> = vec!["--dir".into(), folder.into()];
        all.extend(words.into_iter().flat_map(|(name, value)| [name.into(), value.into()]));
        let unbounded = ["--client-output-buffer-limit", "replica", "0", "0", "0"];
        all.extend(unbounded.map(OsString::from));
        all
    }

    fn start_one(&self, target: &Target) -> Result<Seat, String> {
        let (arm, case) = (&target.arm, &target.case);
        let mut before = self.settings.through.clone();
        before.extend(arm.words(&self.site.program));
        let folder = self.settings.folder.join(arm.name);
        // A dump of the case before would be loaded.
        let _ = fs::remove_dir_all(&folder);
        let name = format!("redis-{}", arm.name);
        let group = match &self.site.parent {
            Ok(parent) => Some(parent.make(&self.site.journal, &name, Limit::None)?),
            Err(_) => None,
        };
        let mut server = Server::start(Launch {
            before: &before,
            program: &case.server,
            options: self.options(case, &folder, "dump.rdb"),
            user: self.settings.user.as_ref(),
            folder: folder.clone(),
            group,
        })?;
        let content = Content::new(case.bytes, case.size, self.settings.seed);
        fill(&mut server, &content)?;
        Ok(Seat { case: case.clone(), folder, server, content })
    }

    /// A stock server that loads `dump`, or is empty.
    fn fresh(&self, case: &Case, folder: &Path, dump: &str) -> Result<Server, String> {
        Server::start(Launch {
            before: &[],
            program: &case.server,
            options: self.options(case, folder, dump),
            user: self.settings.user.as_ref(),
            folder: self.settings.folder.join("fresh"),
            group: None,
        })
    }

    fn slice_of(&self, seat: &mut Seat, kind: Kind) -> Result<(Slice, Vec<Number>), String> {
        let server = &mut seat.server;
        let logging: &[u8] = if kind == Kind::Rewrite { b"yes" } else { b"no" };
        server.tell(&[b"CONFIG", b"SET", b"appendonly", logging])?;
        wait_for_quiet(server)?;
        let mut replica = match kind {
            Kind::Replica => {
                let folder = self.settings.folder.join("fresh");
                let mut replica = self.fresh(&seat.case, &folder, "none.rdb")?;
                let port = server.port.to_string();
                replica.tell(&[b"REPLICAOF", b"127.0.0.1", port.as_bytes()])?;
                Some(replica)
            }
            _ => None,
        };
        let before = children(server)?;
        let plan = load::Plan {
            rate: rate(self.settings, seat.case.size),
            changes: self.settings.changes,
            command: kind.command(),
            section: kind.section(),
            is_done: kind.is_done(),
        };
        let slice = load::run(server, &mut seat.content, &plan)?;
        wait_for_quiet(server)?;
        kind.succeeded(server)?;
        let numbers = vec![
            Number::new("fork", "ns", server.number("stats", "latest_fork_usec")? * 1e3),
            Number::new("copied", "bytes", kind.copied(server)?),
            Number::new("children", "s", children(server)? - before),
        ];
        match &mut replica {
            Some(replica) => self.check_replica(seat, replica)?,
            None => self.check_file(seat, kind, slice.before)?,
        }
        Ok((slice, numbers))
    }

    /// What the snapshot left is what the writes before it made.
    fn check_file(&self, seat: &Seat, kind: Kind, writes: u64) -> Result<(), String> {
        let Some((folder, dump)) = kind.file(&seat.folder)? else { return Ok(()) };
        let mut fresh = self.fresh(&seat.case, &folder, &dump)?;
        compare(&mut fresh, &seat.content, writes).map_err(|why| format!("{dump}: {why}"))
    }

    /// The replica has all writes.
    fn check_replica(&self, seat: &mut Seat, replica: &mut Server) -> Result<(), String> {
        let offset = seat.server.info("replication", "master_repl_offset")?;
        let offset: u64 = offset.parse().map_err(|_| format!("an offset of {offset:?}"))?;
        replica.wait_until("the replica", |replica| {
            let behind = replica.info("replication", "master_link_status")? != "up";
            Ok(!behind && replica.number("replication", "slave_repl_offset")? >= offset as f64)
        })?;
        compare(replica, &seat.content, seat.content.writes)
            .map_err(|why| format!("the replica: {why}"))
    }
}

/// Processor time of all that the server has waited for, helper tasks among them, in seconds.
fn children(server: &mut Server) -> Result<f64, String> {
    Ok(server.number("cpu", "used_cpu_user_children")?
        + server.number("cpu", "used_cpu_sys_children")?)
}

fn numbers_of(slice: &Slice) -> Vec<Number> {
    let mut numbers = percentiles(&slice.latencies);
    numbers.extend([
        Number::new("rate", "1/s", slice.requests as f64 / slice.seconds.max(1e-9)),
        Number::new("snapshot", "s", slice.snapshot),
        Number::new("late", "ns", quantile(&slice.late, 0.99)),
    ]);
    if slice.memory > 0 {
        numbers.push(Number::new("memory", "bytes", slice.memory as f64));
    }
    numbers
}

impl Stand for Trial<'_> {
    type Target = Target;
    type Op = Kind;
    type Seat = Seat;

    fn start(&mut self, target: &Target) -> Result<Seat, String> {
        self.start_one(target)
    }

    fn slice(
        &mut self,
        seat: &mut Seat,
        _target: &Target,
        point: &Point<Kind>,
    ) -> Result<Vec<Number>, String> {
        let (slice, more) = self.slice_of(seat, point.op)?;
        self.whole.add(point.engine, &point.params, &slice.latencies);
        Ok([numbers_of(&slice), more].concat())
    }

    fn end(&mut self, mut seat: Seat, target: &Target) -> Result<Option<String>, String> {
        compare(&mut seat.server, &seat.content, seat.content.writes)?;
        let pid = seat.server.info("server", "process_id")?;
        target.arm.engine(&self.site.program, pid)
    }
}
