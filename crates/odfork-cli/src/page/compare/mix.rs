//! Several programs in one memory: their traces interleaved, evenly or one after the other as in a
//! pipeline, under one global clock and under clocks of their own.

use std::sync::Arc;

use anyhow::Result;
use odfork_policy::cost::Tally;
use odfork_policy::policy::Spec;
use odfork_policy::trace::{Batch, Page, Reference};

use super::super::simulation::simulate_kept;
use super::cases::Trace;

/// References of one program before the next has its turn.
const TURN: usize = 1000;
pub const POLICIES: [&str; 3] = ["clock", "clock:local=equal", "clock:local=footprint"];
/// Memory as a share of all programs' pages.
pub const SHARE: f64 = 0.25;

/// Counts of one way to interleave, in the order of `POLICIES`.
pub struct Together {
    pub name: &'static str,
    pub frames: u32,
    pub tallies: Vec<Tally>,
}

pub fn simulate(traces: &[Trace]) -> Result<Vec<Together>> {
    let specs: Vec<Spec> = POLICIES.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    let pages: u64 = traces.iter().map(|trace| trace.summary.pages()).sum();
    let frames = ((pages as f64 * SHARE) as u32).max(1);
    let mut all = Vec::new();
    for (name, shifting) in [("all at once", false), ("shifting, as in a pipeline", true)] {
        let mixed = interleave(traces, shifting);
        let counts = simulate_kept(&mixed, &specs, &[frames])?.counts;
        let tallies = counts.into_iter().map(|count| count.tally).collect();
        all.push(Together { name, frames, tallies });
    }
    Ok(all)
}

/// One program's references, in turns.
struct Stream<'a> {
    references: Box<dyn Iterator<Item = &'a Reference> + 'a>,
    total: f64,
    done: f64,
    /// When its activity begins and ends, as a share of the whole.
    active: (f64, f64),
    numbers: Vec<Page>,
}

impl Stream<'_> {
    /// References it should have made by `time`, less those it has.
    fn lag(&self, time: f64) -> f64 {
        let (begin, end) = self.active;
        ((time - begin) / (end - begin)).clamp(0.0, 1.0) * self.total - self.done
    }
}

fn interleave(traces: &[Trace], shifting: bool) -> Vec<Arc<Batch>> {
    let count = traces.len() as f64;
    let mut streams: Vec<Stream> = traces
        .iter()
        .enumerate()
        .map(|(at, trace)| Stream {
            references: Box::new(trace.pieces.iter().flat_map(|piece| &piece.references)),
            total: trace.summary.references as f64,
            done: 0.0,
            // Each is active for 1.6 of its parts of the time, so neighbours overlap.
            active: if shifting {
                (at as f64 / (count + 0.6), (at as f64 + 1.6) / (count + 0.6))
            } else {
                (0.0, 1.0)
            },
            numbers: vec![Page::MAX; trace.summary.pages() as usize],
        })
        .collect();
    let total: f64 = streams.iter().map(|stream| stream.total).sum();
    let (mut pieces, mut next, mut done) = (Vec::new(), 0, 0.0);
    while done < total {
        let time = (done + TURN as f64) / total;
        // Who has not begun waits, also when all others are ahead of their pace.
        let late = |a: &usize, b: &usize| {
            let (a, b) = (&streams[*a], &streams[*b]);
            let begun = |stream: &Stream| stream.active.0 <= time;
            begun(a).cmp(&begun(b)).then(a.lag(time).total_cmp(&b.lag(time)))
        };
        let unfinished = (0..streams.len()).filter(|&at| streams[at].done < streams[at].total);
        let Some(at) = unfinished.max_by(late) else { break };
        let piece = turn(&mut streams[at], at as u32, &mut next);
        done += piece.references.len() as f64;
        pieces.push(Arc::new(piece));
    }
    pieces
}

fn turn(stream: &mut Stream, owner: u32, next: &mut Page) -> Batch {
    let mut piece = Batch::default();
    for reference in stream.references.by_ref().take(TURN) {
        let number = &mut stream.numbers[reference.page() as usize];
        if *number == Page::MAX {
            *number = *next;
            *next += 1;
            piece.new_pages.push(owner);
        }
        piece.references.push(Reference::new(*number, reference.is_write()));
    }
    stream.done += piece.references.len() as f64;
    piece
}

#[cfg(test)]
mod tests {
    use super::*;
    use odfork_policy::trace::{from_pairs, Summary};

    fn trace(length: u64) -> Trace {
        let piece = from_pairs((0..length).map(|i| (i % 7, i % 2 == 0)));
        let mut summary = Summary::default();
        summary.add(&piece);
        Trace { name: "t".into(), pieces: vec![Arc::new(piece)], summary }
    }

    #[test]
    fn every_reference_comes_once_and_pages_stay_apart() {
        let traces = [trace(2500), trace(9000), trace(10)];
        for shifting in [false, true] {
            let mut whole = Summary::default();
            interleave(&traces, shifting).iter().for_each(|piece| whole.add(piece));
            assert_eq!(whole.references, 11_510);
            assert_eq!(whole.footprints, [7, 7, 7]);
        }
    }

    #[test]
    fn a_pipeline_shifts_from_first_to_last() {
        let traces = [trace(50_000), trace(50_000)];
        let pieces = interleave(&traces, true);
        // Pages 0 to 6 are the first program's.
        let first_in = |range: &[Arc<Batch>]| {
            range.iter().filter(|piece| piece.references[0].page() < 7).count()
        };
        assert_eq!(first_in(&pieces[..38]), 38, "the second has not begun");
        assert!(first_in(&pieces[80..]) <= 5, "{}", first_in(&pieces[80..]));
    }
}
