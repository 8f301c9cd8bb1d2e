//! What is done once at a point: so many sessions at once in one mode of paging, from start to the
//! end of the last script.
//!
//! Steps: 1. environment, 2. a script and a trivial command for each session, 3. wait (and take
//! turns, where sessions are swapped whole), 4. at the end of a script its trivial command ends,
//! 5. the numbers.

use std::process::Command;
use std::time::{Duration, Instant};

use super::mode::{swap_in, swap_out, Environment, Mode, Settings, TURN};
use super::program::Report;
use crate::link::{Link, Loss};
use crate::runner::{Number, Outcome, Reply};

/// The trivial command: how often, and in how much memory.
const PERIOD_MS: u64 = 100;
const TRIVIAL_BYTES: u64 = 1 << 20;
const POLL: Duration = Duration::from_millis(10);
const END_TIMEOUT: Duration = Duration::from_secs(20);

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

    fn kill(&mut self) {
        self.script.kill();
        self.trivial.kill();
    }

    /// The script has reported: its trivial command ends, too.
    fn finish(&mut self, line: &str, time: Duration) -> Result<(), String> {
        let mut report = parse(line)?;
        self.finished = Some(time);
        self.trivial.close_input();
        let trivial = parse(&self.trivial.receive(END_TIMEOUT).map_err(words)?)?;
        self.responses = trivial.responses;
        report.wrong = report.wrong.or(trivial.wrong);
        self.report = Some(report);
        Ok(())
    }
}

#[derive(Clone, Copy)]
pub struct Op {
    pub mode: Mode,
    pub sessions: u64,
}

impl Op {
    /// Runs it in its environment.
    pub fn run(self, settings: &Settings, environment: &Environment) -> Reply {
        let mut sessions = Vec::new();
        let before = environment.page_ins_before(settings);
        let begin = Instant::now();
        let started = self.start(settings, environment, &mut sessions);
        let ended = started.and_then(|()| self.wait(settings, &mut sessions, begin));
        let is_done = matches!(ended, Ok(true));
        let after = if is_done { environment.page_ins(settings) } else { None };
        let page_ins = after.zip(before);
        let page_ins = page_ins.map(|(after, before)| after.saturating_sub(before));
        let killed = environment.group.as_ref().map_or(0, |group| group.kills());
        let mut reply = Reply::numbers(vec![Number::new("killed", "count", killed as f64)]);
        if is_done && killed == 0 {
            reply.numbers.extend(numbers(&sessions, page_ins));
        } else {
            // Nobody waits for a process that is stopped or slow.
            sessions.iter_mut().for_each(Session::kill);
        }
        let place = format!("{}, {} sessions", self.mode.word(), self.sessions);
        match ended {
            _ if killed > 0 => {
                reply
                    .notes
                    .push(format!("{place}: {killed} killed, no memory left in their group"));
            }
            Ok(true) => {}
            Ok(false) => {
                let seconds = settings.timeout.as_secs();
                reply.notes.push(format!("{place}: not done after {seconds} s"));
            }
            Err(why) => reply.outcome = Outcome::Refused(why),
        }
        let mut reports = sessions.iter().filter_map(|session| session.report.as_ref());
        if let Some(what) = reports.find_map(|report| report.wrong.clone()) {
            reply.outcome = Outcome::Wrong(format!("{} sessions: {what}", self.sessions));
        }
        reply
    }

    fn start(
        self,
        settings: &Settings,
        environment: &Environment,
        sessions: &mut Vec<Session>,
    ) -> Result<(), String> {
        let spawn = |mut command: Command| {
            if let Some(group) = &environment.group {
                group.enter(&mut command)?;
            }
            Link::spawn(&mut command).map_err(|error| format!("{error:#}"))
        };
        for seed in 0..self.sessions {
            let mut script = self.mode.command(settings);
            script.args(["--bytes", &settings.bytes.to_string(), "--seed", &seed.to_string()]);
            let mut trivial = self.mode.command(settings);
            trivial.args(["--bytes", &TRIVIAL_BYTES.to_string()]);
            trivial.args(["--trivial", &PERIOD_MS.to_string()]);
            let (script, trivial) = (spawn(script)?, spawn(trivial)?);
            let (report, responses, finished) = (None, Vec::new(), None);
            sessions.push(Session { script, trivial, report, responses, finished });
        }
        Ok(())
    }

    /// Until all scripts are done: true. Out of time: false.
    fn wait(
        self,
        settings: &Settings,
        sessions: &mut [Session],
        begin: Instant,
    ) -> Result<bool, String> {
        let mut turn = Turn::new(self.mode == Mode::Swapping && sessions.len() > 1, sessions);
        while sessions.iter().any(|session| session.finished.is_none()) {
            if begin.elapsed() > settings.timeout {
                return Ok(false);
            }
            for session in sessions.iter_mut().filter(|session| session.finished.is_none()) {
                // Those that are stopped say nothing; the wait here is the pace of the loop.
                if let Some(line) = session.script.look(POLL).map_err(words)? {
                    session.finish(&line, begin.elapsed())?;
                }
            }
            turn.pass(sessions);
        }
        Ok(true)
    }
}

fn words(loss: Loss) -> String {
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
            sessions.iter().skip(1).for_each(|session| swap_out(&session.processes()));
        }
        Turn { taken, at: 0, since: Instant::now() }
    }

    fn pass(&mut self, sessions: &[Session]) {
        let done = sessions[self.at].finished.is_some();
        if !self.taken || (!done && self.since.elapsed() < TURN) {
            return;
        }
        let count = sessions.len();
        let mut others = (1..=count).map(|step| (self.at + step) % count);
        let Some(next) = others.find(|&at| sessions[at].finished.is_none()) else { return };
        if next != self.at {
            if !done {
                swap_out(&sessions[self.at].processes());
            }
            swap_in(&sessions[next].processes());
            self.at = next;
        }
        self.since = Instant::now();
    }
}

fn numbers(sessions: &[Session], page_ins: Option<u64>) -> Vec<Number> {
    let finished = sessions.iter().filter_map(|session| Some(session.finished?.as_secs_f64()));
    let finished: Vec<f64> = finished.collect();
    let last = finished.iter().copied().fold(0.0, f64::max);
    let sum = |of: fn(&Report) -> u64| {
        sessions.iter().filter_map(|session| session.report.as_ref()).map(of).sum::<u64>()
    };
    let page_ins = page_ins.unwrap_or_else(|| sum(|report| report.major));
    let mut numbers = vec![
        ("throughput", "1/s", sessions.len() as f64 / last.max(1e-9)),
        ("completion", "s", finished.iter().sum::<f64>() / finished.len().max(1) as f64),
        ("user", "s", sum(|report| report.user_ns) as f64 / 1e9),
        ("system", "s", sum(|report| report.system_ns) as f64 / 1e9),
        ("page-ins", "count", page_ins as f64),
    ];
    let mut responses: Vec<u64> =
        sessions.iter().flat_map(|session| session.responses.clone()).collect();
    responses.sort_unstable();
    if !responses.is_empty() {
        for (metric, share) in
            [("response-p50", 0.5), ("response-p99", 0.99), ("response-most", 1.0)]
        {
            numbers.push((metric, "ns", quantile(&responses, share)));
        }
    }
    let made = numbers.into_iter().map(|(metric, unit, value)| Number::new(metric, unit, value));
    made.collect()
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
