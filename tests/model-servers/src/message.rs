//! Requests and answers, broken ones too.

use serde_json::Value;

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
    /// Bytes behind the body, which may be no UTF-8.
    more: Vec<u8>,
    /// Bytes that the head of the answer names and that do not come: the connection breaks.
    missing: usize,
    /// True if the connection stays open behind the body until the client closes it.
    pub(crate) hangs: bool,
}

impl Answer {
    fn new(status: u16, media_type: &str, body: String) -> Self {
        let headers = vec![("content-type", media_type.to_owned())];
        Self { status, headers, body, more: Vec::new(), missing: 0, hangs: false }
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

    /// Sets the media type.
    #[must_use]
    pub fn with_type(mut self, media_type: &str) -> Self {
        self.headers.retain(|(name, _)| *name != "content-type");
        self.with_header("content-type", media_type)
    }

    /// Adds an event at the end whose data are these bytes, also if they are no text.
    #[must_use]
    pub fn with_bytes(mut self, data: impl IntoIterator<Item = u8>) -> Self {
        self.more.extend_from_slice(b"data: ");
        self.more.extend(data);
        self.more.extend_from_slice(b"\n\n");
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

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut sent = format!("HTTP/1.1 {} Scripted\r\nconnection: close\r\n", self.status);
        for (name, value) in &self.headers {
            sent.push_str(&format!("{name}: {value}\r\n"));
        }
        if !self.hangs {
            sent.push_str(&format!(
                "content-length: {}\r\n",
                self.body.len() + self.more.len() + self.missing
            ));
        }
        sent.push_str("\r\n");
        sent.push_str(&self.body);
        let mut sent = sent.into_bytes();
        sent.extend_from_slice(&self.more);
        sent
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
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}
