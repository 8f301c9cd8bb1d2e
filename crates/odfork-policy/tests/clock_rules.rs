//! The paper's rules one by one: revolution, pool, rule, advice.

use odfork_policy::clock::{Action, Clock, Frame, Linear, List, ScanRule, Touch};

fn full(frames: u32, rule: ScanRule) -> Clock {
    let mut clock = Clock::new(frames, rule);
    for page in 0..frames {
        let frame = clock.take_frame().unwrap().frame;
        assert!(clock.insert(frame, 0, page.into(), List::Active));
    }
    clock
}

fn scan(clock: &mut Clock, count: u64) -> Vec<Action> {
    let mut actions = Vec::new();
    clock.scan(count, &mut actions);
    actions
}

#[test]
fn a_page_leaves_after_one_revolution_without_a_touch() {
    let mut clock = full(4, ScanRule::Never);
    assert_eq!(scan(&mut clock, 4), (0..4).map(Action::Zap).collect::<Vec<_>>());
    assert_eq!(clock.touch(2, false), Touch::FromActive);
    assert_eq!(clock.touch(2, false), Touch::Valid);
    let left = [Action::Left(0), Action::Left(1), Action::Zap(2), Action::Left(3)];
    assert_eq!(scan(&mut clock, 4), left);
    assert_eq!(clock.pool().collect::<Vec<Frame>>(), [0, 1, 3]);
}

#[test]
fn a_pool_page_comes_back_until_its_frame_is_taken() {
    let mut clock = full(2, ScanRule::Never);
    scan(&mut clock, 2);
    scan(&mut clock, 2);
    assert_eq!(clock.touch(1, false), Touch::FromPool);
    let taken = clock.take_frame().unwrap();
    assert_eq!((taken.frame, taken.evicted), (0, Some((0, 0))));
    assert_eq!(clock.touch(0, false), Touch::NotHeld);
    assert!(clock.take_frame().is_none());
}

#[test]
fn pre_paged_pages_are_reused_last_and_never_scanned() {
    let mut clock = Clock::new(3, ScanRule::Never);
    let frames = [(); 3].map(|()| clock.take_frame().unwrap().frame);
    clock.insert(frames[0], 0, 10, List::Active);
    scan(&mut clock, 1);
    scan(&mut clock, 1); // page 10 is in the pool now
    clock.insert(frames[1], 0, 11, List::Pool);
    clock.insert(frames[2], 0, 12, List::Pool);
    assert_eq!(scan(&mut clock, 9), []);
    assert_eq!(clock.touch(frames[2], false), Touch::Prefetched);
    assert_eq!(clock.take_frame().unwrap().evicted, Some((0, 10)));
    let wasted = clock.take_frame().unwrap();
    assert_eq!((wasted.evicted, wasted.wasted), (Some((0, 11)), true));
    assert_eq!((clock.counts().prefetch_used, clock.counts().prefetch_wasted), (1, 1));
}

#[test]
fn a_dirty_page_is_written_before_its_frame_can_be_taken() {
    let mut clock = full(1, ScanRule::Never);
    clock.touch(0, true);
    scan(&mut clock, 1);
    assert_eq!(scan(&mut clock, 1), [Action::Clean(0)]);
    assert!(clock.take_frame().is_none());
    let mut actions = Vec::new();
    clock.written(0, &mut actions);
    assert_eq!(actions, [Action::Left(0)]);
    assert_eq!(clock.take_frame().unwrap().evicted, Some((0, 0)));
}

#[test]
fn a_write_during_the_write_back_is_written_again() {
    let mut clock = full(1, ScanRule::Never);
    clock.touch(0, true);
    scan(&mut clock, 1);
    scan(&mut clock, 1);
    assert_eq!(clock.touch(0, true), Touch::FromLeaving);
    scan(&mut clock, 1);
    assert_eq!(scan(&mut clock, 1), [], "the first write has not ended");
    let mut actions = Vec::new();
    clock.written(0, &mut actions);
    assert_eq!(actions, [Action::Clean(0)]);
}

#[test]
fn an_idle_owner_drains_to_the_active_one() {
    let mut clock = Clock::new(8, ScanRule::Never);
    for page in 0..8 {
        let frame = clock.take_frame().unwrap().frame;
        clock.insert(frame, u32::from(page >= 4), page, List::Active);
    }
    for round in 0..4u64 {
        for frame in 0..8 {
            if clock.content(frame).is_some_and(|(owner, _)| owner == 1) {
                clock.touch(frame, false);
            }
        }
        scan(&mut clock, 8);
        while let Some(taken) = clock.take_frame() {
            clock.insert(taken.frame, 1, 100 + round, List::Active);
        }
    }
    assert_eq!((clock.owner_state(0).resident, clock.owner_state(1).resident), (0, 8));
}

#[test]
fn advice_stops_the_zaps_of_one_owner_only() {
    let mut clock = Clock::new(4, ScanRule::Never);
    for page in 0..4 {
        let frame = clock.take_frame().unwrap().frame;
        clock.insert(frame, page as u32 % 2, page, List::Active);
    }
    clock.set_anomalous(1, true);
    let expected = [Action::Zap(0), Action::Unmap(1), Action::Zap(2), Action::Unmap(3)];
    assert_eq!(scan(&mut clock, 4), expected);
    let mut actions = Vec::new();
    clock.unmapped(1, &mut actions);
    clock.mark_dirty(3);
    clock.unmapped(3, &mut actions);
    assert_eq!(actions, [Action::Left(1), Action::Clean(3)]);
}

#[test]
fn the_hand_stands_while_the_pool_is_full_enough_and_stops_at_the_order_point() {
    let rule = ScanRule::Linear(Linear { low_watermark: 25, slowest: 100, fastest: 300 });
    let mut clock = Clock::new(100, rule);
    let mut actions = Vec::new();
    let mut now = 0;
    for page in 0..75 {
        let frame = clock.take_frame().unwrap().frame;
        clock.insert(frame, 0, page, List::Active);
        now += 1_000_000_000;
        assert_eq!(clock.advance(now, &mut actions), 0, "pool {}", clock.pool_len());
    }
    let frame = clock.take_frame().unwrap().frame;
    clock.insert(frame, 0, 75, List::Active);
    assert_eq!(clock.scan_rate(), 108);
    // 76 zaps in a second, then a second revolution frees one page, and the hand stands again.
    assert_eq!(clock.advance(now + 1_000_000_000, &mut actions), 76);
    assert_eq!(clock.advance(now + 2_000_000_000, &mut actions), 1);
    assert_eq!((clock.pool_len(), clock.scan_rate()), (25, 0));
}

#[test]
fn the_rate_is_a_straight_line_between_its_ends() {
    let rule = ScanRule::Linear(Linear { low_watermark: 1000, slowest: 100, fastest: 300 });
    let mut clock = Clock::new(4000, rule);
    for page in 0..4000u64 {
        let frame = clock.take_frame().unwrap().frame;
        clock.insert(frame, 0, page, List::Active);
        let pool = u64::from(clock.pool_len());
        let line = if pool < 1000 { 100 + (1000 - pool) / 5 } else { 0 };
        assert_eq!(clock.scan_rate(), line, "pool {pool}");
    }
}

#[test]
fn a_swapped_out_owner_reclaims_what_was_not_reused() {
    let mut clock = full(4, ScanRule::Never);
    let mut actions = Vec::new();
    scan(&mut clock, 2);
    assert_eq!(clock.swap_out(0, &mut actions), 4);
    let expected = [Action::Left(0), Action::Left(1), Action::Unmap(2), Action::Unmap(3)];
    assert_eq!(actions, expected);
    clock.unmapped(2, &mut actions);
    clock.unmapped(3, &mut actions);
    assert_eq!((clock.pool_len(), clock.active_len()), (4, 0));
    clock.take_frame();
    assert_eq!(
        [0, 1, 2, 3].map(|f| clock.touch(f, false) == Touch::FromPool),
        [false, true, true, true]
    );
}

#[test]
fn wrong_calls_change_nothing() {
    let mut clock = full(1, ScanRule::Never);
    let mut actions = Vec::new();
    assert!(!clock.insert(0, 0, 0, List::Active) && !clock.give_back(0) && !clock.discard(9));
    assert_eq!(clock.touch(9, true), Touch::NotHeld);
    clock.written(0, &mut actions);
    clock.unmapped(0, &mut actions);
    clock.not_written(7);
    assert!(actions.is_empty() && clock.is_valid(0) && clock.take_frame().is_none());
}

#[test]
fn memory_that_was_never_used_costs_nothing() {
    let mut clock =
        Clock::new(u32::MAX - 1, ScanRule::Linear(Linear::paper(u32::MAX - 1, 6_400, 0.1)));
    assert_eq!(clock.take_frame().unwrap().frame, 0);
    assert_eq!(clock.pool_len(), u32::MAX - 2);
}
