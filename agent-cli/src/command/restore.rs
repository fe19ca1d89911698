//! Sessions that come in: `chat session import`, `salvage` and `restore`.

use std::path::Path;

use agent_admin::archive::{Archive, is_archive};
use agent_admin::manifest::{ImportOutcome, Imported, Manifest};
use agent_admin::salvage::{self, Salvaged};
use agent_core::json::{RawFields, RawJson};
use agent_core::session::NewSession;
use agent_core::state::SessionState;
use agent_core::store::own_events;
use agent_core::{
    Error, ErrorKind, MemoryStore, Seq, SessionId, SessionStore, Storage, TenantId, WorkspaceId,
};
use agent_runtime::NewWorkspace;
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::json;

use super::site::Site;
use crate::content::{not_text, read_once, shown, too_large};
use crate::failure::{Failure, Result};
use crate::screen::counted;
use crate::stores::copy_address;

/// Options of `chat session restore`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RestoreCommand {
    /// Id of the session in the backup
    id: SessionId,
    /// Store with the backup, as `chat copy` takes it, or a document or archive of `chat session export`
    #[arg(long, value_name = "STORE|FILE")]
    from: String,
    /// Workspace id of the new session (default: that of the session in the backup)
    #[arg(long, value_name = "ID")]
    workspace: Option<WorkspaceId>,
    /// Set the new session as the main session of its workspace
    #[arg(long)]
    main: bool,
}

impl RestoreCommand {
    pub(super) async fn run(self, site: &Site<'_>) -> Result<()> {
        if Path::new(&self.from).is_file() {
            // Its sessions keep their ids there, whatever they are derived from.
            let backup = Storage::from(MemoryStore::new());
            read_and_import(&*backup.sessions, self.from.as_ref(), true).await?;
            return self.restore(site, &backup).await;
        }
        let address = copy_address(&self.from).map_err(|why| Failure::new(2, "invalid_input", why))?;
        let (store, converted) = address.source().await?;
        let tenant: TenantId = site.args.tenant.clone().unwrap_or_default();
        let restored = self.restore(site, &store.tenant(&tenant)).await;
        let closed = store.close().await;
        drop(converted);
        restored.and(Ok(closed?))
    }

    async fn restore(&self, site: &Site<'_>, backup: &Storage) -> Result<()> {
        if is_sound(site, self.id).await {
            site.out.result(&json!({"session": self.id, "of": self.id, "read": 0}), &self.id.to_string());
            site.out.note("(the session is in this store, and sound; nothing was written)");
            return Ok(());
        }
        let record = backup.sessions.load(self.id).await.ok();
        let workspace = self.workspace.or(record.as_ref().map(|record| record.workspace));
        let workspace = workspace.unwrap_or(WorkspaceId::DEFAULT);
        workspace_of(site, workspace, true).await?;
        let key = record.as_ref().and_then(|record| record.conversation_key());
        let mut new = NewSession::new(site.storage.effects().new_session_id(), workspace);
        if let Some(key) = key {
            // The next session of the key, if the last one is deleted or cannot be read.
            let newest = site.manager.newest_conversation(workspace, &key).await?;
            let taken = newest.as_ref().and_then(|newest| newest.record.as_ref().ok());
            match taken.filter(|session| session.status.state != SessionState::Deleted) {
                Some(taken) => {
                    let id = taken.id;
                    site.out.note(&format!("(session {id} has its key, so that the restored one gets none)"));
                }
                None => {
                    let generation = newest.map_or(0, |newest| newest.generation + 1);
                    new = NewSession::conversation(&key, site.storage.owner(), workspace, generation);
                }
            }
        }
        if let Some(record) = &record {
            new.created.owner.clone_from(&record.owner);
            new.creator = Some(record.creator.clone());
        }
        if let Some(former) = record.as_ref().and_then(|record| record.attributes.supersedes()) {
            site.out.note(&format!(
                "(the restored session has no branches; what was there before an edit, a retry or an undo is session {former} of \
                 the backup)"
            ));
        }
        let restored = salvage::restore(backup, self.id, &site.storage, new).await?;
        finish_salvage(site, self.id, &restored, self.main).await
    }
}

/// Returns whether a session is there, not deleted, and can be read to its end.
async fn is_sound(site: &Site<'_>, id: SessionId) -> bool {
    let sessions = &*site.storage.sessions;
    match sessions.load(id).await {
        Ok(now) if now.status.state != SessionState::Deleted => {
            let events = own_events(sessions, id, Seq::ZERO, None);
            events.try_for_each(|_| std::future::ready(Ok(()))).await.is_ok()
        }
        _ => false,
    }
}

/// Imports the document or archive in a file.
async fn read_and_import(sessions: &dyn SessionStore, file: &Path, with_ancestors: bool) -> Result<Imported> {
    let name = shown(file);
    let name = name.display();
    let about = |error: Error| Failure::from(error.about(name.to_string()));
    let (mut content, len) = read_once(file)?;
    let first = content.try_next().await?.unwrap_or_default();
    if is_archive(&first) {
        let content = stream::iter([Ok(first)]).chain(content).boxed();
        let archive = Archive::open(content).await.map_err(about)?;
        let imported = match with_ancestors {
            true => archive.import_with_ancestors(sessions).await,
            false => archive.import(sessions).await,
        };
        return imported.map_err(about);
    }
    if first.starts_with(&GZIP_MAGIC) {
        let text = format!("cannot read {name}: it is compressed; decompress it with `gzip -d` first");
        return Err(Failure::new(1, "invalid_input", text));
    }
    let too_large = || too_large(file, DOCUMENT_MAX);
    if len.is_some_and(|len| len > DOCUMENT_MAX) {
        return Err(too_large());
    }
    let mut bytes = first.to_vec();
    while let Some(piece) = content.try_next().await? {
        bytes.extend_from_slice(&piece);
        if bytes.len() as u64 > DOCUMENT_MAX {
            return Err(too_large());
        }
    }
    let text = String::from_utf8(bytes).map_err(|_| not_text(file))?;
    let document = Manifest::parse(&text).map_err(about)?;
    let imported = match with_ancestors {
        true => document.import_with_ancestors(sessions).await,
        false => document.import(sessions).await,
    };
    imported.map_err(about)
}

/// Maximum number of bytes of a session document.
const DOCUMENT_MAX: u64 = 1 << 30;
/// First bytes of a gzip file (RFC 1952).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

pub(super) async fn import(
    site: &Site<'_>,
    file: &Path,
    with_ancestors: bool,
    create_workspace: bool,
) -> Result<()> {
    let imported =
        read_and_import(&*site.storage.sessions, file, with_ancestors).await.map_err(|failure| {
            // The library names its method; the program has an option instead.
            Failure { text: failure.text.replace("import_with_ancestors", "--with-ancestors"), ..failure }
        })?;
    let session = &imported.session;
    let (created, missing) = workspace_of(site, session.workspace, create_workspace).await?;
    let mut whole: RawFields = RawJson::sure(&**session).to()?;
    whole.insert("outcome", RawJson::sure(&imported.outcome.name()));
    whole.insert("events_written", RawJson::sure(&imported.events));
    whole.insert("blobs_written", RawJson::sure(&imported.blobs));
    whole.insert("events_ahead", RawJson::sure(&imported.ahead));
    whole.insert("workspace_exists", RawJson::sure(&missing.is_none()));
    site.out.result(&whole, &session.id.to_string());
    let events = counted(imported.events, "event");
    site.out.note(&match imported.outcome {
        ImportOutcome::New => format!("(new session; {events} written)"),
        ImportOutcome::Completed => format!("(an incomplete session was completed; {events} written)"),
        ImportOutcome::Ahead => format!(
            "(the store has all events of the export and {} more, so there was nothing to restore; nothing was written)",
            imported.ahead
        ),
        _ => "(the session was already in the store; nothing was written)".to_owned(),
    });
    let workspace = session.workspace;
    if created {
        site.out.note(&format!("(workspace {workspace} was created)"));
    }
    match missing {
        None => {}
        Some(ErrorKind::Deleted) => site.out.note(&format!(
            "(warning: its workspace {workspace} was deleted in this store, so `chat workspace gc` will delete the session; \
             import it into another store)"
        )),
        Some(_) => site.out.note(&format!(
            "(warning: its workspace {workspace} is not in this store, so no device can open it, and `chat verify` reports \
             it; to create it, run the command again without --no-workspace; to copy it from another store, run \
             `chat copy FROM TO --workspace {workspace}`)"
        )),
    }
    Ok(())
}

/// Creates the workspace of an imported session, if that is wanted and the store does not have it. Returns whether it was
/// created, and otherwise why the store does not have it.
async fn workspace_of(
    site: &Site<'_>,
    workspace: WorkspaceId,
    create: bool,
) -> Result<(bool, Option<ErrorKind>)> {
    let Err(error) = site.storage.workspaces.load(workspace).await else { return Ok((false, None)) };
    match error.kind() {
        ErrorKind::NotFound if create => {
            match site.manager.create(NewWorkspace::default().with_id(workspace)).await {
                // Another process was faster.
                Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => Ok((false, None)),
                done => Ok(done.map(|_| (true, None))?),
            }
        }
        missing @ (ErrorKind::NotFound | ErrorKind::Deleted) => Ok((false, Some(missing.clone()))),
        _ => Ok((false, None)),
    }
}

/// Salvages a damaged session.
pub(super) async fn salvage(
    site: &Site<'_>,
    id: SessionId,
    into: Option<WorkspaceId>,
    main: bool,
) -> Result<()> {
    let saved = salvage::salvage(&site.storage, id, into).await?;
    finish_salvage(site, id, &saved, main).await
}

/// Makes a salvaged session the main one, if that is wanted, and prints it, with what was lost.
async fn finish_salvage(site: &Site<'_>, id: SessionId, saved: &Salvaged, main: bool) -> Result<()> {
    if main {
        let new = &saved.session;
        site.manager.set_main_session(new.workspace, new.id).await.map_err(|error| {
            let text = format!(
                "session {id} was salvaged as {new}, which could not be set as the main session; run `chat workspace \
                 set-main {} {new}`",
                new.workspace,
                new = new.id
            );
            Error::new(error.kind().clone(), text).with_source(error)
        })?;
    }
    let lost: Vec<_> = saved
        .lost
        .iter()
        .map(|lost| json!({"first": lost.first, "last": lost.last, "reason": lost.reason}))
        .collect();
    let new = saved.session.id;
    let whole = json!({"session": new, "of": id, "main": main, "read": saved.read, "lost": lost});
    site.out.result(&whole, &new.to_string());
    saved.lost.iter().for_each(|lost| site.out.note(&format!("lost: {lost}")));
    if saved.lost.is_empty() {
        return Ok(());
    }
    let mut text = format!(
        "salvaged {} of session {id} as session {new}; {} could not be read (listed above), and a message in the new session \
         marks each",
        counted(saved.read, "event"),
        counted(saved.lost.len() as u64, "range")
    );
    if !main {
        let workspace = saved.session.workspace;
        text.push_str(&format!(
            "; if it replaces the main session, run `chat workspace set-main {workspace} {new}`"
        ));
    }
    Err(Failure::incomplete(text))
}
