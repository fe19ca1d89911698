//! Compaction of a session by its run: a summary that replaces the older part of what a model is given, as an event of
//! the log.

use tokio::time::timeout;
use tracing::warn;

use crate::context::{ModelContext, Point, shortened};
use crate::runtime::driver::Driver;
use crate::runtime::report::Update;
use crate::runtime::stop::Stopped;
use crate::runtime::summarizer::{SUMMARY_TIMEOUT, SummaryRequest, mechanical};
use agent_core::event::{EventPayload, EventType, NewEvent};
use agent_core::isolated::isolated;
use agent_core::model::{Actor, ToolPayloads};
use agent_core::store::ReadEvents;
use agent_core::{ErrorKind, Result, SessionStoreExt};

/// Summary of the older part of a history.
struct Summary {
    text: String,
    /// Whether the summarizer wrote it.
    is_written: bool,
}

impl Driver {
    /// Compacts the session if its context exceeds the limits. Returns `false` if the run must end.
    pub(super) async fn make_room(&mut self, context: &mut ModelContext) -> Result<bool> {
        if self.stale && self.backlog.is_empty() {
            self.stale = false;
            // A log that omits payloads has less than the context of this run.
            if self.payloads() == ToolPayloads::Store {
                *context = self.read_context().await?;
            }
        }
        // What is not stored yet has no place in the log at which a summary could end.
        if !self.backlog.is_empty() || self.stale {
            return Ok(true);
        }
        let Some(point) = context.point() else { return Ok(true) };
        let Some(summary) = self.summary(context, &point).await? else { return Ok(false) };
        self.commit_summary(context, point, summary).await?;
        Ok(true)
    }

    /// Compacts the session to half of what its model was given, which was too long for it. Returns `false` if that is
    /// not possible, or the run must end.
    pub(super) async fn shrink(&mut self, context: &mut ModelContext) -> Result<bool> {
        if !self.backlog.is_empty() || self.stale {
            return Ok(false);
        }
        let Some(point) = context.middle() else { return Ok(false) };
        if context.replaced(&point).is_empty() {
            return Ok(false);
        }
        let Some(summary) = self.summary(context, &point).await? else { return Ok(false) };
        self.commit_summary(context, point, summary).await?;
        Ok(true)
    }

    /// Returns the summary up to a position; `None` if the run must end.
    async fn summary(&mut self, context: &ModelContext, point: &Point) -> Result<Option<Summary>> {
        let runtime = self.handle.runtime().clone();
        let limits = self.settings.limits.context;
        let events = point.until.get() - self.session.visible_from.get();
        let by_rule = || Summary { text: mechanical(context.summary(), events, &limits), is_written: false };
        // The older part of a window that was not read to its beginning is not known.
        let Some(summarizer) = runtime.shared.summarizer.as_ref().filter(|_| context.is_whole()) else {
            return Ok(Some(by_rule()));
        };
        let request = SummaryRequest {
            session: self.session.id,
            workspace: self.session.workspace,
            previous: context.summary().map(str::to_owned),
            messages: context.replaced(point),
            max_bytes: limits.bytes / 4,
        };
        let work = timeout(SUMMARY_TIMEOUT, isolated(|| summarizer.summarize(request)));
        let written = tokio::select! {
            biased;
            stopped = &mut self.stop => return match stopped {
                Stopped::Asked => Ok(None),
                Stopped::Fenced(error) => Err(error),
            },
            written = work => written,
        };
        let session = self.session.id;
        Ok(Some(match written {
            Ok(Some(Ok(text))) if !text.trim().is_empty() => {
                // Redacted before it is cut, because a part of a value is not recognized.
                let text = shortened(runtime.redact(&text).into_owned(), limits.bytes / 4);
                Summary { text, is_written: true }
            }
            Ok(Some(Ok(_))) => {
                warn!(%session, "the summarizer gave no text; the events are counted instead");
                by_rule()
            }
            Ok(Some(Err(error))) => {
                let error = error.to_string();
                warn!(%session, error = %runtime.redact(&error), "the summarizer failed; the events are counted instead");
                by_rule()
            }
            Ok(None) => {
                warn!(%session, "the summarizer panicked; the events are counted instead");
                by_rule()
            }
            Err(_) => {
                warn!(%session, "the summarizer took too long; the events are counted instead");
                by_rule()
            }
        }))
    }

    /// Commits a summary in a commit of its own.
    async fn commit_summary(
        &mut self,
        context: &mut ModelContext,
        point: Point,
        summary: Summary,
    ) -> Result<()> {
        let Summary { text, is_written } = summary;
        let sessions = self.handle.runtime().storage.sessions.clone();
        let compaction = context.compaction(&*sessions, &self.session, point, text).await?;
        let event =
            NewEvent::of(&EventPayload::SessionCompacted(compaction.clone())).with_actor(Actor::SYSTEM);
        match self.save(vec![event], context).await {
            Ok(_) => self.send(Update::Compacted { summarized: is_written }),
            // Another writer compacted or cleared the history first.
            Err(error) if *error.kind() == ErrorKind::InvalidInput => {
                warn!(session = %self.session.id, %error, "the history could not be compacted");
                self.stale = true;
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        if context.is_whole() {
            context.compact(&compaction);
        } else {
            *context = self.read_context().await?;
        }
        Ok(())
    }

    /// Returns the part of tool payloads that the log of this session keeps.
    pub(super) fn payloads(&self) -> ToolPayloads {
        let configured = self.handle.runtime().config().tool_payloads;
        self.session.attributes.tool_payloads.unwrap_or(configured)
    }

    /// Reads the context, and logs damage.
    pub(super) async fn read_context(&mut self) -> Result<ModelContext> {
        let runtime = self.handle.runtime();
        let limits = self.settings.limits.context;
        let context = ModelContext::read(&*runtime.storage.sessions, &self.session, limits).await?;
        for damage in context.damaged() {
            warn!(session = %self.session.id, %damage, "a part of the history cannot be read");
        }
        self.known = self.session.head;
        Ok(context)
    }

    /// Adds the events that other writers have stored between the commits of this run.
    pub(super) async fn catch_up(&mut self, context: &mut ModelContext) -> Result<()> {
        let sessions = self.handle.runtime().storage.sessions.clone();
        for (after, before) in std::mem::take(&mut self.missed) {
            let mut next = Some(ReadEvents::first(100).with_after(after).with_before(before));
            while let Some(read) = next {
                let page = sessions.history_of(&self.session, read).await?;
                for event in &page.events {
                    // An event that cannot be decoded is left out for the model, and stays in the log.
                    if let Err(error) = context.observe(event) {
                        warn!(session = %self.session.id, %error, "an event of another writer cannot be read");
                    }
                    let moves = [EventType::SESSION_COMPACTED, EventType::SESSION_HISTORY_CLEARED];
                    self.stale |= moves.contains(&event.kind);
                }
                self.stale |= !page.damaged.is_empty();
                next = page.next;
            }
        }
        Ok(())
    }
}
