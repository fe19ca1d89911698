//! Search for what an erasure left.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use agent_core::session::SessionSummary;
use agent_core::state::SessionState;
use agent_core::store::{
    BlobQuery, ErasableKeys, PAGE_MAX, ReadBlob, ReadEvents, SessionQuery, WorkspaceQuery, pages,
};
use agent_core::{Backend, Error, ErrorKind, Result, SessionId, SessionStore, WorkspaceStore};
use futures::TryStreamExt;
use serde::Serialize;
use tracing::instrument;

use crate::erasure::receipt::Receipt;
use crate::erasure::scan::{self, Match, Patterns};

/// What a verification cannot see, whatever the store.
const UNSEEN: [&str; 6] = [
    "backups, exports and copies of the store",
    "archives of write-ahead logs, and replicas of a database",
    "rows that a database has deleted and not vacuumed, unless its files were searched",
    "rows of a database and objects of a bucket that no call of the store returns",
    "blocks of a disk that belong to no file",
    "words in another spelling or encoding, and texts of keys that were wrapped again before the erasure",
];

/// Words and files for a verification, beside the receipt.
#[must_use]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Look {
    /// Words that nothing may hold, as they were written.
    pub words: Vec<String>,
    /// Files and folders of the store, in which all bytes are searched.
    pub files: Vec<PathBuf>,
}

impl Look {
    /// Looks for what the receipt names, in what the store returns.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also looks for these words, in all sessions and workspaces of the tenant and in the files.
    pub fn with_words(mut self, words: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.words = words.into_iter().map(Into::into).collect();
        self
    }

    /// Also searches these files, and all files in these folders.
    pub fn with_files(mut self, files: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        self.files = files.into_iter().map(Into::into).collect();
        self
    }
}

/// Kind of what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LeftoverKind {
    /// Session that is not deleted, or cannot be read.
    Session,
    /// Events of an erased session.
    Event,
    /// Blob of an erased session.
    Blob,
    /// Row of a dropped key.
    KeyRow,
    /// Text of the row of a dropped key, in a file.
    KeyText,
    /// Something that a dropped key sealed, elsewhere.
    Sealed,
    /// One of the words.
    Word,
    /// Workspace that is not deleted, or cannot be read.
    Workspace,
    /// Former versions, which the medium keeps of what is removed.
    Version,
}

/// Something that an erasure should have removed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub struct Leftover {
    /// Kind of the object.
    pub kind: LeftoverKind,
    /// Description, without the words of a person.
    pub what: String,
    /// Place: a session, a row or a file.
    pub place: String,
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// Result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct VerifiedErasure {
    /// Objects that are left; empty if none was found.
    pub left: Vec<Leftover>,
    /// Number of files that were searched.
    pub files: u64,
    /// Number of bytes of these files.
    pub bytes: u64,
    /// Places that the verification cannot see.
    pub unseen: Vec<String>,
}

/// Checks a receipt, and looks for what the erasure left: a key row, a session, an event, a blob, a workspace of what the receipt names as erased, something
/// that the dropped keys sealed, the given words, and the texts of the keys in the given files. What the receipt names as kept is left out,
/// but not its words.
///
/// Changes nothing; a bucket is asked with an object of its own whether it keeps [former versions](Backend::check_removal). Reads the tenant as a whole if words are given or keys were dropped, and each file once.
///
/// # Cancel safety
///
/// Dropping the future changes nothing; the read of a file may go on until it ends.
///
/// # Errors
///
/// Those of [`Receipt::check`]; those of the store, and of files that cannot be read.
#[instrument(name = "verify_erased", skip_all)]
pub async fn verify_erased(backend: &dyn Backend, receipt: &Receipt, look: Look) -> Result<VerifiedErasure> {
    let keys = backend.erasable_keys(&receipt.tenant);
    receipt.check(keys.as_deref())?;
    let mut search = Search { receipt, left: BTreeSet::new() };
    let opened = backend.tenant(&receipt.tenant).sessions;
    let stored = keys.as_ref().map_or_else(|| opened.store().clone(), |keys| keys.stored());
    let unknown = match backend.check_removal().await {
        Err(error) if *error.kind() == ErrorKind::Unsupported => {
            search.add(LeftoverKind::Version, error.to_string(), "the medium of the store");
            None
        }
        unknown => unknown?,
    };
    search.sessions(&*stored).await?;
    let workspaces = backend.tenant(&receipt.tenant).workspaces;
    search.workspaces(&*workspaces).await?;
    if let Some(keys) = &keys {
        search.key_rows(&**keys).await?;
    }
    let patterns = Patterns::new(&look.words, &receipt.keys)?;
    if !patterns.is_empty() {
        search.contents(&*stored, &patterns).await?;
        search.texts(&*workspaces, &patterns).await?;
        if keys.is_some() && !look.words.is_empty() {
            search.contents(&**opened.store(), &patterns).await?;
        }
    }
    let found = tokio::task::spawn_blocking(move || scan::files(&patterns, look.files)).await;
    let found =
        found.map_err(|error| Error::unavailable("the search of files ended").with_source(error))??;
    for (path, found) in found.found {
        search.note(found, path.display().to_string());
    }
    let (files, bytes) = (found.files, found.bytes);
    let unseen = UNSEEN.iter().map(|it| (*it).to_owned()).chain(unknown).collect();
    Ok(VerifiedErasure { left: search.left.into_iter().collect(), files, bytes, unseen })
}

struct Search<'r> {
    receipt: &'r Receipt,
    left: BTreeSet<Leftover>,
}

impl Search<'_> {
    fn add(&mut self, kind: LeftoverKind, what: impl Into<String>, place: impl Into<String>) {
        self.left.insert(Leftover { kind, what: what.into(), place: place.into() });
    }

    fn note(&mut self, found: Match, place: String) {
        match found {
            Match::Word(n) => {
                self.add(LeftoverKind::Word, format!("word {n} of those that were given"), place);
            }
            Match::Sealed(id) => {
                self.add(
                    LeftoverKind::Sealed,
                    format!("something that the key of session {id} sealed"),
                    place,
                );
            }
            Match::KeyText(Some(id)) => {
                self.add(LeftoverKind::KeyText, format!("the wrapped key of session {id}"), place);
            }
            Match::KeyText(None) => self.add(LeftoverKind::KeyText, "the wrapped keys of the tenant", place),
        }
    }

    /// Looks at each erased session as it is stored.
    async fn sessions(&mut self, stored: &dyn SessionStore) -> Result<()> {
        for id in &self.receipt.sessions {
            let place = format!("session {id}");
            match stored.load(*id).await {
                Err(error) if *error.kind() == ErrorKind::NotFound => continue,
                Err(error) if is_fault(&error) => self.add(LeftoverKind::Session, error.to_string(), &place),
                Ok(session) if session.status.state == SessionState::Deleted => {}
                Ok(session) => {
                    self.add(LeftoverKind::Session, format!("it is {}", session.status), &place);
                }
                Err(error) => return Err(error),
            }
            match stored.read(*id, ReadEvents::first(1)).await {
                Ok(page) if page.events.is_empty() && page.damaged.is_empty() => {}
                Err(error) if !is_fault(&error) => return Err(error),
                _ => self.add(LeftoverKind::Event, "events are left", &place),
            }
            match stored.blobs().list(BlobQuery::new(*id).with_limit(1)).await {
                Ok(page) if page.items.is_empty() && page.damaged.is_empty() => {}
                Err(error) if *error.kind() == ErrorKind::Unsupported || error.is_absent() => {}
                Err(error) if !is_fault(&error) => return Err(error),
                _ => self.add(LeftoverKind::Blob, "blobs are left", &place),
            }
        }
        Ok(())
    }

    /// Looks at each erased workspace.
    async fn workspaces(&mut self, store: &dyn WorkspaceStore) -> Result<()> {
        for id in &self.receipt.workspaces {
            let what = match store.load_with_config(*id).await {
                Err(error) if error.is_absent() => continue,
                Err(error) if is_fault(&error) => error.to_string(),
                found => found.map(|_| "it is there".to_owned())?,
            };
            self.add(LeftoverKind::Workspace, what, format!("workspace {id}"));
        }
        Ok(())
    }

    async fn key_rows(&mut self, keys: &dyn ErasableKeys) -> Result<()> {
        let erased: BTreeSet<_> = self.receipt.sessions.iter().copied().collect();
        let hashes: BTreeSet<_> = self.receipt.keys.iter().map(|row| row.sha256.as_str()).collect();
        let workspaces: Vec<_> = self.receipt.workspaces.iter().map(|id| format!("/{id}/")).collect();
        for row in keys.find(None).await? {
            let is_secret = workspaces.iter().any(|workspace| row.row.contains(workspace));
            let is_left = is_secret
                || row.session.is_some_and(|id| erased.contains(&id))
                || hashes.contains(row.sha256.as_str());
            if is_left {
                self.add(LeftoverKind::KeyRow, "the row is there", format!("key row {}", row.row));
            }
        }
        Ok(())
    }

    /// Looks for the patterns in the records and configurations of all workspaces of the tenant.
    async fn texts(&mut self, store: &dyn WorkspaceStore, patterns: &Patterns) -> Result<()> {
        let query = WorkspaceQuery::new().with_deleting().with_limit(PAGE_MAX);
        let mut pages = pages(query, |query| store.list(query));
        while let Some(page) = pages.try_next().await? {
            for damage in &page.damaged {
                let what = format!("it cannot be searched: {damage}");
                self.add(LeftoverKind::Workspace, what, "the list of workspaces");
            }
            for workspace in page.items {
                let config = match store.load_config(workspace.id).await {
                    Err(error) if error.is_absent() => continue,
                    config => config?.unwrap_or_default(),
                };
                let mut found = patterns.all(workspace.to_json().as_bytes());
                found.extend(patterns.all(config.as_bytes()));
                for found in found {
                    self.note(found, format!("workspace {}", workspace.id));
                }
            }
        }
        Ok(())
    }

    /// Looks for the patterns in all sessions of the tenant: records, events and blobs.
    async fn contents(&mut self, store: &dyn SessionStore, patterns: &Patterns) -> Result<()> {
        let query = SessionQuery::new().with_hidden().with_limit(PAGE_MAX);
        let mut pages = pages(query, |query| store.list(query));
        while let Some(page) = pages.try_next().await? {
            let damaged = page.damaged.iter().map(ToString::to_string).collect::<Vec<_>>();
            for damage in damaged {
                self.add(
                    LeftoverKind::Session,
                    format!("it cannot be searched: {damage}"),
                    "the list of sessions",
                );
            }
            for session in page.items {
                if let Err(error) = self.content(store, patterns, &session).await {
                    if !is_fault(&error) && !error.is_absent() {
                        return Err(error);
                    }
                    if is_fault(&error) {
                        self.add(
                            LeftoverKind::Session,
                            format!("it cannot be searched: {error}"),
                            format!("session {}", session.id),
                        );
                    }
                }
            }
        }
        Ok(())
    }

    async fn content(
        &mut self,
        store: &dyn SessionStore,
        patterns: &Patterns,
        of: &SessionSummary,
    ) -> Result<()> {
        let id = of.id;
        let mut found = patterns.all(store.load(id).await?.to_json().as_bytes());
        let mut next = Some(ReadEvents::first(1000));
        while let Some(read) = next {
            let page = store.read(id, read).await?;
            for event in &page.events {
                found.extend(patterns.all(event.to_json().as_bytes()));
            }
            next = page.next;
        }
        for found in found {
            self.note(found, format!("session {id}"));
        }
        self.blobs(store, patterns, id).await
    }

    async fn blobs(&mut self, store: &dyn SessionStore, patterns: &Patterns, id: SessionId) -> Result<()> {
        let mut pages = pages(BlobQuery::new(id).with_limit(PAGE_MAX), |query| store.blobs().list(query));
        while let Some(page) = match pages.try_next().await {
            Err(error) if *error.kind() == ErrorKind::Unsupported => None,
            page => page?,
        } {
            for blob in page.items {
                let mut scan = patterns.begin();
                let mut content = store.blobs().read(ReadBlob::new(id, blob.name)).await?.content;
                while let Some(piece) = content.try_next().await? {
                    scan.feed(&piece);
                }
                for found in scan.found {
                    self.note(found, format!("blob {} of session {id}", blob.name));
                }
            }
        }
        Ok(())
    }
}

fn is_fault(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported | ErrorKind::Denied)
}
