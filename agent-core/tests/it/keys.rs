//! Keys of conversations: which are accepted, which session each leads to, and how a session records its key.

use agent_core::clock::Effects;
use agent_core::commit::Commit;
use agent_core::model::{Attributes, Patch};
use agent_core::session::{ConversationKey, NewSession, SessionRecord, SessionSummary};
use agent_core::store::HiddenSession;
use agent_core::{SessionId, Timestamp, WorkspaceId, plan};
use proptest::prelude::*;

fn key(text: &str) -> ConversationKey {
    text.parse().unwrap()
}

fn created(new: NewSession) -> SessionRecord {
    let effects = Effects::seeded(1, Timestamp::UNIX_EPOCH);
    let plan = plan(None, &Commit::create(&effects, new)).unwrap();
    (*plan.committed().session).clone()
}

/// Any text of 1 to 512 bytes without control characters is a key, byte for byte; nothing else is.
#[test]
fn odd_keys_are_kept_or_refused() {
    let (longest, longer) = ("x".repeat(512), "é".repeat(257));
    for text in ["a", " ", "../../x", "a/b", "Küche", "con", "\u{202e}x", "\u{feff}", "🙂", &longest] {
        assert_eq!(key(text).as_str(), text);
        // It is a value that a label takes, too.
        let session = created(NewSession::conversation(&key(text), None, WorkspaceId::DEFAULT, 0));
        assert_eq!(session.conversation_key(), Some(key(text)));
    }
    for text in ["", "a\0b", "a\nb", "\u{7f}", "\u{85}", &longer] {
        let refused = text.parse::<ConversationKey>().unwrap_err().to_string();
        assert!(refused.starts_with("conversation key "), "{refused}");
    }
}

/// The derivation is pinned: stored sessions are found by it.
#[test]
fn ids_of_keys_are_pinned() {
    let workspace: WorkspaceId = "018f4e9a-7a2b-7c3d-8e4f-ffffffffffff".parse().unwrap();
    for (workspace, text, generation, id) in [
        (WorkspaceId::DEFAULT, "support/4711", 0, "b9ce3eee-5778-89b0-8cf1-5817a17120ca"),
        (WorkspaceId::DEFAULT, "support/4711", 1, "fb730724-4a9a-8494-b995-7c3da8e631fd"),
        (WorkspaceId::DEFAULT, "Küche", 12, "956dce4c-81c7-8b6e-a201-7595ac28d7ed"),
        (workspace, "support/4711", 0, "df9c5f56-e1b8-8e81-aa33-2f8c9f0b452c"),
    ] {
        assert_eq!(key(text).session_id(None, workspace, generation).to_string(), id, "{text} {generation}");
    }
}

/// Neither the parts of a key nor a number beside it can be moved so that two keys meet.
#[test]
fn no_two_keys_share_an_id() {
    let texts =
        ["a", "b", "a/b", "a b", "b/a", "1a", "11", "1", "10a", "conversation key", "tenant", "default"];
    let workspaces = [WorkspaceId::DEFAULT, "018f4e9a-7a2b-7c3d-8e4f-ffffffffffff".parse().unwrap()];
    let mut ids: Vec<SessionId> = Vec::new();
    for workspace in workspaces {
        for generation in [0, 1, 10, 11, 111, u64::MAX] {
            ids.extend(texts.iter().map(|text| key(text).session_id(None, workspace, generation)));
        }
        ids.extend(texts.iter().map(|text| HiddenSession::agent(workspace, *text).id()));
    }
    ids.extend([HiddenSession::Tenant.id(), HiddenSession::Audit.id()]);
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
}

proptest! {
    /// Two conversations have one id only if workspace, generation and key are the same.
    #[test]
    fn ids_differ_where_anything_differs(
        one in ("[a-c0-2/ ]{1,6}", 0..3_u64, 0..3_u128),
        two in ("[a-c0-2/ ]{1,6}", 0..3_u64, 0..3_u128),
    ) {
        let id = |(text, generation, workspace): &(String, u64, u128)| {
            key(text).session_id(None, WorkspaceId::from_uuid(uuid::Uuid::from_u128(*workspace)), *generation)
        };
        prop_assert_eq!(id(&one) == id(&two), one == two);
    }
}

/// A session is the conversation of a key only if its id says so: no fork is, and nobody becomes it by a label.
#[test]
fn only_the_original_has_the_key() {
    let effects = Effects::seeded(1, Timestamp::UNIX_EPOCH);
    for generation in [0, 3] {
        let new = NewSession::conversation(&key("mine"), None, WorkspaceId::DEFAULT, generation);
        let original = created(new.with_patch(&Patch::new().with_label("team", "blue")));
        assert_eq!(original.conversation_key(), Some(key("mine")));
        assert_eq!(SessionSummary::from(&original).conversation_key(), Some(key("mine")));
        let fork = created(NewSession::fork(effects.new_session_id(), &original));
        assert_eq!(fork.conversation_key(), None);
        assert_eq!(
            fork.attributes.labels.len(),
            1,
            "the label of the host only: {:?}",
            fork.attributes.labels
        );
        assert!(fork.attributes.references.is_empty());
    }
    let labelled = Patch::new().with_label(Attributes::CONVERSATION_KEY, "mine");
    let other = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT).with_patch(&labelled);
    assert_eq!(created(other).conversation_key(), None);
    let elsewhere = NewSession::conversation(&key("mine"), None, WorkspaceId::DEFAULT, 0);
    assert_eq!(
        created(elsewhere.with_patch(&Patch::new().with_label(Attributes::CONVERSATION_KEY, "yours")))
            .conversation_key(),
        None
    );
}

/// A host's label `shelf` does not make a conversation a hidden session, which could not be deleted.
#[test]
fn a_conversation_is_no_hidden_session() {
    let labelled = Patch::new().with_label(HiddenSession::LABEL, "of books");
    let conversation =
        NewSession::conversation(&key("mine"), None, WorkspaceId::DEFAULT, 0).with_patch(&labelled);
    assert!(HiddenSession::refuse(&created(conversation), "would be gone").is_ok());
    let shelf = HiddenSession::Tenant;
    let hidden = NewSession::new(shelf.id(), WorkspaceId::DEFAULT).with_patch(
        &Patch::new()
            .with_label(HiddenSession::LABEL, "tenant")
            .with_label(Attributes::CONVERSATION_KEY, "mine"),
    );
    assert!(HiddenSession::refuse(&created(hidden), "would be gone").is_err());
}
