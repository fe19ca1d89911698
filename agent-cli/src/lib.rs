//! A conversation that survives anything: the main job of the library, on its offline model.

mod args;
mod bounded;
mod chat;
mod command;
mod input;
mod offline;
mod open;
mod screen;
mod slash;
mod stdout;
mod stores;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;

use args::Args;

/// How many threads read and write files for a command: each that takes part in a copy keeps memory of its own.
const FILE_THREADS: usize = 4;

/// Runs the program on the arguments of the process, and returns its exit code: 0, or what went wrong.
pub fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return told(&error),
    };
    let mut runtime = match args.command {
        Some(_) => tokio::runtime::Builder::new_current_thread(),
        None => tokio::runtime::Builder::new_multi_thread(),
    };
    if args.command.is_some() {
        runtime.max_blocking_threads(FILE_THREADS);
    }
    match runtime.enable_all().build() {
        Ok(runtime) => runtime.block_on(run(args)),
        Err(error) => {
            say(&format!("the system gives no threads to work with: {error}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(mut args: Args) -> ExitCode {
    // What the store had to set aside, and whatever else goes wrong behind the scenes, is said on standard error.
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_writer(|| screen::Visible(std::io::stderr()))
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .init();
    if let Some(command) = args.command.take() {
        return command::run(command, &args).await;
    }
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let opened = match command::check_config(&args) {
        Ok(()) => open::open(&args, terminal).await.map_err(|error| open::told(&*error)),
        Err(failure) => Err(failure.text().to_owned()),
    };
    let code = match opened {
        Ok(chat) => chat.run().await,
        Err(why) => {
            say(&why);
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
