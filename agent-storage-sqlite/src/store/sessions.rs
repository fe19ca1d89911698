//! Sessions: a thin layer over a read on a reader thread, or a request to the writer.

use std::sync::Arc;
use std::time::Duration;

use agent_core::commit::{Commit, Committed};
use agent_core::event::Event;
use agent_core::session::{Session, SessionSummary};
use agent_core::state::Reason;
use agent_core::store::{
    Capabilities, Damaged, Durability, EventPage, LeaseStatus, Page, Purge, Purged, ReadEvents, Rebuilt,
    Scope, SessionQuery,
};
use agent_core::{Epoch, ErrorKind, Result, Seq, SessionId, SessionStore, Timestamp, async_trait};
use rusqlite::Connection;
use tracing::field::Empty;
use tracing::info_span;

use super::{SqliteStore, observed};
use crate::config::Sync;
use crate::error::gone;
use crate::reading::Found;
use crate::request::{Answer, Request};
use crate::{check, reading};

/// Interval at which a session is checked for changes by other processes while a caller waits for one.
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
            let load = move |conn: &Connection, tenant: &str| reading::load(conn, tenant, id);
            let found = match self.read_at_once(&what, |conn, tenant| load(conn, tenant).map(Some)) {
                Some(found) => found?,
                None => self.read("read a session", what, self.shown(load)).await?,
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
            // Only once for all pages.
            let is_first = query.with_total && query.cursor.is_none();
            let lost = if is_first { self.find_rows().await? } else { Vec::new() };
            let mut listed = self.listed(&query).await?;
            listed.page.damaged.extend(lost);
            for id in std::mem::take(&mut listed.broken) {
                match self.mend(id).await {
                    Ok(session) => {
                        let summary = SessionSummary::from(&*session);
                        listed.page.items.extend(query.matches(&summary).then_some(summary));
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
            // A fork without its row would not be found, and would lose the events that it reads.
            self.read_rows("look for missing rows", check::rows_are_whole).await?;
            let purge = purge.sparing_forks(self).await?;
            match self.ask(Request::Purge(purge)).await? {
                Answer::Purged(purged) => Ok(purged),
                _ => Err(gone()),
            }
        };
        observed(span, work).await
    }

    async fn heartbeat(&self, id: SessionId, epoch: Epoch) -> Result<()> {
        let span = info_span!("store.heartbeat", store = "sqlite", session = %id, outcome = Empty);
        observed(span, async { self.ask(Request::Heartbeat(id, epoch)).await.map(drop) }).await
    }

    async fn lease_status(&self, id: SessionId, epoch: Epoch) -> Result<LeaseStatus> {
        let span = info_span!("store.lease_status", store = "sqlite", session = %id, outcome = Empty);
        let work = async {
            let path = self.path().to_owned();
            let lease_status =
                self.shown(move |conn, tenant| reading::lease_status(conn, &path, tenant, id, epoch));
            match self.read_rows("look for signs of life", lease_status).await? {
                Found::Whole(lease_status) => Ok(lease_status),
                Found::Broken => self.mend(id).await.map(|_| LeaseStatus::default()),
            }
        };
        observed(span, work).await
    }

    /// Runs SQLite's own check of the whole file, with all tenants: its structure, and that indexes match their
    /// tables. Also checks that the schema is this library's, and that no row is missing which other rows refer to.
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

    async fn put_blob(&self, put: agent_core::store::PutBlob) -> Result<()> {
        Err(agent_core::store::blobs_unsupported(Some(put.session)))
    }

    async fn read_blob(&self, read: agent_core::store::ReadBlob) -> Result<agent_core::store::BlobContent> {
        Err(agent_core::store::blobs_unsupported(Some(read.session)))
    }

    async fn list_blobs(
        &self,
        query: agent_core::store::BlobQuery,
    ) -> Result<Page<agent_core::store::BlobInfo>> {
        Err(agent_core::store::blobs_unsupported(Some(query.session)))
    }

    async fn sweep_blobs(
        &self,
        sweep: agent_core::store::SweepBlobs,
    ) -> Result<agent_core::store::SweptBlobs> {
        Err(agent_core::store::blobs_unsupported(sweep.session))
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
            // Writes of this store are notified at once; those of other processes are found by checking.
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
