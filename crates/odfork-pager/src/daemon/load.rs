//! Load control: when memory cannot hold all working sets, a whole program is swapped out, and
//! comes back when there is room.
//!
//! `odfork_policy::load` decides who and when; this file carries it out. A program that is out is
//! not stopped: its faults are parked, so it stalls at its next one. Its pages leave the active
//! list and stay reclaimable until their frames are taken; nothing is read back when it returns
//! (both as in the paper).
//!
//! The paper's signal is the length of the pool. Here scanning on demand keeps the pool up
//! (`scan`), so the signal is that this was needed AND that most pages read had been evicted
//! shortly before. A stream of new pages needs the first without being short of memory.

use std::sync::atomic::Ordering::Relaxed;

use odfork_policy::load::{
    choose_in, choose_out, Decision, LoadControl, Resident, SwappedOut, Waiting,
};

use super::state::State;
use super::Daemon;
use crate::stats::{count, Stats};

/// Refaults between two looks below which nothing is short.
const FEWEST: u64 = 32;
/// Programs with a smaller part of memory than this do not compete for it.
const SMALL: u32 = 16;
const CHECK_EVERY_NS: u64 = 250_000_000;

impl Daemon {
    /// Swaps a whole program out where memory cannot be held, or in again where there is room.
    pub fn control_load(&self, state: &mut State, now_ns: u64) {
        if !self.tunables.load_control() {
            return self.swap_all_in(state, now_ns);
        }
        let mut control = self.load.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if now_ns.saturating_sub(control.checked_ns) < CHECK_EVERY_NS {
            return;
        }
        control.checked_ns = now_ns;
        let out = swapped_out(state, now_ns);
        let frames = state.clock.frames();
        let next = choose_in(&out, now_ns, u64::from(frames / 4).max(1));
        let next = next.and_then(|id| out.iter().find(|one| one.id == id));
        let waiting = next.map(|next| Waiting {
            longest_ns: out.iter().map(|one| now_ns.saturating_sub(one.out_ns)).max().unwrap_or(0),
            // Who had nearly everything cannot wait for more than that.
            next: next.resident.min(frames / 4 * 3),
        });
        let rivals = residents(state, now_ns);
        let running = rivals.iter().filter(|one| one.resident > frames / SMALL).count();
        let supply = control.supply(state, &self.stats);
        match control.rule.update(now_ns, supply, running, waiting) {
            Decision::Stay => {}
            Decision::SwapOut => {
                if let Some(owner) = choose_out(&rivals, self.tunables.largest() as usize) {
                    self.swap_out(state, owner, now_ns);
                }
            }
            Decision::SwapIn => {
                if let Some(next) = next {
                    self.swap_in(state, next.id, now_ns);
                }
            }
        }
    }

    fn swap_all_in(&self, state: &mut State, now_ns: u64) {
        for one in swapped_out(state, 0) {
            self.swap_in(state, one.id, now_ns);
        }
    }

    fn swap_out(&self, state: &mut State, owner: u32, now_ns: u64) {
        let resident = state.clock.owner_state(owner).resident;
        if let Some(client) = state.client(owner) {
            client.out = Some((now_ns, resident));
            client.counts.stops += 1;
        }
        let mut actions = std::mem::take(&mut state.actions);
        state.clock.swap_out(owner, &mut actions);
        state.actions = actions;
        state.apply_actions();
        count(&self.stats.swap_outs);
    }

    fn swap_in(&self, state: &mut State, owner: u32, now_ns: u64) {
        if let Some(client) = state.client(owner) {
            client.out = None;
            client.since_ns = now_ns;
        }
        self.unpark(state, owner);
        count(&self.stats.swap_ins);
    }
}

/// What load control has seen.
#[derive(Debug)]
pub struct Load {
    pub rule: LoadControl,
    pub checked_ns: u64,
    scans: u64,
    reads: u64,
    refaults: u64,
}

impl Load {
    pub fn new(rule: LoadControl) -> Load {
        Load { rule, checked_ns: 0, scans: 0, reads: 0, refaults: 0 }
    }

    /// The supply as the rule is to see it: none while memory is short.
    fn supply(&mut self, state: &State, stats: &Stats) -> u32 {
        let now =
            (stats.demand_scans.load(Relaxed), stats.read_calls.load(Relaxed), state.refaults);
        let scans = now.0 - std::mem::replace(&mut self.scans, now.0);
        let reads = now.1 - std::mem::replace(&mut self.reads, now.1);
        let refaults = now.2 - std::mem::replace(&mut self.refaults, now.2);
        let is_short = scans > 0 && refaults * 2 > reads && refaults >= FEWEST;
        if is_short {
            0
        } else {
            state.supply().max(1)
        }
    }
}

/// A program that is stopped has pages, but neither wants more nor can give any: it is nobody's
/// rival.
fn residents(state: &State, now_ns: u64) -> Vec<Resident<u32>> {
    let all = state.clients.iter().enumerate();
    all.filter_map(|(owner, client)| Some((owner as u32, client.as_ref()?)))
        .filter(|(_, client)| client.out.is_none() && !client.gone && !client.is_frozen())
        .filter(|(_, client)| !client.is_unresponsive(now_ns))
        .map(|(id, client)| Resident {
            id,
            resident: state.clock.owner_state(id).resident,
            since_ns: client.since_ns,
        })
        .collect()
}

fn swapped_out(state: &State, now_ns: u64) -> Vec<SwappedOut<u32>> {
    let all = state.clients.iter().enumerate();
    all.filter_map(|(owner, client)| Some((owner as u32, client.as_ref()?)))
        .filter(|(_, client)| !client.is_unresponsive(now_ns))
        .filter_map(|(id, client)| {
            let (out_ns, resident) = client.out?;
            Some(SwappedOut { id, resident, out_ns })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::client::tests::blank;
    use odfork_policy::clock::{Clock, Inventory, ScanRule};

    #[test]
    fn a_program_that_does_not_answer_is_nobodys_rival() {
        let clock = Clock::new(512, ScanRule::Inventory(Inventory::for_frames(512, 100)));
        let mut state = State::new(clock);
        for id in 1..=3 {
            state.add(blank(id));
        }
        let second = 1_000_000_000;
        for (owner, out) in [(0, None), (2, Some((second, 9)))] {
            let client = state.client(owner).unwrap();
            (client.sent, client.sent_ns, client.out) = (vec![7], 10 * second, out);
        }
        let ids = |state: &State, now| {
            let here = residents(state, now).into_iter().map(|one| one.id).collect::<Vec<_>>();
            let out = swapped_out(state, now).into_iter().map(|one| one.id).collect::<Vec<_>>();
            (here, out)
        };
        assert_eq!(ids(&state, 10 * second), (vec![0, 1], vec![2]));
        assert_eq!(ids(&state, 11 * second), (vec![1], vec![]));
    }
}
