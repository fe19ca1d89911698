//! A session's configuration, kept as it was.

use std::sync::Arc;

use crate::configuration::LayeredConfig;
use crate::effects::Effects;
use crate::error::{Error, ErrorKind, Result};
use crate::holdings::{Document, DocumentWrite, Documents};
use crate::id::{Revision, SessionId};
use crate::session::{Actor, Expect, SessionStore};

/// The name of the document that holds a session's configuration.
pub const CONFIG_DOCUMENT: &str = "config";

/// The configuration of a session: what it was when this was first called for it, whatever its layers say now. A fork
/// goes on with that of what it was made from.
///
/// Secrets are not kept with the session, and come from `now`. What is kept is the first version of the document
/// [`CONFIG_DOCUMENT`]; later ones count for nothing, so that no agent changes its own configuration. Of many that call it
/// first, one decides, and all get that. May be dropped at any point, and called again.
///
/// ```
/// use agent_core::configuration::ConfigLayers;
/// use agent_core::holdings::frozen_config;
/// use agent_core::{Effects, MemoryStore, NewSession, SessionStoreExt, Storage, WorkspaceId};
///
/// # async fn example() -> agent_core::Result<()> {
/// let (storage, effects) = (Storage::from(MemoryStore::new()), Effects::default());
/// let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
/// let session = storage.sessions.create(&effects, new).await?.id;
///
/// let then = ConfigLayers::new().global("model = 'opus'")?.merge(|_| None)?;
/// frozen_config(&storage.sessions, &effects, session, &then).await?;
/// let now = ConfigLayers::new().global("model = 'haiku'")?.merge(|_| None)?;
/// let config = frozen_config(&storage.sessions, &effects, session, &now).await?;
/// assert_eq!(config.text("model"), Some("opus"));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// `InvalidInput` where what is kept was not written by the host, or cannot be read; those of
/// [`Documents::put`].
pub async fn frozen_config(
    sessions: &Arc<dyn SessionStore>,
    effects: &Effects,
    session: SessionId,
    now: &LayeredConfig,
) -> Result<LayeredConfig> {
    let documents = Documents::new(sessions.clone(), effects.clone(), session);
    let kept = match first(&documents).await? {
        Some(kept) => kept,
        None => {
            let write = DocumentWrite::new(CONFIG_DOCUMENT, now.snapshot(), Actor::SYSTEM);
            match documents.put(write.expect(Expect::Absent)).await {
                Err(error) if !matches!(error.kind(), ErrorKind::Conflict { .. }) => return Err(error),
                _ => {}
            }
            first(&documents).await?.ok_or_else(|| {
                Error::corrupt(format!("session {session} does not hold the configuration that was written"))
            })?
        }
    };
    if kept.by != Actor::SYSTEM {
        return Err(Error::invalid(format!(
            "the configuration of session {session} was written by {}, not by its host",
            kept.by
        )));
    }
    now.frozen(&kept.text)
}

async fn first(documents: &Documents) -> Result<Option<Document>> {
    documents.version(CONFIG_DOCUMENT, Revision::ZERO.next()).await
}
