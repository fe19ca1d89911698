//! The program `chat`: durable conversations with an offline model, and commands that administer the stores.

mod args;
mod attach;
mod chat;
mod command;
mod consent;
mod content;
mod edits;
mod failure;
mod files;
mod greeting;
mod help;
mod history;
mod host_config;
#[cfg(feature = "models")]
mod hosted;
mod input;
mod layout;
mod listing;
mod log;
mod markdown;
mod model;
mod offline;
mod open;
mod output;
mod pick;
mod progress;
mod question;
mod screen;
mod secrets;
mod servers;
mod slash;
mod stdout;
mod stores;
mod summaries;
mod visible;
mod zone;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
#[cfg(unix)]
use rustix::process::Signal;
#[cfg(unix)]
use tokio::signal::unix::{SignalKind, signal};

use args::Args;
use command::Command;
use help::AFTER_HELP;

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
struct Cli {
    #[command(flatten)]
    args: Args,

    #[command(subcommand)]
    command: Option<Command>,
}

/// Number of threads that read and write files for a command. Each thread that takes part in a copy has its own buffers.
const FILE_THREADS: usize = 4;

/// Runs the program with the arguments of the process, and returns its exit code.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return print_usage(&error),
    };
    let serves = cli.command.as_ref().is_some_and(Command::serves);
    let administers = cli.command.is_some() && !serves;
    let mut runtime = if administers {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    if administers {
        runtime.max_blocking_threads(FILE_THREADS);
    }
    match runtime.enable_all().build() {
        Ok(runtime) => {
            let code = runtime.block_on(run(cli));
            if serves {
                // A thread may still wait for standard input.
                runtime.shutdown_background();
            }
            code
        }
        Err(error) => {
            screen::print_error(&format!("cannot start the async runtime: {error}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> ExitCode {
    let Cli { args, command } = cli;
    // A write beyond a limit on the size of files then fails as on a full disk, and ends no program. The handler stays.
    #[cfg(unix)]
    if let Err(error) = signal(SignalKind::from_raw(Signal::XFSZ.as_raw())) {
        screen::print_error(&format!("a limit on the size of files ends this program: {error}"));
    }
    if let Err(why) = log::init() {
        screen::print_error(&why);
    }
    if let Some(command) = command {
        return command::run(command, &args, Cli::command()).await;
    }
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let opened = async {
        // With MCP servers, the agent reads it.
        if !cfg!(feature = "mcp") {
            command::check_config(&args)?;
        }
        open::open(&args, terminal).await
    };
    let code = match opened.await {
        Ok(chat) => chat.run().await,
        Err(failure) => {
            screen::print_error(&failure.text);
            1
        }
    };
    ExitCode::from(stdout::exit_code(code, screen::print_error))
}

/// Prints the help or the version, if that was requested, or else the error in the command line.
fn print_usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        // The error quotes the arguments. A failure to write it is ignored.
        let _ = write!(std::io::stderr(), "{}", visible::visible(&secrets::hidden(error)));
    } else {
        stdout::note(error.print().and_then(|()| std::io::stdout().flush()));
    }
    let code = u8::try_from(error.exit_code()).unwrap_or(2);
    ExitCode::from(stdout::exit_code(code, screen::print_error))
}
