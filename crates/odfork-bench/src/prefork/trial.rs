//! The servers, one for each arm, and what is done with them: slices of load, memory after each, a
//! check at the end. While one server has load, the others are idle.

use std::path::PathBuf;

use anyhow::Result;

use super::service::{used, weight, Launch, Server};
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

    /// Connections a second: the processors are busy to a tenth, or two to a third.
    pub fn rate(self) -> u32 {
        match self {
            Kind::Apache => 400,
            Kind::Postgres => 30,
        }
    }

    pub fn clients(self) -> usize {
        8
    }

    /// Apache and its load need little of one processor. On two, what they wait for is which one
    /// wakes whom, and slices of the same arm differ by a tenth; on one by a fiftieth.
    pub fn is_pinned(self) -> bool {
        self == Kind::Apache
    }

    /// Of a slice, by effort.
    pub fn seconds(self) -> [u32; 3] {
        match self {
            Kind::Apache => [2, 2, 2],
            Kind::Postgres => [2, 5, 10],
        }
    }

    pub fn rounds(self) -> [u32; 3] {
        match self {
            Kind::Apache => [2, 60, 200],
            Kind::Postgres => [2, 20, 40],
        }
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
        let before = used(pid);
        let slice = server.load(schedule)?;
        let spent = used(pid).saturating_sub(before) as f64;
        let mut numbers = slice.numbers();
        let each = spent / slice.latencies.len().max(1) as f64;
        numbers.push(Number::new("processor", "ns", each));
        // Behind the load: reading the memory of all children takes their locks, and longer the
        // more mappings they have.
        numbers.push(Number::new("pss", "bytes", weight(pid) as f64));
        self.whole.add(point.engine, &point.params, &slice.latencies);
        Ok(numbers)
    }

    fn end(&mut self, mut server: Box<dyn Server>, arm: &Arm) -> Result<Option<String>, String> {
        server.check()?;
        arm.engine(&self.settings.odfork, server.pid())
    }
}
