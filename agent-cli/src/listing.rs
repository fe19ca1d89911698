//! Cells of lists of sessions.

use std::collections::HashSet;
use std::fmt::Display;

use agent_core::Timestamp;
use agent_core::session::SessionSummary;

use crate::layout::fit;

/// Number of characters of a short id, at least.
const ID_CHARS: usize = 8;

/// Short ids of the objects on one page.
///
/// A short id is the end of an id. An id begins with the time at which it was made, so that sessions of one minute share
/// eight characters and more, and those of one week the first three, which people would take for the same; its end is random.
pub(crate) struct ShortIds(usize);

impl ShortIds {
    /// Chooses the length: as many characters as tell these ids apart.
    pub(crate) fn of(ids: impl IntoIterator<Item = impl Display>) -> Self {
        let ids: Vec<_> = ids.into_iter().map(|id| id.to_string()).collect();
        let is_unique = |chars: &usize| {
            let ends: HashSet<_> = ids.iter().map(|id| end(id, *chars)).collect();
            ends.len() == ids.len()
        };
        Self((ID_CHARS..36).find(is_unique).unwrap_or(36))
    }

    pub(crate) fn short(&self, id: impl Display) -> String {
        end(&id.to_string(), self.0).to_owned()
    }
}

fn end(id: &str, chars: usize) -> &str {
    id.get(id.len().saturating_sub(chars)..).unwrap_or(id)
}

/// Returns how long ago a time is: `3 min`, `2 h`, `5 d`; `now` within the minute, and for clocks that are ahead.
pub(crate) fn age(now: Timestamp, at: Timestamp) -> String {
    let minutes = (now.as_micros() - at.as_micros()) / 60_000_000;
    match minutes {
        ..1 => "now".to_owned(),
        1..60 => format!("{minutes} min"),
        60..2880 => format!("{} h", minutes / 60),
        _ => format!("{} d", minutes / 1440),
    }
}

/// Returns a number of bytes for people: `812 B`, `12 KiB`, `3.4 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(unit, _)| bytes >= *unit) {
        None => format!("{bytes} B"),
        Some((unit, name @ "KiB")) => format!("{} {name}", bytes / unit),
        Some((unit, name)) => format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit),
    }
}

/// Returns the title of a session for lists, on one line; for a part of a search index, that it is one.
pub(crate) fn title(session: &SessionSummary) -> String {
    title_of(session.is_of_search_index(), session.display_title())
}

/// Returns the title of a session of which no more is known.
pub(crate) fn title_of(is_of_search_index: bool, title: Option<&str>) -> String {
    if is_of_search_index { "(search index)".to_owned() } else { on_a_line(title.unwrap_or_default()) }
}

/// Returns a title as a cell: on a terminal of this width it is cut, so that the last message has a place beside it.
pub(crate) fn title_cell(title: &str, width: Option<usize>) -> String {
    width.map_or_else(|| title.to_owned(), |width| fit(title, (width / 5).clamp(12, 32)).into_owned())
}

/// Returns the beginning of the last message of a session, on one line.
pub(crate) fn last_message(session: &SessionSummary) -> String {
    on_a_line(session.preview.as_deref().unwrap_or_default())
}

fn on_a_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ages and sizes are given in the largest unit that is not zero, and are rounded down.
    #[test]
    fn ages_and_sizes_are_short() {
        let now = Timestamp::from_micros(1_771_151_400_000_000);
        let ages =
            [(-9, "now"), (59, "now"), (60, "1 min"), (3599, "59 min"), (3600, "1 h"), (172_799, "47 h")];
        for (seconds, text) in ages.into_iter().chain([(172_800, "2 d"), (40_000_000, "462 d")]) {
            assert_eq!(age(now, now.plus_micros(-seconds * 1_000_000)), text);
        }
        let sizes = [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (48_213, "47 KiB"), (1 << 20, "1.0 MiB")];
        for (bytes, text) in
            sizes.into_iter().chain([(7_654_321_000, "7.1 GiB"), (u64::MAX, "16777215.9 TiB")])
        {
            assert_eq!(size(bytes), text);
        }
    }
}
