//! Contexts that are kept between the runs of conversations, within one budget of memory. None is ever needed: a run reads from the
//! log what is not here.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::context::{ContextLimits, ModelContext};
use crate::model::media::MEDIA_MAX_BYTES;
use crate::model::replay::Given;
use agent_core::session::SessionRecord;
use agent_core::{CommitId, Seq, SessionId};

/// Bytes of a context with hardly any message.
const EACH_BYTES: usize = 4 << 10;

/// Number of events that a context is continued by.
const CONTINUED_MAX: u64 = 1_000;

/// Context of a session at the end of a run.
pub(crate) struct Kept {
    context: ModelContext,
    /// Messages of the last request.
    given: Option<Given>,
    /// Last event that the context includes, the last of its commit.
    known: Seq,
    commit: CommitId,
    /// Where its window begins.
    window: (Seq, Seq),
    /// Bytes that the session stored.
    stored: u64,
    /// Number of values of secrets that were redacted from it. The log may have one more redacted than the context has.
    secrets: usize,
}

impl Kept {
    /// Returns the context to be kept; `None` if it is not all of what the log says up to `known`.
    pub(crate) fn of(
        context: ModelContext,
        given: Option<Given>,
        session: &SessionRecord,
        known: Seq,
        secrets: usize,
    ) -> Option<Self> {
        let commit = session.recent.iter().find(|commit| commit.last == known)?.id;
        let is_whole = !context.needs_compaction() && context.damaged().is_empty();
        is_whole.then_some(Self {
            context,
            given,
            known,
            commit,
            window: window_of(session),
            stored: stored(session),
            secrets,
        })
    }

    /// Returns the parts, and the last event that the context includes, if a run with these limits can go on from there;
    /// `None` if the log does not have that commit there, the last commits do not show it, another window was opened, or so much
    /// came since that it is read from its end.
    pub(crate) fn at(
        self,
        session: &SessionRecord,
        limits: ContextLimits,
        secrets: usize,
    ) -> Option<(ModelContext, Option<Given>, Seq)> {
        let is_there = session.recent.iter().any(|it| (it.id, it.last) == (self.commit, self.known));
        let is_same =
            self.context.limits() == limits && self.window == window_of(session) && self.secrets == secrets;
        let events = session.head.get().saturating_sub(self.known.get());
        let is_little = events <= CONTINUED_MAX
            && stored(session).saturating_sub(self.stored) <= u64::try_from(limits.bytes).unwrap_or(u64::MAX);
        (is_there && is_same && is_little).then_some((self.context, self.given, self.known))
    }

    /// Returns about how much memory it takes, in bytes.
    fn size_bytes(&self) -> usize {
        let media = self.given.as_ref().map_or(0, |given| MEDIA_MAX_BYTES.saturating_sub(given.room));
        let media = usize::try_from(media).unwrap_or(usize::MAX);
        let target = self.given.as_ref().map_or(0, |given| given.target.size_bytes());
        [self.context.size_bytes(), media, target, EACH_BYTES].into_iter().fold(0, usize::saturating_add)
    }
}

/// Returns where the window of a session begins: behind a cleared history, and behind a summary.
fn window_of(session: &SessionRecord) -> (Seq, Seq) {
    (session.visible_from, session.summary)
}

/// Returns the bytes that a session stores, without its blobs.
fn stored(session: &SessionRecord) -> u64 {
    let bytes = &session.content_bytes;
    bytes.texts.saturating_add(bytes.tool_results).saturating_add(bytes.reasoning)
}

/// Contexts of all conversations of a runtime, on the stores of all tenants.
#[derive(Debug)]
pub(crate) struct KeptContexts {
    /// Maximum of the sum of their bytes.
    budget: usize,
    all: Mutex<All>,
}

#[derive(Debug, Default)]
struct All {
    /// By stores and session.
    kept: HashMap<u64, HashMap<SessionId, Entry>>,
    /// The same by their last use.
    used: BTreeMap<u64, Place>,
    bytes: usize,
    /// Number of the last use, and of the last of the stores.
    uses: u64,
    stores: u64,
}

/// Number of the stores, and the session there.
type Place = (u64, SessionId);

struct Entry {
    kept: Box<Kept>,
    bytes: usize,
    use_number: u64,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A conversation is in no log.
        f.debug_struct("Entry").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl All {
    fn remove(&mut self, (stores, session): Place) -> Option<Kept> {
        let entry = self.kept.get_mut(&stores)?.remove(&session)?;
        self.forget(&entry);
        Some(*entry.kept)
    }

    fn forget(&mut self, entry: &Entry) {
        self.used.remove(&entry.use_number);
        self.bytes -= entry.bytes;
    }
}

impl KeptContexts {
    pub(crate) fn new(budget: usize) -> Self {
        Self { budget, all: Mutex::default() }
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, place: Place, kept: Kept) {
        let bytes = kept.size_bytes();
        if bytes > self.budget {
            return;
        }
        // Dropped after the lock, which is taken later.
        let mut freed = Vec::new();
        let mut all = self.all();
        freed.extend(all.remove(place));
        all.uses += 1;
        let use_number = all.uses;
        all.bytes += bytes;
        all.used.insert(use_number, place);
        all.kept
            .entry(place.0)
            .or_default()
            .insert(place.1, Entry { kept: Box::new(kept), bytes, use_number });
        while all.bytes > self.budget
            && let Some((_, oldest)) = all.used.first_key_value().map(|(number, place)| (*number, *place))
        {
            freed.extend(all.remove(oldest));
        }
    }
}

/// Contexts of the sessions of one tenant's stores. They are dropped with it.
#[derive(Debug)]
pub(crate) struct TenantContexts {
    all: Arc<KeptContexts>,
    stores: u64,
}

impl TenantContexts {
    pub(crate) fn new(all: Arc<KeptContexts>) -> Self {
        let stores = {
            let mut all = all.all();
            all.stores += 1;
            all.stores
        };
        Self { all, stores }
    }

    /// Takes the context of a session, which is then not kept any more.
    pub(crate) fn take(&self, session: SessionId) -> Option<Kept> {
        self.all.all().remove((self.stores, session))
    }

    /// Keeps the context of a session, in place of those that were used longest ago.
    pub(crate) fn put(&self, session: SessionId, kept: Kept) {
        self.all.put((self.stores, session), kept);
    }
}

impl Drop for TenantContexts {
    fn drop(&mut self) {
        let mut all = self.all.all();
        let freed = all.kept.remove(&self.stores).unwrap_or_default();
        freed.values().for_each(|entry| all.forget(entry));
        drop(all);
    }
}
