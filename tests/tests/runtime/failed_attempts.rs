//! Answers of runs that failed: readers have them, and no later request does.

use std::time::Duration;

use crate::common::{Faulty, Tools, agent_with, ask, calls, check_log, dialogue, json, read, until_text};
use agent_core::Storage;
use agent_core::event::{Media, Message, Part};
use agent_runtime::context::Messages;
use agent_runtime::{
    Config, Conversation, FaultKind, Gate, ProviderFault, Retry, Scheduler, ScriptedProvider, ToolMode, Turn,
};
use agent_tests::{Site, each_store};

const HALF: &str = "Half of it";

fn lost() -> ProviderFault {
    ProviderFault::new(FaultKind::Other, "the line is lost")
}

fn signing(turns: impl IntoIterator<Item = Turn>) -> ScriptedProvider {
    ScriptedProvider::new(turns).with_account("team-a")
}

/// A call that is made.
fn look() -> Turn {
    Turn::new().signed_thinking("hm").text("I look").signed_call("c1", "look", json("{}"))
}

/// An answer up to where it breaks off: a text, and a call that is not made.
fn half() -> Turn {
    Turn::silent().signed_thinking("so").text(HALF).signed_call("c2", "look", json("{}"))
}

async fn chat_on(storage: &Storage, model: &ScriptedProvider) -> Conversation {
    let tools = Tools::returning(json("\"seen\""), [("look", ToolMode::Direct)]);
    let short = Duration::from_micros(1);
    let config =
        Config::new().with_retry(Retry::new(short, short, 5)).with_lease_ttl(Duration::from_millis(200));
    agent_with(storage, model.clone(), config, [tools as _]).conversation("key").await.unwrap()
}

/// The messages of the last request.
fn last(model: &ScriptedProvider) -> Messages {
    model.requests().pop().unwrap().messages
}

async fn shows_half(chat: &Conversation) -> bool {
    dialogue(chat).await.contains(&("agent", HALF.to_owned()))
}

/// A run that fails after a call was made. The next requests, of the same process and of one that has only the log, are those of a
/// conversation whose model failed there without a word.
async fn a_failed_attempt_is_given_to_no_model(site: Site) {
    let name = site.name;
    let mut given = Vec::new();
    for (attempt, is_heard) in [(half(), true), (Turn::silent(), false)] {
        let site = Site::new(name).await;
        let turns = [look(), attempt.cut(lost()), Turn::new().text("fine"), Turn::new().text("good")];
        let model = signing(turns);
        let chat = chat_on(&site.open().await, &model).await;
        assert!(ask(&chat, "Go").await.1.fault().is_some(), "{name}");
        assert_eq!(ask(&chat, "And now?").await.0, "fine", "{name}");
        let next = last(&model);
        let again = chat_on(&site.open().await, &model).await;
        assert_eq!(ask(&again, "Go on").await.0, "good", "{name}");
        given.push((next, last(&model)));
        check_log(&again).await;
        assert_eq!(shows_half(&again).await, is_heard, "{name}: readers have what was heard");
        assert_eq!(calls(&again).await.len(), 1 + usize::from(is_heard), "{name}: each has a result");
    }
    assert_eq!(given[0], given[1], "{name}");
    let (next, later) = &given[0];
    // The input, the call that was made, its result, and the next input.
    assert_eq!((next.len(), later.len()), (4, 6), "{name}");
}

each_store!(a_failed_attempt_is_given_to_no_model and files);

/// A run on which no caller waits is tried again with the same request.
async fn an_attempt_is_repeated_with_the_same_request(site: Site) {
    let name = site.name;
    let model = signing([half().cut(lost()), half().cut(lost()), Turn::new().text("fine")]);
    let chat = chat_on(&site.open().await, &model).await;
    chat.send("Go").await.unwrap();
    let scheduler = Scheduler::new(chat.runtime().clone());
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert_eq!(scheduler.round().await.unwrap().ran, 1, "{name}");
    }
    let requests = model.requests();
    assert!(requests.len() == 3 && requests.iter().all(|request| *request == requests[0]), "{name}");
    assert_eq!(dialogue(&chat).await.len(), 4, "{name}: readers have all attempts");
    check_log(&chat).await;
}

each_store!(an_attempt_is_repeated_with_the_same_request and files);

/// A medium that the provider refused in an attempt that failed later is left out of the next request.
async fn what_a_failed_attempt_taught_is_kept(site: Site) {
    let name = site.name;
    let refused = ProviderFault::new(FaultKind::InvalidRequest, "no picture");
    let model = signing([Turn::fault(refused), half().cut(lost()), Turn::new().text("fine")]);
    let chat = chat_on(&site.open().await, &model).await;
    let picture = Part::Image(Media::inline("image/png", *b"no picture"));
    let run = chat.prompt(Message::new("Look").with_part(picture)).await.unwrap();
    assert!(read(run).await.1.fault().is_some(), "{name}");
    let again = chat_on(&site.open().await, &model).await;
    assert_eq!(ask(&again, "And now?").await.0, "fine", "{name}");
    let given = last(&model);
    assert_eq!((model.requests().len(), given.len()), (3, 2), "{name}: {given:?}");
    assert!(format!("{given:?}").contains("the provider refused it"), "{name}: {given:?}");
}

each_store!(what_a_failed_attempt_taught_is_kept and files);

/// What was streamed when a process was lost is in no request of the next one. What a person interrupts is an answer.
async fn only_what_a_person_interrupts_is_given_again(site: Site) {
    let (name, gate) = (site.name, Gate::new());
    let model = signing([half().gate(&gate), half().gate(&gate), Turn::new().text("fine")]);
    let faulty = Faulty::new(site.open().await);
    let chat = chat_on(&faulty.storage(), &model).await;
    let mut dying = chat.prompt("Go").await.unwrap();
    until_text(&mut dying).await;
    faulty.lose_beats();
    let heir = chat_on(&site.open().await, &model).await;
    let mut run = heir.run_when_free().await.unwrap().unwrap();
    until_text(&mut run).await;
    let requests = model.requests();
    assert_eq!(requests[0], requests[1], "{name}");
    run.cancel();
    read(run).await;
    assert_eq!(ask(&heir, "And now?").await.0, "fine", "{name}");
    let given = format!("{:?}", last(&model));
    assert_eq!(given.matches(HALF).count(), 1, "{name}: {given}");
    assert!(shows_half(&heir).await, "{name}");
    check_log(&heir).await;
}

each_store!(only_what_a_person_interrupts_is_given_again and files);
