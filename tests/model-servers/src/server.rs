//! HTTP on the loopback: answers, and the requests that came.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::message::{Answer, Request};
use crate::provider::Provider;
use crate::rule::{Checked, Refusal};

/// Longest body of a request, in bytes; a longer one closes the connection.
const MAX_BODY: usize = 64 << 20;

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
