//! What a fork costs, and when it pays to buy a way out of that cost.
//!
//! The runtime asks this crate two things inside other people's processes: *what would this cost*
//! ([`CostModel`]) and *has enough been paid by now* ([`Rental`]). [`trace`] replays recorded forks
//! through the same rule and computes the best choice in hindsight, so that the promise "at most
//! twice" can be tested.
//!
//! The crate owns no clock, no memory and makes no system calls: times come in as measured
//! nanoseconds, verdicts go out. Nothing here panics: every sum saturates, no divisor can be zero.
//!
//! ```
//! use odfork_model::{CostModel, Rental};
//!
//! let mut model = CostModel::new();
//! let mut rental = Rental::new();
//! let entries = 262_144; // 1 GB in 4 KB pages
//! let mut last_fork_ns = 0;
//! let mut plain_forks = 0;
//! loop {
//!     // Before a fork: is it time even to look at the process map?
//!     let floor_ns = model.scan_floor_ns(last_fork_ns, 0);
//!     if rental.worth_scanning(floor_ns) {
//!         let buy_ns = model.freeze_ns(entries * 4096); // what the look found
//!         if rental.due(buy_ns) {
//!             break; // freeze here, then: model.observe_freeze(bytes, measured_ns)
//!         }
//!         rental.scanned(buy_ns, model.scan_ns(entries, 0));
//!     }
//!     // The fork itself, and what it cost.
//!     last_fork_ns = 14_050_000;
//!     rental.charge(model.rent_ns(last_fork_ns));
//!     model.observe_fork(entries, last_fork_ns);
//!     plain_forks += 1;
//! }
//! rental.bought();
//! assert_eq!(plain_forks, 5); // a sixth would bring the rent to 168 ms; freezing costs 153 ms
//! ```
#![no_std]
#![forbid(unsafe_code)]

mod cost;
mod learned;
mod rental;
mod terms;
pub mod trace;
mod trial;
mod units;

pub use cost::{CostModel, Defaults, PAGE_BYTES};
pub use rental::Rental;
pub use terms::{pages_written, ForkTerms};
pub use trial::Trial;
