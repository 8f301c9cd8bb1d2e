//! The protocol of Redis, as much of it as is used: commands out, replies in. Pure.

/// One answer of a server.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// A status, or a number as text.
    Word(String),
    Error(String),
    Bytes(Vec<u8>),
    Nothing,
    List(Vec<Answer>),
}

/// Appends a command.
pub fn put(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// The answer at the beginning of `bytes` and its length; None: it is not whole yet.
pub fn take(bytes: &[u8]) -> Result<Option<(Answer, usize)>, String> {
    let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
    let line = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let (kind, rest) = line.split_at(line.len().min(1));
    let begin = end + 2;
    let count = || rest.parse::<i64>().map_err(|_| format!("the server said {line:?}"));
    Ok(match kind {
        "+" | ":" => Some((Answer::Word(rest.into()), begin)),
        "-" => Some((Answer::Error(rest.into()), begin)),
        "$" => match usize::try_from(count()?) {
            Err(_) => Some((Answer::Nothing, begin)),
            Ok(length) => {
                let whole = bytes.len() >= begin + length + 2;
                let content = || bytes[begin..begin + length].to_vec();
                whole.then(|| (Answer::Bytes(content()), begin + length + 2))
            }
        },
        "*" => list(bytes, begin, count()?)?,
        _ => return Err(format!("the server said {line:?}")),
    })
}

fn list(bytes: &[u8], begin: usize, count: i64) -> Result<Option<(Answer, usize)>, String> {
    let (mut all, mut at) = (Vec::new(), begin);
    for _ in 0..count {
        let Some((one, length)) = take(&bytes[at..])? else { return Ok(None) };
        all.push(one);
        at += length;
    }
    Ok(Some((Answer::List(all), at)))
}

/// A field of what INFO says.
pub fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_one_by_one_and_only_when_whole() {
        let text = b"+OK\r\n:7\r\n-ERR no\r\n$3\r\na\r\n\r\n$-1\r\n*2\r\n$1\r\nx\r\n+y\r\n";
        let word = |word: &str| Answer::Word(word.into());
        let expected = [
            word("OK"),
            word("7"),
            Answer::Error("ERR no".into()),
            Answer::Bytes(b"a\r\n".to_vec()),
            Answer::Nothing,
            Answer::List(vec![Answer::Bytes(b"x".to_vec()), word("y")]),
        ];
        let mut at = 0;
        for expected in expected {
            let (answer, length) = take(&text[at..]).unwrap().unwrap();
            assert_eq!(answer, expected);
            for cut in at..at + length {
                assert_eq!(take(&text[at..cut]), Ok(None));
            }
            at += length;
        }
        assert_eq!(at, text.len());
        assert!(take(b"rubbish\r\n").is_err() && take(b"$x\r\n").is_err());
    }

    #[test]
    fn commands_are_lists_of_bytes() {
        let mut out = Vec::new();
        put(&mut out, &[b"SET", b"k", b"\r\n"]);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n\r\n\r\n");
        assert_eq!(field("a:1\r\nab:2\r\n", "ab"), Some("2"));
        assert_eq!(field("a:1\r\n", "b"), None);
    }
}
