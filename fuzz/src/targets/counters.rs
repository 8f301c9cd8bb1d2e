//! What the kernel counts of shared page tables, as /proc/vmstat tells it.

use odfork_proc::cow_fork::{counted, parse};

pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let all = parse(&text);
    for name in all.keys() {
        assert!(text.contains(name.as_str()), "'{name}' is not in the text");
    }
    // Each line alone says what it says among others; of two with one name the last one counts.
    let lines = text.lines().map(parse).fold(Default::default(), |mut sum, one| {
        let _: &odfork_proc::cow_fork::Counters = &sum;
        sum = sum.into_iter().chain(one).collect();
        sum
    });
    assert_eq!(all, lines);
    assert!(counted(&all, &all).values().all(|&count| count == 0));
    assert_eq!(counted(&Default::default(), &all), all);
}
