//! Every target over its seeds and over fixed mutations of them: a few thousand inputs, the same
//! each time.
//!
//! `ODFORK_FUZZ_INPUTS=N` says how many for each target; `replay NAME` runs one. A fault leaves its
//! input in a file.

use std::fs;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use fastrand::Rng;
use libtest_mimic::{Arguments, Failed, Trial};
use odfork_fuzz::{Target, TARGETS};

const INPUTS: usize = 3000;
/// No mutation makes an input longer than this.
const LONGEST: usize = 64 << 10;

fn main() {
    let trials = TARGETS.iter().map(|target| Trial::test(target.name, || replay(target)));
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}

fn replay(target: &'static Target) -> Result<(), Failed> {
    let seeds = seeds(target.name)?;
    let inputs = std::env::var("ODFORK_FUZZ_INPUTS").ok().and_then(|text| text.parse().ok());
    for seed in &seeds {
        feed(target, seed)?;
    }
    let mut random = Rng::with_seed(0x6f64_666f_726b);
    for _ in seeds.len()..inputs.unwrap_or(INPUTS) {
        let mut input = random.choice(&seeds).cloned().unwrap_or_default();
        for _ in 0..random.usize(1..6) {
            mutate(&mut input, &seeds, &mut random);
        }
        feed(target, &input)?;
    }
    Ok(())
}

fn seeds(name: &str) -> Result<Vec<Vec<u8>>, Failed> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    if paths.is_empty() {
        return Err(format!("{} is empty", folder.display()).into());
    }
    Ok(paths.iter().map(fs::read).collect::<Result<_, _>>()?)
}

fn feed(target: &Target, input: &[u8]) -> Result<(), Failed> {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).map_err(|_| {
        let file = std::env::temp_dir().join(format!("odfork-fuzz-{}", target.name));
        let kept = fs::write(&file, input).map_or(String::new(), |()| file.display().to_string());
        format!("{} bytes make it panic; they are in {kept}", input.len()).into()
    })
}

/// Values at the edges of what numbers hold.
const EDGES: [u64; 8] = [0, 1, 0x7f, 0xff, 0xffff, 1 << 31, i64::MAX as u64, u64::MAX];

fn mutate(input: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Rng) {
    let at = random.usize(0..=input.len());
    let length = random.usize(0..=(input.len() - at).min(64));
    match random.u8(0..8) {
        0 => input.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.u8(0..8)),
        1 => input.iter_mut().skip(at).take(1).for_each(|byte| *byte = random.u8(..)),
        2 => drop(input.drain(at..at + length)),
        3 => input.truncate(at),
        4 => {
            let part = input[at..at + length].to_vec();
            input.splice(at..at, part);
        }
        5 => {
            let edge = EDGES[random.usize(0..EDGES.len())].to_le_bytes();
            let size = 1 << random.u8(0..4);
            input.iter_mut().skip(at).zip(&edge[..size]).for_each(|(byte, edge)| *byte = *edge);
        }
        6 => {
            let digits = EDGES[random.usize(0..EDGES.len())].to_string();
            input.splice(at..at + length.min(8), digits.into_bytes());
        }
        _ => {
            let other = &seeds[random.usize(0..seeds.len())];
            let from = random.usize(0..=other.len());
            let length = random.usize(0..=(other.len() - from).min(256));
            input.splice(at..at, other[from..from + length].iter().copied());
        }
    }
    input.truncate(LONGEST);
}
