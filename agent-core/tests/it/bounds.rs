//! Every bound of what may be written, from both sides: what has just the length is taken, what has one more is refused.

use std::time::Duration;

use crate::common::{Driver, call, json};
use agent_core::clock::Effects;
use agent_core::commit::{COMMIT_MAX_BYTES, COMMIT_MAX_EVENTS, Commit, LeaseRequest, RunEnd, Trigger};
use agent_core::event::{
    AuditedOperation, Compaction, DocumentWritten, EVENT_MAX_BYTES, EventPayload, EventType, Learning,
    LearningKind, NewEvent, Operation, OperationOutcome, SpanStarted,
};
use agent_core::json::RawJson;
use agent_core::model::{
    Access, ActionKind, Artifact, Attributes, Cost, ExternalHandle, Patch, PendingAction, Resource, RunUsage,
    Timer, Title, Usage, Workspace,
};
use agent_core::session::OPEN_CALLS_MAX;
use agent_core::state::Reason;
use agent_core::store::Cursor;
use agent_core::{ErrorKind, RunId, Seq, TenantId, Timestamp};

/// What says it, the most bytes, and whether nothing at all is refused, too.
type Bounded = (&'static str, Box<dyn Fn(String) -> NewEvent>, usize, bool);

fn bounded(
    name: &'static str,
    most: usize,
    needed: bool,
    event: impl Fn(String) -> NewEvent + 'static,
) -> Bounded {
    (name, Box::new(event), most, needed)
}

fn patched(change: impl Fn(Patch, String) -> Patch + 'static) -> impl Fn(String) -> NewEvent + 'static {
    move |text| NewEvent::updated(change(Patch::new(), text))
}

fn run() -> RunId {
    Effects::seeded(1, Timestamp::UNIX_EPOCH).new_run_id()
}

fn texts() -> Vec<Bounded> {
    let handle = || ExternalHandle::new("k", "t");
    vec![
        bounded("title", 512, true, patched(|p, text| p.with_title(Title::by_user(text)))),
        bounded("label", 64, true, patched(|p, text| p.with_label(text, "v"))),
        bounded("value of a label", 512, true, patched(|p, text| p.with_label("l", text))),
        bounded("reference", 64, true, patched(|p, text| p.with_reference(text, "v"))),
        bounded("value of a reference", 512, true, patched(|p, text| p.with_reference("r", text))),
        bounded("metadata", 128, true, patched(|p, text| p.with_metadata(text, json("1")))),
        bounded("kind", 1024, true, patched(|p, text| p.with_resources(vec![Resource::new(text, "s", "m")]))),
        bounded(
            "source",
            1024,
            true,
            patched(|p, text| p.with_resources(vec![Resource::new("k", text, "m")])),
        ),
        bounded(
            "mount point",
            1024,
            true,
            patched(|p, text| p.with_resources(vec![Resource::new("k", "s", text)])),
        ),
        bounded("handle", 64, true, patched(move |p, text| p.with_handle(text, handle()))),
        bounded(
            "kind of a handle",
            64,
            true,
            patched(|p, text| p.with_handle("h", ExternalHandle::new(text, "t"))),
        ),
        bounded("target", 1024, true, patched(|p, text| p.with_handle("h", ExternalHandle::new("k", text)))),
        bounded(
            "process",
            256,
            true,
            patched(move |p, text| p.with_handle("h", handle().with_process(text))),
        ),
        bounded(
            "note of a handle",
            512,
            false,
            patched(move |p, text| p.with_handle("h", handle().with_note(text))),
        ),
        bounded("pinned", 256, true, patched(|p, text| p.mount(text, Access::Read))),
        bounded("unpinned", 256, true, patched(Patch::unmount)),
        bounded("removed", 256, true, patched(Patch::remove_mount)),
        bounded("key of a timer", 128, true, |text| {
            NewEvent::timer_scheduled(Timer::new(text, Timestamp::MAX))
        }),
        bounded("note of a timer", 512, false, |text| {
            NewEvent::timer_scheduled(Timer::new("k", Timestamp::MAX).with_note(text))
        }),
        bounded("key of no timer", 128, true, NewEvent::timer_cancelled),
        bounded("tool", 128, true, |text| NewEvent::tool_use(call("c"), text, json("1"))),
        bounded("span", 128, true, |text| {
            NewEvent::of(&EventPayload::SpanStarted(SpanStarted::new("s".parse().unwrap(), text)))
        }),
        bounded("currency", 16, true, |text| {
            NewEvent::run_usage(RunUsage::new(run(), Usage::new(1, 1)).with_cost(Some(Cost::new(text, 1))))
        }),
        bounded("learning", 16 << 10, true, |text| {
            NewEvent::of(&EventPayload::SessionLearningAdded(Learning::new(LearningKind::Lesson, text)))
        }),
        bounded("key of a learning", 256, true, |text| {
            NewEvent::of(&EventPayload::SessionLearningAdded(
                Learning::new(LearningKind::Lesson, "x").with_key(text),
            ))
        }),
        bounded("promoted to", 128, true, |text| {
            NewEvent::of(&EventPayload::SessionLearningPromoted(agent_core::event::LearningPromoted::new(
                Seq::new(1),
                text,
            )))
        }),
        bounded("document", 128, true, |text| {
            NewEvent::document_written(DocumentWritten::after(None, text, Some("x".to_owned())))
        }),
        bounded("kind of error", 64, true, |text| {
            let kept = AuditedOperation::new(Operation::Configure);
            NewEvent::of(&EventPayload::SessionOperationAudited(kept.with_end(
                Seq::new(1),
                OperationOutcome::Failed,
                Some(&text),
            )))
        }),
        bounded("artifact", 1024, true, |text| NewEvent::artifact_registered(Artifact::new(text))),
        bounded("hash", 256, true, |text| NewEvent::artifact_registered(Artifact::new("a").with_hash(text))),
        bounded("media", 256, true, |text| {
            NewEvent::artifact_registered(Artifact::new("a").with_media(text))
        }),
    ]
}

/// A text has at most as many bytes as is said, and where there must be one, at least one.
#[test]
fn text_lengths_are_limited() {
    for (name, event, most, needed) in texts() {
        let refused = |text: String| {
            let mut driver = Driver::created();
            let refused = driver.event(event(text)).err();
            refused.inspect(|error| {
                let kinds = [ErrorKind::InvalidInput, ErrorKind::LimitExceeded];
                assert!(kinds.contains(error.kind()), "{name}: {error}");
            })
        };
        assert!(refused("x".to_owned()).is_none(), "{name}");
        assert!(refused("x".repeat(most)).is_none(), "{name}");
        assert!(refused("x".repeat(most + 1)).is_some(), "{name} of {} bytes", most + 1);
        assert!(refused("x".repeat(most + 2)).is_some(), "{name} of {} bytes", most + 2);
        assert_eq!(refused(String::new()).is_some(), needed, "{name} of nothing");
    }
}

/// What a session is created with is held to the same bounds.
#[test]
fn session_creation_enforces_the_same_limits() {
    let driver = Driver::nothing();
    type Spoil = fn(&mut Attributes);
    let spoilt: [Spoil; 6] = [
        |a| a.title = Some(Title::by_user("x".repeat(513))),
        |a| drop(a.labels.insert("x".repeat(65), "v".to_owned())),
        |a| drop(a.references.insert("r".to_owned(), "x".repeat(513))),
        |a| a.resources = vec![Resource::new("", "s", "m")],
        |a| drop(a.handles.insert(String::new(), ExternalHandle::new("k", "t"))),
        |a| a.mounts.pinned.extend([("x".repeat(257), Access::Read)]),
    ];
    for (n, spoil) in spoilt.iter().enumerate() {
        let mut new = driver.new_session();
        spoil(&mut new.created.attributes);
        let error = agent_core::plan(None, &Commit::create(&driver.effects, new)).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{n}");
    }
}

/// A lease has a holder, and lives for more than nothing and at most a day.
#[test]
fn lease_ttl_is_at_most_a_day() {
    let day = Duration::from_secs(24 * 60 * 60);
    for (ttl, good) in [
        (Duration::ZERO, false),
        (Duration::from_millis(1), true),
        (Duration::from_secs(23 * 60 * 60), true),
        (day, true),
        (day + Duration::from_millis(1), false),
    ] {
        let mut driver = Driver::created();
        let request = driver.lease_request().with_ttl(ttl);
        let begin =
            driver.seal().with_event(NewEvent::user_message("x")).with_trigger(Trigger::BeginRun(request));
        assert_eq!(driver.commit(begin).is_ok(), good, "{ttl:?}");
    }
    for (holder, good) in [("".to_owned(), false), ("h".repeat(256), true), ("h".repeat(257), false)] {
        let mut driver = Driver::created();
        let request = LeaseRequest::new(holder, driver.effects.new_run_id());
        let begin =
            driver.seal().with_event(NewEvent::user_message("x")).with_trigger(Trigger::BeginRun(request));
        assert_eq!(driver.commit(begin).is_ok(), good);
    }
}

/// A question, its choices and how many there are.
#[test]
fn questions_and_choices_are_limited() {
    let ask = |question: usize, choices: usize, choice: usize| {
        let mut driver = Driver::created();
        driver.prompt();
        let action = PendingAction::new("a".parse().unwrap(), ActionKind::Approval, "?".repeat(question))
            .with_choices((0..choices).map(|_| "c".repeat(choice)));
        driver.run_trigger(Trigger::EndRun(RunEnd::Await(action))).is_ok()
    };
    assert!(ask(1, 0, 0) && ask(2048, 0, 0) && !ask(2049, 0, 0) && !ask(2050, 0, 0));
    assert!(ask(1, 1, 1) && ask(1, 16, 1) && !ask(1, 17, 1) && !ask(1, 18, 1));
    assert!(ask(1, 1, 256) && !ask(1, 1, 257) && !ask(1, 1, 0));
}

/// How many events and bytes a commit may have, and one event.
#[test]
fn commit_and_event_sizes_are_limited() {
    let text = |bytes: usize| json(&format!("{{\"text\":\"{}\"}}", "x".repeat(bytes - "{'text':''}".len())));
    let event = |data: &RawJson| NewEvent::new(EventType::USER_MESSAGE, data.clone());
    let planned = |events: Vec<NewEvent>, replace: bool| {
        let driver = Driver::created();
        let commit = match replace {
            true => driver.seal().with_trigger(Trigger::Replace(events)),
            false => driver.seal().with_events(events),
        };
        match agent_core::plan(driver.session.as_ref(), &commit) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(*error.kind(), ErrorKind::LimitExceeded, "{error}");
                false
            }
        }
    };
    for (replace, clears) in [(false, 0), (true, 1)] {
        for (more, good) in [(0, true), (1, false), (2, false)] {
            let events = vec![NewEvent::user_message("x"); COMMIT_MAX_EVENTS - clears + more];
            assert_eq!(planned(events, replace), good, "{more} more");
        }
        // Fields beside the payload count as it does.
        let extra = "{\"e\":1}".len();
        let plain = "{}".len();
        for (more, good) in [(0, true), (1, false), (2, false)] {
            let one = event(&text(EVENT_MAX_BYTES - extra + more)).with_extra("e", json("1"));
            assert_eq!(planned(vec![one], replace), good, "{more} more");
            let mut events = vec![event(&text(EVENT_MAX_BYTES - plain)); COMMIT_MAX_BYTES / EVENT_MAX_BYTES];
            let last = EVENT_MAX_BYTES - plain - 100 + more;
            events.pop();
            events.extend([event(&text(last)), event(&text(100 - plain))]);
            assert_eq!(planned(events, replace), good, "{more} more");
        }
    }
}

/// Contract 8: what may be open at once, from both sides.
#[test]
fn open_calls_and_spans_are_limited() {
    let calls = |n| NewEvent::tool_use(call(&format!("c{n}")), "t", json("1"));
    let spans =
        |n| NewEvent::of(&EventPayload::SpanStarted(SpanStarted::new(format!("s{n}").parse().unwrap(), "s")));
    let opens: [(&str, &dyn Fn(usize) -> NewEvent); 2] = [("calls", &calls), ("spans", &spans)];
    for (what, event) in opens {
        for (count, good) in
            [(OPEN_CALLS_MAX, true), (OPEN_CALLS_MAX + 1, false), (OPEN_CALLS_MAX + 2, false)]
        {
            let mut driver = Driver::created();
            driver.prompt();
            let commit = driver.seal_fenced().with_events((0..count).map(event));
            assert_eq!(driver.commit(commit).is_ok(), good, "{count} {what}");
        }
    }
}

/// A list of what is attached, mounted or set has the length that is said.
#[test]
fn list_lengths_are_limited() {
    type Entry = fn(Patch, String) -> Patch;
    let entries: [(&str, usize, Entry); 5] = [
        ("labels", 64, |p, n| p.with_label(n, "v")),
        ("references", 64, |p, n| p.with_reference(n, "v")),
        ("handles", 64, |p, n| p.with_handle(n, ExternalHandle::new("k", "t"))),
        ("pinned", 128, |p, n| p.mount(n, Access::Read)),
        ("removed", 128, |p, n| p.remove_mount(n)),
    ];
    for (what, most, entry) in entries {
        for more in 0..3 {
            let patch = (0..most + more).fold(Patch::new(), |patch, n| entry(patch, n.to_string()));
            assert_eq!(Driver::created().event(NewEvent::updated(patch)).is_ok(), more == 0, "{what} {more}");
        }
    }
    for more in 0..3 {
        let patch = Patch::new().with_resources(vec![Resource::new("k", "s", "m"); 64 + more]);
        assert_eq!(Driver::created().event(NewEvent::updated(patch)).is_ok(), more == 0, "{more}");
    }
}

/// A summary stands for what lies between the last one, or the last clearing, and the first open call.
#[test]
fn summary_covers_only_visible_closed_events() {
    let commit = |driver: &mut Driver, compaction: Compaction| {
        driver.event(NewEvent::of(&EventPayload::SessionCompacted(compaction))).is_ok()
    };
    let compact = |driver: &mut Driver, until: u64| {
        let (until, done) = (Seq::new(until), driver.now().inputs_done_through);
        let claimed = driver.now().inputs_claimed_through.max(done).min(until);
        let inputs = Some(driver.now().last_input).filter(|last| *last > done && *last <= until);
        commit(driver, Compaction::new(until, "s").with_inputs(inputs, claimed))
    };
    let mut driver = Driver::created();
    driver.event(NewEvent::agent_message("x")).unwrap();
    let head = driver.now().head;
    let mut half = Compaction::new(head, "s").with_inputs([], Seq::ZERO);
    half.claimed = None;
    assert!(!commit(&mut driver, half), "what was claimed is not said");
    assert!(commit(&mut driver, Compaction::new(head, "s")), "no input is open");
    let mut driver = Driver::created();
    for _ in 0..4 {
        driver.event(NewEvent::user_message("x")).unwrap();
    }
    driver.event(NewEvent::history_cleared()).unwrap();
    let cleared = driver.now().head.get();
    assert!(!compact(&mut driver, cleared - 1) && !compact(&mut driver, cleared), "cleared already");
    driver.event(NewEvent::user_message("x")).unwrap();
    driver.event(NewEvent::user_message("y")).unwrap();
    let head = driver.now().head.get();
    assert!(!compact(&mut driver, head + 1), "not there yet");
    assert!(!commit(&mut driver, Compaction::new(Seq::new(head), "s")), "which inputs are open is not said");
    let wrong = [
        (&[head - 1, head][..], head - 1, "claimed by no run"),
        (&[], cleared, "none is open"),
        (&[head - 1], cleared, "the last is not open"),
        (&[head, head], cleared, "one twice"),
        (&[head, head - 1], cleared, "not in order"),
        (&[head - 2, head - 1, head], cleared, "more than are open"),
        (&[cleared - 1, head], cleared, "cleared"),
        (&[head, head + 1], cleared, "not there yet"),
    ];
    for (inputs, claimed, what) in wrong {
        let inputs = inputs.iter().copied().map(Seq::new);
        let wrong = Compaction::new(Seq::new(head), "s").with_inputs(inputs, Seq::new(claimed));
        assert!(!commit(&mut driver, wrong), "{what}");
    }
    assert!(compact(&mut driver, head - 1));
    assert_eq!((driver.now().context_from, driver.now().summary), (Seq::new(head - 1), Seq::new(head + 1)));
    assert!(!compact(&mut driver, head - 1) && !compact(&mut driver, head - 2), "summed up already");
    assert!(compact(&mut driver, head + 1), "up to the end");
    driver.prompt();
    let open = driver.now().head.get() + 1;
    let use_ = driver.seal_fenced().with_event(NewEvent::tool_use(call("c"), "t", json("1")));
    driver.commit(use_).unwrap();
    assert!(!compact(&mut driver, open) && compact(&mut driver, open - 1), "the call at {open} is open");
    assert_eq!(driver.folded(), *driver.now());
}

/// What a type of event is.
#[test]
fn invalid_event_types_are_refused() {
    let long = format!("x.{}", "a".repeat(126));
    for good in ["a.b", "a.b.c", "x.a-b_c.9", long.as_str()] {
        assert_eq!(good.parse::<EventType>().unwrap().as_str(), good);
    }
    let longer = format!("{long}a");
    let longest = format!("{long}aa");
    for bad in [".", "a", "a.", ".b", "a.B", "a.b c", "a.b/c", "é.a", longer.as_str(), longest.as_str()] {
        assert!(bad.parse::<EventType>().is_err(), "{bad}");
    }
}

/// What an event takes is known about without writing it down.
#[test]
fn event_size_estimates_its_json_size() {
    let mut driver = Driver::created();
    driver.prompt();
    driver.run_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn))).unwrap();
    let long = json(&format!("\"{}\"", "x".repeat(3000)));
    driver.event(NewEvent::user_message("x".repeat(2000)).with_extra("more", long)).unwrap();
    for event in &driver.log {
        let (texts, is) = (event.size_bytes(), event.to_json().len());
        assert!(texts.abs_diff(is) < 120, "{texts} for {is} bytes");
    }
}

/// A workspace's name, provider, description and settings.
#[test]
fn workspace_fields_are_limited() {
    let effects = Effects::seeded(1, Timestamp::UNIX_EPOCH);
    let workspace = |name: usize| {
        let (id, session) = (effects.new_workspace_id(), effects.new_session_id());
        Workspace::new(id, "n".repeat(name), session, effects.now())
    };
    let refused = |workspace: Workspace| workspace.check().map_err(|error| error.kind().clone()).err();
    assert_eq!((refused(workspace(1)), refused(workspace(256))), (None, None));
    assert_eq!(refused(workspace(0)), Some(ErrorKind::InvalidInput));
    assert_eq!(refused(workspace(257)), Some(ErrorKind::InvalidInput));
    for (provider, good) in [(0, false), (1, true), (256, true), (257, false)] {
        let mut workspace = workspace(1);
        workspace.provider = Some("p".repeat(provider));
        assert_eq!(refused(workspace).is_none(), good, "{provider}");
    }
    for (description, good) in [(0, true), (4096, true), (4097, false), (4098, false)] {
        let mut workspace = workspace(1);
        workspace.description = Some("d".repeat(description));
        assert_eq!(refused(workspace).is_none(), good, "{description}");
    }
    // All of it together.
    let settings = |bytes: usize| json(&format!("\"{}\"", "x".repeat(bytes - "{'s':''}".len())));
    for (more, good) in [(0, true), (1, false), (2, false)] {
        let mut workspace = workspace(1);
        workspace.description = Some("d".repeat(1000));
        workspace.extra.insert("extra", json("1"));
        let rest = Workspace::MAX_BYTES - 1000 - "{'extra':1}".len();
        workspace.settings.insert("s", settings(rest + more));
        assert_eq!(refused(workspace).is_none(), good, "{more}");
    }
}

/// The id of a tenant is the name of a folder on any platform.
#[test]
fn invalid_tenant_ids_are_refused() {
    let long = "a".repeat(63);
    for good in ["a", "0", "a_b-9", "com", "comx", "com10", "lpt", "con1", "abc1", &long] {
        assert_eq!(good.parse::<TenantId>().unwrap().as_str(), good);
    }
    let longer = "a".repeat(64);
    for bad in ["", "_a", "-a", "A", "a.b", "con", "prn", "aux", "nul", "com0", "com9", "lpt1", &longer] {
        assert!(bad.parse::<TenantId>().is_err(), "{bad}");
    }
}

/// What can be no cursor is refused at once.
#[test]
fn invalid_cursors_are_refused() {
    let text = |bytes: usize| format!("c2.{}", "x".repeat(bytes - 3));
    assert_eq!(text(2048).parse::<Cursor>().unwrap().to_string(), text(2048));
    for bad in [text(2049), text(2050), "c1.x".to_owned(), String::new(), "x".repeat(2049)] {
        assert!(bad.parse::<Cursor>().is_err());
    }
}

/// JSON that common readers would refuse for its depth is refused where it enters, whatever brings it.
#[test]
fn payloads_nest_at_most_a_hundred_levels() {
    let deep = |levels: usize| RawJson::parse(&("[".repeat(levels) + &"]".repeat(levels))).unwrap();
    assert_eq!((deep(100).depth(), RawJson::parse("\"[[\\\"[\"").unwrap().depth()), (100, 0));
    let kind = || "x.app.note".parse().unwrap();
    // Of these the event has levels of its own.
    type Make = fn(RawJson) -> NewEvent;
    let events: [(&str, Make, usize); 4] = [
        ("data", |json| NewEvent::new("x.app.note".parse().unwrap(), json), 100),
        ("extra", |json| NewEvent::user_message("hi").with_extra("x", json), 100),
        ("input", |json| NewEvent::tool_use(call("c1"), "ls", json), 99),
        ("metadata", |json| NewEvent::updated(Patch::new().with_metadata("x", json)), 97),
    ];
    for (what, event, most) in events {
        let mut driver = Driver::created();
        driver.prompt();
        let mut commit = |levels| {
            let commit = driver.seal_fenced().with_event(event(deep(levels)));
            driver.commit(commit)
        };
        let refused = commit(most + 1).unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::LimitExceeded, "{what}: {refused}");
        assert!(refused.to_string().contains(" levels deep; at most "), "{what}: {refused}");
        commit(most).unwrap();
    }
    let mut driver = Driver::created();
    for trigger in [
        Trigger::Replace(vec![NewEvent::user_message("hi").with_extra("x", deep(101))]),
        Trigger::ImportEvents(vec![NewEvent::new(kind(), deep(101))]),
    ] {
        assert_eq!(*driver.trigger(trigger).unwrap_err().kind(), ErrorKind::LimitExceeded);
    }
    // What a session is created with is an event, too, and has to be taken where it is restored.
    let created = |levels| {
        let mut driver = Driver::nothing();
        let new = driver.new_session().with_patch(&Patch::new().with_metadata("x", deep(levels)));
        driver.commit(Commit::create(&driver.effects, new)).map(|_| driver)
    };
    assert_eq!(*created(98).unwrap_err().kind(), ErrorKind::LimitExceeded);
    let there = created(97).unwrap();
    let mut again = Driver::nothing();
    again.commit(Commit::restore(there.id, there.log.clone()).unwrap()).unwrap();
    assert_eq!(again.now(), there.now());
}
