//! The servers, one for each arm, and what is done with them: slices of load, memory meanwhile, a
//! check at the end. While one server has load, the others are idle.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;

use odfork_samples::stats::median;

use super::service::{ticks, weight, Launch, Server};
use super::{apache, postgres};
use crate::foreign::arms::Arm;
use crate::foreign::open_loop::{Schedule, Slice, Whole};
use crate::foreign::{ended, engine, make_folder};
use crate::runner::{Executor, Number, Point, Reply};
use crate::words::words;

words! {
    Kind: 2 { Apache = "apache", Postgres = "postgres", }
}

impl Kind {
    /// The program, or the folder of the programs.
    pub fn tools(self) -> Result<PathBuf> {
        match self {
            Kind::Apache => apache::tools(),
            Kind::Postgres => postgres::tools(),
        }
    }

    /// Connections a second: two processors are busy to a third.
    pub fn rate(self) -> u32 {
        match self {
            Kind::Apache => 400,
            Kind::Postgres => 30,
        }
    }

    pub fn clients(self) -> usize {
        8
    }
}

/// What all arms have in common.
pub struct Settings {
    pub kind: Kind,
    /// This program.
    pub odfork: PathBuf,
    pub tools: PathBuf,
    pub folder: PathBuf,
    pub schedule: Schedule,
    pub seed: u64,
}

pub struct Trial<'a> {
    settings: &'a Settings,
    begun: Instant,
    servers: Vec<Option<Box<dyn Server>>>,
    arms: Vec<Arm>,
    pub whole: Whole,
}

/// Nanoseconds of what the kernel counts processor time in.
const TICK: f64 = 1e7;
/// Between two looks at the memory of a server under load.
const LOOK: Duration = Duration::from_millis(250);

impl<'a> Trial<'a> {
    pub fn new(settings: &'a Settings) -> Trial<'a> {
        let (servers, arms, whole) = (Vec::new(), Vec::new(), Whole::default());
        Trial { settings, begun: Instant::now(), servers, arms, whole }
    }

    fn start_one(&self, arm: &Arm) -> Result<Box<dyn Server>, String> {
        let Settings { kind, odfork, tools, folder, seed, .. } = self.settings;
        let folder = folder.join(arm.name);
        make_folder(&folder, None)?;
        let launch = Launch { odfork, arm, tools, folder: &folder, seed: *seed };
        Ok(match kind {
            Kind::Apache => Box::new(apache::start(&launch)?),
            Kind::Postgres => Box::new(postgres::start(&launch)?),
        })
    }

    fn slice(&mut self, place: usize) -> Result<(Slice, Vec<Number>), String> {
        let server = self.servers[place].as_mut().ok_or("its server has not started")?;
        let (schedule, pid) = (self.settings.schedule, server.pid());
        let before = ticks(pid);
        let (slice, weights) = std::thread::scope(|scope| {
            let work = scope.spawn(|| server.load(schedule));
            let mut weights = Vec::new();
            while !work.is_finished() {
                std::thread::sleep(LOOK);
                weights.push(weight(pid) as f64);
            }
            (work.join().unwrap_or_else(|_| Err("the load panicked".into())), weights)
        });
        let slice = slice?;
        let mut numbers = slice.numbers();
        // A child that ends while they are counted is missed, or counted twice.
        let used = ticks(pid).saturating_sub(before) as f64;
        let each = used * TICK / slice.latencies.len().max(1) as f64;
        numbers.push(Number::new("processor", "ns", each));
        numbers.extend(median(&weights).map(|bytes| Number::new("pss", "bytes", bytes)));
        Ok((slice, numbers))
    }

    fn end(&mut self, place: usize) -> Result<Reply, String> {
        let Some(mut server) = self.servers[place].take() else { return Ok(Reply::default()) };
        server.check()?;
        let is_ours = self.arms[place].options.is_some();
        let says = is_ours.then(|| engine(&self.settings.odfork, server.pid())).transpose()?;
        Ok(Reply { engine: says, ..Reply::default() })
    }
}

impl Executor for Trial<'_> {
    type Target = Arm;
    type Op = ();

    fn start(&mut self, targets: &[Arm]) -> Vec<Option<String>> {
        self.arms = targets.to_vec();
        let mut reasons = Vec::new();
        for arm in targets {
            let started = self.start_one(arm);
            reasons.push(started.as_ref().err().cloned());
            self.servers.push(started.ok());
        }
        reasons
    }

    fn perform(&mut self, point: &Point<()>, _round: u32) -> Reply {
        match self.slice(point.targets[0]) {
            Ok((slice, numbers)) => {
                self.whole.add(point.engine, &point.params, &slice.latencies);
                Reply::numbers(numbers)
            }
            Err(why) => ended(why),
        }
    }

    fn verify(&mut self, target: usize) -> Reply {
        self.end(target).unwrap_or_else(ended)
    }

    fn stop(&mut self) {
        self.servers.clear();
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }
}
