//! `confine PLACE COMMAND...`: starts a command as it would be started in that place.
//! Without arguments: the places. Owns nothing but its command line.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use odfork_tests::confine::Confinement;
use odfork_tests::places::{named, PLACES};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [place, program, rest @ ..] = &args[..] else {
        println!("confine PLACE COMMAND...");
        PLACES.iter().for_each(|place| println!("  {:20} {}", place.name, place.words));
        return ExitCode::from(2);
    };
    let why = match named(place).ok_or(format!("no place is called '{place}'")) {
        Err(why) => why,
        Ok(place) => start(place, program, rest),
    };
    eprintln!("confine: {why}");
    ExitCode::from(127)
}

/// Does not come back, unless it fails: why.
fn start(place: &'static odfork_tests::places::Place, program: &str, args: &[String]) -> String {
    match Confinement::prepare(place) {
        Err(why) => why,
        Ok(there) => match there.enter() {
            Err(why) => format!("cannot go to '{}': {why}", place.name),
            Ok(()) => format!("{program}: {}", Command::new(program).args(args).exec()),
        },
    }
}
