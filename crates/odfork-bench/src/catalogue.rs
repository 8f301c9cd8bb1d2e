//! The list of every suite of `odfork bench`.

use crate::suite::{self, Suite};
use crate::{afl, demo, paging, prefork, redis, sessions, vm};

/// In the order of `odfork bench list`.
pub static SUITES: [&Suite; 17] = [
    &suite::grid::SUITE,
    &suite::latency::SUITE,
    &suite::fault::SUITE,
    &suite::access::SUITE,
    &suite::profile::SUITE,
    &suite::parent_writes::SUITE,
    &suite::exec::SUITE,
    &suite::copy_rate::SUITE,
    &suite::promises::SUITE,
    &paging::SUITE,
    &sessions::SUITE,
    &redis::SUITE,
    &afl::SUITE,
    &prefork::APACHE_SUITE,
    &prefork::POSTGRES_SUITE,
    &vm::SUITE,
    &demo::SUITE,
];

/// The suite of that name.
pub fn find(name: &str) -> Option<&'static Suite> {
    SUITES.into_iter().find(|suite| suite.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Configuration;
    use crate::plan::{Config, Effort, Op};
    use crate::suite::{How, Subjects};
    use std::collections::BTreeSet;

    fn config(effort: Effort) -> Config {
        Config {
            configurations: Configuration::ALL.to_vec(),
            effort,
            available: 22 << 30,
            only: Vec::new(),
        }
    }

    fn of_subjects() -> impl Iterator<Item = (&'static Suite, &'static Subjects)> {
        SUITES.into_iter().filter_map(|suite| match &suite.how {
            How::Subjects(subjects) => Some((suite, subjects)),
            How::Own { .. } => None,
        })
    }

    #[test]
    fn every_plan_names_the_metrics_and_params_of_its_suite() {
        for (suite, subjects) in of_subjects() {
            for plan in (subjects.plans)(&config(Effort::Default)) {
                for point in plan.group.blocks.iter().flat_map(|block| &block.points) {
                    let mut names: BTreeSet<&str> =
                        point.params.keys().map(String::as_str).collect();
                    for metric in point.op.metrics() {
                        assert!(suite.metrics.contains(&metric), "{}: {metric}", suite.name);
                    }
                    if let Op::Ask(ask) = &point.op {
                        for metric in &ask.metrics {
                            names.extend(metric.extra.iter().map(|(name, _)| *name));
                            let known = ask.command.labels().contains(&metric.label.as_str());
                            let watched = ask.watch && metric.label.starts_with("extra");
                            assert!(known || watched || !metric.extra.is_empty(), "{metric:?}");
                        }
                    }
                    if !matches!(point.op, Op::Profile { .. }) {
                        assert_eq!(names, suite.params.iter().copied().collect(), "{}", suite.name);
                    }
                    let known = plan.group.targets.len();
                    assert!(point.targets.iter().all(|&target| target < known));
                }
            }
        }
    }

    #[test]
    fn quick_is_small() {
        for (suite, subjects) in of_subjects() {
            for plan in (subjects.plans)(&config(Effort::Quick)) {
                assert!(plan.needs() < 3 << 30, "{}: {}", suite.name, plan.group.title);
            }
            if let Some([quick, default, full]) = subjects.seconds {
                assert!(quick < default && default < 120.0 && default < full);
            }
        }
    }

    #[test]
    fn names_are_unique_and_the_reruns_come_first() {
        let names: BTreeSet<&str> = SUITES.iter().map(|suite| suite.name).collect();
        assert_eq!(names.len(), SUITES.len());
        assert!(SUITES.iter().take(8).all(|suite| suite.is_of_all()));
        assert!(!SUITES.iter().skip(8).any(|suite| suite.is_of_all()));
    }
}
