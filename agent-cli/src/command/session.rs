//! `chat session`.

use agent_admin::salvage;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use agent_admin::manifest::Manifest;
use agent_core::event::NewEvent;
use agent_core::json::{RawFields, RawJson};
use agent_core::model::Patch;
use agent_core::session::{Session, SessionSummary};
use agent_core::state::SessionState;
use agent_core::store::{Cursor, Damaged, ReadEvents, SessionQuery};
use agent_core::{Error, ErrorKind, Seq, SessionId, SessionStoreExt, WorkspaceId};
use clap::Subcommand;
use serde_json::{Value, json};

use super::output::{damage, line, page_of, put, raw};
use super::site::Site;
use super::tenants::AllTenants;
use crate::bounded::{DOCUMENT_MAX, read_text};
use crate::failure::Failure;
use crate::screen::spoken;
use crate::slash::{SHOWN, minute};

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List sessions, the one that was used last first
    List {
        /// Only of this workspace
        #[arg(long, value_name = "ID")]
        workspace: Option<WorkspaceId>,
        /// Only in this state; may be given several times
        #[arg(long, value_name = "STATE", value_parser = state)]
        state: Vec<SessionState>,
        /// Only with this label; may be given several times
        #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
        label: Vec<(String, String)>,
        /// Archived and deleted ones, too
        #[arg(long, conflicts_with = "state")]
        all: bool,
        /// At most so many
        #[arg(long, value_name = "N", default_value = "50")]
        limit: usize,
        /// Go on behind this, which a list has printed as `next`
        #[arg(long, value_name = "CURSOR")]
        after: Option<Cursor>,
        #[command(flatten)]
        tenants: AllTenants,
    },
    /// Show a session, and what was said last
    Show {
        /// Its id
        id: SessionId,
        /// So much of what was said
        #[arg(long, value_name = "N", default_value = "10")]
        turns: usize,
    },
    /// Write a session as one document, with all of its events
    Export {
        /// Its id
        id: SessionId,
        /// Into this file, which must not be there yet [default: standard output]
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Store a session as a document says it is; again, to finish what was cut off
    Import {
        /// The file; - is standard input
        file: PathBuf,
        /// Also complete the sessions it was forked from, where an import was cut off; for documents that you trust
        #[arg(long)]
        with_ancestors: bool,
    },
    /// Make a session that goes on from another one's history
    Fork {
        /// The other one's id
        id: SessionId,
        /// After this event [default: the last]
        #[arg(long, value_name = "EVENT")]
        at: Option<u64>,
    },
    /// Make a new session of all that can be read of a damaged one, which stays as it is
    Salvage {
        /// Its id
        id: SessionId,
        /// Make it in this workspace [default: that of the damaged one]
        #[arg(long, value_name = "ID")]
        workspace: Option<WorkspaceId>,
        /// Make the new one the main session of its workspace
        #[arg(long)]
        main: bool,
    },
    /// Pin a session: no sweep touches it, and no collection the workspace that it belongs to
    Pin {
        /// Its id
        id: SessionId,
        /// Why
        #[arg(long, value_name = "TEXT")]
        why: String,
    },
    /// Take a session's pin away
    Unpin {
        /// Its id
        id: SessionId,
    },
    /// Delete a session, a damaged one too; its id is not used again. Its bytes stay until it is purged
    Delete {
        /// Its id
        id: SessionId,
        /// Remove its bytes, too, but for what its forks read
        #[arg(long)]
        purge: bool,
    },
}

fn state(text: &str) -> Result<SessionState, String> {
    let known = || SessionState::ALL.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let found = SessionState::ALL.iter().find(|state| state.to_string() == text);
    found.copied().ok_or_else(|| format!("the states are {}", known()))
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a label is written KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

impl SessionCommand {
    pub(super) async fn run(self, site: &Site<'_>) -> Result<(), Failure> {
        match self {
            Self::List { workspace, state, label, all, limit, after, tenants: _ } => {
                let mut query = SessionQuery::new().states(state).with_total().limit(limit).cursor(after);
                if all {
                    query = query.with_hidden();
                }
                query.workspace = workspace;
                query.labels.extend(label);
                list(site, query).await
            }
            Self::Show { id, turns } => show(site, id, turns).await,
            Self::Export { id, output } => export(site, id, output.as_deref()).await,
            Self::Import { file, with_ancestors } => import(site, &file, with_ancestors).await,
            Self::Fork { id, at } => {
                let fork = site.storage.sessions.fork(&site.effects, id, at.map(Seq::new)).await?;
                site.out.result(&value(&fork.to_json())?, &fork.id.to_string());
                Ok(())
            }
            Self::Salvage { id, workspace, main } => salvage(site, id, workspace, main).await,
            Self::Pin { id, why } => {
                change(site, id, &format!("pinned session {id}: {why}"), Patch::new().pin(&why)).await
            }
            Self::Unpin { id } => {
                change(site, id, &format!("unpinned session {id}"), Patch::new().unpin()).await
            }
            Self::Delete { id, purge } => {
                site.manager.delete_session(id).await?;
                let events = match purge {
                    true => {
                        let purged = site.manager.purge(id).await;
                        purged.map_err(|error| not_purged(id, error))?.events
                    }
                    false => 0,
                };
                let text = match events {
                    _ if !purge => format!(
                        "deleted session {id}; its events stay until it is purged (session delete {id} --purge)"
                    ),
                    0 => format!("deleted session {id}; it had no events left to remove"),
                    1 => format!("deleted session {id}, and removed its one event"),
                    events => format!("deleted session {id}, and removed its {events} events"),
                };
                site.out.result(&json!({"session": id, "purged_events": events}), &text);
                Ok(())
            }
        }
    }

    pub(super) fn makes_store(&self) -> bool {
        matches!(self, Self::Import { .. })
    }

    pub(super) fn tenants(&self) -> Option<&AllTenants> {
        match self {
            Self::List { tenants, .. } => Some(tenants),
            _ => None,
        }
    }
}

/// The failure of a purge behind a deletion that was done.
fn not_purged(id: SessionId, error: Error) -> Failure {
    let failure = Failure::from(error);
    let text = format!("session {id} is deleted now, and its events are still there: {}", failure.text);
    Failure { text, ..failure }
}

/// Changes what is said of a session.
async fn change(site: &Site<'_>, id: SessionId, text: &str, patch: Patch) -> Result<(), Failure> {
    let seen = site.storage.sessions.load(id).await?.head;
    let changed = vec![NewEvent::updated(patch)];
    let done = site.storage.sessions.append(&site.effects, id, seen, changed).await?;
    site.out.result(&value(&done.session.to_json())?, text);
    Ok(())
}

async fn list(site: &Site<'_>, query: SessionQuery) -> Result<(), Failure> {
    let page = site.storage.sessions.list(query).await?;
    let row = |session: &SessionSummary| {
        let title = session.attributes.title.as_ref().map(|title| title.text.clone());
        vec![
            session.id.to_string(),
            minute(session.last_active_at),
            session.status.state.to_string(),
            session.counts.messages().to_string(),
            session.workspace.to_string(),
            title.unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = page.items.iter().map(row).collect();
    let next = page.next.as_ref().map(ToString::to_string);
    let whole = page_of(&page.items, page.total, next.as_deref(), &page.damaged);
    site.out.table(&whole, &["ID", "LAST USED", "STATE", "MESSAGES", "WORKSPACE", "TITLE"], &rows);
    if let Some(next) = next {
        site.out.note(&format!("(more: --after '{next}')"));
    }
    named(site, &page.damaged)
}

async fn show(site: &Site<'_>, id: SessionId, turns: usize) -> Result<(), Failure> {
    let session = site.storage.sessions.load(id).await?;
    let mut turns_page = agent_core::store::EventPage::new(Vec::new());
    if turns > 0 && session.status.state != SessionState::Deleted {
        let read = ReadEvents::last(turns).after(session.visible_from).kinds(SHOWN);
        turns_page = site.storage.sessions.history_of(&session, read).await?;
    }
    if site.out.is_json() {
        let mut whole = value(&session.to_json())?;
        let events =
            turns_page.events.iter().map(|event| value(&event.to_json())).collect::<Result<Vec<_>, _>>()?;
        whole.insert("turns", raw(&events));
        whole.insert("damaged", raw(&damage(&turns_page.damaged)));
        site.out.result(&whole, "");
        return named(site, &turns_page.damaged);
    }
    site.out.fields(&Value::Null, &fields(&session));
    if !turns_page.events.is_empty() {
        line("");
    }
    turns_page.events.iter().filter_map(spoken).for_each(|said| line(&said));
    named(site, &turns_page.damaged)
}

fn fields(session: &Session) -> [(&'static str, String); 12] {
    let title = session.attributes.title.as_ref().map(|title| title.text.clone());
    let labels: Vec<_> =
        session.attributes.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    [
        ("session", title.unwrap_or_default()),
        ("id", session.id.to_string()),
        ("workspace", session.workspace.to_string()),
        ("state", session.status.to_string()),
        ("parent", session.origin.parent().map(|id| id.to_string()).unwrap_or_default()),
        ("creator", session.creator.to_string()),
        ("created", session.created_at.to_string()),
        ("last used", session.last_active_at.to_string()),
        ("messages", session.counts.messages().to_string()),
        ("waiting", session.pending.to_string()),
        ("events", session.head.to_string()),
        ("labels", labels.join(", ")),
    ]
}

async fn export(site: &Site<'_>, id: SessionId, output: Option<&Path>) -> Result<(), Failure> {
    let document = Manifest::export(&*site.storage.sessions, id).await?.to_json();
    let Some(file) = output else {
        put(&document);
        return Ok(());
    };
    let failed = |error: std::io::Error| Failure::of_file("write", file, &error);
    // A conversation is for its owner.
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut written = options.open(file).map_err(failed)?;
    if let Err(error) = written.write_all(document.as_bytes()).and_then(|()| written.sync_all()) {
        // Half a document is in the way of the next attempt.
        let _ = std::fs::remove_file(file);
        return Err(failed(error));
    }
    site.out.result(
        &json!({"session": id, "file": file, "bytes": document.len()}),
        &format!("wrote session {id} to {}", file.display()),
    );
    Ok(())
}

async fn import(site: &Site<'_>, file: &Path, with_ancestors: bool) -> Result<(), Failure> {
    let text = read_text(file, DOCUMENT_MAX)?;
    let (document, sessions) = (Manifest::parse(&text)?, &*site.storage.sessions);
    let session = match with_ancestors {
        true => document.import_with_ancestors(sessions).await?,
        false => document.import(sessions).await.map_err(|error| {
            let failure = Failure::from(error);
            // The library names its call, this program its option.
            Failure { text: failure.text.replace("import_with_ancestors", "--with-ancestors"), ..failure }
        })?,
    };
    let left = match site.storage.workspaces.load(session.workspace).await {
        Err(error) if *error.kind() == ErrorKind::NotFound => Some("is not in this store"),
        Err(error) if *error.kind() == ErrorKind::Deleted => Some("was deleted in this store"),
        _ => None,
    };
    let mut whole = value(&session.to_json())?;
    whole.insert("workspace_is_there", raw(&left.is_none()));
    site.out.result(&whole, &session.id.to_string());
    match left {
        Some(what) if what.contains("deleted") => site.out.note(&format!(
            "(its workspace {} {what}, so that `chat workspace gc` removes the session; import it elsewhere)",
            session.workspace
        )),
        Some(what) => site.out.note(&format!(
            "(its workspace {workspace} {what}, so that no device opens it and `chat verify` names it; from the store that \
             it comes from, `chat copy FROM TO --workspace {workspace}` brings the workspace)",
            workspace = session.workspace
        )),
        None => {}
    }
    Ok(())
}

async fn salvage(
    site: &Site<'_>,
    id: SessionId,
    into: Option<WorkspaceId>,
    main: bool,
) -> Result<(), Failure> {
    let saved = salvage::salvage(&site.storage, &site.effects, id, into).await?;
    if main {
        let new = &saved.session;
        site.manager.set_main_session(new.workspace, new.id).await.map_err(|error| {
            let text = format!(
                "session {id} is salvaged as {}, which could not be made the main session of workspace {}; set it there",
                new.id, new.workspace
            );
            Error::new(error.kind().clone(), text).with_source(error)
        })?;
    }
    let gaps: Vec<_> = saved
        .gaps
        .iter()
        .map(|gap| json!({"first": gap.first, "last": gap.last, "reason": gap.reason}))
        .collect();
    let new = saved.session.id;
    site.out.result(
        &json!({"session": new, "of": id, "main": main, "read": saved.read, "gaps": gaps}),
        &new.to_string(),
    );
    saved.gaps.iter().for_each(|gap| site.out.note(&format!("lost: {gap}")));
    match saved.gaps.len() {
        0 => Ok(()),
        count => Err(Failure::incomplete(format!(
            "{} events of session {id} are saved; {count} stretches of it cannot be read, and stand as notes in the new one",
            saved.read
        ))),
    }
}

/// Says what a list could not read, and fails where there is any.
pub(super) fn named(site: &Site<'_>, damaged: &[Damaged]) -> Result<(), Failure> {
    damaged.iter().for_each(|damage| site.out.note(&format!("damaged: {damage}")));
    match damaged.len() {
        0 => Ok(()),
        1 => Err(Failure::incomplete("one item is damaged; it is named above, and kept as it is")),
        more => Err(Failure::incomplete(format!(
            "{more} items are damaged; they are named above, and kept as they are"
        ))),
    }
}

/// JSON of the library, field by field.
fn value(json: &str) -> Result<RawFields, Failure> {
    Ok(RawJson::parse(json)?.to()?)
}
