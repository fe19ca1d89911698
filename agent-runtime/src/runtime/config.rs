//! What a host decides about its agent.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::context::ContextLimits;
use agent_core::commit::LeaseRequest;
use agent_core::model::Keep;
use agent_core::text::check_text;
use agent_core::{Error, Result, Timestamp};

/// What a host decides about its agent. Checked when the runtime is built.
///
/// ```
/// use agent_runtime::Config;
///
/// let config = Config::default().provider("echo").holder("laptop").max_turns(8);
/// assert_eq!(config.limits.turns, 8);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The name of the active provider, which sessions ask that choose none, in workspaces that choose none; may be left
    /// out where there is only one.
    pub provider: Option<String>,
    /// How this process names itself to those who wait for it: 1 to 256 bytes.
    pub holder: String,
    /// The system prompt of sessions that have none of their own.
    pub system_prompt: Option<String>,
    /// What bounds a run.
    pub limits: Limits,
    /// How long a lease lives without a sign of life.
    pub lease_ttl: Duration,
    /// What happens where a turn cannot be stored.
    pub persistence: Persistence,
    /// What is decided on tools by their names, whatever their plugins say.
    pub tool_policies: BTreeMap<String, ToolPolicy>,
    /// How runs that nobody waits for are tried again when they fail.
    pub retry: Retry,
    /// Whether a prompt to a session that was set aside lets it go on; otherwise the input waits until it is resumed.
    pub resume_on_prompt: bool,
    /// Whether runs and tool calls are recorded as spans in the session's log.
    pub spans: bool,
    /// Whether the model's reasoning is stored.
    pub keep_thinking: bool,
    /// Whether what each run used is stored with its end.
    pub record_usage: bool,
    /// What the logs of sessions keep of tools, where a session does not say it itself. The first run records it in its
    /// session, for which it holds from then on.
    pub keep: Keep,
    /// Whether a session keeps the configuration with which it was made: the provider, the system prompt, the limits, the
    /// policies for tools. What a later host is configured to does not alter it then, until it
    /// [adopts](crate::handle::SessionHandle::adopt_config) that. A fork keeps what its parent keeps.
    pub freeze: bool,
}

/// What bounds a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Limits {
    /// How often the model is asked in one run.
    pub turns: u32,
    /// How many tools are called in one run. An answer that calls more is dropped at the first call over it; the calls
    /// before that are made.
    pub tool_calls: u32,
    /// The most bytes of text in one answer of the model; 1 MiB unless set, at most 15 MiB. An answer that reaches this or
    /// one of the next three limits is dropped there: what came until then is stored, its calls are not made, and the run
    /// ends for the reason [`MaxOutput`](agent_core::state::Reason::MaxOutput).
    pub text_bytes: usize,
    /// The most bytes of reasoning in one answer; 1 MiB unless set, at most 15 MiB.
    pub thinking_bytes: usize,
    /// The most bytes of the input of one tool call; 1 MiB unless set, at most 15 MiB. A call that is larger is not stored.
    pub call_bytes: usize,
    /// The most bytes of one answer altogether: text, reasoning, and the names, ids and inputs of its calls; 4 MiB unless
    /// set, at most 32 MiB. Each piece counts as one byte at least.
    pub answer_bytes: usize,
    /// How long one tool call may take.
    pub tool_timeout: Duration,
    /// How long a question waits for its answer before it is given up and the run goes on; `None` for ever.
    pub answer_timeout: Option<Duration>,
    /// How long the model may be silent before it is given up.
    pub model_silence: Duration,
    /// The most tokens that the model may answer with, where that is limited.
    pub max_tokens: Option<u32>,
    /// What of the history the model is given.
    pub context: ContextLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            turns: 50,
            tool_calls: 200,
            text_bytes: 1 << 20,
            thinking_bytes: 1 << 20,
            call_bytes: 1 << 20,
            answer_bytes: 4 << 20,
            tool_timeout: Duration::from_secs(120),
            answer_timeout: None,
            model_silence: Duration::from_secs(600),
            max_tokens: None,
            context: ContextLimits::default(),
        }
    }
}

impl Limits {
    /// The most that can be set of [`text_bytes`](field@Self::text_bytes) and
    /// [`thinking_bytes`](field@Self::thinking_bytes). A text is also cut where it would take more as JSON, in which a quote
    /// takes two bytes and a control character six: an event does not hold more.
    pub const TEXT_MAX_BYTES: usize = 15 << 20;
    /// The most that can be set of [`call_bytes`](field@Self::call_bytes).
    pub const CALL_MAX_BYTES: usize = 15 << 20;
    /// The most that can be set of [`answer_bytes`](field@Self::answer_bytes).
    pub const ANSWER_MAX_BYTES: usize = 32 << 20;
}

/// What happens where a turn cannot be stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Persistence {
    /// The run ends with the error.
    #[default]
    Strict,
    /// It is reported, and the run goes on; what could not be stored is tried again with the next step.
    BestEffort,
}

/// What a host decides on a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolPolicy {
    /// Its calls are made at once, also where its plugin would ask.
    Allow,
    /// Each of its calls waits until a person has allowed it.
    Ask,
    /// It is not offered to the model, and not called.
    Deny,
}

/// How a run that nobody waits for is tried again when it fails, or when its process is lost: after a pause that doubles
/// from failure to failure, and not for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retry {
    /// The pause after the first failure.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
    /// After how many failures in a row the session is `Failed`, until somebody recovers it.
    pub limit: u32,
}

impl Default for Retry {
    /// Pauses from 10 seconds to an hour; five failures.
    fn default() -> Self {
        Self::new(Duration::from_secs(10), Duration::from_secs(3600), 5)
    }
}

impl Retry {
    /// Pauses from `first` to `longest`, and at most `limit` failures in a row.
    pub const fn new(first: Duration, longest: Duration, limit: u32) -> Self {
        Self { first, longest, limit }
    }

    /// When a run that fails at `now`, after `failures` others in a row, may be tried again.
    pub(crate) fn ready_at(&self, now: Timestamp, failures: u32) -> Timestamp {
        let pause = self.first.saturating_mul(1 << failures.min(20)).min(self.longest);
        now.plus_micros(i64::try_from(pause.as_micros()).unwrap_or(i64::MAX))
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            provider: None,
            holder: format!("process {}", std::process::id()),
            system_prompt: None,
            limits: Limits::default(),
            lease_ttl: LeaseRequest::DEFAULT_TTL,
            persistence: Persistence::Strict,
            tool_policies: BTreeMap::new(),
            retry: Retry::default(),
            resume_on_prompt: false,
            spans: false,
            keep_thinking: true,
            record_usage: false,
            keep: Keep::Everything,
            freeze: false,
        }
    }
}

impl Config {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the active provider.
    #[must_use]
    pub fn provider(mut self, name: impl Into<String>) -> Self {
        self.provider = Some(name.into());
        self
    }

    /// Sets how this process names itself.
    #[must_use]
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = holder.into();
        self
    }

    /// Sets the system prompt of sessions that have none of their own.
    #[must_use]
    pub fn system_prompt(mut self, text: impl Into<String>) -> Self {
        self.system_prompt = Some(text.into());
        self
    }

    /// Sets how often the model is asked in one run.
    #[must_use]
    pub fn max_turns(mut self, turns: u32) -> Self {
        self.limits.turns = turns;
        self
    }

    /// Sets how many tools are called in one run.
    #[must_use]
    pub fn max_tool_calls(mut self, calls: u32) -> Self {
        self.limits.tool_calls = calls;
        self
    }

    /// Sets the most bytes of text in one answer; at most 15 MiB.
    #[must_use]
    pub fn max_text_bytes(mut self, bytes: usize) -> Self {
        self.limits.text_bytes = bytes;
        self
    }

    /// Sets the most bytes of reasoning in one answer; at most 15 MiB.
    #[must_use]
    pub fn max_thinking_bytes(mut self, bytes: usize) -> Self {
        self.limits.thinking_bytes = bytes;
        self
    }

    /// Sets the most bytes of the input of one tool call; at most 15 MiB.
    #[must_use]
    pub fn max_call_bytes(mut self, bytes: usize) -> Self {
        self.limits.call_bytes = bytes;
        self
    }

    /// Sets the most bytes of one answer altogether; at most 32 MiB.
    #[must_use]
    pub fn max_answer_bytes(mut self, bytes: usize) -> Self {
        self.limits.answer_bytes = bytes;
        self
    }

    /// Sets the most tokens that the model may answer with.
    #[must_use]
    pub fn max_tokens(mut self, tokens: u32) -> Self {
        self.limits.max_tokens = Some(tokens);
        self
    }

    /// Sets how long one tool call may take.
    #[must_use]
    pub fn tool_timeout(mut self, time: Duration) -> Self {
        self.limits.tool_timeout = time;
        self
    }

    /// Sets how long the model may be silent before it is given up.
    #[must_use]
    pub fn model_silence(mut self, time: Duration) -> Self {
        self.limits.model_silence = time;
        self
    }

    /// Sets what of the history the model is given.
    #[must_use]
    pub fn context(mut self, limits: ContextLimits) -> Self {
        self.limits.context = limits;
        self
    }

    /// Sets how long a lease lives without a sign of life.
    #[must_use]
    pub fn lease_ttl(mut self, ttl: Duration) -> Self {
        self.lease_ttl = ttl;
        self
    }

    /// Sets what happens where a turn cannot be stored.
    #[must_use]
    pub fn persistence(mut self, persistence: Persistence) -> Self {
        self.persistence = persistence;
        self
    }

    /// Decides on a tool, whatever its plugin says. A tool that runs outside, or that asks by itself, can only be denied.
    #[must_use]
    pub fn tool_policy(mut self, tool: impl Into<String>, policy: ToolPolicy) -> Self {
        self.tool_policies.insert(tool.into(), policy);
        self
    }

    /// Sets how long a question waits for its answer; without it for ever.
    #[must_use]
    pub fn answer_timeout(mut self, time: Duration) -> Self {
        self.limits.answer_timeout = Some(time);
        self
    }

    /// Sets whether a prompt to a session that was set aside lets it go on.
    #[must_use]
    pub fn resume_on_prompt(mut self, resume: bool) -> Self {
        self.resume_on_prompt = resume;
        self
    }

    /// Sets how runs that nobody waits for are tried again.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Records runs and tool calls as spans in the session's log.
    #[must_use]
    pub fn spans(mut self, spans: bool) -> Self {
        self.spans = spans;
        self
    }

    /// Sets whether the model's reasoning is stored.
    #[must_use]
    pub fn keep_thinking(mut self, keep: bool) -> Self {
        self.keep_thinking = keep;
        self
    }

    /// Stores with the end of each run what it used, and what that cost where the provider knows. Off unless asked for.
    #[must_use]
    pub fn record_usage(mut self, record: bool) -> Self {
        self.record_usage = record;
        self
    }

    /// Sets what the logs of sessions keep of tools, where a session does not say it itself.
    #[must_use]
    pub fn keep(mut self, keep: Keep) -> Self {
        self.keep = keep;
        self
    }

    /// Sets whether a session keeps the configuration with which it was made.
    #[must_use]
    pub fn freeze(mut self, freeze: bool) -> Self {
        self.freeze = freeze;
        self
    }

    /// What is wrong with it, all of it.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut check = |result: Result<()>| faults.extend(result.err().map(|error| error.to_string()));
        check(check_text("lease holder", &self.holder, 256).map_err(Error::from));
        if self.lease_ttl < Duration::from_millis(3) || self.lease_ttl > Duration::from_secs(24 * 3600) {
            check(Err(Error::invalid(format!(
                "a lease of {:?}; give at least 3 ms and at most a day",
                self.lease_ttl
            ))));
        }
        for (noun, nothing) in [
            ("model calls in a run", self.limits.turns == 0),
            ("time for a tool call", self.limits.tool_timeout.is_zero()),
            ("time for the model", self.limits.model_silence.is_zero()),
            ("messages for the model", self.limits.context.messages == 0),
            ("bytes for the model", self.limits.context.bytes == 0),
        ] {
            if nothing {
                check(Err(Error::invalid(format!("the limit allows no {noun}"))));
            }
        }
        for (noun, bytes, most) in [
            ("text in an answer", self.limits.text_bytes, Limits::TEXT_MAX_BYTES),
            ("reasoning in an answer", self.limits.thinking_bytes, Limits::TEXT_MAX_BYTES),
            ("input of a tool call", self.limits.call_bytes, Limits::CALL_MAX_BYTES),
            ("an answer", self.limits.answer_bytes, Limits::ANSWER_MAX_BYTES),
        ] {
            if bytes == 0 || bytes > most {
                check(Err(Error::invalid(format!("a limit of {bytes} bytes of {noun}; give 1 to {most}"))));
            }
        }
        faults
    }
}
