//! What the workload does with its memory when asked: fill, read and write in order, Zipf, phases, threads, reclaim.
//!
//! Every read compares the whole page with what was last written there (but `reclaim`, which times single words and
//! compares afterwards). An act ends after its accesses or its time, whichever is first; rates are of what was done.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::latency::Latencies;
use super::pattern::PAGE;
use super::region::Region;
use super::zipf::Zipf;
use odfork_samples::stats::Rng;

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    Fill,
    SeqRead,
    SeqWrite,
    /// As `Zipf`, before it: what is then resident is what Zipf's law keeps there.
    Warm,
    Zipf,
    Phase,
    Threads(u32),
    Settle,
    Reclaim,
    Continue,
}

impl Act {
    pub fn word(self) -> String {
        match self {
            Act::Fill => "fill".into(),
            Act::SeqRead => "seq-read".into(),
            Act::SeqWrite => "seq-write".into(),
            Act::Warm => "warm".into(),
            Act::Zipf => "zipf".into(),
            Act::Phase => "phase".into(),
            Act::Threads(count) => format!("threads-{count}"),
            Act::Settle => "settle".into(),
            Act::Reclaim => "reclaim".into(),
            Act::Continue => "continue".into(),
        }
    }

    /// The act of a word; None: there is none.
    pub fn from_word(word: &str) -> Option<Act> {
        let plain = [
            Act::Fill,
            Act::SeqRead,
            Act::SeqWrite,
            Act::Warm,
            Act::Zipf,
            Act::Phase,
            Act::Settle,
            Act::Reclaim,
            Act::Continue,
        ];
        let threads =
            || word.strip_prefix("threads-")?.parse().ok().filter(|n| (1..=64).contains(n));
        plain.into_iter().find(|act| act.word() == word).or_else(|| threads().map(Act::Threads))
    }
}

/// Of phase change: the working set as a share of what may be resident, and how often it moves.
pub const SET_SHARE: f64 = 0.6;
pub const PHASES: u64 = 8;
/// Of Zipf's law.
pub const EXPONENT: f64 = 0.9;
/// Of `reclaim`: all of it fits, but not into the clock's loop.
const RECLAIM_SHARE: f64 = 0.9;
/// A read of one word that took longer went through a fault: the shortest of them takes twice as long.
pub const FAULT_NS: u64 = 2_000;
/// Accesses between two looks at the clock, where single accesses are not timed.
const STRIDE: u64 = 64;

/// What an act did.
#[derive(Clone, Debug, Default)]
pub struct Done {
    pub accesses: u64,
    pub ns: u64,
    /// Of single accesses, where the act times them.
    pub latencies: Latencies,
    /// It ran out of time before it ran out of accesses.
    pub cut: bool,
}

/// The memory, and what was last written to each page.
#[derive(Debug)]
pub struct Work {
    region: Region,
    versions: Vec<u8>,
    /// Bytes the backend may keep resident.
    resident: u64,
    rng: Rng,
    /// Which page a Zipf rank means: hot pages are scattered.
    places: Vec<u32>,
}

/// A page whose content is not what was written.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong(pub u64);

impl Work {
    pub fn new(region: Region, resident: u64, seed: u64) -> Work {
        let mut rng = Rng::with_seed(seed);
        let mut places: Vec<u32> = (0..region.pages() as u32).collect();
        rng.shuffle(&mut places);
        let versions = vec![0; places.len()];
        Work { region, versions, resident, rng, places }
    }

    /// Carries out one act within `limit`.
    ///
    /// # Errors
    /// The first page with wrong content.
    pub fn perform(&mut self, act: Act, limit: Duration) -> Result<Done, Wrong> {
        let pages = self.region.pages();
        match act {
            Act::Fill => Ok(self.fill()),
            Act::SeqRead => self.in_order(limit, Self::read),
            Act::SeqWrite => self.in_order(limit, Self::read_write),
            Act::Warm => self.zipf(pages / 4, limit),
            Act::Zipf => self.zipf(pages / 2, limit),
            Act::Phase => self.phases(limit),
            Act::Threads(count) => self.threads(count, limit),
            Act::Settle => self.settle(),
            Act::Reclaim => Ok(self.reclaim(limit)),
            // Has memory of its own: see `reclaim::bare_continue`.
            Act::Continue => Ok(Done::default()),
        }
    }

    fn fill(&mut self) -> Done {
        let begin = Instant::now();
        for number in 0..self.region.pages() {
            self.region.fill(number, 0);
        }
        self.versions.fill(0);
        Done { accesses: self.region.pages(), ns: elapsed(begin), ..Done::default() }
    }

    fn read(&mut self, number: u64) -> Result<(), Wrong> {
        let right = self.region.check(number, self.versions[number as usize]);
        right.then_some(()).ok_or(Wrong(number))
    }

    fn read_write(&mut self, number: u64) -> Result<(), Wrong> {
        self.read(number)?;
        let version = &mut self.versions[number as usize];
        *version = version.wrapping_add(1);
        self.region.fill(number, *version);
        Ok(())
    }

    fn in_order(
        &mut self,
        limit: Duration,
        access: fn(&mut Work, u64) -> Result<(), Wrong>,
    ) -> Result<Done, Wrong> {
        let begin = Instant::now();
        let mut done = Done::default();
        for number in 0..self.region.pages() {
            if number % STRIDE == 0 && begin.elapsed() > limit {
                done.cut = true;
                break;
            }
            access(self, number)?;
            done.accesses += 1;
        }
        done.ns = elapsed(begin);
        Ok(done)
    }

    /// Reads pages as drawn and times each read.
    fn draw(
        &mut self,
        count: u64,
        limit: Duration,
        mut next: impl FnMut(&mut Work) -> u64,
    ) -> Result<Done, Wrong> {
        let begin = Instant::now();
        let mut done = Done::default();
        while done.accesses < count {
            let number = next(self);
            let before = Instant::now();
            if before - begin > limit {
                done.cut = true;
                break;
            }
            self.read(number)?;
            done.latencies.add(elapsed(before));
            done.accesses += 1;
        }
        done.ns = elapsed(begin);
        Ok(done)
    }

    fn zipf(&mut self, count: u64, limit: Duration) -> Result<Done, Wrong> {
        let zipf = Zipf::new(self.region.pages(), EXPONENT);
        self.draw(count, limit, |work| u64::from(work.places[zipf.draw(&mut work.rng) as usize]))
    }

    fn phases(&mut self, limit: Duration) -> Result<Done, Wrong> {
        let pages = self.region.pages();
        let set = set_pages(self.resident, pages);
        let mut whole = Done::default();
        let begin = Instant::now();
        for start in places_of_phases(pages, set) {
            let left = limit.saturating_sub(begin.elapsed());
            let part =
                self.draw(set, left, |work| start + work.rng.usize(..set as usize) as u64)?;
            whole.accesses += part.accesses;
            whole.latencies.merge(&part.latencies);
            whole.cut |= part.cut;
        }
        whole.ns = elapsed(begin);
        Ok(whole)
    }

    /// Threads that read pages drawn evenly from the whole region.
    fn threads(&mut self, count: u32, limit: Duration) -> Result<Done, Wrong> {
        let pages = self.region.pages();
        let each = (pages / 4 / u64::from(count)).max(1);
        let (stop, wrong) = (AtomicBool::new(false), AtomicU64::new(u64::MAX));
        let seeds: Vec<u64> = (0..count).map(|_| self.rng.u64(..)).collect();
        let begin = Instant::now();
        let one = |seed: u64| {
            let (mut rng, mut done) = (Rng::with_seed(seed), Done::default());
            while done.accesses < each && !stop.load(Ordering::Relaxed) {
                let number = rng.usize(..pages as usize) as u64;
                let before = Instant::now();
                if before - begin > limit {
                    done.cut = true;
                    break;
                }
                if !self.region.check(number, self.versions[number as usize]) {
                    wrong.store(number, Ordering::Relaxed);
                    stop.store(true, Ordering::Relaxed);
                }
                done.latencies.add(elapsed(before));
                done.accesses += 1;
            }
            done
        };
        let mut whole = Done::default();
        std::thread::scope(|scope| {
            let one = &one;
            let all: Vec<_> = seeds.iter().map(|&seed| scope.spawn(move || one(seed))).collect();
            for part in all.into_iter().filter_map(|thread| thread.join().ok()) {
                whole.accesses += part.accesses;
                whole.latencies.merge(&part.latencies);
                whole.cut |= part.cut;
            }
        });
        whole.ns = elapsed(begin);
        match wrong.into_inner() {
            u64::MAX => Ok(whole),
            number => Err(Wrong(number)),
        }
    }

    /// A set that fits into memory but not into the clock's loop: what is slow here is a reclaim. Ends with its time.
    /// Pages of the set of `reclaim`.
    fn reclaim_set(&self) -> u64 {
        let room = (self.resident as f64 * RECLAIM_SHARE) as u64 / PAGE;
        room.clamp(1, self.region.pages())
    }

    /// The set comes in, and what the act before left goes.
    fn settle(&mut self) -> Result<Done, Wrong> {
        let (begin, set) = (Instant::now(), self.reclaim_set());
        for number in (0..set).chain(0..set) {
            self.read(number)?;
        }
        Ok(Done { accesses: 2 * set, ns: elapsed(begin), ..Done::default() })
    }

    fn reclaim(&mut self, limit: Duration) -> Done {
        let set = self.reclaim_set();
        let begin = Instant::now();
        let mut done = Done::default();
        loop {
            let number = self.rng.usize(..set as usize) as u64;
            let before = Instant::now();
            if before - begin > limit {
                break;
            }
            self.region.touch(number);
            done.latencies.add(elapsed(before));
            done.accesses += 1;
        }
        done.ns = elapsed(begin);
        done
    }
}

fn elapsed(since: Instant) -> u64 {
    since.elapsed().as_nanos() as u64
}

/// Pages of the working set of phase change.
fn set_pages(resident: u64, pages: u64) -> u64 {
    ((resident as f64 * SET_SHARE) as u64 / PAGE).clamp(1, pages)
}

/// Where each phase's set begins: spread over the region, every other first, so that neighbours do not share pages.
fn places_of_phases(pages: u64, set: u64) -> Vec<u64> {
    let place = |at: u64| (pages - set) * at / (PHASES - 1);
    (0..PHASES).step_by(2).chain((1..PHASES).step_by(2)).map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paging::region::Source;

    const LONG: Duration = Duration::from_secs(60);

    fn work(pages: u64, resident: u64) -> Work {
        Work::new(Region::map(&Source::Anonymous, pages * PAGE).unwrap(), resident * PAGE, 3)
    }

    #[test]
    fn every_act_has_a_word_and_the_word_is_its_own() {
        for act in [Act::Fill, Act::SeqRead, Act::SeqWrite, Act::Zipf, Act::Phase, Act::Threads(8)]
        {
            assert_eq!(Act::from_word(&act.word()), Some(act));
        }
        for none in ["", "threads-0", "threads-65", "threads-x", "fills"] {
            assert_eq!(Act::from_word(none), None, "{none}");
        }
    }

    #[test]
    fn acts_do_as_many_accesses_as_they_say() {
        let mut work = work(256, 64);
        let mut count = |act| work.perform(act, LONG).unwrap().accesses;
        assert_eq!((count(Act::Fill), count(Act::SeqRead), count(Act::SeqWrite)), (256, 256, 256));
        assert_eq!((count(Act::Zipf), count(Act::Threads(4))), (128, 64));
        assert_eq!(count(Act::Phase), 8 * 38);
        assert_eq!(count(Act::SeqRead), 256, "what was written is what is read");
    }

    #[test]
    fn a_wrong_page_ends_every_act_that_meets_it() {
        let mut work = work(64, 64);
        work.perform(Act::Fill, LONG).unwrap();
        work.region.fill(17, 1);
        for act in [Act::SeqRead, Act::SeqWrite, Act::Phase, Act::Threads(2), Act::Settle] {
            // Random acts on 64 pages: repeated until the page was met.
            let met = (0..200).find_map(|_| work.perform(act, Duration::from_millis(200)).err());
            assert_eq!(met, Some(Wrong(17)), "{act:?}");
        }
    }

    #[test]
    fn time_cuts_an_act_short() {
        let mut work = work(128, 32);
        work.perform(Act::Fill, LONG).unwrap();
        for act in [Act::SeqRead, Act::Zipf, Act::Phase, Act::Threads(2)] {
            let done = work.perform(act, Duration::ZERO).unwrap();
            assert!(done.cut && done.accesses < 64, "{act:?} {}", done.accesses);
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
