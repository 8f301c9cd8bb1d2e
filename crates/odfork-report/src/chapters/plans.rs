//! The experiments a report knows: their question, their tables, and what was published.
//!
//! Owns no numbers of ours, no words (`plans.json`) and no drawing: `build` names the function that
//! makes the plots of an experiment.

use std::sync::LazyLock;

use serde::Deserialize;

use super::tables::Column;
use super::{access, exec, grid, latency, paging, parent, programs, redis, shares};
use crate::blocks::Content;
use odfork_samples::digest::Digest;

/// What is known of an experiment before anything is measured.
#[derive(Clone, Debug, Deserialize)]
pub struct Plan {
    pub name: &'static str,
    pub title: &'static str,
    pub question: &'static str,
    /// The metric of the harness overhead and the headline.
    pub metric: &'static str,
    /// Why ours and theirs may differ.
    pub differ: &'static str,
    pub command: &'static str,
    /// What the front page says was published.
    pub published: &'static str,
    pub columns: Vec<Column<'static>>,
    /// Metric and caption of each table of medians.
    pub tables: Vec<(&'static str, &'static str)>,
    /// Whether the tables show the ratio to plain.
    pub ratios: bool,
}

pub static PLANS: LazyLock<Vec<Plan>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("plans.json")).expect("plans.json is checked by tests")
});

impl Plan {
    /// The one sentence that a reader remembers, of programs of others.
    pub fn lead(&self, digest: &Digest) -> Option<String> {
        match self.name {
            "redis" => redis::lead(digest),
            "afl" => programs::lead_of_rates(digest, "target"),
            "vm" => programs::lead_of_rates(digest, "guest"),
            "apache" | "postgres" => programs::lead_of_servers(digest),
            _ => None,
        }
    }

    /// Plots, tables of its own and headlines, from the samples and the chapter's name.
    pub fn build(&self, digest: &Digest, id: &str) -> Content {
        let build = match self.name {
            "grid" => grid::build,
            "latency" => latency::build,
            "fault" => latency::build_fault,
            "access" => access::build,
            "profile" => shares::build_profile,
            "parent-writes" => parent::build,
            "exec" => exec::build,
            "copy-rate" => shares::build_copy,
            "writes" => shares::build_writes,
            "paging" => paging::build_paging,
            "sessions" => paging::build_sessions,
            "redis" => redis::build,
            "afl" | "vm" => programs::build_rates,
            "apache" | "postgres" => programs::build_servers,
            name => unreachable!("{name} has no chapter"),
        };
        build(digest, id)
    }
}
