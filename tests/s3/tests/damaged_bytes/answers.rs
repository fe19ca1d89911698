//! Answers of a store to a fixed set of questions, compared with the expected ones.

use std::fmt::Debug;

use agent_core::store::{BindingQuery, ReadEvents, SessionQuery, WorkspaceQuery};
use agent_core::{Error, ErrorKind, Result, Storage};

use crate::fixture::Names;

/// One answer.
#[derive(Clone, Debug, PartialEq)]
enum Answer {
    One(String),
    /// The items of a page, and whether something on it is named as damaged.
    Page(Vec<String>, bool),
    Failed(ErrorKind, String),
}

/// How answers compare with those of the sound store.
#[derive(Debug)]
pub(crate) enum Verdict {
    Same,
    /// Where they are not the same, damage is named.
    Named,
    /// Something else is said, as if nothing were wrong.
    Wrong(String),
}

/// The answers to all questions, in their order; or why the store could not be opened.
#[derive(Clone, Debug)]
pub(crate) struct Answers(std::result::Result<Vec<Answer>, ErrorKind>);

impl Answers {
    pub(crate) fn refused(error: &Error) -> Self {
        Self(Err(error.kind().clone()))
    }

    pub(crate) async fn of(storage: &Storage, names: &Names) -> Self {
        let mut all = Vec::new();
        let list = storage.workspaces.list(WorkspaceQuery::new()).await;
        all.push(page(list.map(|page| (page.items, !page.damaged.is_empty()))));
        for id in &names.workspaces {
            all.push(one(storage.workspaces.load(*id).await));
            all.push(one(storage.workspaces.load_config(*id).await));
        }
        let list = storage.bindings.list(BindingQuery::new()).await;
        all.push(page(list.map(|page| (page.items, !page.damaged.is_empty()))));
        for device in &names.devices {
            all.push(one(storage.bindings.resolve(device).await));
        }
        let list = storage.sessions.list(SessionQuery::new().with_hidden()).await;
        all.push(page(list.map(|page| (page.items, !page.damaged.is_empty()))));
        for id in &names.sessions {
            all.push(one(storage.sessions.load(*id).await));
            for read in [
                ReadEvents::first(1000),
                ReadEvents::last(3),
                ReadEvents::first(2).with_after(agent_core::Seq::new(3)),
            ] {
                let read = storage.sessions.read(*id, read).await;
                all.push(page(read.map(|page| (page.events, !page.damaged.is_empty()))));
            }
        }
        Self(Ok(all))
    }

    pub(crate) fn judge(&self, sound: &Self) -> Verdict {
        let (now, sound) = match (&self.0, &sound.0) {
            (Ok(now), Ok(sound)) => (now, sound),
            (Err(kind), _) if honest(kind) => return Verdict::Named,
            (now, _) => return Verdict::Wrong(format!("{now:?}")),
        };
        let mut verdict = Verdict::Same;
        for (now, sound) in now.iter().zip(sound) {
            match (now, sound) {
                _ if now == sound => {}
                (Answer::Failed(kind, _), _) if honest(kind) => verdict = Verdict::Named,
                (Answer::Page(items, true), Answer::Page(all, _))
                    if items.iter().all(|item| all.contains(item)) =>
                {
                    verdict = Verdict::Named;
                }
                _ => return Verdict::Wrong(format!("{now:?}\ninstead of\n{sound:?}")),
            }
        }
        verdict
    }
}

/// Whether a failure is no answer. What is not found, or deleted, is one.
fn honest(kind: &ErrorKind) -> bool {
    !matches!(kind, ErrorKind::NotFound | ErrorKind::Deleted | ErrorKind::Conflict { .. })
}

fn failed(error: &Error) -> Answer {
    Answer::Failed(error.kind().clone(), error.to_string())
}

fn one<T: Debug>(answer: Result<T>) -> Answer {
    answer.map_or_else(|error| failed(&error), |answer| Answer::One(format!("{answer:?}")))
}

fn page<T: Debug>(answer: Result<(Vec<T>, bool)>) -> Answer {
    answer.map_or_else(
        |error| failed(&error),
        |(items, damaged)| Answer::Page(items.iter().map(|item| format!("{item:?}")).collect(), damaged),
    )
}
