//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use agent_core::{DeviceId, SessionId, TenantId};
use clap::Parser;

use crate::command::Command;
use crate::stores::{Address, address};

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
pub(crate) struct Args {
    /// Keep the data in this folder [default: the user's data folder]
    #[arg(long, value_name = "DIR", global = true, conflicts_with = "store")]
    pub(crate) data_dir: Option<PathBuf>,

    /// Act as this device [default: the name of this host]
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) device: Option<DeviceId>,

    /// Keep the data in files (files:PATH), in one database file (sqlite:PATH), in a bucket that many machines may share
    /// (s3://BUCKET/PREFIX), or in memory and only until the end (memory:)
    #[arg(long, value_name = "STORE", value_parser = address, global = true)]
    pub(crate) store: Option<Address>,

    /// Act for this tenant of the store [default: the tenant `default`]
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) tenant: Option<TenantId>,

    /// Take the host's configuration from this file [default: config.toml beside the data]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,

    /// Print JSON for programs; errors too, on standard error
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Open this session rather than the one that was used last
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<SessionId>,

    /// Wait so long before each word of an answer
    #[arg(long, value_name = "MS", value_parser = millis, default_value = "0", hide = true)]
    pub(crate) echo_delay_ms: Duration,

    /// Take over from a chat that gave no sign of life for so long
    #[arg(long, value_name = "MS", value_parser = millis, hide = true)]
    pub(crate) lease_ttl_ms: Option<Duration>,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

fn millis(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.parse().map(Duration::from_millis)
}

macro_rules! commands {
    () => {
        "  /workspace    where you are: the workspace, its id, the model, how much was said
  /context      how much a model is given
  /history [N]  what was said in this session
  /sessions     the sessions of this workspace
  /new [TITLE]  begin a session
  /switch N     go to session N of /sessions; an id, or its beginning, will do
  /fork         go on in a copy of this session, and leave this one as it is
  /clear        start this session's history anew
  /wake         answer what waits for an answer
  /help         this list
  /quit         end the program, as Ctrl-D does

Ctrl-C ends the answer, not the program. A text that begins with / is sent with another / before it."
    };
}

/// The commands, as `/help` lists them.
pub(crate) const COMMANDS: &str = commands!();

const AFTER_HELP: &str = concat!(
    "In a conversation:\n",
    commands!(),
    "

Where the input is no terminal, each line of it is sent and answered in turn. Answers go to standard output, all
else to standard error.

Examples:
  chat
  chat --data-dir ./notes --device laptop
  chat --store sqlite:./notes.db
  chat workspace list --json
  chat session export ID --output session.json
  chat copy files:./notes sqlite:./notes.db
  chat backup ./notes-backup.db --store sqlite:./notes.db
  chat verify --all-tenants
  AWS_REGION=eu-central-1 chat --store s3://my-bucket/notes
  printf 'hello\\n' | chat

For s3://, the environment says where and who: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, and AWS_ENDPOINT_URL
with AWS_ALLOW_HTTP=true for a server of your own.

Exit codes:
  0         all went well
  1         something failed, or standard output took only a part (a full disk); standard error says what, and what to do
  2         the command line is wrong, lacks --yes, or would copy a store into itself
  130, 143  ended by a signal
and of the commands:
  3         what was named is not there, or was deleted; the store, too: only what writes makes one
  4         it is not as it must be for that: somebody is at work on it, or has changed it; nothing was changed
  5         something stored is damaged, or was not copied or made anew; the report names it

A reader of standard output that has seen enough, as `head`, is no failure: nothing is said, and the code is that of the
command. Standard output that is closed (>&-) counts as one that nobody reads.

Files that are named, or come from a pipe, may have so many bytes at most: 1 MiB a configuration, 16 MiB what is put into an area,
1 GiB the document of a session. Devices are not read.

With --all-tenants and --json there is one line of JSON for each tenant, with its name in `tenant`."
);
