//! Whether the simulator is right: the same accesses are made by a real process under our pagers,
//! and page-ins are compared.
//!
//! `accesses` prepares what is made, `odfork_bench::live` runs it; this file simulates the same and
//! judges. The pager of all memory is compared with the policy `moves`. The daemon runs the very
//! clock of the policy `unix`, by time: the simulator is told what an access, a fault and a reclaim
//! took.

mod accesses;

use anyhow::{ensure, Context, Result};
use odfork_bench::live::{Counts, Site};
use odfork_policy::cost::Tally;
use odfork_policy::policy::Spec;
use odfork_proc::{folder, interrupt};
use odfork_proc::table::columns;
use odfork_report::study::{Claim, Grid};

use super::super::simulation::simulate_kept;
use super::cases::Trace;
use accesses::Accesses;

/// Memory as a share of the pages.
const SHARES: [f64; 3] = [0.25, 0.5, 0.75];
/// Simulator and pager agree if no difference is larger.
const CLOSE: f64 = 0.03;

/// Who pages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pager {
    Written,
    Simulated,
    Daemon,
}

const PAGERS: [Pager; 3] = [Pager::Written, Pager::Simulated, Pager::Daemon];

impl Pager {
    fn words(self) -> &'static str {
        match self {
            Pager::Written => "all memory, written pages spared",
            Pager::Simulated => "all memory, reference bits simulated",
            Pager::Daemon => "daemon",
        }
    }

    fn run(self, site: &Site, file: &std::path::Path, limit: u32) -> Result<Counts> {
        match self {
            Pager::Written => site.any(file, limit.into(), "written"),
            Pager::Simulated => site.any(file, limit.into(), "simulated"),
            Pager::Daemon => site.daemon(file, limit.into()),
        }
    }

    /// The policy with what was measured. What the process needs for itself grows: the policy is
    /// run with each size that was seen, and the mean counts. Where one frame more or less decides
    /// much, a single size would say little.
    fn policies(self, counts: &Counts, access_ns: f64) -> Vec<String> {
        let of_own = |bits: &str| {
            let one = |own: &u64| format!("moves:own={own},bits={bits}");
            counts.own.iter().map(one).collect()
        };
        match self {
            Pager::Written => of_own("written"),
            Pager::Simulated => of_own("simulated"),
            Pager::Daemon => {
                let reclaims = (counts.reclaims * counts.reclaim_ns) as f64;
                let spent = access_ns * counts.accesses as f64 + reclaims;
                let faults = counts.page_ins.max(1) as f64;
                let fault_us = (counts.ns as f64 - spent).max(0.0) / faults / 1000.0;
                let reclaim_us = counts.reclaim_ns as f64 / 1000.0;
                vec![format!(
                    "unix:press=0.0625,ref_ns={access_ns:.0},fault_us={fault_us:.1},\
                     reclaim_us={reclaim_us:.1}"
                )]
            }
        }
    }

    /// Of the policy, in what the pager counts.
    fn page_ins(self, tally: &Tally, pages: u32) -> u64 {
        match self {
            Pager::Daemon => tally.faults.saturating_sub(pages.into()),
            _ => tally.pages_read,
        }
    }
}

/// One run and its simulation.
struct Case {
    name: String,
    pages: u32,
    limit: u32,
    pager: Pager,
    /// Page-ins of the simulations, and the mean of their page-outs.
    simulated: Vec<u64>,
    page_outs: u64,
    counts: Counts,
}

fn mean(numbers: &[u64]) -> u64 {
    numbers.iter().sum::<u64>() / numbers.len().max(1) as u64
}

impl Case {
    fn difference(&self) -> f64 {
        self.counts.page_ins as f64 / mean(&self.simulated).max(1) as f64 - 1.0
    }

    /// Of the simulations with the sizes that were seen.
    fn range(&self) -> String {
        let (least, most) = (self.simulated.iter().min(), self.simulated.iter().max());
        match (least, most) {
            (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
            _ => "–".into(),
        }
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            format!("{:.0} %", 100.0 * f64::from(self.limit) / f64::from(self.pages)),
            self.pager.words().to_owned(),
            (u64::from(self.limit) - mean(&self.counts.own)).to_string(),
            mean(&self.simulated).to_string(),
            self.range(),
            self.counts.page_ins.to_string(),
            format!("{:+.2} %", 100.0 * self.difference()),
            self.page_outs.to_string(),
            self.counts.page_outs.to_string(),
        ]
    }
}

const HEAD: [&str; 10] = [
    "accesses",
    "limit",
    "pager",
    "frames",
    "page-ins simulated",
    "range",
    "page-ins live",
    "difference",
    "page-outs simulated",
    "page-outs live",
];

/// What the chapter gets.
pub struct Live {
    pub intro: String,
    pub claims: Vec<Claim>,
    pub grid: Grid,
}

impl Live {
    /// As text.
    pub fn table(&self) -> String {
        columns(&[std::slice::from_ref(&self.grid.head), &self.grid.rows].concat())
    }
}

/// `None` after Ctrl-C. Without traces, or beside recorded ones, with accesses that are made up.
pub fn compare(traces: &[Trace], with_made_up: bool) -> Result<Option<Live>> {
    // SAFETY: asks for a number.
    let is_root = unsafe { libc::geteuid() } == 0;
    ensure!(is_root, "--live pages all memory of a process, which needs root and Linux 6.11");
    let mut all: Vec<Accesses> = traces.iter().map(Accesses::of).collect();
    if with_made_up {
        all.extend(Accesses::made_up());
    }
    let folder = folder::own()?.join(format!("live-{}", std::process::id()));
    std::fs::create_dir_all(&folder).context("a folder for the accesses")?;
    let site = Site { program: std::env::current_exe()?, folder };
    let cases = run(&site, &all);
    let _ = std::fs::remove_dir_all(&site.folder);
    Ok(cases?.map(|cases| Live {
        intro: intro(&all),
        claims: PAGERS.iter().zip(1..).map(|(pager, at)| judge(*pager, at, &cases)).collect(),
        grid: Grid {
            caption: "Live runs: the same accesses simulated, and made under the pager.".into(),
            head: HEAD.map(str::to_owned).into(),
            rows: cases.iter().map(Case::row).collect(),
            words: 3,
        },
    }))
}

fn run(site: &Site, all: &[Accesses]) -> Result<Option<Vec<Case>>> {
    let mut cases = Vec::new();
    for accesses in all {
        let file = site.folder.join("accesses");
        accesses.write(&file).context("the accesses cannot be written")?;
        let unpaged = site.unpaged(&file)?;
        let access_ns = unpaged.ns as f64 / unpaged.accesses.max(1) as f64;
        for share in SHARES {
            let limit = (f64::from(accesses.pages) * share) as u32;
            for pager in PAGERS {
                if interrupt::asked() {
                    return Ok(None);
                }
                eprintln!(
                    "odfork page compare: live: {}, {limit} of {} pages, {}",
                    accesses.name,
                    accesses.pages,
                    pager.words()
                );
                let counts = pager.run(site, &file, limit).with_context(|| {
                    format!("{} under {limit} pages, {}", accesses.name, pager.words())
                })?;
                cases.push(simulated(accesses, pager, limit, counts, access_ns)?);
            }
        }
    }
    Ok(Some(cases))
}

fn simulated(
    accesses: &Accesses,
    pager: Pager,
    limit: u32,
    counts: Counts,
    access_ns: f64,
) -> Result<Case> {
    let policies = pager.policies(&counts, access_ns);
    let specs = policies.iter().map(|text| text.parse()).collect::<Result<Vec<Spec>, _>>()?;
    let done = simulate_kept(std::slice::from_ref(&accesses.piece), &specs, &[limit])?;
    let tallies: Vec<Tally> = done.counts.iter().map(|count| count.tally).collect();
    let page_ins = |tally: &Tally| pager.page_ins(tally, accesses.pages);
    let page_outs: Vec<u64> = tallies.iter().map(|tally| tally.write_backs).collect();
    Ok(Case {
        name: accesses.name.clone(),
        pages: accesses.pages,
        limit,
        pager,
        simulated: tallies.iter().map(page_ins).collect(),
        page_outs: mean(&page_outs),
        counts,
    })
}

fn intro(all: &[Accesses]) -> String {
    let one = |accesses: &Accesses| {
        let factor = match accesses.factor {
            1 => String::new(),
            factor => format!(", each page of the trace as {factor}"),
        };
        let count = accesses.piece.references.len();
        format!("{} ({count} to {} pages{factor})", accesses.name, accesses.pages)
    };
    format!(
        "Live runs: a process makes the same accesses on real memory, after it wrote each page \
         once in order, and compares every page. {}. Frames are what the limit leaves on the mean: \
         the process itself needs the rest. What it needs was looked at 16 times. The policy \
         was run with each of these sizes; the mean and the range are shown.",
        all.iter().map(one).collect::<Vec<_>>().join(", ")
    )
}

fn judge(pager: Pager, number: u32, cases: &[Case]) -> Claim {
    let of: Vec<&Case> = cases.iter().filter(|case| case.pager == pager).collect();
    let far = of.iter().filter(|case| case.difference().abs() > CLOSE).count();
    let worst = of.iter().max_by(|a, b| a.difference().abs().total_cmp(&b.difference().abs()));
    let mean = of.iter().map(|case| case.difference().abs()).sum::<f64>() / of.len().max(1) as f64;
    let place = |case: &&Case| format!("{}, {}", case.name, case.row()[1]);
    Claim {
        name: format!("L{number}"),
        claim: format!(
            "(ours) simulator and pager agree on page-ins within {:.0} %: {}",
            CLOSE * 100.0,
            pager.words()
        ),
        verdict: match far {
            0 => "reached".into(),
            far => format!("missed in {far} of {} runs", of.len()),
        },
        numbers: vec![
            format!("mean difference {:.2} % of {} runs", mean * 100.0, of.len()),
            worst.map_or(String::new(), |case| {
                format!("worst {:+.2} %: {}", case.difference() * 100.0, place(case))
            }),
        ],
    }
}
