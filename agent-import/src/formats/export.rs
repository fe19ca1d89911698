//! Exports of chats: a JSON array of conversations, each of which is a tree of messages.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::path::{Path, PathBuf};

use agent_core::json::RawJson;
use agent_core::{Error, Result};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::array::{Element, Elements};
use crate::files;
use crate::formats::tree::{Branches, Tree};
use crate::ids::EntryId;
use crate::source::{Entry, Notes, Relation, Source, Transcript};

/// Maximum number of messages of a conversation.
const MESSAGES_MAX: usize = 1_000_000;

/// Maximum number of branches of a conversation.
const BRANCHES_MAX: usize = 1000;

/// Members of an object, which stay where they are.
#[derive(Debug, Default)]
pub(crate) struct Members<'a>(pub(crate) Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Returns the members of an object, none of another value.
    pub(crate) fn of(json: &'a str) -> Self {
        serde_json::from_str(json).unwrap_or_default()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.get())
    }

    pub(crate) fn object(&self, name: &str) -> Self {
        self.get(name).map(Self::of).unwrap_or_default()
    }

    pub(crate) fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?).ok()
    }

    /// Returns the elements of a list.
    pub(crate) fn list(&self, name: &str) -> Vec<&'a RawValue> {
        self.get(name).and_then(|list| serde_json::from_str(list).ok()).unwrap_or_default()
    }

    pub(crate) fn time(&self, name: &str) -> Option<agent_core::Timestamp> {
        crate::text::time(&RawJson::parse(self.get(name)?).ok()?)
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some((Key(key), value)) = map.next_entry::<Key<'de>, &'de RawValue>()? {
                    members.push((key, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(All)
    }
}

/// Message of a conversation, with its place in the tree.
#[derive(Debug)]
pub(crate) struct Node<'a> {
    pub(crate) id: String,
    pub(crate) parent: Option<String>,
    /// Messages behind it in their order, if it names them.
    pub(crate) children: Vec<String>,
    /// True for a message of a person or an answer.
    pub(crate) is_turn: bool,
    pub(crate) json: &'a str,
}

/// Conversations of one format.
pub(crate) trait Conversations: Default + Send {
    /// Returns what a conversation says about itself, with its id as the name; `None` if it has none.
    fn about(&self, conversation: &Members<'_>) -> Option<Transcript>;

    /// Returns the messages in the order of the source.
    fn nodes<'a>(&self, conversation: &Members<'a>) -> Vec<Node<'a>>;

    /// Returns the id of the message that is shown last.
    fn current(&self, _conversation: &Members<'_>) -> Option<String> {
        None
    }

    /// Forgets the messages of the branch before.
    fn begin(&mut self);

    /// Adds the items of the next message of a branch.
    fn items(&mut self, id: &str, json: &str, entry: &mut Entry, notes: &mut Notes);
}

/// Files of an export.
#[derive(Debug)]
pub(crate) struct Export<C> {
    files: VecDeque<PathBuf>,
    elements: Option<(PathBuf, Elements)>,
    opened: Option<Opened>,
    conversations: C,
}

/// Conversation that is read.
#[derive(Debug)]
struct Opened {
    bytes: Vec<u8>,
    /// For each message its id, and its place in the bytes.
    places: Vec<(String, Range<usize>)>,
    branches: Branches,
    /// Messages behind which a branch leaves.
    left: HashSet<u32>,
    current: Option<u32>,
    about: Transcript,
    next: usize,
    path: Vec<u32>,
    shared: usize,
    at: usize,
}

impl<C: Conversations> Export<C> {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let is_export = |file: &PathBuf| {
            file == path
                || file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("conversations"))
        };
        let files: VecDeque<_> = files::find(path, "json")?.into_iter().filter(is_export).collect();
        let Some(first) = files.front() else {
            return Err(Error::invalid(format!(
                "{} holds no file conversations.json; unpack the zip archive of the export there",
                path.display()
            )));
        };
        // A wrong file is refused before anything is written.
        let elements = Some((first.clone(), Elements::open(first)?));
        Ok(Self {
            files: files.into_iter().skip(1).collect(),
            elements,
            opened: None,
            conversations: C::default(),
        })
    }

    /// Reads the next conversation; returns whether there is one.
    fn next_conversation(&mut self, notes: &mut Notes) -> Result<bool> {
        loop {
            let Some((path, elements)) = &mut self.elements else {
                let Some(path) = self.files.pop_front() else { return Ok(false) };
                let elements = Elements::open(&path)?;
                self.elements = Some((path, elements));
                continue;
            };
            match elements.next()? {
                Some(Element::Whole) => {}
                Some(Element::TooLarge) => {
                    notes.count("conversations of more than 64 MiB");
                    continue;
                }
                Some(Element::Cut) => {
                    notes.cut_off = true;
                    continue;
                }
                None => {
                    self.elements = None;
                    continue;
                }
            }
            let (bytes, place) = (elements.take(), path.display().to_string());
            if let Some(opened) = Opened::read(&self.conversations, bytes, &place, notes) {
                self.opened = Some(opened);
                return Ok(true);
            }
        }
    }
}

impl<C: Conversations> Source for Export<C> {
    fn next_transcript(&mut self, notes: &mut Notes) -> Result<Option<Transcript>> {
        loop {
            if let Some(transcript) = self.opened.as_mut().and_then(Opened::next_branch) {
                self.conversations.begin();
                return Ok(Some(transcript));
            }
            self.opened = None;
            if !self.next_conversation(notes)? {
                return Ok(None);
            }
        }
    }

    fn next_entry(&mut self, notes: &mut Notes) -> Result<Option<Entry>> {
        let Some(opened) = &mut self.opened else { return Ok(None) };
        let Some(number) = opened.path.get(opened.at).copied() else { return Ok(None) };
        opened.at += 1;
        let (id, place) = &opened.places[number as usize];
        let mut entry = Entry::new(opened.branches.id(number), None);
        let before = opened.at.checked_sub(2).and_then(|at| opened.path.get(at));
        entry.is_behind_branch = before.is_some_and(|before| opened.left.contains(before));
        let json = opened.bytes.get(place.clone()).and_then(|json| std::str::from_utf8(json).ok());
        self.conversations.items(id, json.unwrap_or_default(), &mut entry, notes);
        Ok(Some(entry))
    }

    fn shared(&self) -> Vec<EntryId> {
        let Some(opened) = &self.opened else { return Vec::new() };
        opened.path[..opened.shared].iter().map(|number| opened.branches.id(*number)).collect()
    }

    fn share_from(&mut self, number: usize) {
        if let Some(opened) = &mut self.opened {
            opened.at = number.min(opened.path.len());
        }
    }
}

impl Opened {
    fn read(
        conversations: &impl Conversations,
        bytes: Vec<u8>,
        place: &str,
        notes: &mut Notes,
    ) -> Option<Self> {
        let json = std::str::from_utf8(&bytes).ok();
        let Some(members) = json.and_then(|json| serde_json::from_str::<Members<'_>>(json).ok()) else {
            notes.count("conversations that are no JSON objects");
            return None;
        };
        let Some(about) = conversations.about(&members).filter(|about| !about.name.is_empty()) else {
            notes.count("conversations without an id");
            return None;
        };
        let mut nodes = conversations.nodes(&members);
        if nodes.len() > MESSAGES_MAX {
            notes.count("conversations of more than 1000000 messages, which were cut");
            nodes.truncate(MESSAGES_MAX);
        }
        let current = conversations.current(&members);
        let order = order(&nodes, notes);
        let (mut tree, mut places) = (Tree::default(), Vec::with_capacity(order.len()));
        for (number, parent) in &order {
            let node = &nodes[*number as usize];
            if tree.add(EntryId::of(&node.id), *parent, node.is_turn).is_some() {
                // The text of a member is a part of the text of the whole.
                let start = node.json.as_ptr().addr().saturating_sub(bytes.as_ptr().addr());
                places.push((node.id.clone(), start..start + node.json.len()));
            }
        }
        let current = current.and_then(|current| tree.find(EntryId::of(&current)));
        let name = crate::text::clip(&about.name, 256);
        let about = Transcript { place: format!("{place}, conversation {name}"), ..about };
        let mut branches = tree.branches();
        let beyond = branches.branches.len().saturating_sub(BRANCHES_MAX);
        if beyond > 0 {
            notes.add("branches beyond 1000 of one conversation", beyond as u64);
            branches.branches.truncate(BRANCHES_MAX);
        }
        let heads = branches.branches.iter().map(|branch| branch.head as usize);
        let left = heads.filter_map(|head| order.get(head)?.1).collect();
        let (path, next) = (Vec::new(), 0);
        Some(Self { bytes, places, branches, left, current, about, next, path, shared: 0, at: 0 })
    }

    fn next_branch(&mut self) -> Option<Transcript> {
        let branch = *self.branches.branches.get(self.next)?;
        (self.path, self.shared) = self.branches.shared_path(self.next);
        self.at = self.shared;
        let mut transcript = self.about.clone();
        transcript.name = self.name(self.next);
        if let Some(of) = branch.of {
            transcript.relation = Relation::Branch { of: self.name(of) };
        }
        let is_one_of_several = self.branches.branches.len() > 1;
        if is_one_of_several && self.current.is_some_and(|current| self.path.last() == Some(&current)) {
            transcript.about.insert("shown", "This branch is the one that was shown.".to_owned());
        }
        self.next += 1;
        Some(transcript)
    }

    /// Returns the name of a branch: that of the conversation for the first, else with the first message of its own.
    fn name(&self, branch: usize) -> String {
        let name = &self.about.name;
        match branch {
            0 => name.clone(),
            _ => format!("{name}/{}", self.branches.id(self.branches.branches[branch].head)),
        }
    }
}

/// Returns the numbers of the messages, each after the one that it follows, which is named by its place in this order. Messages behind one
/// are in the order that it gives, then in that of the source.
fn order(nodes: &[Node<'_>], notes: &mut Notes) -> Vec<(u32, Option<u32>)> {
    let mut by_id: HashMap<&str, u32> = HashMap::with_capacity(nodes.len());
    for (number, node) in (0..).zip(nodes) {
        if by_id.contains_key(&*node.id) {
            notes.count("messages with the id of another");
        } else {
            by_id.insert(&node.id, number);
        }
    }
    let is_first = |number: u32| by_id.get(&*nodes[number as usize].id) == Some(&number);
    let mut behind: Vec<Vec<u32>> = vec![Vec::new(); nodes.len()];
    let mut named = HashSet::new();
    for (number, node) in (0..).zip(nodes).filter(|(number, _)| is_first(*number)) {
        let children = node.children.iter().filter_map(|child| by_id.get(&**child).copied());
        behind[number as usize] = children.filter(|child| *child != number && named.insert(*child)).collect();
    }
    let mut roots = Vec::new();
    for (number, node) in (0..).zip(nodes).filter(|(number, _)| is_first(*number)) {
        match node.parent.as_deref().and_then(|parent| by_id.get(parent).copied()) {
            _ if named.contains(&number) => {}
            Some(parent) if parent != number => behind[parent as usize].push(number),
            _ => roots.push(number),
        }
    }
    let (mut order, mut seen) = (Vec::with_capacity(nodes.len()), vec![false; nodes.len()]);
    // Those that follow each other in a circle have no root: the first of them becomes one.
    for root in roots.into_iter().chain((0..).take(nodes.len()).filter(|number| is_first(*number))) {
        let mut stack = vec![(root, None)];
        while let Some((number, parent)) = stack.pop() {
            if std::mem::replace(&mut seen[number as usize], true) {
                continue;
            }
            let place = u32::try_from(order.len()).ok();
            order.push((number, parent));
            stack.extend(behind[number as usize].iter().rev().map(|child| (*child, place)));
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node<'a>(id: &str, parent: Option<&str>, children: &[&str]) -> Node<'a> {
        let children = children.iter().map(ToString::to_string).collect();
        Node { id: id.to_owned(), parent: parent.map(str::to_owned), children, is_turn: true, json: "" }
    }

    #[test]
    fn messages_stand_behind_those_that_they_follow() {
        let nodes = [
            node("d", Some("b"), &[]),
            node("root", None, &["a"]),
            node("b", Some("a"), &["c", "d"]),
            node("c", Some("b"), &[]),
            node("a", Some("root"), &["b"]),
        ];
        let found: Vec<_> = order(&nodes, &mut Notes::default()).iter().map(|(number, _)| *number).collect();
        assert_eq!(found, [1, 4, 2, 3, 0]);
    }

    #[test]
    fn circles_and_doubles_end() {
        let mut notes = Notes::default();
        let nodes = [
            node("a", Some("b"), &["b"]),
            node("b", Some("a"), &["a", "b", "nobody"]),
            node("a", None, &[]),
            node("self", Some("self"), &["self"]),
            node("lost", Some("nobody"), &[]),
        ];
        let mut found: Vec<_> = order(&nodes, &mut notes).iter().map(|(number, _)| *number).collect();
        found.sort_unstable();
        assert_eq!(found, [0, 1, 3, 4]);
        assert_eq!(notes.counts["messages with the id of another"], 1);
    }
}
