//! Live memory that nobody has asked for (`ODFORK_PROFILE=auto`): where it is chosen, and left.
//!
//! Owns the choice of one process, and what it is made by; `early.rs` and `fork.rs` act on it.
//! Static memory pays once, inside a fork, for what many forks gain: it is for programs that fork
//! often. A server forks seldom, and from more memory than it may wait for; it has time between its
//! requests, which is when live memory does its work.
//!
//! ```text
//! static   a fork takes long, and is one of few    twice in a row: wished
//! wished   the program waits                       live from there on
//! live     forks no shorter, or too much work      eight times in a row: static, for good
//! ```
//! What live memory depends on is noted from the beginning: which memory the program has mapped
//! itself, and what must not meet it. A call that changes a mapping is announced before it asks
//! whether memory is live, so no choice comes in between.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use crate::options::Profile;

const NEVER: u32 = 0;
const POSSIBLE: u32 = 1;
const WISHED: u32 = 2;
const CHOSEN: u32 = 3;
/// By the user.
const FORCED: u32 = 4;

/// Shorter forks hold nobody up (2 ms).
const LONG_NS: u64 = 2_000_000;
/// Forks are few where they take less than this part of the time: moving memory takes about ten
/// times as long as a fork that copies its page tables.
const FEW: u64 = 160;
/// So many such forks in a row are needed.
const ENOUGH: u32 = 2;
/// Slices that take a larger part of the time are too much.
const MOST_WORK: u64 = 16;
/// Forks in a row that live memory has not made better, or for too much work.
const PATIENCE: u32 = 8;

/// In microseconds, an hour at most.
fn us(ns: u64) -> u32 {
    (ns / 1000).min(3_600_000_000) as u32
}

/// The choice, and what it is made by.
pub struct Choice {
    mode: AtomicU32,
    /// Forks in a row that speak for another.
    votes: AtomicU32,
    /// When the latest fork was over, of this process or a parent; 0: there was none. When the
    /// process began is not asked: the clock is a page fault more in each.
    since_ns: AtomicU64,
    /// What slices took since then, in microseconds.
    spent_us: AtomicU32,
    /// How long the fork took that decided.
    stock_us: AtomicU32,
}

impl Choice {
    /// Before the options are known: it is possible.
    pub const fn new() -> Self {
        Choice {
            mode: AtomicU32::new(POSSIBLE),
            votes: AtomicU32::new(0),
            since_ns: AtomicU64::new(0),
            spent_us: AtomicU32::new(0),
            stock_us: AtomicU32::new(0),
        }
    }

    /// At the beginning of a process that was executed.
    pub fn start(&self, profile: Profile) {
        match profile {
            Profile::Auto => {}
            Profile::Static => self.rule_out(),
            Profile::Live => self.mode.store(FORCED, SeqCst),
        }
    }

    /// Memory is live, or may be one day.
    pub fn is_possible(&self) -> bool {
        self.mode.load(SeqCst) != NEVER
    }

    /// The program's next wait is the moment to choose.
    pub fn is_wished(&self) -> bool {
        self.mode.load(Relaxed) == WISHED
    }

    /// Memory is live by this choice.
    pub fn is_chosen(&self) -> bool {
        self.mode.load(SeqCst) == CHOSEN
    }

    /// Memory is live.
    pub fn is_live(&self) -> bool {
        self.mode.load(SeqCst) >= CHOSEN
    }

    /// It never will be, unless it is already.
    pub fn rule_out(&self) {
        for mode in [POSSIBLE, WISHED] {
            let _ = self.mode.compare_exchange(mode, NEVER, SeqCst, SeqCst);
        }
    }

    /// A slice took so long.
    pub fn spend(&self, ns: u64) {
        self.spent_us.fetch_add(us(ns), Relaxed);
    }

    /// In a child: it chooses by its own forks. A page that says so already is left alone.
    pub fn begin_child(&self) {
        if matches!(self.mode.load(Relaxed), WISHED | CHOSEN) {
            self.mode.store(POSSIBLE, SeqCst);
        }
        if self.votes.load(Relaxed) != 0 {
            self.votes.store(0, Relaxed);
        }
    }

    /// A fork took so long, and is over now. True: live memory that was chosen is to be left.
    pub fn hears(&self, ns: u64, now_ns: u64) -> bool {
        let is_chosen = match self.mode.load(Relaxed) {
            NEVER | FORCED => return false,
            mode => mode == CHOSEN,
        };
        let between_ns = now_ns.saturating_sub(self.since_ns.swap(now_ns, Relaxed));
        let spent_ns = u64::from(self.spent_us.swap(0, Relaxed)) * 1000;
        let is_vote = match is_chosen {
            false => ns >= LONG_NS && ns.saturating_mul(FEW) <= between_ns,
            true => us(ns) > self.stock_us.load(Relaxed) / 2 || spent_ns > between_ns / MOST_WORK,
        };
        let votes = if is_vote { self.votes.load(Relaxed) + 1 } else { 0 };
        self.votes.store(votes, Relaxed);
        if !is_chosen && votes == ENOUGH {
            self.stock_us.store(us(ns), Relaxed);
            let _ = self.mode.compare_exchange(POSSIBLE, WISHED, SeqCst, SeqCst);
        }
        is_chosen && votes >= PATIENCE
    }

    /// What was wished for, if nothing was found against it meanwhile. Under the lock.
    pub fn choose(&self) -> bool {
        self.votes.store(0, Relaxed);
        self.mode.compare_exchange(WISHED, CHOSEN, SeqCst, SeqCst).is_ok()
    }

    /// It cannot be had here: one more fork that is no better, and it is left.
    pub fn despair(&self) {
        self.votes.store(PATIENCE, Relaxed);
    }

    /// Static for good. Under the lock.
    pub fn leave(&self) {
        self.mode.store(NEVER, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn begun(profile: Profile) -> Choice {
        let choice = Choice::new();
        choice.start(profile);
        choice
    }

    #[test]
    fn forks_that_are_long_and_few_are_followed_by_live_memory() {
        let choice = begun(Profile::Auto);
        assert!(!choice.hears(20 * MS, 4000 * MS) && !choice.is_wished());
        assert!(!choice.hears(20 * MS, 5000 * MS) && !choice.is_wished(), "soon after the first");
        assert!(!choice.hears(20 * MS, 9000 * MS) && !choice.is_wished());
        assert!(!choice.hears(20 * MS, 13_000 * MS) && choice.is_wished() && !choice.is_live());
        assert!(choice.choose() && choice.is_live() && choice.is_chosen());
    }

    #[test]
    fn short_forks_many_forks_and_what_the_user_said_choose_nothing() {
        let choice = begun(Profile::Auto);
        (1..99).for_each(|i| assert!(!choice.hears(MS, 1000 * i * MS) && !choice.is_wished()));
        (1..99).for_each(|i| assert!(!choice.hears(20 * MS, 98_000 + 30 * i * MS)));
        assert!(!choice.is_wished());
        for profile in [Profile::Static, Profile::Live] {
            let choice = begun(profile);
            (1..9).for_each(|i| assert!(!choice.hears(20 * MS, 9000 * i * MS)));
            assert_eq!((choice.is_wished(), choice.is_live()), (false, profile == Profile::Live));
        }
    }

    #[test]
    fn what_is_no_better_or_too_much_work_is_left() {
        let chosen = || {
            let choice = begun(Profile::Auto);
            (1..3).for_each(|i| assert!(!choice.hears(20 * MS, 4000 * i * MS)));
            assert!(choice.choose());
            choice
        };
        let (after, forks) = (8000 * MS, u64::from(PATIENCE));
        let choice = chosen();
        assert!((1..forks).all(|i| !choice.hears(11 * MS, after + i * MS)), "as long as before");
        assert!(!choice.hears(2 * MS, after + forks * MS), "one that is better");
        assert!((1..forks).all(|i| !choice.hears(11 * MS, after + (forks + i) * MS)));
        assert!(choice.hears(11 * MS, after + 99 * MS));
        choice.leave();
        assert!(!choice.is_possible() && !choice.hears(11 * MS, after + 1000 * MS));

        let choice = chosen();
        for i in 1..=forks {
            choice.spend(70 * MS);
            assert_eq!(choice.hears(2 * MS, after + 1000 * i * MS), i == forks);
        }
        let choice = chosen();
        for i in 1..=2 * forks {
            choice.spend(50 * MS);
            assert!(!choice.hears(2 * MS, after + 1000 * i * MS));
        }
        choice.despair();
        assert!(choice.hears(11 * MS, after + 99_000 * MS));
    }

    #[test]
    fn a_reason_against_it_comes_before_or_after_the_choice() {
        let choice = begun(Profile::Auto);
        choice.rule_out();
        assert!(!choice.is_possible() && !choice.choose());
        let choice = begun(Profile::Auto);
        (1..3).for_each(|i| assert!(!choice.hears(20 * MS, 4000 * i * MS)));
        assert!(choice.choose());
        choice.rule_out();
        assert!(choice.is_live(), "whoever rules it out makes memory private");
        choice.begin_child();
        assert!(choice.is_possible() && !choice.is_live() && !choice.is_wished());
    }
}
