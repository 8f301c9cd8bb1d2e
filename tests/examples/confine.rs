//! `confine PLACE COMMAND...`: runs a command as it would be run in that place.
//! Without arguments: the places. Owns nothing but its command line.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode};

use odfork_tests::confine::Confinement;
use odfork_tests::places::{named, Place, PLACES};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [place, program, rest @ ..] = &args[..] else {
        println!("confine PLACE COMMAND...");
        PLACES.iter().for_each(|place| println!("  {:20} {}", place.name, place.words));
        return ExitCode::from(2);
    };
    let found = named(place).ok_or(format!("no place is called '{place}'"));
    match found.and_then(|place| run(place, program, rest)) {
        Ok(code) => code,
        Err(why) => {
            eprintln!("confine: {why}");
            ExitCode::from(127)
        }
    }
}

/// In a child: what the place changes of this machine is undone when it has ended.
fn run(place: &'static Place, program: &str, args: &[String]) -> Result<ExitCode, String> {
    let there = Confinement::prepare(place)?;
    let mut command = Command::new(program);
    command.args(args).envs(place.environment());
    let enter = {
        let there = there.clone();
        move || there.enter()
    };
    // SAFETY: between fork and exec `enter` makes plain system calls only.
    unsafe { command.pre_exec(enter) };
    let status = command.status().map_err(|why| format!("{program} in '{}': {why}", place.name))?;
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    Ok(ExitCode::from(code.unwrap_or(1) as u8))
}
