//! Work by hand that our stores are compared with.

use std::time::Duration;

use agent_core::async_trait;

use crate::outcome::Outcome;

/// About as long as the stored form of a message of one KiB.
pub(crate) const LINE: usize = 1274;

/// About as long as a session's record.
pub(crate) const RECORD: usize = 600;

/// By hand what our stores are measured at.
#[async_trait]
pub(crate) trait Floor: Send {
    /// Stores so many messages at once, and what changes of their session, durably.
    fn write(&mut self, messages: u32) -> Outcome;
    /// So many writers at once, each with a session of its own and so many turns of one or two messages: what each turn took.
    async fn write_at_once(&mut self, writers: u32, turns: u32, messages: u32) -> Outcome<Vec<Duration>>;
    /// Puts these lines where they are read from.
    fn fill(&mut self, lines: &[String]) -> Outcome;
    /// The last 50 lines, as bytes.
    fn last_50(&mut self) -> Outcome;
    /// All lines, each parsed as an event.
    fn load(&mut self) -> Outcome;
    /// Puts so many sessions where they are listed from.
    fn fill_list(&mut self, sessions: u32) -> Outcome;
    /// The 50 sessions that were active last, as bytes.
    fn list_50(&mut self) -> Outcome;
    /// A new session of its own, durably.
    fn create(&mut self) -> Outcome;
}
