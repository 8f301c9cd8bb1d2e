//! Subjects as their driver meets them. This test is the program that benchmarks start again, so it
//! has a main of its own.

mod commands;
mod profile;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use odfork_bench::roles;

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|word| word == "subject") {
        let matches = roles::subject_command().get_matches_from(std::env::args_os().skip(1));
        return ExitCode::from(roles::run_subject(&matches));
    }
    let all: [(&str, fn()); 6] = [
        ("null", commands::the_harness_alone_answers_like_a_subject_and_has_no_children),
        ("touched", commands::commands_keep_to_the_touched_part),
        ("pages", commands::each_command_writes_the_pages_it_names),
        ("refusals", commands::what_cannot_be_held_is_told_in_the_first_line),
        ("profile", profile::a_fork_is_divided_into_parts_from_either_source),
        ("profile-null", profile::with_the_harness_alone_there_is_nothing_to_profile),
    ];
    let trial = |(name, test): (&str, fn())| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    libtest_mimic::run(&Arguments::from_args(), all.map(trial).into()).exit_code()
}
