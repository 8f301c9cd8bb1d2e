//! The servers, one for each arm, and what is done with them: slices of load, memory meanwhile, a
//! check at the end. While one server has load, the others are idle.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use odfork_samples::stats::median;

use super::service::{ticks, weight, Launch, Server};
use super::{apache, postgres};
use crate::foreign::arms::Arm;
use crate::foreign::make_folder;
use crate::foreign::open_loop::{Schedule, Whole};
use crate::foreign::seats::Stand;
use crate::runner::{Number, Point};
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
    pub whole: Whole,
}

/// Nanoseconds of what the kernel counts processor time in.
const TICK: f64 = 1e7;
/// Between two looks at the memory of a server under load.
const LOOK: Duration = Duration::from_millis(250);

impl<'a> Trial<'a> {
    pub fn new(settings: &'a Settings) -> Trial<'a> {
        Trial { settings, whole: Whole::default() }
    }
}

impl Stand for Trial<'_> {
    type Target = Arm;
    type Op = ();
    type Seat = Box<dyn Server>;

    fn start(&mut self, arm: &Arm) -> Result<Box<dyn Server>, String> {
        let Settings { kind, odfork, tools, folder, seed, .. } = self.settings;
        let folder = folder.join(arm.name);
        make_folder(&folder, None)?;
        let launch = Launch { odfork, arm, tools, folder: &folder, seed: *seed };
        Ok(match kind {
            Kind::Apache => Box::new(apache::start(&launch)?),
            Kind::Postgres => Box::new(postgres::start(&launch)?),
        })
    }

    fn slice(
        &mut self,
        server: &mut Box<dyn Server>,
        _arm: &Arm,
        point: &Point<()>,
    ) -> Result<Vec<Number>, String> {
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
        self.whole.add(point.engine, &point.params, &slice.latencies);
        Ok(numbers)
    }

    fn end(&mut self, mut server: Box<dyn Server>, arm: &Arm) -> Result<Option<String>, String> {
        server.check()?;
        arm.engine(&self.settings.odfork, server.pid())
    }
}
