//! How fast the hand scans, and what a frame takes in memory: `cargo run --release -p odfork-policy
//! --example scan`.

use std::time::Instant;

use odfork_policy::clock::{Clock, List, ScanRule, Touch};

fn main() {
    for frames in [65_536u32, 262_144, 1_048_576] {
        let mut clock = Clock::new(frames, ScanRule::Never);
        for page in 0..frames {
            let frame = clock.take_frame().expect("the pool has a frame for each page").frame;
            clock.insert(frame, 0, page.into(), List::Active);
        }
        let mut actions = Vec::with_capacity(frames as usize);
        let mut best = f64::INFINITY;
        let mut touched = f64::INFINITY;
        for _ in 0..20 {
            actions.clear();
            let start = Instant::now();
            clock.scan(frames.into(), &mut actions);
            best = best.min(start.elapsed().as_secs_f64());
            let start = Instant::now();
            let again =
                (0..frames).filter(|&frame| clock.touch(frame, false) != Touch::Valid).count();
            touched = touched.min(start.elapsed().as_secs_f64());
            assert_eq!(again, frames as usize);
        }
        let rate = |seconds: f64| f64::from(frames) / seconds / 1e6;
        println!(
            "{frames} frames: {:.0} million scanned a second, {:.0} million reclaimed",
            rate(best),
            rate(touched)
        );
    }
}
