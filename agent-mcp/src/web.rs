//! HTTP client of the servers at addresses. Unlike that of the protocol crate, it mends answers before they are read, and
//! recognizes a server that has forgotten a session.

use std::collections::HashMap;
use std::io::{self, ErrorKind as IoKind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::Either;
use futures::stream::{self, BoxStream};
use http::header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, PingRequest, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, SseError, StreamableHttpClient,
    StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};
use tokio::time::timeout;

use crate::backlog::Backlog;
use crate::mend::{Utf8, mended, unreadable};

/// Header of the id of a session.
const SESSION: &str = "mcp-session-id";
/// Header of the last event that was received.
const LAST_EVENT: &str = "last-event-id";
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
/// Maximum number of redirects of a request.
const REDIRECTS_MAX: usize = 10;
/// Time in which a server says whether it knows a session.
const PROBE: Duration = Duration::from_secs(5);
/// Minimum pause before a stream is opened again, whatever the server asks for, in milliseconds.
const RETRY_MIN: u64 = 1000;

type Headers = HashMap<HeaderName, HeaderValue>;
type HttpError = StreamableHttpError<reqwest::Error>;
type EventStream = BoxStream<'static, Result<Sse, SseError>>;

/// HTTP client of one server.
#[derive(Clone, Debug)]
pub(crate) struct HttpClient {
    client: Client,
    /// Maximum bytes of an answer, and of an event of a stream.
    message_max_bytes: usize,
    backlog: Backlog,
}

impl HttpClient {
    pub(crate) fn new(message_max_bytes: usize) -> Result<Self, reqwest::Error> {
        // A connection whose last answer was not read to its end would hold up the next request.
        let client = Client::builder().pool_max_idle_per_host(0).redirect(redirects()).build()?;
        Ok(Self { client, message_max_bytes, backlog: Backlog::default() })
    }

    fn post(
        &self,
        uri: &str,
        message: &ClientJsonRpcMessage,
        session: Option<&str>,
        headers: &Headers,
    ) -> Result<RequestBuilder, HttpError> {
        let body = serde_json::to_vec(message)?;
        let request = with_headers(self.client.post(uri), session, headers);
        Ok(request.header(CONTENT_TYPE, JSON).body(body))
    }

    /// Returns whether a server that refused a request refuses each of its session: then it did not carry out the request,
    /// because it does not know the session any more.
    async fn has_forgotten(&self, uri: &str, session: &str, headers: &Headers) -> bool {
        let ping = ClientRequest::PingRequest(PingRequest::default());
        let ping = ClientJsonRpcMessage::request(ping, RequestId::String("session".into()));
        let Ok(request) = self.post(uri, &ping, Some(session), headers) else { return false };
        match timeout(PROBE, request.send()).await {
            Ok(Ok(response)) => is_refused_session(response.status()),
            _ => false,
        }
    }
}

/// Redirects that keep the message and the origin. Others would give the headers to somebody else, or lose the message.
fn redirects() -> Policy {
    Policy::custom(|attempt| {
        let keeps = matches!(attempt.status().as_u16(), 307 | 308);
        let origin = attempt.previous().first().map(reqwest::Url::origin);
        if !keeps || origin != Some(attempt.url().origin()) {
            attempt.stop()
        } else if attempt.previous().len() > REDIRECTS_MAX {
            attempt.error("too many redirects")
        } else {
            attempt.follow()
        }
    })
}

/// Adds the headers of the configuration, among which an authorization is, if there is one, and those of the protocol.
fn with_headers(request: RequestBuilder, session: Option<&str>, headers: &Headers) -> RequestBuilder {
    let mut request = request.header(ACCEPT, format!("{EVENTS}, {JSON}"));
    for (name, value) in headers {
        request = request.header(name, value);
    }
    match session {
        Some(session) => request.header(SESSION, session),
        None => request,
    }
}

/// Statuses with which servers refuse the requests of a session that they do not know.
fn is_refused_session(status: StatusCode) -> bool {
    matches!(status, StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::GONE)
}

/// Checks that the server does not want a person to log in.
fn check_challenge(response: &Response) -> Result<(), HttpError> {
    let Some(challenge) = response.headers().get(WWW_AUTHENTICATE) else { return Ok(()) };
    let challenge = String::from_utf8_lossy(challenge.as_bytes()).into_owned();
    match response.status() {
        StatusCode::UNAUTHORIZED => Err(StreamableHttpError::AuthRequired(AuthRequiredError::new(challenge))),
        StatusCode::FORBIDDEN => {
            Err(StreamableHttpError::InsufficientScope(InsufficientScopeError::new(challenge, None)))
        }
        _ => Ok(()),
    }
}

fn failed(status: StatusCode) -> HttpError {
    HttpStatusError::new(status.as_u16(), None).into()
}

/// Returns the type of a body, without its parameters, in lower case.
fn media_type(response: &Response) -> String {
    let value = response.headers().get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let value = value.unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Reads a body of JSON.
async fn read_json(response: Response, max_size: usize) -> Result<Vec<u8>, HttpError> {
    let too_large = || StreamableHttpError::ResponseBodyTooLarge { max_size };
    if response.content_length().is_some_and(|length| length > max_size as u64) {
        return Err(too_large());
    }
    let (mut body, mut pieces) = (Vec::new(), response.bytes_stream());
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        if piece.len() > max_size - body.len() {
            return Err(too_large());
        }
        body.extend_from_slice(&piece);
    }
    Ok(mended(&body).text)
}

/// Returns the error of the protocol with which a server refuses a request; `None` if it gives no such error.
async fn refusal(response: Response, media_type: &str, max_size: usize) -> Option<ErrorData> {
    let status = response.status();
    if media_type != JSON || matches!(status.as_u16(), 401 | 403 | 429) || status.is_redirection() {
        return None;
    }
    let body = read_json(response, max_size).await.ok()?;
    match serde_json::from_slice(&body) {
        Ok(ServerJsonRpcMessage::Error(refusal)) => Some(refusal.error),
        _ => None,
    }
}

/// Counts the bytes of the events of a stream, and mends them.
#[derive(Debug)]
struct EventReader {
    utf8: Utf8,
    /// Bytes of the event, and of its line.
    event: usize,
    line: usize,
    /// Whether the line is a comment, of which nothing is kept.
    is_comment: bool,
    /// Whether the last byte was a carriage return, after which a line feed ends no further line.
    is_after_return: bool,
    most: usize,
}

impl EventReader {
    fn new(most: usize) -> Self {
        Self { utf8: Utf8::default(), event: 0, line: 0, is_comment: false, is_after_return: false, most }
    }

    fn take(&mut self, piece: &[u8]) -> io::Result<Bytes> {
        for byte in piece {
            let is_second = std::mem::replace(&mut self.is_after_return, *byte == b'\r') && *byte == b'\n';
            match byte {
                b'\n' if is_second => {}
                b'\n' | b'\r' => {
                    self.event = match self.line {
                        0 => 0,
                        line if self.is_comment => self.event - line,
                        _ => self.event,
                    };
                    self.line = 0;
                }
                byte => {
                    if self.line == 0 {
                        self.is_comment = *byte == b':';
                    }
                    (self.event, self.line) = (self.event + 1, self.line + 1);
                    if self.event > self.most {
                        return Err(io::Error::new(IoKind::FileTooLarge, "an event is too large"));
                    }
                }
            }
        }
        Ok(self.utf8.push(piece).into())
    }
}

fn is_too_large(error: &SseError) -> bool {
    let SseError::Body(error) = error else { return false };
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == IoKind::FileTooLarge)
}

/// Returns the events of a body: of the answer to a request, or of a stream that was opened without one.
fn events(response: Response, most: usize, request: Option<RequestId>, backlog: Backlog) -> EventStream {
    let mut reader = EventReader::new(most);
    let pieces = response.bytes_stream().map(move |piece| match piece {
        Ok(piece) => reader.take(&piece),
        Err(error) => Err(io::Error::other(error)),
    });
    let read = SseStream::from_bytes_stream(pieces).flat_map(move |event| {
        let read = match event {
            Ok(mut event) => {
                let message = event.data.map(|data| mended(data.as_bytes()));
                let is_refused = message.as_ref().is_some_and(|message| message.is_request && !backlog.add());
                event.data = message.map(|message| text(&message.text));
                event.retry = event.retry.map(|pause| pause.max(RETRY_MIN));
                if is_refused { Err(None) } else { Ok(event) }
            }
            Err(error) if is_too_large(&error) => Err(None),
            Err(error) => Err(Some(error)),
        };
        Either::Left(stream::iter(match (read, &request) {
            (Ok(event), _) => vec![Some(Ok(event))],
            // The protocol crate would ask for the same again and again.
            (Err(None), Some(id)) => {
                let failure = unreadable(&id.clone().into_json_value());
                vec![Some(Ok(Sse::default().data(text(&failure)))), None]
            }
            (Err(None), None) => return Either::Right(stream::pending()),
            (Err(Some(error)), Some(_)) => vec![Some(Err(error))],
            // It is opened again after a pause, and not at once.
            (Err(Some(_)), None) => vec![None],
        }))
    });
    read.take_while(|event| std::future::ready(event.is_some())).filter_map(std::future::ready).boxed()
}

fn text(json: &[u8]) -> String {
    String::from_utf8_lossy(json).into_owned()
}

impl StreamableHttpClient for HttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let session = session.as_deref();
        if matches!(&message, ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_)) {
            self.backlog.sent(1);
        }
        let response = self.post(&uri, &message, session, &headers)?.send().await?;
        check_challenge(&response)?;
        let request = match &message {
            ClientJsonRpcMessage::Request(request) => Some(&request.id),
            _ => None,
        };
        let status = response.status();
        match (status, session) {
            (StatusCode::ACCEPTED | StatusCode::NO_CONTENT, _) => {
                return Ok(StreamableHttpPostResponse::Accepted);
            }
            (StatusCode::NOT_FOUND, Some(_)) => return Err(StreamableHttpError::SessionExpired),
            (status, Some(session))
                if request.is_some()
                    && is_refused_session(status)
                    && self.has_forgotten(&uri, session, &headers).await =>
            {
                return Err(StreamableHttpError::SessionExpired);
            }
            _ => {}
        }
        let Some(id) = request else {
            // Nothing in the answer matters.
            return match status.is_success() {
                true => Ok(StreamableHttpPostResponse::Accepted),
                false => Err(failed(status)),
            };
        };
        let media_type = media_type(&response);
        let given = response.headers().get(SESSION).and_then(|id| id.to_str().ok()).map(str::to_owned);
        if !status.is_success() {
            let refusal = refusal(response, &media_type, self.message_max_bytes).await;
            // It answers the request, also if it does not name it.
            let refusal = refusal.map(|refusal| ServerJsonRpcMessage::error(refusal, Some(id.clone())));
            return refusal
                .map(|refusal| StreamableHttpPostResponse::Json(refusal, given))
                .ok_or_else(|| failed(status));
        }
        match media_type.as_str() {
            EVENTS => {
                let events = events(response, self.message_max_bytes, Some(id.clone()), self.backlog.clone());
                Ok(StreamableHttpPostResponse::Sse(events, given))
            }
            JSON => {
                let body = read_json(response, self.message_max_bytes).await?;
                Ok(StreamableHttpPostResponse::Json(serde_json::from_slice(&body)?, given))
            }
            // Its value is no secret, and nobody is shown it.
            _ => Err(StreamableHttpError::UnexpectedContentType(None)),
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<(), HttpError> {
        let request = with_headers(self.client.delete(&*uri), Some(&session), &headers);
        let status = request.send().await?.status();
        // A server need not support it.
        match status {
            StatusCode::METHOD_NOT_ALLOWED => Ok(()),
            status if status.is_success() => Ok(()),
            status => Err(failed(status)),
        }
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<EventStream, HttpError> {
        let mut request = with_headers(self.client.get(&*uri), session.as_deref(), &headers);
        if let Some(last_event) = last_event {
            request = request.header(LAST_EVENT, last_event);
        }
        let response = request.send().await?;
        check_challenge(&response)?;
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED => Err(StreamableHttpError::ServerDoesNotSupportSse),
            status if !status.is_success() => Err(failed(status)),
            _ if media_type(&response) != EVENTS => Err(StreamableHttpError::UnexpectedContentType(None)),
            _ => Ok(events(response, self.message_max_bytes, None, self.backlog.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_a_maximum_with_each_line_end() {
        for end in ["\n", "\r", "\r\n"] {
            let read = |text: &str| {
                let mut reader = EventReader::new(20);
                // Byte by byte, so that no piece ends where a line does.
                text.replace('\n', end).bytes().try_for_each(|byte| reader.take(&[byte]).map(drop))
            };
            read(&"data: 0123456789\n\n".repeat(10)).unwrap();
            read(&":a comment\n".repeat(10)).unwrap();
            assert!(read("data: 0\ndata: 1\ndata: 2\n").is_err(), "{end:?}");
            assert!(read(&format!(":{}", "x".repeat(20))).is_err(), "{end:?}");
        }
    }
}
