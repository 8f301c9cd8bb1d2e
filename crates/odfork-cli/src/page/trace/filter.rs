//! From accesses as lackey writes them (`I  04001000,3`, ` L 1ffeffe7e,8`, ` S`, ` M`) to page
//! references.

use std::collections::HashSet;

use super::sink::Sink;

/// Makes lines of a trace out of lines of the log.
pub struct Filter {
    shift: u32,
    window: usize,
    data_only: bool,
    process: Option<String>,
    /// Pages referenced last, newest at the end, and whether their write is in the trace.
    recent: Vec<(u64, bool)>,
    known: HashSet<u64>,
    pub accesses: u64,
    pub written: u64,
}

impl Filter {
    pub fn new(shift: u32, window: usize, data_only: bool, process: Option<&str>) -> Filter {
        let process = process.map(str::to_owned);
        let (recent, known) = (Vec::new(), HashSet::new());
        Filter { shift, window, data_only, process, recent, known, accesses: 0, written: 0 }
    }

    /// Distinct pages.
    pub fn pages(&self) -> usize {
        self.known.len()
    }

    /// Anything that is neither an access nor a mark is somebody's remark and is skipped.
    pub fn line(&mut self, line: &[u8], sink: &mut Sink) {
        let write = match line {
            [b'I', b' ', b' ', ..] if self.data_only => return,
            [b'I', b' ', b' ', ..] | [b' ', b'L', b' ', ..] => false,
            [b' ', b'S' | b'M', b' ', ..] => true,
            [b'#', ..] => return self.mark(line, sink),
            _ => return,
        };
        let Some((address, size)) = access(&line[3..]) else { return };
        self.accesses += 1;
        let first = address >> self.shift;
        let last = address.saturating_add(size.max(1) - 1) >> self.shift;
        for page in first..=last.min(first + 1) {
            self.refer(page, write, sink);
        }
    }

    fn refer(&mut self, page: u64, write: bool, sink: &mut Sink) {
        let place = self.recent.iter().rposition(|&(known, _)| known == page);
        let was_written = place.is_some_and(|at| self.recent[at].1);
        let left_out = place.is_some() && (was_written || !write);
        if let Some(at) = place {
            self.recent.remove(at);
        } else if self.recent.len() == self.window {
            self.recent.remove(0);
        }
        self.recent.push((page, was_written || write));
        if left_out {
            return;
        }
        self.known.insert(page);
        self.written += 1;
        let mode = if write { 'w' } else { 'r' };
        match &self.process {
            None => sink.line(format_args!("{page:#x} {mode}\n")),
            Some(name) => sink.line(format_args!("{page:#x} {mode} {name}\n")),
        }
    }

    fn mark(&mut self, line: &[u8], sink: &mut Sink) {
        let text = String::from_utf8_lossy(line);
        let mut words = text.trim_start_matches('#').split_whitespace();
        if words.next() != Some("anomalous") {
            return;
        }
        if let Some(word @ ("on" | "off")) = words.last() {
            sink.line(format_args!(
                "# anomalous {} {word}\n",
                self.process.as_deref().unwrap_or("-")
            ));
        }
    }
}

/// `04001000,3`: address in hexadecimal and size.
fn access(text: &[u8]) -> Option<(u64, u64)> {
    let comma = text.iter().position(|&byte| byte == b',')?;
    let mut address = 0u64;
    for &byte in &text[..comma] {
        address = address.checked_mul(16)? | u64::from((byte as char).to_digit(16)?);
    }
    let size = std::str::from_utf8(&text[comma + 1..]).ok()?.trim().parse().ok()?;
    Some((address, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(filter: &mut Filter, log: &str) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut sink = Sink::create(file.path()).unwrap();
        log.lines().for_each(|line| filter.line(line.as_bytes(), &mut sink));
        sink.finish().unwrap();
        std::fs::read_to_string(file.path()).unwrap()
    }

    const LOG: &str = "==1== Lackey\nI  04001000,3\n L 1ffeffe7e,8\n S 1ffeffe7e,8\n M \
                       1ffeffe80,8\nI  04001003,3\n L 04001ffe,4\nnonsense\n# anomalous on\n S \
                       zz,1\n L 04001000,8\n";

    #[test]
    fn runs_become_one_reference_and_a_first_write_is_kept() {
        let text = made(&mut Filter::new(12, 1, false, None), LOG);
        let expected =
            "0x4001 r\n0x1ffeff r\n0x1ffeff w\n0x4001 r\n0x4002 r\n# anomalous - on\n0x4001 r\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_window_leaves_out_what_was_referenced_lately() {
        let mut filter = Filter::new(12, 2, false, Some("p"));
        let text = made(&mut filter, LOG);
        let expected = "0x4001 r p\n0x1ffeff r p\n0x1ffeff w p\n0x4002 r p\n# anomalous p on\n";
        assert_eq!(text, expected);
        assert_eq!((filter.accesses, filter.written, filter.pages()), (7, 4, 3));
    }

    #[test]
    fn data_alone() {
        let text = made(
            &mut Filter::new(12, 1, true, None),
            "I  1000,4\n L 2000,4\nI  3000,4\n L 2008,4\n",
        );
        assert_eq!(text, "0x2 r\n");
    }
}
