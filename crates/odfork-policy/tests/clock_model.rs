//! The clock against its model, under random sequences of calls.

#[path = "model/clock.rs"]
mod model;

use model::{Call, Pair, OWNERS};
use proptest::prelude::*;

fn call() -> impl Strategy<Value = Call> {
    let owner = 0..OWNERS;
    prop_oneof![
        8 => (owner.clone(), any::<bool>()).prop_map(|(o, w)| Call::Demand(o, w)),
        3 => owner.clone().prop_map(Call::Prefetch),
        1 => Just(Call::TakeAndReturn),
        10 => (any::<u8>(), any::<bool>()).prop_map(|(f, w)| Call::Touch(f, w)),
        2 => any::<u8>().prop_map(Call::MarkDirty),
        8 => (0u8..40).prop_map(Call::Scan),
        4 => (0u8..40, owner.clone()).prop_map(|(n, o)| Call::Press(n, o)),
        4 => Just(Call::Unmapped),
        4 => any::<bool>().prop_map(Call::Written),
        1 => any::<u8>().prop_map(Call::CleanAlong),
        1 => any::<u8>().prop_map(Call::Discard),
        1 => owner.clone().prop_map(Call::SwapOut),
        1 => owner.clone().prop_map(Call::DiscardOwner),
        1 => (owner, any::<bool>()).prop_map(|(o, on)| Call::Anomalous(o, on)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn it_does_what_the_obvious_model_does(
        frames in 1usize..16,
        calls in proptest::collection::vec(call(), 1..150),
    ) {
        let mut pair = Pair::new(frames);
        for call in calls {
            pair.apply(call);
            pair.compare();
        }
    }
}
