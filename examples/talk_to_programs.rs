//! Starting programs from a process that holds a lot of memory, and talking to them, at a price
//! that does not depend on that memory.
//!
//!     cargo run --release -p odfork-spawn --example talk_to_programs

use std::io::{BufRead, BufReader, Write};
use std::time::{Duration, Instant};

use odfork_spawn::{Command, Error, Stdio};

const ROWS: usize = 64 << 20; // 512 MB of 8-byte rows

/// One program, input and output at once: neither side can block the other.
fn sorted(numbers: &[u8]) -> std::io::Result<Vec<u8>> {
    Ok(Command::new("sort").arg("-n").current_dir("/").output_for(numbers)?.stdout)
}

/// A dialogue: a question, an answer, and again.
fn ask_calculator(questions: &[&str]) -> std::io::Result<Vec<String>> {
    let mut calculator = Command::new("sh")
        .args(["-c", "while read a b; do echo $((a * b)); done"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .close_other_fds(true)
        .limit(libc::RLIMIT_CORE, 0, 0)
        .kill_on_drop(true)
        .spawn()?;
    let mut to = calculator.stdin.take().expect("a pipe was asked for");
    let mut from = BufReader::new(calculator.stdout.take().expect("a pipe was asked for"));
    let mut answers = Vec::new();
    for question in questions {
        writeln!(to, "{question}")?;
        let mut answer = String::new();
        from.read_line(&mut answer)?;
        answers.push(answer.trim().to_string());
    }
    drop(to);
    assert!(calculator.wait_timeout(Duration::from_secs(60))?.is_some_and(|s| s.success()));
    Ok(answers)
}

fn time_of(start: impl Fn()) -> u128 {
    let begin = Instant::now();
    (0..50).for_each(|_| start());
    begin.elapsed().as_micros() / 50
}

fn main() -> std::io::Result<()> {
    let start = || assert!(Command::new("true").status().is_ok_and(|s| s.success()));
    let small = time_of(start);
    let table: Vec<u64> = (0..ROWS as u64).map(|row| 3 * row).collect();
    let large = time_of(start);
    println!(
        "start and end of `true`: {small} us from a small process, {large} us with 512 MB in use"
    );
    assert_eq!(sorted(b"3\n20\n1\n")?, b"1\n3\n20\n");
    assert_eq!(ask_calculator(&["6 7", "2 2"])?, ["42", "4"]);
    let refused: Error =
        Command::new("sort").current_dir("/no/such/place").spawn().expect_err("it is not there");
    println!("{refused}");
    assert_eq!(table[ROWS - 1], 3 * (ROWS as u64 - 1));
    Ok(())
}
