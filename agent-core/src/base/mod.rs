//! Base of the crate: ids, times, JSON, the state table, errors, the clock. Imports nothing from the other modules.

pub(crate) mod blob_name;
pub mod clock;
pub(crate) mod error;
pub(crate) mod id;
pub mod isolated;
pub mod json;
pub(crate) mod number;
pub(crate) mod percent;
pub(crate) mod sealed;
mod setters;
pub mod state_machine;
pub(crate) mod text;
pub(crate) mod timestamp;

pub use blob_name::BlobName;
pub use error::{Error, ErrorKind, Result, WriteOutcome};
pub use id::{
    CommitId, DeviceId, Epoch, EventId, OwnerId, Revision, RunId, Seq, SessionId, TenantId, WorkspaceId,
};
pub use text::ParseError;
pub use timestamp::Timestamp;

pub(crate) use clock::Effects;
pub(crate) use id::uuid_of;
pub(crate) use isolated::isolated;
pub(crate) use json::{JsonFault, RawFields, RawJson, is_default, present, size_bytes, to_text};
pub(crate) use state_machine::{Reason, SessionState, Target, TriggerKind, target};
pub(crate) use text::{Text, check_text, quoted};
