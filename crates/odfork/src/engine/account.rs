//! What forks have cost and what cleaning would: when to act, by the rental rule.
//!
//! Owns the account of one process; the model and the rule are the crate `odfork-model`.

use odfork_model::{CostModel, Rental};

use crate::report::Report;
use crate::sys::PAGE;

/// The account.
pub struct Account {
    pub model: CostModel,
    pub rental: Rental,
    /// Entries the next fork copies, when a pass has just found out.
    pub entries: Option<u64>,
    /// Bytes of address space that show backing files.
    pub shown: u64,
    /// What the latest look found: the price, and what earlier parts still owe.
    price_ns: u64,
}

impl Account {
    /// Rent that counts, and the price it is compared with (0 before a look), for the statistics.
    pub fn figures(&self) -> (u64, u64) {
        (self.rental.paid_ns(), self.price_ns)
    }

    /// Nothing paid, nothing measured.
    pub const fn new() -> Self {
        Account {
            model: CostModel::new(),
            rental: Rental::new(),
            entries: None,
            shown: 0,
            price_ns: 0,
        }
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

    /// What a pass that ended well teaches; it held the program up for `spent_ns`.
    pub fn learn(&mut self, r: &Report, spent_ns: u64) {
        self.price_ns = 0;
        if r.acted.flag() {
            self.rental.bought();
            return self.learn_prices(r);
        }
        let (eligible, dirty, shown) = (r.eligible.get(), r.dirty.get(), r.shown.get() as u64);
        let entries = ((eligible + dirty) / PAGE) as u64;
        let price = self.model.clean_ns(eligible as u64, (dirty / PAGE) as u64, shown);
        let price = price.saturating_add(self.mappings_ns(r));
        self.rental.limit(self.model.avoidable_ns(entries));
        // Many mappings make a look dear in a way the model does not know.
        self.price_ns = price.saturating_add(self.rental.debt_ns());
        self.rental.scanned(price, self.model.scan_ns(entries, shown).max(spent_ns));
        self.entries = Some(entries);
    }

    /// The pass cost more than it was allowed to, and stopped where it was.
    pub fn stopped(&mut self, r: &Report, spent_ns: u64) {
        if !r.acted.flag() {
            return self.rental.overlooked(spent_ns);
        }
        self.rental.stopped(spent_ns);
        self.learn_prices(r);
    }

    /// A pass in slices has come to its end.
    pub fn bought(&mut self) {
        (self.price_ns, self.entries) = (0, None);
        self.rental.bought();
    }

    /// The pass was refused, or failed.
    pub fn refused(&mut self, spent_ns: u64) {
        self.rental.refused(spent_ns);
    }

    pub fn learn_prices(&mut self, r: &Report) {
        self.entries = None;
        let (frozen, folded) = (r.frozen.get() as u64, (r.written_back.get() / PAGE) as u64);
        // What the mappings cost whatever their size is no part of what a byte costs.
        // Of the new ones, those that were reached.
        let (new, dirty) = (r.new_mappings.get() as u64, r.dirty_mappings.get() as u64);
        let new = new.saturating_mul(frozen).checked_div(r.eligible.get() as u64).unwrap_or(0);
        let (freezing, folding) =
            (self.model.mappings_ns(new, 0), self.model.mappings_ns(0, dirty));
        let freeze_ns = (r.freeze_ns.get() as u64).saturating_sub(freezing);
        let refreeze_ns = (r.refreeze_ns.get() as u64).saturating_sub(folding);
        self.model.observe_freeze(frozen, freeze_ns);
        self.model.observe_refreeze(folded, r.shown.get() as u64, refreeze_ns);
    }

    fn mappings_ns(&self, r: &Report) -> u64 {
        self.model.mappings_ns(r.new_mappings.get() as u64, r.dirty_mappings.get() as u64)
    }
}
