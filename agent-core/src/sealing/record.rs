//! Records, their summaries, and the queries that lists compare with them.

use crate::base::{Error, ErrorKind, Result, SessionId, SessionState};
use crate::model::{DocumentHead, Failure, PendingAction, Timer};
use crate::sealing::Sealing;
use crate::sealing::word::Words;
use crate::session::{SessionRecord, SessionSummary};

/// Opens a record as an encrypted store keeps it.
///
/// # Errors
///
/// `Corrupt` if the record is not sealed, or a word is not one that the session's key sealed.
pub fn open_record(sealed: &SessionRecord, sealing: &dyn Sealing) -> Result<SessionRecord> {
    let mut record = sealed.clone();
    let words = Words::to_open(sealing, record.id);
    let key = record.sealed_by.take();
    // A tombstone has no words, and is opened without its key, which may be dropped. That of a damaged session was never sealed.
    if record.status.state == SessionState::Deleted && record == record.tombstone() {
        return Ok(record);
    }
    let Some(key) = key else { return Err(not_sealed(record.id)) };
    check_key(record.id, &key, sealing)?;
    words.attributes(&mut record.attributes)?;
    words.documents(&mut record.documents)?;
    words.optional("preview", &mut record.first_words)?;
    words.optional("preview", &mut record.preview)?;
    record.timers.iter_mut().try_for_each(|timer| words.timer(timer))?;
    record.action.as_mut().map_or(Ok(()), |action| words.action(action))?;
    record.failure.as_mut().map_or(Ok(()), |failure| words.failure(failure))?;
    Ok(record)
}

/// Opens a summary as an encrypted store lists it.
///
/// # Errors
///
/// As for [`open_record`].
pub fn open_summary(sealed: &SessionSummary, sealing: &dyn Sealing) -> Result<SessionSummary> {
    let mut summary = sealed.clone();
    let words = Words::to_open(sealing, summary.id);
    words.attributes(&mut summary.attributes)?;
    words.optional("preview", &mut summary.first_words)?;
    words.optional("preview", &mut summary.preview)?;
    Ok(summary)
}

/// Checks that what was sealed by `key` is to be opened by it.
pub(super) fn check_key(session: SessionId, key: &str, sealing: &dyn Sealing) -> Result<()> {
    if key == sealing.key() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Denied,
        format!("session {session} is sealed by the key {key}, and the key at hand is {}", sealing.key()),
    ))
}

fn not_sealed(session: SessionId) -> Error {
    Error::corrupt(format!(
        "session {session} is not sealed, and this store is encrypted; somebody wrote it without the keys, or another store was put \
         in its place"
    ))
}

impl Words<'_> {
    pub(super) fn documents(&self, documents: &mut [DocumentHead]) -> Result<()> {
        documents.iter_mut().try_for_each(|head| self.word("document name", &mut head.name))
    }

    pub(super) fn timer(&self, timer: &mut Timer) -> Result<()> {
        self.word("timer key", &mut timer.key)?;
        self.word("timer note", &mut timer.note)
    }

    pub(super) fn action(&self, action: &mut PendingAction) -> Result<()> {
        self.word("question", &mut action.question)?;
        self.optional("tool", &mut action.tool)?;
        action.choices.iter_mut().try_for_each(|choice| self.word("choice", choice))
    }

    pub(super) fn failure(&self, failure: &mut Failure) -> Result<()> {
        self.word("failure", &mut failure.text)?;
        self.optional("fault", &mut failure.fault)
    }
}
