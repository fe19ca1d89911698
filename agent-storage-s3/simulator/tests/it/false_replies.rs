//! Servers that are honest while the store is opened, and then reply falsely.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::Commit;
use agent_core::event::NewEvent;
use agent_core::session::NewSession;
use agent_core::store::SessionQuery;
use agent_core::{Seq, SessionStore, SessionStoreExt, Timestamp, WorkspaceId};
use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt;
use http_body::{Body, Frame};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use s3_simulator::{Connector, Simulator};
use tokio::time::timeout;

use crate::backend::{config, config_of};

/// What is not so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    /// An object has no byte.
    Nothing,
    /// An object is as long as it is said to be, and goes on for ever.
    Endless,
    /// An object has an exbibyte.
    Huge,
    /// An object is another one.
    Other,
    /// A page is followed by another, for ever.
    EndlessList,
    /// Whatever is asked for is a page for people.
    Portal,
    /// No answer has a tag.
    NoTag,
    /// There is nothing.
    Absent,
}

const ALL: [Lie; 8] = [
    Lie::Nothing,
    Lie::Endless,
    Lie::Huge,
    Lie::Other,
    Lie::EndlessList,
    Lie::Portal,
    Lie::NoTag,
    Lie::Absent,
];

/// Stands between the store and the simulator.
#[derive(Clone, Debug)]
struct Liar {
    honest: Connector,
    lie: Arc<Mutex<Option<Lie>>>,
    /// How many bytes of endless bodies were taken.
    taken: Arc<AtomicU64>,
}

impl HttpConnector for Liar {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Liar {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_list = request.uri().query().is_some_and(|query| query.contains("list-type"));
        let is_get = request.method() == http::Method::GET && !is_list;
        let mut answer = self.honest.call(request).await?;
        let lie = *self.lie.lock().unwrap();
        let found = answer.status().is_success();
        match lie {
            Some(Lie::Nothing) if is_get && found => {
                answer.headers_mut().insert("content-length", "0".parse().unwrap());
                *answer.body_mut() = Bytes::new().into();
            }
            Some(Lie::Endless) if is_get && found => {
                *answer.body_mut() = HttpResponseBody::new(Endless(self.taken.clone()));
            }
            Some(Lie::Huge) if is_get && found => {
                answer.headers_mut().insert("content-length", (1_u64 << 60).to_string().parse().unwrap());
                *answer.body_mut() = HttpResponseBody::new(Endless(self.taken.clone()));
            }
            Some(Lie::Other) if is_get && found => {
                let length = answer.headers()["content-length"].to_str().unwrap().parse().unwrap();
                *answer.body_mut() = Bytes::from(vec![b'x'; length]).into();
            }
            Some(Lie::EndlessList) if is_list => {
                // Without it the time of a test would stand still.
                tokio::time::sleep(Duration::from_millis(50)).await;
                let page = "<ListBucketResult><IsTruncated>true</IsTruncated>\
                    <NextContinuationToken>again</NextContinuationToken></ListBucketResult>";
                *answer.body_mut() = Bytes::from(page).into();
            }
            Some(Lie::Portal) => {
                *answer.status_mut() = http::StatusCode::OK;
                let page = "<html><body>Please sign in.</body></html>";
                answer.headers_mut().insert("content-length", page.len().to_string().parse().unwrap());
                *answer.body_mut() = Bytes::from(page).into();
            }
            Some(Lie::NoTag) => drop(answer.headers_mut().remove("etag")),
            Some(Lie::Absent) => {
                *answer.status_mut() = http::StatusCode::NOT_FOUND;
                *answer.body_mut() = Bytes::from("<Error><Code>NoSuchKey</Code></Error>").into();
            }
            _ => {}
        }
        Ok(answer)
    }
}

/// A body without an end.
#[derive(Debug)]
struct Endless(Arc<AtomicU64>);

impl Body for Endless {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let taken = self.0.fetch_add(1 << 16, Ordering::SeqCst);
        assert!(taken < 1 << 30, "a gibibyte was taken of what has no end");
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![b'x'; 1 << 16])))))
    }
}

/// Whatever a server says that is not so, a call ends in its time, takes no more bytes than an object can have, and
/// gives an error or what is true, never something else.
#[tokio::test(start_paused = true)]
async fn false_server_replies_cause_no_wrong_answer() {
    for (seed, lie) in (1..).zip(ALL) {
        let simulator = Simulator::new(seed);
        let effects = Effects::seeded(seed, Timestamp::UNIX_EPOCH);
        let writer = config(&simulator, "writer").with_effects(effects.clone()).open().await.unwrap();
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        let id = writer.commit(Commit::create(&effects, new)).await.unwrap().session.id;
        let texts = ["one".to_owned(), "x".repeat(300 << 10), "three".to_owned()];
        for text in &texts {
            let new_events = vec![NewEvent::user_message(text.clone())];
            writer.sessions(&effects).append(id, Seq::ZERO, new_events).await.unwrap();
        }
        let now = SessionStore::load(&writer, id).await.unwrap();
        let events: Vec<_> = writer.events(id, Seq::ZERO).try_collect().await.unwrap();

        let liar = Liar { honest: simulator.connector("liar"), lie: Arc::default(), taken: Arc::default() };
        let store = config_of(liar.clone()).with_effects(effects.clone()).open().await.unwrap();
        *liar.lie.lock().unwrap() = Some(lie);
        let stuck = Duration::from_secs(600);
        let loaded = timeout(stuck, SessionStore::load(&store, id)).await.expect("load hangs");
        assert!(loaded.as_ref().map_or(true, |loaded| *loaded == now), "{lie:?}: {loaded:?}");
        let read: Result<Vec<_>, _> =
            timeout(stuck, store.events(id, Seq::ZERO).try_collect()).await.expect("events hang");
        assert!(read.as_ref().map_or(true, |read| *read == events), "{lie:?}: {read:?}");
        let listed = timeout(stuck, store.list(SessionQuery::default())).await.expect("list hangs");
        if let Ok(page) = listed {
            assert!(page.items.iter().all(|summary| summary.head == now.head), "{lie:?}: {:?}", page.items);
        }
        let new_events = vec![NewEvent::user_message("four")];
        let appended = timeout(stuck, store.sessions(&effects).append(id, Seq::ZERO, new_events))
            .await
            .expect("it hangs");
        *liar.lie.lock().unwrap() = None;
        let truth: Vec<_> = writer.events(id, Seq::ZERO).try_collect().await.unwrap();
        if appended.is_ok() {
            assert_eq!(truth.len(), events.len() + 1, "{lie:?}: it was acknowledged, and is not there");
        }
        assert_eq!(truth[..events.len()], events, "{lie:?}");
        // When the server says the truth again, so does the store.
        let again: Vec<_> = store.events(id, Seq::ZERO).try_collect().await.unwrap();
        assert_eq!(again, truth, "{lie:?}");
        println!("{lie:?}: load {}, read {}, append {}", loaded.is_ok(), read.is_ok(), appended.is_ok());
    }
}
