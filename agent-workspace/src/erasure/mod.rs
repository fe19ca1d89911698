//! Erasure of all that a person or a tenant has, with a receipt.
//!
//! ```text
//!  Eraser::run ──▶ plan, stored ──▶ sessions deleted ──▶ bytes removed ──▶ search index ──▶ keys dropped ──▶ Receipt
//!                    │ the same call again goes on from here, after a crash at any step                        │
//!                    ▼                                                                                         ▼
//!                  Eraser::settle removes the plan, when the host has the receipt              verify_erased looks for what is left
//! ```
//!
//! Works on every [`Backend`](agent_core::Backend). On an encrypted one the keys are dropped, too, so that copies of what they sealed cannot be
//! read, and the receipt is authenticated by the root key.

mod eraser;
mod person;
mod plan;
mod receipt;
mod scan;
mod verify;

use std::fmt;

use agent_core::OwnerId;
use agent_core::model::Actor;

pub use eraser::{Eraser, ErasurePreview};
pub use receipt::{Authenticity, KeptSession, Receipt, ReceiptContents};
pub use verify::{Leftover, LeftoverKind, Look, VerifiedErasure, verify_erased};

/// Person or tenant whose data is erased.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Subject {
    /// Owner within the tenant: the sessions with this owner, and the workspaces that it owns with all that is in them.
    Owner(OwnerId),
    /// Creator: the sessions that this actor created, and their children.
    Creator(Actor),
    /// The whole tenant.
    Tenant,
}

impl Subject {
    /// Returns the kind: `owner`, `creator` or `tenant`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Owner(_) => "owner",
            Self::Creator(_) => "creator",
            Self::Tenant => "tenant",
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(owner) => write!(f, "owner {}", owner.as_str()),
            Self::Creator(actor) => write!(f, "creator {actor}"),
            Self::Tenant => f.write_str("tenant"),
        }
    }
}
