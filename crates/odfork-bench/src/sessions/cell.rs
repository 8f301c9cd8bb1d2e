//! One cell: so many sessions at once under one way of paging, from start to the end of the last script.
//!
//! Steps: 1. stage, 2. a script and a trivial command for each session, 3. wait (and take turns, where sessions are swapped
//! whole), 4. at the end of a script its trivial command ends, 5. the numbers.

use std::process::Command;
use std::time::{Duration, Instant};

use super::program::Report;
use super::stage::{bring_in, put_out, Site, Stage, Way, TURN};
use crate::link::{Link, Loss};
use crate::peers::group::Place;
use crate::peers::ledger::Shared;

/// The trivial command: how often, and in how much memory.
pub const PERIOD_MS: u64 = 100;
pub const TRIVIAL_BYTES: u64 = 1 << 20;
const LOOK: Duration = Duration::from_millis(10);
const FAREWELL: Duration = Duration::from_secs(20);

/// What a cell gave.
#[derive(Debug, Default)]
pub struct Outcome {
    /// (metric, unit, value)
    pub numbers: Vec<(&'static str, &'static str, f64)>,
    pub note: Option<String>,
    pub refused: Option<String>,
    pub wrong: Option<String>,
}

struct Session {
    script: Link,
    trivial: Link,
    report: Option<Report>,
    responses: Vec<u64>,
    finished: Option<Duration>,
}

impl Session {
    fn processes(&self) -> [u32; 2] {
        [self.script.pid(), self.trivial.pid()]
    }

    /// Nobody waits for a process that is stopped or slow.
    fn kill(&mut self) {
        self.script.kill();
        self.trivial.kill();
    }
}

/// Runs it; everything is put back when this returns.
pub fn run(
    way: Way,
    site: &Site,
    sessions: u64,
    (place, ledger): (&Result<Place, String>, &Shared),
) -> Outcome {
    let mut outcome = Outcome::default();
    match way.stage(site, place, ledger, sessions) {
        Ok(stage) => attempt(way, site, sessions, (&stage, &mut outcome)),
        Err(why) => outcome.refused = Some(why),
    }
    outcome
}

fn attempt(way: Way, site: &Site, count: u64, (stage, outcome): (&Stage, &mut Outcome)) {
    let mut sessions = Vec::new();
    let before = stage.page_ins(site);
    let begin = Instant::now();
    let mut ended = start(way, site, count, (stage, &mut sessions));
    if ended.is_ok() {
        ended = wait(way, site, &mut sessions, begin);
    }
    let cut = ended.as_ref().is_ok_and(|whole| !whole);
    let page_ins =
        stage.page_ins(site).zip(before).map(|(after, before)| after.saturating_sub(before));
    let killed = stage.group.as_ref().map_or(0, |group| group.kills());
    if ended.is_err() || cut || killed > 0 {
        sessions.iter_mut().for_each(Session::kill);
    }
    outcome.numbers.push(("killed", "count", killed as f64));
    let word = way.word();
    let wrong = sessions.iter().filter_map(|session| session.report.as_ref()?.wrong.clone()).next();
    outcome.wrong = wrong.map(|what| format!("{word}, {count} sessions: {what}"));
    match ended {
        _ if killed > 0 => {
            outcome.note = Some(format!(
                "{word}, {count} sessions: {killed} killed, no memory left in their group"
            ))
        }
        Err(why) => outcome.refused = Some(why),
        Ok(false) => {
            outcome.note = Some(format!(
                "{word}, {count} sessions: not done after {} s",
                site.patience.as_secs()
            ))
        }
        Ok(true) => outcome.numbers.extend(numbers(&sessions, page_ins)),
    }
}

fn start(
    way: Way,
    site: &Site,
    count: u64,
    (stage, sessions): (&Stage, &mut Vec<Session>),
) -> Result<bool, String> {
    let spawn = |mut command: Command| {
        if let Some(group) = &stage.group {
            group.enter(&mut command)?;
        }
        Link::spawn(&mut command).map_err(|error| format!("{error:#}"))
    };
    for seed in 0..count {
        let mut script = way.command(site);
        script.args(["--bytes", &site.bytes.to_string(), "--seed", &seed.to_string()]);
        let mut trivial = way.command(site);
        trivial.args(["--bytes", &TRIVIAL_BYTES.to_string(), "--trivial", &PERIOD_MS.to_string()]);
        let (script, trivial) = (spawn(script)?, spawn(trivial)?);
        sessions.push(Session {
            script,
            trivial,
            report: None,
            responses: Vec::new(),
            finished: None,
        });
    }
    Ok(true)
}

/// Until all scripts are done: true. Out of time: false.
fn wait(way: Way, site: &Site, sessions: &mut [Session], begin: Instant) -> Result<bool, String> {
    let mut turn = Turn::new(way == Way::Swapping && sessions.len() > 1, sessions);
    while sessions.iter().any(|session| session.finished.is_none()) {
        if begin.elapsed() > site.patience {
            return Ok(false);
        }
        for session in sessions.iter_mut().filter(|session| session.finished.is_none()) {
            // Those that are stopped say nothing; the first look waits, which is the pace of the loop.
            if let Some(line) = session.script.look(LOOK).map_err(said)? {
                session.report = Some(parse(&line)?);
                session.finished = Some(begin.elapsed());
                session.trivial.close_input();
                let line = session.trivial.receive(FAREWELL).map_err(said)?;
                let trivial = parse(&line)?;
                session.responses = trivial.responses;
                if let (Some(report), Some(wrong)) = (&mut session.report, trivial.wrong) {
                    report.wrong.get_or_insert(wrong);
                }
            }
        }
        turn.pass(sessions);
    }
    Ok(true)
}

fn said(loss: Loss) -> String {
    loss.to_string()
}

fn parse(line: &str) -> Result<Report, String> {
    serde_json::from_str(line).map_err(|_| format!("a session said {line:?} instead of its report"))
}

/// Whose turn it is, where sessions are swapped whole.
struct Turn {
    taken: bool,
    at: usize,
    since: Instant,
}

impl Turn {
    fn new(taken: bool, sessions: &[Session]) -> Turn {
        if taken {
            sessions.iter().skip(1).for_each(|session| put_out(&session.processes()));
        }
        Turn { taken, at: 0, since: Instant::now() }
    }

    fn pass(&mut self, sessions: &[Session]) {
        let done = sessions[self.at].finished.is_some();
        if !self.taken || (!done && self.since.elapsed() < TURN) {
            return;
        }
        let count = sessions.len();
        let next = (1..=count)
            .map(|step| (self.at + step) % count)
            .find(|&at| sessions[at].finished.is_none());
        let Some(next) = next else { return };
        if next != self.at {
            if !done {
                put_out(&sessions[self.at].processes());
            }
            bring_in(&sessions[next].processes());
            self.at = next;
        }
        self.since = Instant::now();
    }
}

fn numbers(sessions: &[Session], page_ins: Option<u64>) -> Vec<(&'static str, &'static str, f64)> {
    let finished: Vec<f64> =
        sessions.iter().filter_map(|session| Some(session.finished?.as_secs_f64())).collect();
    let last = finished.iter().copied().fold(0.0, f64::max);
    let reports = || sessions.iter().filter_map(|session| session.report.as_ref());
    let mut responses: Vec<u64> =
        sessions.iter().flat_map(|session| session.responses.clone()).collect();
    responses.sort_unstable();
    let sum = |of: fn(&Report) -> u64| reports().map(of).sum::<u64>() as f64;
    let mut numbers = vec![
        ("throughput", "1/s", sessions.len() as f64 / last.max(1e-9)),
        ("completion", "s", finished.iter().sum::<f64>() / finished.len().max(1) as f64),
        ("user", "s", sum(|report| report.user_ns) / 1e9),
        ("system", "s", sum(|report| report.system_ns) / 1e9),
        (
            "page-ins",
            "count",
            page_ins.map_or_else(|| sum(|report| report.major), |count| count as f64),
        ),
    ];
    if let Some(most) = responses.last() {
        numbers.push(("response-p50", "ns", quantile(&responses, 0.5)));
        numbers.push(("response-p99", "ns", quantile(&responses, 0.99)));
        numbers.push(("response-most", "ns", *most as f64));
    }
    numbers
}

/// Of sorted values, at least one.
fn quantile(sorted: &[u64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1] as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occurred() {
        let all: Vec<u64> = (1..=200).collect();
        assert_eq!(
            (quantile(&all, 0.5), quantile(&all, 0.99), quantile(&all, 1.0)),
            (100.0, 198.0, 200.0)
        );
        assert_eq!(quantile(&[7], 0.99), 7.0);
    }

    #[test]
    fn what_is_no_report_is_quoted() {
        assert!(parse("Killed").unwrap_err().contains("Killed"));
        let report = Report { responses: vec![5], ..Report::default() };
        assert_eq!(parse(&serde_json::to_string(&report).unwrap()).unwrap(), report);
    }
}
