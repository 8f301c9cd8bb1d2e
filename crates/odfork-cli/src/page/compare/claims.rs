//! The claims, judged. Every verdict follows from a rule written here, before the numbers are
//! known.

use odfork_policy::cost::RATIOS;
use odfork_report::study::Claim;

use super::cases::{partitions, Results, FRACTIONS, SHARES};
use super::mix::Together;

/// "Very close": at most this many times the faults, on the mean; and at every point.
const CLOSE: f64 = 1.10;
/// Of faults, in C4.
const WITHIN: f64 = 1.05;

/// Geometric mean and worst of ratios, with the place of the worst.
pub struct Spread {
    pub mean: f64,
    pub worst: f64,
    at: (usize, usize),
}

fn spread(values: impl Iterator<Item = ((usize, usize), f64)>) -> Spread {
    let (mut logs, mut count, mut worst, mut at) = (0.0, 0usize, 0.0, (0, 0));
    for (place, value) in values.filter(|(_, value)| value.is_finite() && *value > 0.0) {
        logs += value.ln();
        count += 1;
        if value > worst {
            (worst, at) = (value, place);
        }
    }
    Spread { mean: if count == 0 { f64::NAN } else { (logs / count as f64).exp() }, worst, at }
}

impl Spread {
    fn words(&self, results: &Results) -> String {
        format!("mean {:.3}, worst {:.2} ({})", self.mean, self.worst, results.place(self.at))
    }
}

fn claim(name: &str, text: &str, verdict: String, numbers: Vec<String>) -> Claim {
    Claim { name: name.into(), claim: text.into(), verdict, numbers }
}

fn verdict(holds: bool) -> String {
    if holds { "confirmed" } else { "refuted" }.to_owned()
}

/// C1 to C4, C6 and C7; C5 is about programs together.
pub fn judge(results: &Results) -> Vec<Claim> {
    vec![
        close_to_lru(results),
        inferior(results),
        robust(results),
        some_size(results),
        reclaims(results),
        advice(results),
    ]
}

fn against_lru(results: &Results, policy: &str) -> Spread {
    spread(results.cases().map(|(t, s)| {
        let lru = results.of(t, "lru", s).faults as f64;
        ((t, s), results.of(t, policy, s).faults as f64 / lru)
    }))
}

fn close_to_lru(results: &Results) -> Claim {
    let (set, clear) = (against_lru(results, "clock"), against_lru(results, "clock:insert=0"));
    let pressed = spread(results.cases().filter_map(|(t, s)| {
        let lru = results.of(t, "lru", s).faults;
        let short = lru > 2 * results.traces[t].pages;
        short.then(|| ((t, s), results.of(t, "clock", s).faults as f64 / lru as f64))
    }));
    let verdict = match (set.mean <= CLOSE, set.worst <= CLOSE) {
        (true, true) => "confirmed".to_owned(),
        (true, false) => "confirmed on the mean, not at every point".to_owned(),
        _ => "refuted".to_owned(),
    };
    claim(
        "C1",
        "the clock's fault rate is very close to LRU's",
        verdict,
        vec![
            format!("CLOCK / LRU: {}", set.words(results)),
            format!("entering with the bit clear: {}", clear.words(results)),
            format!("where LRU faults more than twice a page: mean {:.3}", pressed.mean),
            format!("MIN / LRU: {}", against_lru(results, "min").words(results)),
            format!(
                "the paper's policy with its pool / LRU: {}",
                against_lru(results, "unix").words(results)
            ),
        ],
    )
}

fn inferior(results: &Results) -> Claim {
    let clock = against_lru(results, "clock");
    let fifo = against_lru(results, "fifo");
    let rand =
        spread(results.cases().map(|(t, s)| {
            ((t, s), results.rand_faults(t, s) / results.of(t, "lru", s).faults as f64)
        }));
    let better: Vec<String> = results
        .cases()
        .filter(|&(t, s)| results.of(t, "fifo", s).faults < results.of(t, "lru", s).faults)
        .map(|place| results.place(place))
        .collect();
    claim(
        "C2",
        "FIFO and RAND are inferior",
        verdict(fifo.mean > clock.mean && rand.mean > clock.mean),
        vec![
            format!("FIFO / LRU: {}", fifo.words(results)),
            format!("RAND / LRU (3 seeds): {}", rand.words(results)),
            format!(
                "FIFO beats LRU at: {}",
                if better.is_empty() { "no point".into() } else { better.join(", ") }
            ),
        ],
    )
}

/// Cost over the best fixed partition of the same case.
pub fn over_best(results: &Results, policy: &str, ratio: f64) -> Spread {
    let all: Vec<String> = partitions().collect();
    spread(results.cases().map(|(t, s)| {
        let cost = |policy: &str| results.of(t, policy, s).cost(ratio, 0.0);
        let best = all.iter().map(|policy| cost(policy)).fold(f64::INFINITY, f64::min);
        ((t, s), cost(policy) / best)
    }))
}

fn robust(results: &Results) -> Claim {
    let mut numbers = Vec::new();
    let (mut sizes_lose, mut fractions_lose) = (Vec::new(), Vec::new());
    for ratio in RATIOS {
        let clock = over_best(results, "clock", ratio);
        let best = |kind: &str| {
            let of_kind = partitions().filter(|policy| policy.starts_with(kind));
            let spreads = of_kind.map(|policy| (over_best(results, &policy, ratio), policy));
            spreads.min_by(|a, b| a.0.worst.total_cmp(&b.0.worst))
        };
        let (Some((size, sized)), Some((share, shared))) = (best("vms:size"), best("vms:fraction"))
        else {
            continue;
        };
        // More robust: a smaller worst case than any single setting has.
        if clock.worst < size.worst {
            sizes_lose.push(format!("{ratio}:1"));
        }
        if clock.worst < share.worst {
            fractions_lose.push(format!("{ratio}:1"));
        }
        numbers.push(format!(
            "{ratio}:1: CLOCK {:.2} / {:.2}; {sized} {:.2} / {:.2}; {shared} {:.2} / {:.2}",
            clock.mean, clock.worst, size.mean, size.worst, share.mean, share.worst
        ));
    }
    numbers.insert(
        0,
        "cost over the best partition of the case, mean / worst; the size and the \
         fraction with the best worst case"
            .into(),
    );
    let all = RATIOS.len();
    let words = |lose: &[String]| match lose.len() {
        n if n == all => "confirmed".to_owned(),
        0 => "refuted".to_owned(),
        _ => format!("confirmed at {} only", lose.join(" and ")),
    };
    claim(
        "C3",
        "the clock is more robust than a fixed FIFO-LRU partition",
        format!(
            "against one size in pages: {}; against a fraction of memory: {}",
            words(&sizes_lose),
            words(&fractions_lose)
        ),
        numbers,
    )
}

fn some_size(results: &Results) -> Claim {
    let (mut near, mut both, mut cases) = (0, 0, 0);
    let (mut least, mut most, mut dearest): (f64, f64, f64) = (1.0, 0.0, 0.0);
    for (t, s) in results.cases() {
        cases += 1;
        let lru = results.of(t, "lru", s).faults as f64;
        let fifo = results.of(t, "fifo", s).cost(RATIOS[1], 0.0);
        // Of the fractions near LRU the cheapest.
        let close = FRACTIONS.iter().filter_map(|share| {
            let tally = results.of(t, &format!("vms:fraction={share}"), s);
            let fits = tally.faults as f64 <= WITHIN * lru;
            fits.then(|| (share.parse::<f64>().unwrap_or(0.0), tally))
        });
        let cheapest =
            close.min_by(|a, b| a.1.cost(RATIOS[1], 0.0).total_cmp(&b.1.cost(RATIOS[1], 0.0)));
        let Some((share, tally)) = cheapest else { continue };
        near += 1;
        both += usize::from(tally.cost(RATIOS[1], 0.0) <= CLOSE * fifo);
        (least, most) = (least.min(share), most.max(share));
        dearest = dearest.max(tally.reclaims as f64 / tally.faults.max(1) as f64);
    }
    let verdict = match (near == cases, both == cases) {
        (true, true) => "confirmed",
        (true, false) => "confirmed for the faults, not always for the cost",
        _ => "refuted at some points",
    };
    claim(
        "C4",
        "some resident-set size gives nearly LRU's faults at about FIFO's cost",
        verdict.to_owned(),
        vec![
            format!(
                "faults within 5 % of LRU in {near} of {cases} cases, there with cost within \
                 10 % of FIFO's (8.6:1) in {both}"
            ),
            format!(
                "the cheapest such fraction runs from {least} to {most}; up to {dearest:.1} \
                 reclaims a fault"
            ),
        ],
    )
}

fn reclaims(results: &Results) -> Claim {
    let mut per_fault: Vec<f64> = results
        .cases()
        .map(|(t, s)| {
            let tally = results.of(t, "clock", s);
            tally.reclaims as f64 / tally.faults.max(1) as f64
        })
        .collect();
    per_fault.sort_by(f64::total_cmp);
    let (low, high) = (per_fault[0], per_fault[per_fault.len() - 1]);
    let median = per_fault[per_fault.len() / 2];
    let added = |ratio: f64| format!("{:.0} % at {ratio}:1", 100.0 * median / ratio);
    claim(
        "C6",
        "simulating reference bits costs little beside the faults",
        match high / RATIOS[1] {
            share if share <= 0.25 => "confirmed".to_owned(),
            _ if median / RATIOS[1] <= 0.25 => {
                "confirmed in the middle, not at every point".to_owned()
            }
            _ => "refuted".to_owned(),
        },
        vec![
            format!("CLOCK's reclaims a fault: {low:.2} to {high:.2}, median {median:.2}"),
            format!("added to the cost of faults (median): {}", RATIOS.map(added).join(", ")),
        ],
    )
}

fn advice(results: &Results) -> Claim {
    const TEXT: &str = "no reference simulation during garbage collection is cheaper";
    let marked: Vec<usize> =
        (0..results.traces.len()).filter(|&t| results.traces[t].marked).collect();
    if marked.is_empty() {
        return claim("C7", TEXT, "not judged: no trace has marked phases".to_owned(), Vec::new());
    }
    let places = || marked.iter().flat_map(|&t| (0..SHARES.len()).map(move |s| (t, s)));
    let ratio_of = |value: &dyn Fn(&odfork_policy::cost::Tally) -> f64| {
        spread(places().map(|(t, s)| {
            let (on, off) = (results.of(t, "unix", s), results.of(t, "unix:advice=0", s));
            ((t, s), value(on) / value(off))
        }))
    };
    let faults = ratio_of(&|tally| tally.faults as f64);
    let fewer = ratio_of(&|tally| tally.reclaims as f64);
    let costs = RATIOS.map(|ratio| ratio_of(&|tally| tally.cost(ratio, 0.0)));
    let cheaper = costs.iter().filter(|spread| spread.mean < 1.0).count();
    let verdict = match cheaper {
        3 => "confirmed".to_owned(),
        0 => "refuted".to_owned(),
        _ => {
            let at = RATIOS.iter().zip(&costs).filter(|(_, c)| c.mean < 1.0);
            let at: Vec<String> = at.map(|(ratio, _)| format!("{ratio}:1")).collect();
            format!("confirmed at {} only", at.join(" and "))
        }
    };
    let mut numbers = vec![
        "with advice / without, the paper's policy on traces with marked phases".to_owned(),
        format!("faults: {}", faults.words(results)),
        format!("reclaims: {}", fewer.words(results)),
    ];
    for (ratio, cost) in RATIOS.iter().zip(&costs) {
        numbers.push(format!("cost at {ratio}:1: {}", cost.words(results)));
    }
    claim("C7", TEXT, verdict, numbers)
}

/// C5.
pub fn global(together: &[Together]) -> Claim {
    let holds = together
        .iter()
        .all(|mixed| mixed.tallies[1..].iter().all(|local| mixed.tallies[0].faults < local.faults));
    let line = |mixed: &Together| {
        let faults: Vec<u64> = mixed.tallies.iter().map(|tally| tally.faults).collect();
        format!(
            "{}: global {}, equal shares {}, shares by footprint {} faults",
            mixed.name, faults[0], faults[1], faults[2]
        )
    };
    claim(
        "C5",
        "replacement is better global than local",
        verdict(holds),
        together.iter().map(line).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_geometric_and_nonsense_is_left_out() {
        let values = [1.0, 4.0, f64::NAN, f64::INFINITY, 0.0];
        let found = spread(values.into_iter().enumerate().map(|(at, value)| ((at, 0), value)));
        assert!((found.mean - 2.0).abs() < 1e-12 && found.worst == 4.0 && found.at == (1, 0));
    }
}
