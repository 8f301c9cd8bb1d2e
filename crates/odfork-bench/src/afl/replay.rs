//! What saved inputs do when each runs in a process of its own: which edges the fuzzer saw that
//! none reaches, and whether each reaches the same with odfork as without.

use std::fs;
use std::path::{Path, PathBuf};

use super::fuzzer::Run;
use super::server::Server;

/// How many edges a fuzzer has found that no input of its queue reaches.
pub fn lost(run: &Run, results: &Path, log: &Path) -> Result<usize, String> {
    let map = fs::read(results.join("fuzz_bitmap"));
    let map = map.map_err(|error| format!("fuzz_bitmap: {error}"))?;
    let mut reached = vec![false; map.len()];
    let mut server = Server::start(run, log)?;
    for path in choose(&results.join("queue"), usize::MAX)? {
        let (_, edges) = server.execute(&content(&path)?)?;
        for (reached, &count) in reached.iter_mut().zip(edges) {
            *reached |= count != 0;
        }
    }
    Ok(missing(&map, &reached))
}

/// How many inputs were compared; an error is the first whose end, edges or counts differ.
pub fn compare(both: [&Run; 2], queue: &Path, most: usize, log: &Path) -> Result<usize, String> {
    let inputs = choose(queue, most)?;
    let [stock, own] = both;
    let mut stock = Server::start(stock, log)?;
    let mut own = Server::start(own, &log.with_extension("own"))?;
    for path in &inputs {
        let input = content(path)?;
        let (one, other) = (stock.execute(&input)?, own.execute(&input)?);
        if one != other || one.1.iter().skip(1).all(|&count| count == 0) {
            let input = String::from_utf8_lossy(&input).into_owned();
            return Err(format!("the edges of {input:?} are not those of stock"));
        }
    }
    Ok(inputs.len())
}

/// Edges of a fuzzer's map that were not reached. What it never saw is 255 there; edge 0 is AFL's
/// own.
fn missing(map: &[u8], reached: &[bool]) -> usize {
    let both = map.iter().zip(reached).skip(1);
    both.filter(|(&seen, &is_reached)| seen != 255 && !is_reached).count()
}

fn content(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// At most so many inputs of a queue, evenly spread.
fn choose(queue: &Path, most: usize) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(queue).map_err(|error| format!("{}: {error}", queue.display()))?;
    let mut all: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    all.retain(|path| path.is_file());
    all.sort();
    let step = all.len().div_ceil(most.max(1)).max(1);
    let chosen: Vec<PathBuf> = all.into_iter().step_by(step).collect();
    match chosen.is_empty() {
        true => Err(format!("{} is empty", queue.display())),
        false => Ok(chosen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_is_lost_when_it_was_found_and_is_not_reached() {
        assert_eq!(missing(&[0, 254, 255, 0, 7], &[false, true, false, false, false]), 2);
        assert_eq!(missing(&[0, 255], &[false, false]), 0);
    }

    #[test]
    fn inputs_are_spread_over_the_queue() {
        let folder = tempfile::tempdir().unwrap();
        let queue = folder.path().join("queue");
        fs::create_dir_all(queue.join(".state")).unwrap();
        assert!(choose(&queue, 3).is_err());
        for number in 0..10 {
            fs::write(queue.join(format!("id:{number}")), "x").unwrap();
        }
        let names = choose(&queue, 3).unwrap();
        assert_eq!(names, ["id:0", "id:4", "id:8"].map(|name| queue.join(name)));
        assert_eq!(choose(&queue, 100).unwrap().len(), 10);
    }
}
