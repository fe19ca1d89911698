//! The command line: options, and what is to be done.

use clap::Parser;

use crate::args::Args;
use crate::command::Command;
use crate::help::AFTER_HELP;

/// A conversation that is there again when you come back; and a look after what it leaves.
///
/// Without a command it is the conversation. What you type goes to the active session of the workspace that your device is
/// bound to; the first start makes both. Everything is stored before it is answered, so you can end the program in any
/// way and go on later. Several chats may be open on the same data at once: one of them answers at a time, and all see
/// what is said.
///
/// The model is an offline one that repeats what you say. `!time` makes it call a tool that tells the time, `!sleep 5`
/// one that waits five seconds.
#[derive(Debug, Parser)]
#[command(name = "chat", version, max_term_width = 100, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) args: Args,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}
