//! Whether the simulator is right: the same accesses are made by a real process under our pagers,
//! and page-ins are compared.
//!
//! `accesses` prepares what is made, `odfork_bench::live` runs it; this file simulates the same and
//! judges. The pager of all memory is compared with the policy `moves`. The daemon runs the very
//! clock of the policy `unix`, by time: the simulator is told what an access, a fault and a reclaim
//! took.

mod accesses;

use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result};
use odfork_bench::live::{Counts, Site};
use odfork_policy::clock::Linear;
use odfork_policy::cost::Tally;
use odfork_proc::table::columns;
use odfork_proc::{folder, interrupt};
use odfork_report::study::{Claim, Grid};

use super::super::probe;
use super::super::simulation::simulate_kept;
use super::cases::Trace;
use accesses::Accesses;

/// Memory as a share of the pages.
const SHARES: [f64; 3] = [0.25, 0.5, 0.75];
/// Simulator and pager agree if no difference is larger.
const CLOSE: f64 = 0.03;
/// A page more or less may change what is read by a twentieth. So each run of a case has a limit
/// that is a few pages smaller, and means are compared.
const SMALLER: u32 = 8;
/// Of a processor, for reclaims: the daemon's.
const SCAN_SHARE: f64 = 0.1;

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

    fn run(self, site: &Site, file: &Path, limit: u32) -> Result<Counts> {
        match self {
            Pager::Written => site.any(file, limit.into(), "written"),
            Pager::Simulated => site.any(file, limit.into(), "simulated"),
            Pager::Daemon => site.daemon(file, limit.into()),
        }
    }

    /// The policies with what was measured, and their frames.
    ///
    /// All memory: what the process needs for itself grows, so there is one policy for each size
    /// that was seen. Where one frame more or less decides much, a single size would say little.
    /// The daemon: a reclaim waits as long as a page-in, as both are mostly waking somebody; how
    /// fast the hand moves goes by what the daemon found a reclaim to cost when it began.
    fn policies(self, limit: u32, counts: &Counts, access_ns: f64) -> (Vec<String>, u32) {
        let of_own = |bits: &str| {
            let mut own = counts.own.clone();
            own.sort_unstable();
            let one = |own: &u64| format!("moves:own={own},bits={bits}");
            (own.iter().map(one).collect(), limit)
        };
        match self {
            Pager::Written => of_own("written"),
            Pager::Simulated => of_own("simulated"),
            Pager::Daemon => {
                let touches = counts.reclaims + counts.page_ins;
                let spent = counts.ns as f64 - access_ns * counts.accesses as f64;
                let touch_us = spent.max(0.0) / touches.max(1) as f64 / 1000.0;
                let rule = Linear::paper(limit, counts.reclaim_ns, SCAN_SHARE);
                let policy = format!(
                    "unix:press=0.0625,ref_ns={access_ns:.0},fault_us={touch_us:.1},\
                     reclaim_us={touch_us:.1},slowest={},fastest={}",
                    rule.slowest, rule.fastest
                );
                (vec![policy], limit - mean(counts.own.iter().copied()) as u32)
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

/// Runs that are alike, and their simulations.
struct Case {
    name: String,
    pages: u32,
    limit: u32,
    pager: Pager,
    /// Page-ins and page-outs of each simulation.
    simulated: Vec<(u64, u64)>,
    runs: Vec<Counts>,
}

fn mean(numbers: impl ExactSizeIterator<Item = u64>) -> u64 {
    let count = numbers.len().max(1) as u64;
    numbers.sum::<u64>() / count
}

impl Case {
    /// Page-ins of the simulations: the mean, the least and the most.
    fn simulated(&self) -> (u64, u64, u64) {
        let page_ins = self.simulated.iter().map(|&(page_ins, _)| page_ins);
        let (least, most) = (page_ins.clone().min(), page_ins.clone().max());
        (mean(page_ins), least.unwrap_or(0), most.unwrap_or(0))
    }

    fn live(&self) -> u64 {
        mean(self.runs.iter().map(|counts| counts.page_ins))
    }

    fn difference(&self) -> f64 {
        self.live() as f64 / self.simulated().0.max(1) as f64 - 1.0
    }

    fn row(&self) -> Vec<String> {
        let (simulated, least, most) = self.simulated();
        let own = self.runs.iter().map(|counts| mean(counts.own.iter().copied()));
        vec![
            self.name.clone(),
            format!("{:.0} %", 100.0 * f64::from(self.limit) / f64::from(self.pages)),
            self.pager.words().to_owned(),
            (u64::from(self.limit) - mean(own)).to_string(),
            self.runs.len().to_string(),
            simulated.to_string(),
            if least < most { format!("{least} to {most}") } else { "–".into() },
            self.live().to_string(),
            format!("{:+.2} %", 100.0 * self.difference()),
            mean(self.simulated.iter().map(|&(_, page_outs)| page_outs)).to_string(),
            mean(self.runs.iter().map(|counts| counts.page_outs)).to_string(),
        ]
    }
}

const HEAD: [&str; 11] = [
    "accesses",
    "limit",
    "pager",
    "frames",
    "runs",
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
pub fn compare(traces: &[Trace], with_made_up: bool, runs: u32) -> Result<Option<Live>> {
    probe::moves().map_err(Error::msg).context("--live pages all memory of a process")?;
    let mut all: Vec<Accesses> = traces.iter().map(Accesses::of).collect();
    if with_made_up {
        all.extend(Accesses::made_up());
    }
    let folder = folder::own()?.join(format!("live-{}", std::process::id()));
    std::fs::create_dir_all(&folder).context("a folder for the accesses")?;
    let site = Site { program: std::env::current_exe()?, folder };
    let cases = run(&site, &all, runs);
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

fn run(site: &Site, all: &[Accesses], runs: u32) -> Result<Option<Vec<Case>>> {
    let mut cases = Vec::new();
    for accesses in all {
        let file = site.folder.join("accesses");
        accesses.write(&file).context("the accesses cannot be written")?;
        let unpaged = site.unpaged(&file)?;
        let access_ns = unpaged.ns as f64 / unpaged.accesses.max(1) as f64;
        let live = Runs { site, accesses, file, access_ns };
        for (share, pager) in SHARES.iter().flat_map(|share| PAGERS.map(|pager| (share, pager))) {
            let limit = (f64::from(accesses.pages) * share) as u32;
            let mut case = live.case(pager, limit);
            for _ in 0..runs {
                if interrupt::asked() {
                    return Ok(None);
                }
                live.add(&mut case)?;
            }
            cases.push(case);
        }
    }
    Ok(Some(cases))
}

/// Runs of the same accesses.
struct Runs<'a> {
    site: &'a Site,
    accesses: &'a Accesses,
    file: PathBuf,
    /// What an access takes without a pager.
    access_ns: f64,
}

impl Runs<'_> {
    fn case(&self, pager: Pager, limit: u32) -> Case {
        let (name, pages) = (self.accesses.name.clone(), self.accesses.pages);
        Case { name, pages, limit, pager, simulated: Vec::new(), runs: Vec::new() }
    }

    /// One more run, and its simulations.
    fn add(&self, case: &mut Case) -> Result<()> {
        let limit = case.limit - SMALLER * case.runs.len() as u32;
        let what = format!("{}, {limit} of {} pages", case.name, case.pages);
        let pager = case.pager;
        eprintln!("odfork page compare: live: {what}, {}", pager.words());
        let counts = pager.run(self.site, &self.file, limit);
        let counts = counts.with_context(|| format!("{what}, {}", pager.words()))?;
        let (policies, frames) = pager.policies(limit, &counts, self.access_ns);
        let specs = policies.iter().map(|text| text.parse()).collect::<Result<Vec<_>, _>>()?;
        let pieces = std::slice::from_ref(&self.accesses.piece);
        let found = simulate_kept(pieces, &specs, &[frames])?.counts;
        let counted = found
            .iter()
            .map(|count| (pager.page_ins(&count.tally, case.pages), count.tally.write_backs));
        case.simulated.extend(counted);
        case.runs.push(counts);
        Ok(())
    }
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
         was run with each of these sizes; the mean and the range are shown. Runs of a case have \
         limits {SMALLER} pages apart.",
        all.iter().map(one).collect::<Vec<_>>().join(", ")
    )
}

fn judge(pager: Pager, number: u32, cases: &[Case]) -> Claim {
    let of: Vec<&Case> = cases.iter().filter(|case| case.pager == pager).collect();
    let far = of.iter().filter(|case| case.difference().abs() > CLOSE).count();
    let runs: usize = of.iter().map(|case| case.runs.len()).sum();
    let worst = of.iter().max_by(|a, b| a.difference().abs().total_cmp(&b.difference().abs()));
    let apart = of.iter().map(|case| case.difference().abs()).sum::<f64>() / of.len().max(1) as f64;
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
            far => format!("missed in {far} of {} cases", of.len()),
        },
        numbers: vec![
            format!("mean difference {:.2} %, {} cases, {runs} runs", apart * 100.0, of.len()),
            worst.map_or(String::new(), |case| {
                format!("worst {:+.2} %: {}", case.difference() * 100.0, place(case))
            }),
        ],
    }
}
