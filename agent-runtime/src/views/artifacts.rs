//! What the runs of a session made.

use crate::views::session_view::SessionView;
use agent_core::event::{Body, EventType};
use agent_core::model::Artifact;
use agent_core::session::Session;
use agent_core::store::{Damaged, ReadEvents};
use agent_core::{Result, RunId, Seq, SessionStoreExt, Timestamp};

/// Something that was made, and when it was said so.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisteredArtifact {
    /// What it is, and which run made it.
    pub artifact: Artifact,
    /// The event that says so.
    pub seq: Seq,
    /// When that was written, by its writer's clock.
    pub at: Timestamp,
}

/// Artifacts, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArtifactPage {
    /// The artifacts.
    pub artifacts: Vec<RegisteredArtifact>,
    /// What could not be read.
    pub damaged: Vec<Damaged>,
    /// Where the next page starts: before this event; `None` on the last.
    pub next: Option<Seq>,
}

impl SessionView {
    /// What was made in the session, the newest first, `limit` a page, also by those it was forked from; of one run,
    /// where `run` names it. No other session is read.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn artifacts(
        &self,
        run: Option<RunId>,
        limit: usize,
        before: Option<Seq>,
    ) -> Result<ArtifactPage> {
        let session = self.sessions.load(self.id).await?;
        self.artifacts_of(&session, run, limit, before).await
    }

    pub(super) async fn artifacts_of(
        &self,
        session: &Session,
        run: Option<RunId>,
        limit: usize,
        before: Option<Seq>,
    ) -> Result<ArtifactPage> {
        let end = before.unwrap_or_else(|| session.head.next());
        let read = ReadEvents::last(limit).before(end).kinds([EventType::SESSION_ARTIFACT_REGISTERED]);
        let (mut page, mut next) = (ArtifactPage::default(), Some(read));
        while let Some(read) = next {
            let read = self.sessions.history_of(session, read).await?;
            for event in read.events.iter().rev() {
                let Body::SessionArtifactRegistered(artifact) = event.body()? else { continue };
                if run.is_some() && artifact.run != run {
                    continue;
                }
                page.artifacts.push(RegisteredArtifact { artifact, seq: event.seq, at: event.at });
                if page.artifacts.len() >= limit {
                    page.next = Some(event.seq);
                    return Ok(page);
                }
            }
            page.damaged.extend(read.damaged);
            next = read.next;
        }
        Ok(page)
    }
}
