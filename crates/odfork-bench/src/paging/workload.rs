//! What the workload does with its memory: fill, read and write in order, Zipf, phases, threads,
//! reclaims.
//!
//! Every read compares the whole page with what was last written there (but `reclaim`, which times
//! single words; `settle` compares them afterwards). An op ends after its accesses or its time,
//! whichever is first; rates are of what was done.

use std::time::{Duration, Instant};

use super::latencies::Latencies;
use super::op::Op;
use super::page::PAGE;
use super::region::Region;
use super::zipf::Zipf;
use odfork_samples::stats::Rng;

/// Of phase change: the working set as a share of what may be resident, and how often it moves.
const SET_SHARE: f64 = 0.6;
const PHASES: u64 = 8;
/// Of Zipf's law.
const EXPONENT: f64 = 0.9;
/// Of `reclaim`: all of it fits into memory, but not into the clock's active list.
const RECLAIM_SHARE: f64 = 0.9;
/// Accesses between two readings of the clock, where single accesses are not timed.
const STRIDE: u64 = 64;

/// What an op did.
#[derive(Clone, Debug, Default)]
pub struct Done {
    pub accesses: u64,
    pub ns: u64,
    /// Of single accesses, where the op times them.
    pub latencies: Latencies,
    /// It ran out of time before it ran out of accesses.
    pub cut: bool,
}

impl Done {
    pub fn count(&mut self, time: Duration) {
        self.latencies.add(time);
        self.accesses += 1;
    }

    /// Adds a part; the time is of the whole.
    fn add(&mut self, part: &Done) {
        self.accesses += part.accesses;
        self.latencies.merge(&part.latencies);
        self.cut |= part.cut;
    }

    fn since(mut self, begin: Instant) -> Done {
        self.ns = begin.elapsed().as_nanos() as u64;
        self
    }
}

/// A page whose content is not what was written.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong(pub u64);

/// The region, and what was last written to each page.
#[derive(Debug)]
struct Memory {
    region: Region,
    versions: Vec<u8>,
}

impl Memory {
    fn read(&self, page: u64) -> Result<(), Wrong> {
        let right = self.region.check(page, self.versions[page as usize]);
        right.then_some(()).ok_or(Wrong(page))
    }

    fn read_write(&mut self, page: u64) -> Result<(), Wrong> {
        self.read(page)?;
        let version = &mut self.versions[page as usize];
        *version = version.wrapping_add(1);
        self.region.fill(page, *version);
        Ok(())
    }
}

#[derive(Debug)]
pub struct Workload {
    memory: Memory,
    /// Bytes the backend may keep resident.
    resident: u64,
    rng: Rng,
    /// Which page a Zipf rank means: hot pages are scattered.
    places: Vec<u32>,
}

impl Workload {
    pub fn new(region: Region, resident: u64, seed: u64) -> Workload {
        let mut rng = Rng::with_seed(seed);
        let mut places: Vec<u32> = (0..region.pages() as u32).collect();
        rng.shuffle(&mut places);
        let memory = Memory { versions: vec![0; places.len()], region };
        Workload { memory, resident, rng, places }
    }

    fn pages(&self) -> u64 {
        self.memory.region.pages()
    }

    /// Carries out one op within `limit`.
    pub fn perform(&mut self, op: Op, limit: Duration) -> Result<Done, Wrong> {
        let pages = self.pages();
        match op {
            Op::Fill => Ok(self.fill()),
            Op::SeqRead => self.in_order(limit, |memory, page| memory.read(page)),
            Op::SeqWrite => self.in_order(limit, Memory::read_write),
            Op::Warm => self.zipf(pages / 4, limit),
            Op::Zipf => self.zipf(pages / 2, limit),
            Op::Phase => self.phases(limit),
            Op::Threads(count) => self.threads(count, limit),
            Op::Settle => self.settle(),
            Op::Reclaim => self.reclaim(limit),
            // Has memory of its own: see `continue_fault`.
            Op::Continue => Ok(Done::default()),
        }
    }

    fn fill(&mut self) -> Done {
        let begin = Instant::now();
        (0..self.pages()).for_each(|page| self.memory.region.fill(page, 0));
        self.memory.versions.fill(0);
        Done { accesses: self.pages(), ..Done::default() }.since(begin)
    }

    fn in_order(
        &mut self,
        limit: Duration,
        access: fn(&mut Memory, u64) -> Result<(), Wrong>,
    ) -> Result<Done, Wrong> {
        let begin = Instant::now();
        let mut done = Done::default();
        for page in 0..self.pages() {
            if page % STRIDE == 0 && begin.elapsed() > limit {
                done.cut = true;
                break;
            }
            access(&mut self.memory, page)?;
            done.accesses += 1;
        }
        Ok(done.since(begin))
    }

    fn zipf(&mut self, count: u64, limit: Duration) -> Result<Done, Wrong> {
        let zipf = Zipf::new(self.pages(), EXPONENT);
        let next = || u64::from(self.places[zipf.draw(&mut self.rng) as usize]);
        timed(count, limit, next, |page| self.memory.read(page))
    }

    fn phases(&mut self, limit: Duration) -> Result<Done, Wrong> {
        let set = set_pages(self.resident, self.pages());
        let mut whole = Done::default();
        let begin = Instant::now();
        for start in places_of_phases(self.pages(), set) {
            let left = limit.saturating_sub(begin.elapsed());
            let next = || start + self.rng.u64(..set);
            whole.add(&timed(set, left, next, |page| self.memory.read(page))?);
        }
        Ok(whole.since(begin))
    }

    /// Threads that read pages drawn evenly from the whole region.
    fn threads(&mut self, count: u32, limit: Duration) -> Result<Done, Wrong> {
        let pages = self.pages();
        let each = (pages / 4 / u64::from(count)).max(1);
        let rngs: Vec<Rng> = (0..count).map(|_| self.rng.fork()).collect();
        let memory = &self.memory;
        let begin = Instant::now();
        let one = |mut rng: Rng| timed(each, limit, || rng.u64(..pages), |page| memory.read(page));
        let mut whole = Done::default();
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                rngs.into_iter().map(|rng| scope.spawn(move || one(rng))).collect();
            for part in threads.into_iter().filter_map(|thread| thread.join().ok()) {
                whole.add(&part?);
            }
            Ok(())
        })?;
        Ok(whole.since(begin))
    }

    /// Pages of the set of `settle` and `reclaim`.
    fn reclaim_set(&self) -> u64 {
        let fitting = (self.resident as f64 * RECLAIM_SHARE) as u64 / PAGE;
        fitting.clamp(1, self.pages())
    }

    /// The set comes in, and what the op before left goes.
    fn settle(&mut self) -> Result<Done, Wrong> {
        let (begin, set) = (Instant::now(), self.reclaim_set());
        (0..set).chain(0..set).try_for_each(|page| self.memory.read(page))?;
        Ok(Done { accesses: 2 * set, ..Done::default() }.since(begin))
    }

    /// What is slow here is a reclaim: the set fits into memory but not into the active list.
    fn reclaim(&mut self, limit: Duration) -> Result<Done, Wrong> {
        let set = self.reclaim_set();
        let touch = |page| {
            self.memory.region.touch(page);
            Ok(())
        };
        timed(u64::MAX, limit, || self.rng.u64(..set), touch)
    }
}

/// Accesses `count` pages as drawn and times each access.
fn timed(
    count: u64,
    limit: Duration,
    mut next: impl FnMut() -> u64,
    mut access: impl FnMut(u64) -> Result<(), Wrong>,
) -> Result<Done, Wrong> {
    let begin = Instant::now();
    let mut done = Done::default();
    while done.accesses < count {
        let page = next();
        let before = Instant::now();
        if before - begin > limit {
            done.cut = true;
            break;
        }
        access(page)?;
        done.count(before.elapsed());
    }
    Ok(done.since(begin))
}

/// Pages of the working set of phase change.
fn set_pages(resident: u64, pages: u64) -> u64 {
    ((resident as f64 * SET_SHARE) as u64 / PAGE).clamp(1, pages)
}

/// Where each phase's set begins: spread over the region, every other first, so that neighbours do
/// not share pages.
fn places_of_phases(pages: u64, set: u64) -> Vec<u64> {
    let place = |at: u64| (pages - set) * at / (PHASES - 1);
    (0..PHASES).step_by(2).chain((1..PHASES).step_by(2)).map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paging::region::Source;

    const LONG: Duration = Duration::from_secs(60);

    fn workload(pages: u64, resident: u64) -> Workload {
        Workload::new(Region::map(&Source::Anonymous, pages * PAGE).unwrap(), resident * PAGE, 3)
    }

    #[test]
    fn ops_do_as_many_accesses_as_they_say() {
        let mut workload = workload(256, 64);
        let mut count = |op| workload.perform(op, LONG).unwrap().accesses;
        assert_eq!((count(Op::Fill), count(Op::SeqRead), count(Op::SeqWrite)), (256, 256, 256));
        assert_eq!((count(Op::Zipf), count(Op::Threads(4))), (128, 64));
        assert_eq!(count(Op::Phase), 8 * 38);
        assert_eq!(count(Op::SeqRead), 256, "what was written is what is read");
    }

    #[test]
    fn a_wrong_page_ends_every_op_that_meets_it() {
        let mut workload = workload(64, 64);
        workload.perform(Op::Fill, LONG).unwrap();
        workload.memory.region.fill(17, 1);
        for op in [Op::SeqRead, Op::SeqWrite, Op::Phase, Op::Threads(2), Op::Settle] {
            // Random ops on 64 pages: repeated until the page was met.
            let met = (0..200).find_map(|_| workload.perform(op, Duration::from_millis(200)).err());
            assert_eq!(met, Some(Wrong(17)), "{op:?}");
        }
    }

    #[test]
    fn time_cuts_an_op_short() {
        let mut workload = workload(128, 32);
        workload.perform(Op::Fill, LONG).unwrap();
        for op in [Op::SeqRead, Op::Zipf, Op::Phase, Op::Threads(2)] {
            let done = workload.perform(op, Duration::ZERO).unwrap();
            assert!(done.cut && done.accesses < 64, "{op:?} {}", done.accesses);
        }
    }

    #[test]
    fn phases_lie_inside_the_region_and_neighbours_do_not_share_pages() {
        let (pages, set) = (262_144, set_pages(256 << 20, 262_144));
        assert_eq!(set, 39_321);
        let places = places_of_phases(pages, set);
        assert_eq!(places.len() as u64, PHASES);
        assert!(places.iter().all(|place| place + set <= pages));
        assert!(places.windows(2).all(|pair| pair[0].abs_diff(pair[1]) >= set));
        assert_eq!(places_of_phases(10, 10), [0; 8]);
    }
}
