//! Search for words, for what erased keys sealed, and for the texts of these keys, in bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use agent_core::store::ErasableRow;
use agent_core::{Error, ErrorKind, Result, SessionId};
use aho_corasick::AhoCorasick;
use sha2::{Digest, Sha256};

/// Number of bytes that are read at once.
const PIECE: usize = 1 << 20;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Match {
    /// The `n`-th word, counted from 1.
    Word(usize),
    /// Something that the key of a session sealed.
    Sealed(SessionId),
    /// The text of the row of a key; `None` for one of the tenant.
    KeyText(Option<SessionId>),
}

/// What is looked for.
#[derive(Debug)]
pub(super) struct Patterns {
    automaton: AhoCorasick,
    /// What each pattern of the automaton means.
    means: Vec<Means>,
    /// Number of bytes that must be at hand from the start of a match on.
    longest: usize,
}

/// Texts of rows that have the same start.
#[derive(Debug, Default)]
struct Texts {
    lengths: BTreeSet<usize>,
    /// Whose the text with a hash is.
    hashes: BTreeMap<String, Option<SessionId>>,
}

#[derive(Debug)]
enum Means {
    Found(Match),
    /// The text of a row may begin here.
    Texts(Texts),
}

impl Patterns {
    pub(super) fn new(words: &[String], rows: &[ErasableRow]) -> Result<Self> {
        let (mut patterns, mut means, mut longest) = (Vec::new(), Vec::new(), 1);
        for (n, word) in (1..).zip(words).filter(|(_, word)| !word.is_empty()) {
            let mut forms = BTreeSet::from([word.clone()]);
            // As it stands within JSON.
            let json = serde_json::to_string(word).unwrap_or_default();
            forms.extend(json.strip_prefix('"').and_then(|json| json.strip_suffix('"')).map(str::to_owned));
            for form in forms {
                patterns.push(form);
                means.push(Means::Found(Match::Word(n)));
            }
        }
        let mut texts: BTreeMap<&str, Texts> = BTreeMap::new();
        for row in rows.iter().filter(|row| row.is_key()) {
            if let (Some(session), Some(key)) = (row.session, &row.key) {
                patterns.push(format!("1.{key}."));
                means.push(Means::Found(Match::Sealed(session)));
            }
            let texts = texts.entry(&row.start).or_default();
            texts.lengths.insert(row.bytes);
            texts.hashes.insert(row.sha256.clone(), row.session);
            longest = longest.max(row.bytes);
        }
        for (start, texts) in texts {
            patterns.push(start.to_owned());
            means.push(Means::Texts(texts));
        }
        longest = patterns.iter().map(String::len).max().unwrap_or_default().max(longest);
        let automaton = AhoCorasick::new(&patterns).map_err(|source| {
            Error::invalid(format!("the words cannot be looked for together: {source}; give fewer"))
                .with_source(source)
        })?;
        Ok(Self { automaton, means, longest })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.means.is_empty()
    }

    /// Returns what is found in these bytes.
    pub(super) fn all(&self, bytes: &[u8]) -> BTreeSet<Match> {
        let mut scan = self.begin();
        scan.search(bytes);
        scan.found
    }

    pub(super) const fn begin(&self) -> Scan<'_> {
        Scan { patterns: self, carry: Vec::new(), found: BTreeSet::new() }
    }
}

/// Search in bytes that come in pieces.
pub(super) struct Scan<'p> {
    patterns: &'p Patterns,
    carry: Vec<u8>,
    pub(super) found: BTreeSet<Match>,
}

impl Scan<'_> {
    pub(super) fn feed(&mut self, piece: &[u8]) {
        let mut bytes = std::mem::take(&mut self.carry);
        bytes.extend_from_slice(piece);
        self.search(&bytes);
        let end = bytes.len().saturating_sub(self.patterns.longest.saturating_sub(1));
        self.carry = bytes.split_off(end);
    }

    fn search(&mut self, bytes: &[u8]) {
        for found in self.patterns.automaton.find_overlapping_iter(bytes) {
            match self.patterns.means.get(found.pattern().as_usize()) {
                Some(Means::Found(it)) => drop(self.found.insert(*it)),
                Some(Means::Texts(texts)) => {
                    for length in &texts.lengths {
                        let text = bytes.get(found.start()..found.start() + length);
                        let hash = text.map(|text| hex(&Sha256::digest(text)));
                        let session = hash.and_then(|hash| texts.hashes.get(&hash));
                        self.found.extend(session.map(|session| Match::KeyText(*session)));
                    }
                }
                None => {}
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What was found in files.
#[derive(Debug, Default)]
pub(super) struct FilesFound {
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) found: Vec<(PathBuf, Match)>,
}

/// Reads all files under these paths; links are not followed. Blocks.
pub(super) fn files(patterns: &Patterns, paths: Vec<PathBuf>) -> Result<FilesFound> {
    let mut all = FilesFound::default();
    let mut rest = paths;
    while let Some(path) = rest.pop() {
        let kind = match path.symlink_metadata() {
            // Removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            kind => kind.map_err(|error| unread(&path, error))?,
        };
        if kind.is_dir() {
            for entry in path.read_dir().map_err(|error| unread(&path, error))? {
                rest.push(entry.map_err(|error| unread(&path, error))?.path());
            }
        } else if kind.is_file() {
            let found = match one(patterns, &path, &mut all.bytes) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                found => found.map_err(|error| unread(&path, error))?,
            };
            all.files += 1;
            all.found.extend(found.into_iter().map(|it| (path.clone(), it)));
        }
    }
    Ok(all)
}

fn one(patterns: &Patterns, path: &Path, bytes: &mut u64) -> io::Result<BTreeSet<Match>> {
    let (mut file, mut scan, mut piece) = (File::open(path)?, patterns.begin(), vec![0; PIECE]);
    loop {
        let count = file.read(&mut piece)?;
        let Some(read) = piece.get(..count).filter(|read| !read.is_empty()) else { return Ok(scan.found) };
        *bytes += count as u64;
        scan.feed(read);
    }
}

fn unread(path: &Path, error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied => ErrorKind::Denied,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, format!("{} cannot be read: {error}", path.display())).with_source(error)
}
