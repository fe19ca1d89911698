//! Rules of the APIs, and the error of a request that breaks one.

use std::fmt;

use serde_json::{Value, json};

use crate::message::Answer;

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
        /// Arguments: an object, or a text that is streamed as it is, which may be no JSON; on [`Wire::Gemini`] then none.
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
    /// No message, item or part is empty, inside the results of tools too; texts on Anthropic's have more than white space. "must be non-empty".
    Empty,
    /// Names of tools, and of calls in the conversation, are letters, digits, `_` and `-`, at most 64; on Anthropic's 128. On Gemini's
    /// a letter or `_` is first.
    ToolName,
    /// The arguments of each call in the conversation are a JSON object. "should be a valid JSON object".
    Arguments,
    /// Input schemas of tools are of an object, without alternatives at the top. On Anthropic's, names of properties are
    /// letters, digits, `_`, `.` and `-`, at most 64. "Property keys should match pattern", "Invalid schema for function".
    ToolSchema,
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

/// Returns the items of a list; none if it is no list.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns arguments as they are streamed.
pub(crate) fn written(arguments: &Value) -> String {
    arguments.as_str().map_or_else(|| arguments.to_string(), str::to_owned)
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
