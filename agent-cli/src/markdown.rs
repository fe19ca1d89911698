//! Markdown of an answer, styled for a terminal while it is streamed.

use std::mem;

use anstyle::{AnsiColor, Style};
use pulldown_cmark::{Event, Parser, Tag, TagEnd};

use crate::visible::visible;

/// Style of code.
const CODE: Style = AnsiColor::Cyan.on_default();
/// Style of marks that are no part of the text.
const MARK: Style = Style::new().dimmed();
/// Number of bytes of a line from which it is shown as it is.
const HELD_MAX: usize = 4 << 10;

/// Renderer of one answer after another. Text is shown as soon as no later text changes its style: that of a line with
/// an open `**` waits for the other one, or for the end of the line.
#[derive(Debug, Default)]
pub(crate) struct Markdown {
    /// Beginning of the text that is not shown yet; it has no line end.
    held: String,
    /// Last character of the line that is shown; `None` at the beginning of a line.
    before: Option<char>,
    /// Style of the whole line.
    base: Style,
    /// Fence of the code block that is open.
    fence: Option<String>,
}

impl Markdown {
    /// Adds a piece of the answer; returns what is to be shown now.
    pub(crate) fn push(&mut self, piece: &str) -> String {
        let mut out = String::new();
        for part in piece.split_inclusive('\n') {
            match part.strip_suffix('\n') {
                Some(part) => {
                    self.held.push_str(part);
                    self.end_line(&mut out);
                    out.push('\n');
                }
                None => {
                    self.held.push_str(part);
                    self.show_settled(&mut out);
                }
            }
        }
        out
    }

    /// Ends the answer; returns what was not shown yet.
    pub(crate) fn end(&mut self) -> String {
        let mut out = String::new();
        self.end_line(&mut out);
        self.fence = None;
        out
    }

    fn end_line(&mut self, out: &mut String) {
        if self.before.is_none() && self.ends_at_fence() {
            styled(MARK, &mem::take(&mut self.held), out);
        } else {
            self.begin_line(true, out);
            self.show(out);
        }
        (self.before, self.base) = (None, Style::new());
    }

    fn show_settled(&mut self, out: &mut String) {
        let first = self.held.trim_start().chars().next();
        let is_long = self.held.len() > HELD_MAX;
        if self.before.is_none() && !is_long {
            match (&self.fence, first) {
                // It may be a fence, or a mark of a heading or a list.
                (_, None | Some('`' | '~')) | (None, Some('#')) => return,
                _ => {}
            }
        }
        if self.begin_line(is_long, out) && (is_long || self.is_settled()) {
            self.show(out);
        }
    }

    /// Returns whether the line opens or closes a code block, and remembers which.
    fn ends_at_fence(&mut self) -> bool {
        let line = self.held.trim();
        let mark = if line.starts_with('~') { '~' } else { '`' };
        let run = line.chars().take_while(|c| *c == mark).count();
        if run < 3 {
            return false;
        }
        match &self.fence {
            None => {
                self.fence = line.get(..run).map(str::to_owned);
                true
            }
            Some(fence) if line.len() == run && line.starts_with(fence.as_str()) => {
                self.fence = None;
                true
            }
            Some(_) => false,
        }
    }

    /// Shows the mark with which a line begins. Returns whether it is known that there is none, or which.
    fn begin_line(&mut self, is_whole: bool, out: &mut String) -> bool {
        if self.before.is_some() || self.fence.is_some() {
            return true;
        }
        let text = self.held.trim_start();
        let (indent, marks) = (self.held.len() - text.len(), text.chars().take_while(|c| *c == '#').count());
        let shown = match text.as_bytes() {
            _ if (1..=6).contains(&marks) && text[marks..].starts_with(' ') => {
                self.base = Style::new().bold();
                Some((marks + 1, ""))
            }
            [b'-' | b'+' | b'*', b' ', ..] => Some((2, "• ")),
            [b'>', b' ', ..] => Some((2, "│ ")),
            [b'-' | b'+' | b'*' | b'>'] if !is_whole => return false,
            _ => None,
        };
        if let Some((len, mark)) = shown {
            out.push_str(&self.held[..indent]);
            styled(MARK, mark, out);
            self.held.drain(..indent + len);
            self.before = Some(' ');
        }
        true
    }

    /// Returns the text with what is before and after it, so that it is read as the middle of a paragraph, and where it is.
    fn in_context(&self) -> (String, std::ops::Range<usize>) {
        let before = self.before.unwrap_or(' ');
        let begin = 1 + before.len_utf8();
        (format!("x{before}{} x", self.held), begin..begin + self.held.len())
    }

    /// Returns whether later text of the line changes nothing in the style of the text.
    fn is_settled(&self) -> bool {
        if self.fence.is_some() {
            return true;
        }
        if self.held.ends_with(['*', '_', '`', '\\']) {
            return false;
        }
        if !self.held.contains(['*', '_', '`', '[']) {
            return true;
        }
        let (text, place) = self.in_context();
        Parser::new(&text).into_offset_iter().all(|(event, range)| match event {
            // Marks in it are a part of the text, as long as no later ones belong to them.
            Event::Text(_) => text[range.clone()]
                .char_indices()
                .map(|(at, c)| (range.start + at, c))
                .filter(|(at, _)| place.contains(at))
                .all(|(at, c)| !is_open(&text, at, c)),
            _ => true,
        })
    }

    /// Shows the text that is held.
    fn show(&mut self, out: &mut String) {
        let Some(last) = self.held.chars().last() else { return };
        if self.fence.is_some() {
            styled(CODE, &self.held, out);
        } else {
            let (text, place) = self.in_context();
            inline(&text, place, self.base, out);
        }
        self.held.clear();
        self.before = Some(last);
    }
}

/// Returns whether a character of a text may begin something that ends later.
fn is_open(text: &str, at: usize, c: char) -> bool {
    let (before, after) = (text[..at].chars().next_back(), text[at + c.len_utf8()..].chars().next());
    match c {
        '`' | '[' => true,
        '*' => !(before.is_some_and(char::is_whitespace) && after.is_some_and(char::is_whitespace)),
        '_' => !(before.is_some_and(char::is_alphanumeric) && after.is_some_and(char::is_alphanumeric)),
        _ => false,
    }
}

/// Shows a part of a paragraph in its style.
fn inline(text: &str, place: std::ops::Range<usize>, base: Style, out: &mut String) {
    let mut styles = vec![base];
    // Addresses of links, where each ends.
    let mut links = Vec::new();
    for (event, range) in Parser::new(text).into_offset_iter() {
        let style = styles.last().copied().unwrap_or(base);
        match event {
            Event::Start(Tag::Strong) => styles.push(style.bold()),
            Event::Start(Tag::Emphasis) => styles.push(style.italic()),
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                links.push((dest_url, out.len()));
                styles.push(style.underline());
            }
            Event::End(TagEnd::Strong | TagEnd::Emphasis) => drop(styles.pop()),
            Event::End(TagEnd::Link | TagEnd::Image) => {
                styles.pop();
                // Where it leads is always said, unless the text says so.
                if let Some((url, begin)) = links.pop()
                    && !out.get(begin..).is_some_and(|shown| shown.contains(&*url))
                {
                    // References of characters in it are replaced, so that it may hold any.
                    styled(MARK, &format!(" ({})", visible(&url)), out);
                }
            }
            Event::Code(code) => styled(CODE, &code, out),
            Event::Start(_) | Event::End(_) => {}
            _ => {
                let (begin, end) = (range.start.max(place.start), range.end.min(place.end));
                styled(style, text.get(begin..end).unwrap_or_default(), out);
            }
        }
    }
}

/// Shows a text in a style.
pub(crate) fn styled(style: Style, text: &str, out: &mut String) {
    if !text.is_empty() {
        out.push_str(&format!("{style}{text}{style:#}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the characters that are shown, each with the styles that it has.
    fn seen(out: &str) -> Vec<(char, String)> {
        let (mut seen, mut style, mut rest) = (Vec::new(), String::new(), out);
        while let Some(c) = rest.chars().next() {
            match rest.strip_prefix("\u{1b}[") {
                Some(after) => {
                    let (code, after) = after.split_once('m').unwrap();
                    if code == "0" {
                        style.clear();
                    } else {
                        style += code;
                    }
                    rest = after;
                }
                None => {
                    seen.push((c, style.clone()));
                    rest = &rest[c.len_utf8()..];
                }
            }
        }
        seen
    }

    fn in_pieces<'a>(pieces: impl IntoIterator<Item = &'a str>) -> String {
        let mut markdown = Markdown::default();
        let mut out: String = pieces.into_iter().map(|piece| markdown.push(piece)).collect();
        out.push_str(&markdown.end());
        out
    }

    fn text(out: &str) -> String {
        seen(out).into_iter().map(|(c, _)| c).collect()
    }

    #[test]
    fn marks_become_styles() {
        let shown = |text: &str| in_pieces([text]);
        assert_eq!(shown("a **b** c"), "a \u{1b}[1mb\u{1b}[0m c");
        assert_eq!(shown("use `x_y` *now*"), "use \u{1b}[36mx_y\u{1b}[0m \u{1b}[3mnow\u{1b}[0m");
        assert_eq!(shown("## Head **it**"), "\u{1b}[1mHead \u{1b}[0m\u{1b}[1mit\u{1b}[0m");
        assert_eq!(text(&shown("- one\n  * two\n1. three\n> said")), "• one\n  • two\n1. three\n│ said");
        assert_eq!(shown("```rs\nlet a = *b;\n```\nend *x*").matches("\u{1b}[36m").count(), 1);
        assert_eq!(text(&shown("```rs\n# no\n```\n")), "```rs\n# no\n```\n");
        assert_eq!(
            text(&shown("see [the page](https://a.example/x) now")),
            "see the page (https://a.example/x) now"
        );
        assert_eq!(text(&shown("<https://a.example/x> R&amp;D")), "https://a.example/x R&amp;D");
    }

    /// What is no Markdown, or none that is rendered, is shown as it is.
    #[test]
    fn other_text_is_not_changed() {
        for text_in in [
            "",
            " ",
            "\n\n",
            "2 * 3 * 4 = 24",
            "snake_case_name and _x",
            "a [1] b [x",
            "#!/bin/sh",
            "#",
            "-",
            "--- x",
            "| a | b |\n|---|---|\n| 1 | 2 |",
            "C:\\dir\\file",
            "<b>bold</b>",
            "end  ",
            "  in  side",
            "日本語の文 **",
            "~~~x",
        ] {
            assert_eq!(text(&in_pieces([text_in])), text_in);
        }
    }

    /// An address cannot steer the terminal by references of characters.
    #[test]
    fn addresses_steer_nothing() {
        let out = in_pieces(["[a](http://x/&#27;[2J) and [b](http://x/&#8238;y)"]);
        assert!(!text(&out).contains(['\u{1b}', '\u{202e}']), "{out:?}");
        assert!(text(&out).contains("\\u{1b}"), "{out:?}");
    }

    /// Every text of up to five of these characters looks the same in pieces of one character as in one.
    #[test]
    fn pieces_look_like_the_whole() {
        const CHARS: [char; 9] = ['a', ' ', '*', '_', '`', '[', '\n', '-', '\\'];
        let long =
            "# Head\n```rs\nlet a = *b; // `c`\n  ```\n~~~~\n~~~\n```\n~~~~\n- [x](y) **z**\n> 5 > 4\n";
        assert_eq!(seen(&in_pieces(long.split_inclusive(|_| true))), seen(&in_pieces([long])));
        let mut texts = vec![String::new()];
        for _ in 0..5 {
            texts = texts.iter().flat_map(|text| CHARS.map(|c| format!("{text}{c}"))).collect();
            for text in &texts {
                let whole = in_pieces([text.as_str()]);
                let pieces = in_pieces(text.split_inclusive(|_| true));
                assert_eq!(seen(&pieces), seen(&whole), "{text:?}");
            }
        }
    }

    /// Text is shown before its line ends, unless a mark is open; a long line does not wait.
    #[test]
    fn text_is_shown_as_it_comes() {
        let mut markdown = Markdown::default();
        assert_eq!(markdown.push("some wo"), "some wo");
        assert_eq!(markdown.push("rds, **bo"), "");
        assert_eq!(markdown.push("ld** and"), "rds, \u{1b}[1mbold\u{1b}[0m and");
        assert_eq!(markdown.push(" a lone * in"), " a lone * in");
        assert_eq!(markdown.push(" *open"), "");
        assert_eq!(text(&markdown.push(&"x".repeat(HELD_MAX))).len(), HELD_MAX + " *open".len());
    }
}
