//! `chat erase`, and `chat verify --erased`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_admin::audit::audited_backend;
use agent_core::model::Actor;
use agent_core::{Backend, OwnerId, TenantId};
use agent_runtime::erasure::{Eraser, Look, Receipt, Subject, VerifiedErasure, verify_erased};
use bytes::Bytes;
use clap::Subcommand;
use futures::StreamExt;
use serde_json::json;

use super::consent::Consent;
use crate::args::Args;
use crate::content::write_file;
use crate::failure::{Failure, Result, for_users};
use crate::help::examples;
use crate::listing::size;
use crate::output::Out;
use crate::screen::counted;
use crate::stores::{Address, closing};

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum EraseCommand {
    /// Erase the sessions and the workspaces of an owner
    ///
    /// The sessions that have this owner, and the workspaces of the owner with all that is in them.
    #[command(after_help = examples!("chat erase owner alice --receipt alice.json", "chat erase owner alice --receipt alice.json --dry-run"))]
    Owner {
        /// Owner
        #[arg(value_name = "USER")]
        name: OwnerId,
        #[command(flatten)]
        how: How,
    },
    /// Erase the sessions that an actor created, and their children
    #[command(after_help = examples!("chat erase creator user:alice --receipt alice.json"))]
    Creator {
        /// Actor, as `chat session show` prints the creator
        #[arg(value_name = "ACTOR")]
        actor: Actor,
        #[command(flatten)]
        how: How,
    },
    /// Erase a tenant, as `chat tenant delete --now` does, with a receipt
    #[command(after_help = examples!("chat erase tenant acme --receipt acme.json"))]
    Tenant {
        /// Tenant
        name: TenantId,
        #[command(flatten)]
        how: How,
    },
}

/// How something is erased.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct How {
    /// File for the receipt; must not exist, but from the same erasure
    #[arg(long, value_name = "FILE")]
    receipt: PathBuf,
    /// Only show what would be erased
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    consent: Consent,
}

impl EraseCommand {
    pub(super) async fn run(self, args: &Args) -> Result<()> {
        let (subject, tenant, how) = match self {
            Self::Owner { name, how } => (Subject::Owner(name), args.tenant.clone().unwrap_or_default(), how),
            Self::Creator { actor, how } => {
                (Subject::Creator(actor), args.tenant.clone().unwrap_or_default(), how)
            }
            Self::Tenant { name, how } => {
                args.refuse_tenant(
                    "`chat erase tenant` takes the tenant as its argument, and not by --tenant",
                )?;
                (Subject::Tenant, name, how)
            }
        };
        let address = args.address()?;
        // With the keys of an encrypted store, if they were given.
        let store = address.existing().await?;
        closing(&*store.clone(), erase(args, &address, store, tenant, subject, how)).await
    }
}

async fn erase(
    args: &Args,
    address: &Address,
    store: Arc<dyn Backend>,
    tenant: TenantId,
    subject: Subject,
    how: How,
) -> Result<()> {
    let (out, what) = (Out::new(args.json), format!("{subject} in tenant {tenant}"));
    let eraser = Eraser::new(store.clone(), tenant.clone(), subject)
        .with_place(address.shown())
        .with_changes_through(audited_backend(store, args.actor()?));
    let preview = eraser.preview().await?;
    let contents =
        format!("{}, {}", counted(preview.sessions, "session"), counted(preview.workspaces, "workspace"));
    if how.dry_run {
        let whole = json!({"dry_run": true, "sessions": preview.sessions, "workspaces": preview.workspaces, "begun": preview.is_begun});
        out.result(&whole, &format!("would erase {what}: {contents}"));
        return Ok(());
    }
    let is_there = how.receipt.symlink_metadata().is_ok();
    if is_there && !(preview.is_begun && read(&how.receipt).is_ok()) {
        let text = format!("{} exists already; name another file for the receipt", how.receipt.display());
        return Err(Failure::new(4, "exists", text));
    }
    // No question is asked about what is not there, which the erasure says.
    if preview.sessions > 0 || preview.workspaces > 0 {
        how.consent.ask(&format!("the erasure of {what} ({contents})"))?;
    }
    let receipt = eraser.run().await?;
    let text = receipt.to_text()? + "\n";
    let content = futures::stream::once(async { Ok(Bytes::from(text)) }).boxed();
    write_file(&how.receipt, is_there, content, None).await?;
    eraser.settle().await?;
    print(&out, &receipt, &how.receipt, &what)
}

fn print(out: &Out, receipt: &Receipt, file: &Path, what: &str) -> Result<()> {
    let text = format!(
        "erased {what}: {}, {}, {}; the receipt is in {}",
        counted(receipt.sessions.len() as u64, "session"),
        counted(receipt.workspaces.len() as u64, "workspace"),
        counted(receipt.keys.len() as u64, "key"),
        file.display()
    );
    let whole = json!({
        "dry_run": false, "sessions": receipt.sessions, "workspaces": receipt.workspaces, "keys": receipt.keys.len(),
        "kept": receipt.kept, "named": receipt.named, "receipt": file,
    });
    out.result(&whole, &text);
    if !receipt.named.is_empty() {
        let names = counted(receipt.named.len() as u64, "tombstone");
        out.note(&format!("({names} of this store still has the owner's name; the receipt names each)"));
    }
    for kept in &receipt.kept {
        out.note(&format!(
            "kept: session {}, which session {} was forked from and reads",
            kept.session, kept.fork
        ));
    }
    match receipt.kept.len() as u64 {
        0 => Ok(()),
        count => Err(Failure::incomplete(format!(
            "{} kept for forks of others (listed above); erase these forks, then run the same erasure again",
            counted(count, "session")
        ))),
    }
}

fn read(file: &Path) -> Result<Receipt> {
    let text = std::fs::read_to_string(file).map_err(|error| Failure::of_file("read", file, &error))?;
    Ok(Receipt::parse(text.trim_end())?)
}

/// Looks for what the erasure of a receipt left.
pub(super) async fn verify(args: &Args, receipt: &Path, words: Option<&Path>) -> Result<()> {
    args.refuse_tenant("the receipt names the tenant; leave --tenant out")?;
    let receipt = read(receipt)?;
    let words = match words {
        Some(file) => {
            std::fs::read_to_string(file).map_err(|error| Failure::of_file("read", file, &error))?
        }
        None => String::new(),
    };
    let address = args.address()?;
    let words: Vec<_> = words.lines().map(str::trim).filter(|word| !word.is_empty()).collect();
    let look = Look::new().with_words(words).with_files(files(&address));
    // With the keys of an encrypted store, if they were given.
    let store = address.existing().await?;
    let found = closing(&*store, async { Ok(verify_erased(&*store, &receipt, look).await?) }).await?;
    report(&Out::new(args.json), &receipt, &found)
}

/// Returns the files of a store on this machine.
fn files(address: &Address) -> Vec<PathBuf> {
    if let Some(folder) = address.folder() {
        return vec![folder.to_owned()];
    }
    let Some(database) = address.database() else { return Vec::new() };
    let with = |end: &str| {
        let mut path = database.path().as_os_str().to_owned();
        path.push(end);
        PathBuf::from(path)
    };
    ["", "-wal", "-shm", "-journal"].map(with).into()
}

fn report(out: &Out, receipt: &Receipt, found: &VerifiedErasure) -> Result<()> {
    let sessions = counted(receipt.sessions.len() as u64, "erased session");
    let searched = match found.files {
        0 => "what the store returns".to_owned(),
        files => format!("what the store returns, and {} with {}", counted(files, "file"), size(found.bytes)),
    };
    let text = format!(
        "the receipt is authentic; looked for {sessions} in {searched}\nnot seen: {}",
        found.unseen.join("; ")
    );
    let whole = json!({"left": found.left, "files": found.files, "bytes": found.bytes, "unseen": found.unseen, "kept": receipt.kept});
    out.result(&whole, &text);
    found.left.iter().for_each(|left| out.note(&format!("left: {}", for_users(&left.to_string()))));
    for kept in &receipt.kept {
        out.note(&format!("kept, as the receipt says: session {}, for session {}", kept.session, kept.fork));
    }
    match found.left.len() as u64 {
        0 => Ok(()),
        count => Err(Failure::incomplete(format!(
            "{} left (listed above); run the erasure again, and remove what is in other files by hand",
            counted(count, "object")
        ))),
    }
}
