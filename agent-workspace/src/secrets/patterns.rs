//! Secrets that nobody named: keys, tokens and private keys of well-known forms.

use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use crate::secrets::secret::SecretName;
use Rest::{Pem, Random, Run, Token};
use Set::{Alphanumeric, Base32, Dotted, Url};

/// Maximum number of bytes of what is recognized by its form.
pub(super) const LONGEST: usize = 16 << 10;

/// What was found in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark<'a> {
    /// Value of the secret of this name.
    Named(&'a SecretName),
    /// What has the form of this kind of secret.
    Kind(&'static str),
}

impl Mark<'_> {
    /// Returns what an error says of it.
    pub(super) fn described(&self) -> String {
        match self {
            Self::Named(name) => format!("the value of secret {name}"),
            Self::Kind(kind) => format!("what looks like a secret of the kind {kind}"),
        }
    }
}

/// The text that stands in its place. The name of no secret has a colon.
impl fmt::Display for Mark<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => write!(f, "(secret {name})"),
            Self::Kind(kind) => write!(f, "(secret: {kind})"),
        }
    }
}

/// Form of a secret: how it begins, and what follows.
struct Form {
    kind: &'static str,
    begins: &'static str,
    rest: Rest,
    #[allow(dead_code, reason = "for the reader and the tests")]
    example: &'static str,
}

/// What follows the beginning.
enum Rest {
    /// Between so many characters.
    Run(Set, RangeInclusive<usize>),
    /// Between so many characters, of which 16 letters and digits in a row have a digit: words with hyphens have not.
    Random(Set, RangeInclusive<usize>),
    /// Parts between periods.
    Token,
    /// The rest of the first line, lines, and the last line.
    Pem,
}

/// Characters that follow the beginning.
#[derive(Clone, Copy)]
enum Set {
    /// `A-Z` and `2-7`
    Base32,
    /// `A-Z`, `a-z`, `0-9`
    Alphanumeric,
    /// `A-Z`, `a-z`, `0-9`, `_`, `-`
    Url,
    /// `A-Z`, `a-z`, `0-9`, `_`, `-`, `.`
    Dotted,
}

impl Set {
    const fn has(self, byte: u8) -> bool {
        match self {
            Self::Base32 => matches!(byte, b'A'..=b'Z' | b'2'..=b'7'),
            Self::Alphanumeric => byte.is_ascii_alphanumeric(),
            Self::Url => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'),
            Self::Dotted => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'),
        }
    }
}

const fn form(kind: &'static str, begins: &'static str, rest: Rest, example: &'static str) -> Form {
    Form { kind, begins, rest, example }
}

/// All forms. None begins with the beginning of another one.
#[rustfmt::skip]
const FORMS: [Form; 31] = [
    // OpenAI, Anthropic, OpenRouter, DeepSeek and others
    form("API key", "sk-", Random(Url, 20..=256), "sk-proj-a1B2c3D4e5F6g7H8_i9J0k1L2m3N4o5P6"),
    form("API key", "gsk_", Run(Alphanumeric, 40..=64), "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"),
    form("API key", "xai-", Run(Alphanumeric, 64..=96), "xai-a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0u1V2w3X4y5Z6a7B8c9D0e1F2g3H4"),
    form("API key", "pplx-", Run(Alphanumeric, 40..=64), "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"),
    form("API key", "r8_", Run(Alphanumeric, 37..=40), "r8_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s"),
    form("Google API key", "AIza", Run(Url, 35..=35), "AIzaSyA1b2C3d4E5f6G7h8I9j0K1l2M3n4-5_6o"),
    form("Google token", "ya29.", Run(Dotted, 30..=2048), "ya29.a0AfB_byC1d2E3f4G5h6I7j8K9l0M1n2"),
    form("AWS access key", "AKIA", Run(Base32, 16..=16), "AKIAIOSFODNN7EXAMPLE"),
    form("AWS access key", "ASIA", Run(Base32, 16..=16), "ASIAIOSFODNN7EXAMPLE"),
    form("GitHub token", "ghp_", Run(Alphanumeric, 36..=255), "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"),
    form("GitHub token", "gho_", Run(Alphanumeric, 36..=255), "gho_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"),
    form("GitHub token", "ghu_", Run(Alphanumeric, 36..=255), "ghu_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"),
    form("GitHub token", "ghs_", Run(Alphanumeric, 36..=255), "ghs_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"),
    form("GitHub token", "ghr_", Run(Alphanumeric, 36..=255), "ghr_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"),
    form("GitHub token", "github_pat_", Run(Url, 82..=255), "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"),
    form("GitLab token", "glpat-", Run(Dotted, 20..=300), "glpat-a1B2c3D4e5F6g7H8i9J0"),
    form("Hugging Face token", "hf_", Run(Alphanumeric, 34..=40), "hf_aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH"),
    form("npm token", "npm_", Run(Alphanumeric, 36..=36), "npm_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"),
    form("Slack token", "xoxa-", Random(Url, 20..=256), "xoxa-2-123456789012-a1B2c3D4e5F6g7H8i9J0"),
    form("Slack token", "xoxb-", Random(Url, 20..=256), "xoxb-123456789012-1234567890123-a1B2c3D4e5F6g7H8i9J0"),
    form("Slack token", "xoxe-", Random(Url, 20..=256), "xoxe-1-a1B2c3D4e5F6g7H8i9J0"),
    form("Slack token", "xoxp-", Random(Url, 20..=256), "xoxp-123456789012-123456789012-a1B2c3D4e5F6g7H8i9J0"),
    form("Slack token", "xoxr-", Random(Url, 20..=256), "xoxr-123456789012-a1B2c3D4e5F6g7H8i9J0"),
    form("Slack token", "xoxs-", Random(Url, 20..=256), "xoxs-123456789012-a1B2c3D4e5F6g7H8i9J0"),
    form("Slack token", "xapp-", Random(Url, 20..=256), "xapp-1-A0123456789-1234567890123-a1b2c3d4e5f6a7b8c9d0"),
    form("Stripe key", "sk_live_", Run(Alphanumeric, 16..=247), "sk_live_a1B2c3D4e5F6g7H8i9J0k1L2"),
    form("Stripe key", "sk_test_", Run(Alphanumeric, 16..=247), "sk_test_a1B2c3D4e5F6g7H8i9J0k1L2"),
    form("Stripe key", "rk_live_", Run(Alphanumeric, 16..=247), "rk_live_a1B2c3D4e5F6g7H8i9J0k1L2"),
    form("Stripe key", "rk_test_", Run(Alphanumeric, 16..=247), "rk_test_a1B2c3D4e5F6g7H8i9J0k1L2"),
    // The beginning is `{"` in Base64.
    form("JWT", "eyJ", Token, "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI0NzExIn0.c2lnbmF0dXJlX29mX3RoZV90b2tlbg"),
    form("private key", "-----BEGIN ", Pem, "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n-----END PRIVATE KEY-----"),
];

/// Finder of the places where a form may begin.
static FINDER: LazyLock<Option<AhoCorasick>> =
    LazyLock::new(|| AhoCorasick::new(FORMS.iter().map(|form| form.begins)).ok());

/// Adds the positions of what has a known form, in order.
pub(super) fn find<'a>(text: &[u8], found: &mut Vec<(Range<usize>, Mark<'a>)>) {
    found.extend(
        scans(text).filter_map(|(at, form, scan)| Some((at..at + scan.length?, Mark::Kind(form.kind)))),
    );
}

/// Returns the first of these places from which on more text may change what is found; `None` if there is none.
pub(super) fn unfinished(text: &[u8], is_place: impl Fn(usize) -> bool) -> Option<usize> {
    let is_unfinished = |at: usize, scan: Scan| at + scan.read == text.len() && is_place(at);
    let scanned = scans(text).find(|(at, _, scan)| is_unfinished(*at, *scan)).map(|(at, ..)| at);
    let is_begun = |at: &usize| {
        let tail = &text[*at..];
        FORMS.iter().any(|form| form.begins.as_bytes().starts_with(tail) && form.may_begin(text, *at))
    };
    let longest = FORMS.iter().map(|form| form.begins.len()).max().unwrap_or(0);
    let begun = (text.len().saturating_sub(longest)..text.len()).filter(|at| is_place(*at)).find(is_begun);
    scanned.into_iter().chain(begun).min()
}

/// Returns what stands at each place where a form begins. Each byte is read a few times at most, whatever the text is: a
/// form begins only behind a character that cannot belong to one that began earlier.
fn scans(text: &[u8]) -> impl Iterator<Item = (usize, &'static Form, Scan)> {
    let begins = FINDER.iter().flat_map(move |finder| finder.find_iter(text));
    begins.filter_map(move |begin| {
        let form =
            FORMS.get(begin.pattern().as_usize()).filter(|form| form.may_begin(text, begin.start()))?;
        Some((begin.start(), form, form.scan(&text[begin.start()..])))
    })
}

/// What stands at a place where a form begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scan {
    /// Number of bytes of the secret, if it is one.
    length: Option<usize>,
    /// Number of bytes that were read. More text changes the result only if they reach to the end.
    read: usize,
}

impl Form {
    /// Returns whether this form may begin at a place, and not within a longer word.
    fn may_begin(&self, text: &[u8], at: usize) -> bool {
        let Some(before) = at.checked_sub(1).and_then(|before| text.get(before)) else { return true };
        match self.rest {
            Pem => true,
            Token | Run(Dotted, _) => !Dotted.has(*before),
            Run(..) | Random(..) => !Url.has(*before),
        }
    }

    /// Reads a text that begins as this form does.
    fn scan(&self, text: &[u8]) -> Scan {
        let begins = self.begins.len();
        let (set, lengths) = match &self.rest {
            Run(set, lengths) | Random(set, lengths) => (*set, lengths.clone()),
            Token => (Dotted, 0..=LONGEST - begins),
            Pem => return pem(text),
        };
        let rest = &text[begins..];
        let read = until_dashes(&rest[..run(rest, lengths.end() + 1, |byte| set.has(byte))]);
        let is_whole = rest.get(read).is_none_or(|next| *next == b'-' || !Url.has(*next));
        // The periods at the end are those of a sentence.
        let periods = rest[..read].iter().rev().take_while(|byte| **byte == b'.').count();
        let kept = &rest[..read - periods];
        let is_secret = is_whole
            && read <= *lengths.end()
            && lengths.contains(&kept.len())
            && match self.rest {
                Random(..) => is_random(kept),
                Token => is_token(kept),
                Run(..) | Pem => true,
            };
        Scan { length: is_secret.then_some(begins + kept.len()), read: begins + read }
    }
}

/// Returns the number of bytes at the beginning that are in a set, up to a limit.
fn run(text: &[u8], limit: usize, has: impl Fn(u8) -> bool) -> usize {
    text.iter().take(limit).take_while(|byte| has(**byte)).count()
}

/// Returns the number of bytes before the dashes with which a line of a PEM file begins: a form that begins there is not
/// part of another one.
fn until_dashes(text: &[u8]) -> usize {
    text.windows(DASHES.len()).position(|window| window == DASHES).unwrap_or(text.len())
}

fn is_random(text: &[u8]) -> bool {
    let mut words = text.split(|byte| !byte.is_ascii_alphanumeric());
    words.any(|word| word.len() >= 16 && word.iter().any(u8::is_ascii_digit))
}

/// Returns whether a text behind `eyJ` is that of a signed token, of which the second part is an object too, or that of an
/// encrypted one, which has five parts.
fn is_token(text: &[u8]) -> bool {
    let parts: Vec<&[u8]> = text.split(|byte| *byte == b'.').take(6).collect();
    let [header, payload, ..] = parts.as_slice() else { return false };
    let is_object = payload.len() >= 4 && (payload.starts_with(b"ey") || payload.starts_with(b"ew"));
    header.len() >= 8 && ((is_object && parts.len() <= 3) || parts.len() == 5)
}

/// Dashes before and behind the label in the first and in the last line of a PEM file.
const DASHES: &[u8] = b"-----";
/// Beginning of the last line of a PEM file.
const LAST: &[u8] = b"-----END ";

/// Reads the PEM text of a private key. Of one without its last line, as a cut output has it, all is the secret.
fn pem(text: &[u8]) -> Scan {
    let text = &text[..text.len().min(LONGEST)];
    let none = |read| Scan { length: None, read };
    let Some(body) = label_end(text, b"-----BEGIN ".len(), true) else { return none(text.len()) };
    if body == 0 {
        return none(0);
    }
    let first = body + run(&text[body..], LONGEST, |byte| byte.is_ascii_whitespace());
    let in_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let word = run(&text[first..], LONGEST, |byte| in_base64(byte) || byte == b'-');
    match text.get(first + word) {
        Some(b':') => {}
        _ if run(&text[first..], LONGEST, in_base64) >= 16 => {}
        Some(_) => return none(first + word),
        None => return none(text.len()),
    }
    let in_body = |byte: u8| in_base64(byte) || byte.is_ascii_whitespace() || b"_-:,.()<>@".contains(&byte);
    let until = first + until_dashes(&text[first..first + run(&text[first..], LONGEST, in_body)]);
    let cut = first + text[first..until].trim_ascii_end().len();
    let last = &text[until..text.len().min(until + LAST.len())];
    if last.len() < DASHES.len() || !LAST.starts_with(last) {
        return Scan { length: Some(cut), read: until };
    }
    match label_end(text, until + last.len(), false) {
        Some(0) => Scan { length: Some(cut), read: until },
        Some(end) => Scan { length: Some(end), read: end },
        None => Scan { length: Some(cut), read: text.len() },
    }
}

/// Returns the end of the line whose label begins at a place; 0 if it is no such line; `None` if the end of the text cuts it.
fn label_end(text: &[u8], at: usize, is_private: bool) -> Option<usize> {
    let label =
        run(&text[at..], 48, |byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b' ');
    let rest = &text[at + label..];
    if rest.len() < DASHES.len() && DASHES.starts_with(rest) {
        return None;
    }
    let label = &text[at..at + label];
    let fits = !is_private || label.ends_with(b"PRIVATE KEY") || label.ends_with(b"PRIVATE KEY BLOCK");
    Some(if fits && rest.starts_with(DASHES) { at + label.len() + DASHES.len() } else { 0 })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(&str, &'static str)> {
        let mut found = Vec::new();
        find(text.as_bytes(), &mut found);
        let kind = |mark| match mark {
            Mark::Kind(kind) => kind,
            Mark::Named(_) => "a name",
        };
        found.into_iter().map(|(at, mark)| (&text[at], kind(mark))).collect()
    }

    #[test]
    fn each_form_is_found_whole_and_not_in_part() {
        for Form { kind, begins, example, .. } in &FORMS {
            for (before, after) in
                [("", ""), ("is ", "."), ("\"", "\""), ("key=", "&x=1"), ("(", ")"), ("é", "é")]
            {
                assert_eq!(
                    found(&format!("{before}{example}{after}")),
                    [(*example, *kind)],
                    "{before}_{after}"
                );
            }
            assert!(found(begins).is_empty() && found(&format!("{begins} {begins}")).is_empty(), "{begins}");
            let longer = format!("x{example}");
            assert!(
                matches!(FORMS.iter().find(|form| form.example == *example).unwrap().rest, Pem)
                    || found(&longer).is_empty()
            );
            for end in 1..example.len() {
                assert_eq!(
                    unfinished(format!("is {}", &example[..end]).as_bytes(), |_| true),
                    Some(3),
                    "{}",
                    &example[..end]
                );
            }
        }
    }

    #[test]
    fn texts_that_look_alike_are_not_found() {
        for text in [
            "sk-learn, sk-toggleable__label-arrow and sk-container-id-1-with-a-long-name",
            "task-0123456789abcdef0123456789abcdef, risk-0123456789abcdef0123456789abcdef",
            "QWxhZGRpbjpvcGVuIHNlc2FtZQsk-0123456789abcdef0123456789abcdef",
            "ghp_0123456789 AKIAIOSFODNN7EXAMPL AKIAIOSFODNN7EXAMPLES AKIAIOSFODNN7EXAMPLe AKIAIOSFODNN1EXAMPLE",
            "xoxb-your-token-goes-here-please, hf_hub_download, npm_config_registry, r8_",
            "eyJhbGciOiJIUzI1NiJ9 eyJhbGciOiJIUzI1NiJ9.cGFydA eyJ.eyJh.x a.eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI0NzExIn0.c2ln",
            "-----BEGIN PRIVATE KEY----- is its first line",
            "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----",
            "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----",
            "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUQ0123456789abcdef\n-----END CERTIFICATE-----",
        ] {
            assert!(found(text).is_empty(), "{:?}", found(text));
        }
    }

    #[test]
    fn private_keys_are_found_as_tools_write_and_cut_them() {
        let line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj";
        let headers = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0123456789ABCDEF\n\n";
        for kind in ["PRIVATE KEY", "RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"] {
            for body in [
                format!("\n{line}\n{line}\n"),
                format!("\r\n{headers}{line}\r\nab==\r\n"),
                format!(" {line} "),
            ] {
                let whole = format!("-----BEGIN {kind}-----{body}-----END {kind}-----");
                assert_eq!(found(&format!("{whole}\nnext")), [(&*whole, "private key")]);
                let cut = whole.find("-----END").unwrap();
                for end in [cut - 8, cut, cut + 3] {
                    let shown = found(&whole[..end])[0].0;
                    assert!(shown.len() >= whole[..end.min(cut)].trim_end().len(), "{shown}");
                }
            }
        }
        let long = format!("-----BEGIN PRIVATE KEY-----\n{}", "A".repeat(2 * LONGEST));
        assert_eq!(found(&long)[0].0.len(), LONGEST);
    }

    /// Whatever a text is, each of its bytes is read a few times at most.
    #[test]
    fn hostile_texts_cost_linear_time() {
        let begins = FORMS.iter().flat_map(|form| {
            ["", " ", ".", "-", "x", "\n", "A: "].map(|between| format!("{}{between}", form.begins))
        });
        let keys = [
            "-----BEGIN PRIVATE KEY-----\nA: ",
            "-----BEGIN PRIVATE KEY-----",
            "eyJhbGciOiJI.eyJh",
            " sk-a eyJ",
        ];
        for unit in begins.chain(keys.map(str::to_owned)) {
            for head in ["", "eyJ", "-----BEGIN PRIVATE KEY-----\nA: ", "sk-"] {
                let text = format!("{head}{}", unit.repeat((1 << 18) / unit.len()));
                let read: usize = scans(text.as_bytes()).map(|(_, _, scan)| scan.read).sum();
                assert!(read <= 4 * text.len(), "{read} of {unit}");
            }
        }
    }
}
