//! A conversation that survives anything: the main job of the library, on its offline model.

mod args;
mod bounded;
mod chat;
mod cli;
mod command;
mod failure;
mod help;
mod input;
mod offline;
mod open;
mod screen;
mod slash;
mod stdout;
mod stores;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use cli::Cli;

/// How many threads read and write files for a command: each that takes part in a copy keeps memory of its own.
const FILE_THREADS: usize = 4;

/// Runs the program on the arguments of the process, and returns its exit code: 0, or what went wrong.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return told(&error),
    };
    let mut runtime = match cli.command {
        Some(_) => tokio::runtime::Builder::new_current_thread(),
        None => tokio::runtime::Builder::new_multi_thread(),
    };
    if cli.command.is_some() {
        runtime.max_blocking_threads(FILE_THREADS);
    }
    match runtime.enable_all().build() {
        Ok(runtime) => runtime.block_on(run(cli)),
        Err(error) => {
            say(&format!("the system gives no threads to work with: {error}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> ExitCode {
    let Cli { args, command } = cli;
    // What the store had to set aside, and whatever else goes wrong behind the scenes, is said on standard error.
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_writer(|| screen::Visible(std::io::stderr()))
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .init();
    if let Some(command) = command {
        return command::run(command, &args, Cli::command()).await;
    }
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let opened = match command::check_config(&args) {
        Ok(()) => open::open(&args, terminal).await,
        Err(failure) => Err(failure),
    };
    let code = match opened {
        Ok(chat) => chat.run().await,
        Err(failure) => {
            say(failure.text());
            1
        }
    };
    ExitCode::from(stdout::exit_code(code, say))
}

/// Why it failed. Where standard error is gone there is nobody to tell.
fn say(why: &str) {
    let _ = writeln!(std::io::stderr(), "chat: {}", screen::visible(why));
}

/// Says what is wrong with the command line; or the help, if that was asked for.
fn told(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        // It repeats what was typed. Where standard error is gone there is nobody to tell.
        let _ = write!(std::io::stderr(), "{}", screen::visible(&error.render().to_string()));
    } else {
        stdout::note(error.print().and_then(|()| std::io::stdout().flush()));
    }
    let code = u8::try_from(error.exit_code()).unwrap_or(2);
    ExitCode::from(stdout::exit_code(code, say))
}
