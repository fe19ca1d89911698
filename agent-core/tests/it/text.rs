//! The text of an event.

use std::borrow::Cow;

use crate::common::Driver;
use agent_core::event::{Event, EventPayload, EventType, Message, NewEvent};
use agent_core::json::RawJson;

fn logged(event: NewEvent) -> Event {
    let mut driver = Driver::created();
    driver.event(event).unwrap();
    driver.log.pop().unwrap()
}

/// Messages of people, the agent and the system have a text; it is copied only if it has escapes.
#[test]
fn messages_have_their_text() {
    for new in [
        NewEvent::user_message("plain"),
        NewEvent::agent_message("plain"),
        NewEvent::system_prompt("plain"),
        NewEvent::of(&EventPayload::UserDefineOutcome(Message::new("plain"))),
        NewEvent::of(&EventPayload::AgentThinking(Message::new("plain"))),
    ] {
        let event = logged(new);
        assert!(matches!(event.text(), Some(Cow::Borrowed("plain"))), "{}", event.kind);
    }
    let event = logged(NewEvent::user_message("two\n\"lines\""));
    assert_eq!(event.text().as_deref(), Some("two\n\"lines\""));
}

/// Events that are no messages have none, whatever their payload holds, and neither has a payload that is damaged.
#[test]
fn other_events_have_no_text() {
    let json = |text: &str| RawJson::parse(text).unwrap();
    let others: EventType = "x.app.said".parse().unwrap();
    assert_eq!(logged(NewEvent::new(others, json(r#"{"text":"theirs"}"#))).text(), None);
    assert_eq!(logged(NewEvent::history_cleared()).text(), None);
    let mut event = logged(NewEvent::user_message("plain"));
    event.payload = json(r#"{"text":7}"#);
    assert_eq!(event.text(), None);
    assert!(event.decode().is_err());
}
