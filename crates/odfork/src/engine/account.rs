//! What forks have cost and what cleaning would: when to act, by the rental rule.
//!
//! Owns the account of one process; the model and the rule are the crate `odfork-model`.

use odfork_model::{CostModel, Rental};

use crate::results::Report;
use crate::sys::PAGE;

/// The account.
pub struct Account {
    pub model: CostModel,
    pub rental: Rental,
    /// Entries the next fork copies, when a pass has just found out.
    pub entries: Option<u64>,
    /// Bytes of address space that show backing files.
    pub shown: u64,
}

impl Account {
    /// Nothing paid, nothing measured.
    pub const fn new() -> Self {
        Account { model: CostModel::new(), rental: Rental::new(), entries: None, shown: 0 }
    }

    /// In a child: what it has paid is nothing, what was measured holds.
    pub fn begin_child(&mut self) {
        self.rental = Rental::new();
        self.entries = None;
    }

    /// Charges `forks` that took `ns` together, the last of them `last_ns`.
    pub fn charge(&mut self, ns: u64, forks: u64, last_ns: u64) {
        if forks == 0 {
            return;
        }
        if let Some(entries) = self.entries.take() {
            self.model.observe_fork(entries, last_ns);
        }
        for _ in 0..forks.min(1000) {
            self.rental.charge(self.model.rent_ns(ns / forks));
        }
    }

    /// What a pass that ended well teaches.
    pub fn learn(&mut self, r: &Report) {
        let (eligible, dirty, shown) = (r.eligible.get(), r.dirty.get(), r.shown.get() as u64);
        let model = &mut self.model;
        if r.acted.flag() {
            self.rental.bought();
            self.entries = None;
            model.observe_freeze(r.frozen.get() as u64, r.freeze_ns.get() as u64);
            model.observe_refreeze(
                (r.written_back.get() / PAGE) as u64,
                shown,
                r.refreeze_ns.get() as u64,
            );
        } else {
            let entries = ((eligible + dirty) / PAGE) as u64;
            let price = model.clean_ns(eligible as u64, (dirty / PAGE) as u64, shown);
            self.rental.limit(model.avoidable_ns(entries));
            self.rental.scanned(price, model.scan_ns(entries, shown));
            self.entries = Some(entries);
        }
    }
}
