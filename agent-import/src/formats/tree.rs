//! Conversations that are trees: the entries name their parents, and branches are what was left by going back.

use std::collections::{BTreeMap, HashMap};

use crate::ids::EntryId;

/// Entry of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub(crate) id: EntryId,
    /// Entry before it, which stands before it in the source.
    pub(crate) parent: Option<u32>,
    /// True for what begins something of its own: a message of a person, or an answer. A branch without one, such as the result of a
    /// call beside another, belongs to the branch that it left.
    pub(crate) is_turn: bool,
}

/// Tree of a conversation, in the order of the source.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    by_id: HashMap<EntryId, u32>,
}

/// Branch of a tree, from its first entry to a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Branch {
    /// First entry of its own.
    pub(crate) head: u32,
    /// Branch that it left, by its number; `None` for one that begins with a root.
    pub(crate) of: Option<usize>,
}

/// Branches of a tree, each after the one that it left.
#[derive(Debug)]
pub(crate) struct Branches {
    nodes: Vec<Node>,
    /// For each entry the one that continues its branch.
    next: Vec<Option<u32>>,
    /// Entries that belong to a branch beside its line: those that left it without a turn, by the entry that they left.
    beside: BTreeMap<u32, Vec<u32>>,
    pub(crate) branches: Vec<Branch>,
}

impl Tree {
    /// Adds an entry; returns its number, or `None` if it is there already.
    pub(crate) fn add(&mut self, id: EntryId, parent: Option<u32>, is_turn: bool) -> Option<u32> {
        let number = u32::try_from(self.nodes.len()).ok()?;
        if self.by_id.contains_key(&id) {
            return None;
        }
        self.by_id.insert(id, number);
        self.nodes.push(Node { id, parent, is_turn });
        Some(number)
    }

    /// Returns the number of an entry.
    pub(crate) fn find(&self, id: EntryId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    /// Finds the branches. Of several entries behind one, the first in the source continues its branch, so that a source that grows by
    /// going back changes no branch that it has.
    pub(crate) fn branches(self) -> Branches {
        let Self { nodes, by_id } = self;
        drop(by_id);
        let mut has_turn: Vec<bool> = nodes.iter().map(|node| node.is_turn).collect();
        for at in (0..nodes.len()).rev() {
            if let (true, Some(parent)) = (has_turn[at], nodes[at].parent) {
                has_turn[parent as usize] = true;
            }
        }
        let mut next: Vec<Option<u32>> = vec![None; nodes.len()];
        let mut beside: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let mut heads = Vec::new();
        for (number, node) in (0..).zip(&nodes) {
            match node.parent {
                None => heads.push(number),
                Some(parent) if !has_turn[number as usize] => beside.entry(parent).or_default().push(number),
                Some(parent) if next[parent as usize].is_none() => next[parent as usize] = Some(number),
                Some(_) => heads.push(number),
            }
        }
        // Which branch an entry is in: that of the entry before it, unless it begins one. Parents stand before their children.
        let mut branch_of = vec![0_usize; nodes.len()];
        let mut branches = Vec::with_capacity(heads.len());
        let mut left = heads.into_iter().peekable();
        for (number, node) in (0..).zip(&nodes) {
            let of = node.parent.map(|parent| branch_of[parent as usize]);
            branch_of[number as usize] = if left.next_if_eq(&number).is_some() {
                branches.push(Branch { head: number, of });
                branches.len() - 1
            } else {
                of.unwrap_or_default()
            };
        }
        Branches { nodes, next, beside, branches }
    }
}

impl Branches {
    pub(crate) fn id(&self, number: u32) -> EntryId {
        self.nodes[number as usize].id
    }

    /// Returns the entries of a branch, with those that it shares, in the order of the source.
    pub(crate) fn path(&self, branch: usize) -> Vec<u32> {
        let mut line = Vec::new();
        let mut at = self.branches.get(branch).map(|branch| branch.head);
        while let Some(number) = at {
            line.push(number);
            at = self.next[number as usize];
        }
        let mut at = line.first().and_then(|head| self.nodes[*head as usize].parent);
        while let Some(number) = at {
            line.push(number);
            at = self.nodes[number as usize].parent;
        }
        let mut found = 0;
        while let Some(number) = line.get(found) {
            // Also what is beside an entry that is itself beside the line.
            let beside = self.beside.get(number).cloned().unwrap_or_default();
            line.extend(beside);
            found += 1;
        }
        line.sort_unstable();
        line
    }

    /// Returns the entries of a branch, and how many of them it shares with the branch that it left.
    pub(crate) fn shared_path(&self, branch: usize) -> (Vec<u32>, usize) {
        let path = self.path(branch);
        let shared = match self.branches.get(branch).and_then(|branch| branch.of) {
            Some(of) => path.iter().zip(self.path(of)).take_while(|(one, other)| **one == *other).count(),
            None => 0,
        };
        (path, shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a tree of entries `(name, parent, is_turn)`.
    fn tree(entries: &[(&str, Option<&str>, bool)]) -> Branches {
        let mut tree = Tree::default();
        for (name, parent, is_turn) in entries {
            let parent = parent.and_then(|parent| tree.find(EntryId::of(parent)));
            tree.add(EntryId::of(name), parent, *is_turn);
        }
        tree.branches()
    }

    #[test]
    fn a_message_that_was_written_anew_is_a_branch() {
        let found = tree(&[
            ("ask", None, true),
            ("answer", Some("ask"), true),
            ("again", Some("answer"), true),
            ("end", Some("again"), true),
            ("other", Some("answer"), true),
            ("its end", Some("other"), true),
        ]);
        assert_eq!(found.branches, [Branch { head: 0, of: None }, Branch { head: 4, of: Some(0) }]);
        assert_eq!(found.path(0), [0, 1, 2, 3]);
        assert_eq!(found.shared_path(1), (vec![0, 1, 4, 5], 2));
    }

    #[test]
    fn results_beside_the_line_belong_to_it() {
        // Two calls of one answer: the result of the first hangs on the first.
        let found = tree(&[
            ("ask", None, true),
            ("call 1", Some("ask"), true),
            ("call 2", Some("call 1"), false),
            ("result 1", Some("call 1"), false),
            ("note", Some("result 1"), false),
            ("result 2", Some("call 2"), false),
            ("answer", Some("result 2"), true),
        ]);
        assert_eq!(found.branches.len(), 1);
        assert_eq!(found.path(0), [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn several_roots_are_several_branches() {
        let found = tree(&[("a", None, true), ("b", None, true), ("c", Some("a"), true), ("a", None, true)]);
        assert_eq!(found.branches.len(), 2);
        assert_eq!((found.path(0), found.path(1)), (vec![0, 2], vec![1]));
    }
}
