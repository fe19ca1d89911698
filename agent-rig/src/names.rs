//! Names of tools in the form that each API takes.
//!
//! OpenAI takes letters, digits, `_` and `-`, at most 64 ([reference](https://platform.openai.com/docs/api-reference/chat/create)),
//! Gemini a letter or `_` first ([reference](https://ai.google.dev/api/caching#FunctionDeclaration)), Anthropic both. Those
//! of hosts' tools are checked when the agent is built. A name that a model invented can be another one; sent as it is, it would be
//! refused in each later request.

use std::borrow::Cow;

use agent_core::BlobName;

const MAX_BYTES: usize = 64;

/// Number of characters of the hash that keeps two names apart.
const HASH: usize = 8;

/// Returns the name if each API takes it, or else one that each takes: always the same for one name, and another one for
/// another.
pub(crate) fn on_wire(name: &str) -> Cow<'_, str> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let is_first = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
    if name.len() <= MAX_BYTES && name.bytes().all(is_word) && name.as_bytes().first().is_some_and(is_first) {
        return Cow::Borrowed(name);
    }
    let mut taken: String =
        name.bytes().map(|byte| if is_word(byte) { char::from(byte) } else { '_' }).collect();
    if !taken.as_bytes().first().is_some_and(is_first) {
        taken.insert(0, '_');
    }
    taken.truncate(MAX_BYTES - HASH - 1);
    let hash = BlobName::of(name.as_bytes()).to_string();
    Cow::Owned(format!("{taken}_{}", &hash[..HASH]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_an_api_refuses_get_others() {
        for name in ["clock", "_a-b_9", &"a".repeat(64)] {
            assert!(matches!(on_wire(name), Cow::Borrowed(same) if same == name), "{name}");
        }
        let mut all = std::collections::BTreeSet::new();
        for name in [
            "",
            "functions.clock",
            "functions_clock",
            "no such tool",
            "no such tool ",
            "9",
            "-",
            "Überblick",
            &"a".repeat(65),
            &"a".repeat(66),
        ] {
            let sent = on_wire(name).into_owned();
            assert!(sent.len() <= 64 && matches!(on_wire(&sent), Cow::Borrowed(_)), "{name}: {sent}");
            assert!(all.insert(sent), "{name}");
        }
    }
}
