//! The commands of the command line: one room for each noun.

mod area;
mod audit;
mod config;
mod copy;
mod device;
mod output;
mod progress;
mod session;
mod verify;
mod workspace;

use std::error::Error as StdError;
use std::process::ExitCode;

use agent_core::{Effects, Error, ErrorKind, Storage, WorkspaceManager};
use clap::{CommandFactory, Subcommand};

use crate::args::Args;
use crate::stores;
use output::Out;

/// What can be done beside the conversation.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Workspaces: list, create, show, delete, collect what nobody uses
    #[command(subcommand)]
    Workspace(workspace::Command),
    /// Sessions: list, show, export, import, fork, salvage, delete
    #[command(subcommand)]
    Session(session::Command),
    /// What all sessions of a workspace share, in its areas mcp, skills and memory: list, get, put, delete
    #[command(subcommand)]
    Area(area::Command),
    /// Devices, and the workspaces that they are bound to
    #[command(subcommand)]
    Device(device::Command),
    /// Configuration
    #[command(subcommand)]
    Config(config::Command),
    /// Copy all of a store, or one workspace, to another store; again, to finish what was cut off
    Copy(copy::Copy),
    /// What commands have done to workspaces and devices, which sessions they removed, as which device and when: the latest first
    Audit(audit::Command),
    /// Look through everything that is stored, and name what is damaged
    Verify,
    /// Make anew what the store derives from the logs of its sessions: their records, and what lists show
    Rebuild,
    /// Print what lets a shell complete this command line
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// Why a command did not do all that was asked, and the exit code for that.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    /// In one word, for programs.
    kind: &'static str,
    text: String,
}

impl Failure {
    pub(crate) fn new(code: u8, kind: &'static str, text: impl Into<String>) -> Self {
        Self { code, kind, text: text.into() }
    }

    /// What was named is not there.
    pub(crate) fn absent(text: impl Into<String>) -> Self {
        Self::new(3, "not_found", text)
    }

    /// What is stored is damaged, or was not copied; the report has said what.
    pub(crate) fn incomplete(text: impl Into<String>) -> Self {
        Self::new(5, "incomplete", text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        use ErrorKind::{Busy, Conflict, Corrupt, Deleted, Fenced, InvalidTransition, NotFound};
        let code = match error.kind() {
            NotFound | Deleted => 3,
            Conflict { .. } | Fenced { .. } | Busy { .. } | InvalidTransition { .. } => 4,
            Corrupt => 5,
            _ => 1,
        };
        Self::new(code, error.kind().name(), crate::open::told(&error))
    }
}

impl From<Box<dyn StdError>> for Failure {
    fn from(error: Box<dyn StdError>) -> Self {
        match error.downcast::<Error>() {
            Ok(error) => (*error).into(),
            Err(error) => Self::new(1, "failed", crate::open::told(&*error)),
        }
    }
}

/// What commands work on.
pub(crate) struct Site<'a> {
    args: &'a Args,
    storage: Storage,
    effects: Effects,
    manager: WorkspaceManager,
    out: Out,
}

impl<'a> Site<'a> {
    async fn open(args: &'a Args) -> Result<Self, Failure> {
        let effects = Effects::default();
        let storage = stores::chosen(args)?.open().await?.audited(&effects, crate::open::actor(args)?);
        let manager = WorkspaceManager::new(storage.clone(), effects.clone());
        Ok(Self { args, storage, effects, manager, out: Out::new(args.json) })
    }
}

/// Does what was asked, and says how it went.
pub(crate) async fn run(command: Command, args: &Args) -> ExitCode {
    let done = match command {
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Args::command(), "chat", &mut std::io::stdout());
            Ok(())
        }
        Command::Copy(copy) => copy.run(args).await,
        command => on_site(command, args).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            Out::new(args.json).failure(failure.kind, &failure.text);
            ExitCode::from(failure.code)
        }
    }
}

async fn on_site(command: Command, args: &Args) -> Result<(), Failure> {
    let site = Site::open(args).await?;
    let done = match command {
        Command::Workspace(command) => command.run(&site).await,
        Command::Session(command) => command.run(&site).await,
        Command::Area(command) => command.run(&site).await,
        Command::Device(command) => command.run(&site).await,
        Command::Config(command) => command.run(&site).await,
        Command::Audit(command) => command.run(&site).await,
        Command::Verify => verify::run(&site).await,
        Command::Rebuild => verify::rebuild(&site).await,
        Command::Copy(_) | Command::Completions { .. } => Ok(()),
    };
    let closed = site.storage.close().await;
    done.and(closed.map_err(Failure::from))
}
