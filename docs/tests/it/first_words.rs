//! The first sentence of each doc comment, module header and decision names its subject, in words of the field.

use std::fs;
use std::path::{Path, PathBuf};

use docs::root;

const REFUSED: [&str; 20] = [
    "he", "how", "it", "it's", "its", "she", "that", "their", "they", "this", "what", "whatever", "when",
    "where", "whether", "which", "who", "whoever", "whose", "why",
];

/// Words of a first sentence for which the field has a better one: `if`, `report`, `check`, `read`, `again`.
const RETIRED: [&str; 22] = [
    "anew",
    "heard",
    "look",
    "looked",
    "looks",
    "noted",
    "said",
    "say",
    "says",
    "tell",
    "tells",
    "theirs",
    "told",
    "wants",
    "whatever",
    "where",
    "wherever",
    "whoever",
    "anybody",
    "for ever",
    "set aside",
    "is gone",
];

/// Words in a first sentence, at most.
const LONGEST: usize = 25;

/// Documented public items in `text`: the number of the first line of the comment, and the line.
fn documented(text: &str) -> Vec<(usize, &str)> {
    let (mut items, mut comment) = (Vec::new(), None);
    for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line.trim())) {
        if let Some(first) = line.strip_prefix("///") {
            comment.get_or_insert((number, first.trim()));
        } else if !line.starts_with("#[") {
            items.extend(comment.take().filter(|_| line.starts_with("pub ")));
        }
    }
    items
}

/// The first word of a line, without quotes and brackets before it.
fn first_word(line: &str) -> String {
    let start = line.trim_start_matches(|letter: char| !letter.is_alphabetic());
    start.split(|letter: char| !letter.is_alphabetic() && letter != '\'').next().unwrap_or("").to_lowercase()
}

/// First paragraph of the `//!` comment at the beginning of a file.
fn header(text: &str) -> Option<String> {
    let lines = text.lines().skip_while(|line| line.is_empty() || line.starts_with("#!"));
    let lines = lines.map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let lines: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
    (!lines.is_empty()).then(|| lines.join(" "))
}

/// Title of a decision, and the paragraph under it.
fn decision(text: &str) -> [String; 2] {
    let title = text.lines().next().unwrap_or("").trim_start_matches(|letter: char| !letter.is_alphabetic());
    let body = text.lines().skip(1).skip_while(|line| line.is_empty() || line.starts_with('#'));
    let body: Vec<_> = body.take_while(|line| !line.is_empty()).collect();
    [title.to_owned(), body.join(" ").trim_start_matches("**Decision.** ").to_owned()]
}

/// Reason to refuse the first sentence of a paragraph.
fn refused(paragraph: &str) -> Option<String> {
    let end = paragraph.match_indices(". ").map(|(at, _)| at).next().unwrap_or(paragraph.len());
    let sentence = &paragraph[..end];
    let plain: String = sentence
        .to_lowercase()
        .chars()
        .map(|letter| if letter.is_alphanumeric() || letter == '-' { letter } else { ' ' })
        .collect();
    let plain = format!(" {} ", plain.split_whitespace().collect::<Vec<_>>().join(" "));
    let words = sentence.split_whitespace().count();
    if REFUSED.contains(&&*first_word(sentence)) {
        return Some("begins with a pronoun or a question word".to_owned());
    }
    if let Some(word) = RETIRED.iter().find(|word| plain.contains(&format!(" {word} "))) {
        return Some(format!("has the word `{word}`"));
    }
    (words > LONGEST).then(|| format!("has {words} words"))
}

/// All files under `folder` whose names end with `ending`.
fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                files(&path, ending, found);
            }
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
}

fn read_items(folder: &Path, seen: &mut usize, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            // Of the tests of a crate nothing is public; the crate `tests` has a library.
            let is_read = name != "target" && (name != "tests" || path.join("src").is_dir());
            if is_read && !name.starts_with('.') {
                read_items(&path, seen, found);
            }
        } else if name.ends_with(".rs") {
            for (number, line) in documented(&fs::read_to_string(&path).unwrap()) {
                *seen += 1;
                if REFUSED.contains(&&*first_word(line)) {
                    found.push(format!("{}:{number}: {line}", path.display()));
                }
            }
        }
    }
}

#[test]
fn no_doc_comment_begins_with_a_pronoun() {
    let (mut seen, mut found) = (0, Vec::new());
    read_items(&root(), &mut seen, &mut found);
    println!("proof: {seen} documented public items are read");
    println!("docs that begin with a pronoun or a question word: {}", found.len());
    assert!(seen > 1_000, "the sources are read: {seen}");
    assert!(found.is_empty(), "name the subject first: {found:#?}");
}

#[test]
fn headers_begin_with_a_plain_sentence() {
    let (mut sources, mut seen, mut found) = (Vec::new(), 0, Vec::new());
    files(&root(), ".rs", &mut sources);
    for path in sources {
        let Some(header) = header(&fs::read_to_string(&path).unwrap()) else { continue };
        seen += 1;
        found.extend(refused(&header).map(|reason| format!("{}: {reason}: {header}", path.display())));
    }
    println!("proof: {seen} headers of modules and of test files are read");
    assert!(seen > 700, "the sources are read: {seen}");
    assert!(found.is_empty(), "{} headers: {found:#?}", found.len());
}

#[test]
fn decisions_begin_with_a_plain_sentence() {
    let (mut pages, mut found) = (Vec::new(), Vec::new());
    files(&root().join("docs/decisions"), ".md", &mut pages);
    for path in &pages {
        for text in decision(&fs::read_to_string(path).unwrap()) {
            found.extend(refused(&text).map(|reason| format!("{}: {reason}: {text}", path.display())));
        }
    }
    assert!(pages.len() > 50, "the decisions are read: {}", pages.len());
    assert!(found.is_empty(), "{} sentences of decisions: {found:#?}", found.len());
}

#[test]
fn retired_words_and_long_sentences_are_found() {
    assert_eq!(
        header("//! Rows\n//! of blobs.\n//!\n//! More.\n\nuse x;").as_deref(),
        Some("Rows of blobs.")
    );
    assert_eq!(decision("# 7. Ids\n\n## Context\n\nOne.\nTwo.\n\nMore."), ["Ids", "One. Two."]);
    assert_eq!(refused("Rows of blobs. What they hold, a list says."), None);
    assert!(refused("What a row holds.").unwrap().contains("pronoun"));
    assert!(refused("Rows, kept for ever.").unwrap().contains("`for ever`"));
    assert!(refused(&"row ".repeat(LONGEST + 1)).unwrap().contains("26 words"));
}

#[test]
fn a_pronoun_before_a_subject_is_found() {
    let text = "/// Whether it is whole.\n#[must_use]\npub fn whole() {}\n/// Its own.\nfn private() {}\n/// `It`.\npub mod it {}\n";
    let lines: Vec<_> =
        documented(text).into_iter().map(|(number, line)| (number, first_word(line))).collect();
    assert_eq!(lines, [(1, "whether".to_owned()), (6, "it".to_owned())]);
}
