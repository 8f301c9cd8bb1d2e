//! The pager's order of events: faults, zaps, writes that end well or not, programs that come and
//! go, in any order.
//!
//! The model is that of the policies' own tests.

#[path = "../../../crates/odfork-policy/tests/model/clock.rs"]
mod model;

use model::{Call, Pair, OWNERS};

use crate::Bytes;

fn call(bytes: &mut Bytes) -> Option<Call> {
    let what = bytes.byte()?;
    let argument = bytes.byte()?;
    let (owner, on) = (u32::from(argument >> 1) % OWNERS, argument & 1 != 0);
    Some(match what % 14 {
        0 => Call::Demand(owner, on),
        1 => Call::Prefetch(owner),
        2 => Call::TakeAndReturn,
        3 => Call::Touch(argument >> 1, on),
        4 => Call::MarkDirty(argument),
        5 => Call::Scan(argument % 40),
        6 => Call::Press(argument % 40, owner),
        7 => Call::Unmapped,
        8 => Call::Written(on),
        9 => Call::CleanAlong(argument),
        10 => Call::Discard(argument),
        11 => Call::SwapOut(owner),
        12 => Call::DiscardOwner(owner),
        _ => Call::Anomalous(owner, on),
    })
}

pub fn run(data: &[u8]) {
    let mut bytes = Bytes(data);
    let Some(frames) = bytes.byte() else { return };
    let mut pair = Pair::new(usize::from(frames % 15) + 1);
    // The model is slow on purpose: longer sequences say no more.
    for _ in 0..500 {
        let Some(call) = call(&mut bytes) else { break };
        pair.apply(call);
        pair.compare();
    }
}
