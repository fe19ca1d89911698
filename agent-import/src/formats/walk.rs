//! Branches of a tree that are read one after the other.

use crate::formats::tree::{Branches, Tree};
use crate::ids::EntryId;
use crate::source::Relation;

/// Branches of a conversation, and the place in the one that is read.
#[derive(Debug)]
pub(crate) struct Walk {
    name: String,
    branches: Branches,
    next: usize,
    /// Entries of the branch that is read, and the number of those that it shares.
    path: Vec<u32>,
    shared: usize,
    at: usize,
}

impl Walk {
    /// Creates a walk of the branches of a transcript with this name.
    pub(crate) fn new(name: String, tree: Tree) -> Self {
        Self { name, branches: tree.branches(), next: 0, path: Vec::new(), shared: 0, at: 0 }
    }

    /// Goes on to the next branch; returns its name, and how it relates to an earlier one. The first is there also if it is empty.
    pub(crate) fn next_branch(&mut self) -> Option<(String, Relation)> {
        let number = self.next;
        let of = match self.branches.branches.get(number) {
            Some(branch) => branch.of,
            None if number == 0 => None,
            None => return None,
        };
        (self.path, self.shared) = self.branches.shared_path(number);
        self.at = self.shared;
        self.next += 1;
        let relation = of.map_or(Relation::None, |of| Relation::Branch { of: self.name(of) });
        Some((self.name(number), relation))
    }

    /// Returns the name of a branch: that of the transcript for the first, else with the first entry of its own.
    fn name(&self, branch: usize) -> String {
        match self.branches.branches.get(branch).filter(|_| branch > 0) {
            Some(found) => format!("{}/{}", self.name, self.branches.id(found.head)),
            None => self.name.clone(),
        }
    }

    /// Returns the next entry of the branch.
    pub(crate) fn step(&mut self) -> Option<(u32, EntryId)> {
        let number = *self.path.get(self.at)?;
        self.at += 1;
        Some((number, self.branches.id(number)))
    }

    pub(crate) fn shared(&self) -> Vec<EntryId> {
        self.path[..self.shared].iter().map(|number| self.branches.id(*number)).collect()
    }

    pub(crate) fn share_from(&mut self, number: usize) {
        self.at = number.min(self.path.len());
    }
}
