//! `chat session`.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use agent_admin::export::SessionExport;
use agent_admin::rendering;
use agent_core::event::NewEvent;
use agent_core::json::{RawFields, RawJson};
use agent_core::model::Patch;
use agent_core::session::SessionRecord;
use agent_core::state::SessionState;
use agent_core::{Seq, SessionId};
use agent_runtime::views::compare;
use clap::Subcommand;
use serde_json::{Value, json};

use super::consent::Consent;
use super::restore::{self, RestoreCommand};
use super::session_list::ListCommand;
use super::site::Site;
use super::{endings, files, hold};
use crate::content::write_file;
use crate::edits::fork;
use crate::failure::{Failure, Result};
use crate::help::examples;
use crate::history::newest_shown;
use crate::output::{damage, line, put_content};
use crate::pick::{SessionRef, WorkspaceRef};
use crate::progress::{Bar, Progress};
use crate::screen::{counted, spoken};
use crate::zone::second;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List sessions, most recently used first
    ///
    /// Each has a number, by which other commands take it as long as no other session is used; the end of its id, which they
    /// take too; and what it stores in messages, results and files. Only a list without filters has numbers. On a terminal, lines
    /// are cut to its width.
    #[command(after_help = examples!(
        "chat session list --since 3d",
        "chat session list --workspace ID --state idle --until 2026-11-28",
        "chat session list --label project=apollo --json",
    ))]
    List(ListCommand),
    /// Show a session, what it waits for, and its last messages
    ///
    /// Of a session that is being answered it says by whom, and with --watch, whether that one lives.
    #[command(after_help = examples!("chat session show ID", "chat session show ID --watch", "chat session show ID --turns 100 --json"))]
    Show {
        /// Session: id, beginning or end of it, or number in `chat session list`
        id: SessionRef,
        /// Number of messages, tool calls and results
        #[arg(long, value_name = "N", default_value = "10")]
        turns: usize,
        /// Wait until a heartbeat shows that whoever answers lives, or for the time to live of the lease (30 s, if the host sets no other)
        #[arg(long)]
        watch: bool,
    },
    /// Ask the run of a session to end, whichever machine it is on; or discard what waits for one
    ///
    /// The run ends at its next step. If none is active, the question that waits, the timers, and the messages without an answer are discarded: these stay in
    /// the history.
    #[command(after_help = examples!("chat session interrupt ID"))]
    Interrupt {
        /// Session: id, beginning or end of it, or number in `chat session list`
        id: SessionRef,
    },
    /// Free a session whose holder is gone; clear the failure of one that has failed
    ///
    /// Watches for heartbeats of the holder, for the time to live of its lease at most. If it is silent or its process is dead, its lease
    /// ends, and it can write nothing more. The next message, or a scheduler, does that too, after the same time.
    #[command(after_help = examples!("chat session release ID", "chat session release ID --force"))]
    Release {
        /// Session: id, beginning or end of it, or number in `chat session list`
        id: SessionRef,
        /// Take the session from a holder that lives, too, and do not watch
        #[arg(long)]
        force: bool,
    },
    /// Export a session with all its events: as one JSON document, or as a tar archive if it has blobs
    ///
    /// For other programs, --as jsonl writes each event as a line of JSON; for people, --as markdown writes what was said, the calls
    /// and their results. These two cannot be imported again, and hold no blobs.
    #[command(after_help = examples!("chat session export ID --output session.json", "chat session export ID --as markdown --output session.md"))]
    Export {
        /// Session: id, beginning or end of it, or number in `chat session list`
        id: SessionRef,
        /// Output file; must not exist (default: standard output)
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Form of the export
        #[arg(long = "as", value_name = "FORM", value_enum, default_value = "document")]
        form: Form,
    },
    /// Import a session from a JSON document or a tar archive
    ///
    /// The session keeps its id. If it exists with the same events, nothing is written; if an earlier import was
    /// interrupted, it is completed, and until then the session accepts no messages. A session is never overwritten.
    /// Creates its workspace and the store if they do not exist. For a session that is deleted or damaged in this store, use
    /// `chat session restore`.
    #[command(after_help = examples!("chat session import session.json", "chat session import - < session.json"))]
    Import {
        /// Document or archive to read; - for standard input
        file: PathBuf,
        /// Also complete ancestors that an interrupted import left incomplete; only for trusted documents
        #[arg(long)]
        with_ancestors: bool,
        /// Do not create the workspace of the session, if the store does not have it
        #[arg(long)]
        no_workspace: bool,
    },
    /// List the files in a session: media of messages and answers, whole outputs of tools, artifacts
    ///
    /// A file whose bytes are gone is marked lost, one with another size damaged. The bytes themselves are not read;
    /// `chat verify` reads them.
    #[command(after_help = examples!("chat session files ID", "chat session files ID --limit 1000 --json"))]
    Files {
        /// Session: id, beginning or end of it, or number in `chat session list`
        id: SessionRef,
        /// Number of the newest files that are listed, at least
        #[arg(long, value_name = "N", default_value = "50")]
        limit: usize,
    },
    /// Save a file in a session
    ///
    /// The file gets its name when all of it is written. Until then it is named .chat-<16 characters>.part; a later save
    /// or export to the same folder removes such a file if its process was killed more than an hour ago.
    #[command(after_help = examples!(
        "chat session save ID 12 --output cat.png",
        "chat session save ID 14.2 | less",
    ))]
    Save {
        /// Session: id, beginning or end of it, or number in `chat session list`
        id: SessionRef,
        /// Number of the file, as `chat session files` lists it
        file: String,
        /// Output file (default: standard output)
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Replace the output file if it exists
        #[arg(long, requires = "output")]
        replace: bool,
    },
    /// Restore the bytes of a lost or damaged file in a session, from a copy of the file
    ///
    /// `chat session files` and `chat verify` name lost files. The SHA-256 of the copy must be that of a file, an output or
    /// another blob that an event of the session names, or an event of a session from which it was forked; other bytes are
    /// refused. The events are not changed. Attaching the same file again in a conversation of the session also
    /// restores it, when the message is sent.
    #[command(after_help = examples!("chat session restore-file ID ./cat.png"))]
    RestoreFile {
        /// Session: id, beginning or end of it, or number in `chat session list`
        id: SessionRef,
        /// Copy of the file; - for standard input
        #[arg(value_name = "PATH")]
        file: PathBuf,
    },
    /// Fork a session, and print the id of the new session
    ///
    /// The new session continues the history of the first one, which is not changed.
    #[command(after_help = examples!("chat session fork ID", "chat session fork ID --at 12"))]
    Fork {
        /// Session: id, beginning or end of it, or number in `chat session list`
        id: SessionRef,
        /// Number of the last event that is shared (default: the last event)
        #[arg(long, value_name = "EVENT")]
        at: Option<u64>,
    },
    /// Compare two sessions that were forked: what they share, and how each goes on
    #[command(after_help = examples!("chat session compare ID OTHER", "chat session compare 1 2 --turns 100"))]
    Compare {
        /// Session: id, beginning or end of it, or number in `chat session list`
        id: SessionRef,
        /// Other session
        other: SessionRef,
        /// Number of events of each that are shown, after those that they share
        #[arg(long, value_name = "N", default_value = "50")]
        turns: usize,
    },
    /// Create a new session from the readable part of a damaged one
    ///
    /// Prints the id of the new session. The damaged session is not changed.
    #[command(after_help = examples!("chat session salvage ID", "chat session salvage ID --main"))]
    Salvage {
        /// Damaged session: id, or beginning or end of it
        id: SessionRef,
        /// Workspace id of the new session (default: that of the damaged session)
        #[arg(long, value_name = "ID")]
        workspace: Option<WorkspaceRef>,
        /// Set the new session as the main session of its workspace
        #[arg(long)]
        main: bool,
    },
    /// Restore a session from a backup or an export, if it is deleted or damaged in this store
    ///
    /// Creates a new session, and prints its id: that of the former one cannot be used again. It has the messages, tool calls, documents and
    /// files of the session in the backup, its title and labels, and the label salvage.of with the former id. If the session belongs to a key of the
    /// host and no other session does now, it is found by that key. Its workspace is created if the store does not have it. What was
    /// edited away in it is not restored. The former session keeps its bytes until it is erased.
    #[command(after_help = examples!(
        "chat session restore ID --from sqlite:./notes-backup.db",
        "chat session restore ID --from ./session.json",
    ))]
    Restore(RestoreCommand),
    /// Protect a session and its workspace from sweep and gc
    #[command(after_help = examples!("chat session pin ID --why \"legal hold 42\""))]
    Pin {
        /// Session: id, beginning or end of it, or number in `chat session list`
        id: SessionRef,
        /// Reason, which reports show
        #[arg(long, value_name = "TEXT")]
        why: String,
    },
    /// Remove the protection of a session
    #[command(after_help = examples!("chat session unpin ID"))]
    Unpin {
        /// Session: id, beginning or end of it, or number in `chat session list`
        id: SessionRef,
    },
    /// Delete a session
    ///
    /// Asks before, if the session is not named by its whole id. Works on damaged sessions, too. A deleted id cannot be used again. The events stay in the store until the session is
    /// purged. A purge does not make a SQLite database file smaller: the freed pages are used again for later data; `chat
    /// maintain` rewrites the file.
    #[command(after_help = examples!("chat session delete ID", "chat session delete ID --purge"))]
    Delete {
        /// Session: id, beginning or end of it, or number in `chat session list`
        id: SessionRef,
        /// Also remove the events, except those that forks read
        #[arg(long)]
        purge: bool,
        #[command(flatten)]
        consent: Consent,
    },
    /// Erase a session: delete it and remove all of its bytes from the store
    ///
    /// Works on deleted and damaged sessions, too. A tombstone without any text remains. In a SQLite file, copies of rows
    /// may be left in unused parts until `chat maintain` rewrites it; --now does both.
    #[command(after_help = examples!("chat session erase ID", "chat session erase ID --now --yes"))]
    Erase {
        /// Session: id, beginning or end of it, or number in `chat session list`
        id: SessionRef,
        /// Also rewrite a SQLite file, so that no copy of the data is left in it, while other writers wait
        #[arg(long)]
        now: bool,
        #[command(flatten)]
        consent: Consent,
    },
}

impl SessionCommand {
    pub(super) async fn run(self, site: &Site<'_>) -> Result<()> {
        match self {
            Self::List(list) => list.run(site).await,
            Self::Show { id, turns, watch } => show(site, site.session(&id).await?, turns, watch).await,
            Self::Interrupt { id } => hold::interrupt(site, site.session(&id).await?).await,
            Self::Release { id, force } => hold::release(site, site.session(&id).await?, force).await,
            Self::Export { id, output, form } => {
                export(site, site.session(&id).await?, output.as_deref(), form).await
            }
            Self::Files { id, limit } => files::list(site, site.session(&id).await?, limit).await,
            Self::Save { id, file, output, replace } => {
                files::save(site, site.session(&id).await?, &file, output.as_deref(), replace).await
            }
            Self::RestoreFile { id, file } => files::restore(site, site.session(&id).await?, &file).await,
            Self::Import { file, with_ancestors, no_workspace } => {
                restore::import(site, &file, with_ancestors, !no_workspace).await
            }
            Self::Restore(command) => command.run(site).await,
            Self::Fork { id, at } => {
                let (id, actor) = (site.session(&id).await?, site.args.actor()?);
                let fork = fork(&site.storage.sessions, id, at.map(Seq::new), actor).await?;
                site.out.result(&*fork, &fork.id.to_string());
                Ok(())
            }
            Self::Compare { id, other, turns } => {
                compared(site, site.session(&id).await?, site.session(&other).await?, turns).await
            }
            Self::Salvage { id, workspace, main } => {
                let workspace = match workspace {
                    Some(workspace) => Some(site.workspace(&workspace).await?),
                    None => None,
                };
                restore::salvage(site, site.session(&id).await?, workspace, main).await
            }
            Self::Pin { id, why } => {
                let id = site.session(&id).await?;
                change(site, id, &format!("pinned session {id}: {why}"), Patch::new().pin(&why)).await
            }
            Self::Unpin { id } => {
                let id = site.session(&id).await?;
                change(site, id, &format!("unpinned session {id}"), Patch::new().unpin()).await
            }
            Self::Delete { id, purge, consent } => {
                endings::delete(site, &site.meant(&id).await?, purge, &consent).await
            }
            Self::Erase { id, now, consent } => {
                endings::erase(site, &site.meant(&id).await?, now, &consent).await
            }
        }
    }
}

/// Updates the attributes of a session.
async fn change(site: &Site<'_>, id: SessionId, text: &str, patch: Patch) -> Result<()> {
    let seen = site.storage.sessions.load(id).await?.head;
    let changed = vec![NewEvent::updated(patch)];
    let done = site.storage.sessions.append(id, seen, changed).await?;
    site.out.result(&*done.session, text);
    Ok(())
}

async fn compared(site: &Site<'_>, id: SessionId, other: SessionId, turns: usize) -> Result<()> {
    let found = compare(&*site.storage.sessions, id, other, turns).await?;
    let whole = json!({
        "shared_until": found.shared_until, "left": found.left.events, "right": found.right.events,
    });
    let shared = match found.shared_until {
        Seq::ZERO => "they share nothing".to_owned(),
        until => format!("the same up to event {until}"),
    };
    site.out.result(&whole, &shared);
    for (id, page) in [(id, &found.left), (other, &found.right)].into_iter().filter(|_| !site.out.is_json()) {
        line(&format!("\nsession {id}"));
        page.events.iter().filter_map(spoken).for_each(|spoken_text| line(&spoken_text));
        if page.next.is_some() {
            line("(there is more: --turns N)");
        }
    }
    site.named(&[found.left.damaged, found.right.damaged].concat())
}

async fn show(site: &Site<'_>, id: SessionId, turns: usize, watch: bool) -> Result<()> {
    let session = site.storage.sessions.load(id).await?;
    let holder = hold::holder(site, &session, watch).await?;
    let mut turns_page = agent_core::store::EventPage::new(Vec::new());
    if turns > 0 && session.status.state != SessionState::Deleted {
        turns_page = newest_shown(&*site.storage.sessions, &session, turns).await?;
    }
    if site.out.is_json() {
        let mut whole: RawFields = RawJson::sure(&*session).to()?;
        whole.insert("holder", RawJson::sure(&holder.map(hold::Holder::name)));
        whole.insert("turns", RawJson::sure(&turns_page.events));
        whole.insert("damaged", RawJson::sure(&damage(&turns_page.damaged)));
        site.out.result(&whole, "");
        return site.named(&turns_page.damaged);
    }
    site.out.fields(&Value::Null, &fields(&session));
    hold::waits(&session, holder).iter().for_each(|what| line(&format!("             {what}")));
    if !turns_page.events.is_empty() {
        line("");
    }
    turns_page.events.iter().filter_map(spoken).for_each(|spoken_text| line(&spoken_text));
    site.named(&turns_page.damaged)
}

fn fields(session: &SessionRecord) -> [(&'static str, String); 14] {
    let title = session.attributes.title.as_ref().map(|title| title.text.clone());
    let labels: Vec<_> =
        session.attributes.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let state = match session.import_end {
        Some(end) => format!(
            "{}, import unfinished: events up to {} of {end}; run the import again, or delete the session",
            session.status, session.head
        ),
        None => session.status.to_string(),
    };
    [
        ("session", title.unwrap_or_default()),
        ("id", session.id.to_string()),
        ("workspace", session.workspace.to_string()),
        ("owner", session.owner.as_ref().map(ToString::to_string).unwrap_or_default()),
        ("state", state),
        ("parent", session.origin.parent().map(|id| id.to_string()).unwrap_or_default()),
        ("creator", session.creator.to_string()),
        ("created", second(session.created_at)),
        ("last used", second(session.last_active_at)),
        ("messages", session.counts.messages().to_string()),
        ("content", format!("{} bytes", session.content_bytes.total())),
        ("unanswered", session.inputs_open.to_string()),
        ("events", session.head.to_string()),
        ("labels", labels.join(", ")),
    ]
}

/// Form of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Form {
    /// JSON document, or tar archive if the session has blobs
    Document,
    /// Events, each as a line of JSON
    Jsonl,
    /// Conversation as Markdown
    Markdown,
}

async fn export(site: &Site<'_>, id: SessionId, output: Option<&Path>, form: Form) -> Result<()> {
    let sessions = &*site.storage.sessions;
    if form != Form::Document {
        let session = sessions.load(id).await?;
        let pieces = match form {
            Form::Jsonl => rendering::to_jsonl(sessions, id),
            _ => rendering::to_markdown(sessions, &session),
        };
        let Some(file) = output else { return put_content(pieces).await };
        let bytes = write_file(file, false, pieces, None).await?;
        let text = format!("exported session {id} to {} ({bytes} bytes)", file.display());
        site.out.result(&json!({"session": id, "file": file, "bytes": bytes, "blobs": 0}), &text);
        return Ok(());
    }
    let bar = Bar::new(Progress::Auto);
    let export = SessionExport::read(sessions, id, |events| bar.report("events", events, None)).await;
    drop(bar);
    let export = export?;
    let blobs = export.blobs() as u64;
    let (pieces, len) = match blobs {
        0 => (export.to_json()?, Some(export.document_bytes())),
        _ => (export.to_archive()?, None),
    };
    let Some(file) = output else {
        if blobs > 0 && io::stdout().is_terminal() {
            let text = format!(
                "session {id} has {}, so its export is a tar archive, which is not shown on a terminal; give --output \
                 FILE, or redirect the output",
                counted(blobs, "blob")
            );
            return Err(Failure::new(1, "invalid_input", text));
        }
        return put_content(pieces).await;
    };
    let bytes = write_file(file, false, pieces, len).await?;
    let with = if blobs > 0 { format!(", with {}", counted(blobs, "blob")) } else { String::new() };
    let text = format!("exported session {id} to {} ({bytes} bytes{with})", file.display());
    site.out.result(&json!({"session": id, "file": file, "bytes": bytes, "blobs": blobs}), &text);
    Ok(())
}
