//! The machines of a case, one for each arm: slices in turn, and whether every input had the result
//! it has with stock fork. While one runs, the others wait for their next command.

use std::path::PathBuf;
use std::time::Duration;

use super::guest::Workshop;
use super::machine::{Case, Done, Machine};
use crate::foreign::arms::Arm;
use crate::foreign::seats::Stand;
use crate::runner::{Number, Point};

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
    /// Of all results of a case, whoever had them first.
    digest: Option<String>,
}

impl<'a> Trial<'a> {
    pub fn new(settings: &'a Settings) -> Trial<'a> {
        Trial { settings, digest: None }
    }
}

impl Stand for Trial<'_> {
    type Target = Target;
    type Op = ();
    type Seat = Machine;

    fn begin(&mut self) {
        self.digest = None;
    }

    fn start(&mut self, target: &Target) -> Result<Machine, String> {
        let Settings { odfork, workshop, folder, .. } = self.settings;
        let folder = folder.join(target.arm.name);
        Machine::start(workshop, (odfork, &target.arm), target.case, &folder)
    }

    fn slice(
        &mut self,
        machine: &mut Machine,
        _target: &Target,
        _point: &Point<()>,
    ) -> Result<Vec<Number>, String> {
        let done = machine.slice(self.settings.slice)?;
        check(&done, &mut self.digest)?;
        let executions = done.executions as f64;
        Ok(vec![
            Number::new("rate", "1/s", executions * 1e9 / done.nanoseconds),
            Number::new("fork", "ns", done.in_fork / executions.max(1.0)),
        ])
    }

    fn end(&mut self, machine: Machine, target: &Target) -> Result<Option<String>, String> {
        target.arm.engine(&self.settings.odfork, machine.pid())
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
