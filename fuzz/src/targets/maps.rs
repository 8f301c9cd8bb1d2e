//! /proc/PID/maps, smaps, smaps_rollup and status, as the runtime and the tools read them.

use odfork::vma::{parse_head, SmapsParser, Vma};
use odfork_inspect::doctor::smaps::Map;
use odfork_proc::status::{Rollup, Status};

/// The runtime's mappings of a text that comes in pieces of this size.
fn mappings(text: &[u8], piece: usize) -> Vec<Vma> {
    let (mut parser, mut all) = (SmapsParser::new(), Vec::new());
    for part in text.chunks(piece) {
        parser.feed(part, &mut |vma| all.push(*vma));
    }
    parser.finish(&mut |vma| all.push(*vma));
    all
}

pub fn run(data: &[u8]) {
    let Some((&first, text)) = data.split_first() else { return };
    let all = mappings(text, usize::MAX);
    assert_eq!(all, mappings(text, usize::from(first) + 1));
    for vma in &all {
        assert!(vma.start < vma.end, "an empty mapping: {vma:?}");
        assert!(!(vma.can_freeze() && vma.special));
    }
    let lines = text.split(|&byte| byte == b'\n');
    let heads = lines.filter(|line| parse_head(&line[..line.len().min(256)]).is_some()).count();
    assert_eq!(heads, all.len());
    let text = String::from_utf8_lossy(text);
    let _ = (Status::parse(&text), Rollup::parse(&text));
    let map = Map::parse(&text);
    assert!(map.freezable.small <= map.entries.small && map.freezable.huge <= map.entries.huge);
}
