//! What a session does: a compile, a sort, a program that collects garbage. Each uses its memory in
//! its own way, and checks its own result, so that a page that was lost or mixed up is noticed.

use anyhow::{ensure, Result};

use crate::mapping::Mapping;
use crate::words::words;
use odfork_samples::stats::Rng;

words! {
    /// One of the programs of a session.
    Job: 3 { Compile = "compile", Sort = "sort", Collect = "collect", }
}

/// Passes over the tree of a compile.
const PASSES: u64 = 4;
/// Collections of the garbage-collecting program.
const COLLECTIONS: u32 = 8;
/// Words of a tree node: two links, a value, a sum.
const NODE: usize = 4;

impl Job {
    /// Runs it in `bytes` of memory.
    pub fn run(self, bytes: u64, seed: u64) -> Result<()> {
        match self {
            Job::Compile => compile(bytes, seed),
            Job::Sort => sort(bytes, seed),
            Job::Collect => collect(bytes, seed),
        }
    }
}

/// A tree that grows in one direction with links to older nodes, passes over it with look-ups in a
/// table, an output file.
fn compile(bytes: u64, seed: u64) -> Result<()> {
    let mut rng = Rng::with_seed(seed);
    let (mut tree, mut symbols, mut output) = (
        Mapping::anonymous(bytes / 4 * 3)?,
        Mapping::anonymous(bytes / 8)?,
        Mapping::anonymous(bytes / 8)?,
    );
    let (tree, symbols, output) = (tree.words(), symbols.words(), output.words());
    let nodes = tree.len() / NODE;
    let mut expected = 0u64;
    for at in 0..nodes {
        // Mostly to what was parsed just now, sometimes far back.
        let reach = if at % 64 == 0 { at } else { at.min(4096) };
        let link = |rng: &mut Rng| (at - rng.usize(..reach + 1)) as u64;
        let value = rng.u64(..);
        let node = [link(&mut rng), link(&mut rng), value, 0];
        tree[at * NODE..][..NODE].copy_from_slice(&node);
        expected = expected.wrapping_add(value);
    }
    for pass in 0..PASSES {
        for at in 0..nodes {
            let [left, right] = [tree[at * NODE] as usize, tree[at * NODE + 1] as usize];
            let sum = tree[left * NODE + 2] ^ tree[right * NODE + 2].rotate_left(pass as u32);
            tree[at * NODE + 3] = sum;
            if at % 16 == 0 {
                let symbol = rng.usize(..symbols.len());
                symbols[symbol] = symbols[symbol].wrapping_add(sum | 1);
            }
        }
    }
    let each = nodes.div_ceil(output.len());
    let mut seen = 0u64;
    for (at, word) in output.iter_mut().enumerate() {
        let part = at * each..((at + 1) * each).min(nodes);
        *word = part.map(|node| tree[node * NODE + 2]).fold(0, u64::wrapping_add);
    }
    for word in output.iter() {
        seen = seen.wrapping_add(*word);
    }
    ensure!(seen == expected, "compile: the tree is not the one that was built");
    Ok(())
}

/// Random numbers, sorted twice (the second time what the first left, turned around).
fn sort(bytes: u64, seed: u64) -> Result<()> {
    let mut rng = Rng::with_seed(seed);
    let mut numbers = Mapping::anonymous(bytes)?;
    let numbers = numbers.words();
    let mut sum = 0u64;
    for number in numbers.iter_mut() {
        *number = rng.u64(..);
        sum = sum.wrapping_add(*number);
    }
    numbers.sort_unstable();
    let ordered = numbers.windows(2).all(|pair| pair[0] <= pair[1]);
    let again = numbers.iter().fold(0u64, |sum, number| sum.wrapping_add(*number));
    ensure!(ordered && again == sum, "sort: the numbers are not those that were sorted");
    for number in numbers.iter_mut() {
        *number = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    numbers.sort_unstable();
    ensure!(numbers.windows(2).all(|pair| pair[0] <= pair[1]), "sort: not in order");
    Ok(())
}

/// Two half spaces; lists of pairs, of which half live on; when a space is full, what lives is
/// copied to the other (Cheney).
fn collect(bytes: u64, seed: u64) -> Result<()> {
    let mut rng = Rng::with_seed(seed);
    let (mut from, mut to) = (Mapping::anonymous(bytes / 2)?, Mapping::anonymous(bytes / 2)?);
    let cells = from.words().len() / 2;
    // Roots of lists; cell 0 is nobody's.
    let mut roots = vec![0usize; 256];
    let (mut free, mut live, mut sum) = (1, 0usize, 0u64);
    for _ in 0..COLLECTIONS {
        let space = from.words();
        while free < cells {
            let (root, value) = (rng.usize(..roots.len()), rng.u64(..) >> 1);
            space[free * 2..][..2].copy_from_slice(&[roots[root] as u64, value]);
            roots[root] = free;
            sum = sum.wrapping_add(value);
            (free, live) = (free + 1, live + 1);
        }
        // Half of the lists are dropped, with all that hangs on them.
        for root in roots.iter_mut() {
            if rng.u64(..) % 2 == 0 {
                let mut at = std::mem::take(root);
                while at != 0 {
                    sum = sum.wrapping_sub(space[at * 2 + 1]);
                    live -= 1;
                    at = space[at * 2] as usize;
                }
            }
        }
        free = copy_lists(space, to.words(), &mut roots);
        std::mem::swap(&mut from, &mut to);
        ensure!(free - 1 == live, "collect: {} cells live on, {live} should", free - 1);
        let space = from.words();
        let left = (1..free).fold(0u64, |sum, at| sum.wrapping_add(space[at * 2 + 1]));
        ensure!(left == sum, "collect: the cells that live on have other values");
    }
    Ok(())
}

/// Returns the first free cell of the new space.
fn copy_lists(from: &[u64], to: &mut [u64], roots: &mut [usize]) -> usize {
    let mut free = 1;
    for root in roots {
        let mut at = *root;
        *root = if at == 0 { 0 } else { free };
        while at != 0 {
            let next = from[at * 2] as usize;
            to[free * 2] = if next == 0 { 0 } else { free as u64 + 1 };
            to[free * 2 + 1] = from[at * 2 + 1];
            (at, free) = (next, free + 1);
        }
    }
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_finishes_right_in_little_memory() {
        for job in Job::ALL {
            for seed in 1..4 {
                job.run(1 << 20, seed).unwrap();
            }
        }
    }

    #[test]
    fn lists_are_copied_in_order_and_nothing_else_is() {
        // Two lists: 3 -> 1, and 4; cell 2 is garbage.
        let from = [0, 0, 0, 10, 0, 99, 1, 30, 0, 40];
        let (mut to, mut roots) = ([7; 10], [3, 0, 4]);
        assert_eq!(copy_lists(&from, &mut to, &mut roots), 4);
        assert_eq!((roots, &to[2..8]), ([1, 0, 3], &[2, 30, 0, 10, 0, 40][..]));
    }
}
