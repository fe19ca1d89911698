//! Newest messages of a session, for people.

use agent_core::SessionStore;
use agent_core::SessionStoreExt;
use agent_core::event::EventType;
use agent_core::session::SessionRecord;
use agent_core::store::{EventPage, ReadEvents};

/// Types of the events that `/history` shows.
const SHOWN: [EventType; 11] = [
    EventType::USER_MESSAGE,
    EventType::USER_INTERRUPT,
    EventType::USER_DEFINE_OUTCOME,
    EventType::USER_CUSTOM_TOOL_RESULT,
    EventType::AGENT_MESSAGE,
    EventType::AGENT_PART,
    EventType::AGENT_TOOL_USE,
    EventType::AGENT_TOOL_RESULT,
    EventType::AGENT_CUSTOM_TOOL_USE,
    EventType::SYSTEM_MESSAGE,
    EventType::SESSION_COMPACTED,
];

/// Reads the newest events of a session that are shown, oldest first: `count` of them, over as many pages as that takes.
pub(crate) async fn newest_shown(
    sessions: &dyn SessionStore,
    session: &SessionRecord,
    count: usize,
) -> agent_core::Result<EventPage> {
    let mut shown = EventPage::default();
    shown.next = Some(ReadEvents::last(count).with_after(session.visible_from).with_types(SHOWN));
    while let Some(mut older) = shown.next.take_if(|_| shown.events.len() < count) {
        older.limit = count - shown.events.len();
        let page = sessions.history_of(session, older).await?;
        shown.events.splice(0..0, page.events);
        shown.damaged.extend(page.damaged);
        shown.next = page.next;
    }
    Ok(shown)
}
