//! HTTP between us and a model's server: nothing is followed, and nothing is without a bound.

use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName};
use reqwest::redirect::Policy;
use rig_core::http_client::{
    self, BoxedStream, HeaderMap, HttpClientExt, LazyBody, MultipartForm, Request, Response,
    StreamingResponse,
};
use rig_core::wasm_compat::WasmCompatSend;

use agent_core::{Error, Result};

use crate::frames::Frames;

/// Maximum number of bytes of an answer.
const ANSWER_MAX_BYTES: usize = 44 << 20;

/// Maximum number of bytes that are read of a refusal, or of an answer of another kind than was asked for.
const REFUSAL_MAX_BYTES: usize = 64 << 10;

/// Maximum time to open a connection. How long a server may be silent after that is the run's to say.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// HTTP client for models of rig that a host brings itself; [`RigProvider::connect`](crate::RigProvider::connect) uses it.
///
/// rig's own client follows redirects, also to another host and with the key, and collects what a server sends without a
/// bound. This one
///
/// - follows no redirect: it is a refusal with its status;
/// - ends an answer after 44 MiB, and reads 64 KiB of a refusal at most;
/// - gives rig whole events, so that a long one costs its length: rig searches what it has again for each chunk;
/// - ends a streamed answer whose numbers of parts are above 4,096, or whose JSON has more than 100 levels or 65,536 values in one
///   event, before rig makes room for them, and leaves out counts of tokens that no answer has;
/// - reads bytes that are no UTF-8, and halves of surrogate pairs, as U+FFFD, but for an event with a call, which ends the
///   answer: a call is what the model said, or is none;
/// - takes an answer that is no stream of events, like the page of a login, for a refusal.
///
/// It sends no forms.
///
/// ```
/// use agent_rig::{ModelTransport, RigProvider};
/// use agent_rig::rig_core::providers::anthropic::wire::AnthropicConfig;
///
/// # fn main() -> agent_core::Result<()> {
/// let config = AnthropicConfig::new("the key").with_base_url("https://gateway.example");
/// let client = config.client().with_http(ModelTransport::new()?);
/// let model = RigProvider::new(client.completion("claude-opus-5-5"))?;
/// # let _ = model;
/// # Ok(()) }
/// ```
///
/// All of a process share their connections.
#[derive(Clone)]
pub struct ModelTransport(reqwest::Client);

impl fmt::Debug for ModelTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelTransport").finish_non_exhaustive()
    }
}

impl ModelTransport {
    /// Creates a client. Sends nothing.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the system has no certificates to check a server by.
    pub fn new() -> Result<Self> {
        // Reading the certificates takes longer than many a request.
        static SHARED: LazyLock<reqwest::Result<reqwest::Client>> = LazyLock::new(|| {
            let builder = reqwest::Client::builder().redirect(Policy::none()).referer(false);
            builder.connect_timeout(CONNECT_TIMEOUT).build()
        });
        match &*SHARED {
            Ok(client) => Ok(Self(client.clone())),
            Err(error) => {
                let text =
                    "no HTTP client for models can be made; check that the system has root certificates";
                Err(Error::unavailable(format!("{text}: {error}")))
            }
        }
    }

    fn request<T: Into<Bytes>>(&self, request: Request<T>) -> reqwest::RequestBuilder {
        let (head, body) = request.into_parts();
        self.0.request(head.method, head.uri.to_string()).headers(head.headers).body(body.into())
    }
}

/// Why an answer was ended here. Holds nothing of the answer.
#[derive(Clone, Debug)]
pub(crate) struct Refused(pub(crate) String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

impl Refused {
    /// Returns why an answer was ended here, if that is the error.
    pub(crate) fn of(error: &http_client::Error) -> Option<&Self> {
        if let http_client::Error::Instance(source) = error { source.downcast_ref() } else { None }
    }

    fn error(text: impl Into<String>) -> http_client::Error {
        http_client::Error::instance(Self(text.into()))
    }
}

impl HttpClientExt for ModelTransport {
    fn send<T, U>(
        &self,
        request: Request<T>,
    ) -> impl Future<Output = http_client::Result<Response<LazyBody<U>>>> + WasmCompatSend + 'static
    where
        T: Into<Bytes> + WasmCompatSend,
        U: From<Bytes> + WasmCompatSend + 'static,
    {
        let request = self.request(request);
        async move {
            let response = request.send().await.map_err(http_client::Error::instance)?;
            if !response.status().is_success() {
                return Err(refusal(response).await);
            }
            let mut answer = Response::builder().status(response.status());
            if let Some(headers) = answer.headers_mut() {
                headers.clone_from(response.headers());
            }
            let body: LazyBody<U> = Box::pin(async move { Ok(U::from(whole(response).await?)) });
            answer.body(body).map_err(http_client::Error::Protocol)
        }
    }

    #[allow(clippy::manual_async_fn, reason = "the future must not borrow, as the trait has it")]
    fn send_multipart<U>(
        &self,
        _: Request<MultipartForm>,
    ) -> impl Future<Output = http_client::Result<Response<LazyBody<U>>>> + WasmCompatSend + 'static
    where
        U: From<Bytes> + WasmCompatSend + 'static,
    {
        async { Err(Refused::error("this client sends no forms; give rig another one for them")) }
    }

    fn send_streaming<T>(
        &self,
        request: Request<T>,
    ) -> impl Future<Output = http_client::Result<StreamingResponse>> + WasmCompatSend
    where
        T: Into<Bytes> + WasmCompatSend,
    {
        let asks_for_events = is_of(request.headers(), ACCEPT, "text/event-stream");
        let request = self.request(request);
        async move {
            let response = request.send().await.map_err(http_client::Error::instance)?;
            // Some servers say no type; whether that will do is the wire's to say.
            let is_other = response.headers().contains_key(CONTENT_TYPE)
                && !is_of(response.headers(), CONTENT_TYPE, "text/event-stream");
            let is_page = is_of(response.headers(), CONTENT_TYPE, "text/html");
            if !response.status().is_success() || (asks_for_events && is_other) || is_page {
                return Err(refusal(response).await);
            }
            let mut answer = Response::builder().status(response.status());
            if let Some(headers) = answer.headers_mut() {
                headers.clone_from(response.headers());
            }
            let frames = if asks_for_events { Frames::of_events() } else { Frames::of_lines() };
            answer.body(framed(response, frames)).map_err(http_client::Error::Protocol)
        }
    }
}

fn is_of(headers: &HeaderMap, name: HeaderName, media_type: &str) -> bool {
    let value = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().is_some_and(|value| value.trim().eq_ignore_ascii_case(media_type))
}

/// Returns the answer's events one by one, until the server ends it or a bound is reached.
fn framed(response: reqwest::Response, frames: Frames) -> BoxedStream {
    let events = stream::unfold((Some(response), frames), async |(mut response, mut frames)| {
        loop {
            if let Some(event) = frames.next() {
                // What follows something refused is not read.
                let response = response.filter(|_| event.is_ok());
                return Some((event.map_err(Refused::error), (response, frames)));
            }
            match response.as_mut()?.chunk().await {
                Ok(Some(chunk)) => frames.push(&chunk, ANSWER_MAX_BYTES),
                Ok(None) => {
                    response = None;
                    frames.end();
                }
                Err(error) => return Some((Err(http_client::Error::instance(error)), (None, frames))),
            }
        }
    });
    Box::pin(events)
}

/// Reads a whole body up to the bound of an answer.
async fn whole(mut response: reqwest::Response) -> http_client::Result<Bytes> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(http_client::Error::instance)? {
        if body.len() + chunk.len() > ANSWER_MAX_BYTES {
            return Err(Refused::error(format!("the answer has more than {ANSWER_MAX_BYTES} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.into())
}

/// Returns the refusal that an answer is, with the beginning of its body.
async fn refusal(mut response: reqwest::Response) -> http_client::Error {
    let (status, headers) = (response.status(), response.headers().clone());
    let mut body = Vec::new();
    // What breaks off is a refusal all the same.
    while body.len() < REFUSAL_MAX_BYTES
        && let Ok(Some(chunk)) = response.chunk().await
    {
        body.extend_from_slice(&chunk[..chunk.len().min(REFUSAL_MAX_BYTES - body.len())]);
    }
    let body = String::from_utf8_lossy(&body).into_owned();
    http_client::Error::non_success_with_details(status, headers, body)
}
