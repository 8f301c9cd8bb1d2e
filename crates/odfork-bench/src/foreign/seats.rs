//! One process of others for each arm: all are alive together, and have slices in turn.
//!
//! Owns who is alive, and what the runner asks of all of them. How one is started, what a slice is
//! and what must be right at the end, a [`Stand`] says.

use std::time::{Duration, Instant};

use odfork_samples::samples::Params;

use super::ended;
use crate::runner::{Executor, Number, Point, Reply};

/// What an experiment does with its processes.
pub trait Stand {
    type Target: Clone;
    type Op;
    /// A process that is alive; it ends when this is dropped.
    type Seat;

    /// Before the first one of a group starts.
    fn begin(&mut self) {}
    fn start(&mut self, target: &Self::Target) -> Result<Self::Seat, String>;
    fn slice(
        &mut self,
        seat: &mut Self::Seat,
        target: &Self::Target,
        point: &Point<Self::Op>,
    ) -> Result<Vec<Number>, String>;
    /// After the last slice: is what it holds right? What odfork says of it, unless it is stock's.
    fn end(&mut self, seat: Self::Seat, target: &Self::Target) -> Result<Option<String>, String>;
}

pub struct Seats<S: Stand> {
    pub stand: S,
    begun: Instant,
    seats: Vec<(S::Target, Option<S::Seat>)>,
}

impl<S: Stand> Seats<S> {
    pub fn new(stand: S) -> Seats<S> {
        Seats { stand, begun: Instant::now(), seats: Vec::new() }
    }
}

impl<S: Stand> Executor for Seats<S> {
    type Target = S::Target;
    type Op = S::Op;

    fn start(&mut self, targets: &[S::Target]) -> Vec<Option<String>> {
        self.stand.begin();
        let mut reasons = Vec::new();
        for target in targets {
            let started = self.stand.start(target);
            reasons.push(started.as_ref().err().cloned());
            self.seats.push((target.clone(), started.ok()));
        }
        reasons
    }

    fn perform(&mut self, point: &Point<S::Op>, _round: u32) -> Reply {
        let (target, seat) = &mut self.seats[point.targets[0]];
        let Some(seat) = seat else { return ended("it has not started".into()) };
        self.stand.slice(seat, target, point).map_or_else(ended, Reply::numbers)
    }

    fn verify(&mut self, target: usize) -> Reply {
        let (target, seat) = &mut self.seats[target];
        let Some(seat) = seat.take() else { return Reply::default() };
        let reply = |engine| Reply { engine, ..Reply::default() };
        self.stand.end(seat, target).map_or_else(ended, reply)
    }

    fn stop(&mut self) {
        self.seats.clear();
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }
}

/// A point for each arm; the targets of the group are in the same order.
pub fn in_turn<O: Copy>(
    arms: impl IntoIterator<Item = &'static str>,
    params: &Params,
    op: O,
) -> Vec<Point<O>> {
    let point = |(at, engine)| Point { engine, targets: vec![at], params: params.clone(), op };
    arms.into_iter().enumerate().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::Outcome;

    /// Who is called "lame" does not start; whose slice has run is full.
    #[derive(Default)]
    struct Plain {
        groups: u32,
    }

    impl Stand for Plain {
        type Target = &'static str;
        type Op = f64;
        type Seat = f64;

        fn begin(&mut self) {
            self.groups += 1;
        }

        fn start(&mut self, target: &&'static str) -> Result<f64, String> {
            if *target == "lame" {
                Err("lame".into())
            } else {
                Ok(0.0)
            }
        }

        fn slice(
            &mut self,
            seat: &mut f64,
            _target: &&'static str,
            point: &Point<f64>,
        ) -> Result<Vec<Number>, String> {
            *seat += point.op;
            Ok(vec![Number::new("sum", "count", *seat)])
        }

        fn end(&mut self, seat: f64, target: &&'static str) -> Result<Option<String>, String> {
            if seat > 0.0 {
                Ok(Some(format!("{target} {seat}")))
            } else {
                Err("empty".into())
            }
        }
    }

    #[test]
    fn each_arm_has_its_own_process_until_the_group_ends() {
        let points = in_turn(["sound", "lame", "idle"], &Params::new(), 2.0);
        let mut seats = Seats::new(Plain::default());
        assert_eq!(seats.start(&["sound", "lame", "idle"]), [None, Some("lame".into()), None]);
        assert!(matches!(seats.perform(&points[1], 1).outcome, Outcome::Wrong(_)));
        assert_eq!(seats.perform(&points[0], 1).numbers[0].value, 2.0);
        assert_eq!(seats.perform(&points[0], 2).numbers[0].value, 4.0);
        assert_eq!(seats.verify(0).engine.as_deref(), Some("sound 4"));
        assert!(matches!(seats.verify(1).outcome, Outcome::Done));
        assert!(matches!(seats.verify(2).outcome, Outcome::Wrong(_)));
        seats.stop();
        assert_eq!(seats.start(&["sound"]), [None]);
        assert_eq!((seats.stand.groups, seats.seats.len()), (2, 1));
    }
}
