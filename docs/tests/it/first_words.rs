//! The first line of each doc comment names its subject: it never begins with a pronoun or a question word.

use std::fs;
use std::path::Path;

use docs::root;

const REFUSED: [&str; 20] = [
    "he", "how", "it", "it's", "its", "she", "that", "their", "they", "this", "what", "whatever", "when",
    "where", "whether", "which", "who", "whoever", "whose", "why",
];

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

fn look(folder: &Path, seen: &mut usize, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            // Of the tests of a crate nothing is public; the crate `tests` has a library.
            let is_read = name != "target" && (name != "tests" || path.join("src").is_dir());
            if is_read && !name.starts_with('.') {
                look(&path, seen, found);
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
    look(&root(), &mut seen, &mut found);
    println!("proof: {seen} documented public items are read");
    println!("docs that begin with a pronoun or a question word: {}", found.len());
    assert!(seen > 1_000, "the sources are read: {seen}");
    assert!(found.is_empty(), "name the subject first: {found:#?}");
}

#[test]
fn a_pronoun_before_a_subject_is_found() {
    let text = "/// Whether it is whole.\n#[must_use]\npub fn whole() {}\n/// Its own.\nfn private() {}\n/// `It`.\npub mod it {}\n";
    let lines: Vec<_> =
        documented(text).into_iter().map(|(number, line)| (number, first_word(line))).collect();
    assert_eq!(lines, [(1, "whether".to_owned()), (6, "it".to_owned())]);
}
