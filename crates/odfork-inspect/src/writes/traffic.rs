//! The other side of redis-server in the standard set: fills it over its unix socket and marks the
//! phases for it.
//!
//! Speaks as much of the Redis protocol as SET, GET, PING and SHUTDOWN take. Runs in a thread of
//! its own. A mark is a signal sent while the server waits for us; the PING after it is answered
//! when the server runs on.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use odfork_proc::interrupt;
use odfork_samples::stats::Rng;

const START_TIMEOUT: Duration = Duration::from_secs(20);
/// A stopped server answers late; one that does not answer at all is an error.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// Requests under way at once.
const PIPELINE: u32 = 1000;
const VALUE_BYTES: usize = 100;

struct Client {
    socket: BufReader<UnixStream>,
    pid: i32,
}

/// Load `keys`, mark, get as many, mark, set a tenth anew, mark, end.
pub fn drive(pid: i32, socket: &Path, keys: u32) -> Result<()> {
    let mut client = Client { socket: BufReader::new(connect(socket)?), pid };
    let mut rng = Rng::with_seed(4);
    client.ask(&["PING"])?;
    client.mark()?;
    client.many(keys, |number| set(number, b'a'))?;
    client.mark()?;
    client.many(keys, |_| words(&["GET", &key(rng.usize(..keys as usize) as u32)]))?;
    client.mark()?;
    client.many(keys / 10, |_| set(rng.usize(..keys as usize) as u32, b'b'))?;
    client.mark()?;
    // The server closes the connection instead of answering.
    let _ = client.ask(&["SHUTDOWN", "NOSAVE"]);
    Ok(())
}

fn connect(path: &Path) -> Result<UnixStream> {
    let end = Instant::now() + START_TIMEOUT;
    loop {
        match UnixStream::connect(path) {
            Ok(socket) => {
                socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
                return Ok(socket);
            }
            Err(error) if Instant::now() > end || interrupt::asked() => {
                return Err(error).context("redis-server does not answer on its socket");
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

impl Client {
    fn ask(&mut self, request: &[&str]) -> Result<()> {
        self.socket.get_mut().write_all(&words(request))?;
        self.answer()
    }

    fn mark(&mut self) -> Result<()> {
        // SAFETY: sends a signal to the server, which is not waited for before this thread has
        // ended or failed.
        unsafe { libc::kill(self.pid, libc::SIGURG) };
        self.ask(&["PING"])
    }

    fn many(&mut self, count: u32, mut request: impl FnMut(u32) -> Vec<u8>) -> Result<()> {
        for start in (0..count).step_by(PIPELINE as usize) {
            let end = count.min(start + PIPELINE);
            let batch: Vec<u8> = (start..end).flat_map(&mut request).collect();
            self.socket.get_mut().write_all(&batch).context("redis-server went away")?;
            for _ in start..end {
                self.answer()?;
            }
        }
        Ok(())
    }

    /// Reads one answer: a line, or a string of so many bytes.
    fn answer(&mut self) -> Result<()> {
        let mut line = String::new();
        self.socket.read_line(&mut line).context("redis-server does not answer")?;
        if line.starts_with('-') || line.is_empty() {
            bail!("redis-server answered {:?}", line.trim());
        }
        if let Some(length) = line.strip_prefix('$').and_then(|n| n.trim().parse::<u64>().ok()) {
            std::io::copy(&mut (&mut self.socket).take(length + 2), &mut std::io::sink())?;
        }
        Ok(())
    }
}

fn key(number: u32) -> String {
    format!("key:{number:08}")
}

fn set(number: u32, letter: u8) -> Vec<u8> {
    let value = String::from_utf8_lossy(&[letter; VALUE_BYTES]).into_owned();
    words(&["SET", &key(number), &value])
}

/// A request as the protocol has it.
fn words(words: &[&str]) -> Vec<u8> {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_framed() {
        assert_eq!(words(&["GET", "a"]), b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n");
        assert!(set(7, b'x').ends_with(b"x\r\n"));
    }

    #[test]
    fn answers_are_read_to_their_end() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"+OK\r\n$3\r\nabc\r\n$-1\r\n-ERR no\r\n").unwrap();
        let mut client = Client { socket: BufReader::new(ours), pid: 0 };
        for _ in 0..3 {
            client.answer().unwrap();
        }
        assert!(client.answer().unwrap_err().to_string().contains("ERR no"));
    }
}
