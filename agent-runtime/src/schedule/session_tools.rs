//! Tools by which a model plans for its own session: it schedules and cancels timers, and starts child sessions.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

use crate::model::provider::ToolSpec;
use crate::tool::plugin::{Plugin, ToolContext};
use crate::turn::children::start;
use agent_core::commit::Commit;
use agent_core::event::NewEvent;
use agent_core::json::RawJson;
use agent_core::model::{Actor, Patch, Timer, Title};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::setters;
use agent_core::{
    CommitId, Epoch, Error, ErrorKind, Result, Seq, SessionId, SessionStore, SessionStoreExt, Timestamp,
};

/// Tools by which a model plans for its own session: [`schedule_timer`](Self::SCHEDULE_TIMER),
/// [`cancel_timer`](Self::CANCEL_TIMER) and [`start_child`](Self::START_CHILD).
///
/// A host enables them by adding the plugin; a [policy](crate::config::ToolPolicy) can require a person's
/// permission for each call, or deny a tool. A [`Scheduler`](crate::schedule::scheduler::Scheduler) runs the scheduled
/// work.
///
/// Each call takes effect once, even if it is repeated: the ids of what it writes are derived from the session, the
/// call and the event that holds the call, so a call that is repeated after a crash finds its earlier result. A call
/// that already has its result, and a call of a run whose lease was taken over, have no further effect.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_runtime::{AgentBuilder, Config, SessionTools, ToolPolicy};
///
/// # let input = RawJson::parse(r#"{"in_seconds":3600,"note":"Water the plants.","key":"plants"}"#)?;
/// # let model = ScriptedProvider::new([Turn::new().call("1", SessionTools::SCHEDULE_TIMER, input), Turn::new()]);
/// let tools = SessionTools::new().with_shortest_pause(Duration::from_secs(600)).with_max_depth(1);
/// let agent = AgentBuilder::new()
///     .with_config(Config::new().with_tool_policy(SessionTools::START_CHILD, ToolPolicy::Ask))
///     .with_llm(model)
///     .with_storage(MemoryStore::new())
///     .with_plugin(tools)
///     .build()?;
/// let chat = agent.conversation("garden").await?;
/// chat.prompt("Water the plants in an hour.").await?.finish().await?;
/// assert_eq!(chat.refresh().await?.timers[0].key, "plants");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionTools {
    /// Minimum time between a call and its timer; an earlier timer is moved to that time. Default 1 minute, which
    /// bounds a model that schedules itself repeatedly.
    pub shortest_pause: Duration,
    /// Maximum depth of started sessions below a session without a parent; default 3, 0 forbids them.
    pub max_depth: u32,
}

impl Default for SessionTools {
    fn default() -> Self {
        Self { shortest_pause: Duration::from_secs(60), max_depth: 3 }
    }
}

impl SessionTools {
    /// Name of the tool that schedules a timer.
    pub const SCHEDULE_TIMER: &'static str = "schedule_timer";
    /// Name of the tool that cancels a timer.
    pub const CANCEL_TIMER: &'static str = "cancel_timer";
    /// Name of the tool that starts a child session with a task.
    pub const START_CHILD: &'static str = "start_child";

    /// Creates the plugin with its defaults.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Sets the minimum time between a call and its timer; the default is 1 minute.
        pub const fn with_shortest_pause(time: Duration) => shortest_pause = time;

        /// Sets the maximum depth of started sessions; the default is 3, and 0 forbids them.
        pub const fn with_max_depth(depth: u32) => max_depth = depth;
    }

    async fn schedule_timer(&self, call: &Call, asked: ScheduleWake) -> Result<RawJson> {
        let after = |time: Duration| {
            call.context.effects().now().plus_micros(i64::try_from(time.as_micros()).unwrap_or(i64::MAX))
        };
        let at = match (asked.at, asked.in_seconds) {
            (Some(at), None) => at,
            (None, Some(seconds)) => after(Duration::from_secs(seconds.into())),
            _ => {
                return Err(Error::invalid(
                    "the time of the timer is missing or given twice; give either `at` or `in_seconds`",
                ));
            }
        };
        let key = asked.key.unwrap_or_else(|| call.context.call.to_string());
        let mut timer = Timer::new(key, at.max(after(self.shortest_pause)))
            .with_note(asked.note)
            .with_priority(asked.priority);
        let said = NewEvent::timer_scheduled(timer.clone());
        let done =
            call.sessions().commit_with_retry(call.commit(Self::SCHEDULE_TIMER).with_event(said)).await?;
        // A repeated call returns the result of the first.
        let first = done.session.timers.iter().find(|it| it.key == timer.key && it.seq == done.first);
        timer = first.cloned().unwrap_or(timer);
        RawJson::of(&serde_json::json!({ "key": timer.key, "at": timer.at }))
    }

    async fn start_child(&self, call: &Call, asked: StartChild) -> Result<RawJson> {
        let parent = &call.session;
        if parent.depth >= self.max_depth {
            return Err(Error::limit(format!(
                "session {} is {} levels deep, which is the maximum for starting others; do the task here",
                parent.id, parent.depth
            )));
        }
        let id = SessionId::from_uuid(call.derived("child"));
        let title = asked.title.map(Title::generated);
        let mut patch = Patch::new();
        patch.title = title.map(Some);
        if asked.task.trim().is_empty() {
            return Err(Error::invalid("the task is empty or white space only; describe what is to be done"));
        }
        let task = NewEvent::user_message(asked.task).with_actor(Actor::AGENT);
        let create = Commit::create(call.context.effects(), NewSession::child(id, parent).with_patch(&patch))
            .with_actor(Actor::AGENT)
            .with_event(task);
        let (child, _) = start(call.sessions(), create, call.commit(Self::START_CHILD)).await?;
        RawJson::of(&serde_json::json!({ "session": child.id }))
    }
}

const SCHEDULE_TIMER_INPUT: &str = r#"{"type":"object","properties":{
"in_seconds":{"type":"integer","minimum":0,"description":"Number of seconds from now; give this or `at`."},
"at":{"type":"string","description":"Time in RFC 3339 form; give this or `in_seconds`."},
"note":{"type":"string","description":"Purpose, which you receive when the timer is due. At most 512 bytes."},
"key":{"type":"string","description":"Key of the timer. A later timer with the same key replaces it."},
"priority":{"type":"integer","description":"Priority: of several due timers, you receive the highest first. Default 0."}},
"required":["note"]}"#;

const CANCEL_TIMER_INPUT: &str = r#"{"type":"object","properties":{
"key":{"type":"string","description":"Key of the timer."}},"required":["key"]}"#;

const START_CHILD_INPUT: &str = r#"{"type":"object","properties":{
"task":{"type":"string","description":"Task of the agent, which sees nothing else of this conversation."},
"title":{"type":"string","description":"Short title of the task."}},"required":["task"]}"#;

#[derive(Debug, Deserialize)]
struct ScheduleWake {
    in_seconds: Option<u32>,
    at: Option<Timestamp>,
    note: String,
    key: Option<String>,
    #[serde(default)]
    priority: i32,
}

#[derive(Debug, Deserialize)]
struct CancelTimer {
    key: String,
}

#[derive(Debug, Deserialize)]
struct StartChild {
    task: String,
    title: Option<String>,
}

#[async_trait]
impl Plugin for SessionTools {
    fn name(&self) -> &str {
        "session_tools"
    }

    fn tools(&self) -> Vec<ToolSpec> {
        [
            (
                Self::SCHEDULE_TIMER,
                "Schedules one message to you in this conversation at a later time. Use it to continue without being asked.",
                SCHEDULE_TIMER_INPUT,
            ),
            (Self::CANCEL_TIMER, "Cancels a scheduled timer.", CANCEL_TIMER_INPUT),
            (
                Self::START_CHILD,
                "Starts another agent on a separate task. Its result becomes a message in this conversation.",
                START_CHILD_INPUT,
            ),
        ]
        .map(|(name, description, input)| {
            ToolSpec::new(name, description).with_input(RawJson::constant(input))
        })
        .into()
    }

    async fn call(&self, tool: &str, input: RawJson, context: ToolContext) -> Result<RawJson> {
        let call = Call::of(context).await?;
        match tool {
            Self::SCHEDULE_TIMER => self.schedule_timer(&call, asked(tool, &input)?).await,
            Self::CANCEL_TIMER => cancel_timer(&call, asked(tool, &input)?).await,
            Self::START_CHILD => self.start_child(&call, asked(tool, &input)?).await,
            _ => Err(Error::invalid(format!("the session tools have no tool {tool}"))),
        }
    }
}

async fn cancel_timer(call: &Call, asked: CancelTimer) -> Result<RawJson> {
    let said = NewEvent::timer_cancelled(asked.key.as_str());
    let done =
        call.sessions().commit_with_retry(call.commit(SessionTools::CANCEL_TIMER).with_event(said)).await?;
    if done.first > done.last {
        let keys: Vec<_> = done.session.timers.iter().map(|timer| timer.key.as_str()).collect();
        return Err(Error::not_found(format!(
            "no timer has the key {:?}; there are: {}",
            asked.key,
            keys.join(", ")
        )));
    }
    RawJson::of(&serde_json::json!({ "cancelled": asked.key }))
}

/// Parses the input of a tool.
fn asked<T: DeserializeOwned>(tool: &str, input: &RawJson) -> Result<T> {
    input.to().map_err(|fault| Error::invalid(format!("invalid input of {tool}: {fault}")))
}

/// Call that is being made, with its context.
struct Call {
    session: Arc<SessionRecord>,
    /// Sequence number of the event that holds the call.
    made: Seq,
    /// Epoch of the lease of the run that makes the call.
    epoch: Epoch,
    context: ToolContext,
}

impl Call {
    async fn of(context: ToolContext) -> Result<Self> {
        let session = context.storage().sessions.load(context.session).await?;
        let lease = session.lease.as_ref().filter(|lease| lease.run == context.run);
        let Some(epoch) = lease.map(|lease| lease.epoch) else {
            return Err(Error::new(
                ErrorKind::Fenced { epoch: session.epoch },
                format!("run {} of session {} has ended; the call had no effect", context.run, session.id),
            ));
        };
        let Some(made) = session.open_calls.iter().find(|open| open.call == context.call).map(|it| it.seq)
        else {
            return Err(Error::invalid(format!(
                "call {} of session {} already has its result; the call had no further effect",
                context.call, session.id
            )));
        };
        Ok(Self { session, made, epoch, context })
    }

    fn sessions(&self) -> &dyn SessionStore {
        &*self.context.storage().sessions
    }

    /// Returns the single commit that this call makes to its session. The commit's id is derived from the event of the
    /// call, so it cannot have been sent before that event; the search for a repeated commit starts there.
    fn commit(&self, tool: &str) -> Commit {
        let id = CommitId::from_uuid(self.derived(tool));
        Commit::new(id, self.session.id, self.context.effects().now(), self.made)
            .with_actor(Actor::AGENT)
            .with_fence(self.context.run, self.epoch)
    }

    /// Returns a UUID of version 8 that is derived from the call: the first bits of a SHA-256. The hash includes the
    /// event, because the id of a call may occur again later.
    fn derived(&self, what: &str) -> Uuid {
        let mut hash = Sha256::new();
        hash.update(self.session.id.as_uuid().as_bytes());
        hash.update(self.made.get().to_be_bytes());
        for part in [what, self.context.call.as_str()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let digest = hash.finalize();
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(digest.iter()).for_each(|(to, from)| *to = *from);
        Builder::from_custom_bytes(bytes).into_uuid()
    }
}
