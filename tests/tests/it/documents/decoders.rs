//! Decoders end with a result for any text; and what they accept, they write so that they accept it again.

use std::fmt::Debug;
use std::str::FromStr;

use agent_admin::manifest::Manifest;
use agent_core::event::{Event, EventType};
use agent_core::json::RawJson;
use agent_core::model::{Actor, CallId, Workspace};
use agent_core::session::SessionRecord;
use agent_core::store::{Cursor, Registry, percent_decode, split_address};
use agent_core::{CommitId, DeviceId, RunId, SessionId, TenantId, Timestamp, WorkspaceId};
use agent_runtime::configuration::ConfigLayers;
use agent_transcript::{Seal, Transcript};
use proptest::prelude::*;

const WORKSPACE: &str = r#"{"id":"019c60d9-9c41-715c-8289-ec2d0a9167ec","name":"Küche","revision":3,"status":"active","main_session":"019c60d9-9c41-715c-8289-ec2d0a9167ed","created_at":"2026-02-15T10:30:00.000000Z","last_accessed":"2026-02-15T10:30:00.000000Z","provider":"claude","x":1e400}"#;

const TRANSCRIPT: &str = "---\nformat: 2\nsession: 019c60d9-9c41-715c-8289-ec2d0a9167ec\nprovider: claude\n\
    created_at: 2026-02-15T10:30:00.000000Z\n---\n\n## User\n\nWhat?\n\\## User\n\n## Assistant\n\n\\json \"A.\\r\"\n\n\
    <!-- rendered head=3 commit=019c60d9-9c44-79b5-81d1-d854bb718002 crc32c=520e892f -->\n";

const CONFIG: &str =
    "a = 1\n[server]\nport = 80\nhosts = [\"a\", \"b\"]\n\"x.y\" = { z = 1979-05-27 }\n[[list]]\nn = 1e9\n";

/// One of each of the forms that are read.
fn good() -> Vec<&'static str> {
    let lines = [
        include_str!("../../../../agent-core/tests/it/golden/events.jsonl"),
        include_str!("../../../../agent-core/tests/it/golden/documents.jsonl"),
        include_str!("../../../../agent-core/tests/it/golden/ledger.jsonl"),
        include_str!("../../../../agent-core/tests/it/golden/sharing.jsonl"),
    ];
    let mut good: Vec<_> = lines.iter().flat_map(|lines| lines.lines()).collect();
    // Each of these as often as there are a few lines of logs.
    for _ in 0..good.len() / 8 {
        good.extend([
            include_str!("../../../../agent-core/tests/it/golden/session.json").trim_end(),
            include_str!("../../../../agent-core/tests/it/golden/ledger.session.json").trim_end(),
            include_str!("../../../../agent-core/tests/it/golden/sharing.session.json").trim_end(),
            WORKSPACE,
            TRANSCRIPT,
            CONFIG,
            "sqlite:/srv/a%20b.db?sync=full&readers=8",
            "c2.0123456789abcdef.1739615400000000 019c60d9-9c41-715c-8289-ec2d0a9167ec",
            "2026-02-15T10:30:00.000000Z",
            "019c60d9-9c41-715c-8289-ec2d0a9167ec",
            "user:alice",
        ]);
    }
    good
}

/// What decoders look for, and what they may count with.
const PIECES: [&str; 24] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    ":",
    ",",
    "null",
    "-1",
    "18446744073709551615",
    "1e999",
    "\\ud800",
    "\0",
    "\r",
    "\n",
    "---\n",
    "## User\n",
    "\\json \"",
    "%",
    "%zz",
    "?",
    "=",
    "안",
];

/// What is done to a good text: at a place, over so many bytes, with a piece or any text.
fn change() -> impl Strategy<Value = (u8, prop::sample::Index, usize, usize, String)> {
    (0..5u8, any::<prop::sample::Index>(), 0..40usize, 0..PIECES.len(), any::<String>())
}

fn changed(mut text: String, changes: &[(u8, prop::sample::Index, usize, usize, String)]) -> String {
    for (what, at, bytes, piece, any) in changes {
        let from = text.floor_char_boundary(at.index(text.len() + 1));
        let to = text.ceil_char_boundary((from + bytes).min(text.len()));
        match what {
            0 => text.truncate(from),
            1 => text.replace_range(from..to, ""),
            2 => {
                let twice = text[from..to].to_owned();
                text.insert_str(from, &twice);
            }
            3 => text.replace_range(from..to, PIECES[*piece]),
            _ => text.insert_str(from, any),
        }
    }
    text
}

/// What is read is written in the one spelling, which is read as the same.
fn round_trip<T: FromStr + ToString + PartialEq + Debug>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        assert!(value.to_string().parse::<T>().is_ok_and(|again| again == value), "{value:?}");
    }
}

fn decode(text: &str) {
    if let Ok(event) = Event::from_json(text) {
        let _ = event.decode();
        assert_eq!(Event::from_json(&event.to_json()).unwrap(), event);
    }
    if let Ok(session) = SessionRecord::from_json(text) {
        assert_eq!(SessionRecord::from_json(&session.to_json()).unwrap(), session);
    }
    if let Ok(workspace) = Workspace::from_json(text) {
        assert_eq!(Workspace::from_json(&workspace.to_json()).unwrap(), workspace);
    }
    if let Ok(json) = RawJson::parse(text) {
        assert_eq!(RawJson::parse(json.get()).unwrap(), json);
    }
    if let Ok(cursor) = text.parse::<Cursor>() {
        assert_eq!(cursor.to_string(), text);
        let _ = (cursor.key(1), cursor.recent_key::<SessionId>(0x0123_4567_89ab_cdef));
    }
    round_trip::<SessionId>(text);
    round_trip::<WorkspaceId>(text);
    round_trip::<CommitId>(text);
    round_trip::<RunId>(text);
    round_trip::<DeviceId>(text);
    round_trip::<TenantId>(text);
    round_trip::<CallId>(text);
    round_trip::<EventType>(text);
    round_trip::<Actor>(text);
    round_trip::<Timestamp>(text);
    let _ = (Registry::new().parse(text), split_address(text), percent_decode(text), Seal::parse(text));
    let _ = (Transcript::parse(text), Manifest::parse(text));
    if let Ok(layers) = ConfigLayers::new().with_global(text).and_then(|layers| layers.with_workspace(text)) {
        let _ = layers
            .with_variable("X", text)
            .and_then(|layers| layers.with_protected(text))
            .map(|layers| layers.merge(|_| Some(text.to_owned())));
    }
    let _ = ConfigLayers::new()
        .with_protected(text)
        .and_then(|layers| layers.with_global(CONFIG))
        .map(|layers| layers.merge(|_| None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    /// Events, records, workspaces, cursors, ids, times, addresses, configuration, transcripts, documents: any text, and
    /// any good one with up to six changes, is read or refused; what is read is written and read as the same.
    #[test]
    fn any_text_is_decoded_or_refused(
        any in any::<String>(), good in prop::sample::select(good()), changes in prop::collection::vec(change(), 0..6),
    ) {
        decode(&any);
        decode(&changed(good.to_owned(), &changes));
    }
}
