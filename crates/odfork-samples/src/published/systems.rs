//! Microbenchmarks of others: Zhao, Gong and Fonseca 2021 (on-demand-fork), Tanaka 2019, Zahariev
//! 2009.
//!
//! Owns these constants. Their figures 2, 4, 7 and 8 are plots; what stands here is what the text
//! and the tables state. A "GB" of the 2021 paper is 2^30 bytes (it allocates in steps of 512 MB).

use super::figure::{p, PublishedPoint, FORK, ODF};

const GB: f64 = (1u64 << 30) as f64;
const MB: f64 = (1u64 << 20) as f64;

const HUGE: &str = "fork, huge pages";
const SEC_2: &str = "Zhao, Gong and Fonseca 2021, section 2.1, figure 2";
const SEC_5: &str = "Zhao, Gong and Fonseca 2021, section 5.2.2, figure 7";
const FIG_3: &str = "Zhao, Gong and Fonseca 2021, section 2.2, figure 3";
const FIG_4: &str = "Zhao, Gong and Fonseca 2021, section 2.3, figure 4";
const TABLE_1: &str = "Zhao, Gong and Fonseca 2021, section 5.2.3, table 1";
const FIG_8: &str = "Zhao, Gong and Fonseca 2021, section 5.2.4, figure 8";

/// x bytes, y nanoseconds of the call.
pub const LATENCY: [PublishedPoint; 9] = [
    p((FORK, GB, 6_540_000.0), "ns", "one at a time, mean", SEC_5),
    p((FORK, 50.0 * GB, 253_940_000.0), "ns", "one at a time, mean", SEC_5),
    p((ODF, GB, 100_000.0), "ns", "one at a time, mean", SEC_5),
    p((ODF, 50.0 * GB, 940_000.0), "ns", "one at a time, mean", SEC_5),
    p((FORK, GB, 5_400_000.0), "ns", "one at a time, minimum", SEC_2),
    p((FORK, 50.0 * GB, 252_300_000.0), "ns", "one at a time, minimum", SEC_2),
    p((FORK, GB, 22_400_000.0), "ns", "three at once, mean", SEC_2),
    p((FORK, GB, 21_300_000.0), "ns", "three at once, minimum", SEC_2),
    p((HUGE, GB, 170_000.0), "ns", "one at a time, mean", FIG_4),
];

/// x: place in the listing, y: share of the time of fork.
pub const PROFILE: [PublishedPoint; 3] = [
    p(("compound_head", 1.0, 0.6338), "share", "first read of struct page (a cache miss)", FIG_3),
    p(("page_dup_rmap, page_ref_inc", 2.0, 0.1388), "share", "locked increment", FIG_3),
    p(("__read_once_size", 3.0, 0.1527), "share", "read after the locked increment", FIG_3),
];

/// x bytes, y nanoseconds of the first write in the middle.
pub const FAULT: [PublishedPoint; 3] = [
    p((FORK, GB, 2_300.0), "ns", "mean of 10", TABLE_1),
    p((HUGE, GB, 198_400.0), "ns", "mean of 10", TABLE_1),
    p((ODF, GB, 12_200.0), "ns", "mean of 10", TABLE_1),
];

/// x share of 50 GB accessed by the parent, y relative change of time against fork.
pub const ACCESS: [PublishedPoint; 3] = [
    p((ODF, 0.0, -0.99), "share", "nothing accessed: up to", FIG_8),
    p((ODF, 1.0, -0.08), "share", "100 % read", FIG_8),
    p((ODF, 1.0, -0.04), "share", "0 % read", FIG_8),
];

const ZAHARIEV: &str = "Zahariev 2009, table";
const LINUX_20: &str = "20 MB allocated: CPU seconds of a few thousand runs, Linux 2.6.28";
const LINUX_40: &str = "40 MB allocated: CPU seconds of a few thousand runs, Linux 2.6.28";
const BSD_20: &str = "20 MB allocated: CPU seconds of a few thousand runs, FreeBSD 7.1";
const BSD_40: &str = "40 MB allocated: CPU seconds of a few thousand runs, FreeBSD 7.1";

/// x used bytes, y seconds for an unstated number of runs ("a few thousand"): only ratios can be
/// compared.
pub const EXEC: [PublishedPoint; 10] = [
    p(("vfork+exec", 10.0 * MB, 1.49), "s", LINUX_20, ZAHARIEV),
    p(("fork+exec", 10.0 * MB, 12.08), "s", LINUX_20, ZAHARIEV),
    p(("vfork+exec", 20.0 * MB, 1.53), "s", LINUX_20, ZAHARIEV),
    p(("fork+exec", 20.0 * MB, 21.60), "s", LINUX_20, ZAHARIEV),
    p(("vfork+exec", 20.0 * MB, 1.59), "s", LINUX_40, ZAHARIEV),
    p(("fork+exec", 20.0 * MB, 21.23), "s", LINUX_40, ZAHARIEV),
    p(("vfork+exec", 10.0 * MB, 2.26), "s", BSD_20, ZAHARIEV),
    p(("fork+exec", 10.0 * MB, 20.22), "s", BSD_20, ZAHARIEV),
    p(("vfork+exec", 20.0 * MB, 2.44), "s", BSD_40, ZAHARIEV),
    p(("fork+exec", 20.0 * MB, 33.94), "s", BSD_40, ZAHARIEV),
];

/// Tens of nanoseconds as printed (seconds with eight digits): ten rounds before, ten after;
/// 100,000 pages a round.
const ROUNDS: [(&str, [u32; 20]); 4] = [
    (
        "Ruby 2.6.2 fork",
        [
            733_914, 699_243, 674_534, 777_585, 836_382, 729_977, 705_439, 687_936, 667_030,
            662_619, 6_490_101, 664_682, 662_405, 670_339, 657_027, 700_166, 666_423, 650_362,
            669_207, 651_883,
        ],
    ),
    (
        "Ruby 2.6.2 system (vfork)",
        [
            758_229, 701_581, 680_411, 673_921, 668_358, 671_528, 657_470, 660_746, 661_486,
            670_212, 674_013, 700_635, 678_113, 657_952, 659_784, 678_082, 658_584, 661_802,
            653_398, 654_583,
        ],
    ),
    (
        "Ruby 2.1.10 system (fork)",
        [
            678_418, 661_911, 631_097, 615_733, 612_787, 625_961, 616_606, 614_166, 615_436,
            616_540, 6_327_575, 622_857, 624_134, 617_376, 617_710, 638_290, 618_077, 615_743,
            613_252, 615_407,
        ],
    ),
    (
        "Ruby 2.1.10 system (fork), THP always",
        [
            914_092, 847_733, 838_931, 775_660, 810_754, 699_371, 679_120, 660_573, 733_054,
            661_029, 728_163, 663_571, 662_259, 704_892, 651_190, 643_143, 643_470, 717_451,
            673_541, 647_267,
        ],
    ),
];

pub(super) fn parent_writes() -> Vec<PublishedPoint> {
    let mut points = Vec::new();
    for (series, rounds) in &ROUNDS {
        for (index, &tens) in (0u8..).zip(rounds) {
            let what = if index < 10 { "before" } else { "after" };
            let at = (*series, f64::from(index % 10 + 1), f64::from(tens) * 10.0);
            points.push(p(at, "ns", what, "Tanaka 2019, entry of 2019-03-27"));
        }
    }
    points
}
