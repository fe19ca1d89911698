//! HTTP server on the loopback that gives scripted answers, one for each request, and records the requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Deadline of every wait in these tests.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Waits for the future, at most until the deadline.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("the test ends before its deadline")
}

/// Answer to one request.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
    /// Bytes that the head of the answer names and that do not come: the connection breaks.
    missing: usize,
    /// True if the connection stays open behind the body until the client closes it.
    hangs: bool,
}

impl Answer {
    /// A stream of these events.
    pub(crate) fn events<'a>(events: impl IntoIterator<Item = &'a str>) -> Self {
        let body = events.into_iter().map(|event| format!("data: {event}\n\n")).collect();
        Self {
            status: 200,
            headers: vec![("content-type", "text/event-stream".to_owned())],
            body,
            missing: 0,
            hangs: false,
        }
    }

    /// A stream of JSON lines.
    pub(crate) fn lines<'a>(lines: impl IntoIterator<Item = &'a str>) -> Self {
        let body = lines.into_iter().map(|line| format!("{line}\n")).collect();
        let headers = vec![("content-type", "application/x-ndjson".to_owned())];
        Self { status: 200, headers, body, missing: 0, hangs: false }
    }

    /// A refusal.
    pub(crate) fn status(status: u16, body: &str) -> Self {
        let headers = vec![("content-type", "application/json".to_owned())];
        Self { status, headers, body: body.to_owned(), missing: 0, hangs: false }
    }

    pub(crate) fn with_header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(crate) fn len(&self) -> usize {
        self.body.len()
    }

    /// The same, whose connection breaks behind these bytes, or before the character in which they end.
    pub(crate) fn cut(mut self, bytes: usize) -> Self {
        let end = (0..=bytes).rev().find(|end| self.body.is_char_boundary(*end)).unwrap_or_default();
        self.missing = self.body.len() - end;
        self.body.truncate(end);
        self
    }

    /// The same with another event at the end.
    pub(crate) fn with_event(mut self, event: &str) -> Self {
        self.body.push_str(&format!("data: {event}\n\n"));
        self
    }

    /// The same, whose connection stays open behind the body.
    pub(crate) fn hanging(mut self) -> Self {
        self.hangs = true;
        self
    }
}

/// Request, as the server received it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) head: String,
    pub(crate) text: String,
}

impl Request {
    pub(crate) fn body(&self) -> Value {
        serde_json::from_str(&self.text).expect("a request is JSON")
    }
}

/// What decides about the answer to a request.
type Script = Arc<Mutex<dyn FnMut(&Request) -> Answer + Send>>;

#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) url: String,
    script: Script,
    requests: Arc<Mutex<Vec<Request>>>,
    /// Number of clients that closed a connection that hung.
    gone: watch::Receiver<usize>,
}

impl Server {
    /// Gives these answers, one for each request.
    pub(crate) async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let mut answers: VecDeque<_> = answers.into_iter().collect();
        let none = || Answer::status(418, "the script has no more answers");
        Self::answering(move |_| answers.pop_front().unwrap_or_else(none)).await
    }

    /// Gives the answers of a function.
    pub(crate) async fn answering(script: impl FnMut(&Request) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (left, gone) = watch::channel(0);
        let left = Arc::new(left);
        let server = Self { url, script: Arc::new(Mutex::new(script)), requests: Arc::default(), gone };
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let (serving, left) = (serving.clone(), left.clone());
                tokio::spawn(async move { serving.serve(connection, &left).await });
            }
        });
        server
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// Waits until a client has closed a connection that hung.
    pub(crate) async fn client_left(&mut self) {
        soon(self.gone.wait_for(|gone| *gone > 0)).await.unwrap();
    }

    async fn serve(&self, connection: TcpStream, left: &watch::Sender<usize>) {
        let mut connection = BufReader::new(connection);
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if connection.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            head.push_str(&line);
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        connection.read_exact(&mut body).await.unwrap();
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let request = Request { path, head, text: String::from_utf8(body).unwrap() };
        self.requests.lock().unwrap().push(request.clone());
        let answer = (self.script.lock().unwrap())(&request);
        let mut sent = format!("HTTP/1.1 {} Scripted\r\nconnection: close\r\n", answer.status);
        for (name, value) in &answer.headers {
            sent.push_str(&format!("{name}: {value}\r\n"));
        }
        if !answer.hangs {
            sent.push_str(&format!("content-length: {}\r\n", answer.body.len() + answer.missing));
        }
        sent.push_str("\r\n");
        sent.push_str(&answer.body);
        let _ = connection.get_mut().write_all(sent.as_bytes()).await;
        if answer.hangs {
            let mut rest = Vec::new();
            let _ = connection.read_to_end(&mut rest).await;
            left.send_modify(|gone| *gone += 1);
        }
    }
}
