//! Configuration of an agent by its host.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::context::ContextLimits;
use crate::model::options::{Effort, ToolChoice};
use agent_core::commit::LeaseRequest;
use agent_core::json::RawJson;
use agent_core::model::ToolPayloads;
use agent_core::setters;
use agent_core::text::check_text;
use agent_core::{Error, Result, Timestamp};

/// Configuration of an agent by its host. [`AgentBuilder::build`](crate::AgentBuilder::build) checks it.
///
/// ```
/// use std::time::Duration;
/// use agent_core::json::RawJson;
/// use agent_core::model::ToolPayloads;
/// use agent_runtime::context::ContextLimits;
/// use agent_runtime::{Config, Effort, OnStoreError, Retry, ToolChoice, ToolPolicy};
///
/// let config = Config::new()
///     // Identity and prompt.
///     .with_provider("claude")
///     .with_holder("worker-3")
///     .with_agent_name("support")
///     .with_system_prompt("Answer in one sentence.")
///     // Requests.
///     .with_tool_choice(ToolChoice::Required)
///     .with_output_schema(RawJson::constant(r#"{"type":"object"}"#))
///     .with_effort(Effort::Low)
///     // Limits of a run.
///     .with_max_turns(8)
///     .with_max_tool_calls(20)
///     .with_max_tokens(4096)
///     .with_max_text_bytes(256 << 10)
///     .with_max_thinking_bytes(256 << 10)
///     .with_max_call_bytes(64 << 10)
///     .with_max_answer_bytes(1 << 20)
///     .with_tool_timeout(Duration::from_secs(30))
///     .with_answer_timeout(Duration::from_secs(24 * 3600))
///     .with_model_silence(Duration::from_secs(60))
///     .with_model_retries(3)
///     .with_context_limits(ContextLimits::new(100, 256 << 10))
///     // Tools, sessions and their logs.
///     .with_tool_policy("delete_file", ToolPolicy::Ask)
///     .with_lease_ttl(Duration::from_secs(15))
///     .with_on_store_error(OnStoreError::Continue)
///     .with_retry(Retry::new(Duration::from_secs(5), Duration::from_secs(600), 8))
///     .with_resume_on_prompt(true)
///     .with_spans(true)
///     .with_store_thinking(false)
///     .with_record_usage(true)
///     .with_tool_payloads(ToolPayloads::Omit)
///     .with_read_outputs(false)
///     .with_freeze_config(true);
/// assert_eq!(config.limits.turns, 8);
/// assert_eq!(config.limits.answer_timeout, Some(Duration::from_secs(86_400)));
/// assert_eq!(config.tool_policies["delete_file"], ToolPolicy::Ask);
/// assert_eq!(config.retry.limit, 8);
///
/// let default = Config::new();
/// assert_eq!((default.limits.turns, default.limits.tool_calls), (50, 200));
/// assert_eq!(default.lease_ttl, Duration::from_secs(30));
/// assert_eq!(default.limits.max_tokens, None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Name of the active provider, used by sessions that choose none in workspaces that choose none; default `None`,
    /// which selects the only provider. Required if there are several.
    pub provider: Option<String>,
    /// Name of this process as a lease holder, 1 to 256 bytes; default `process` and the process id. Processes that
    /// wait for a session show it.
    pub holder: String,
    /// Name of the agent in tracing spans (`gen_ai.agent.name`), 1 to 256 bytes; default `None`.
    pub agent_name: Option<String>,
    /// System prompt of sessions that have none of their own; default `None`.
    pub system_prompt: Option<String>,
    /// Choice of the model between text and tool calls; default [`ToolChoice::Auto`].
    pub tool_choice: ToolChoice,
    /// JSON schema of the text of the model's answers, an object; default `None` for free text.
    ///
    /// A run fails if its provider has no [structured output](field@crate::ModelCapabilities::structured_output).
    pub output_schema: Option<RawJson>,
    /// Effort that the model spends on reasoning; default `None`, which leaves it to the model.
    pub effort: Option<Effort>,
    /// Limits of a run; default [`Limits::default`].
    pub limits: Limits,
    /// Time to live of a lease without a heartbeat: 3 ms to 24 hours; default 30 seconds. Another process can continue
    /// a session this long after its holder was lost. A shorter time than the store's
    /// [`min_lease`](agent_core::store::Capabilities::min_lease) is raised to that: on S3, to 120 seconds.
    pub lease_ttl: Duration,
    /// Behavior if a turn cannot be stored; default [`OnStoreError::Fail`].
    pub on_store_error: OnStoreError,
    /// Policies for tools by name, which take precedence over the modes of the plugins; default empty.
    pub tool_policies: BTreeMap<String, ToolPolicy>,
    /// Retry policy for failed runs on which no caller waits; default [`Retry::default`].
    pub retry: Retry,
    /// True if a prompt to a suspended session resumes it; default false: the input waits until the session is resumed.
    pub resume_on_prompt: bool,
    /// True if runs and tool calls are recorded as spans in the session's log; default false.
    pub spans: bool,
    /// True if the model's reasoning is stored; default true.
    pub store_thinking: bool,
    /// True if the usage of each run is stored with its end; default false.
    pub record_usage: bool,
    /// Tool payloads that the logs of sessions keep, unless a session sets this itself; default
    /// [`ToolPayloads::Store`].
    ///
    /// The first run records the setting in its session; it applies to that session from then on.
    pub tool_payloads: ToolPayloads,
    /// True if the model is offered the tool `read_output`, by which it reads the rest of an output of which it was given
    /// the beginning and the end; default true.
    ///
    /// It is offered beside other tools, in a store with [blobs](agent_core::store::BlobStore::put). A shortened output
    /// names it at the cut. A plugin's tool of that name takes its place.
    pub read_outputs: bool,
    /// True if a session keeps the configuration with which it was created; default false.
    ///
    /// The kept part is the provider, the system prompt, the options of requests, the limits and the policies for tools. A different
    /// configuration of a later host has no effect on the session until the session
    /// [adopts](crate::conversation::handle::Conversation::use_host_config) it. A fork keeps the configuration that its parent keeps.
    pub freeze_config: bool,
    /// Maximum memory, in bytes, of what is kept of conversations between their runs; default 128 MiB.
    ///
    /// A run goes on with the context that the last run of its session in this process has left, and reads what is new in the log.
    /// The bytes are an estimate, for all conversations of the runtime and of those made from it; the ones that were used longest
    /// ago go first. What is kept changes no request: 0 keeps nothing, and each run reads the context from the log.
    /// Only damage of what was read before is not noticed until the context is read again.
    pub context_cache_bytes: usize,
}

/// Limits of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Limits {
    /// Maximum number of model calls in one run; default 50, at least 1.
    pub turns: u32,
    /// Maximum number of tool calls in one run; default 200. An answer with more calls is dropped at the first call
    /// over the limit; the calls before it are made. At most 64 calls of one answer are made; the others get a result
    /// that says so, and count.
    pub tool_calls: u32,
    /// Maximum bytes of text in one answer of the model; default 1 MiB, at most 15 MiB.
    ///
    /// An answer that reaches this limit or one of the next three is dropped there: the part that was received is
    /// stored, its calls are not made, and the run ends with the reason
    /// [`MaxOutput`](agent_core::state::Reason::MaxOutput).
    pub text_bytes: usize,
    /// Maximum bytes of reasoning in one answer; default 1 MiB, at most 15 MiB.
    pub thinking_bytes: usize,
    /// Maximum bytes of the input of one tool call; default 1 MiB, at most 15 MiB. A larger call is not stored.
    pub call_bytes: usize,
    /// Maximum bytes of one whole answer: text, reasoning, and the names, ids and inputs of its calls; default 4 MiB,
    /// at most 32 MiB. Each piece counts as at least one byte.
    pub answer_bytes: usize,
    /// Maximum duration of one tool call; default 2 minutes. Not zero, at most [`TIME_MAX`](Self::TIME_MAX).
    pub tool_timeout: Duration,
    /// Maximum time that a question waits for its answer; default `None` for no limit, at most
    /// [`TIME_MAX`](Self::TIME_MAX). Afterwards the run continues without an answer.
    pub answer_timeout: Option<Duration>,
    /// Maximum time without output from the model before the call fails, without a retry; default 10 minutes. Not zero,
    /// at most [`TIME_MAX`](Self::TIME_MAX).
    pub model_silence: Duration,
    /// Maximum number of times that one model call is repeated after a [retryable](crate::FaultKind::is_retryable)
    /// fault, before the first event of its answer; default 2. The pauses take about 1, 2, 4 … seconds, or what the
    /// provider [names](field@crate::ProviderFault::retry_after), at most 60 seconds.
    pub model_retries: u32,
    /// Maximum number of tokens in the model's answer; default `None` for no limit.
    pub max_tokens: Option<u32>,
    /// Limits on the history that the model receives; default [`ContextLimits::default`]: 1,000 messages, 512 KiB of
    /// text, and 32 KiB of one tool's output.
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
            model_retries: 2,
            max_tokens: None,
            context: ContextLimits::default(),
        }
    }
}

impl Limits {
    /// Maximum value of [`text_bytes`](field@Self::text_bytes) and [`thinking_bytes`](field@Self::thinking_bytes).
    ///
    /// A text is also cut if its JSON form would be larger than this, because an event cannot hold more: in JSON a
    /// quote takes two bytes and a control character six.
    pub const TEXT_MAX_BYTES: usize = 15 << 20;
    /// Maximum value of [`call_bytes`](field@Self::call_bytes).
    pub const CALL_MAX_BYTES: usize = 15 << 20;
    /// Maximum value of [`answer_bytes`](field@Self::answer_bytes).
    pub const ANSWER_MAX_BYTES: usize = 32 << 20;
    /// Maximum of each duration of a run and of a [`Retry`]: 3,650 days.
    pub const TIME_MAX: Duration = Duration::from_secs(3650 * 24 * 3600);

    /// Returns everything that is wrong with the limits.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (noun, nothing) in [
            ("model calls in a run", self.turns == 0),
            ("time for a tool call", self.tool_timeout.is_zero()),
            ("time for the model", self.model_silence.is_zero()),
            ("messages for the model", self.context.messages == 0),
            ("bytes for the model", self.context.bytes == 0),
        ] {
            if nothing {
                faults.push(format!("the limit allows no {noun}; give more than zero"));
            }
        }
        faults.extend(too_long([
            ("time for a tool call", self.tool_timeout),
            ("time for the model", self.model_silence),
            ("time for an answer", self.answer_timeout.unwrap_or_default()),
        ]));
        for (noun, bytes, most) in [
            ("text in an answer", self.text_bytes, Self::TEXT_MAX_BYTES),
            ("reasoning in an answer", self.thinking_bytes, Self::TEXT_MAX_BYTES),
            ("input of a tool call", self.call_bytes, Self::CALL_MAX_BYTES),
            ("an answer", self.answer_bytes, Self::ANSWER_MAX_BYTES),
        ] {
            if bytes == 0 || bytes > most {
                faults.push(format!("a limit of {bytes} bytes of {noun} is out of range; give 1 to {most}"));
            }
        }
        faults
    }
}

/// Returns what is wrong with durations, each with its noun.
fn too_long<const N: usize>(times: [(&str, Duration); N]) -> impl Iterator<Item = String> {
    let days = Limits::TIME_MAX.as_secs() / (24 * 3600);
    times.into_iter().filter(|(_, time)| *time > Limits::TIME_MAX).map(move |(noun, time)| {
        format!("a {noun} of {} seconds is out of range; give at most {days} days", time.as_secs())
    })
}

/// Behavior if a turn cannot be stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "Persistence")]
pub enum OnStoreError {
    /// The run ends with the error.
    #[default]
    Fail,
    /// The error is reported and the run continues; the commit is retried with the next step.
    Continue,
}

/// Policy of a host for one tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolPolicy {
    /// Calls are made immediately, even if the plugin asks for a confirmation.
    Allow,
    /// Each call waits until a person has allowed it.
    Ask,
    /// The tool is not offered to the model, and not called.
    Deny,
}

/// Retry policy for a run on which no caller waits, if it fails or its process is lost.
///
/// The pause doubles after each failure, up to a maximum; the number of consecutive failures is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retry {
    /// Pause after the first failure; default 10 seconds, at most [`Limits::TIME_MAX`].
    pub first: Duration,
    /// Maximum pause, also if the provider asks for a longer one; default one hour, at most [`Limits::TIME_MAX`].
    pub longest: Duration,
    /// Number of consecutive failures after which the session becomes `Failed`; default 5. Only
    /// [`Conversation::clear_failure`](crate::conversation::handle::Conversation::clear_failure) ends that state.
    pub limit: u32,
}

impl Default for Retry {
    /// Returns a policy with pauses from 10 seconds to one hour and at most five failures.
    fn default() -> Self {
        Self::new(Duration::from_secs(10), Duration::from_secs(3600), 5)
    }
}

impl Retry {
    /// Creates a policy with pauses from `first` to `longest` and at most `limit` consecutive failures.
    pub const fn new(first: Duration, longest: Duration, limit: u32) -> Self {
        Self { first, longest, limit }
    }

    /// Returns the time at which a run that fails at `now`, after `failures` consecutive failures, may be retried;
    /// `asked` is the pause that the provider asks for.
    pub(crate) fn ready_at(&self, now: Timestamp, failures: u32, asked: Option<Duration>) -> Timestamp {
        let pause = self.first.saturating_mul(1 << failures.min(20));
        let pause = pause.max(asked.unwrap_or_default()).min(self.longest);
        now.plus_micros(i64::try_from(pause.as_micros()).unwrap_or(i64::MAX))
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            provider: None,
            holder: format!("process {}", std::process::id()),
            agent_name: None,
            system_prompt: None,
            tool_choice: ToolChoice::Auto,
            output_schema: None,
            effort: None,
            limits: Limits::default(),
            lease_ttl: LeaseRequest::DEFAULT_TTL,
            on_store_error: OnStoreError::Fail,
            tool_policies: BTreeMap::new(),
            retry: Retry::default(),
            resume_on_prompt: false,
            spans: false,
            store_thinking: true,
            record_usage: false,
            tool_payloads: ToolPayloads::Store,
            read_outputs: true,
            freeze_config: false,
            context_cache_bytes: 128 << 20,
        }
    }
}

impl Config {
    /// Creates the default configuration; each field and each setter states its default.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Sets the name of the active provider; the default is the only provider.
        pub fn with_provider(name: impl Into<String>) => provider = Some(name.into());

        /// Sets the name of this process as a lease holder: 1 to 256 bytes; the default is `process` and the process id.
        pub fn with_holder(holder: impl Into<String>) => holder = holder.into();

        /// Sets the name of the agent in tracing spans: 1 to 256 bytes; the default is no name.
        pub fn with_agent_name(name: impl Into<String>) => agent_name = Some(name.into());

        /// Sets the system prompt of sessions that have none of their own; the default is no prompt.
        pub fn with_system_prompt(text: impl Into<String>) => system_prompt = Some(text.into());

        /// Sets the choice of the model between text and tool calls; the default is [`ToolChoice::Auto`].
        pub fn with_tool_choice(choice: ToolChoice) => tool_choice = choice;

        /// Sets the JSON schema of the text of the model's answers, an object; the default is free text.
        pub fn with_output_schema(schema: RawJson) => output_schema = Some(schema);

        /// Sets the effort that the model spends on reasoning; the default leaves it to the model.
        pub fn with_effort(effort: Effort) => effort = Some(effort);

        /// Sets the maximum number of model calls in one run; the default is 50.
        pub fn with_max_turns(turns: u32) => limits.turns = turns;

        /// Sets the maximum number of tool calls in one run; the default is 200.
        pub fn with_max_tool_calls(calls: u32) => limits.tool_calls = calls;

        /// Sets the maximum bytes of text in one answer; the default is 1 MiB, at most 15 MiB.
        pub fn with_max_text_bytes(bytes: usize) => limits.text_bytes = bytes;

        /// Sets the maximum bytes of reasoning in one answer; the default is 1 MiB, at most 15 MiB.
        pub fn with_max_thinking_bytes(bytes: usize) => limits.thinking_bytes = bytes;

        /// Sets the maximum bytes of the input of one tool call; the default is 1 MiB, at most 15 MiB.
        pub fn with_max_call_bytes(bytes: usize) => limits.call_bytes = bytes;

        /// Sets the maximum bytes of one whole answer; the default is 4 MiB, at most 32 MiB.
        pub fn with_max_answer_bytes(bytes: usize) => limits.answer_bytes = bytes;

        /// Sets the maximum number of tokens in the model's answer; the default is no limit.
        pub fn with_max_tokens(tokens: u32) => limits.max_tokens = Some(tokens);

        /// Sets the maximum duration of one tool call; the default is 2 minutes.
        pub fn with_tool_timeout(time: Duration) => limits.tool_timeout = time;

        /// Sets the maximum time without output from the model; the default is 10 minutes.
        pub fn with_model_silence(time: Duration) => limits.model_silence = time;

        /// Sets the maximum number of times that one model call is repeated after a retryable fault; the default is 2.
        pub fn with_model_retries(retries: u32) => limits.model_retries = retries;

        /// Sets the limits on the history that the model receives; the default is [`ContextLimits::default`].
        pub fn with_context_limits(limits: ContextLimits) => limits.context = limits;

        /// Sets the time to live of a lease without a heartbeat, 3 ms to 24 hours; the default is 30 seconds. A store may
        /// [raise it](field@Self::lease_ttl).
        pub fn with_lease_ttl(ttl: Duration) => lease_ttl = ttl;

        /// Sets the behavior if a turn cannot be stored; the default is [`OnStoreError::Fail`].
        #[doc(alias = "persistence")]
        pub fn with_on_store_error(persistence: OnStoreError) => on_store_error = persistence;
    }

    /// Sets the policy for a tool, which takes precedence over its plugin; the default is no policy.
    ///
    /// A tool of the mode [`Outside`](crate::ToolMode::Outside) or [`Ask`](crate::ToolMode::Ask) can only be denied.
    #[must_use]
    pub fn with_tool_policy(mut self, tool: impl Into<String>, policy: ToolPolicy) -> Self {
        self.tool_policies.insert(tool.into(), policy);
        self
    }

    setters! {
        /// Sets the maximum time that a question waits for its answer; the default is no limit.
        pub fn with_answer_timeout(time: Duration) => limits.answer_timeout = Some(time);

        /// Sets whether a prompt to a suspended session resumes it; the default is false.
        pub fn with_resume_on_prompt(resume: bool) => resume_on_prompt = resume;

        /// Sets the retry policy for runs on which no caller waits; the default is [`Retry::default`].
        pub fn with_retry(retry: Retry) => retry = retry;

        /// Sets whether runs and tool calls are recorded as spans in the session's log; the default is false.
        pub fn with_spans(spans: bool) => spans = spans;

        /// Sets whether the model's reasoning is stored; the default is true. Without it, later runs give answers as text and
        /// calls, and nothing that a provider signed.
        pub fn with_store_thinking(keep: bool) => store_thinking = keep;

        /// Sets whether the end of each run stores its usage, and its cost if the provider knows it; the default is false.
        pub fn with_record_usage(record: bool) => record_usage = record;

        /// Sets the tool payloads that the logs of sessions keep, unless a session sets this itself; the default is
        /// [`ToolPayloads::Store`]. Later runs give an answer whose payloads are omitted without what a provider signed.
        #[doc(alias = "keep")]
        pub fn with_tool_payloads(keep: ToolPayloads) => tool_payloads = keep;

        /// Sets whether the model is offered the tool `read_output`; the default is true.
        ///
        /// The tools are a part of what a model is given: a change costs the cache of its provider, and its signed reasoning.
        pub fn with_read_outputs(offer: bool) => read_outputs = offer;

        /// Sets whether a session keeps the configuration with which it was created; the default is false.
        pub fn with_freeze_config(freeze: bool) => freeze_config = freeze;

        /// Sets the maximum memory of what is kept of conversations between their runs, in bytes; the default is 128 MiB, and 0
        /// [keeps nothing](field@Self::context_cache_bytes).
        pub fn with_context_cache_bytes(bytes: usize) => context_cache_bytes = bytes;
    }

    /// Returns everything that is wrong with the configuration.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut check = |result: Result<()>| faults.extend(result.err().map(|error| error.to_string()));
        check(check_text("lease holder", &self.holder, 256).map_err(Error::from));
        if let Some(name) = &self.agent_name {
            check(check_text("agent name", name, 256).map_err(Error::from));
        }
        if let Some(schema) = &self.output_schema
            && schema.to::<BTreeMap<String, RawJson>>().is_err()
        {
            check(Err(Error::invalid("the output schema is no JSON object; give one, with a \"type\"")));
        }
        if self.lease_ttl < Duration::from_millis(3) || self.lease_ttl > Duration::from_secs(24 * 3600) {
            check(Err(Error::invalid(format!(
                "a lease of {:?} is out of range; give at least 3 ms and at most 24 hours",
                self.lease_ttl
            ))));
        }
        faults.extend(self.limits.faults());
        faults.extend(too_long([
            ("first pause of a retry", self.retry.first),
            ("longest pause of a retry", self.retry.longest),
        ]));
        faults
    }
}
