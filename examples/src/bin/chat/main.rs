//! A conversation that survives anything: the main job of the library, on its offline model.

mod args;
mod chat;
mod command;
mod input;
mod offline;
mod open;
mod screen;
mod slash;
mod stores;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;

use args::Args;

#[tokio::main]
async fn main() -> ExitCode {
    let mut args = Args::parse();
    // What the store had to set aside, and whatever else goes wrong behind the scenes, is said on standard error.
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_writer(std::io::stderr)
        .without_time()
        .with_target(false)
        .init();
    if let Some(command) = args.command.take() {
        return command::run(command, &args).await;
    }
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let code = match open::open(&args, terminal).await {
        Ok(chat) => chat.run().await,
        Err(error) => {
            // Where standard error is gone there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "chat: {}", open::told(&*error));
            1
        }
    };
    ExitCode::from(code)
}
