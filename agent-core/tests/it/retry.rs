//! A commit is sent until it is known what became of it, and no longer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Committed, Precondition};
use agent_core::event::NewEvent;
use agent_core::session::{NewSession, SessionRecord};
use agent_core::store::{EventPage, ReadEvents};
use agent_core::{
    Backend, Error, ErrorKind, MemoryStore, Result, Seq, SessionId, SessionStore, SessionStoreExt, Sessions,
    TenantId, Timestamp, WorkspaceId, WriteOutcome, async_trait,
};

/// A store that answers commits as it is told to, and then in earnest.
#[derive(Debug)]
struct Scripted {
    inner: MemoryStore,
    answers: Mutex<VecDeque<Error>>,
    /// How many commits came, and how often the log was read.
    calls: Mutex<(usize, usize)>,
}

#[async_trait]
impl agent_core::store::SessionStoreWrapper for Scripted {
    fn inner(&self) -> &dyn SessionStore {
        &self.inner
    }

    async fn commit(&self, commit: Commit) -> Result<Committed> {
        self.calls.lock().unwrap().0 += 1;
        let answer = self.answers.lock().unwrap().pop_front();
        match answer {
            Some(error) => Err(error),
            None => self.inner.commit(commit).await,
        }
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        self.calls.lock().unwrap().1 += 1;
        self.inner.read(id, read).await
    }
}

fn plain(kind: ErrorKind) -> Error {
    Error::new(kind, "as told")
}

fn unknown(kind: ErrorKind) -> Error {
    plain(kind).with_outcome(WriteOutcome::Unknown)
}

fn overtaken(head: u64) -> Error {
    plain(ErrorKind::Conflict { head: Some(Seq::new(head)) })
}

/// What a commit comes to where the store answers so: the result, how many commits came, and how often the log was read.
async fn settle(
    answers: impl IntoIterator<Item = Error>,
    expect: Option<Precondition<Seq>>,
) -> (Result<Committed>, usize, usize) {
    let effects = Effects::seeded(1, Timestamp::UNIX_EPOCH);
    let inner = MemoryStore::new();
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let session = inner.sessions(&effects).create(new).await.unwrap();
    let answers = Mutex::new(answers.into_iter().collect());
    let store = Scripted { inner, answers, calls: Mutex::default() };
    let mut commit = Commit::seal(&effects, session.id, session.head).with_event(NewEvent::user_message("x"));
    if let Some(expect) = expect {
        commit = commit.with_precondition(expect);
    }
    let done = store.commit_with_retry(commit).await;
    let (commits, reads) = *store.calls.lock().unwrap();
    (done, commits, reads)
}

/// What may pass, or nobody knows, is tried again with growing pauses, five times in all; anything else once.
#[tokio::test(start_paused = true)]
async fn a_commit_is_tried_five_times_with_growing_pauses() {
    let begun = tokio::time::Instant::now();
    let (done, commits, _) = settle((0..9).map(|_| plain(ErrorKind::Unavailable)), None).await;
    assert_eq!((done.unwrap_err().kind(), commits), (&ErrorKind::Unavailable, 5));
    assert_eq!(begun.elapsed().as_millis(), Duration::from_millis(20 + 40 + 80 + 160).as_millis());

    let (done, commits, _) = settle((0..4).map(|_| plain(ErrorKind::Unavailable)), None).await;
    assert!(done.is_ok() && commits == 5);
    let (done, commits, _) = settle([unknown(ErrorKind::Full)], None).await;
    assert!(done.is_ok() && commits == 2, "nobody knows what became of it");
    for error in [plain(ErrorKind::Denied), plain(ErrorKind::Full), unknown(ErrorKind::Poisoned)] {
        let kind = error.kind().clone();
        let (done, commits, reads) = settle([error], None).await;
        assert_eq!((done.unwrap_err().kind(), commits, reads), (&kind, 1, 0));
    }
}

/// What the store has taken all its time for is not tried again: the time is that of the whole operation. Where nobody
/// knows what became of it, that is asked once.
#[tokio::test(start_paused = true)]
async fn timed_out_commit_is_not_retried() {
    for (error, most) in [(plain(ErrorKind::Unavailable), 1), (unknown(ErrorKind::Unavailable), 2)] {
        let outcome = error.write_outcome();
        let (done, commits, reads) = settle((0..5).map(|_| error.clone().timed_out()), None).await;
        let error = done.unwrap_err();
        assert!(error.is_timeout() && error.is_retryable());
        assert_eq!((error.write_outcome(), commits, reads), (outcome, most, 0));
    }
    let (done, commits, _) = settle([unknown(ErrorKind::Unavailable).timed_out()], None).await;
    assert!(done.is_ok() && commits == 2);
}

/// A store that derives nothing makes nothing anew, and finds nothing wrong.
#[tokio::test]
async fn store_without_derived_data_rebuilds_nothing() {
    let store = Scripted { inner: MemoryStore::new(), answers: Mutex::default(), calls: Mutex::default() };
    assert_eq!(
        (store.maintenance().rebuild().await.unwrap(), store.maintenance().check().await.unwrap()),
        (agent_core::store::Rebuilt::default(), Vec::new())
    );
}

/// Once nobody knew, an error that does not look whether the commit landed leaves that unknown; one that looked does not.
#[tokio::test(start_paused = true)]
async fn unknown_outcome_stays_until_the_log_is_read() {
    for kind in [ErrorKind::Denied, ErrorKind::Full, ErrorKind::Corrupt, ErrorKind::Poisoned] {
        let (done, ..) = settle([plain(kind.clone())], None).await;
        assert_eq!(done.unwrap_err().write_outcome(), WriteOutcome::NotApplied, "{kind:?}");
        let (done, ..) = settle([unknown(ErrorKind::Unavailable), plain(kind.clone())], None).await;
        assert_eq!(done.unwrap_err().write_outcome(), WriteOutcome::Unknown, "{kind:?}");
    }
    for kind in [ErrorKind::Deleted, ErrorKind::InvalidInput, ErrorKind::LimitExceeded] {
        let (done, ..) = settle([unknown(ErrorKind::Unavailable), plain(kind.clone())], None).await;
        assert_eq!(done.unwrap_err().write_outcome(), WriteOutcome::NotApplied, "{kind:?}");
    }
}

/// Where others overtook it the log is read and the commit sent again, unless its writer expects a place, or has seen
/// all there is; not for ever.
#[tokio::test(start_paused = true)]
async fn overtaken_commit_is_sent_again() {
    let (done, commits, reads) = settle([overtaken(7), overtaken(9)], None).await;
    assert!(done.is_ok() && commits == 3 && reads == 2);
    let (done, commits, reads) = settle([overtaken(7)], Some(Precondition::Matches(Seq::new(1)))).await;
    assert_eq!((done.is_err(), commits, reads), (true, 1, 0), "it belongs behind event 1 and nowhere else");
    let (done, commits, reads) = settle([overtaken(1)], None).await;
    assert_eq!((done.is_err(), commits, reads), (true, 1, 0), "it has seen event 1");
    let (done, commits, _) = settle((2..3000).map(overtaken), None).await;
    assert_eq!((done.is_err(), commits), (true, 1001));
}

/// A session of `count` commits, in a store that counts.
async fn long(effects: &Effects, count: usize, answers: Vec<Error>) -> (Arc<Scripted>, SessionId) {
    let inner = MemoryStore::new();
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let mut session = inner.sessions(effects).create(new).await.unwrap();
    for n in 0..count {
        let event = NewEvent::user_message(format!("message {n}"));
        session = inner
            .commit(Commit::seal(effects, session.id, session.head).with_event(event))
            .await
            .unwrap()
            .session;
    }
    let calls = Mutex::default();
    (Arc::new(Scripted { inner, answers: Mutex::new(answers.into()), calls }), session.id)
}

/// An append by somebody who has not looked, or looked long ago, reads nothing of the log: a commit that was
/// sealed just now cannot lie there. Also where the store fails in between.
#[tokio::test(start_paused = true)]
async fn append_without_a_prior_read_reads_no_log() {
    let effects = Effects::seeded(1, Timestamp::UNIX_EPOCH);
    for seen in [Seq::ZERO, Seq::new(1), Seq::new(100)] {
        let (store, id) = long(&effects, 300, vec![plain(ErrorKind::Unavailable)]).await;
        let done = Sessions::new(store.clone(), effects.clone())
            .append(id, seen, vec![NewEvent::user_message("late")])
            .await
            .unwrap();
        assert_eq!((done.first, done.last, done.replayed), (Seq::new(302), Seq::new(302), false));
        let (commits, reads) = *store.calls.lock().unwrap();
        assert!(commits <= 3 && reads == 0, "seen {seen}: {commits} commits, {reads} reads");
    }
}

/// Where nobody knows whether the first attempt landed, one who has not looked looks no further back than what came
/// since then, and nothing is applied twice.
#[tokio::test(start_paused = true)]
async fn append_without_a_prior_read_is_applied_once() {
    let effects = Effects::seeded(1, Timestamp::UNIX_EPOCH);
    let (store, id) = long(&effects, 300, vec![unknown(ErrorKind::Unavailable)]).await;
    let done = Sessions::new(store.clone(), effects.clone())
        .append(id, Seq::ZERO, vec![NewEvent::user_message("late")])
        .await
        .unwrap();
    assert_eq!(done.last, Seq::new(302));
    let (commits, reads) = *store.calls.lock().unwrap();
    assert!(commits == 2 && reads == 0, "{commits} commits, {reads} reads");
    let absent = effects.new_session_id();
    let refused = Sessions::new(store.clone(), effects.clone())
        .append(absent, Seq::ZERO, vec![NewEvent::user_message("x")])
        .await
        .unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::NotFound);
}

/// A store that was made by `default` is the tenant `default` of itself.
#[tokio::test]
async fn default_memory_store_is_the_default_tenant() {
    let store = MemoryStore::default();
    let effects = Effects::seeded(1, Timestamp::UNIX_EPOCH);
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let id = store.sessions(&effects).create(new).await.unwrap().id;
    assert!(SessionStore::load(&store.for_tenant(&TenantId::default()), id).await.is_ok());
    assert_eq!(Backend::tenants(&store, None).await.unwrap().items, [TenantId::default()]);
    let storage = Backend::tenant(&store, &TenantId::default());
    assert!(storage.sessions.load(id).await.is_ok());
}

/// A store that counts what it is asked for.
#[derive(Debug, Default)]
struct Counting {
    inner: MemoryStore,
    commits: AtomicUsize,
    loads: AtomicUsize,
    reads: AtomicUsize,
}

impl Counting {
    /// How many commits, loads of a record and reads of a log there were since the last look.
    fn counts(&self) -> [usize; 3] {
        [&self.commits, &self.loads, &self.reads].map(|count| count.swap(0, Ordering::Relaxed))
    }
}

#[async_trait]
impl agent_core::store::SessionStoreWrapper for Counting {
    fn inner(&self) -> &dyn SessionStore {
        &self.inner
    }

    async fn commit(&self, commit: Commit) -> Result<Committed> {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.inner.commit(commit).await
    }

    async fn load(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        self.inner.load(id).await
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.read(id, read).await
    }
}

/// A writer that does not know the head pays for one load of the record; one that knew it a moment ago pays nothing.
/// The log is not read, however long it is.
#[tokio::test]
async fn append_without_a_head_reads_one_record() {
    let effects = Effects::seeded(1, Timestamp::UNIX_EPOCH);
    let store = Arc::new(Counting::default());
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let id = Sessions::new(store.clone(), effects.clone()).create(new).await.unwrap().id;
    let events = |n: usize| vec![NewEvent::user_message(format!("{n}"))];
    for length in [1, 40, 3000] {
        let mut head = Sessions::new(store.clone(), effects.clone())
            .append(id, Seq::ZERO, events(0))
            .await
            .unwrap()
            .last;
        while head.get() < length {
            head =
                Sessions::new(store.clone(), effects.clone()).append(id, head, events(1)).await.unwrap().last;
        }
        store.counts();
        let done =
            Sessions::new(store.clone(), effects.clone()).append(id, Seq::ZERO, events(2)).await.unwrap();
        assert_eq!(done.last, head.next());
        assert_eq!(store.counts(), [1, 1, 0], "commits, loads and reads at {head}");
        let done = Sessions::new(store.clone(), effects.clone()).append(id, head, events(3)).await.unwrap();
        assert_eq!(done.last, head.next().next());
        assert_eq!(store.counts(), [1, 0, 0], "commits, loads and reads at {head}");
    }
}

/// A store that loses the answer to the first commit, which others follow before it is sent again.
#[derive(Debug)]
struct Overtaking {
    inner: MemoryStore,
    effects: Effects,
    /// Whether the first commit is applied.
    applies: bool,
    commits: AtomicUsize,
}

#[async_trait]
impl agent_core::store::SessionStoreWrapper for Overtaking {
    fn inner(&self) -> &dyn SessionStore {
        &self.inner
    }

    async fn commit(&self, commit: Commit) -> Result<Committed> {
        if self.commits.fetch_add(1, Ordering::Relaxed) > 0 {
            return self.inner.commit(commit).await;
        }
        let id = commit.session;
        match self.applies {
            true => drop(self.inner.commit(commit).await?),
            false => {
                let new = NewSession::new(id, WorkspaceId::DEFAULT);
                self.inner.sessions(&self.effects).create(new).await?;
            }
        }
        for n in 0..40 {
            let events = vec![NewEvent::user_message(format!("{n}"))];
            self.inner.sessions(&self.effects).append(id, Seq::ZERO, events).await?;
        }
        Err(unknown(ErrorKind::Unavailable))
    }
}

/// A creation whose answer was lost is known to have landed, however many have written to the session since; one that
/// somebody else was faster with is a conflict.
#[tokio::test(start_paused = true)]
async fn own_creation_is_distinguished_from_anothers() {
    for applies in [true, false] {
        let effects = Effects::seeded(1, Timestamp::UNIX_EPOCH);
        let id = effects.new_session_id();
        let store =
            Overtaking { inner: MemoryStore::new(), effects: effects.clone(), applies, commits: 0.into() };
        let commit = Commit::create(&effects, NewSession::new(id, WorkspaceId::DEFAULT))
            .with_event(NewEvent::user_message("first"));
        let done = store.commit_with_retry(commit).await;
        match applies {
            true => assert_eq!(
                done.map(|done| (done.first.get(), done.last.get(), done.replayed)).unwrap(),
                (1, 2, true)
            ),
            false => assert!(matches!(done.unwrap_err().kind(), ErrorKind::Conflict { head: Some(_) })),
        }
    }
}
