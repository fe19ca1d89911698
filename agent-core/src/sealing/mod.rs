//! Sealed sessions: the form in which an encrypted store keeps events and records. A store around another one gives each commit the
//! [`Sealing`] of its session; [`plan`](crate::plan()) then decides on what was opened, and what it writes is sealed. So no backend
//! knows of keys, and none sees a word.
//!
//! A sealed event has its payload, its additional fields and the words of its transition in the member `sealed` of its payload, the text
//! `1.<key>.<base64url>`, which binds everything else in the event: session, number, commit, time, type, actor, run. Beside it
//! stand copies of the members that the [fold](crate::session::SessionRecord::apply) reads; of these, names and texts are words, each
//! sealed by itself into `~1.<base64url>`. Equal words of one session have equal bytes, so that the fold of sealed events is the sealed
//! record. What stays readable: ids, numbers, times, event types, sizes, names of actors, owners and lease holders, the ids of calls, spans and
//! questions, currencies.

mod attributes;
mod event;
mod record;
mod word;

use std::fmt::Debug;
use std::sync::Arc;

use crate::base::{BlobName, Result};
use crate::model::BlobInfo;

pub(crate) use attributes::marked_label;
pub use event::open_event;
pub(crate) use event::seal_event;
pub use record::{open_record, open_summary};

/// Kind of what is sealed, to which the sealing binds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Sealed {
    /// Content of an event.
    Event,
    /// Word of a record.
    Word,
}

/// Blob of a session of an encrypted store, and the blob that the store around which it is has in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SealedBlob {
    /// The blob as it was put.
    pub plain: BlobInfo,
    /// The blob that holds its sealed bytes.
    pub inner: BlobInfo,
}

impl SealedBlob {
    /// Creates the pair.
    pub const fn new(plain: BlobInfo, inner: BlobInfo) -> Self {
        Self { plain, inner }
    }
}

/// Keys of one session, with which a commit is sealed. Pure: it does no I/O and reads no clock, since a store may call it within a
/// transaction.
///
/// The same content sealed twice has the same bytes. Implementations bind the tenant and the session to all that they seal.
pub trait Sealing: Debug + Send + Sync + 'static {
    /// Returns the name of the key, which events name: letters, digits and `-`. It is no secret.
    fn key(&self) -> &str;

    /// Seals content into base64url. What is sealed opens only with the same `bound` parts, in order.
    fn seal(&self, what: Sealed, bound: &[&[u8]], plain: &[u8]) -> String;

    /// Opens what [`seal`](Self::seal) returned.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the text is not what this key sealed with these parts.
    fn open(&self, what: Sealed, bound: &[&[u8]], sealed: &str) -> Result<Vec<u8>>;

    /// Returns the mark of a label's key, or of its value: 22 characters of base64url, the same in all sessions of the tenant, from which
    /// nobody without the keys learns the text.
    fn label(&self, key: &str, value: Option<&str>) -> String;

    /// Returns a blob of the session that was put; `None` if there is none. Only blobs that the commit names are asked for.
    fn blob(&self, name: BlobName) -> Option<SealedBlob>;

    /// Returns whether the session's own key is lost, and this is another one in its place. [`plan`](crate::plan()) then opens no word of
    /// the session, lets the commit delete it, and refuses everything else with `Denied`.
    fn is_stand_in(&self) -> bool {
        false
    }
}

/// [`Sealing`] of a commit. It is no part of what the commit says.
#[derive(Clone, Debug)]
pub(crate) struct SealedBy(pub(crate) Arc<dyn Sealing>);

impl PartialEq for SealedBy {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for SealedBy {}
