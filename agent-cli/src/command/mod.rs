//! Commands of the command line, one module for each noun.

mod acp;
mod area;
mod audit;
mod backup;
mod config;
mod consent;
mod copy;
mod demo;
mod device;
mod endings;
mod erase;
mod files;
mod hold;
mod import;
mod key;
mod maintain;
mod restore;
mod restore_store;
mod search;
mod session;
mod session_list;
mod site;
mod sizes;
mod sweep;
mod tenant;
mod tenants;
mod upgrade;
mod verify;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

use agent_core::{Backend, ErrorKind};
use clap::Subcommand;

use crate::args::Args;
use crate::failure::{Failure, Result};
use crate::help::examples;
use crate::host_config;
use crate::output::Out;
use crate::stdout;
use crate::stores::closing;
use acp::Acp;
use area::AreaCommand;
use audit::AuditCommand;
use config::ConfigCommand;
use device::DeviceCommand;
use erase::EraseCommand;
use key::KeyCommand;
use search::{IndexCommand, SearchCommand};
use session::SessionCommand;
use session_list::ListCommand;
use site::Site;
use sizes::SizesCommand;
use tenant::TenantCommand;
use tenants::AllTenants;
use workspace::WorkspaceCommand;

/// Commands.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what is left of a program that is killed in the middle of an answer
    ///
    /// Starts this program on a temporary folder, sends it a message, kills it (SIGKILL) after some words of the answer, starts it
    /// again, and lets it answer. No data of yours is used.
    #[command(after_help = examples!("chat demo"))]
    Demo,
    /// Serve an editor over standard input and output, with the Agent Client Protocol
    ///
    /// The editor starts the program, creates sessions and goes on with them; they are those of the store, and `chat`
    /// shows them too. New sessions belong to the workspace of the device. The options of the store and the model stand
    /// before the command: `chat --store sqlite:notes.db --model ollama:qwen3 acp`. The program ends with its input.
    #[command(after_help = examples!("chat acp", "chat --model anthropic:claude-opus-5-5 acp --ask"))]
    Acp(Acp),
    /// List, create, show and delete workspaces, set their main session, and delete unused ones
    #[command(subcommand)]
    Workspace(WorkspaceCommand),
    /// List, show, export, import, fork, salvage, pin, delete and erase sessions, and save and restore their files
    #[command(subcommand)]
    Session(SessionCommand),
    /// List, get, put, import and delete the files that the sessions of a workspace share
    #[command(subcommand)]
    Area(AreaCommand),
    /// List devices, bind them to workspaces, and unbind them
    #[command(subcommand)]
    Device(DeviceCommand),
    /// List, export and delete the tenants of a store
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Make, show and replace root keys of encrypted stores
    #[command(subcommand)]
    Key(KeyCommand),
    /// Erase all that a person or a tenant has, and write a receipt
    ///
    /// Deletes the sessions, removes their bytes, drops their keys if the store is encrypted, and writes what was erased to a
    /// receipt, which `chat verify --erased` checks. What a fork of somebody else reads is kept and named. A command that was cut
    /// off is completed by the same command; until then the store has one tenant more, `erasure-` and digits.
    #[command(subcommand)]
    Erase(EraseCommand),
    /// Show the configuration that applies
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Copy a store, or one workspace of it, to another store
    ///
    /// Copies the objects that the target lacks, and verifies each of them. Objects that differ in the target are not
    /// changed; they are reported, like objects that are damaged in the source. To finish an interrupted copy, run the
    /// same command again. The target is created if it does not exist; the tables in PostgreSQL are created before, by `chat
    /// upgrade`.
    Copy(copy::Copy),
    /// Import conversations of other agents: transcripts of Claude Code and others
    ///
    /// Their sessions keep their times, branches, helpers, calls, reasoning and pictures. The same command again adds only what the source
    /// has in addition, so that it may run every night. A session that was continued here is left as it is, and named. What is not
    /// understood is counted. Reads only the source and files in its folder, and changes nothing there. Creates the store if it does not
    /// exist. For a session that `chat session export` wrote, use `chat session import`.
    Import(import::Import),
    /// Back up all tenants of a store while it is in use: to another store, which is brought up to date, or of SQLite to a file
    ///
    /// To a store (files:PATH, sqlite:PATH, s3://BUCKET/PREFIX): the first run copies everything, each later one reads both lists and the
    /// sessions that have changed. Each session is copied as it was at one moment, with whole commits, and what was written is read back.
    /// Deletions and erasures are applied, too. What differs in the backup is named, and not changed. The backup is a store: `chat
    /// verify --store BACKUP` checks it, `chat restore` brings all of it back, and `chat session restore` one session.
    ///
    /// To a FILE, of a SQLite store: a snapshot of one moment, a database file, which `--store sqlite:FILE` opens. It is written to disk
    /// and checked under the name FILE.<16 digits>.part, then renamed. After a crash, delete the .part file. Existing
    /// files are not changed.
    ///
    /// A store in PostgreSQL can also be backed up by the server's own programs: `pg_dump` of the schema, for which this prints the
    /// command if a FILE is given, or a base backup of the whole server (`pg_basebackup`); FILE is not written.
    Backup(backup::Backup),
    /// Restore a backup to a store, so that no run from before the loss writes to it
    ///
    /// Copies what the store lacks of BACKUP, all tenants, and verifies it. Each restored session ends its lease and is fenced: a
    /// program that still works on it, and does not know of the loss, is refused. The session's work is queued again. A session that has
    /// more than the backup keeps it. One that differs, or was deleted since, is named and not changed; `chat session restore`
    /// makes a new session of it. The same command again finishes a restore that was cut off.
    ///
    /// With --in-place nothing is copied: use it once after the store was put back by other means, such as its folder, its
    /// database file or a dump of the server.
    ///
    /// Restore to a place that no program has open.
    Restore(restore_store::Restore),
    /// Do the work that a store has put off: rewrite a SQLite file in which copies of erased data may be left
    ///
    /// Deletions and erasures remove data at once. SQLite leaves copies of rows that it has moved before in unused parts of
    /// the file; `chat verify` names that as pending. The rewrite takes several seconds for each gigabyte, during which other
    /// writers wait, and needs free disk space of up to twice the size of the file, which becomes smaller. If nothing is
    /// pending, and for all other stores, the command does nothing.
    #[command(after_help = examples!("chat maintain --store sqlite:./notes.db", "chat maintain --json"))]
    Maintain,
    /// Suspend, terminate, delete or purge sessions by age, or by a file with all rules
    ///
    /// Each rule gives an age in days; at least one rule is required. Pinned
    /// sessions are not changed, and no run is ended. The output lists every
    /// examined session with the reason for which it is changed or kept.
    ///
    /// With --policy, all rules stand in one file, each may be left out, and ages
    /// have a unit (30min, 12h, 90d, 4w):
    ///
    ///   [sessions]
    ///   inactive = "90d"
    ///   then = "suspend"            # or "terminate"
    ///   delete_terminated = "30d"
    ///   delete_archived = "52w"
    ///   purge_deleted = "30d"
    ///
    ///   [workspaces]
    ///   unused = "90d"              # as `chat workspace gc`
    ///
    ///   [store]
    ///   maintain = true             # as `chat maintain`, in the end
    #[command(verbatim_doc_comment)]
    Sweep(sweep::Sweep),
    /// List administrative operations, newest first
    ///
    /// Shows changes of workspaces, device bindings and configurations, and deleted and purged sessions: the time, the
    /// device, the outcome and the object. Every operation has two entries, its start and its end.
    Audit(AuditCommand),
    /// Search what people and agents have written, newest first
    ///
    /// All words must be in a message, a result of a tool, a title or a document, in any order and case: "two words" in quotes as they
    /// stand, and -word leaves out the texts with that word. A word is found as a whole, but in scripts without spaces any part is. If the
    /// search stops after 64 MiB, it prints how to go on.
    Search(SearchCommand),
    /// Bring the search index up to date, or remove it
    ///
    /// Searches find the same without an index, but read all messages. An index is never brought up to date by itself: run this
    /// once in a while, for example each night; searches read what is newer from the messages. It is kept in the store, in archived sessions
    /// of the workspace default, and holds hashes of words. What it has of deleted sessions goes with the next run. Each tenant has its own, and
    /// each owner (--owner) too.
    Index(IndexCommand),
    /// Show how many bytes sessions store: by kind of content, by workspace, and of the largest sessions
    ///
    /// Counts messages, results of tools, reasoning and files that the events of each session store: of a fork only what is its own, and a file
    /// as often as an event names it. Archived sessions count too, and deleted ones until they are purged. Records, lists and free space of a
    /// database do not, so that the disk holds more. Reads the lists of sessions, and no events.
    Sizes(SizesCommand),
    /// Check all stored data, and report damage
    ///
    /// Changes nothing. Other processes may use the store meanwhile. Work that the store has put off is named as pending,
    /// which is no damage. With --all-tenants, a SQLite file is checked once, not for each tenant.
    ///
    /// With --erased, looks for what an erasure left instead: key rows, sessions, events and blobs of its receipt, and in all
    /// files of the store the texts of the dropped keys, and the words of --words.
    #[command(after_help = examples!("chat verify", "chat verify --all-tenants --json", "chat verify --erased alice.json --words alice.txt"))]
    Verify {
        #[command(flatten)]
        tenants: AllTenants,
        /// Receipt of `chat erase`
        #[arg(long, value_name = "RECEIPT", conflicts_with = "all_tenants")]
        erased: Option<PathBuf>,
        /// File with words that nothing may hold, one on a line
        #[arg(long, value_name = "FILE", requires = "erased")]
        words: Option<PathBuf>,
    },
    /// Rebuild records and lists from the logs of the sessions
    ///
    /// Run this if `chat verify` reports a record or a list that differs from a log. Logs are not changed.
    #[command(after_help = examples!("chat rebuild", "chat rebuild --all-tenants"))]
    Rebuild {
        #[command(flatten)]
        tenants: AllTenants,
    },
    /// Show the format numbers of a store, and whether it must be brought up to those of this version; create tables in PostgreSQL
    ///
    /// Looks at the objects of all tenants. If each has the present number, nothing has to be done, and the code is 0. Objects
    /// with an older or a newer number are named, with code 1; objects that are not readable are named with code 5.
    ///
    /// Changes nothing in a store that exists: this version reads only the forms that it writes. A later version brings the
    /// stores of this one up here, if it does not read them as they are. In a database of PostgreSQL without tables it creates
    /// them, for which the user needs the right to create a schema. `chat verify` reads all data; this command reads the
    /// record of each object.
    #[command(after_help = examples!("chat upgrade", "chat upgrade --store sqlite:notes.db --json", "chat upgrade --store postgres://agent@localhost/agents"))]
    Upgrade,
    /// Print a completion script for a shell
    #[command(after_help = examples!("chat completions bash > ~/.local/share/bash-completion/completions/chat"))]
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
}

/// Checks the configuration file that `--config` names, for what does not read it.
pub(crate) fn check_config(args: &Args) -> Result<()> {
    args.config.as_ref().map_or(Ok(()), |_| host_config::host(args).map(drop))
}

/// Executes a command, and returns the exit code. `grammar` is the whole command line, for completions.
pub(crate) async fn run(command: Command, args: &Args, mut grammar: clap::Command) -> ExitCode {
    // These read the file themselves; a pipe can be read only once.
    let reads = matches!(command, Command::Config(_)) || (cfg!(feature = "mcp") && command.serves());
    let checked = if reads { Ok(()) } else { check_config(args) };
    let checked = checked.and_then(|()| command.refuse_owner(args));
    let done = match command {
        _ if checked.is_err() => checked,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut grammar, "chat", &mut script);
            stdout::put(&script);
            Ok(())
        }
        Command::Copy(copy) => copy.run(args, args.tenant.as_ref()).await,
        Command::Tenant(tenant) => tenant.run(args).await,
        Command::Erase(erase) => erase.run(args).await,
        Command::Verify { erased: Some(receipt), words, .. } => {
            erase::verify(args, &receipt, words.as_deref()).await
        }
        Command::Backup(backup) => backup.run(args).await,
        Command::Restore(restore) => restore.run(args).await,
        Command::Upgrade => upgrade::run(args).await,
        Command::Maintain => maintain::run(args).await,
        Command::Key(key) => key.run(args).await,
        Command::Demo => demo::run(args).await,
        Command::Acp(acp) => match acp.run(args).await {
            Ok(0) => Ok(()),
            Ok(code) => return ExitCode::from(code),
            Err(failure) => Err(failure),
        },
        command => on_store(command, args).await,
    };
    let out = Out::new(args.json);
    let code = done.map_or_else(
        |failure| {
            out.failure(failure.kind, &failure.text);
            failure.code
        },
        |()| 0,
    );
    ExitCode::from(stdout::exit_code(code, |why| out.failure("output", why)))
}

impl Command {
    /// Refuses `--owner` for commands that work on whole tenants.
    fn refuse_owner(&self, args: &Args) -> Result<()> {
        let is_of_tenants = matches!(
            self,
            Self::Copy(_)
                | Self::Tenant(_)
                | Self::Erase(_)
                | Self::Verify { erased: Some(_), .. }
                | Self::Backup(_)
                | Self::Restore(_)
                | Self::Upgrade
                | Self::Maintain
                | Self::Key(_)
        );
        match args.owner.is_some() && is_of_tenants {
            true => Err(Failure::new(
                2,
                "invalid_input",
                "this command works on whole tenants, and not for one owner; leave --owner out",
            )),
            false => Ok(()),
        }
    }

    /// Returns whether the command serves conversations, whose runs may use many threads.
    pub(crate) const fn serves(&self) -> bool {
        matches!(self, Self::Acp(_))
    }

    /// Returns whether the command may create the store; all others require an existing one.
    const fn makes_store(&self) -> bool {
        matches!(
            self,
            Self::Workspace(WorkspaceCommand::Create { .. })
                | Self::Session(SessionCommand::Import { .. })
                | Self::Import(import::Import { dry_run: false, .. })
        )
    }

    /// Returns the option `--all-tenants`, if the command has it.
    const fn tenants(&self) -> Option<&AllTenants> {
        match self {
            Self::Workspace(
                WorkspaceCommand::List { tenants, .. } | WorkspaceCommand::Gc { tenants, .. },
            )
            | Self::Session(SessionCommand::List(ListCommand { tenants, .. }))
            | Self::Device(DeviceCommand::List { tenants, .. })
            | Self::Audit(AuditCommand { tenants, .. })
            | Self::Search(SearchCommand { tenants, .. })
            | Self::Index(IndexCommand { tenants, .. })
            | Self::Sizes(SizesCommand { tenants, .. })
            | Self::Sweep(sweep::Sweep { tenants, .. })
            | Self::Verify { tenants, .. }
            | Self::Rebuild { tenants } => Some(tenants),
            _ => None,
        }
    }

    /// Returns whether the command works without a store, too.
    fn is_of_the_host(&self) -> bool {
        matches!(
            self,
            Self::Config(ConfigCommand::Show { workspace: None, .. })
                | Self::Import(import::Import { dry_run: true, .. })
        )
    }
}

/// Opens the store, executes a command, and closes the store.
async fn on_store(mut command: Command, args: &Args) -> Result<()> {
    if let Command::Sweep(sweep) = &mut command {
        sweep.read()?;
    }
    let address = args.address()?;
    let opened = if command.makes_store() { address.tenants().await } else { address.existing().await };
    let store = match opened {
        // The configuration of the host can be shown without a store, and an import tried.
        Err(error) if *error.kind() == ErrorKind::NotFound && command.is_of_the_host() => {
            agent::open_backend("memory:").await?
        }
        store => store?,
    };
    closing(&*store, on_tenants(command, args, &*store)).await
}

/// Executes a command for one tenant, or for each.
async fn on_tenants(command: Command, args: &Args, store: &dyn Backend) -> Result<()> {
    let out = Out::new(args.json);
    if command.makes_store() {
        let tenant = args.tenant.clone().unwrap_or_default();
        return on_site(command, &Site::new(args, store, &tenant, out)?, false).await;
    }
    // The audit of tenants is checked like a tenant; to people it is none.
    let with_audit = matches!(command, Command::Verify { .. } | Command::Rebuild { .. });
    let chosen = tenants::choose(store, args.tenant.as_ref(), command.tenants(), with_audit).await?;
    let done = on_each(&command, args, store, &chosen).await;
    chosen.print_omitted(&out);
    // Also after damage, which is said in the end: what was removed of the rest is to go from the file, too.
    match &command {
        Command::Sweep(sweep) if done.as_ref().err().is_none_or(|failure| failure.code == 5) => {
            sweep.maintain(&out, store).await.and(done)
        }
        _ => done,
    }
}

/// Executes a command for one tenant after another. Damage in one tenant does not stop the command for the others.
async fn on_each(
    command: &Command,
    args: &Args,
    store: &dyn Backend,
    chosen: &tenants::Chosen,
) -> Result<()> {
    let out = Out::new(args.json);
    let damage = chosen.damaged.first();
    let mut failed: Vec<_> =
        damage.map(|damage| format!("the list of tenants is damaged: {damage}")).into_iter().collect();
    let mut tenants: Vec<String> = Vec::new();
    let mut is_shared_checked = false;
    if chosen.is_all && matches!(command, Command::Verify { .. }) {
        is_shared_checked = match verify::shared(store, &out).await {
            Err(failure) if failure.code == 5 => {
                out.note(&failure.text);
                failed.push("problems were found in the file that all tenants share".to_owned());
                true
            }
            checked => checked?,
        };
    }
    for tenant in &chosen.tenants {
        let site = Site::new(args, store, tenant, out.of(tenant, chosen.others, chosen.is_all))?;
        match on_site(command.clone(), &site, is_shared_checked).await {
            Err(failure) if failure.code == 5 && chosen.is_all => {
                // With the other lines of the tenant.
                site.out.note(&failure.text);
                tenants.push(tenant.to_string());
            }
            done => done?,
        }
    }
    if !tenants.is_empty() {
        let names = tenants.join(", ");
        failed.push(format!("not everything could be read of {names}; see the lines of each tenant above"));
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::incomplete(failed.join("; "))),
    }
}

/// Executes a command for one tenant. A verification leaves out what tenants share if `is_shared_checked` is true.
async fn on_site(command: Command, site: &Site<'_>, is_shared_checked: bool) -> Result<()> {
    match command {
        Command::Workspace(command) => command.run(site).await,
        Command::Session(command) => command.run(site).await,
        Command::Area(command) => command.run(site).await,
        Command::Device(command) => command.run(site).await,
        Command::Config(command) => command.run(site).await,
        Command::Audit(command) => command.run(site).await,
        Command::Search(command) => command.run(site).await,
        Command::Index(command) => command.run(site).await,
        Command::Sizes(command) => command.run(site).await,
        Command::Import(import) => import.run(site).await,
        Command::Sweep(sweep) => sweep.run(site).await,
        Command::Verify { .. } => verify::run(site, is_shared_checked).await,
        Command::Rebuild { .. } => verify::rebuild(site).await,
        // They open stores themselves, or need none.
        Command::Acp(_)
        | Command::Copy(_)
        | Command::Tenant(_)
        | Command::Erase(_)
        | Command::Backup(_)
        | Command::Restore(_)
        | Command::Upgrade
        | Command::Maintain
        | Command::Key(_)
        | Command::Demo
        | Command::Completions { .. } => Ok(()),
    }
}
