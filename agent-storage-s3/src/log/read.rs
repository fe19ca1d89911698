//! Reads events from the windows that carry them, found from the head backwards or by their number.

use std::sync::Arc;

use agent_core::event::Event;
use agent_core::session::SessionRecord;
use agent_core::store::{Damaged, EventPage, PAGE_MAX, ReadEvents};
use agent_core::{Error, ErrorKind, Result, Seq, SessionId};
use futures::TryStreamExt;
use tokio::time::Instant;

use crate::error::corrupt;
use crate::layout::keys::Slot;
use crate::layout::line::Line;
use crate::log::slot::{Entry, Found, Reference, event};
use crate::log::slots::{Slots, record};

/// Number of events that are examined at a time if most of them may not match.
const STRIDE: u64 = 512;

/// Returns the first and the last of the session's own events that can be read.
fn extent(head: &Entry, record: &SessionRecord) -> (Seq, Seq) {
    (record.lineage.base().next(), head.head.kept.unwrap_or(record.head).min(record.head))
}

/// Page that is being filled, in the read's direction.
struct Filling<'a> {
    read: &'a ReadEvents,
    limit: usize,
    events: Vec<Event>,
    bytes: usize,
    /// True if more events match than fit in the page.
    full: bool,
}

impl Filling<'_> {
    fn take(&mut self, event: Event) {
        if !self.read.matches(&event) {
            return;
        }
        self.bytes += event.size_bytes();
        self.full =
            self.events.len() >= self.limit || (!self.events.is_empty() && self.bytes > self.read.max_bytes);
        self.events.push(event);
    }
}

fn before(seq: Seq) -> Seq {
    Seq::new(seq.get().saturating_sub(1))
}

/// Returns a page of the session's own events.
pub(crate) async fn read(slots: &Slots, id: SessionId, read: &ReadEvents) -> Result<EventPage> {
    let until = slots.bucket.deadline();
    let is_known = |head: &Arc<Entry>| read.known_head > Seq::ZERO && head.last() >= read.known_head;
    let mut head = match slots.heads.get(id).filter(is_known) {
        Some(head) => head,
        None => match slots.existing(id, until).await {
            // The events before it are not the newest ones.
            Err(error) if *error.kind() == ErrorKind::Corrupt && !read.newest => {
                return read_older(slots, id, read, error).await;
            }
            head => head?,
        },
    };
    loop {
        let reader = Reader { slots, id, head: &head, keeps: read.known_head > Seq::ZERO, until };
        let page = reader.page(read).await;
        let damaged = match &page {
            Ok(page) => !page.damaged.is_empty(),
            Err(error) => *error.kind() == ErrorKind::Corrupt,
        };
        if !damaged {
            return page;
        }
        // A missing event may have been purged meanwhile.
        let now = slots.existing(id, until).await?;
        if now.head.kept == head.head.kept {
            return page;
        }
        head = now;
    }
}

/// Returns a page of the events up to the last commit that can be read, where those after it cannot. Each such page names
/// the damage.
///
/// # Errors
///
/// `error`, which says what is damaged, if no commit or no event of the page can be read.
async fn read_older(slots: &Slots, id: SessionId, read: &ReadEvents, error: Error) -> Result<EventPage> {
    let (until, folder) = (slots.bucket.deadline(), slots.keys.slots(id));
    let mut pages = slots.bucket.pages(&folder, None, false, Some(until));
    while let Some(listed) = pages.try_next().await? {
        for key in &listed.keys {
            // Whatever is no slot of this session is passed over, like a damaged one.
            let Some(slot) = slots.keys.slot_of(id, key) else { continue };
            let head = match slots.get(id, slot, until).await {
                Err(error) if *error.kind() == ErrorKind::Corrupt => continue,
                head => head?,
            };
            if let Some(head) = head.filter(|head| head.record.is_some()) {
                let page = Reader { slots, id, head: &head, keeps: false, until }.page(read).await?;
                // A reader that has come so far gets an error, and does not take the end of what is left for that of the log.
                if page.events.is_empty() {
                    return Err(error);
                }
                let mut damaged = page.damaged.clone();
                damaged.push(Damaged::of(format!("session {id}"), &error));
                return Ok(page.with_damaged(damaged));
            }
        }
    }
    Err(error)
}

/// Reader of a session's events, up to one of its commits.
struct Reader<'a> {
    slots: &'a Slots,
    id: SessionId,
    head: &'a Arc<Entry>,
    /// Whether objects may be taken from the cache, and are kept there.
    keeps: bool,
    until: Instant,
}

impl Reader<'_> {
    async fn page(&self, read: &ReadEvents) -> Result<EventPage> {
        if read.limit == 0 {
            return Ok(EventPage::default());
        }
        let (first, last) = extent(self.head, record(self.head)?);
        let low = read.after.next().max(first);
        let high = read.before.map_or(last, |seq| before(seq).min(last));
        let limit = read.limit.min(PAGE_MAX);
        let mut filling = Filling { read, limit, events: Vec::new(), bytes: 0, full: false };
        let done = if low > high {
            Ok(())
        } else if read.newest {
            self.descend(low, high, &mut filling).await
        } else {
            self.ascend(low, high, &mut filling).await
        };
        let Filling { events, full, .. } = filling;
        let error = match done {
            Ok(()) => None,
            Err(error) if *error.kind() == ErrorKind::Corrupt && !events.is_empty() => Some(error),
            Err(error) => return Err(error),
        };
        let page = EventPage::collect(read, events.into_iter().map(Ok))?;
        Ok(match error {
            Some(error) if !full => {
                page.with_damaged(vec![Damaged::of(format!("session {}", self.id), &error)])
            }
            _ => page,
        })
    }

    async fn descend(&self, low: Seq, high: Seq, filling: &mut Filling<'_>) -> Result<()> {
        let mut entry = self.carrier(high).await?;
        let mut seq = high;
        loop {
            while seq >= entry.head.window.max(low) {
                filling.take(self.event(&entry, seq).await?);
                seq = before(seq);
                if filling.full {
                    return Ok(());
                }
            }
            if seq < low {
                return Ok(());
            }
            entry = self.window_before(&entry).await?;
        }
    }

    async fn ascend(&self, low: Seq, high: Seq, filling: &mut Filling<'_>) -> Result<()> {
        let mut low = low;
        let stride = if filling.read.kinds.is_empty() { filling.limit as u64 } else { STRIDE };
        while low <= high && !filling.full {
            let end = Seq::new(low.get().saturating_add(stride)).min(high);
            let entries = match self.windows(low, end).await {
                Ok(entries) => entries,
                // A damaged object hides the locations of the events before it. The own events of each commit can still
                // be found.
                Err(error) if *error.kind() == ErrorKind::Corrupt => {
                    vec![self.seek(low).await?]
                }
                Err(error) => return Err(error),
            };
            let from = low;
            for entry in entries.iter().rev() {
                while low <= end.min(entry.last()) && !filling.full {
                    filling.take(self.event(entry, low).await?);
                    low = low.next();
                }
            }
            if low == from {
                return Err(self.missing(low));
            }
        }
        Ok(())
    }

    /// Returns the objects that carry the events from `low` to `end`, the last first.
    async fn windows(&self, low: Seq, end: Seq) -> Result<Vec<Arc<Entry>>> {
        let mut entry = self.carrier(end).await?;
        let mut entries = vec![entry.clone()];
        while entry.head.window > low {
            entry = self.window_before(&entry).await?;
            entries.push(entry.clone());
        }
        Ok(entries)
    }

    /// Returns an object that carries the event `seq`, which must exist.
    async fn carrier(&self, seq: Seq) -> Result<Arc<Entry>> {
        let head = self.head;
        if seq >= head.head.window && seq <= head.last() && head.is_whole() && !head.window.is_empty() {
            return Ok(head.clone());
        }
        // The event is usually in one of the two windows before that of the head.
        if seq < head.head.window
            && head.head.window.get() - seq.get() <= STRIDE / 4
            && head.head.kept.is_none()
        {
            let mut entry = head.clone();
            for _ in 0..2 {
                if entry.head.previous.is_none() {
                    break;
                }
                entry = self.window_before(&entry).await?;
                if seq >= entry.head.window {
                    return Ok(entry);
                }
            }
        }
        if self.keeps
            && let Some(kept) = self.slots.heads.window_with(self.id, seq)
        {
            return Ok(kept);
        }
        let found = self.seek(seq).await?;
        if self.keeps {
            self.slots.heads.keep_window(self.id, &found);
        }
        Ok(found)
    }

    /// Returns the commit that contains the event `seq`, found by its number.
    async fn seek(&self, seq: Seq) -> Result<Arc<Entry>> {
        let missing = || self.missing(seq);
        // The listing includes the key of the slot itself.
        let after = self.slots.keys.slot(self.id, Slot(seq.get().saturating_add(1)));
        let slot = self.slots.first_slot(self.id, Some(after), self.until).await?.ok_or_else(missing)?;
        let entry = self.slots.get(self.id, slot, self.until).await?.ok_or_else(missing)?;
        if entry.record.is_none() || seq < entry.head.window || seq > entry.last() {
            return Err(missing());
        }
        Ok(entry)
    }

    /// Returns the object that has the event before this one's window.
    async fn window_before(&self, entry: &Entry) -> Result<Arc<Entry>> {
        let last = before(entry.head.window);
        let missing = || self.missing(last);
        let slot = entry.head.previous.ok_or_else(missing)?;
        let kept = if self.keeps { self.slots.heads.window(self.id, slot) } else { None };
        let found = match kept {
            Some(kept) => kept,
            None => {
                let found = self.slots.get(self.id, slot, self.until).await?.ok_or_else(missing)?;
                if self.keeps {
                    self.slots.heads.keep_window(self.id, &found);
                }
                found
            }
        };
        if found.record.is_none() || found.head.window > last || found.last() < last {
            return Err(missing());
        }
        Ok(found)
    }

    fn missing(&self, seq: Seq) -> Error {
        corrupt(&format!("event {seq} of session {}", self.id), "is missing")
    }

    /// Returns an event of an object's window, also if it is stored in another object.
    async fn event(&self, entry: &Entry, seq: Seq) -> Result<Event> {
        match entry.event(seq) {
            Ok(Found::Event(event)) => Ok(event),
            Ok(Found::Elsewhere(place)) => self.fetch(&place).await,
            // The commit that wrote the event has it, too.
            Err(error) if seq < entry.head.first => match self.seek(seq).await?.event(seq)? {
                Found::Event(event) => Ok(event),
                Found::Elsewhere(_) => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    /// Returns an event that is stored in another slot.
    async fn fetch(&self, place: &Reference) -> Result<Event> {
        let damaged = || {
            let object = format!("event {} of session {}", place.seq, self.id);
            corrupt(&object, &format!("is damaged in slot {}", place.slot.0))
        };
        // An empty range is not requested from the server.
        let end = place.offset.checked_add(place.bytes).filter(|end| *end > place.offset);
        let range = place.offset..end.ok_or_else(damaged)?;
        let key = self.slots.keys.slot(self.id, place.slot);
        let part = self.slots.bucket.get_range(&key, range, self.until).await?;
        let line = Line { raw: part.ok_or_else(damaged)?.bytes, offset: place.offset };
        // A line of another session may have the same number, length and offset.
        if line.crc() != place.crc {
            return Err(damaged());
        }
        event(&line, place.seq).ok_or_else(damaged)
    }
}
