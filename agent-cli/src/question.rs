//! Question that a session waits with, as a person is shown it: with the whole call, in pages.

use std::collections::VecDeque;

use agent_core::Seq;
use agent_core::event::ToolUse;
use agent_core::model::{ActionId, ActionKind, PendingAction};
use agent_core::text::{marked, marked_name};

/// Columns and lines of a page: a terminal of 80 columns and 24 lines shows it at once.
const COLUMNS: usize = 80;
const LINES: usize = 18;

/// Question that the session waits with, and what of it was not shown yet.
#[derive(Default)]
pub(crate) struct Question {
    /// Action of the question that was shown last, and the event with its call.
    pub(crate) about: Option<(ActionId, Option<Seq>)>,
    /// Pages that were not shown.
    pub(crate) rest: VecDeque<String>,
    pub(crate) pages: usize,
    /// What the session waits for.
    pub(crate) how: String,
}

impl Question {
    /// Returns whether this is the question of an action.
    pub(crate) fn is_about(&self, action: &PendingAction) -> bool {
        // The id of a call may be used again, by another call.
        self.about.as_ref().is_some_and(|(id, seq)| (id, seq) == (&action.id, &action.seq))
    }
}

/// Returns the question with the whole call, behind the host's sentence, or a part of the model's own question. A question of a tool's own text is shown as that text, if none of it was left
/// out.
pub(crate) fn question(action: &PendingAction, call: Option<&ToolUse>) -> String {
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Own {
        question: Option<String>,
    }
    let Some(call) = call else { return marked(&action.question).into_owned() };
    let own: Own = call.input.to().unwrap_or_default();
    if action.kind == ActionKind::Approval && own.question.as_ref() == Some(&action.question) {
        return marked(&action.question).into_owned();
    }
    let lead = match action.kind {
        ActionKind::ToolConfirmation => "May ",
        ActionKind::ToolResult => "Waits for ",
        _ => "",
    };
    let whole = format!("{lead}{} {}", marked_name(&call.name), marked(call.input.get()));
    let is_call = action.question == PendingAction::about_call(action.kind, &call.name, &call.input);
    if !is_call { format!("{}\n{whole}", marked(&action.question)) } else { whole }
}

/// Splits a text into pages.
pub(crate) fn pages(text: &str) -> VecDeque<String> {
    let (mut pages, mut page) = (VecDeque::new(), String::new());
    let (mut lines, mut columns) = (0, 0);
    for c in text.chars() {
        let width = match c {
            '\n' => COLUMNS - columns,
            '\t' => 8,
            // Characters of other scripts may take two columns.
            _ if c.is_ascii() => 1,
            _ => 2,
        };
        if columns + width > COLUMNS {
            (lines, columns) = (lines + 1, 0);
        }
        if lines >= LINES {
            pages.push_back(std::mem::take(&mut page));
            lines = 0;
        }
        page.push(c);
        columns += width;
        if c == '\n' {
            (lines, columns) = (lines + 1, 0);
        }
    }
    pages.push_back(page);
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_of_a_host_stands_before_the_whole_call() {
        use agent_core::json::RawJson;

        let input = RawJson::parse(r#"{"euro":120}"#).unwrap();
        let call = ToolUse::new("p1".parse().unwrap(), "pay", input.clone());
        let kind = ActionKind::ToolConfirmation;
        let action = |question: &str| PendingAction::new("p1".parse().unwrap(), kind, question);
        let plain = PendingAction::about_call(kind, "pay", &input);
        assert_eq!(question(&action(&plain), Some(&call)), r#"May pay {"euro":120}"#);
        let shown = question(&action("Pay 120 EUR?"), Some(&call));
        assert_eq!(shown, "Pay 120 EUR?\nMay pay {\"euro\":120}");
    }

    #[test]
    fn pages_hold_all_of_a_text_and_fit_on_a_terminal() {
        for text in [
            String::new(),
            "short".to_owned(),
            "x".repeat(COLUMNS * LINES),
            "x".repeat(COLUMNS * LINES + 1),
            "한국어 ".repeat(2_000),
            "\n".repeat(100),
            format!("{}\t{}", "line\n".repeat(50), "y".repeat(5_000)),
        ] {
            let pages = pages(&text);
            assert_eq!(pages.iter().map(String::as_str).collect::<String>(), text);
            for page in &pages {
                let lines: usize =
                    page.lines().map(|line| line.chars().count().div_ceil(COLUMNS).max(1)).sum();
                assert!(lines <= LINES, "{lines}: {page:?}");
            }
        }
        assert_eq!(pages(&"x".repeat(COLUMNS * LINES)).len(), 1);
        assert_eq!(pages(&"x".repeat(COLUMNS * LINES + 1)).len(), 2);
    }
}
