//! Compaction of a session by its run: a summary replaces the older part of the context, as an event of the log.

use std::borrow::Cow;

use tokio::time::timeout;
use tracing::warn;

use crate::context::{ContextLimits, ModelContext, Point, shortened};
use crate::model::fault::FaultKind;
use crate::model::kept::Kept;
use crate::model::summarizer::{SUMMARY_TIMEOUT, SummaryRequest, WrittenSummary, mechanical, told};
use crate::run::report::Update;
use crate::run::stop::Stopped;
use crate::turn::ask::{Answer, AnswerEnd, ask};
use crate::turn::state::Driver;
use agent_core::event::{Compaction, Event, EventPayload, EventType, NewEvent};
use agent_core::isolated::isolated;
use agent_core::model::{Actor, Cost, RunUsage, ToolPayloads, Usage};
use agent_core::store::ReadEvents;
use agent_core::{ErrorKind, Result, Seq, SessionStoreExt};

/// Shorter context with which a model is asked, and the compaction that makes it so in the log.
struct Shorter {
    context: ModelContext,
    compaction: Compaction,
    /// Whether the summarizer wrote the summary.
    is_written: bool,
}

/// Summary of the older part of a history.
struct Summary {
    text: String,
    /// Whether the summarizer wrote it.
    is_written: bool,
}

/// Result of an attempt to halve a context.
enum Half {
    Shorter(Box<Shorter>),
    /// The context has one exchange only.
    Indivisible,
    /// The run must end.
    Stopped,
}

impl Driver {
    /// Compacts the session if its context exceeds the limits. Returns `false` if the run must end.
    pub(super) async fn make_room(&mut self, context: &mut ModelContext) -> Result<bool> {
        if self.stale && self.backlog.is_empty() {
            self.stale = false;
            // A log that omits payloads has less than the context of this run.
            if self.payloads() == ToolPayloads::Store {
                self.given = None;
                *context = self.read_context().await?;
            }
        }
        // What is not stored yet has no place in the log at which a summary could end.
        if !self.backlog.is_empty() || self.stale {
            return Ok(true);
        }
        let Some(point) = context.point() else { return Ok(true) };
        let limits = self.settings.limits.context;
        let Some(summary) = self.summary(context, &point, limits).await? else { return Ok(false) };
        self.commit_summary(context, point, summary).await?;
        Ok(true)
    }

    /// Calls the model, and asks again with a half of the history if the request may be too long for it. The log gets the
    /// summary of the other half after the model has accepted the request, and before the answer.
    pub(super) async fn answer(&mut self, context: &mut ModelContext) -> Result<Answer> {
        self.without.media.clear();
        let (mut shorter, mut may_guess) = (None::<Shorter>, true);
        loop {
            let asked = shorter.as_ref().map_or(&*context, |shorter| &shorter.context);
            let mut answer = ask(self, asked).await;
            let fault = answer.end.fault().filter(|_| answer.may_retry);
            let is_too_long = match fault {
                Some(FaultKind::ContextTooLong) => true,
                // Not every server says what it refuses.
                Some(FaultKind::InvalidRequest) => {
                    answer.asked.has_answered && std::mem::take(&mut may_guess)
                }
                _ => false,
            };
            if is_too_long {
                match self.shorter(asked).await? {
                    Half::Shorter(next) => {
                        shorter = Some(*next);
                        continue;
                    }
                    Half::Indivisible => {}
                    Half::Stopped => {
                        answer.end = AnswerEnd::Stopped(Stopped::Asked);
                        return Ok(answer);
                    }
                }
            }
            if fault == Some(FaultKind::InvalidRequest) && !answer.asked.media.answered.is_empty() {
                // A request of a history over the limits had not all that stood before its answer.
                self.without.media.append(&mut answer.asked.media.answered);
                shorter = None;
                continue;
            }
            if let Some(shorter) = shorter.filter(|_| answer.has_begun)
                && !matches!(answer.end, AnswerEnd::Stopped(Stopped::Fenced(_)))
            {
                self.keep_shorter(shorter, context).await?;
            }
            return Ok(answer);
        }
    }

    /// Returns the context with a summary in place of its older half.
    async fn shorter(&mut self, context: &ModelContext) -> Result<Half> {
        // What is not stored yet has no place in the log at which a summary could end.
        if !self.backlog.is_empty() || self.stale {
            return Ok(Half::Indivisible);
        }
        let Some((point, room)) = context.middle() else { return Ok(Half::Indivisible) };
        if context.replaced(&point).is_empty() {
            return Ok(Half::Indivisible);
        }
        let limits = self.settings.limits.context;
        let limits = ContextLimits { bytes: limits.bytes.min(room), ..limits };
        let Some(summary) = self.summary(context, &point, limits).await? else { return Ok(Half::Stopped) };
        let sessions = self.handle.runtime().storage.sessions.clone();
        let Summary { text, is_written } = summary;
        let compaction = context.compaction(&*sessions, &self.session, point, text).await?;
        let context = context.compacted(&*sessions, &self.session, &compaction).await?;
        Ok(Half::Shorter(Box::new(Shorter { context, compaction, is_written })))
    }

    /// Commits the summary with which a model was asked that has accepted the request.
    async fn keep_shorter(&mut self, mut shorter: Shorter, context: &mut ModelContext) -> Result<()> {
        // The answer has a commit of its own, whose id its readers know.
        let answer = self.answer.take();
        let is_stored = self.store_summary(&shorter.compaction, &mut shorter.context).await;
        self.answer = answer;
        if is_stored? {
            self.send(Update::Compacted { summarized: shorter.is_written });
            *context = shorter.context;
        }
        Ok(())
    }

    /// Returns the summary up to a position, for a history with these limits; `None` if the run must end.
    async fn summary(
        &mut self,
        context: &ModelContext,
        point: &Point,
        limits: ContextLimits,
    ) -> Result<Option<Summary>> {
        let runtime = self.handle.runtime().clone();
        // The older part of a window that was not read to its beginning is not known.
        let Some(summarizer) = runtime.shared.summarizer.as_ref().filter(|_| context.is_whole()) else {
            return self.mechanical(context, point, limits).await.map(Some);
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
        match written {
            Ok(Some(Ok(WrittenSummary { text, usage, cost }))) => {
                self.count_summary(usage, cost);
                if !text.trim().is_empty() {
                    // Redacted before it is cut, because a part of a value is not recognized.
                    let text = runtime.redact(&text).into_owned();
                    let text = shortened(text, limits.bytes / 4);
                    return Ok(Some(Summary { text, is_written: true }));
                }
                warn!(%session, "the summarizer gave no text; the events are counted instead");
            }
            Ok(Some(Err(error))) => {
                let error = error.to_string();
                warn!(%session, error = %runtime.redact(&error), "the summarizer failed; the events are counted instead");
            }
            Ok(None) => warn!(%session, "the summarizer panicked; the events are counted instead"),
            Err(_) => warn!(%session, "the summarizer took too long; the events are counted instead"),
        }
        self.mechanical(context, point, limits).await.map(Some)
    }

    /// Counts what a model took for a summary. It may be another model than that of the run, with other prices.
    fn count_summary(&mut self, usage: Usage, cost: Option<Cost>) {
        let currency = |cost: &Option<Cost>| cost.as_ref().map(|cost| cost.currency.clone());
        match self.summaries.iter_mut().find(|used| currency(&used.cost) == currency(&cost)) {
            Some(used) => {
                used.usage = used.usage.plus(usage);
                if let (Some(sum), Some(cost)) = (&mut used.cost, cost) {
                    sum.micros = sum.micros.saturating_add(cost.micros);
                }
            }
            None if usage == Usage::default() && cost.is_none() => {}
            None => self.summaries.push(RunUsage::new(self.run, usage).with_cost(cost)),
        }
    }

    /// Returns the summary up to a position that nobody wrote.
    async fn mechanical(
        &mut self,
        context: &ModelContext,
        point: &Point,
        limits: ContextLimits,
    ) -> Result<Summary> {
        let events = point.until.get() - self.session.visible_from.get();
        let first = match told(context.summary()) {
            "" => self.first_message(point.until).await?,
            _ => None,
        };
        // The first message may be from before a value became known.
        let text = self.redacted(&mechanical(context.summary(), first, events, &limits));
        Ok(Summary { text, is_written: false })
    }

    /// Returns the first message of the visible history, if it is up to a position and can be read.
    async fn first_message(&mut self, until: Seq) -> Result<Option<String>> {
        let sessions = self.handle.runtime().storage.sessions.clone();
        let read = ReadEvents::first(1).with_after(self.session.visible_from).with_before(until.next());
        let read = read.with_types([EventType::USER_MESSAGE, EventType::USER_DEFINE_OUTCOME]);
        let session = self.session.clone();
        match sessions.history_of(&session, read.with_known_head(session.head)).await {
            Ok(page) => Ok(page.events.first().and_then(Event::text_view).map(Cow::into_owned)),
            Err(error) if *error.kind() == ErrorKind::Corrupt => Ok(None),
            Err(error) => Err(error),
        }
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
        if !self.store_summary(&compaction, context).await? {
            return Ok(());
        }
        self.send(Update::Compacted { summarized: is_written });
        // The next request begins with the summary: what the former one was made of is freed.
        self.given = None;
        if context.is_whole() {
            context.compact(&compaction);
        } else {
            *context = self.read_context().await?;
        }
        Ok(())
    }

    /// Commits a summary, and adds to the context what others have stored before it. Returns `false` if the history was
    /// changed so that the summary does not fit.
    async fn store_summary(&mut self, compaction: &Compaction, context: &mut ModelContext) -> Result<bool> {
        let event =
            NewEvent::of(&EventPayload::SessionCompacted(compaction.clone())).with_actor(Actor::SYSTEM);
        match self.save(vec![event], context).await {
            Ok(_) => Ok(true),
            // Another writer compacted or cleared the history first.
            Err(error) if *error.kind() == ErrorKind::InvalidInput => {
                warn!(session = %self.session.id, %error, "the history could not be compacted");
                self.stale = true;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the part of tool payloads that the log of this session keeps.
    pub(super) fn payloads(&self) -> ToolPayloads {
        let configured = self.handle.runtime().config().tool_payloads;
        self.session.attributes.tool_payloads.unwrap_or(configured)
    }

    /// Returns the context that the last run of the session has left, with what the log has since; `None` if nothing is kept, or
    /// the log has not only grown.
    pub(super) async fn kept_context(&mut self) -> Option<ModelContext> {
        let runtime = self.handle.runtime();
        let kept = runtime.contexts.take(self.session.id)?;
        let (mut context, given, known) =
            kept.at(&self.session, self.settings.limits.context, self.secrets)?;
        context.take(&self.session);
        self.missed.push((known, self.session.head.next()));
        // What cannot be read is found, and said, when the whole context is read.
        let is_read = self.catch_up(&mut context).await.is_ok();
        // One over the limits is read from its end, up to the limits.
        if !is_read || std::mem::take(&mut self.stale) || context.needs_compaction() {
            return None;
        }
        self.known = self.session.head;
        self.given = given;
        Some(context)
    }

    /// Returns the context for the next run of the session, if it is what the log says.
    pub(super) fn context_to_keep(&mut self, context: ModelContext) -> Option<Kept> {
        let given = self.given.take();
        let is_stored = self.backlog.is_empty() && self.missed.is_empty() && !self.stale && !self.lost;
        // A log that omits payloads or reasoning has less than the context.
        let is_whole = self.payloads() == ToolPayloads::Store && self.settings.store_thinking;
        if !is_stored || !is_whole {
            return None;
        }
        Kept::of(context, given, &self.session, self.known, self.secrets)
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
            let first = ReadEvents::first(100).with_after(after).with_before(before);
            let mut next = Some(first.with_known_head(self.session.head));
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
