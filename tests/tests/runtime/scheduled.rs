//! Common code of the tests of several schedulers: a slow model, processes that are killed, and the final checks.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use agent_core::event::EventType;
use agent_core::model::Usage;
use agent_core::state::{SessionState, TriggerKind};
use agent_core::store::ReadEvents;
use agent_core::{Result, SessionId, SessionStore, SessionStoreExt, async_trait};
use agent_runtime::{LlmProvider, ModelEvent, ModelRequest, ModelStream, StopReason};
use futures::{StreamExt, stream};

/// Takes its time, so that a process is killed in the middle of it.
#[derive(Debug)]
pub(crate) struct Slow(pub(crate) Duration);

#[async_trait]
impl LlmProvider for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn model(&self) -> &str {
        "slow"
    }

    async fn generate(&self, _: ModelRequest) -> Result<ModelStream> {
        tokio::time::sleep(self.0).await;
        let events =
            [ModelEvent::Text("done".to_owned()), ModelEvent::done(StopReason::EndTurn, Usage::default())];
        Ok(stream::iter(events.map(Ok)).boxed())
    }
}

/// Starts this program again, to run one of its tests as a process of its own.
pub(crate) fn start(test: &str, variables: &[(&str, &str)]) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .envs(variables.iter().copied())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Ends what it started also where the test fails.
pub(crate) struct Children(pub(crate) Vec<Child>);

impl Children {
    pub(crate) fn kill(&mut self, count: usize) {
        for mut child in self.0.drain(..count.min(self.0.len())) {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.kill(usize::MAX);
    }
}

/// Checks that a session was run to its end once: one answer, one end, nothing left. Returns the number of runs that began
/// and did not end.
pub(crate) async fn lost_runs(sessions: &dyn SessionStore, id: SessionId) -> u64 {
    let now = sessions.load(id).await.unwrap();
    assert_eq!((now.status.state, now.inputs_open, now.timers.len()), (SessionState::Idle, 0, 0), "{id}");
    let events = sessions.history(id, ReadEvents::last(1000)).await.unwrap().events;
    let answers = events.iter().filter(|event| event.kind == EventType::AGENT_MESSAGE).count();
    assert_eq!(answers, 1, "{id} was answered {answers} times");
    let ends = events.iter().filter(|event| {
        event.transition().unwrap().is_some_and(|change| change.trigger == TriggerKind::EndRun)
    });
    assert_eq!(ends.count(), 1, "{id}");
    now.counts.runs - 1
}
