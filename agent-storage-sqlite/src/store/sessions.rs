//! Sessions, thin over a read on one of the threads that read, or a request to the writer.

use std::sync::Arc;
use std::time::Duration;

use agent_core::commit::{Commit, Committed};
use agent_core::event::Event;
use agent_core::session::{Session, SessionSummary};
use agent_core::state::Reason;
use agent_core::store::{
    Capabilities, Damaged, Durability, EventPage, Page, Pulse, Purge, Purged, ReadEvents, Rebuilt, Scope,
    SessionQuery,
};
use agent_core::{Epoch, ErrorKind, Result, Seq, SessionId, SessionStore, Timestamp, async_trait};
use tracing::field::Empty;
use tracing::info_span;

use super::{SqliteStore, observed};
use crate::config::Sync;
use crate::error::gone;
use crate::reading::Found;
use crate::request::{Answer, Request};
use crate::{check, reading};

/// How often a session is looked at by those who wait for a change that another process makes.
const LOOK: Duration = Duration::from_millis(25);
const LOOK_MAX: Duration = Duration::from_millis(250);

#[async_trait]
impl SessionStore for SqliteStore {
    async fn commit(&self, commit: Commit) -> Result<Committed> {
        let id = commit.session;
        let span = info_span!("store.commit", store = "sqlite", session = %id, events = Empty, bytes = Empty, outcome = Empty);
        let noted = span.clone();
        let work = async {
            let request = Request::Commit(Box::new(commit));
            noted.record("bytes", request.size_bytes());
            let Answer::Committed(done) = self.ask(request).await? else { return Err(gone()) };
            self.shared.readers.warm(self.session(id));
            noted.record("events", (done.last.get() + 1).saturating_sub(done.first.get()));
            Ok(*done)
        };
        observed(span, work).await
    }

    async fn load(&self, id: SessionId) -> Result<Arc<Session>> {
        let span = info_span!("store.load", store = "sqlite", session = %id, outcome = Empty);
        let work = async {
            let what = self.session(id);
            let found = match self.read_at_once(&what, |conn| reading::load(conn, &self.tenant, id).map(Some))
            {
                Some(found) => found?,
                None => {
                    let tenant = self.tenant.clone();
                    self.read("read a session", what, move |conn| reading::load(conn, &tenant, id)).await?
                }
            };
            match found {
                Found::Whole(session) => Ok(session),
                Found::Broken => self.mend(id).await,
            }
        };
        observed(span, work).await
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        let span = info_span!("store.read", store = "sqlite", session = %id, events = Empty, bytes = Empty, outcome = Empty);
        let noted = span.clone();
        let work = async {
            let mut mended = false;
            let page = loop {
                match self.page(id, &read).await? {
                    Found::Whole(page) => break page,
                    Found::Broken if mended => return Err(gone()),
                    Found::Broken => {
                        self.mend(id).await?;
                        mended = true;
                    }
                }
            };
            noted.record("events", page.events.len());
            noted.record("bytes", page.events.iter().map(Event::size_bytes).sum::<usize>());
            Ok(page)
        };
        observed(span, work).await
    }

    async fn list(&self, query: SessionQuery) -> Result<Page<SessionSummary>> {
        let span = info_span!("store.list_sessions", store = "sqlite", outcome = Empty);
        let work = async {
            // Once for all pages.
            let is_first = query.with_total && query.cursor.is_none();
            let lost = if is_first { self.find_rows().await? } else { Vec::new() };
            let mut listed = self.listed(&query).await?;
            listed.page.damaged.extend(lost);
            for id in std::mem::take(&mut listed.broken) {
                match self.mend(id).await {
                    Ok(session) => {
                        let summary = SessionSummary::from(&*session);
                        listed.page.items.extend(query.wants(&summary).then_some(summary));
                    }
                    Err(error) if *error.kind() == ErrorKind::Corrupt => {
                        listed.page.damaged.push(Damaged::new(format!("session {id}"), error.to_string()));
                    }
                    Err(error) => return Err(error),
                }
            }
            query.sort(&mut listed.page.items);
            Ok(listed.page)
        };
        observed(span, work).await
    }

    async fn purge(&self, purge: Purge) -> Result<Purged> {
        let span = info_span!("store.purge", store = "sqlite", session = %purge.session, outcome = Empty);
        let work = async {
            // A fork without its row would not be found, and lose what it reads.
            self.read_rows("look for missing rows", check::rows_are_whole).await?;
            let purge = purge.sparing_forks(self).await?;
            match self.ask(Request::Purge(purge)).await? {
                Answer::Purged(purged) => Ok(purged),
                _ => Err(gone()),
            }
        };
        observed(span, work).await
    }

    async fn beat(&self, id: SessionId, epoch: Epoch) -> Result<()> {
        let span = info_span!("store.beat", store = "sqlite", session = %id, outcome = Empty);
        observed(span, async { self.ask(Request::Beat(id, epoch)).await.map(drop) }).await
    }

    async fn pulse(&self, id: SessionId, epoch: Epoch) -> Result<Pulse> {
        let span = info_span!("store.pulse", store = "sqlite", session = %id, outcome = Empty);
        let work = async {
            let (tenant, path) = (self.tenant.clone(), self.path().to_owned());
            let found = self.read_rows("look for signs of life", move |conn| {
                reading::pulse(conn, &path, &tenant, id, epoch)
            });
            match found.await? {
                Found::Whole(pulse) => Ok(pulse),
                Found::Broken => self.mend(id).await.map(|_| Pulse::default()),
            }
        };
        observed(span, work).await
    }

    /// SQLite's own check of the whole file, with all tenants: its structure, and that indexes fit their tables. Also that the
    /// schema is this library's, and that no row is gone which other rows name.
    async fn check(&self) -> Result<Vec<Damaged>> {
        let span = info_span!("store.check", store = "sqlite", outcome = Empty);
        let found = async {
            match self.read_rows("check the file", check::file).await {
                Err(error) if *error.kind() == ErrorKind::Corrupt => Ok(vec![error.to_string()]),
                found => found,
            }
        };
        let file = self.path().display().to_string();
        let found = observed(span, found).await?;
        Ok(found.into_iter().map(|what| Damaged::new(file.clone(), what)).collect())
    }

    async fn rebuild(&self) -> Result<Rebuilt> {
        self.rebuilt(false).await
    }

    async fn delete_damaged(&self, id: SessionId, at: Timestamp, reason: Reason) -> Result<Arc<Session>> {
        let span = info_span!("store.delete_damaged", store = "sqlite", session = %id, outcome = Empty);
        let work = async {
            match self.ask(Request::DeleteDamaged(id, at, reason)).await? {
                Answer::Session(session) => Ok(session),
                _ => Err(gone()),
            }
        };
        observed(span, work).await
    }

    fn capabilities(&self) -> Capabilities {
        let durability = match self.shared.config.sync {
            Sync::Full => Durability::PowerLoss,
            Sync::Normal | Sync::Off => Durability::ProcessCrash,
        };
        Capabilities::new(Scope::Host, durability)
    }

    async fn changed(&self, id: SessionId, seen: Seq) -> Result<Seq> {
        let span = info_span!("store.changed", store = "sqlite", session = %id, outcome = Empty);
        let work = async {
            // What this store writes is told at once; what others write is looked for.
            let mut told = self.shared.heads.watch(&self.tenant, id);
            let mut pause = LOOK;
            loop {
                let head = self.head(id).await?;
                if head > seen {
                    return Ok(head);
                }
                let _ = tokio::time::timeout(pause, told.wait_for(|head| *head > seen)).await;
                pause = (pause * 3 / 2).min(LOOK_MAX);
            }
        };
        observed(span, work).await
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}
