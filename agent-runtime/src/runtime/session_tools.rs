//! Tools by which a model plans for its own session: wakes that it schedules and takes back, and sessions that it starts
//! to help it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

use crate::runtime::children::start;
use crate::runtime::plugin::{Plugin, ToolContext};
use crate::runtime::provider::ToolSpec;
use agent_core::clock::Effects;
use agent_core::commit::Commit;
use agent_core::event::NewEvent;
use agent_core::json::RawJson;
use agent_core::model::{Actor, CallId, Patch, Title, Wake};
use agent_core::session::{NewSession, Session};
use agent_core::{
    CommitId, Epoch, Error, ErrorKind, Result, Seq, SessionId, SessionStore, SessionStoreExt, Timestamp,
};

/// Tools by which a model plans for its own session: [`schedule_wake`](Self::SCHEDULE_WAKE),
/// [`cancel_wake`](Self::CANCEL_WAKE) and [`start_child`](Self::START_CHILD). A host that wants them adds the plugin; a
/// [policy](crate::runtime::config::ToolPolicy) may have each call allowed by a person, or deny a tool.
///
/// Each call takes effect once, however often it is made: what it writes is named by the session, the call and the event
/// that holds the call, so that a call made again after a crash finds what it did. A call that has its result already,
/// and one of a run that another has taken over from, does nothing more.
///
/// Whoever looks after the sessions runs what is planned: see [`Scheduler`](crate::runtime::scheduler::Scheduler).
///
/// ```
/// # fn main() -> agent_core::Result<()> {
/// use std::sync::Arc;
/// use agent_core::MemoryStore;
/// use agent_runtime::{AgentBuilder, Config, EchoProvider, SessionTools, ToolPolicy};
///
/// let agent = AgentBuilder::new(Config::default().tool_policy(SessionTools::START_CHILD, ToolPolicy::Ask))
///     .with_llm(Arc::new(EchoProvider::new()))
///     .with_storage(MemoryStore::new())
///     .with_plugin(Arc::new(SessionTools::new()))
///     .build()?;
/// # drop(agent);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionTools {
    /// The shortest time from a call to its wake; what is asked for earlier is scheduled for then. A minute unless set, so
    /// that a model that wakes itself again and again is bounded.
    pub shortest_pause: Duration,
    /// How deep below a session that nobody started sessions may be started; 3 unless set.
    pub max_depth: u32,
}

impl Default for SessionTools {
    fn default() -> Self {
        Self { shortest_pause: Duration::from_secs(60), max_depth: 3 }
    }
}

impl SessionTools {
    /// The name of the tool that schedules a wake.
    pub const SCHEDULE_WAKE: &'static str = "schedule_wake";
    /// The name of the tool that takes a wake back.
    pub const CANCEL_WAKE: &'static str = "cancel_wake";
    /// The name of the tool that starts a session with a task.
    pub const START_CHILD: &'static str = "start_child";

    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the shortest time from a call to its wake.
    #[must_use]
    pub const fn shortest_pause(mut self, time: Duration) -> Self {
        self.shortest_pause = time;
        self
    }

    /// Sets how deep sessions may start sessions; 0 for not at all.
    #[must_use]
    pub const fn max_depth(mut self, depth: u32) -> Self {
        self.max_depth = depth;
        self
    }

    async fn schedule_wake(&self, call: &Call, asked: ScheduleWake) -> Result<RawJson> {
        let after = |time: Duration| {
            call.effects.now().plus_micros(i64::try_from(time.as_micros()).unwrap_or(i64::MAX))
        };
        let at = match (asked.at, asked.in_seconds) {
            (Some(at), None) => at,
            (None, Some(seconds)) => after(Duration::from_secs(seconds.into())),
            _ => return Err(Error::invalid("give at or in_seconds, one of them")),
        };
        let key = asked.key.unwrap_or_else(|| call.id.to_string());
        let mut wake = Wake::new(key, at.max(after(self.shortest_pause)))
            .with_note(asked.note)
            .with_priority(asked.priority);
        let said = NewEvent::wake_scheduled(wake.clone());
        let done = call.sessions.settle(call.commit(Self::SCHEDULE_WAKE).event(said)).await?;
        // Made again, it says what it did the first time.
        let first = done.session.wakes.iter().find(|it| it.key == wake.key && it.seq == done.first);
        wake = first.cloned().unwrap_or(wake);
        RawJson::of(&serde_json::json!({ "key": wake.key, "at": wake.at }))
    }

    async fn start_child(&self, call: &Call, asked: StartChild) -> Result<RawJson> {
        let parent = &call.session;
        if parent.depth >= self.max_depth {
            return Err(Error::new(
                ErrorKind::LimitExceeded,
                format!("sessions start others at most {} deep, and this is as deep", self.max_depth),
            ));
        }
        let id = SessionId::from_uuid(call.derived("child"));
        let title = asked.title.map(Title::generated);
        let mut patch = Patch::new();
        patch.title = title.map(Some);
        if asked.task.trim().is_empty() {
            return Err(Error::invalid("the task is empty or white space only; say what is to be done"));
        }
        let task = NewEvent::user_message(asked.task).with_actor(Actor::AGENT);
        let create = Commit::create(&call.effects, NewSession::child(id, parent).with(&patch))
            .actor(Actor::AGENT)
            .event(task);
        let (child, _) = start(&*call.sessions, create, call.commit(Self::START_CHILD)).await?;
        RawJson::of(&serde_json::json!({ "session": child.id }))
    }
}

const SCHEDULE_WAKE_INPUT: &str = r#"{"type":"object","properties":{
"in_seconds":{"type":"integer","minimum":0,"description":"In how many seconds; or give at."},
"at":{"type":"string","description":"When, as an RFC 3339 time; or give in_seconds."},
"note":{"type":"string","description":"What for: you are told it when the time has come. At most 512 bytes."},
"key":{"type":"string","description":"Names the wake. One of the same key takes the place of the earlier."},
"priority":{"type":"integer","description":"Of several that are due, a higher one is told first. 0 unless given."}},
"required":["note"]}"#;

const CANCEL_WAKE_INPUT: &str = r#"{"type":"object","properties":{
"key":{"type":"string","description":"The key of the wake."}},"required":["key"]}"#;

const START_CHILD_INPUT: &str = r#"{"type":"object","properties":{
"task":{"type":"string","description":"What it is to do. It knows nothing else of this conversation."},
"title":{"type":"string","description":"A short name for it."}},"required":["task"]}"#;

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
struct CancelWake {
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
                Self::SCHEDULE_WAKE,
                "Wakes you in this conversation at a later time, once. Use it to come back to something without being asked.",
                SCHEDULE_WAKE_INPUT,
            ),
            (Self::CANCEL_WAKE, "Takes back a wake that was scheduled.", CANCEL_WAKE_INPUT),
            (
                Self::START_CHILD,
                "Starts another agent on a task of its own. It works by itself; you are told here what it came to.",
                START_CHILD_INPUT,
            ),
        ]
        .map(|(name, description, input)| {
            ToolSpec::new(name, description).with_input(RawJson::constant(input))
        })
        .into()
    }

    async fn call(&self, tool: &str, input: RawJson, context: ToolContext) -> Result<RawJson> {
        let call = Call::of(&context).await?;
        match tool {
            Self::SCHEDULE_WAKE => self.schedule_wake(&call, asked(tool, &input)?).await,
            Self::CANCEL_WAKE => cancel_wake(&call, asked(tool, &input)?).await,
            Self::START_CHILD => self.start_child(&call, asked(tool, &input)?).await,
            _ => Err(Error::invalid(format!("there is no tool {tool} here"))),
        }
    }
}

async fn cancel_wake(call: &Call, asked: CancelWake) -> Result<RawJson> {
    let said = NewEvent::wake_cancelled(asked.key.as_str());
    let done = call.sessions.settle(call.commit(SessionTools::CANCEL_WAKE).event(said)).await?;
    if done.first > done.last {
        let keys: Vec<_> = done.session.wakes.iter().map(|wake| wake.key.as_str()).collect();
        return Err(Error::new(
            ErrorKind::NotFound,
            format!("no wake has the key {:?}; there are: {}", asked.key, keys.join(", ")),
        ));
    }
    RawJson::of(&serde_json::json!({ "cancelled": asked.key }))
}

/// What a tool is asked, of its shape.
fn asked<T: DeserializeOwned>(tool: &str, input: &RawJson) -> Result<T> {
    input.to().map_err(|fault| Error::invalid(format!("that is no input of {tool}: {fault}")))
}

/// A call that is being made, and where.
struct Call {
    sessions: Arc<dyn SessionStore>,
    effects: Effects,
    session: Arc<Session>,
    id: CallId,
    /// The event that holds it.
    made: Seq,
    /// The lease of the run that makes it.
    epoch: Epoch,
    context: ToolContext,
}

impl Call {
    async fn of(context: &ToolContext) -> Result<Self> {
        let (Some(sessions), Some(effects)) = (context.sessions(), context.effects()) else {
            return Err(Error::invalid("these tools plan for a session; call them in a run of one"));
        };
        let session = sessions.load(context.session).await?;
        let lease = session.lease.as_ref().filter(|lease| lease.run == context.run);
        let Some(epoch) = lease.map(|lease| lease.epoch) else {
            return Err(Error::new(
                ErrorKind::Fenced { epoch: session.epoch },
                format!("run {} of session {} is over; nothing was planned", context.run, session.id),
            ));
        };
        let Some(made) = session.open_calls.iter().find(|open| open.call == context.call).map(|it| it.seq)
        else {
            return Err(Error::invalid(format!(
                "call {} of session {} has its result already; nothing more was planned",
                context.call, session.id
            )));
        };
        let (sessions, effects) = (sessions.clone(), effects.clone());
        Ok(Self {
            sessions,
            effects,
            session,
            id: context.call.clone(),
            made,
            epoch,
            context: context.clone(),
        })
    }

    /// The one commit to its session that this call makes. As what it is named by lies in the event of the call, nobody can
    /// have sent it before that: so however late it is sent again, it is looked for far enough back.
    fn commit(&self, tool: &str) -> Commit {
        let id = CommitId::from_uuid(self.derived(tool));
        Commit::new(id, self.session.id, self.effects.now(), self.made)
            .actor(Actor::AGENT)
            .fence(self.context.run, self.epoch)
    }

    /// A UUID of version 8 that follows from the call: the first bits of a SHA-256. Calls of one id may come again later,
    /// hence the event.
    fn derived(&self, what: &str) -> Uuid {
        let mut hash = Sha256::new();
        hash.update(self.session.id.as_uuid().as_bytes());
        hash.update(self.made.get().to_be_bytes());
        for part in [what, self.id.as_str()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let digest = hash.finalize();
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(digest.iter()).for_each(|(to, from)| *to = *from);
        Builder::from_custom_bytes(bytes).into_uuid()
    }
}
