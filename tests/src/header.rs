//! The comment at the top of a test program that says how it wants to be run.
//!
//! Owns: the grammar of `// odtest: key=value ...` lines. Does not own their effect. Every line of
//! that form in the first ten lines of a file counts; an unknown key is an error, never ignored.
//!
//! | key | meaning | default |
//! | --- | --- | --- |
//! | `modes` | comma list of stock, huge, small, auto, user, live, slices | all but auto, live and slices |
//! | `expect` | frozen, froze, fold, shared, any, `plain:REASON` | frozen |
//! | `huge`, `small`, `auto`, `user`, `live`, `slices` | the expectation of that mode alone | `expect`; auto, slices: any; live: that of huge |
//! | `live=no`, `slices=no` | not run by `ODTEST_MODES=live`, `slices` | run where huge is |
//! | `timeout` | seconds until the whole process group is killed | 60 |
//! | `mem` | MB of available memory the program wants | 300 |
//! | `needs` | comma list of probes, see `machine` | none |
//! | `serial` | yes: nothing else runs meanwhile (system-wide counters) | no |
//! | `output` | same: bytes equal to stock's; any: not compared | same |
//! | `exit` | the exit status that means success | 0 |
//! | `link`, `cflags`, `args` | comma lists for the linker, the compiler, the program | none |

use crate::mode::Mode;

/// What the statistics of a run must show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// At least one freeze, and no fallback of any kind.
    Frozen,
    /// At least one freeze; fallbacks at other times are part of the story.
    Froze,
    /// As `Frozen`, and at least one fold.
    Fold,
    /// As `Froze`, and memory was live.
    Shared,
    /// No freeze, and this fallback reason.
    Plain(String),
    /// Nothing about the statistics.
    Any,
}

impl Expect {
    fn parse(word: &str) -> Result<Expect, String> {
        match word.split_once(':') {
            None if word == "frozen" => Ok(Expect::Frozen),
            None if word == "froze" => Ok(Expect::Froze),
            None if word == "fold" => Ok(Expect::Fold),
            None if word == "shared" => Ok(Expect::Shared),
            None if word == "any" => Ok(Expect::Any),
            Some(("plain", reason)) if !reason.is_empty() => Ok(Expect::Plain(reason.into())),
            _ => Err(format!(
                "expectation '{word}' is not frozen, froze, fold, shared, any or plain:REASON"
            )),
        }
    }
}

/// Everything a program says about itself.
#[derive(Clone, Debug)]
pub struct Header {
    pub modes: Vec<Mode>,
    pub expect: Expect,
    pub expect_in: Vec<(Mode, Expect)>,
    /// Counts what mode live does twice, or says what a freeze between two lines changes.
    pub not_live: bool,
    pub not_slices: bool,
    pub timeout: u64,
    pub mem: u64,
    pub needs: Vec<String>,
    pub serial: bool,
    pub same_output: bool,
    pub exit: i32,
    pub link: Vec<String>,
    pub cflags: Vec<String>,
    pub args: Vec<String>,
}

impl Default for Header {
    fn default() -> Header {
        Header {
            modes: Mode::DEFAULT.to_vec(),
            expect: Expect::Frozen,
            expect_in: Vec::new(),
            not_live: false,
            not_slices: false,
            timeout: 60,
            mem: 300,
            needs: Vec::new(),
            serial: false,
            same_output: true,
            exit: 0,
            link: Vec::new(),
            cflags: Vec::new(),
            args: Vec::new(),
        }
    }
}

impl Header {
    /// Reads the header of a program's source text.
    pub fn parse(source: &str) -> Result<Header, String> {
        let mut header = Header::default();
        for line in source.lines().take(10) {
            if let Some(rest) = line.trim().strip_prefix("// odtest:") {
                for word in rest.split_whitespace() {
                    header.take(word)?;
                }
            }
        }
        Ok(header)
    }

    /// What must be seen in `mode`.
    pub fn expect_in(&self, mode: Mode) -> Expect {
        match self.expect_in.iter().find(|(m, _)| *m == mode) {
            Some((_, expect)) => expect.clone(),
            None if matches!(mode, Mode::Auto | Mode::Slices) => Expect::Any,
            None if mode == Mode::Live => self.expect_in(Mode::Huge),
            None => self.expect.clone(),
        }
    }

    fn take(&mut self, word: &str) -> Result<(), String> {
        let (key, value) = word
            .split_once('=')
            .ok_or_else(|| format!("'{word}' in an odtest header is not key=value"))?;
        if let (mode @ ("live" | "slices"), "no") = (key, value) {
            self.not_live |= mode == "live";
            self.not_slices |= mode == "slices";
            return Ok(());
        }
        if let Some(mode) = Mode::parse(key).filter(|m| m.preloads()) {
            self.expect_in.push((mode, Expect::parse(value)?));
            return Ok(());
        }
        match key {
            "modes" => self.modes = parse_modes(value)?,
            "expect" => self.expect = Expect::parse(value)?,
            "timeout" => self.timeout = parse_number(key, value)?,
            "mem" => self.mem = parse_number(key, value)?,
            "needs" => self.needs = comma_list(value),
            "serial" => self.serial = one_of(key, value, "yes", "no")?,
            "output" => self.same_output = one_of(key, value, "same", "any")?,
            "exit" => self.exit = parse_number(key, value)? as i32,
            "link" => self.link = comma_list(value),
            "cflags" => self.cflags = comma_list(value),
            "args" => self.args = comma_list(value),
            _ => return Err(format!("unknown key '{key}' in an odtest header")),
        }
        Ok(())
    }
}

fn comma_list(value: &str) -> Vec<String> {
    value.split(',').map(str::to_string).collect()
}

fn parse_modes(value: &str) -> Result<Vec<Mode>, String> {
    let parse = |word| Mode::parse(word).ok_or_else(|| format!("unknown mode '{word}'"));
    value.split(',').map(parse).collect()
}

fn parse_number(key: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("{key}={value}: not a number"))
}

/// True for the first word, false for the second.
fn one_of(key: &str, value: &str, yes: &str, no: &str) -> Result<bool, String> {
    match value {
        v if v == yes => Ok(true),
        v if v == no => Ok(false),
        _ => Err(format!("{key}={value}: want {yes} or {no}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_hold_without_a_header() {
        let header = Header::parse("int main(void) { return 0; }\n").unwrap();
        assert_eq!(header.modes, Mode::DEFAULT);
        assert_eq!(header.expect_in(Mode::Huge), Expect::Frozen);
        assert_eq!(header.expect_in(Mode::Auto), Expect::Any);
    }

    #[test]
    fn a_mode_can_have_its_own_expectation() {
        let text = "// odtest: modes=stock,huge,user expect=fold user=plain:threads\n";
        let header = Header::parse(text).unwrap();
        assert_eq!(header.expect_in(Mode::Huge), Expect::Fold);
        assert_eq!(header.expect_in(Mode::User), Expect::Plain("threads".into()));
    }

    #[test]
    fn mistakes_are_named() {
        let refused = |text: &str| Header::parse(text).unwrap_err();
        assert!(refused("// odtest: mods=stock").contains("mods"));
        assert!(refused("// odtest: expect=plain").contains("plain"));
        assert!(refused("// odtest: timeout=soon").contains("soon"));
        assert!(refused("// odtest: modes=hugo").contains("hugo"));
        assert!(refused("// odtest: serial").contains("key=value"));
    }
}
