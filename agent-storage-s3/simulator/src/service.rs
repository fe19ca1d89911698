//! The way of a request to the bucket and of its answer back, and what happens to them on it.

use std::collections::VecDeque;
use std::fmt;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService,
};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::answer::Answer;
use crate::faults::Fault;
use crate::request::Request;
use crate::simulator::{Fate, Simulator};

/// Connector that replaces the HTTP library of a client; the trace names the client with each request.
#[derive(Clone, Debug)]
pub struct Connector {
    simulator: Simulator,
    client: Arc<str>,
}

impl Simulator {
    /// Returns the connector for a client that the trace names `client`.
    pub fn connector(&self, client: &str) -> Connector {
        Connector::new(self.clone(), client.into())
    }
}

impl Connector {
    pub(crate) const fn new(simulator: Simulator, client: Arc<str>) -> Self {
        Self { simulator, client }
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Connector {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let request = Request::parse(&parts, body, self.simulator.dialect());
        let fate = self.simulator.decide(&self.client, &request);
        if fate.fault.is_none() && fate.there.is_zero() {
            // In good health and without delay: no task, no timer, but a chance for others to come between.
            tokio::task::yield_now().await;
            let answer = self.simulator.carry_out(fate.number, request);
            tokio::task::yield_now().await;
            return Ok(response(answer.status, &answer, answer.body.clone().into()));
        }
        // A request that is on its way is on its way: in a task of its own, whatever becomes of the caller.
        let journey = journey(self.simulator.clone(), request, fate);
        tokio::spawn(journey).await.map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?
    }
}

/// The request goes to the store, is carried out or not, and the answer comes back or does not.
async fn journey(simulator: Simulator, request: Request, fate: Fate) -> Result<HttpResponse, HttpError> {
    let Fate { number, fault, there, back, late, timeout, lot } = fate;
    let given_up = Instant::now() + timeout;
    let carry_out = |request| simulator.carry_out(number, request);
    let Some(fault) = fault else {
        sleep(there).await;
        let answer = carry_out(request);
        sleep(back).await;
        return Ok(response(answer.status, &answer, answer.body.clone().into()));
    };
    sleep(there).await;
    let answer = match fault {
        Fault::Busy => Answer::error(StatusCode::SERVICE_UNAVAILABLE, "SlowDown"),
        Fault::Throttled => Answer::error(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"),
        Fault::Forbidden => Answer::error(StatusCode::FORBIDDEN, "ExpiredToken"),
        Fault::Conflict => Answer::error(StatusCode::CONFLICT, "ConditionalRequestConflict"),
        Fault::Refusal(status, code) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            Answer::error(status, code)
        }
        Fault::ErrorBefore => Answer::error(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
        Fault::ErrorAfter => {
            carry_out(request);
            Answer::error(StatusCode::INTERNAL_SERVER_ERROR, "InternalError")
        }
        Fault::ResetBefore => return Err(broken(HttpErrorKind::Interrupted, "connection reset")),
        Fault::ResetAfter => {
            carry_out(request);
            return Err(broken(HttpErrorKind::Interrupted, "connection reset"));
        }
        Fault::TimeoutBefore => return Err(timed_out(given_up).await),
        Fault::TimeoutAfter => {
            carry_out(request);
            return Err(timed_out(given_up).await);
        }
        Fault::Hang => {
            carry_out(request);
            return pending().await;
        }
        Fault::Late => {
            lands_later(simulator.clone(), number, request, late);
            if lot.is_multiple_of(2) {
                return Err(broken(HttpErrorKind::Interrupted, "connection reset"));
            }
            return Err(timed_out(given_up).await);
        }
        Fault::Duplicate => {
            carry_out(request.clone());
            carry_out(request)
        }
        Fault::Echo => {
            lands_later(simulator.clone(), number, request.clone(), late);
            carry_out(request)
        }
        Fault::Truncated => {
            let answer = carry_out(request);
            sleep(back).await;
            let half = answer.body.slice(..answer.body.len() / 2);
            let rest = broken(HttpErrorKind::Interrupted, "connection reset");
            return Ok(response(answer.status, &answer, drips([Ok(half), Err(rest)], Duration::ZERO)));
        }
        Fault::Drip => {
            let answer = carry_out(request);
            let size = answer.body.len().div_ceil(4).max(1);
            let drops: Vec<_> =
                answer.body.chunks(size).map(|drop| Ok(Bytes::copy_from_slice(drop))).collect();
            let pause = Duration::from_millis(lot % 5000);
            return Ok(response(answer.status, &answer, drips(drops, pause)));
        }
        Fault::Refused => return Err(broken(HttpErrorKind::Connect, "connection refused")),
    };
    sleep(back).await;
    Ok(response(answer.status, &answer, answer.body.clone().into()))
}

fn lands_later(simulator: Simulator, number: usize, request: Request, late: Duration) {
    debug_assert!(request.writes());
    tokio::spawn(async move {
        sleep(late).await;
        simulator.carry_out(number, request);
    });
}

async fn timed_out(given_up: Instant) -> HttpError {
    sleep_until(given_up).await;
    broken(HttpErrorKind::Timeout, "no answer in time")
}

/// What the client's HTTP library says.
#[derive(Debug)]
struct Broken(&'static str);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, as simulated", self.0)
    }
}

impl std::error::Error for Broken {}

fn broken(kind: HttpErrorKind, what: &'static str) -> HttpError {
    HttpError::new(kind, Broken(what))
}

fn response(status: StatusCode, answer: &Answer, body: HttpResponseBody) -> HttpResponse {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    for (name, value) in &answer.headers {
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(name.clone(), value);
        }
    }
    response
}

/// A body that comes in pieces, with a pause before each.
#[derive(Debug)]
struct Drips {
    pieces: VecDeque<Result<Bytes, HttpError>>,
    pause: Duration,
    wait: Pin<Box<Sleep>>,
}

fn drips(pieces: impl IntoIterator<Item = Result<Bytes, HttpError>>, pause: Duration) -> HttpResponseBody {
    let pieces = pieces.into_iter().collect();
    HttpResponseBody::new(Drips { pieces, pause, wait: Box::pin(sleep(pause)) })
}

impl Body for Drips {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        ready!(self.wait.as_mut().poll(context));
        self.wait = Box::pin(sleep(self.pause));
        Poll::Ready(self.pieces.pop_front().map(|piece| piece.map(Frame::data)))
    }
}
