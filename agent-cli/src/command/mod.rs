//! The commands of the command line: one room for each noun.

mod area;
mod audit;
mod backup;
mod config;
mod consent;
mod copy;
mod device;
mod output;
mod progress;
mod session;
mod site;
mod sweep;
mod tenants;
mod verify;
mod workspace;

use std::process::ExitCode;

use agent_core::store::Registry;
use agent_core::{ErrorKind, Tenants};
use clap::Subcommand;

use crate::args::Args;
use crate::failure::Failure;
use crate::stdout;
use area::AreaCommand;
use audit::AuditCommand;
use config::ConfigCommand;
use device::DeviceCommand;
use output::Out;
use session::SessionCommand;
use site::Site;
use tenants::AllTenants;
use workspace::WorkspaceCommand;

/// What can be done beside the conversation.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Workspaces: list, create, show, set the main session, delete, collect what nobody uses
    #[command(subcommand)]
    Workspace(WorkspaceCommand),
    /// Sessions: list, show, export, import, fork, pin, salvage, delete
    #[command(subcommand)]
    Session(SessionCommand),
    /// What all sessions of a workspace share, in its areas mcp, skills and memory: list, get, put, delete
    #[command(subcommand)]
    Area(AreaCommand),
    /// Devices, and the workspaces that they are bound to
    #[command(subcommand)]
    Device(DeviceCommand),
    /// Configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Copy all of a store, or one workspace, to another store; again, to finish what was cut off
    Copy(copy::Copy),
    /// Copy a database file whole, with all tenants, while others write to it: a snapshot of one moment
    Backup(backup::Backup),
    /// Set aside, end, delete and purge sessions by their age
    Sweep(sweep::Sweep),
    /// What commands have done to workspaces and devices, which sessions they removed, as which device and when: the latest first
    Audit(AuditCommand),
    /// Look through everything that is stored, and name what is damaged
    Verify {
        #[command(flatten)]
        tenants: AllTenants,
    },
    /// Make anew what the store derives from the logs of its sessions: their records, and what lists show
    Rebuild {
        #[command(flatten)]
        tenants: AllTenants,
    },
    /// Print what lets a shell complete this command line
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// Whether the configuration that is named can be read. Only `config show` shows it; all else refuses one that is no good.
pub(crate) fn check_config(args: &Args) -> Result<(), Failure> {
    args.config.as_ref().map_or(Ok(()), |_| config::host(args).map(drop))
}

/// Does what was asked, and says how it went. `grammar` is the whole command line, which completions are made from.
pub(crate) async fn run(command: Command, args: &Args, mut grammar: clap::Command) -> ExitCode {
    // One that is shown says itself what is wrong with it; a pipe is read once.
    let checked = if matches!(command, Command::Config(_)) { Ok(()) } else { check_config(args) };
    let done = match command {
        _ if checked.is_err() => checked,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut grammar, "chat", &mut script);
            stdout::put(&script);
            Ok(())
        }
        Command::Copy(copy) => copy.run(args).await,
        Command::Backup(backup) => backup.run(args).await,
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
    /// Whether it may make the store. All else works on one that is there.
    fn makes_store(&self) -> bool {
        match self {
            Self::Workspace(command) => command.makes_store(),
            Self::Session(command) => command.makes_store(),
            _ => false,
        }
    }

    /// Which tenants it works on, if it may be several.
    fn tenants(&self) -> Option<&AllTenants> {
        match self {
            Self::Workspace(command) => command.tenants(),
            Self::Session(command) => command.tenants(),
            Self::Device(command) => command.tenants(),
            Self::Audit(command) => Some(command.tenants()),
            Self::Sweep(sweep) => Some(sweep.tenants()),
            Self::Verify { tenants } | Self::Rebuild { tenants } => Some(tenants),
            _ => None,
        }
    }

    /// Whether it says something without a store, too.
    fn is_of_the_host(&self) -> bool {
        matches!(self, Self::Config(ConfigCommand::Show { workspace: None, .. }))
    }
}

/// Opens the store, does what was asked, and closes the store.
async fn on_store(command: Command, args: &Args) -> Result<(), Failure> {
    let address = args.address()?;
    let opened = if command.makes_store() { address.tenants().await } else { address.existing().await };
    let store = match opened {
        // The host's own configuration is there without a store.
        Err(error) if *error.kind() == ErrorKind::NotFound && command.is_of_the_host() => {
            Registry::new().address("memory:")?.open().await?
        }
        store => store?,
    };
    let done = on_tenants(command, args, &*store).await;
    let closed = store.close().await;
    done.and(closed.map_err(Failure::from))
}

/// Does what was asked for one tenant, or for each.
async fn on_tenants(command: Command, args: &Args, store: &dyn Tenants) -> Result<(), Failure> {
    let out = Out::new(args.json);
    if command.makes_store() {
        let tenant = args.tenant.clone().unwrap_or_default();
        return on_site(command, &Site::new(args, store, &tenant, out)?).await;
    }
    let chosen = tenants::choose(store, args.tenant.as_ref(), command.tenants()).await?;
    let done = on_each(&command, args, store, &chosen).await;
    chosen.told(&out);
    done
}

/// Does what was asked for one tenant after the other. What is damaged in one hides nothing of another.
async fn on_each(
    command: &Command,
    args: &Args,
    store: &dyn Tenants,
    chosen: &tenants::Chosen,
) -> Result<(), Failure> {
    let out = Out::new(args.json);
    let damage = chosen.damaged.first();
    let mut failed =
        damage.map(|damage| Failure::incomplete(format!("the list of tenants is damaged: {damage}")));
    for tenant in &chosen.tenants {
        let site = Site::new(args, store, tenant, out.of(tenant, chosen.others, chosen.is_all))?;
        match on_site(command.clone(), &site).await {
            Err(failure) if failure.code == 5 && chosen.is_all => {
                let failure = Failure { text: format!("tenant {tenant}: {}", failure.text), ..failure };
                if let Some(earlier) = failed.replace(failure) {
                    out.note(&earlier.text);
                }
            }
            done => done?,
        }
    }
    failed.map_or(Ok(()), Err)
}

async fn on_site(command: Command, site: &Site<'_>) -> Result<(), Failure> {
    match command {
        Command::Workspace(command) => command.run(site).await,
        Command::Session(command) => command.run(site).await,
        Command::Area(command) => command.run(site).await,
        Command::Device(command) => command.run(site).await,
        Command::Config(command) => command.run(site).await,
        Command::Audit(command) => command.run(site).await,
        Command::Sweep(sweep) => sweep.run(site).await,
        Command::Verify { .. } => verify::run(site).await,
        Command::Rebuild { .. } => verify::rebuild(site).await,
        Command::Copy(_) | Command::Backup(_) | Command::Completions { .. } => Ok(()),
    }
}
