//! Which descriptor goes where in the child, as single steps in a safe order.
//!
//! Owns the plan: pure, made in the parent, so that the child has nothing to
//! decide. It does not open or close anything.
//!
//! A copy may destroy what a later copy needs (`0 -> 1` before `1 -> 2`, or the
//! exchange `1 <-> 2`). So a copy is made only once nothing pending reads its
//! target; when only cycles are left, one descriptor is saved and the cycle
//! opened there. One descriptor is saved at a time: one word of the child's own
//! stack is enough, whatever is asked for.

/// A request: what is `from` here shall be `to` in the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    pub from: i32,
    pub to: i32,
}

/// One system call of the child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FdOp {
    /// `dup3(from, to, 0)`: open in the program.
    Copy { from: i32, to: i32 },
    /// `fcntl(fd, F_SETFD, 0)`: in its place already, shall survive exec.
    Keep(i32),
    /// `fcntl(fd, F_DUPFD_CLOEXEC, 3)`: to the saved word.
    Save(i32),
    /// `dup3(saved, to, 0)`.
    Restore(i32),
}

/// Why there is no plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// A number below zero.
    Negative(i32),
    /// Two requests for the same number in the program.
    Twice(i32),
}

/// The operations, in order, that fulfil all `moves`.
pub fn plan(moves: &[Move]) -> Result<Vec<FdOp>, Refusal> {
    check_moves(moves)?;
    let mut fd_ops = Vec::with_capacity(moves.len() + 1);
    let mut pending: Vec<Move> = Vec::with_capacity(moves.len());
    for &Move { from, to } in moves {
        match from == to {
            true => fd_ops.push(FdOp::Keep(to)),
            false => pending.push(Move { from, to }),
        }
    }
    // What is in its place already is read by nobody else in a way that could hurt: it is no target
    // of another move.
    while !pending.is_empty() {
        let free = |m: &Move| pending.iter().all(|other| other.from != m.to);
        match pending.iter().position(free) {
            Some(i) => {
                let Move { from, to } = pending.remove(i);
                fd_ops.push(FdOp::Copy { from, to });
            }
            None => break_cycle(&mut pending, &mut fd_ops),
        }
    }
    Ok(fd_ops)
}

fn check_moves(moves: &[Move]) -> Result<(), Refusal> {
    for (i, m) in moves.iter().enumerate() {
        if let Some(negative) = [m.from, m.to].into_iter().find(|&fd| fd < 0) {
            return Err(Refusal::Negative(negative));
        }
        if moves[..i].iter().any(|earlier| earlier.to == m.to) {
            return Err(Refusal::Twice(m.to));
        }
    }
    Ok(())
}

/// Every pending target is read by exactly one pending move: follow the cycle of the first one
/// backwards.
fn break_cycle(pending: &mut Vec<Move>, fd_ops: &mut Vec<FdOp>) {
    let first = pending.remove(0);
    fd_ops.push(FdOp::Save(first.to));
    fd_ops.push(FdOp::Copy { from: first.from, to: first.to });
    let mut freed = first.from;
    while let Some(i) = pending.iter().position(|m| m.to == freed) {
        let Move { from, to } = pending.remove(i);
        match from == first.to {
            true => fd_ops.push(FdOp::Restore(to)),
            false => fd_ops.push(FdOp::Copy { from, to }),
        }
        freed = from;
    }
}

/// The ranges of descriptors, first to last, that lie between those `kept`.
pub fn gaps(kept: &[i32]) -> Vec<(u32, u32)> {
    let mut kept: Vec<u32> = kept.iter().filter_map(|&fd| u32::try_from(fd).ok()).collect();
    kept.sort_unstable();
    kept.dedup();
    let mut gaps = Vec::with_capacity(kept.len() + 1);
    let mut next = 0u32;
    for fd in kept {
        if fd > next {
            gaps.push((next, fd - 1));
        }
        next = fd + 1;
    }
    gaps.push((next, u32::MAX));
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A table of descriptors that does what the kernel would do.
    fn perform(fd_ops: &[FdOp], mut table: BTreeMap<i32, i32>) -> BTreeMap<i32, i32> {
        let mut saved = -1;
        for &op in fd_ops {
            match op {
                FdOp::Copy { from, to } => drop(table.insert(to, table[&from])),
                FdOp::Keep(fd) => assert!(table.contains_key(&fd)),
                FdOp::Save(fd) => {
                    saved = (3..).find(|n| !table.contains_key(n)).unwrap();
                    table.insert(saved, table[&fd]);
                }
                FdOp::Restore(to) => drop(table.insert(to, table[&saved])),
            }
        }
        table
    }

    fn check(moves: &[Move]) {
        let before: BTreeMap<i32, i32> = (0..10).map(|fd| (fd, 100 + fd)).collect();
        let after = perform(&plan(moves).unwrap(), before.clone());
        for m in moves {
            assert_eq!(after[&m.to], before[&m.from], "{moves:?}");
        }
        for (fd, file) in before {
            if moves.iter().all(|m| m.to != fd) {
                assert_eq!(after[&fd], file, "{moves:?}: {fd} was not to change");
            }
        }
    }

    #[test]
    fn chains_exchanges_and_cycles_keep_every_file() {
        let moves = |list: &[(i32, i32)]| -> Vec<Move> {
            list.iter().map(|&(from, to)| Move { from, to }).collect()
        };
        for list in [
            &[(0, 1), (1, 2), (2, 3)][..],
            &[(1, 2), (2, 1)],
            &[(0, 1), (1, 2), (2, 0)],
            &[(0, 1), (1, 0), (2, 3), (3, 2), (3, 4), (0, 5)],
            &[(5, 0), (5, 1), (5, 2), (0, 5)],
            &[(7, 7), (7, 8), (8, 9)],
        ] {
            check(&moves(list));
        }
    }

    /// Every way to fill five places from six: 7776 requests.
    #[test]
    fn every_small_wish_is_fulfilled() {
        for code in 0..6i32.pow(5) {
            let from = |to: u32| code / 6i32.pow(to) % 6;
            let moves: Vec<Move> =
                (0..5).map(|to| Move { from: from(to), to: to as i32 }).collect();
            check(&moves);
        }
    }

    #[test]
    fn senseless_wishes_are_refused() {
        let twice = [Move { from: 1, to: 5 }, Move { from: 2, to: 5 }];
        assert_eq!(plan(&twice), Err(Refusal::Twice(5)));
        assert_eq!(plan(&[Move { from: -1, to: 5 }]), Err(Refusal::Negative(-1)));
        assert_eq!(plan(&[Move { from: 1, to: -7 }]), Err(Refusal::Negative(-7)));
    }

    #[test]
    fn gaps_are_what_is_not_kept() {
        assert_eq!(gaps(&[0, 1, 2]), [(3, u32::MAX)]);
        assert_eq!(gaps(&[2, 0, 7, 7, 1]), [(3, 6), (8, u32::MAX)]);
        assert_eq!(gaps(&[1]), [(0, 0), (2, u32::MAX)]);
        assert_eq!(gaps(&[]), [(0, u32::MAX)]);
    }
}
