//! One account at a provider: what it takes, and what it answers.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::http::{Answer, Request};
use crate::{anthropic, chat, gemini, responses};

/// API that a provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wire {
    /// Anthropic's Messages.
    Anthropic,
    /// OpenAI's Responses, with `store: false`.
    Responses,
    /// Google's `generateContent`, as models from Gemini 3 on take it.
    Gemini,
    /// Chat completions, as OpenAI and others have them.
    Chat,
}

impl Wire {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Anthropic, Self::Responses, Self::Gemini, Self::Chat];
}

/// Item of an answer, as a script writes it; the provider adds ids and signatures.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// Text for the person.
    Text(String),
    /// Reasoning; nothing on [`Wire::Chat`].
    Reasoning(String),
    /// Reasoning that is not shown, on [`Wire::Anthropic`]; nothing elsewhere.
    Redacted,
    /// Call of a tool.
    Call {
        /// Name of the tool.
        name: String,
        /// Arguments, an object.
        arguments: Value,
    },
}

/// Rule against which every request is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// The body is an object with messages; `max_tokens` on Anthropic's. "Field required".
    Shape,
    /// The conversation does not end with the model, on Anthropic's and Gemini's. "must end with a user message".
    Order,
    /// No message, item or part is empty; texts on Anthropic's have more than white space. "must be non-empty".
    Empty,
    /// Names of tools are letters, digits, `_` and `-`, at most 64; on Anthropic's 128.
    ToolName,
    /// Ids of calls are valid (Anthropic: letters, digits, `_` and `-`; chat: at most 40 bytes) and not repeated.
    CallId,
    /// Each call has its result where it belongs: in the next message, or, on Responses, anywhere behind it.
    /// "`tool_use` ids were found without `tool_result` blocks", "No tool output found for function call".
    ResultMissing,
    /// Each result has its call. "unexpected `tool_use_id`", "No tool call found for function call output".
    CallMissing,
    /// A signature was made by this account. "Invalid `signature` in `thinking` block", "could not be verified".
    Signature,
    /// Responses: reasoning stands before the item that it led to. "provided without its required following item".
    FollowingItem,
    /// Responses: an item stands behind the reasoning that led to it. "provided without its required 'reasoning' item".
    ReasoningItem,
    /// Responses: an id of an item is not repeated. "Duplicate item found".
    DuplicateItem,
    /// Gemini: the first call of each step of the current turn has a signature. "missing a thought_signature".
    SignatureMissing,
    /// Anthropic, with thinking on: the answer whose results follow begins with its thinking. "Expected `thinking`".
    ThinkingFirst,
}

/// Refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Rule that the request breaks.
    pub rule: Rule,
    /// HTTP status.
    pub status: u16,
    /// Text of the error, in the words of the provider.
    pub message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({}): {}", self.rule, self.status, self.message)
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    pub(crate) fn new(rule: Rule, message: impl Into<String>) -> Self {
        Self { rule, status: 400, message: message.into() }
    }

    /// Returns the refusal as the API writes it.
    pub fn answer(&self, wire: Wire) -> Answer {
        let message = &self.message;
        let body = match wire {
            Wire::Anthropic => {
                json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}})
            }
            Wire::Responses | Wire::Chat => {
                let code = (self.rule == Rule::Signature).then_some("invalid_encrypted_content");
                json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": code}})
            }
            Wire::Gemini => {
                json!({"error": {"code": self.status, "message": message, "status": "INVALID_ARGUMENT"}})
            }
        };
        Answer::status(self.status, &body.to_string())
    }
}

/// Signatures of the provider in a request that is accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Signatures of this account before which everything is as it was, in order.
    pub current: Vec<String>,
    /// Signatures of this account before which something is not as it was. Providers that do not refuse them drop the
    /// reasoning in silence.
    pub stale: Vec<String>,
}

/// One account at a provider, which signs what it answers.
#[derive(Clone, Debug)]
pub struct Provider {
    wire: Wire,
    secret: String,
    /// Whether signatures are held against what stands before them.
    verifies: bool,
    answers: u64,
    signatures: u64,
    /// Responses: ids of items by those of the reasoning that led to them, and the other way round.
    pub(crate) led_to: BTreeMap<String, String>,
}

/// How a signature stands to a request.
pub(crate) enum Signed {
    Current,
    Stale,
    Forged,
}

impl Provider {
    /// Creates an account.
    pub fn new(wire: Wire) -> Self {
        Self {
            wire,
            secret: "one account".to_owned(),
            verifies: true,
            answers: 0,
            signatures: 0,
            led_to: BTreeMap::new(),
        }
    }

    /// Sets the name of the account; signatures of one account are forged to another one.
    #[must_use]
    pub fn with_account(mut self, account: &str) -> Self {
        account.clone_into(&mut self.secret);
        self
    }

    /// Takes every signature as current: for recorded requests, whose signatures only the real provider knows.
    #[must_use]
    pub const fn trusting(mut self) -> Self {
        self.verifies = false;
        self
    }

    /// Returns the API.
    pub const fn wire(&self) -> Wire {
        self.wire
    }

    /// Checks a request against the [rules](Rule) of the API.
    ///
    /// # Errors
    ///
    /// The first rule that the request breaks.
    pub fn check(&self, request: &Request) -> Result<Checked, Refusal> {
        let body = request.body();
        if !body.is_object() {
            return Err(Refusal::new(Rule::Shape, "We could not parse the JSON body of your request."));
        }
        match self.wire {
            Wire::Anthropic => anthropic::check(self, request, &body),
            Wire::Responses => responses::check(self, request, &body),
            Wire::Gemini => gemini::check(self, request, &body),
            Wire::Chat => chat::check(&body),
        }
    }

    /// Answers a request with these items, streamed.
    pub fn answer(&mut self, request: &Request, items: &[Item]) -> Answer {
        let body = request.body();
        self.answers += 1;
        match self.wire {
            Wire::Anthropic => anthropic::give(self, request, &body, items),
            Wire::Responses => responses::give(self, request, &body, items),
            Wire::Gemini => gemini::give(self, request, &body, items),
            Wire::Chat => chat::give(self, items),
        }
    }

    /// Returns an id that no other answer of this account has.
    pub(crate) fn id(&self, prefix: &str, index: usize) -> String {
        format!("{prefix}_{}n{index}", self.answers)
    }

    fn mac(&self, what: &[&str]) -> String {
        let mut hasher = Sha256::new();
        for part in [&*self.secret].iter().chain(what) {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        hasher.finalize().iter().take(12).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Binds a signature to what stands before it.
    fn bind(&self, number: &str, before: &Value) -> String {
        let mut text = String::new();
        canonical(before, &mut text);
        self.mac(&["before", number, &text])
    }

    /// Signs what stands before an item. The signature is base64, since clients decode it and encode it again.
    pub(crate) fn sign(&mut self, before: &Value) -> String {
        self.signatures += 1;
        let number = format!("{:08x}", self.signatures);
        let (own, bound) = (self.mac(&["number", &number]), self.bind(&number, before));
        format!("EpEA{number}{own}{bound}")
    }

    /// Looks at a signature that stands behind this.
    pub(crate) fn verify(&self, signature: &str, before: &Value) -> Signed {
        if !self.verifies {
            return Signed::Current;
        }
        let parts = signature.strip_prefix("EpEA");
        let Some((number, macs)) = parts.and_then(|parts| parts.split_at_checked(8)) else {
            return Signed::Forged;
        };
        let Some(bound) = macs.strip_prefix(&self.mac(&["number", number])) else { return Signed::Forged };
        if bound == self.bind(number, before) { Signed::Current } else { Signed::Stale }
    }
}

/// Writes JSON in the form that is signed: members in the order of their names, without those that are `null`, which clients
/// add and leave out, and without the marks for caches, which move from request to request.
fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            let is_signed =
                |(name, member): &(&String, &Value)| !member.is_null() && *name != "cache_control";
            let members: BTreeMap<_, _> = members.iter().filter(is_signed).collect();
            out.push('{');
            for (name, member) in members {
                out.push_str(&format!("{name:?}:"));
                canonical(member, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(list) => {
            out.push('[');
            for item in list {
                canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        plain => out.push_str(&plain.to_string()),
    }
}

/// Returns the items of a list; none if it is no list.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(crate) fn is_name(name: &str, most: usize) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !name.is_empty() && name.len() <= most && name.bytes().all(allowed)
}

/// Checks the names of tools.
pub(crate) fn tool_names<'a>(
    names: impl IntoIterator<Item = Option<&'a str>>,
    most: usize,
) -> Result<(), Refusal> {
    for (at, name) in names.into_iter().enumerate() {
        if !name.is_some_and(|name| is_name(name, most)) {
            let what = format!("tools.{at}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,{most}}}$'");
            return Err(Refusal::new(Rule::ToolName, what));
        }
    }
    Ok(())
}
