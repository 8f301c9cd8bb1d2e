//! What the doctor prints for recorded values: reports read from tests/golden, laid out as text,
//! and written as JSON again.

use serde::{Deserialize, Serialize};

use super::inspection::Report;
use super::layout;
use super::machine::Machine;
use crate::golden::{self, FOLDER};

fn recorded<T: Deserialize<'static>>(name: &str) -> T {
    let text = std::fs::read_to_string(format!("{FOLDER}/doctor-{name}.json")).unwrap();
    // Reports hold words of the program, which live for ever.
    serde_json::from_str(text.leak()).unwrap()
}

fn check<T: Deserialize<'static> + Serialize>(name: &str, lay_out: fn(&T) -> String) {
    let report: T = recorded(name);
    let json = serde_json::to_string_pretty(&report).unwrap() + "\n";
    golden::check(&format!("doctor-{name}.txt"), &lay_out(&report));
    golden::check(&format!("doctor-{name}.json"), &json);
}

#[test]
fn reports_are_laid_out_as_ever() {
    for name in ["command", "process", "nothing", "obstacle"] {
        check::<Report>(name, layout::lay_out);
    }
    check::<Machine>("machine", layout::machine);
    let empty = Machine { processes: Vec::new(), ..recorded("machine") };
    golden::check("doctor-machine-empty.txt", &layout::machine(&empty));
}
