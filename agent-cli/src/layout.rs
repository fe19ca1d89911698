//! Tables for people: columns under headings, and what fits on a line of the terminal.

use std::borrow::Cow;
use std::io::{self, IsTerminal};

use rustix::termios::tcgetwinsize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::visible::visible;

/// Lays out rows under headings, two spaces between columns. Lines that are wider than `width` columns are cut.
pub(crate) fn lines(headings: &[&str], rows: &[Vec<String>], width: Option<usize>) -> Vec<String> {
    let headings = headings.iter().map(|heading| Cow::Borrowed(*heading)).collect();
    let rows = rows.iter().map(|row| row.iter().map(|cell| visible(cell)).collect());
    let all: Vec<Vec<Cow<'_, str>>> = std::iter::once(headings).chain(rows).collect();
    let mut widths = Vec::new();
    for row in &all {
        widths.resize(widths.len().max(row.len()), 0);
        widths.iter_mut().zip(row).for_each(|(width, cell)| *width = cell.width().max(*width));
    }
    let line = |row: &Vec<Cow<'_, str>>| {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            line.push_str(&" ".repeat(width - cell.width() + 2));
        }
        let line = line.trim_end();
        width.map_or_else(|| line.to_owned(), |width| fit(line, width).into_owned())
    };
    all.iter().map(line).collect()
}

/// Returns the text, cut to this number of columns.
pub(crate) fn fit(text: &str, width: usize) -> Cow<'_, str> {
    if text.width() <= width {
        return text.into();
    }
    let mut used = 1;
    let ends = |(_, c): &(usize, char)| {
        used += c.width().unwrap_or(1);
        used > width
    };
    let end = text.char_indices().find(ends).map_or(text.len(), |(at, _)| at);
    format!("{}…", &text[..end]).into()
}

/// Returns the number of columns of the terminal on which the output is shown; `None` if it is shown on none, or on one that
/// does not tell, unless `COLUMNS` does.
pub(crate) fn terminal_width() -> Option<usize> {
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let size = tcgetwinsize(&stdout).ok().map(|size| usize::from(size.ws_col)).filter(|width| *width > 0);
    size.or_else(|| std::env::var("COLUMNS").ok()?.parse().ok().filter(|width| *width > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns are aligned as a terminal shows them, where some characters take two columns and others none.
    #[test]
    fn columns_are_aligned_by_what_a_terminal_shows() {
        let rows = ["안녕하세요", "e\u{301}te", "plain"].map(|title| vec![title.to_owned(), "x".to_owned()]);
        let laid_out = lines(&["TITLE", "B"], &rows, None);
        assert_eq!(laid_out, ["TITLE       B", "안녕하세요  x", "e\u{301}te         x", "plain       x"]);
    }

    /// A line is cut at the width, also in the middle of what takes two columns; one that fits is whole.
    #[test]
    fn lines_are_cut_to_the_width() {
        assert_eq!(fit("안녕하세요", 10), "안녕하세요");
        assert_eq!(fit("안녕하세요", 9), "안녕하세…");
        assert_eq!(fit("안녕하세요", 8), "안녕하…");
        assert_eq!(fit("plain", 4), "pla…");
        assert_eq!(lines(&["A"], &[vec!["0123456789".to_owned()]], Some(5)), ["A", "0123…"]);
    }
}
