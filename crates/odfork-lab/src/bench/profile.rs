//! Where the time of fork goes. Written apart; until then it refuses.

use anyhow::{bail, Result};

use crate::executor::Stage;
use crate::experiments::SubjectSpec;

pub struct Part {
    pub name: String,
    pub share: f64,
}

pub struct Profile {
    pub source: &'static str,
    pub why: Option<String>,
    pub parts: Vec<Part>,
    pub counters: Vec<(String, f64, &'static str)>,
}

pub fn profile(_: &Stage, _: SubjectSpec, _: f64) -> Result<Profile> {
    bail!("not written yet")
}
