//! Forks of sessions that have work: what they take along, and what they leave to the session that they came from.

use crate::common::{Scene, check_log, dialogue, read, until_text};
use agent_core::session::Fork;
use agent_core::state::SessionState;
use agent_runtime::{Gate, Scheduler, ScriptedProvider, Turn};
use agent_tests::{Site, each_store};

/// A fork that is made while the original is being answered asks the model nothing by itself: the question
/// belongs to the original. It knows the question, and goes on when it is prompted.
async fn fork_during_a_run_makes_no_model_call(site: Site) {
    let gate = Gate::new();
    let model = ScriptedProvider::new([
        Turn::new().text("thinking").gate(&gate).text(" done"),
        Turn::new().text("for the fork"),
    ]);
    let Scene { name, agent, chat, .. } = Scene::new(&site, model.clone()).await;
    let mut run = chat.prompt("why?").await.unwrap();
    until_text(&mut run).await;
    let fork = chat.fork(None).await.unwrap();
    let early = chat.fork(Some(chat.refresh().await.unwrap().last_input)).await.unwrap();
    for fork in [&fork, &early] {
        let now = fork.record();
        assert_eq!((now.status.state, now.inputs_open), (SessionState::Idle, 0), "{name}");
        assert_eq!((now.inputs_done_through, now.counts.user), (now.last_input, 1), "{name}");
    }
    assert_eq!(Scheduler::new(agent.clone()).round().await.unwrap().ran, 0, "{name}");
    gate.open();
    assert_eq!(read(run).await.1.text, "thinking done", "{name}");
    assert_eq!(model.requests().len(), 1, "{name}: asked once");
    assert_eq!(Scheduler::new(agent.clone()).round().await.unwrap().ran, 0, "{name}");

    assert_eq!(read(fork.prompt("and?").await.unwrap()).await.0, "for the fork", "{name}");
    let expected = [("user", "why?"), ("user", "and?"), ("agent", "for the fork")];
    assert_eq!(dialogue(&fork).await, expected.map(|(who, text)| (who, text.to_owned())), "{name}");
    assert_eq!(model.requests()[1].messages.len(), 2, "{name}: it knows the question");
    check_log(&chat).await;
}

each_store!(fork_during_a_run_makes_no_model_call);

/// Open inputs come along if that is asked for, at the head and at an earlier event: the fork answers them, once.
async fn fork_takes_open_inputs_on_request(site: Site) {
    let model = ScriptedProvider::new((0..2).map(|n| Turn::new().text(format!("answer {n}"))));
    let Scene { name, agent, chat, .. } = Scene::new(&site, model.clone()).await;
    let asked = chat.send("why?").await.unwrap();
    let head = chat.fork(Fork::new().with_open_inputs()).await.unwrap();
    chat.interrupt().await.unwrap();
    let early = chat.fork(Fork::at(asked).with_open_inputs()).await.unwrap();
    let late = chat.fork(Fork::new().with_open_inputs()).await.unwrap();
    assert_eq!(late.record().status.state, SessionState::Idle, "{name}: nothing was open any more");
    for fork in [&head, &early] {
        let now = fork.record();
        assert_eq!((now.status.state, now.inputs_open), (SessionState::Queued, 1), "{name}");
    }
    assert_eq!(Scheduler::new(agent.clone()).round().await.unwrap().ran, 2, "{name}");
    for fork in [&head, &early] {
        assert_eq!((dialogue(fork).await.len(), fork.refresh().await.unwrap().inputs_open), (2, 0), "{name}");
    }
    assert_eq!((dialogue(&chat).await.len(), model.requests().len()), (1, 2), "{name}");
}

each_store!(fork_takes_open_inputs_on_request);
