//! Tests that objects have the specified bytes, and that windows carry all of a log for any commits.

use std::collections::BTreeMap;
use std::path::Path;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, RunEnd, Trigger};
use agent_core::event::{Event, NewEvent};
use agent_core::session::NewSession;
use agent_core::state::Reason;
use agent_core::{ErrorKind, Plan, Seq, SessionId, WorkspaceId, plan};

use super::*;
use crate::log::heads::Heads;
use crate::log::index_keys::needed;

/// Slots of one session, written like the store writes them.
struct Log {
    effects: Effects,
    id: SessionId,
    slots: BTreeMap<Slot, Bytes>,
    head: Option<Entry>,
    events: Vec<Event>,
    is_without_base: bool,
}

impl Log {
    fn new(seed: u64) -> Self {
        let effects = Effects::seeded(seed, "2026-02-15T10:30:00Z".parse().unwrap());
        let id = effects.new_session_id();
        let mut log = Self {
            effects,
            id,
            slots: BTreeMap::new(),
            head: None,
            events: Vec::new(),
            is_without_base: false,
        };
        let new = NewSession::new(id, WorkspaceId::DEFAULT);
        log.commit(&Commit::create(&log.effects, new));
        log
    }

    fn seal(&self) -> Commit {
        Commit::seal(&self.effects, self.id, self.head.as_ref().unwrap().head.last)
    }

    fn commit(&mut self, commit: &Commit) {
        let now = self.head.as_ref().and_then(|head| head.record.as_deref());
        let Plan::Write { events, after, .. } = plan(now, commit).unwrap() else {
            panic!("nothing to write")
        };
        let (slot, own) = (self.head.as_ref().map_or(Slot::FIRST, Entry::next), Own::new(&events));
        let base = self.head.as_ref().and_then(|head| head.base_slot(&own)).map(|slot| self.slot(slot));
        let base = base.filter(|_| !self.is_without_base);
        let before = self.head.as_ref().map_or(&[][..], |head| &head.head.keys);
        let keys = needed(&after, &[], before, slot);
        let body = Entry::encode(self.head.as_ref(), base.as_ref(), commit.id, &own, &after, keys);
        self.head = Some(Entry::parse(&body, self.id, slot).unwrap());
        assert!(self.head.as_ref().unwrap().is_whole());
        assert_eq!(self.slots.insert(slot, body), None, "a slot is taken once");
        self.events.extend(events);
    }

    fn append(&mut self, texts: impl IntoIterator<Item = usize>) {
        let events = texts.into_iter().map(|size| NewEvent::user_message("x".repeat(size)));
        let commit = self.seal().with_events(events);
        self.commit(&commit);
    }

    fn slot(&self, slot: Slot) -> Entry {
        Entry::parse(&self.slots[&slot], self.id, slot).unwrap()
    }

    /// Reads all events like the store does: window by window, and large events from their location.
    fn read(&self) -> Vec<Event> {
        let mut events = Vec::new();
        let mut entry = self.head.clone().unwrap();
        let mut last = entry.last().get();
        loop {
            for seq in (entry.head.window.get()..=last).rev().map(Seq::new) {
                events.push(match entry.event(seq).unwrap() {
                    Found::Event(event) => event,
                    Found::Elsewhere(place) => {
                        let start = usize::try_from(place.offset).unwrap();
                        let end = start + usize::try_from(place.bytes).unwrap();
                        let raw = self.slots[&place.slot].slice(start..end);
                        event(&Line { raw, offset: place.offset }, seq).unwrap()
                    }
                });
            }
            let Some(previous) = entry.head.previous else { break };
            last = entry.head.window.get() - 1;
            entry = self.slot(previous);
        }
        events.reverse();
        events
    }
}

/// Bytes of format 7. These files are never changed, because stored objects must stay readable.
#[test]
fn golden_objects() {
    let mut log = Log::new(1);
    let run = log.effects.new_run_id();
    let begin = log
        .seal()
        .with_event(NewEvent::user_message("안녕"))
        .with_trigger(Trigger::BeginRun(LeaseRequest::new("golden", run)));
    log.commit(&begin);
    let end = log
        .seal()
        .with_fence(run, agent_core::Epoch::new(1))
        .with_event(NewEvent::agent_message("Hello.\n"))
        .with_event(NewEvent::agent_message("long ".repeat(2000)))
        .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
    log.commit(&end);
    log.append([3]);
    let deleted = log.seal().with_trigger(Trigger::Delete(Reason::UserDeleted));
    log.commit(&deleted);
    for (slot, bytes) in &log.slots {
        golden(&format!("commit-{}", slot.0), bytes);
    }
    let last = log.slot(Slot(6));
    let purged = Head { kind: Kind::Purged, kept: Some(Seq::new(2)), removed: true, ..last.head.clone() };
    let purge = Purge::new(last.head.session, last.head.last);
    golden("purged", &last.encode_cut(&purged, &purge));
    let middle = log.slot(Slot(3));
    golden("cut", &middle.encode_cut(&Head { kept: Some(Seq::new(3)), ..middle.head.clone() }, &purge));
    golden("stub", &Entry::encode_bare(&Head { kind: Kind::Stub, keys: Vec::new(), ..middle.head }, None));
    assert_eq!(log.read(), log.events);
}

fn golden(name: &str, bytes: &Bytes) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join("golden").join("7").join(name);
    if std::env::var_os("WRITE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
    }
    let known = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(String::from_utf8_lossy(bytes), String::from_utf8_lossy(&known), "{name}");
}

/// For any sizes of commits and events, the windows carry the whole log, each object stays bounded, and no window ends
/// early.
#[test]
fn windows_cover_the_whole_log() {
    for seed in 0..40 {
        let mut log = Log::new(seed);
        let sizes = [0, 10, 300, 5_000, 7_900, 8_100, 9_000, 40_000];
        for _ in 0..40 {
            let pick = |most: u64| usize::try_from(log.effects.random_u64() % most).unwrap();
            let count = if pick(8) == 0 { 100 } else { 1 + pick(6) };
            let texts: Vec<_> = (0..count).map(|_| sizes[pick(8)]).collect();
            log.append(texts);
            let head = log.head.as_ref().unwrap();
            let own: u64 = head.window.iter().rev().take(count).map(Line::size).sum();
            assert!(
                (head.size as u64) < own + WINDOW_BYTES + SMALL_BYTES + (64 << 10),
                "{} for {own}",
                head.size
            );
            if let Some(previous) = head.head.previous.map(|slot| log.slot(slot)) {
                assert!(previous.closes() && (!head.closes() || previous.closes_big()));
            }
        }
        assert_eq!(log.read(), log.events, "seed {seed}");
    }
}

/// The last 50 events, and the one before, are in the newest object and the one that it names, unless they are large.
#[test]
fn last_50_events_are_in_two_objects() {
    for (seed, most) in [(1, 1), (2, 3), (3, 20), (4, 200)] {
        let mut log = Log::new(seed);
        for _ in 0..300 {
            let count = 1 + usize::try_from(log.effects.random_u64()).unwrap_or_default() % most;
            log.append(vec![1000; count]);
            let head = log.head.as_ref().unwrap();
            let before = head.head.previous.map_or(head.head.window, |slot| log.slot(slot).head.window);
            let due = (head.head.last.get() + 1).saturating_sub(51).max(1);
            assert!(before.get() <= due, "{before} of {}", head.head.last);
        }
        assert_eq!(log.read(), log.events, "seed {seed}");
    }
}

/// No flipped byte of an object yields other contents: it is detected in the header, the record or the event.
#[test]
fn flipped_byte_never_yields_other_contents() {
    let mut log = Log::new(3);
    log.append([5, 6]);
    let slot = log.head.as_ref().unwrap().head.slot;
    let bytes = log.slots[&slot].clone();
    let good = log.head.clone().unwrap();
    for at in 0..bytes.len() {
        let mut bad = bytes.to_vec();
        bad[at] ^= 1;
        let Ok(entry) = Entry::parse(&bad.into(), log.id, slot) else { continue };
        assert_eq!((&entry.head, &entry.record), (&good.head, &good.record), "byte {at}");
        let found = |entry: &Entry| -> Vec<_> {
            (1..=3)
                .map(|seq| match entry.event(Seq::new(seq)) {
                    Ok(Found::Event(event)) => Some(event),
                    _ => None,
                })
                .collect()
        };
        let (was, is) = (found(&good), found(&entry));
        assert_ne!(was, is, "byte {at} is part of an event");
        assert!(was.iter().zip(&is).all(|(was, is)| is.is_none() || was == is), "byte {at}");
    }
}

/// Slots sort by their number, the greatest first, up to the greatest possible one.
#[test]
fn slots_list_the_newest_first() {
    let numbers = [0, 1, 2, 9, 10, 99_999, u64::MAX - 1, u64::MAX];
    for pair in numbers.windows(2) {
        assert!(Slot(pair[0]).name() > Slot(pair[1]).name());
    }
    for number in numbers {
        assert_eq!(Slot::parse(&Slot(number).name()), Some(Slot(number)));
    }
    assert_eq!(Slot::parse("00000000000000000000"), None);
    assert_eq!(Slot::parse("x"), None);
}

/// An object of a newer format is refused with its format, regardless of the rest of its header.
#[test]
fn newer_formats_are_refused_by_name() {
    is_refused(8, "update the library");
}

/// An object of a format that was never released is refused with its format, and is not called damaged.
#[test]
fn older_formats_are_refused_by_name() {
    for format in [0, 1, 2, 3, 4, 5, 6] {
        is_refused(format, "never released");
    }
}

fn is_refused(format: u32, expected: &str) {
    let id = Log::new(1).id;
    let mut bytes = Vec::new();
    push(&mut bytes, Tag::Head, &format!(r#"{{"format":{format},"kind":"something"}}"#));
    let bytes = Bytes::from(bytes);
    for error in [
        Entry::parse(&bytes, id, Slot::FIRST).unwrap_err(),
        Entry::parse_head(&bytes, id, Slot::FIRST).unwrap_err(),
    ] {
        assert_eq!(*error.kind(), ErrorKind::Unsupported);
        let text = error.to_string();
        assert!(text.contains(&format!("has format {format}, ")) && text.contains(expected), "{text}");
        assert!(text.contains(&id.to_string()) && !text.contains("damage"), "{text}");
    }
}

/// Objects as they were written in formats 1 to 6, with what was stored then.
#[test]
fn objects_of_old_formats_are_refused_by_name() {
    let old: [(u32, &[u8]); 6] = [
        (1, include_bytes!("../../tests/golden/1/commit-2")),
        (2, include_bytes!("../../tests/golden/2/commit-2")),
        (3, include_bytes!("../../tests/golden/3/commit-2")),
        (4, include_bytes!("../../tests/golden/4/commit-2")),
        (5, include_bytes!("../../tests/golden/5/commit-2")),
        (6, include_bytes!("../../tests/golden/6/commit-2")),
    ];
    let id = Log::new(1).id;
    for (format, old) in old {
        let error = Entry::parse(&Bytes::from_static(old), id, Slot(2)).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Unsupported);
        let text = error.to_string();
        assert!(text.contains(&format!("has format {format}, which was never released")), "{text}");
    }
}

/// A commit whose base is missing, or is no longer whole, carries its small window, and nothing is left out.
#[test]
fn a_commit_without_its_base_loses_no_event() {
    let mut log = Log::new(5);
    for turn in 0..100 {
        log.is_without_base = turn % 3 == 1;
        log.append([20]);
    }
    assert_eq!(log.read(), log.events);
}

/// A header with a circular reference, or with numbers out of range, is damaged.
#[test]
fn contradictory_headers_are_refused() {
    let mut log = Log::new(4);
    log.append([1, 2]);
    let head = log.head.as_ref().unwrap();
    let (slot, sound) = (head.head.slot, &head.head);
    let parsed = |head: &Head| {
        Entry::parse(&Entry::encode_bare(head, log.head.as_ref().unwrap().record.as_deref()), log.id, slot)
    };
    assert!(parsed(sound).is_ok());
    for bad in [
        Head { window: sound.last.next(), first: sound.last.next(), ..sound.clone() },
        Head { window: sound.first.next(), ..sound.clone() },
        Head { big: sound.first.next(), ..sound.clone() },
        Head { last: Seq::new(u64::MAX), ..sound.clone() },
        Head { previous: Some(slot), ..sound.clone() },
        Head { after: Some(slot), ..sound.clone() },
    ] {
        assert_eq!(*parsed(&bad).unwrap_err().kind(), ErrorKind::Corrupt, "{bad:?}");
    }
}

/// However much of logs is read, the objects that are kept of them stay within a limit, and those that were used last are
/// among them.
#[test]
fn kept_windows_are_bounded() {
    let (mut log, heads, mut slots) = (Log::new(1), Heads::default(), Vec::new());
    for _ in 0..40 {
        log.append([1 << 20]);
        let entry = Arc::new(log.head.clone().unwrap());
        slots.push(entry.head.slot);
        heads.keep_window(log.id, &entry);
        // The first one is used again and again.
        assert!(heads.window(log.id, slots[0]).is_some());
    }
    let kept: Vec<_> = slots.iter().filter(|slot| heads.window(log.id, **slot).is_some()).collect();
    assert!((8..=16).contains(&kept.len()), "{} of a MiB each", kept.len());
    assert_eq!((kept[0], kept[kept.len() - 1]), (&slots[0], &slots[39]));
    let carried = heads.window_with(log.id, log.head.as_ref().unwrap().last()).unwrap();
    assert_eq!(carried.head.slot, slots[39]);
}

/// A record with a right checksum that this version cannot read, as another program may write it, is refused by the name of its slot.
#[test]
fn unreadable_records_name_their_slot() {
    let log = Log::new(1);
    let mut body = Vec::new();
    for line in lines(&log.slots[&Slot::FIRST]) {
        match line.json(Tag::Record) {
            Some(json) => push(&mut body, Tag::Record, &json.replace("last_active_at", "last_seen_at")),
            None => body.extend([&line.raw[..], b"\n"].concat()),
        }
    }
    let error = Entry::parse(&body.into(), log.id, Slot::FIRST).unwrap_err().to_string();
    assert!(error.contains(&log.id.to_string()) && error.contains("last_active_at is missing"), "{error}");
}
