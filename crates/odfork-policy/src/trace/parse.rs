//! From bytes to references, by hand: a simulator that waits for its parser measures the parser.

use std::collections::HashMap;
use std::fmt;

use super::numbering::Numbering;
use super::{Batch, Mark, Reference};
use crate::clock::Owner;

/// A line that is no reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Counted from 1.
    pub line: u64,
    /// What was found and what was expected.
    pub what: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// No line of a trace is longer; what is longer is no trace.
pub const LONGEST_LINE: usize = 4096;

/// Reads a trace piece by piece.
pub struct Parser {
    numbers: Numbering,
    processes: HashMap<Vec<u8>, Owner>,
    names: Vec<Vec<u8>>,
    /// The process named last: most lines repeat it.
    last: (Vec<u8>, Owner),
    line: u64,
}

impl Default for Parser {
    fn default() -> Parser {
        Parser::new()
    }
}

impl Parser {
    /// At line 1. Process 0 is that of references without one.
    pub fn new() -> Parser {
        Parser {
            numbers: Numbering::new(),
            processes: HashMap::from([(b"-".to_vec(), 0)]),
            names: vec![b"-".to_vec()],
            last: (b"-".to_vec(), 0),
            line: 0,
        }
    }

    /// Distinct pages so far.
    pub fn pages(&self) -> u32 {
        self.numbers.len()
    }

    /// Lines read so far.
    pub fn lines(&self) -> u64 {
        self.line
    }

    /// Reads all complete lines of `bytes` into `batch`; returns how many bytes that were.
    pub fn feed(&mut self, bytes: &[u8], batch: &mut Batch) -> Result<usize, Malformed> {
        let mut at = 0;
        while at < bytes.len() {
            match self.plain(&bytes[at..], batch) {
                Some(length) => at += length,
                None => match bytes[at..].iter().position(|&byte| byte == b'\n') {
                    Some(length) => {
                        self.line(&bytes[at..at + length], batch)?;
                        at += length + 1;
                    }
                    None => break,
                },
            }
        }
        if bytes.len() - at > LONGEST_LINE {
            self.line += 1;
            return Err(self.malformed(format!(
                "more than {LONGEST_LINE} bytes without an end; a page number per line is expected"
            )));
        }
        Ok(at)
    }

    /// Reads what is left at the end of the trace: a last line without its newline.
    pub fn finish(&mut self, bytes: &[u8], batch: &mut Batch) -> Result<(), Malformed> {
        let used = self.feed(bytes, batch)?;
        if used < bytes.len() {
            self.line(&bytes[used..], batch)
        } else {
            Ok(())
        }
    }

    /// The commonest lines, `NUMBER`, `NUMBER r` and `NUMBER w`, ended by a newline; returns their
    /// length with it.
    #[inline]
    fn plain(&mut self, bytes: &[u8], batch: &mut Batch) -> Option<usize> {
        let (page, digits) = number(bytes)?;
        let (write, length) = match *bytes.get(digits)? {
            b'\n' => (false, digits + 1),
            b' ' => match (*bytes.get(digits + 1)?, *bytes.get(digits + 2)?) {
                (b'r', b'\n') => (false, digits + 3),
                (b'w', b'\n') => (true, digits + 3),
                _ => return None,
            },
            _ => return None,
        };
        if self.numbers.is_full() {
            return None;
        }
        self.line += 1;
        self.refer(page, write, 0, batch);
        Some(length)
    }

    #[inline]
    fn refer(&mut self, page: u64, write: bool, owner: Owner, batch: &mut Batch) {
        let (number, new) = self.numbers.number(page, owner);
        if new {
            batch.new_pages.push(owner);
        }
        batch.references.push(Reference::new(number, write));
    }

    fn line(&mut self, line: &[u8], batch: &mut Batch) -> Result<(), Malformed> {
        self.line += 1;
        let mut words = line
            .split(|byte| matches!(byte, b' ' | b'\t' | b',' | b'\r'))
            .filter(|word| !word.is_empty());
        let Some(first) = words.next() else { return Ok(()) };
        if first[0] == b'#' {
            return self.remark(line, batch);
        }
        let (page, digits) = number(first).unwrap_or((0, 0));
        if digits == 0 || digits != first.len() {
            return Err(self.no_number(first));
        }
        let (mut write, mut owner) = (None, None);
        for word in words {
            match word {
                b"r" | b"R" if write.is_none() => write = Some(false),
                b"w" | b"W" if write.is_none() => write = Some(true),
                _ if owner.is_none() => owner = Some(self.owner(word)),
                _ => {
                    return Err(self.malformed(format!(
                        "'{}' is one column too many; expected: PAGE [r|w] [PROCESS]",
                        shown(word)
                    )))
                }
            }
        }
        if self.numbers.is_full() {
            return Err(self.malformed("more than 2147483647 distinct pages".to_owned()));
        }
        self.refer(page, write == Some(true), owner.unwrap_or(0), batch);
        Ok(())
    }

    fn remark(&mut self, line: &[u8], batch: &mut Batch) -> Result<(), Malformed> {
        let text = String::from_utf8_lossy(line).replace(['#', ','], " ");
        let words: Vec<&str> = text.split_whitespace().collect();
        let on = match words[..] {
            ["anomalous", _, "on"] => true,
            ["anomalous", _, "off"] => false,
            ["anomalous", ..] => {
                return Err(self.malformed(format!(
                    "'{}' should be '# anomalous PROCESS on' or '# anomalous PROCESS off'",
                    shown(line)
                )))
            }
            _ => return Ok(()),
        };
        let owner = self.owner(words[1].as_bytes());
        batch.marks.push(Mark { at: batch.references.len(), owner, on });
        Ok(())
    }

    fn owner(&mut self, name: &[u8]) -> Owner {
        if self.last.0 != name {
            let next = self.names.len() as Owner;
            let owner = *self.processes.entry(name.to_vec()).or_insert(next);
            if owner == next {
                self.names.push(name.to_vec());
            }
            self.last = (name.to_vec(), owner);
        }
        self.last.1
    }

    fn no_number(&self, word: &[u8]) -> Malformed {
        let tail = if word.iter().all(u8::is_ascii_digit) {
            "is too large for a page number"
        } else if word.starts_with(b"-") {
            "is negative; page numbers begin at 0"
        } else if word.iter().all(u8::is_ascii_hexdigit) {
            "is no decimal number; hexadecimal page numbers begin with 0x"
        } else {
            "is no page number (decimal, or hexadecimal after 0x)"
        };
        self.malformed(format!("'{}' {tail}", shown(word)))
    }

    fn malformed(&self, what: String) -> Malformed {
        Malformed { line: self.line, what }
    }
}

/// The number at the beginning and its length; `None` without one, or when it does not fit.
#[inline]
fn number(bytes: &[u8]) -> Option<(u64, usize)> {
    if bytes.len() > 2 && bytes[0] == b'0' && bytes[1] | 0x20 == b'x' {
        return hexadecimal(&bytes[2..]);
    }
    let mut value = 0u64;
    let mut length = 0;
    for &byte in bytes {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        // 19 digits always fit.
        value = if length < 19 {
            value * 10 + u64::from(digit)
        } else {
            value.checked_mul(10)?.checked_add(digit.into())?
        };
        length += 1;
    }
    (length > 0).then_some((value, length))
}

#[inline]
fn hexadecimal(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    let mut length = 0;
    for &byte in bytes {
        let Some(digit) = (byte as char).to_digit(16) else { break };
        if value >> 60 != 0 {
            return None;
        }
        value = value << 4 | u64::from(digit);
        length += 1;
    }
    (length > 0).then_some((value, length + 2))
}

/// A word fit for an error line.
fn shown(word: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(word).chars().take(40).collect();
    let text = text.escape_debug().to_string();
    if word.len() > 40 {
        format!("{text}...")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Batch, Malformed> {
        let mut batch = Batch::default();
        Parser::new().finish(text.as_bytes(), &mut batch)?;
        Ok(batch)
    }

    fn pages(text: &str) -> Vec<(u32, bool)> {
        let batch = read(text).unwrap();
        batch.references.iter().map(|r| (r.page(), r.is_write())).collect()
    }

    #[test]
    fn numbers_in_both_bases_name_the_same_page() {
        assert_eq!(
            pages("16\n0x10\n0X10 w\n 16,r\n\n# remark\n017\r\n17"),
            [(0, false), (0, false), (0, true), (0, false), (1, false), (1, false)]
        );
        assert_eq!(pages("18446744073709551615\n0xffffffffffffffff\n").len(), 2);
        assert_eq!(read("18446744073709551615\n0xFFFFFFFFFFFFFFFF\n").unwrap().new_pages, [0]);
    }

    #[test]
    fn processes_have_pages_of_their_own_and_columns_any_order() {
        let batch =
            read("1\n1 r a\n1 a w\n1\tb\n1 - w\n# anomalous a on\n2 a\n#anomalous b off").unwrap();
        assert_eq!(batch.new_pages, [0, 1, 2, 1]);
        let seen: Vec<u32> = batch.references.iter().map(|r| r.page()).collect();
        assert_eq!(seen, [0, 1, 1, 2, 0, 3]);
        let marks = [Mark { at: 5, owner: 1, on: true }, Mark { at: 6, owner: 2, on: false }];
        assert_eq!(batch.marks, marks);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let cases = [
            (
                "1\nabc\n",
                "line 2: 'abc' is no decimal number; hexadecimal page numbers begin with \
                 0x",
            ),
            ("1\n\nxyz\n", "line 3: 'xyz' is no page number (decimal, or hexadecimal after 0x)"),
            ("-1\n", "line 1: '-1' is negative; page numbers begin at 0"),
            (
                "18446744073709551616",
                "line 1: '18446744073709551616' is too large for a page \
                 number",
            ),
            ("0x", "line 1: '0x' is no page number (decimal, or hexadecimal after 0x)"),
            (
                "0x1ffffffffffffffff",
                "line 1: '0x1ffffffffffffffff' is no page number (decimal, or \
                 hexadecimal after 0x)",
            ),
            ("12x\n", "line 1: '12x' is no page number (decimal, or hexadecimal after 0x)"),
            ("1 r a b\n", "line 1: 'b' is one column too many; expected: PAGE [r|w] [PROCESS]"),
            (
                "# anomalous on\n",
                "line 1: '# anomalous on' should be '# anomalous PROCESS on' or \
                 '# anomalous PROCESS off'",
            ),
            (
                "\0\u{1}\n",
                "line 1: '\\0\\u{1}' is no page number (decimal, or hexadecimal after \
                 0x)",
            ),
        ];
        for (text, line) in cases {
            assert_eq!(read(text).unwrap_err().to_string(), line);
        }
        let endless = read(&"1".repeat(5000)).unwrap_err().to_string();
        assert!(endless.starts_with("line 1: more than 4096 bytes"), "{endless}");
    }

    #[test]
    fn pieces_of_any_size_give_the_same() {
        let text = "1\n2 w\n0x3 r p\n# anomalous p on\n44 q\n5\n1 w";
        let whole = read(text).unwrap();
        for size in 1..text.len() {
            let (mut parser, mut batch, mut rest) = (Parser::new(), Batch::default(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                rest.extend_from_slice(piece);
                let used = parser.feed(&rest, &mut batch).unwrap();
                rest.drain(..used);
            }
            parser.finish(&rest, &mut batch).unwrap();
            assert_eq!(batch, whole, "pieces of {size}");
        }
    }
}
