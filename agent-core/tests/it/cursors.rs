//! Cursors that a client keeps: what they know their query by does not change with this library.

use agent_core::model::{Actor, Role};
use agent_core::state::SessionState;
use agent_core::store::{BindingQuery, Cursor, SessionQuery, WorkspaceQuery};
use agent_core::{ErrorKind, SessionId, Timestamp, WorkspaceId};

fn session(text: &str) -> SessionId {
    text.parse().unwrap()
}

/// The fingerprints of queries, pinned. A field that a later version adds, and that a query does not set, must
/// leave these as they are.
#[test]
fn fingerprints_of_queries_are_pinned() {
    let id = "019c60d9-9c41-715c-8289-ec2d0a9167ec";
    let workspace: WorkspaceId = id.parse().unwrap();
    let alice = Actor::named(Role::User, "alice").unwrap();
    let sessions = [
        (SessionQuery::new(), 0xaceb_adbd_2040_ebac),
        (SessionQuery::new().with_workspace(workspace), 0xd6b9_b8ad_6cf7_e26e),
        (SessionQuery::new().with_workspace(WorkspaceId::DEFAULT), 0x9a88_44fd_3ad1_8d72),
        (SessionQuery::new().with_hidden(), 0xb019_c63d_2fa3_7ecc),
        (SessionQuery::new().with_states([SessionState::Queued, SessionState::Idle]), 0x0bfe_19f0_c476_97b7),
        (SessionQuery::new().with_label("owner", "alice").with_label("team", "한"), 0xe8d5_ced2_7055_98b9),
        (SessionQuery::new().with_creator(alice), 0x9e73_6c97_3967_c81e),
        (SessionQuery::new().with_parent(session(id)), 0x14d4_75e7_0139_834b),
        (SessionQuery::new().with_due(Timestamp::from_micros(1_771_151_400_000_000)), 0xadeb_8b6c_3d5a_b694),
    ];
    for (query, print) in &sessions {
        assert_eq!(query.fingerprint(), *print, "{query:?}: {:#x}", query.fingerprint());
        let paged = query.clone().with_limit(7).with_total().with_cursor(Some(Cursor::after(*print, "x")));
        assert_eq!(paged.fingerprint(), *print, "the place in a list is no part of the query");
    }
    let others = [
        (WorkspaceQuery::new().fingerprint(), 0x7417_78c6_f360_f93f),
        (WorkspaceQuery::new().with_deleting().fingerprint(), 0xd734_bcb0_ce11_d5d7),
        (BindingQuery::new().fingerprint(), 0x8e28_6950_b0f6_ff23),
        (BindingQuery::new().with_workspace(workspace).fingerprint(), 0x84da_b43b_397e_3881),
    ];
    for (print, pinned) in others {
        assert_eq!(print, pinned, "{print:#x}");
    }
    let mut all: Vec<u64> = sessions.iter().map(|(_, print)| *print).collect();
    all.extend(others.iter().map(|(print, _)| *print));
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), sessions.len() + others.len(), "no two are alike");
}

/// The same states in another order, or said twice, are the same query; what is set in one field is not taken for
/// what is set in another.
#[test]
fn query_fingerprints_depend_on_meaning_only() {
    use agent_core::state::SessionState::{Idle, Queued};
    let of = |query: SessionQuery| query.fingerprint();
    let both = of(SessionQuery::new().with_states([Queued, Idle]));
    assert_eq!(both, of(SessionQuery::new().with_states([Idle, Queued, Idle])));
    assert_ne!(both, of(SessionQuery::new().with_states([Idle])));
    let label = |key: &str, value: &str| of(SessionQuery::new().with_label(key, value));
    assert_ne!(label("ab", "c"), label("a", "bc"));
    assert_ne!(label("a", "b\nlabel c d"), of(SessionQuery::new().with_label("a", "b").with_label("c", "d")));
    let id = "019c60d9-9c41-715c-8289-ec2d0a9167ec";
    let workspace = SessionQuery::new().with_workspace(id.parse().unwrap());
    assert_ne!(of(workspace), of(SessionQuery::new().with_parent(session(id))));
}

/// A client may send anything as a cursor of its query: each refusal names the cursor.
#[test]
fn malformed_keys_of_cursors_are_refused_by_name() {
    let print = SessionQuery::new().fingerprint();
    for key in ["", "default", "17", "x default", "17 default", "%ff", "%00", "99999999999999999999 x"] {
        let cursor: Cursor = format!("c2.{print:016x}.{}", key.replace(' ', "%20")).parse().unwrap();
        let error = cursor.recent_key::<SessionId>(print).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput);
        let text = error.to_string();
        assert!(text.contains("cursor") && text.contains("list from the start"), "{key}: {text}");
    }
    let query = BindingQuery::new();
    let cursor = Cursor::after(query.fingerprint(), "");
    let error = query.with_cursor(Some(cursor)).page(std::iter::empty()).unwrap_err();
    assert!(error.to_string().contains("list from the start"), "{error}");
}
