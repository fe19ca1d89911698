//! Readers that follow a session: a position beyond its end, and the end of a run that failed.

use std::time::Duration;

use agent_core::event::Event;
use agent_core::state::{Reason, SessionState};
use agent_core::{ErrorKind, Result, Seq, SessionStoreExt};
use agent_runtime::{Config, EchoProvider, Retry, Scheduler, ScriptedProvider, Turn};
use agent_tests::{Site, each_store};
use futures::stream::{BoxStream, StreamExt, TryStreamExt};

use crate::common::{Scene, agent, ask};

const DEADLINE: Duration = Duration::from_secs(60);

async fn next<T>(stream: &mut BoxStream<'_, Result<T>>) -> Option<Result<T>> {
    tokio::time::timeout(DEADLINE, stream.next()).await.expect("the reader is told something")
}

/// Reads until an event after which the session is in this state.
async fn until(
    events: &mut BoxStream<'_, Result<Event>>,
    state: SessionState,
) -> agent_core::model::Transition {
    while let Some(event) = next(events).await {
        if let Some(change) = event.unwrap().transition().unwrap()
            && change.to == state
        {
            return change;
        }
    }
    panic!("it ended");
}

/// A reader that has more than the session, which came from a backup, is told so, and both numbers.
async fn a_position_beyond_the_end_is_refused(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let chat = agent(&storage, EchoProvider::new()).conversation("key").await.unwrap();
    ask(&chat, "Hello").await;
    let head = chat.refresh().await.unwrap().head;
    let beyond = Seq::new(head.get() + 1);
    let event = |_| ();
    for mut stream in [
        chat.follow(beyond).map_ok(event).boxed(),
        chat.live(beyond).map_ok(|_| ()).boxed(),
        storage.sessions.follow(chat.id(), beyond).map_ok(event).boxed(),
    ] {
        let refused = next(&mut stream).await.unwrap().unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::InvalidInput, "{name}");
        let numbers = format!("event {beyond} is beyond the last one, which is event {head}");
        assert!(refused.to_string().contains(&numbers), "{name}: {refused}");
        assert!(next(&mut stream).await.is_none(), "{name}: it ends");
    }
    let mut streams = [chat.follow(head), storage.sessions.follow(chat.id(), head)];
    chat.send("And now?").await.unwrap();
    for stream in &mut streams {
        assert_eq!(next(stream).await.unwrap().unwrap().text().as_deref(), Some("And now?"), "{name}");
    }
}

each_store!(a_position_beyond_the_end_is_refused and files);

/// The end of a run that failed is an event with the failure: that of a caller, one that is tried again, and the last.
async fn followers_learn_that_a_run_failed(site: Site) {
    let model = ScriptedProvider::new(["one", "two", "three"].map(|why| Turn::silent().fail(why)));
    let short = Duration::from_micros(1);
    let config = Config::default().with_retry(Retry::new(short, short, 2));
    let Scene { name, agent, chat, storage } = Scene::with(&site, model, config, []).await;
    let from = chat.record().head;
    let mut followers = [chat.follow(from), storage.sessions.follow(chat.id(), from)];
    ask(&chat, "Hello").await;
    for events in &mut followers {
        let end = until(events, SessionState::Idle).await;
        let failure = end.failure.flatten().expect("it says why");
        assert_eq!((end.reason, &*failure.text), (Reason::RunError, "one"), "{name}");
    }
    chat.send("And now?").await.unwrap();
    let scheduler = Scheduler::new(agent);
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert_eq!(scheduler.round().await.unwrap().ran, 1, "{name}");
    }
    for events in &mut followers {
        let again = until(events, SessionState::Running).await;
        assert_eq!(again.reason, Reason::Input, "{name}");
        assert_eq!(until(events, SessionState::Queued).await.reason, Reason::RetryBackoff, "{name}");
        let end = until(events, SessionState::Failed).await;
        let failure = end.failure.flatten().expect("it says why");
        assert_eq!((end.reason, &*failure.text), (Reason::RunError, "three"), "{name}");
    }
}

each_store!(followers_learn_that_a_run_failed and files);
