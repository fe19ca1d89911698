//! HTTP on the loopback: scripted answers, broken ones, and the requests that came.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::provider::{Checked, Provider, Refusal};

/// Longest body of a request, in bytes; a longer one closes the connection.
const MAX_BODY: usize = 64 << 20;

/// Answer to one request.
///
/// ```
/// use model_servers::Answer;
///
/// let slow_down = Answer::status(429, "{}").with_header("retry-after", "7");
/// let torn = Answer::events([r#"{"type":"ping"}"#]).cut(20);
/// assert_eq!(torn.body(), "event: ping\ndata: {\"");
/// # let _ = slow_down;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
    /// Bytes that the head of the answer names and that do not come: the connection breaks.
    missing: usize,
    /// True if the connection stays open behind the body until the client closes it.
    hangs: bool,
}

impl Answer {
    fn new(status: u16, media_type: &str, body: String) -> Self {
        let headers = vec![("content-type", media_type.to_owned())];
        Self { status, headers, body, missing: 0, hangs: false }
    }

    /// Creates a stream of server-sent events with these data. Each event is named by the member `type` of its data, as
    /// Anthropic and OpenAI do; data without one have no name.
    pub fn events<'a>(events: impl IntoIterator<Item = &'a str>) -> Self {
        let body = events.into_iter().map(event).collect();
        Self::new(200, "text/event-stream", body)
    }

    /// Creates a stream of JSON lines.
    pub fn lines<'a>(lines: impl IntoIterator<Item = &'a str>) -> Self {
        let body = lines.into_iter().map(|line| format!("{line}\n")).collect();
        Self::new(200, "application/x-ndjson", body)
    }

    /// Creates an answer with a status and a body of JSON.
    pub fn status(status: u16, body: &str) -> Self {
        Self::new(status, "application/json", body.to_owned())
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Adds an event at the end.
    #[must_use]
    pub fn with_event(mut self, event: &str) -> Self {
        self.body.push_str(&self::event(event));
        self
    }

    /// Breaks the connection behind these bytes of the body, or before the character in which they end.
    #[must_use]
    pub fn cut(mut self, bytes: usize) -> Self {
        let end = (0..=bytes).rev().find(|end| self.body.is_char_boundary(*end)).unwrap_or_default();
        self.missing += self.body.len() - end;
        self.body.truncate(end);
        self
    }

    /// Leaves the connection open behind the body, in silence.
    #[must_use]
    pub fn hanging(mut self) -> Self {
        self.hangs = true;
        self
    }

    /// Returns the body, as far as it is sent.
    pub fn body(&self) -> &str {
        &self.body
    }

    /// Returns the HTTP status.
    pub const fn code(&self) -> u16 {
        self.status
    }

    fn bytes(&self) -> Vec<u8> {
        let mut sent = format!("HTTP/1.1 {} Scripted\r\nconnection: close\r\n", self.status);
        for (name, value) in &self.headers {
            sent.push_str(&format!("{name}: {value}\r\n"));
        }
        if !self.hangs {
            sent.push_str(&format!("content-length: {}\r\n", self.body.len() + self.missing));
        }
        sent.push_str("\r\n");
        sent.push_str(&self.body);
        sent.into_bytes()
    }
}

fn event(data: &str) -> String {
    let read: Value = serde_json::from_str(data).unwrap_or_default();
    let name = read["type"].as_str().map(|name| format!("event: {name}\n"));
    format!("{}data: {data}\n\n", name.unwrap_or_default())
}

/// Request, as the server received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Path with the query.
    pub path: String,
    /// Lines before the body.
    pub head: String,
    /// Body.
    pub text: String,
}

impl Request {
    /// Creates a request without headers.
    pub fn new(path: &str, body: &Value) -> Self {
        Self { path: path.to_owned(), head: String::new(), text: body.to_string() }
    }

    /// Reads the body; `null` if it is not JSON.
    pub fn body(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// Returns the value of a header, by its name in small letters.
    ///
    /// ```
    /// use model_servers::Request;
    ///
    /// let mut request = Request::new("/", &serde_json::json!({}));
    /// request.head = "POST / HTTP/1.1\r\nX-Api-Key: k\r\n".to_owned();
    /// assert_eq!(request.header("x-api-key"), Some("k"));
    /// ```
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// What decides about the answer to a request.
type Script = dyn FnMut(&Request) -> Answer + Send;

/// Server on the loopback, for the runtime in which it was started; one connection a request.
///
/// ```
/// use model_servers::{Answer, Server};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let server = Server::start([Answer::status(529, "{}")]).await;
/// assert!(server.url.starts_with("http://127.0.0.1:"));
/// assert!(server.requests().is_empty());
/// # }
/// ```
#[derive(Clone)]
pub struct Server {
    /// Address, without a slash at its end.
    pub url: String,
    script: Arc<Mutex<Script>>,
    requests: Arc<Mutex<Vec<Request>>>,
    refusals: Arc<Mutex<Vec<Refusal>>>,
    /// Number of clients that closed a connection that hung.
    gone: watch::Receiver<usize>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("url", &self.url).finish_non_exhaustive()
    }
}

/// A script that panicked is a test that failed already.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Starts a server that gives these answers, one for each request, and then status 418.
    ///
    /// # Panics
    ///
    /// If there is no free port on the loopback.
    pub async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let mut answers: VecDeque<_> = answers.into_iter().collect();
        let none = || Answer::status(418, "the script has no more answers");
        Self::answering(move |_| answers.pop_front().unwrap_or_else(none)).await
    }

    /// Starts a server that gives the answers of a function.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub async fn answering(script: impl FnMut(&Request) -> Answer + Send + 'static) -> Self {
        Self::serving(script, Arc::default()).await
    }

    /// Starts a server that checks each request, and refuses it or gives the answer of the function.
    ///
    /// The function is called for accepted requests only; it [answers](Provider::answer) by the provider, and may
    /// [cut](Answer::cut) the answer. What was refused is in [`refusals`](Self::refusals).
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    ///
    /// ```
    /// use model_servers::{Item, Provider, Server, Wire};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let server = Server::checking(Provider::new(Wire::Chat), |provider, request, _| {
    ///     provider.answer(request, &[Item::Text("Yes.".into())])
    /// })
    /// .await;
    /// assert!(server.refusals().is_empty());
    /// # }
    /// ```
    pub async fn checking(
        mut provider: Provider,
        mut script: impl FnMut(&mut Provider, &Request, &Checked) -> Answer + Send + 'static,
    ) -> Self {
        let refusals: Arc<Mutex<Vec<Refusal>>> = Arc::default();
        let refused = refusals.clone();
        let checking = move |request: &Request| match provider.check(request) {
            Ok(checked) => script(&mut provider, request, &checked),
            Err(refusal) => {
                let answer = refusal.answer(provider.wire());
                lock(&refused).push(refusal);
                answer
            }
        };
        Self::serving(checking, refusals).await
    }

    #[allow(clippy::expect_used, reason = "a test without a loopback fails")]
    async fn serving(
        script: impl FnMut(&Request) -> Answer + Send + 'static,
        refusals: Arc<Mutex<Vec<Refusal>>>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback has a free port");
        let url = format!("http://{}", listener.local_addr().expect("a bound socket has an address"));
        let (left, gone) = watch::channel(0);
        let left = Arc::new(left);
        let script = Arc::new(Mutex::new(script));
        let server = Self { url, script, requests: Arc::default(), refusals, gone };
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let (serving, left) = (serving.clone(), left.clone());
                // A client that goes away, or sends what is no request, is the business of the test.
                tokio::spawn(async move { serving.serve(connection, &left).await });
            }
        });
        server
    }

    /// Returns the requests that came, in order.
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.requests).clone()
    }

    /// Returns what was refused by a server that [checks](Self::checking), in order.
    pub fn refusals(&self) -> Vec<Refusal> {
        lock(&self.refusals).clone()
    }

    /// Waits until a client has closed a connection that [hung](Answer::hanging).
    pub async fn client_left(&mut self) {
        // The sender lives as long as the server's task.
        let _ = self.gone.wait_for(|gone| *gone > 0).await;
    }

    async fn serve(&self, connection: TcpStream, left: &watch::Sender<usize>) -> io::Result<()> {
        let mut connection = BufReader::new(connection);
        let mut head = String::new();
        loop {
            let before = head.len();
            if connection.read_line(&mut head).await? == 0 {
                return Ok(());
            }
            if head[before..].trim().is_empty() {
                break;
            }
        }
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut request = Request { path, head, text: String::new() };
        let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        if length > MAX_BODY {
            return Ok(());
        }
        let mut body = vec![0; length];
        connection.read_exact(&mut body).await?;
        request.text = String::from_utf8_lossy(&body).into_owned();
        lock(&self.requests).push(request.clone());
        let answer = (lock(&self.script))(&request);
        connection.get_mut().write_all(&answer.bytes()).await?;
        if answer.hangs {
            let mut rest = Vec::new();
            connection.read_to_end(&mut rest).await?;
            left.send_modify(|gone| *gone += 1);
        }
        Ok(())
    }
}
