//! Accesses that are made up: pages drawn by Zipf's law, a working set that moves, walks, and any
//! page.

use odfork_samples::stats::Rng;

use super::zipf::Zipf;

/// Names of all.
pub const NAMES: [&str; 4] = ["zipf", "phases", "walks", "uniform"];

/// A quarter of the accesses are writes.
const WRITES: f64 = 0.25;
const EXPONENT: f64 = 0.9;
/// How often a working set moves, and its part of all pages.
const PHASES: u32 = 8;
const PART: f64 = 0.3;
/// Walks over all pages, each second one writes.
const WALKS: u32 = 6;

/// Pages and writes of one of them; the same each time.
pub fn accesses(name: &str, pages: u32) -> Vec<(u32, bool)> {
    let mut rng = Rng::with_seed(81);
    let mut any = |most: u32, count: u32| -> Vec<(u32, bool)> {
        (0..count).map(|_| (rng.u32(..most), rng.f64() < WRITES)).collect()
    };
    match name {
        "zipf" => zipf(pages),
        "phases" => {
            let size = ((f64::from(pages) * PART) as u32).max(1);
            let phase = |_| {
                let start = any(pages, 1)[0].0;
                let moved = move |(page, write)| ((start + page) % pages, write);
                any(size, 2 * pages).into_iter().map(moved).collect::<Vec<_>>()
            };
            (0..PHASES).flat_map(phase).collect()
        }
        "walks" => {
            (0..WALKS).flat_map(|walk| (0..pages).map(move |at| (at, walk % 2 == 1))).collect()
        }
        _ => any(pages, 10 * pages),
    }
}

/// Ranks are scattered over all pages.
fn zipf(pages: u32) -> Vec<(u32, bool)> {
    let mut rng = Rng::with_seed(9);
    let mut order: Vec<u32> = (0..pages).collect();
    rng.shuffle(&mut order);
    let law = Zipf::new(pages.into(), EXPONENT);
    let one = |_| (order[law.draw(&mut rng) as usize], rng.f64() < WRITES);
    (0..40 * pages).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_stay_within_their_pages_and_repeat() {
        for name in NAMES {
            let accesses = accesses(name, 500);
            assert!(accesses.len() >= 3000, "{name}");
            assert!(accesses.iter().all(|&(page, _)| page < 500), "{name}");
            let written = accesses.iter().filter(|access| access.1).count() as f64;
            let share = written / accesses.len() as f64;
            assert!((0.2..=0.5).contains(&share), "{name}: {share}");
            assert_eq!(accesses, super::accesses(name, 500), "{name}");
        }
    }
}
