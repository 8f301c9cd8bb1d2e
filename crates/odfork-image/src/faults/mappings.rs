//! The mappings of this process, read inside a page fault: no heap.

use std::fs::File;
use std::io::Read;

/// Calls `each` with start and end of every mapping, as far as `buffer` has room for a line.
///
/// # Errors
/// No proc file system.
pub fn each(buffer: &mut [u8], mut each: impl FnMut(u64, u64)) -> std::io::Result<()> {
    let mut file = File::open("/proc/thread-self/maps")?;
    let mut have = 0;
    loop {
        let count = file.read(&mut buffer[have..])?;
        if count == 0 {
            return Ok(());
        }
        have += count;
        let whole = buffer[..have].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        for line in buffer[..whole].split(|&byte| byte == b'\n') {
            if let Some((start, end)) = range(line) {
                each(start, end);
            }
        }
        buffer.copy_within(whole..have, 0);
        have -= whole;
    }
}

/// The two numbers a line begins with.
fn range(line: &[u8]) -> Option<(u64, u64)> {
    let (range, _) = std::str::from_utf8(line.get(..40.min(line.len()))?).ok()?.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mapping_is_seen() {
        let here = &mut [0u8; 512];
        let (place, mut count, mut found) = (std::ptr::from_ref(here) as u64, 0, 0);
        each(here, |start, end| {
            count += 1;
            found += usize::from((start..end).contains(&place));
        })
        .unwrap();
        assert_eq!(found, 1);
        assert!(count > 10);
        assert_eq!(
            range(b"7f0000001000-7f0000002000 rw-p"),
            Some((0x7f00_0000_1000, 0x7f00_0000_2000))
        );
        assert_eq!(range(b""), None);
    }
}
