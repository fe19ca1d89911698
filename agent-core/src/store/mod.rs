//! Traits that a backend implements, their requests and answers, and the functions built on them for every backend.
//!
//! The traits themselves are at the root of the crate: [`WorkspaceStore`](crate::WorkspaceStore),
//! [`SessionStore`](crate::SessionStore), [`BindingStore`](crate::BindingStore).

pub(crate) mod address;
pub(crate) mod binding;
pub(crate) mod blob;
pub(crate) mod blob_store;
pub(crate) mod compact;
pub(crate) mod erasable;
pub(crate) mod ext;
pub(crate) mod fork;
pub(crate) mod heads;
pub(crate) mod hidden;
pub(crate) mod history;
pub(crate) mod known;
pub(crate) mod lease;
pub(crate) mod lease_watch;
pub(crate) mod live;
pub(crate) mod log_page;
pub(crate) mod maintenance;
pub(crate) mod memory;
pub(crate) mod observed;
pub(crate) mod open_state;
pub(crate) mod owner;
pub(crate) mod page;
pub(crate) mod purge;
pub(crate) mod read;
pub(crate) mod report;
pub(crate) mod retry;
pub(crate) mod session;
pub(crate) mod sessions;
pub(crate) mod shards;
pub(crate) mod storage;
pub(crate) mod workspace;
pub(crate) mod wrapper;

pub use crate::base::percent::percent_decode;
pub use crate::model::{BLOB_CHUNK_BYTES, BlobInfo};
pub use address::{BackendConfig, Registry, split_address};
pub use binding::{Binding, BindingQuery, decide_bind};
pub use blob::{
    BLOB_MAX_BYTES, BlobChunk, BlobChunks, BlobContent, BlobQuery, BlobStream, PutBlob, ReadBlob, SweepBlobs,
    SweptBlobs,
};
pub use blob_store::BlobStore;
pub use erasable::{ErasableKeys, ErasableRow};
pub use heads::Heads;
pub use hidden::{HiddenSession, WorkspaceArea};
pub use history::{check_position, coming_events, next_events, own_events};
pub use known::KnownSessions;
pub use lease::{LeaseStatus, LeaseStore};
pub use lease_watch::{HolderState, LeaseWatch};
pub use live::check_no_live_run;
pub use log_page::LogPage;
pub use maintenance::{Maintenance, Pending, Rebuilt};
pub use observed::observed;
pub use open_state::Operating;
pub use page::{Cursor, Damaged, PAGE_MAX, Page, PageQuery, pages};
pub use purge::{Needed, NeededBy, needed_by_forks};
pub use read::{EventPage, ReadEvents};
pub use session::{Capabilities, Consistency, Durability, Isolation, Purge, Purged, Scope, SessionQuery};
pub use shards::Shards;
pub use storage::DeletedTenant;
pub use workspace::{ContentHash, WorkspaceQuery};
pub use wrapper::{
    BindingStoreWrapper, BlobStoreWrapper, LeaseStoreWrapper, MaintenanceWrapper, SessionStoreWrapper,
    WorkspaceStoreWrapper,
};
