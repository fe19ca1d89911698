//! The stored form of what a session holds beside its conversation, word for word: what other programs rely on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use agent_core::*;
use common::Driver;

/// Compares with a golden file, and reads what stands there.
fn check(driver: &Driver, events: &str, record: &str) {
    let lines: Vec<_> = driver.log.iter().map(Event::to_json).collect();
    assert_eq!(lines.join("\n"), events.trim_end());
    assert_eq!(driver.now().to_json(), record.trim_end());
    for line in events.lines() {
        let event = Event::from_json(line).unwrap();
        assert_eq!(event.to_json(), line);
        assert!(!matches!(event.body().unwrap(), Body::Other(..)), "{line}");
        assert_eq!(event.body().unwrap().to_json(), event.data, "the typed form loses nothing");
    }
    assert_eq!(Session::from_json(record).unwrap(), *driver.now());
    assert_eq!(driver.folded(), *driver.now());
}

/// O26, O25: versions of documents, and what the record keeps of them.
#[test]
fn o26_golden_documents() {
    let mut driver = Driver::created();
    let first = DocumentWritten::after(None, "state", Some("Begun.".to_owned()));
    driver.event(NewEvent::document_written(first).with_actor(Actor::AGENT)).unwrap();
    let head = driver.now().document("state").cloned();
    let second = DocumentWritten::after(head.as_ref(), "state", Some("Done.".to_owned()));
    let second = second.with_format(2).with_limit(Some(2000));
    driver.event(NewEvent::document_written(second).with_actor(Actor::USER)).unwrap();
    let buffer = DocumentWritten::after(None, "buffer", Some(String::new()));
    driver.event(NewEvent::document_written(buffer)).unwrap();
    let head = driver.now().document("buffer").cloned();
    driver.event(NewEvent::document_written(DocumentWritten::after(head.as_ref(), "buffer", None))).unwrap();
    check(&driver, include_str!("golden/documents.jsonl"), include_str!("golden/documents.session.json"));
}
