//! Python that has imported everything already, run from Rust: a template under a name, its
//! children, their output and statuses. Needs the Python package (docs/python.md) for python3.
//!
//!     cargo run --release -p odfork-zygote --example ready_children

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use odfork_zygote::{Command, Recipe};

const NAME: &str = "ready-children-example";

fn children() -> Result<(), Box<dyn std::error::Error>> {
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut sum = Command::source("import json, sys; print(json.dumps(sys.argv[1:]))");
    sum.arg("1").arg("2").descriptor(theirs, 1);
    let mut child = sum.spawn(NAME)?;
    drop(sum); // it holds our end of the child's output: without this the pipe never ends
    let mut said = String::new();
    ours.read_to_string(&mut said)?;
    println!("{}, said {}", child.wait()?.status, said.trim());

    let mut slow = Command::source("import time; time.sleep(600)");
    let mut child = slow.deadline(Duration::from_millis(100)).spawn(NAME)?;
    println!("the slow one: {}", child.wait()?.status);
    for state in odfork_zygote::list()? {
        println!("{state:?}");
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut recipe = Recipe::new("python3");
    recipe.import("json");
    // Makes the template's forks cheap. Where it is not found, they are the kernel's own.
    recipe.env("LD_PRELOAD", "libodfork.so");
    odfork_zygote::start(NAME, &recipe)?;
    let done = children();
    odfork_zygote::stop(NAME)?;
    done
}
