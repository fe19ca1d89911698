//! The command line.

use clap::Parser;

use crate::args::Args;
use crate::command::Command;
use crate::help::AFTER_HELP;

/// Chat with an agent in durable sessions, and administer the stores
///
/// Without a command, `chat` opens a conversation: each line that you type is sent to the most recently used session of
/// the device's workspace. The first start creates both. Every message is stored before it is answered, so the program
/// can be stopped at any time, and the next start continues the conversation. Several instances can use the same data
/// at once: one of them answers at a time, and all show every message.
///
/// The model is an offline model that repeats each message. `!time` makes it call a tool that returns the time, `!sleep
/// 5` one that waits five seconds.
#[derive(Debug, Parser)]
#[command(name = "chat", version, max_term_width = 100, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) args: Args,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}
