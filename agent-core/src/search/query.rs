//! Queries: what a text must contain, and whether it does.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use memchr::memmem::Finder;

use crate::base::{Error, Result};
use crate::search::fold::Folded;
use crate::search::tokens::{Kind, kind, tokens};

/// Most bytes of a query.
const MAX_BYTES: usize = 64 << 10;

/// Words and phrases to look for. Case, accents and widths make no difference.
///
/// - `deploy failed` finds texts with both words, in any order.
/// - `"deploy failed"` finds the words as they stand between the quotes.
/// - `-staging` and `-"in staging"` leave out the texts that have it.
///
/// A word is found as a whole: `deploy` is not found in `deployed`. In scripts without spaces between words (Chinese, Japanese,
/// Korean, Thai, Lao, Khmer, Burmese) any part of a text is found. There are no other signs with a meaning.
#[derive(Clone)]
pub struct Query {
    text: String,
    wanted: Vec<Finder<'static>>,
    unwanted: Vec<Finder<'static>>,
}

impl Query {
    /// Reads a query.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if there is no word to look for; `LimitExceeded` if the text has more than 64 KiB.
    pub fn parse(text: &str) -> Result<Self> {
        if text.len() > MAX_BYTES {
            return Err(Error::limit(format!(
                "the query has {} bytes; at most {MAX_BYTES} are read: search for fewer words",
                text.len()
            )));
        }
        let (mut wanted, mut unwanted) = (BTreeSet::new(), BTreeSet::new());
        for (is_wanted, term) in terms(text) {
            if !term.is_empty() {
                if is_wanted { &mut wanted } else { &mut unwanted }.insert(term);
            }
        }
        if wanted.iter().all(|term| tokens(term).is_empty()) {
            return Err(Error::invalid("the query has no word to look for; give at least one without `-`"));
        }
        let finders = |terms: BTreeSet<String>| {
            terms.iter().map(|term| Finder::new(term.as_bytes()).into_owned()).collect()
        };
        Ok(Self { text: text.to_owned(), wanted: finders(wanted), unwanted: finders(unwanted) })
    }

    /// Returns the text that was read.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// For indexes: returns the tokens that each text has which the query finds. Not each text that has them is found.
    pub fn tokens(&self) -> BTreeSet<String> {
        self.wanted.iter().flat_map(|term| tokens(text_of(term))).map(str::to_owned).collect()
    }

    /// Returns whether the query finds a text.
    ///
    /// ```
    /// use agent_core::search::Query;
    ///
    /// let query = Query::parse("deploy \"서울 리전\" -staging")?;
    /// assert!(query.matches("Deploy in die 서울 리전은 실패"));
    /// assert!(!query.matches("deployed in 서울 리전"));
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn matches(&self, text: &str) -> bool {
        self.find(&Folded::new(text)).is_some()
    }

    /// Returns where each term is first in the folded text; `None` if the query does not find it.
    pub(crate) fn find(&self, folded: &Folded) -> Option<Vec<Range<usize>>> {
        let text = folded.text();
        let mut found = Vec::with_capacity(self.wanted.len());
        for term in &self.wanted {
            found.push(first(term, text)?);
        }
        let is_without = self.unwanted.iter().all(|term| first(term, text).is_none());
        is_without.then_some(found)
    }
}

impl fmt::Debug for Query {
    /// Formats the number of terms: the words are those of a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query")
            .field("wanted", &self.wanted.len())
            .field("unwanted", &self.unwanted.len())
            .finish_non_exhaustive()
    }
}

/// Text of a term.
fn text_of<'f>(term: &'f Finder<'static>) -> &'f str {
    std::str::from_utf8(term.needle()).unwrap_or_default()
}

/// Splits a query into folded terms, each with whether it is wanted.
fn terms(text: &str) -> Vec<(bool, String)> {
    let (mut found, mut rest) = (Vec::new(), text.trim_start());
    while !rest.is_empty() {
        let (is_wanted, term) = match rest.strip_prefix('-') {
            Some(term) => (false, term),
            None => (true, rest),
        };
        if let Some(phrase) = term.strip_prefix('"') {
            // A quote that is not closed reaches to the end.
            let (phrase, after) = phrase.split_once('"').unwrap_or((phrase, ""));
            found.push((is_wanted, Folded::new(phrase).text().to_owned()));
            rest = after.trim_start();
        } else {
            let end = term.find(|c: char| c.is_whitespace() || c == '"').unwrap_or(term.len());
            let (word, after) = term.split_at(end);
            let folded = Folded::new(word);
            // `What?` and `#tag` are words with signs around them.
            found.push((is_wanted, folded.text().trim_matches(|c| kind(c) == Kind::Between).to_owned()));
            rest = after.trim_start();
        }
    }
    found
}

/// Finds a term in a folded text, where it cuts no word.
fn first(term: &Finder<'static>, text: &str) -> Option<Range<usize>> {
    let of = text_of(term);
    let (begin, end) = (of.chars().next()?, of.chars().next_back()?);
    let is_word = |c: Option<char>| c.is_some_and(|c| kind(c) == Kind::Word);
    let mut from = 0;
    loop {
        let at = from + term.find(text.as_bytes().get(from..)?)?;
        let until = at + of.len();
        let cuts_before = is_word(Some(begin)) && is_word(text.get(..at)?.chars().next_back());
        let cuts_behind = is_word(Some(end)) && is_word(text.get(until..)?.chars().next());
        if !cuts_before && !cuts_behind {
            return Some(at..until);
        }
        from = at + begin.len_utf8();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn finds(query: &str, text: &str) -> bool {
        Query::parse(query).unwrap().matches(text)
    }

    #[test]
    fn terms_are_found_as_people_mean_them() {
        for (query, text) in [
            ("strasse", "Die Straße ist lang"),
            ("CAFÉ", "im cafe\u{301}"),
            ("什么", "这是什么意思"),
            ("울", "서울에서"),
            ("db", "the DB is down"),
            ("snake_case", "a snake_case name"),
            ("foo-bar", "with foo-bar inside"),
            ("\"exit code 1\"", "it has exit code 1."),
            ("What?", "what now"),
            ("#deploy", "deploy"),
            ("हिन्दी", "यह हिन्दी है"),
            ("🎉", "done 🎉🎉"),
            ("NEAR/2 OR", "or near/2"),
            ("deploy -staging", "deploy to production"),
            ("a \"b", "a b"),
        ] {
            assert!(finds(query, text), "{query} {text}");
        }
        for (query, text) in [
            ("deploy", "deployed"),
            ("ploy", "deploy"),
            ("\"exit code 1\"", "exit code 12"),
            ("deploy -staging", "deploy to Staging"),
            ("deploy -\"to staging\"", "deploy to  staging to staging"),
            ("か", "が"),
            ("a b", "a"),
            ("snake", "snake_case"),
        ] {
            assert!(!finds(query, text), "{query} {text}");
        }
    }

    #[test]
    fn queries_without_a_word_are_refused() {
        for query in ["", " ", "-a", "\"\"", "-", "+++", "\"++\"", "\0", "-\"a b\" -c", "\u{200f}"] {
            let error = Query::parse(query).unwrap_err();
            assert_eq!(*error.kind(), crate::ErrorKind::InvalidInput, "{query:?}");
        }
        let long = Query::parse(&"a".repeat(MAX_BYTES + 1)).unwrap_err();
        assert_eq!(*long.kind(), crate::ErrorKind::LimitExceeded);
        // Many terms are that many terms, and nothing else.
        let many: Vec<_> = (0..10_000).map(|n| format!("t{n}")).collect();
        assert!(finds(&many.join(" "), &many.join(" ")));
        assert!(!format!("{:?}", Query::parse("plantedword").unwrap()).contains("planted"));
    }

    /// Characters that a fold or a word treats in a special way.
    fn text() -> impl Strategy<Value = String> {
        let special = "aZßςσİıéE\u{301}\u{327}_-\"' .0٣кЁحَשׁかがｶﾞー々서울\u{1112}\u{1161}\u{11ab}ก็हिि்\u{200d}\u{200f}\u{feff}🎉ﬁＡ\u{ad}";
        let special: Vec<char> = special.chars().collect();
        let one = prop_oneof![3 => prop::sample::select(special), 1 => any::<char>()];
        prop::collection::vec(one, 0..24).prop_map(|chars| chars.into_iter().collect())
    }

    proptest! {
        /// An index that looks for the tokens misses nothing.
        #[test]
        fn texts_that_are_found_have_the_tokens(text in text(), query in text()) {
            if let Ok(query) = Query::parse(&query) && query.matches(&text) {
                let folded = Folded::new(&text);
                let has = tokens(folded.text());
                prop_assert!(query.tokens().iter().all(|token| has.contains(&**token)));
            }
        }

        /// What stands between two signs is found by itself, in whatever form.
        #[test]
        fn each_word_of_a_text_is_found(text in text()) {
            for word in text.split(|c: char| c.is_whitespace() || c == '"' || c == '-') {
                if let Ok(query) = Query::parse(word) {
                    prop_assert!(query.matches(&text), "{word:?} in {text:?}");
                    // Some letters have no upper case of their own: ᾀ is written ΑΙ.
                    let upper = text.to_uppercase();
                    if upper.to_lowercase() == text.to_lowercase() {
                        prop_assert!(query.matches(&format!("a {upper}.")), "{word:?} in upper case");
                    }
                }
            }
        }

        #[test]
        fn places_lie_on_characters_of_the_original(text in text(), query in text()) {
            let folded = Folded::new(&text);
            if let Ok(query) = Query::parse(&query) && let Some(found) = query.find(&folded) {
                for range in Folded::places(&text, found) {
                    prop_assert!(text.get(range).is_some_and(|found| !found.is_empty()));
                }
            }
        }

        #[test]
        fn folding_what_is_folded_changes_nothing(text in text()) {
            let once = Folded::new(&text).text().to_owned();
            let again = Folded::new(&once);
            prop_assert_eq!(again.text(), &once);
        }
    }
}
