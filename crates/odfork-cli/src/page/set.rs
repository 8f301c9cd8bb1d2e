//! `odfork page set NAME=VALUE`: changes a tunable of the running daemon.

use anyhow::{bail, Result};
use clap::{Arg, ArgMatches, Command};
use odfork_pager::{endpoint, tunables};
use odfork_pager_protocol::wire::{Kind, Message};

use super::daemon;

fn table() -> String {
    let mut text = String::from("Names:\n");
    for tunable in &tunables::TABLE {
        text += &format!(
            "  {:<13} {}..{} [{}]  {}\n",
            tunable.name, tunable.least, tunable.most, tunable.default, tunable.help
        );
    }
    text
}

pub fn command() -> Command {
    Command::new("set")
        .about("Change a setting of the running daemon")
        .after_help(table())
        .arg(daemon::socket_argument())
        .arg(Arg::new("setting").value_name("NAME=VALUE").required(true).num_args(1..))
}

pub fn run(given: &ArgMatches) -> Result<u8> {
    let socket = daemon::socket_of(given)?;
    for setting in given.get_many::<String>("setting").into_iter().flatten() {
        let question = Message::new(Kind::Set).with_text(setting.as_bytes());
        let answer = endpoint::ask(&socket, &question, endpoint::ANSWER_TIMEOUT)
            .map_err(|error| super::status::no_answer(&error, &socket))?;
        if !answer.trim().is_empty() {
            bail!("{}", answer.trim());
        }
    }
    Ok(0)
}
