//! The scanner: one thread that moves the hand, sends zaps to agents and takes their answers,
//! serves calls, and retries faults that had no frame.
//!
//! It sleeps on the doorbell. While the pool is below its low watermark it wakes every 50 ms, while
//! the pool is nearly empty every 10 ms. The scan rule of `odfork_policy` says how far the hand
//! moves. One case goes beyond the paper: when the supply falls below 1/16 of memory, the hand
//! moves as far as needed. A stream of new pages is ten times faster than the maximum scan rate,
//! and its program would stall although old pages abound. Pages passed then leave without a second
//! round, for the CPU budget of reference bits is spent; the pool is their second chance.

use std::sync::atomic::Ordering;
use std::time::Duration;

use odfork_pager_protocol::control::{Span, ZAP_PAGES, ZAP_RANGES, ZAP_RANGE_PAGES};
use odfork_pager_protocol::PAGE;

use super::client::{Client, NONE, PENDING, UNMAP};
use super::state::{ClientKey, State};
use super::Daemon;
use crate::crash_points;
use crate::stats::{add, count};
use crate::sys;
use crate::table::Page;

/// While frames are about to run out, and while there are enough for now: the hand moves by time,
/// and every turn wakes threads.
const TICK: Duration = Duration::from_millis(10);
const SLOW_TICK: Duration = Duration::from_millis(50);
const IDLE: Duration = Duration::from_millis(250);
const SECOND: u64 = 1_000_000_000;

impl Daemon {
    /// The scanner's thread.
    pub fn run_scanner(&self) {
        let mut checked_ns = sys::now_ns();
        loop {
            let rung = self.doorbell().rung.load(Ordering::Acquire);
            let mut state = self.lock();
            let now = sys::now_ns();
            for owner in 0..state.clients.len() as u32 {
                self.take_answers(&mut state, owner);
                self.check_responsive(&mut state, owner, now);
                self.serve_call(&mut state, owner);
            }
            self.turn_hand(&mut state, now);
            let reported = self.gone_reported.swap(false, Ordering::Relaxed);
            let leaving = state.clients.iter().any(is_leaving);
            if reported || leaving || now.saturating_sub(checked_ns) >= SECOND {
                self.reap(&mut state);
                checked_ns = now;
            }
            self.control_load(&mut state, now);
            for owner in 0..state.clients.len() as u32 {
                self.send_zaps(&mut state, owner);
            }
            self.retry_starved(&mut state);
            let urgent = state.is_short() || !state.starved.is_empty();
            let busy = state.supply() < state.clock.order().0;
            let work = !state.to_clean.is_empty();
            let over = self.is_over(&state);
            drop(state);
            if over {
                return;
            }
            if work {
                self.dirty.notify_one();
            }
            let tick = match (urgent || work, busy) {
                (true, _) => TICK,
                (false, true) => SLOW_TICK,
                (false, false) => IDLE,
            };
            self.sleep(rung, tick);
        }
    }

    /// Sleeps until the doorbell rings again.
    fn sleep(&self, rung: u32, most: Duration) {
        let doorbell = self.doorbell();
        doorbell.sleeping.store(1, Ordering::SeqCst);
        if doorbell.rung.load(Ordering::SeqCst) == rung {
            sys::futex_wait(&doorbell.rung, rung, most);
        }
        doorbell.sleeping.store(0, Ordering::SeqCst);
    }

    /// Moves the hand by the scan rule, and further when frames are needed now.
    fn turn_hand(&self, state: &mut State, now_ns: u64) {
        let mut actions = std::mem::take(&mut state.actions);
        state.clock.advance(now_ns, &mut actions);
        let low = state.least() + state.starved.len() as u32;
        let supply = state.supply();
        if supply < low {
            // A quarter more, so that agents get few large batches.
            let wanted = u64::from(low + low / 4 - supply);
            // Pages of a program that does not answer (it is stopped) cannot be had.
            let answers = |owner: u32| {
                state.clients[owner as usize].as_ref().is_some_and(|client| !client.unresponsive)
            };
            state.clock.scan_for(wanted, answers, &mut actions);
            count(&self.stats.demand_scans);
        }
        state.actions = actions;
        state.apply_actions();
    }

    /// Sends one batch to an agent that has none.
    fn send_zaps(&self, state: &mut State, owner: u32) {
        let Some(client) = state.client(owner) else { return };
        if !client.sent.is_empty() || client.zaps.is_empty() || client.gone {
            return;
        }
        let zap = &client.control().zap;
        if zap.answered.load(Ordering::Acquire) != zap.asked.load(Ordering::Acquire) {
            // A batch of the daemon before us: the agent still reads it, or was never woken for it.
            // Its pages are not known here; that it has to be waited for is.
            sys::futex_wake(&zap.asked);
            client.sent = vec![Page::MAX];
            client.sent_ns = sys::now_ns();
            return;
        }
        let mut pages: Vec<Page> = Vec::new();
        while pages.len() < ZAP_PAGES {
            let Some(page) = client.zaps.pop_front() else { break };
            // Forgotten meanwhile.
            if client.local(page).flags & PENDING != 0 {
                pages.push(page);
            }
        }
        pages.sort_unstable();
        pages.dedup();
        let (spans, kept) = spans(client, &pages);
        for &page in pages.iter().filter(|page| kept.binary_search(page).is_err()).rev() {
            client.zaps.push_front(page);
        }
        if spans.is_empty() {
            return;
        }
        let zap = &client.control().zap;
        let first = zap.spans.as_ptr().cast_mut();
        for (at, span) in spans.iter().enumerate() {
            // SAFETY: at most ZAP_RANGES spans, inside the mapping; the agent reads them after
            // `asked` has changed.
            unsafe { first.add(at).write_volatile(*span) };
        }
        zap.ranges.store(spans.len() as u32, Ordering::Release);
        zap.asked.store(zap.answered.load(Ordering::Acquire).wrapping_add(1), Ordering::Release);
        sys::futex_wake(&zap.asked);
        add(&self.stats.zapped, kept.len() as u64);
        count(&self.stats.zap_batches);
        client.sent = kept;
        client.sent_ns = sys::now_ns();
        crash_points::pass("zap.sent");
    }

    /// An agent has answered: those pages are unmapped now, and whether they were written is known.
    fn take_answers(&self, state: &mut State, owner: u32) {
        let Some(client) = state.client(owner) else { return };
        let zap = &client.control().zap;
        let done = zap.answered.load(Ordering::Acquire) == zap.asked.load(Ordering::Acquire);
        if client.sent.is_empty() || !done {
            return;
        }
        crash_points::pass("zap.answered");
        let bit = |words: &[std::sync::atomic::AtomicU64], at: usize| {
            words[at / 64].load(Ordering::Acquire) >> (at % 64) & 1 == 1
        };
        let answers: Vec<(bool, bool)> =
            (0..client.sent.len()).map(|at| (bit(&zap.clean, at), bit(&zap.failed, at))).collect();
        let pages = std::mem::take(&mut client.sent);
        for (page, (clean, failed)) in pages.into_iter().zip(answers) {
            self.unmapped(state, owner, page, (clean, failed));
        }
        state.apply_actions();
    }

    /// Whether it still answers.
    fn check_responsive(&self, state: &mut State, owner: u32, now_ns: u64) {
        let Some(client) = state.client(owner) else { return };
        let is_unresponsive = client.is_unresponsive(now_ns);
        let was_unresponsive = std::mem::replace(&mut client.unresponsive, is_unresponsive);
        if is_unresponsive && !was_unresponsive {
            state.cancel_unmaps(owner);
        }
    }

    fn unmapped(&self, state: &mut State, owner: u32, page: Page, (clean, failed): (bool, bool)) {
        if page == Page::MAX {
            return;
        }
        let Some(client) = state.client(owner) else { return };
        let local = client.local_mut(page);
        let flags = local.flags;
        local.flags &= !(PENDING | UNMAP);
        let frame = local.frame;
        if frame == NONE {
            return;
        }
        if flags & PENDING == 0 {
            // Another page at the same place by now, which the agent may have unmapped: not known
            // to be clean.
            state.clock.mark_dirty(frame);
            return;
        }
        if failed {
            count(&self.stats.zap_failed);
            state.clock.touch(frame, false);
            state.clock.mark_dirty(frame);
            return;
        }
        if !clean {
            state.clock.mark_dirty(frame);
        }
        if flags & UNMAP != 0 {
            let mut actions = std::mem::take(&mut state.actions);
            state.clock.unmapped(frame, &mut actions);
            state.actions = actions;
        }
    }

    /// Frames have come: the faults that waited for them are served by a fault thread.
    fn retry_starved(&self, state: &mut State) {
        let mut spare = state.spare(0) as usize;
        let mut fed = false;
        while spare > 0 {
            let Some(fault) = state.starved.pop_front() else { break };
            state.retry.push_back(fault);
            spare -= 1;
            fed = true;
        }
        if fed {
            self.wake_fault_thread();
        }
    }

    /// Rings for the scanner when the page-out thread has something for it.
    pub fn after_page_out(&self, state: &mut State) {
        if !state.starved.is_empty() {
            self.ring();
        }
    }

    /// Programs that ended: everything they had is free.
    fn reap(&self, state: &mut State) {
        for owner in 0..state.clients.len() as u32 {
            let Some(client) = state.client(owner) else { continue };
            let dead = client.handles.as_ref().is_some_and(|handles| {
                use std::os::fd::AsFd;
                crate::uffd::is_gone(handles.uffd.as_fd())
            });
            client.gone |= dead;
            if client.gone && client.is_quiet() {
                self.remove(state, owner);
            }
        }
    }

    /// Serves what was parked while a program was held.
    pub fn unpark(&self, state: &mut State, owner: u32) {
        let Some(client) = state.client(owner) else { return };
        if client.is_suspended() {
            return;
        }
        let key = ClientKey { owner, id: client.id };
        let parked = std::mem::take(&mut client.parked);
        if !parked.is_empty() {
            state.retry.extend(parked.into_iter().map(|address| (key, address)));
            self.wake_fault_thread();
        }
    }
}

fn is_leaving(client: &Option<Box<Client>>) -> bool {
    client.as_ref().is_some_and(|client| client.gone)
}

/// Ranges for sorted pages, as many as one batch takes, and the pages in them, sorted too. A range
/// is adjacent in address and offset, and shorter than 2 MB.
fn spans(client: &Client, pages: &[Page]) -> (Vec<Span>, Vec<Page>) {
    let mut spans: Vec<Span> = Vec::new();
    let mut kept = Vec::new();
    for &page in pages {
        // Of a region that is gone: nobody maps it any more; its pages were discarded with it.
        let Some(address) = client.address(page) else { continue };
        let offset = page * PAGE as u64;
        let most = u64::from(ZAP_RANGE_PAGES) * PAGE as u64;
        let is_full = spans.len() == ZAP_RANGES;
        match spans.last_mut() {
            Some(last)
                if last.address + last.len == address
                    && last.offset + last.len == offset
                    && last.len < most =>
            {
                last.len += PAGE as u64;
            }
            _ if is_full => break,
            _ => spans.push(Span { address, offset, len: PAGE as u64, flags: 0 }),
        }
        kept.push(page);
    }
    (spans, kept)
}
