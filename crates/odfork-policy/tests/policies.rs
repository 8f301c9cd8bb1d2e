//! Every policy against an obvious model of its definition, on random traces with writes and
//! processes, and known cases.

use std::collections::HashMap;
use std::sync::Arc;

use odfork_policy::cost::Tally;
use odfork_policy::policy::{runs, Spec};
use odfork_policy::trace::{from_pairs, Batch, Parser, Summary};
use proptest::prelude::*;

#[path = "model/mod.rs"]
mod model;

use model::Line;

fn batch(lines: &[Line]) -> Arc<Batch> {
    let mut text = String::new();
    for line in lines {
        text +=
            &format!("{} {} p{}\n", line.page, if line.write { "w" } else { "r" }, line.process);
    }
    let mut batch = Batch::default();
    Parser::new().finish(text.as_bytes(), &mut batch).unwrap();
    Arc::new(batch)
}

fn simulate(policy: &str, frames: &[u32], batch: &Arc<Batch>) -> HashMap<u32, Tally> {
    let spec: Spec = policy.parse().unwrap();
    let mut whole = Summary::default();
    whole.add(batch);
    let mut tallies = HashMap::new();
    for mut run in runs(&spec, frames, &whole) {
        run.feed(batch);
        run.finish();
        tallies.extend(run.tallies());
    }
    tallies
}

fn faults(policy: &str, frames: u32, pages: &[u64]) -> u64 {
    let batch = Arc::new(from_pairs(pages.iter().map(|&page| (page, false))));
    simulate(policy, &[frames], &batch)[&frames].faults
}

fn lines(pages: u64) -> impl Strategy<Value = Vec<Line>> {
    // Neighbourhoods, so that hits at small sizes are as frequent as misses.
    let line = (0..pages, 0..4u64, any::<bool>(), 0..3u32).prop_map(
        move |(page, near, write, process)| Line {
            page: (page / 4 * 4 + near) % pages,
            write,
            process,
        },
    );
    proptest::collection::vec(line, 0..400)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn counts_are_those_of_the_obvious_models(trace in lines(16)) {
        let batch = batch(&trace);
        let sizes: Vec<u32> = (1..=20).chain([1000]).collect();
        for policy in model::POLICIES {
            let tallies = simulate(policy, &sizes, &batch);
            for &frames in &sizes {
                let expected = model::run(policy, frames as usize, &trace);
                let found = tallies[&frames];
                prop_assert_eq!(found.references, trace.len() as u64);
                let counts = (found.faults, found.reclaims, found.write_backs);
                prop_assert_eq!(counts, expected, "{} with {} frames", policy, frames);
            }
        }
    }

    #[test]
    fn min_is_never_beaten_and_the_first_references_always_fault(trace in lines(24)) {
        let batch = batch(&trace);
        for frames in [1, 3, 7, 12, 40] {
            let least = simulate("min", &[frames], &batch)[&frames].faults;
            prop_assert_eq!(least, model::run("min", frames as usize, &trace).0);
            prop_assert!(least >= batch.new_pages.len() as u64);
            let local = ["sws:window=20", "pff:threshold=5"];
            for policy in ["fifo", "rand", "lru", "clock", "vms", "unix"].into_iter().chain(local) {
                let faults = simulate(policy, &[frames], &batch)[&frames].faults;
                prop_assert!(faults >= least && faults <= trace.len() as u64, "{}", policy);
            }
        }
    }

    #[test]
    fn pieces_give_the_same_as_the_whole(trace in lines(40), size in 1usize..50) {
        let whole = batch(&trace);
        for policy in ["lru", "min", "clock", "vms", "unix", "fifo:local=footprint"] {
            // `moves` is not here: what it fills ahead goes by the pages that are known.
            let spec: Spec = policy.parse().unwrap();
            let mut summary = Summary::default();
            summary.add(&whole);
            let mut run = runs(&spec, &[9], &summary).remove(0);
            let (mut known, mut at) = (0, 0);
            for piece in whole.references.chunks(size) {
                let last = piece.iter().map(|r| r.page() as usize + 1).max();
                let seen = last.unwrap_or(0).max(known);
                let new_pages = whole.new_pages[known..seen].to_vec();
                let part = Batch { references: piece.to_vec(), new_pages, marks: vec![] };
                run.feed(&Arc::new(part));
                (known, at) = (seen, at + piece.len());
            }
            run.finish();
            prop_assert_eq!(at, whole.references.len());
            prop_assert_eq!(run.tallies()[0].1, simulate(policy, &[9], &whole)[&9], "{}", policy);
        }
    }

    #[test]
    fn the_papers_policy_without_a_pool_is_the_plain_clock(trace in lines(16)) {
        let batch = batch(&trace);
        let sizes: Vec<u32> = (1..=17).collect();
        let plain = simulate("clock", &sizes, &batch);
        let papers = "unix:order=0,ref_ns=0,fault_us=0,reclaim_us=0,fastest=1000000000";
        prop_assert_eq!(simulate(papers, &sizes, &batch), plain);
    }
}

/// Memory large enough for runs, walks, blocks and the pool, and for the search for slots.
#[test]
fn the_pager_of_all_memory_is_that_of_the_model() {
    let mut seed = 3u64;
    let mut word = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        seed >> 33
    };
    const PAGES: u64 = 3_000;
    let mut pairs: Vec<(u64, bool)> = (0..PAGES).map(|page| (page, true)).collect();
    for at in 0..40_000 {
        let page = match at / 5_000 % 4 {
            0 => at * 7 / 5 % PAGES,
            1 => (at / 5_000 * 311 + word() % 900) % PAGES,
            2 => word() % PAGES,
            _ => word() % PAGES * (word() % PAGES) / PAGES,
        };
        pairs.push((page, word() % 4 == 0));
    }
    let batch = Arc::new(from_pairs(pairs.iter().copied()));
    for (policy, own, spares) in
        [("moves", 0, true), ("moves:own=90", 90, true), ("moves:bits=simulated", 0, false)]
    {
        for frames in [300, 1_400, 2_500] {
            let mut pager = model::moves::Pager::new(frames.into(), own, spares, PAGES);
            pairs.iter().for_each(|&(page, write)| pager.touch(page, write));
            let found = simulate(policy, &[frames], &batch)[&frames];
            let counts = (found.faults, found.reclaims, found.write_backs, found.pages_read);
            let expected = (pager.faults, pager.reclaims, pager.written, pager.read);
            assert_eq!(counts, expected, "{policy} with {frames} frames");
            assert!(found.reclaims > 100 && found.pages_read > 5_000, "{found:?}");
        }
    }
}

/// Long enough for packing, the tree and closed blocks of the stack-distance counter.
#[test]
fn long_traces_give_the_lru_of_the_model() {
    let mut seed = 7u64;
    let mut word = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        seed >> 33
    };
    let trace: Vec<Line> = (0..120_000)
        .map(|at| {
            let near = word() % 4 != 0;
            let page = if near { (at / 50 + word() % 40) % 3000 } else { word() % 20_000 };
            Line { page, write: word() % 3 == 0, process: 0 }
        })
        .collect();
    let sizes = [1, 2, 40, 64, 500, 3000, 9000, 30_000];
    let found = simulate("lru", &sizes, &batch(&trace));
    for frames in sizes {
        let tally = found[&frames];
        let counts = (tally.faults, 0, tally.write_backs);
        assert_eq!(counts, model::fast_lru(frames as usize, &trace), "{frames} frames");
    }
}

#[test]
fn beladys_anomaly() {
    let pages = [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5];
    assert_eq!((faults("fifo", 3, &pages), faults("fifo", 4, &pages)), (9, 10));
    assert_eq!((faults("lru", 3, &pages), faults("lru", 4, &pages)), (10, 8));
    assert_eq!((faults("min", 3, &pages), faults("min", 4, &pages)), (7, 6));
}

#[test]
fn a_loop_larger_than_memory_faults_always_but_for_min() {
    let pages: Vec<u64> = (0..100).map(|i| i % 5).collect();
    for policy in ["fifo", "lru", "clock", "clock:insert=0", "unix", "vms:fraction=0.5"] {
        assert_eq!(faults(policy, 4, &pages), 100, "{policy}");
        assert_eq!(faults(policy, 5, &pages), 5, "{policy}");
    }
    // MIN misses one reference in four after the first five.
    assert_eq!(faults("min", 4, &pages), 5 + 95 / 4);
}

#[test]
fn the_extremes_of_vms_are_fifo_and_lru_like() {
    let pages: Vec<u64> = (0..2000u64).map(|i| i * i % 37 + i % 3).collect();
    for frames in 2..30 {
        assert_eq!(faults("vms:fraction=1", frames, &pages), faults("fifo", frames, &pages));
        // A resident set of one page: every change of page is seen, so the free list is in LRU
        // order.
        assert_eq!(faults("vms:size=1", frames, &pages), faults("lru", frames, &pages));
    }
}

#[test]
fn seeds_repeat_and_differ() {
    let pages: Vec<u64> = (0..5000u64).map(|i| i * i % 101).collect();
    assert_eq!(faults("rand:seed=3", 20, &pages), faults("rand:seed=3", 20, &pages));
    assert_ne!(faults("rand:seed=3", 20, &pages), faults("rand:seed=4", 20, &pages));
}

#[test]
fn advice_spares_reclaims_in_the_marked_phase() {
    // A collection follows pointers: any page next, and memory holds a bit less than all.
    let mut seed = 1u64;
    let mut next = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % 1000
    };
    let sweep: String = (0..40_000).map(|_| format!("{} w lisp\n", next())).collect();
    let text = format!("# anomalous lisp on\n{sweep}# anomalous lisp off\n");
    let mut batch = Batch::default();
    Parser::new().finish(text.as_bytes(), &mut batch).unwrap();
    let batch = Arc::new(batch);
    let at = |policy| simulate(policy, &[900], &batch)[&900];
    let (with, without) = (at("unix"), at("unix:advice=0"));
    assert_eq!(with.references, without.references);
    assert!(
        with.reclaims < without.reclaims || with.faults < without.faults,
        "{with:?} {without:?}"
    );
}
