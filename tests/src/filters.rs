//! Lists of system calls made into filters for the kernel.
//!
//! Owns: the grammar of the lists. Words are separated by blanks; a line that begins with # is a
//! comment. A word is `NAME`, `NAME=NUMBER` for calls that the C headers may not know, or
//! `NAME/ARGUMENT[&MASK]=VALUE` for calls with that argument only. Numbers of calls come from the C
//! headers, which the tests' compiler needs anyway.

use std::collections::BTreeMap;
use std::fs;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use crate::places::{Act, Filter};

const HEADERS: [&str; 2] =
    ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"];

/// Numbers of the system calls, by name.
pub struct Numbers(BTreeMap<String, i64>);

impl Numbers {
    /// Reads the C headers.
    pub fn read() -> Result<Numbers, String> {
        let text = HEADERS.iter().find_map(|path| fs::read_to_string(path).ok());
        let text = text.ok_or("no asm/unistd_64.h: install linux-libc-dev")?;
        Ok(Numbers::parse(&text))
    }

    fn parse(text: &str) -> Numbers {
        let of_line = |line: &str| {
            let mut words = line.strip_prefix("#define __NR_")?.split_whitespace();
            Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
        };
        Numbers(text.lines().filter_map(of_line).collect())
    }

    fn of(&self, name: &str) -> Result<i64, String> {
        self.0.get(name).copied().ok_or_else(|| format!("no system call is called '{name}'"))
    }
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// The filter as the kernel takes it.
pub fn compile(filter: &Filter, numbers: &Numbers) -> Result<BpfProgram, String> {
    let rules = rules(filter.calls, numbers)?;
    let arch = std::env::consts::ARCH.try_into().map_err(told)?;
    let made = SeccompFilter::new(rules, action(filter.others), action(filter.listed), arch);
    made.and_then(BpfProgram::try_from).map_err(told)
}

fn action(act: Act) -> SeccompAction {
    match act {
        Act::Allow => SeccompAction::Allow,
        Act::Errno(errno) => SeccompAction::Errno(errno as u32),
        Act::Kill => SeccompAction::KillProcess,
    }
}

fn rules(calls: &str, numbers: &Numbers) -> Result<Rules, String> {
    let mut rules = Rules::new();
    let lines = calls.lines().filter(|line| !line.starts_with('#'));
    for word in lines.flat_map(str::split_whitespace) {
        match word.split_once('/') {
            Some((name, test)) => {
                let rule = SeccompRule::new(vec![condition(test)?]).map_err(told)?;
                rules.entry(numbers.of(name)?).or_default().push(rule);
            }
            None => {
                let number = match word.split_once('=') {
                    Some((_, number)) => parse(number)? as i64,
                    None => numbers.of(word)?,
                };
                rules.insert(number, Vec::new());
            }
        }
    }
    Ok(rules)
}

/// `ARGUMENT[&MASK]=VALUE`
fn condition(test: &str) -> Result<SeccompCondition, String> {
    let (which, value) =
        test.split_once('=').ok_or_else(|| format!("'{test}' compares nothing"))?;
    let (argument, how) = match which.split_once('&') {
        Some((argument, mask)) => (argument, SeccompCmpOp::MaskedEq(parse(mask)?)),
        None => (which, SeccompCmpOp::Eq),
    };
    let argument = parse(argument)? as u8;
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, how, parse(value)?).map_err(told)
}

fn parse(number: &str) -> Result<u64, String> {
    let parsed = match number.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => number.parse(),
    };
    parsed.map_err(|_| format!("'{number}' is no number"))
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::PLACES;

    #[test]
    fn words_of_lists() {
        let numbers = Numbers::parse("#define __NR_read 0\n#define __NR_clone 56\n#endif\n");
        let parsed = rules("# read\nread new=700 clone/0&0x20=0 clone/1=0xff", &numbers);
        let counts: Vec<_> = parsed.unwrap().into_iter().map(|(n, list)| (n, list.len())).collect();
        assert_eq!(counts, [(0, 0), (56, 2), (700, 0)]);
        for wrong in ["write", "clone/0", "clone/x=1", "new=x"] {
            assert!(rules(wrong, &numbers).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_place_can_be_made() {
        let Ok(numbers) = Numbers::read() else { return };
        for place in &PLACES {
            for filter in place.filters {
                assert!(!compile(filter, &numbers).expect(place.name).is_empty());
            }
        }
    }
}
