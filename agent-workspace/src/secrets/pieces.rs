//! Redaction of a text that is streamed in pieces, including values that span several pieces.

use crate::secrets::tenant::Secrets;

/// Redacts values in a text that is streamed in pieces. Text that may be the beginning of a value is held back until
/// more text arrives.
#[derive(Debug, Default)]
pub struct Pieces {
    held: String,
    /// Number of bytes of it that were returned already, and are kept for what is found behind them.
    returned: usize,
    /// Number of bytes from which on it is searched again.
    next: usize,
}

impl Pieces {
    /// Adds a piece; returns the text that can be shown now.
    pub fn push(&mut self, secrets: &Secrets, piece: &str) -> String {
        self.held.push_str(piece);
        if self.held.len() < self.next {
            return String::new();
        }
        let until = secrets.given().complete_prefix(self.returned, &self.held);
        let shown = self.shown(secrets, until);
        // What is held back is searched a few times while it doubles, not with each piece.
        self.next = self.held.len() + self.held.len() / 16;
        shown
    }

    /// Returns the text that was held back, at the end of the stream.
    pub fn rest(&mut self, secrets: &Secrets) -> String {
        let rest = self.shown(secrets, self.held.len());
        *self = Self::default();
        rest
    }

    /// Returns the text up to a place, with values replaced.
    fn shown(&mut self, secrets: &Secrets, until: usize) -> String {
        let known = secrets.given();
        let (mut out, mut done) = (String::new(), self.returned);
        let all = known.find_behind(self.returned, &self.held);
        for (at, mark) in all.into_iter().take_while(|(at, _)| at.start < until) {
            out.push_str(&self.held[done..at.start]);
            out.push_str(&mark.to_string());
            done = at.end;
        }
        let until = until.max(done);
        out.push_str(&self.held[done..until]);
        let kept = self.held.floor_char_boundary(until.saturating_sub(known.context()));
        self.returned = until - kept;
        self.held.drain(..kept);
        out
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::collections::BTreeMap;

    use agent_core::WorkspaceId;
    use futures::FutureExt;
    use proptest::prelude::*;

    use super::*;
    use crate::secrets::{Secret, SecretName, patterns};

    const KEY: &str = "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8";
    const JWT: &str = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI0NzExIn0.c2lnbmF0dXJl";
    const PEM: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8Q\n-----END PRIVATE KEY-----";

    /// With one value that was given out.
    fn secrets() -> Secrets {
        let name: SecretName = "a".parse().unwrap();
        let secrets = Secrets::new(BTreeMap::from([(name.clone(), Secret::new("correct horse").unwrap())]));
        secrets.reveal(WorkspaceId::DEFAULT, &name).now_or_never().unwrap().unwrap();
        secrets.with_patterns()
    }

    /// Each character as JSON may have it.
    fn escaped(text: &str, how: u8) -> String {
        let spell = |c: char| match how {
            0 => c.to_string(),
            1 if c == '\n' => "\\n".to_owned(),
            1 => c.to_string(),
            2 => format!("\\u{:04x}", u32::from(c)),
            _ => format!("\\\\u{:04x}", u32::from(c)),
        };
        text.chars().map(spell).collect()
    }

    fn streamed(secrets: &Secrets, text: &str, sizes: &[usize]) -> Vec<String> {
        let (mut pieces, mut shown, mut at) = (Pieces::default(), Vec::new(), 0);
        for size in sizes.iter().cycle() {
            let end = text.ceil_char_boundary(at + size);
            shown.push(pieces.push(secrets, &text[at..end]));
            at = end;
            if at == text.len() {
                break;
            }
        }
        shown.push(pieces.rest(secrets));
        shown
    }

    /// A pattern that is cut at any place, with any escapes, shows no part of it.
    #[test]
    fn cut_patterns_show_no_part() {
        let secrets = secrets();
        for (secret, kind) in [(KEY, "GitHub token"), (JWT, "JWT"), (PEM, "private key")] {
            for how in 0..4 {
                let text = format!("it is {}, so", escaped(secret, how));
                for cut in 1..text.len() {
                    let shown = streamed(&secrets, &text, &[cut, text.len()]);
                    assert!(
                        "it is ".starts_with(&shown[0]) || shown[0].contains("(secret: "),
                        "{}",
                        shown[0]
                    );
                    assert_eq!(shown.concat(), format!("it is (secret: {kind}), so"), "{cut}");
                    let end = secrets.complete_prefix(&text[..cut]);
                    assert!(end <= 6 || end >= text.len() - 5, "{}", &text[..end]);
                }
            }
        }
    }

    /// What never ends is not held for ever, and not searched with each piece.
    #[test]
    fn endless_patterns_are_shown_and_cost_linear_time() {
        let secrets = secrets();
        for begins in ["eyJ", "sk-", "-----BEGIN PRIVATE KEY-----\n"] {
            let text = format!("{begins}{}", "a".repeat(40_000));
            let (mut pieces, mut searched, mut shown) = (Pieces::default(), 0, 0);
            for at in 0..text.len() {
                let next = pieces.next;
                shown += pieces.push(&secrets, &text[at..=at]).len();
                searched += if pieces.next == next { 0 } else { pieces.held.len() };
                assert!(pieces.held.len() < patterns::LONGEST + patterns::LONGEST / 8, "{begins}");
            }
            assert!(searched < 100 * text.len() && shown > 20_000, "{begins}: {searched}, {shown}");
        }
    }

    proptest! {
        /// However a text is divided, it is redacted as the whole text is.
        #[test]
        fn division_of_patterns_does_not_matter(
            parts in proptest::collection::vec(
                (
                    prop_oneof![
                        Just(KEY), Just(&KEY[..20]), Just(JWT), Just(PEM), Just(&PEM[..40]), Just("sk-"), Just("correct horse"),
                        Just("x"), Just(" "), Just("-"), Just("."), Just("\n"), Just("\u{1f511}"), Just("eyJ"), Just("\""),
                    ],
                    0..4_u8,
                ),
                0..10,
            ),
            sizes in proptest::collection::vec(1_usize..60, 1..20),
        ) {
            let secrets = secrets();
            let text: String = parts.iter().map(|(part, how)| escaped(part, *how)).collect();
            prop_assert_eq!(streamed(&secrets, &text, &sizes).concat(), secrets.redact(&text).into_owned(), "{}", text);
        }
    }
}
