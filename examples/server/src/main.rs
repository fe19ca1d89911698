//! Serves an agent over HTTP: a tenant for each user, answers as they are made, and consent for a tool.
//!
//! `USERS=alice:her-token,bob:his-token example-server 127.0.0.1:8080 sqlite:agent.db`, and then
//!
//! | Request | Answer |
//! |---|---|
//! | `POST /conversations/{key}/messages`, the message as its body | the updates of the run, as server-sent events |
//! | `GET /conversations/{key}` | the state of the conversation, and the question that waits for an answer |
//! | `POST /conversations/{key}/answers`, `{"action": …, "decision": "allow"}` | the updates of the run that goes on |
//! | `GET /conversations/{key}/events` | all stored events, and each new one; `Last-Event-ID` says after which |
//! | `GET /conversations/{key}/live` | the same, and the pieces of the answer that is being written |
//!
//! If a question or another process holds the conversation, the only update of a message is `queued`: it is stored, and answered later.
//! A GET makes nothing. A second delivery of an answer gets the result of the first one: its run while that is active, else
//! the end of the run. A message is stored when its answer begins. A client that goes away stops nothing: the run goes on, and the events say
//! how it ended. A client that comes back in the middle of an answer
//! asks for `live` after the last event that it has, drops the pieces that it has, and gets what was written so far and then each further
//! piece; so does every other client. If the server is killed, the next one goes on with what had begun.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is an example")]

mod model;
mod refused;
mod serve;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use agent::core::event::{Decision, ToolConfirmation};

use agent::core::model::{ActionId, PendingAction};
use agent::core::state::SessionState;
use agent::core::{Backend, Seq};
use agent::runtime::{Live, SchedulerConfig};
use agent::{AgentBuilder, AgentRuntime, Conversation, Run, Scheduler, SessionId, TenantId};
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::{Stream, StreamExt};
use serde::{Deserialize, Serialize};

use crate::refused::Refused;
use crate::serve::serve;

#[derive(Clone)]
struct Server {
    /// Agent without a user. Those of the users share its model, its tools and its store.
    agent: AgentRuntime,
    tenants: Arc<dyn Backend>,
    /// Tenants of the users, by their tokens.
    users: Arc<HashMap<String, TenantId>>,
}

/// The agent of the user who has sent a request: nothing that it does can reach another user's conversations.
struct User(AgentRuntime);

impl FromRequestParts<Server> for User {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, server: &Server) -> Result<Self, Refused> {
        let header = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = header.and_then(|value| value.strip_prefix("Bearer "));
        let tenant = token.and_then(|token| server.users.get(token)).ok_or(Refused::User)?;
        Ok(Self(server.agent.for_storage(server.tenants.tenant(tenant))))
    }
}

type Updates =
    Sse<axum::response::sse::KeepAliveStream<futures::stream::BoxStream<'static, Result<Event, Infallible>>>>;

/// Writes each item as an event with its data as JSON. An error is the last one.
fn events<T: Serialize + 'static>(
    items: impl Stream<Item = agent::Result<T>> + Send + 'static,
    id: fn(&T) -> Option<Seq>,
) -> Updates {
    let events = items.map(move |item| {
        let event = match &item {
            Ok(item) => match id(item) {
                Some(seq) => Event::default().id(seq.to_string()).json_data(item),
                None => Event::default().json_data(item),
            },
            Err(error) => Event::default().event("error").json_data(error),
        };
        Ok(event
            .unwrap_or_else(|_| Event::default().event("error").data("an event cannot be written as JSON")))
    });
    Sse::new(events.boxed()).keep_alive(KeepAlive::default())
}

fn updates(run: Run) -> Updates {
    // Dropping a run only stops watching it.
    events(run, |_| None)
}

async fn say(User(agent): User, Path(key): Path<String>, text: String) -> Result<Updates, Refused> {
    Ok(updates(agent.conversation_with(&key, text).await?.run))
}

#[derive(Serialize)]
struct Shown {
    session: SessionId,
    state: SessionState,
    action: Option<PendingAction>,
}

async fn show(User(agent): User, Path(key): Path<String>) -> Result<Json<Shown>, Refused> {
    let chat = found(&agent, &key).await?;
    let record = chat.record();
    Ok(Json(Shown { session: chat.id(), state: record.status.state, action: record.action.clone() }))
}

#[derive(Deserialize)]
struct Answer {
    action: ActionId,
    decision: Decision,
}

async fn answer(
    User(agent): User,
    Path(key): Path<String>,
    Json(Answer { action, decision }): Json<Answer>,
) -> Result<Updates, Refused> {
    let chat = found(&agent, &key).await?;
    Ok(updates(chat.answer_and_run(ToolConfirmation::new(action, decision)).await?))
}

async fn follow(User(agent): User, Path(key): Path<String>, headers: HeaderMap) -> Result<Updates, Refused> {
    Ok(events(found(&agent, &key).await?.follow(last(&headers)), |event| Some(event.seq)))
}

async fn live(User(agent): User, Path(key): Path<String>, headers: HeaderMap) -> Result<Updates, Refused> {
    // Pieces have no id: a client comes back after the last event that it has.
    let id = |live: &Live| if let Live::Event(event) = live { Some(event.seq) } else { None };
    Ok(events(found(&agent, &key).await?.live(last(&headers)), id))
}

/// Returns the last event that a client has.
fn last(headers: &HeaderMap) -> Seq {
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    last.and_then(|seq| seq.parse().ok()).map_or(Seq::ZERO, Seq::new)
}

/// Finds a conversation; only a message creates one.
async fn found(agent: &AgentRuntime, key: &str) -> Result<Conversation, Refused> {
    agent.find_conversation(key).await?.ok_or(Refused::Absent)
}

/// Reads `alice:her-token,bob:his-token`.
fn users(text: &str) -> Result<HashMap<String, TenantId>, String> {
    let mut names: HashMap<&str, &str> = HashMap::new();
    for user in text.split(',') {
        let (name, token) = user
            .split_once(':')
            .filter(|(name, _)| !name.is_empty())
            // As a header brings it: without white space around it.
            .filter(|(_, token)| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()))
            .ok_or("USERS is a list of NAME:TOKEN, with commas between and no spaces in tokens")?;
        if let Some(other) = names.insert(token, name) {
            // The token is a secret, and stays out of the text.
            return Err(format!("USERS: {other} and {name} have the same token; give each user another one"));
        }
    }
    Ok(names.into_iter().map(|(token, name)| (token.to_owned(), TenantId::derived(name))).collect())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let usage = "usage: USERS=NAME:TOKEN,… example-server ADDRESS STORE";
    let (address, store) = std::env::args().nth(1).zip(std::env::args().nth(2)).ok_or(usage)?;
    let users = Arc::new(users(&std::env::var("USERS").map_err(|_| usage)?)?);
    let tenants = agent::open_backend(&store).await?;
    let agent = AgentBuilder::new()
        .with_llm(model::Clerk::default()) // any model, as `agent_rig::RigProvider::connect("anthropic/…", key)?`
        .with_tool(model::forget())
        .with_storage(tenants.tenant(&TenantId::default()))
        .build()?;

    // Goes on with runs of a server that was killed, and does what is due.
    let often = SchedulerConfig::new().with_interval(Duration::from_millis(500));
    let scheduler = Scheduler::over(agent.clone(), tenants.clone()).with_config(often);
    let scheduler = tokio::spawn(scheduler.run());

    let routes = Router::new()
        .route("/conversations/{key}", get(show))
        .route("/conversations/{key}/messages", post(say))
        .route("/conversations/{key}/answers", post(answer))
        .route("/conversations/{key}/events", get(follow))
        .route("/conversations/{key}/live", get(live))
        .with_state(Server { agent: agent.clone(), tenants, users });
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    let closing = agent.clone();
    let stopped = async move {
        stop().await;
        // Runs end first, and with them the streams that show them.
        let _ = closing.shutdown(Duration::from_secs(30)).await;
    };
    // The time for a client to send its request: `READ_SECONDS`.
    let read = std::env::var("READ_SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(10);
    serve(listener, routes, Duration::from_secs(read), stopped).await;
    scheduler.await?;
    Ok(agent.close().await?)
}

/// Waits for the signal to stop.
async fn stop() {
    #[cfg(unix)]
    if let Ok(mut terminated) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        return;
    }
    let _ = tokio::signal::ctrl_c().await;
}
