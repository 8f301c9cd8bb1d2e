//! The profile of a fork on this machine: with perf where it may be used, and said so where not.

use odfork_bench::configuration::{Configuration, Subject};
use odfork_bench::profile::profile;
use odfork_bench::stage::Stage;

fn stage() -> Stage {
    Stage {
        program: std::env::current_exe().unwrap(),
        library: "none".into(),
        image: None,
        cpu: None,
    }
}

pub fn a_fork_is_divided_into_parts_from_either_source() {
    let profile = profile(&stage(), &Subject::new(Configuration::Plain, 64 << 20), 0.5).unwrap();
    match &profile.why {
        None => assert_eq!(profile.source, "perf"),
        Some(why) => {
            println!("perf not tested: {why}");
            assert_eq!(profile.source, "counters");
        }
    }
    assert!((profile.parts.iter().map(|part| part.share).sum::<f64>() - 1.0).abs() < 1e-9);
    assert!(profile.parts.is_sorted_by(|one, next| one.share >= next.share));
    let counter = |name: &str| {
        let found = profile.counters.iter().find(|(known, ..)| known == name);
        found.unwrap_or_else(|| panic!("{name}")).1
    };
    assert!(counter("fork") > 0.0 && counter("fork-of-empty-process") > 0.0);
    // 64 MB in pages of 4 KB have at least 32 tables.
    assert!(counter("page-table-pages") >= 32.0);
}

pub fn with_the_harness_alone_there_is_nothing_to_profile() {
    assert!(profile(&stage(), &Subject::new(Configuration::Null, 4096), 0.1).is_err());
}
