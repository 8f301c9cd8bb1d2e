//! Statistics as text, into fixed buffers: JSON, and for people.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::page::{bucket_end, Stats};
use crate::reason::Reason;

/// Text of fixed size; what does not fit is cut, never written past the end.
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Text<N> {
    /// Empty.
    pub const fn new() -> Self {
        Text { bytes: [0; N], len: 0 }
    }

    /// What was written.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl<const N: usize> Write for Text<N> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let n = s.len().min(N - self.len);
        self.bytes[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}

/// What a report says besides the counters.
pub struct Context<'a> {
    /// The process.
    pub pid: i32,
    /// Its name; quotes, backslashes and control characters are left out.
    pub program: &'a str,
    /// System calls of the freeze path so far, by which failures are injected.
    pub calls: u32,
    /// Of these, calls that were made to fail (`ODFORK_FAULT`).
    pub injected: u32,
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// One JSON object, schema 1.
pub fn write_json(w: &mut dyn Write, s: &Stats, c: &Context) -> fmt::Result {
    let g = |a: &AtomicU64| a.load(Relaxed);
    write!(w, "{{\"schema\":1,\"pid\":{},\"program\":\"", c.pid)?;
    for ch in c.program.chars().filter(|c| !c.is_control() && *c != '"' && *c != '\\') {
        w.write_char(ch)?;
    }
    write!(w, "\",\"engine\":\"{}\",\"reason\":\"{}\",", s.engine_word(), why(s))?;
    write_passes(w, s)?;
    let min = if g(&s.forks) == 0 { 0 } else { g(&s.fork_min_ns) };
    write!(
        w,
        "\"fork\":{{\"count\":{},\"failed\":{},\"min_us\":{:.1},\"p50_us\":{:.1},\
         \"p90_us\":{:.1},\"p99_us\":{:.1},\"max_us\":{:.1},\"histogram\":[",
        g(&s.forks),
        g(&s.forks_failed),
        us(min),
        us(s.percentile(500)),
        us(s.percentile(900)),
        us(s.percentile(990)),
        us(g(&s.fork_max_ns))
    )?;
    let forks = s.histogram.iter().enumerate();
    write_buckets(w, forks.map(|(i, n)| (bucket_end(i), u64::from(n.load(Relaxed)))))?;
    write!(
        w,
        "]}},\"stall\":{{\"count\":{},\"us\":{},\
         \"p50_us\":{:.1},\"p99_us\":{:.1},\"max_us\":{:.1},\"histogram\":[",
        g(&s.stalls),
        g(&s.stall_ns) / 1000,
        us(s.stall_percentile(500)),
        us(s.stall_percentile(990)),
        us(g(&s.stall_max_ns))
    )?;
    write_buckets(w, s.stall_octaves())?;
    write!(
        w,
        "]}},\"account\":{{\"paid_us\":{},\"price_us\":{}}},\"dirty_pages\":{},\
         \"image_bytes\":{},\"frozen_bytes\":{},\
         \"live\":{{\"bytes\":{},\"switches\":{},\"us\":{}}},\"fallbacks\":[",
        g(&s.paid_ns) / 1000,
        g(&s.price_ns) / 1000,
        g(&s.dirty_pages),
        g(&s.image_bytes),
        g(&s.frozen_bytes),
        g(&s.live_bytes),
        g(&s.switches),
        g(&s.switch_ns) / 1000
    )?;
    write_fallbacks(w, s)?;
    writeln!(w, "],\"faults_injected\":{},\"calls\":{}}}", c.injected, c.calls)
}

/// Members of a histogram: those that count something.
fn write_buckets(w: &mut dyn Write, buckets: impl Iterator<Item = (u64, u64)>) -> fmt::Result {
    let mut comma = "";
    for (end, count) in buckets.filter(|(_, count)| *count > 0) {
        write!(w, "{comma}{{\"le_us\":{:.1},\"count\":{count}}}", us(end))?;
        comma = ",";
    }
    Ok(())
}

/// Members about what passes and thaws moved.
fn write_passes(w: &mut dyn Write, s: &Stats) -> fmt::Result {
    let g = |a: &AtomicU64| a.load(Relaxed);
    write!(
        w,
        "\"freeze\":{{\"count\":{},\"us\":{},\"bytes\":{}}},",
        g(&s.freezes),
        g(&s.freeze_ns) / 1000,
        g(&s.freeze_bytes)
    )?;
    write!(
        w,
        "\"fold\":{{\"in_place\":{},\"rebuilt\":{},\"us\":{},\"bytes\":{}}},\
         \"thaw\":{{\"count\":{},\"bytes\":{}}},",
        g(&s.folds_in_place),
        g(&s.folds_rebuilt),
        g(&s.fold_ns) / 1000,
        g(&s.fold_bytes),
        g(&s.thaws),
        g(&s.thaw_bytes)
    )
}

/// Members of the list of reasons for plain fork.
fn write_fallbacks(w: &mut dyn Write, s: &Stats) -> fmt::Result {
    let mut comma = "";
    for (r, n) in Reason::ALL.iter().zip(&s.fallbacks) {
        let n = n.load(Relaxed);
        if n > 0 && tells(s, *r) {
            let errno = s.errnos[*r as usize].load(Relaxed);
            write!(
                w,
                "{comma}{{\"reason\":\"{}\",\"detail\":\"{}\",\"errno\":{errno},\"count\":{n}}}",
                r.word(),
                r.explain()
            )?;
            comma = ",";
        }
    }
    Ok(())
}

/// Having found nothing to do is no fallback once something was done.
pub(crate) fn tells(s: &Stats, r: Reason) -> bool {
    r != Reason::NotWorth || s.freezes.load(Relaxed) == 0
}

pub(crate) fn why(s: &Stats) -> &'static str {
    match (s.engine.load(Relaxed), s.reason()) {
        (2, _) => "memory is in a backing file of huge pages",
        (1, _) => "memory is in a backing file of 4 KB pages",
        (_, Reason::None) if s.thaws.load(Relaxed) > 0 => "what was frozen was thawed again",
        (_, Reason::None) => "nothing was frozen yet: no freeze was due, or none was worth it",
        (_, r) => r.explain(),
    }
}

/// What mode `auto` is waiting for.
fn write_account(w: &mut dyn Write, s: &Stats) -> fmt::Result {
    let (paid, price) = (s.paid_ns.load(Relaxed) as f64 / 1e6, s.price_ns.load(Relaxed));
    match price {
        0 if paid == 0.0 => Ok(()),
        0 => writeln!(
            w,
            "odfork:   forks have cost {paid:.1} ms since the last pass; too little for a look"
        ),
        _ => {
            let price = price as f64 / 1e6;
            writeln!(
                w,
                "odfork:   forks have cost {paid:.1} ms of the {price:.1} ms a freeze costs"
            )
        }
    }
}

/// The same for people.
pub fn write_text(w: &mut dyn Write, s: &Stats, c: &Context) -> fmt::Result {
    let g = |a: &AtomicU64| a.load(Relaxed);
    let mb = |a: &AtomicU64| g(a) as f64 / 1048576.0;
    writeln!(w, "odfork: {} (pid {}): engine {}: {}", c.program, c.pid, s.engine_word(), why(s))?;
    writeln!(
        w,
        "odfork:   forks {} (failed {}): p50 {:.1} us, p99 {:.1} us, max {:.1} us",
        g(&s.forks),
        g(&s.forks_failed),
        us(s.percentile(500)),
        us(s.percentile(990)),
        us(g(&s.fork_max_ns))
    )?;
    writeln!(
        w,
        "odfork:   stalls {} by odfork: p50 {:.1} us, p99 {:.1} us, max {:.1} us, {:.1} ms in all",
        g(&s.stalls),
        us(s.stall_percentile(500)),
        us(s.stall_percentile(990)),
        us(g(&s.stall_max_ns)),
        g(&s.stall_ns) as f64 / 1e6
    )?;
    write_account(w, s)?;
    writeln!(
        w,
        "odfork:   freezes {}: {:.1} MB in {:.1} ms; refreezes {} in place, {} rebuilt: {:.1} MB \
         in {:.1} ms; thaws {}: {:.1} MB",
        g(&s.freezes),
        mb(&s.freeze_bytes),
        g(&s.freeze_ns) as f64 / 1e6,
        g(&s.folds_in_place),
        g(&s.folds_rebuilt),
        mb(&s.fold_bytes),
        g(&s.fold_ns) as f64 / 1e6,
        g(&s.thaws),
        mb(&s.thaw_bytes)
    )?;
    writeln!(
        w,
        "odfork:   backing files {:.1} MB, frozen {:.1} MB, dirty at the last scan {} pages",
        mb(&s.image_bytes),
        mb(&s.frozen_bytes),
        g(&s.dirty_pages)
    )?;
    if g(&s.switches) > 0 {
        writeln!(
            w,
            "odfork:   live {:.1} MB, switches {} in {:.1} ms",
            mb(&s.live_bytes),
            g(&s.switches),
            g(&s.switch_ns) as f64 / 1e6
        )?;
    }
    for (r, n) in Reason::ALL.iter().zip(&s.fallbacks) {
        if g(n) > 0 && tells(s, *r) {
            writeln!(w, "odfork:   plain {} times: {}: {}", g(n), r.word(), r.explain())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names in front of a colon.
    fn members(json: &str) -> std::collections::BTreeSet<String> {
        let quoted: Vec<&str> = json.split('"').collect();
        let names = quoted.windows(2).skip(1).step_by(2).filter(|w| w[1].starts_with(':'));
        names.map(|w| w[0].to_owned()).collect()
    }

    #[test]
    fn words_are_those_documented() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/statistics.md");
        let Ok(page) = std::fs::read_to_string(page) else {
            return eprintln!("SKIP: no docs/statistics.md beside this crate");
        };
        let stats = Box::new(Stats::new());
        stats.count_fork(5000);
        stats.count_stall(5000);
        stats.count_stop(Reason::Threads, 11);
        let mut text = Text::<16384>::new();
        write_json(&mut text, &stats, &Context { pid: 1, program: "p", calls: 0, injected: 0 })
            .unwrap();
        let json = core::str::from_utf8(text.bytes()).unwrap();
        let from = page.find("## Words of the JSON object").unwrap();
        let to = from + page[from..].find("## Who reports").unwrap();
        let words = page[from..to].split('`').skip(1).step_by(2);
        let no_members = ["plain", "small", "huge"];
        let documented = words.filter(|w| !no_members.contains(w)).map(str::to_owned);
        assert_eq!(members(json), documented.collect());
    }

    #[test]
    fn a_full_buffer_is_cut() {
        let mut t = Text::<8>::new();
        let _ = write!(t, "123456789");
        assert_eq!(t.bytes(), b"12345678");
    }
}
