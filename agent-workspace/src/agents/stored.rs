//! Agents and builds as documents of a hidden session: read at one head, written only if the head is still the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agent_core::event::{DocumentWritten, NewEvent};
use agent_core::json::RawJson;
use agent_core::model::Actor;
use agent_core::session::SessionRecord;
use agent_core::store::HiddenSession;
use agent_core::{Epoch, Error, Result, SessionStoreExt, Sessions};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::agents::build::Build;
use crate::documents::Document;

/// Maximum number of builds of an agent: 60 documents of 32 builds. Documents that lost some of their builds count fully.
pub const BUILDS_MAX: u64 = PIECES_MAX as u64 * PIECE;

/// Number of consecutive builds in one document. A change of one build writes them all, at most 400 KiB.
const PIECE: u64 = 32;
/// Maximum number of documents with builds; a session has up to 64 documents.
const PIECES_MAX: usize = 60;
/// Version of the form of the documents.
const FORMAT: u32 = 1;
/// Document with the [`Ledger`], and the beginning of the names of those with builds.
pub(super) const LEDGER: &str = "builds";
/// Document with the [`Leases`].
pub(super) const LEASES: &str = "leases";
const PIECES: &str = "builds/";

/// What must be known of an agent's builds without reading them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Ledger {
    /// Number of the newest build.
    pub(super) last: u64,
    /// Number of the newest completed build; zero if there is none.
    pub(super) completed: u64,
    /// Builds that wait for a builder.
    pub(super) pending: BTreeSet<u64>,
}

/// Leases on the builds that are claimed. A heartbeat writes them alone.
pub(super) type Leases = BTreeMap<u64, Lease>;

/// Lease of a builder on a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lease {
    pub(super) epoch: Epoch,
    pub(super) ttl_ms: u64,
    /// Counter that changes with every heartbeat.
    pub(super) heartbeat: u64,
}

/// Documents of one hidden session.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) sessions: Sessions,
    pub(super) hidden: HiddenSession,
}

/// Versions of documents that are written together: names, and texts; `None` removes the document.
pub(super) type Versions = Vec<(String, Option<String>)>;

impl Stored {
    /// Returns the record; `None` if nothing was ever stored.
    pub(super) async fn find(&self) -> Result<Option<Arc<SessionRecord>>> {
        self.hidden.find(&*self.sessions).await
    }

    /// Returns the record, and creates the session if it does not exist.
    pub(super) async fn open(&self) -> Result<Arc<SessionRecord>> {
        self.hidden.open(&self.sessions).await
    }

    /// Reads a document at the head of `now`; a default value if there is none.
    pub(super) async fn read<T: DeserializeOwned + Default>(
        &self,
        now: &SessionRecord,
        name: &str,
    ) -> Result<T> {
        let Some(head) = now.document(name) else { return Ok(T::default()) };
        if head.format != FORMAT {
            return Err(Error::unsupported(format!(
                "document {name} of session {} has format {}; update this program",
                now.id, head.format
            )));
        }
        let text = Document::at(&*self.sessions, now, head.seq).await?.text;
        RawJson::parse(&text).and_then(|json| json.to()).map_err(|error| {
            Error::corrupt(format!("document {name} of session {} is damaged; restore a copy", now.id))
                .with_source(error)
        })
    }

    /// Writes versions of documents, all or none, if the head is still that of `now`.
    pub(super) async fn write(&self, now: &SessionRecord, versions: Versions, actor: &Actor) -> Result<()> {
        let events = versions.into_iter().map(|(name, text)| {
            let written = DocumentWritten::after(now.document(&name), name, text).with_format(FORMAT);
            NewEvent::document_written(written).with_actor(actor.clone())
        });
        let commit = self.sessions.seal_unchanged(now.id, now.head).with_events(events);
        self.sessions.commit_with_retry(commit).await.map(drop)
    }

    /// Reads the builds in the document that has the build `number`.
    pub(super) async fn piece(&self, now: &SessionRecord, number: u64) -> Result<Piece> {
        let name = piece_of(number);
        Ok(Piece { builds: self.read(now, &name).await?, name })
    }

    /// Reads one build; `None` if it does not exist.
    pub(super) async fn build(&self, now: &SessionRecord, number: u64) -> Result<Option<Build>> {
        Ok(self.piece(now, number).await?.builds.remove(&number))
    }
}

/// Builds that are stored in one document, by their numbers.
#[derive(Debug)]
pub(super) struct Piece {
    name: String,
    pub(super) builds: BTreeMap<u64, Build>,
}

impl Piece {
    /// Returns the version to write; it removes the document if there are no builds.
    pub(super) fn version(&self) -> Result<(String, Option<String>)> {
        let text = (!self.builds.is_empty()).then(|| text_of(&self.builds)).transpose()?;
        Ok((self.name.clone(), text))
    }
}

/// Returns the text of a document.
pub(super) fn text_of(value: &impl Serialize) -> Result<String> {
    Ok(RawJson::of(value)?.get().to_owned())
}

fn piece_of(number: u64) -> String {
    format!("{PIECES}{}", number.saturating_sub(1) / PIECE)
}

/// Returns for each document with builds before the number `end` the highest number that it may have, newest first.
pub(super) fn pieces_before(now: &SessionRecord, end: u64) -> impl Iterator<Item = u64> {
    pieces(now).into_iter().filter(move |highest| highest - PIECE + 1 < end)
}

/// Returns for each document with builds the highest number that it may have, newest first.
pub(super) fn pieces(now: &SessionRecord) -> Vec<u64> {
    let index = |name: &str| name.strip_prefix(PIECES)?.parse::<u64>().ok();
    let numbers = now.documents.iter().filter_map(|head| index(&head.name));
    let mut numbers: Vec<_> = numbers.map(|index| index.saturating_add(1).saturating_mul(PIECE)).collect();
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    numbers
}

/// Returns whether the build `number` needs a document more than an agent may have.
pub(super) fn is_full(now: &SessionRecord, number: u64) -> bool {
    now.document(&piece_of(number)).is_none() && pieces(now).len() >= PIECES_MAX
}
