//! The machines of a case, one for each arm: slices in turn, and whether every input had the result
//! it has with stock fork. While one runs, the others wait for their next command.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::guest::Workshop;
use super::machine::{Case, Done, Machine};
use crate::foreign::arms::Arm;
use crate::foreign::{ended, engine};
use crate::runner::{Executor, Number, Point, Reply};

/// Inputs there are; with fewer executions the digest is not of all.
const INPUTS: u64 = 64;

#[derive(Clone, Debug)]
pub struct Target {
    pub arm: Arm,
    pub case: Case,
}

/// What all cases have in common.
pub struct Settings {
    /// This program.
    pub odfork: PathBuf,
    pub workshop: Workshop,
    pub folder: PathBuf,
    pub slice: Duration,
}

pub struct Trial<'a> {
    settings: &'a Settings,
    begun: Instant,
    targets: Vec<Target>,
    machines: Vec<Option<Machine>>,
    /// Of all results, whoever had them first.
    digest: Option<String>,
}

impl<'a> Trial<'a> {
    pub fn new(settings: &'a Settings) -> Trial<'a> {
        let (targets, machines) = (Vec::new(), Vec::new());
        Trial { settings, begun: Instant::now(), targets, machines, digest: None }
    }

    fn start_one(&self, target: &Target) -> Result<Machine, String> {
        let Settings { odfork, workshop, folder, .. } = self.settings;
        let folder = folder.join(target.arm.name);
        Machine::start(workshop, (odfork, &target.arm), target.case, &folder)
    }

    fn slice(&mut self, place: usize) -> Result<Vec<Number>, String> {
        let machine = self.machines[place].as_mut().ok_or("its machine has not started")?;
        let done = machine.slice(self.settings.slice)?;
        check(&done, &mut self.digest)?;
        let executions = done.executions as f64;
        Ok(vec![
            Number::new("rate", "1/s", executions * 1e9 / done.nanoseconds),
            Number::new("fork", "ns", done.in_fork / executions.max(1.0)),
        ])
    }

    fn end(&mut self, place: usize) -> Result<Reply, String> {
        let Some(machine) = self.machines[place].take() else { return Ok(Reply::default()) };
        let is_ours = self.targets[place].arm.options.is_some();
        let says = is_ours.then(|| engine(&self.settings.odfork, machine.pid())).transpose()?;
        Ok(Reply { engine: says, ..Reply::default() })
    }
}

/// Every input has the result it had before, here and with all other arms.
fn check(done: &Done, digest: &mut Option<String>) -> Result<(), String> {
    if done.changed > 0 {
        return Err(format!("{} inputs had another result than before", done.changed));
    }
    if done.all < INPUTS {
        return Ok(());
    }
    match digest.get_or_insert_with(|| done.digest.clone()) {
        known if *known == done.digest => Ok(()),
        _ => Err("the results are not those of another arm".into()),
    }
}

impl Executor for Trial<'_> {
    type Target = Target;
    type Op = ();

    fn start(&mut self, targets: &[Target]) -> Vec<Option<String>> {
        self.targets = targets.to_vec();
        self.digest = None;
        let mut reasons = Vec::new();
        for target in targets {
            let started = self.start_one(target);
            reasons.push(started.as_ref().err().cloned());
            self.machines.push(started.ok());
        }
        reasons
    }

    fn perform(&mut self, point: &Point<()>, _round: u32) -> Reply {
        match self.slice(point.targets[0]) {
            Ok(numbers) => Reply::numbers(numbers),
            Err(why) => ended(why),
        }
    }

    fn verify(&mut self, target: usize) -> Reply {
        self.end(target).unwrap_or_else(ended)
    }

    fn stop(&mut self) {
        self.machines.clear();
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_result_is_wrong_once_all_inputs_were_seen() {
        let done = |all, digest: &str, changed| Done {
            executions: 1,
            nanoseconds: 1.0,
            in_fork: 1.0,
            digest: digest.into(),
            changed,
            all,
        };
        let mut digest = None;
        assert_eq!(check(&done(63, "a", 0), &mut digest), Ok(()));
        assert_eq!(check(&done(64, "b", 0), &mut digest), Ok(()));
        assert_eq!(check(&done(99, "b", 0), &mut digest), Ok(()));
        assert!(check(&done(64, "c", 0), &mut digest).is_err());
        assert!(check(&done(64, "b", 1), &mut digest).is_err());
    }
}
