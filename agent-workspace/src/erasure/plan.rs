//! Plan of an erasure: what it removes, stored before anything is removed.
//!
//! It is kept in a tenant of its own, which goes with it, so that it outlives the tenant that is erased. It holds ids and hashes, and no name.

use std::collections::BTreeSet;
use std::fmt;

use agent_core::clock::Effects;
use agent_core::event::{EventType, NewEvent};
use agent_core::json::RawJson;
use agent_core::session::NewSession;
use agent_core::store::{ErasableRow, ReadEvents};
use agent_core::{
    Backend, Error, ErrorKind, OwnerId, Result, Seq, SessionId, SessionStore, Sessions, TenantId, WorkspaceId,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Builder;

use crate::erasure::Subject;

/// Number of objects in one event.
const PART: usize = 5000;

/// Objects that are removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Objects {
    /// Random name that stands for the person.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) pseudonym: String,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) sessions: BTreeSet<SessionId>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) workspaces: BTreeSet<WorkspaceId>,
    /// Parts of search indexes, which may go.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) index: BTreeSet<SessionId>,
    /// Rows of keys.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) rows: BTreeSet<ErasableRow>,
}

impl Objects {
    fn merge(&mut self, other: Self) {
        if self.pseudonym.is_empty() {
            self.pseudonym = other.pseudonym;
        }
        self.sessions.extend(other.sessions);
        self.workspaces.extend(other.workspaces);
        self.index.extend(other.index);
        self.rows.extend(other.rows);
    }

    /// Returns what is new in another one, in parts that fit into an event each.
    fn news(&self, other: &Self) -> Vec<Self> {
        let none = Self::default;
        let mut parts = Vec::new();
        if self.pseudonym.is_empty() {
            parts.push(Self { pseudonym: other.pseudonym.clone(), ..none() });
        }
        let sessions = chunks(&other.sessions, &self.sessions);
        parts.extend(sessions.map(|sessions| Self { sessions, ..none() }));
        let workspaces = chunks(&other.workspaces, &self.workspaces);
        parts.extend(workspaces.map(|workspaces| Self { workspaces, ..none() }));
        parts.extend(chunks(&other.index, &self.index).map(|index| Self { index, ..none() }));
        parts.extend(chunks(&other.rows, &self.rows).map(|rows| Self { rows, ..none() }));
        parts
    }
}

fn chunks<T: Ord + Clone>(
    all: &BTreeSet<T>,
    known: &BTreeSet<T>,
) -> impl Iterator<Item = BTreeSet<T>> + use<T> {
    let new: Vec<T> = all.difference(known).cloned().collect();
    let chunks: Vec<BTreeSet<T>> = new.chunks(PART).map(|chunk| chunk.iter().cloned().collect()).collect();
    chunks.into_iter()
}

/// Plan as it is stored.
#[derive(Debug)]
pub(super) struct Plan {
    sessions: Sessions,
    id: SessionId,
    /// Number of its last event; `None` if it is not stored yet.
    head: Option<Seq>,
    pub(super) objects: Objects,
}

impl Plan {
    /// Returns the tenant in which the plan of an erasure is.
    pub(super) fn tenant(of: &TenantId, subject: &Subject) -> Result<TenantId> {
        let hash = digest(&["tenant of a plan", of.as_str(), &subject.to_string()]);
        let name: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Ok(format!("erasure-{name}").parse()?)
    }

    /// Reads the plan of an erasure that has begun, or makes an empty one, which is not stored.
    ///
    /// # Errors
    ///
    /// `Corrupt` if it cannot be read; those of the store.
    pub(super) async fn open(plans: &dyn Backend, tenant: &TenantId) -> Result<Self> {
        let sessions = plans.tenant(tenant).sessions;
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(digest(&["plan", tenant.as_str()])).for_each(|(to, from)| *to = from);
        let id = SessionId::from_uuid(Builder::from_custom_bytes(bytes).into_uuid());
        let mut plan = Self { sessions, id, head: None, objects: Objects::default() };
        match SessionStore::load(&*plan.sessions, id).await {
            Err(error) if error.is_absent() => return Ok(plan),
            found => plan.head = Some(found?.head),
        }
        let mut next = Some(ReadEvents::first(1000).with_types([planned()?]));
        while let Some(read) = next {
            let page = plan.sessions.read(id, read).await?;
            if let Some(damage) = page.damaged.first() {
                return Err(Error::corrupt(format!("the plan of the erasure is damaged: {damage}")));
            }
            for event in &page.events {
                plan.objects.merge(event.payload.to()?);
            }
            next = page.next;
        }
        Ok(plan)
    }

    /// Returns whether an erasure has begun that is not settled.
    pub(super) const fn is_stored(&self) -> bool {
        self.head.is_some()
    }

    /// Adds objects, and stores the plan with them; durable on return.
    ///
    /// # Errors
    ///
    /// `Conflict` if another call of the same erasure has added some meanwhile; those of the store.
    pub(super) async fn add(&mut self, objects: Objects) -> Result<()> {
        let mut head = match self.head {
            Some(head) => head,
            None => {
                let new = NewSession::new(self.id, WorkspaceId::DEFAULT);
                self.sessions.create(new).await?.head
            }
        };
        for part in self.objects.news(&objects) {
            let event = NewEvent::new(planned()?, RawJson::of(&part)?);
            let done = self.sessions.append(self.id, head, vec![event]).await;
            head = done
                .map_err(|error| match error.kind() {
                    ErrorKind::Conflict { .. } => {
                        error.about(format_args!("another process runs the same erasure; run it again"))
                    }
                    _ => error,
                })?
                .last;
        }
        self.head = Some(head);
        self.objects.merge(objects);
        Ok(())
    }
}

fn planned() -> Result<EventType> {
    "x.erasure.planned".parse()
}

/// Returns the SHA-256 of texts.
pub(super) fn digest(parts: &[&str]) -> [u8; 32] {
    let hash = Sha256::new().chain_update("agent erasure");
    parts.iter().fold(hash, |hash, part| hash.chain_update([0]).chain_update(part)).finalize().into()
}

/// Returns a random name.
pub(super) fn pseudonym(effects: &Effects) -> String {
    let mut bytes = [0; 16];
    effects.fill(&mut bytes);
    bytes.iter().fold("erased-".to_owned(), |mut name, byte| {
        let _ = fmt::Write::write_fmt(&mut name, format_args!("{byte:02x}"));
        name
    })
}

/// Returns the pseudonym as an owner.
pub(super) fn as_owner(pseudonym: &str) -> Result<OwnerId> {
    Ok(pseudonym.parse()?)
}
