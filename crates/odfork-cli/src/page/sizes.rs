//! Sizes of memory and policies as the command line gives them: `--frames 10,20,100..1000:100`,
//! `--policy fifo,clock:insert=0`.

use anyhow::{bail, ensure, Context, Result};
use odfork_policy::policy::{Spec, NAMES};

/// More sizes than this in one run are a slip, not a question.
const MOST: usize = 100_000;

/// Numbers and ranges, in the order given, each once.
pub fn frames<'a>(lists: impl Iterator<Item = &'a String>) -> Result<Vec<u32>> {
    let mut all: Vec<u32> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for part in lists.flat_map(|list| list.split(',')) {
        let (first, last, step) = range(part)?;
        ensure!(
            first > 0,
            "--frames cannot be '{part}': a memory of zero frames holds no page; give 1 or more"
        );
        ensure!(
            u64::from(last - first) / u64::from(step) < MOST as u64,
            "--frames cannot be '{part}': more than {MOST} sizes; give a larger step, as in \
             10..1000000:1000"
        );
        let sizes = (first..=last).step_by(step as usize);
        all.extend(sizes.filter(|&frames| seen.insert(frames)));
    }
    Ok(all)
}

/// `N`, `N..M` or `N..M:STEP`.
fn range(part: &str) -> Result<(u32, u32, u32)> {
    let number = |text: &str| -> Result<u32> {
        match text.trim().parse::<u32>() {
            Ok(number) if number < u32::MAX => Ok(number),
            _ => bail!(
                "--frames cannot be '{part}': it should be a number below 4294967295, or a range \
                 as 10..1000:10"
            ),
        }
    };
    let Some((first, rest)) = part.split_once("..") else {
        let frames = number(part)?;
        return Ok((frames, frames, 1));
    };
    let (last, step) = rest.split_once(':').unwrap_or((rest, "1"));
    let (first, last, step) = (number(first)?, number(last)?, number(step)?);
    ensure!(first <= last, "--frames cannot be '{part}': the range ends before it begins");
    ensure!(step > 0, "--frames cannot be '{part}': the step must be above 0");
    Ok((first, last, step))
}

/// Policies with the text they were asked by. Commas separate policies and options alike: what
/// begins with a policy's name is a policy.
pub fn policies<'a>(lists: impl Iterator<Item = &'a String>) -> Result<Vec<(String, Spec)>> {
    let mut texts: Vec<String> = Vec::new();
    for list in lists {
        let mut fresh = true;
        for part in list.split(',') {
            let name = part.split(':').next().unwrap_or(part);
            match texts.last_mut() {
                Some(last) if !fresh && !NAMES.contains(&name) && part.contains('=') => {
                    last.push(',');
                    last.push_str(part);
                }
                _ => texts.push(part.to_owned()),
            }
            fresh = false;
        }
    }
    let spec = |text: String| {
        let spec = text.parse().with_context(|| format!("--policy {text}"))?;
        Ok((text, spec))
    };
    texts.into_iter().map(spec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str) -> Result<Vec<u32>> {
        frames([text.to_owned()].iter())
    }

    #[test]
    fn numbers_and_ranges() {
        assert_eq!(sizes("5,1,5").unwrap(), [5, 1]);
        assert_eq!(sizes("1..3,10..30:10,7").unwrap(), [1, 2, 3, 10, 20, 30, 7]);
    }

    #[test]
    fn nonsense_is_named() {
        for (text, part) in [
            ("0", "zero frames"),
            ("0..4", "zero frames"),
            ("x", "cannot be 'x'"),
            ("", "cannot be ''"),
            ("-3", "cannot be '-3'"),
            ("4294967295", "below 4294967295"),
            ("9..3", "ends before"),
            ("1..9:0", "step"),
            ("1..4000000000", "larger step"),
        ] {
            let line = sizes(text).unwrap_err().to_string();
            assert!(line.contains(part), "{line}");
        }
    }

    #[test]
    fn commas_part_policies_and_options() {
        let given = ["fifo,unix:order=0.5,advice=0,lru".to_owned(), "min".to_owned()];
        let texts: Vec<String> =
            policies(given.iter()).unwrap().into_iter().map(|(text, _)| text).collect();
        assert_eq!(texts, ["fifo", "unix:order=0.5,advice=0", "lru", "min"]);
        let wrong = policies(["fifo,lfu".to_owned()].iter()).unwrap_err();
        assert!(
            format!("{wrong:#}").starts_with("--policy lfu: unknown policy 'lfu'"),
            "{wrong:#}"
        );
    }
}
