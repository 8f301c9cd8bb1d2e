//! What the workload can be asked, by name.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Fill,
    SeqRead,
    SeqWrite,
    /// As `Zipf`, before it: what is then resident is what Zipf's law keeps there.
    Warm,
    Zipf,
    Phase,
    Threads(u32),
    Settle,
    Reclaim,
    Continue,
}

const NAMES: [(Op, &str); 9] = [
    (Op::Fill, "fill"),
    (Op::SeqRead, "seq-read"),
    (Op::SeqWrite, "seq-write"),
    (Op::Warm, "warm"),
    (Op::Zipf, "zipf"),
    (Op::Phase, "phase"),
    (Op::Settle, "settle"),
    (Op::Reclaim, "reclaim"),
    (Op::Continue, "continue"),
];

impl Op {
    pub fn word(self) -> String {
        let name = NAMES.iter().find(|(op, _)| *op == self).map(|(_, name)| (*name).to_string());
        match self {
            Op::Threads(count) => format!("threads-{count}"),
            _ => name.unwrap_or_default(),
        }
    }

    pub fn from_word(word: &str) -> Option<Op> {
        let threads = || {
            let count = word.strip_prefix("threads-")?.parse().ok();
            count.filter(|count| (1..=64).contains(count)).map(Op::Threads)
        };
        NAMES.iter().find(|(_, name)| *name == word).map(|(op, _)| *op).or_else(threads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_op_has_a_word_and_the_word_is_its_own() {
        for op in [Op::Fill, Op::SeqRead, Op::SeqWrite, Op::Zipf, Op::Phase, Op::Threads(8)] {
            assert_eq!(Op::from_word(&op.word()), Some(op));
        }
        for none in ["", "threads-0", "threads-65", "threads-x", "fills"] {
            assert_eq!(Op::from_word(none), None, "{none}");
        }
    }
}
