//! Sessions and workspaces as people name them: by an id, by a part of one, or by the number in a list.

use std::fmt::Display;
use std::str::FromStr;

use agent_core::store::{SessionQuery, WorkspaceQuery, pages};
use agent_core::{SessionId, SessionStore, WorkspaceId, WorkspaceStore};
use futures::TryStreamExt;

use crate::failure::{Failure, Result};
use crate::listing;

/// Number of characters of a part of an id, at least. A number has fewer.
const PART_MIN: usize = 4;
/// Number of objects among which a part of an id is looked for, most recently used first.
const SEARCHED: usize = 1000;
/// Number of objects on a page that is read for it.
const PAGE: usize = 250;
/// Number of objects that an error lists.
const LISTED: usize = 5;

/// Session as a person names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SessionRef {
    Id(SessionId),
    /// Number in the list of `chat session list`, or of `/sessions`.
    Number(usize),
    /// Beginning or end of an id.
    Part(String),
}

/// Workspace as a person names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WorkspaceRef {
    Id(WorkspaceId),
    /// Beginning or end of an id.
    Part(String),
}

/// Session that was meant.
#[derive(Clone, Debug)]
pub(crate) struct Picked {
    pub(crate) id: SessionId,
    /// Title of the session, if it was not named by its id.
    pub(crate) title: Option<String>,
    /// True if it was named by its number, which is that of another session as soon as one is used.
    pub(crate) is_numbered: bool,
}

impl Picked {
    /// Returns the session for a question: `session 019c… (a trip to Oslo)`.
    pub(crate) fn named(&self) -> String {
        let title = self.title.as_deref().filter(|title| !title.is_empty());
        let title = title.map(|title| format!(" ({title})")).unwrap_or_default();
        format!("session {}{title}", self.id)
    }
}

impl FromStr for SessionRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(id) = text.parse() {
            return Ok(Self::Id(id));
        }
        // In a shell, a word that begins with # is a comment unless it is quoted, so that the number alone is enough.
        let digits = text.strip_prefix('#').unwrap_or(text);
        match digits.parse() {
            Ok(number) if number > 0 && digits.len() < PART_MIN => return Ok(Self::Number(number)),
            _ => {}
        }
        part(text).map(Self::Part).ok_or_else(|| {
            "use the id of a session, at least 4 characters of its beginning or its end, or its number in the list".to_owned()
        })
    }
}

impl FromStr for WorkspaceRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(id) = text.parse() {
            return Ok(Self::Id(id));
        }
        let part = part(text).map(Self::Part);
        part.ok_or_else(|| {
            "use the id of a workspace, or at least 4 characters of its beginning or its end".to_owned()
        })
    }
}

/// Returns a text as a part of an id, if it can be one.
fn part(text: &str) -> Option<String> {
    let is_part = text.len() >= PART_MIN && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    (is_part && text.len() < 36).then(|| text.to_ascii_lowercase())
}

impl SessionRef {
    /// Finds the session that is meant. A whole id is not looked for. A number counts the sessions of the list `among`; a part
    /// of an id must be that of one session alone, hidden ones included.
    pub(crate) async fn find(&self, sessions: &dyn SessionStore, among: SessionQuery) -> Result<Picked> {
        match self {
            Self::Id(id) => Ok(Picked { id: *id, title: None, is_numbered: false }),
            Self::Number(number) => numbered(sessions, among, *number).await,
            Self::Part(part) => {
                let mut search = PartSearch::new("session", part);
                let query = among.with_hidden().with_limit(PAGE);
                let mut read = pages(query, |query| sessions.list(query));
                while let Some(page) = read.try_next().await? {
                    page.items.iter().for_each(|session| search.look_at(session.id, listing::title(session)));
                    search.is_damaged |= !page.damaged.is_empty();
                    if search.is_decided() {
                        search.is_cut = page.next.is_some();
                        break;
                    }
                }
                let (id, title) = search.end("chat session list --all")?;
                Ok(Picked { id, title: Some(title), is_numbered: false })
            }
        }
    }
}

/// Returns the session with this number in a list.
async fn numbered(sessions: &dyn SessionStore, among: SessionQuery, number: usize) -> Result<Picked> {
    let mut read = pages(among.with_limit(number), |query| sessions.list(query));
    let mut seen = 0;
    while let Some(page) = read.try_next().await? {
        if let Some(session) = number.checked_sub(seen + 1).and_then(|at| page.items.get(at)) {
            return Ok(Picked { id: session.id, title: Some(listing::title(session)), is_numbered: true });
        }
        seen += page.items.len();
    }
    Err(Failure::absent(format!("there is no session {number} in the list, which has {seen}")))
}

impl WorkspaceRef {
    /// Returns the id of the workspace that is meant.
    pub(crate) async fn id(&self, workspaces: &dyn WorkspaceStore) -> Result<WorkspaceId> {
        let part = match self {
            Self::Id(id) => return Ok(*id),
            Self::Part(part) => part,
        };
        let mut search = PartSearch::new("workspace", part);
        let mut query = WorkspaceQuery::new().with_limit(PAGE);
        query.with_deleting = true;
        let mut read = pages(query, |query| workspaces.list(query));
        while let Some(page) = read.try_next().await? {
            page.items.into_iter().for_each(|workspace| search.look_at(workspace.id, workspace.name));
            search.is_damaged |= !page.damaged.is_empty();
            if search.is_decided() {
                search.is_cut = page.next.is_some();
                break;
            }
        }
        Ok(search.end("chat workspace list --all")?.0)
    }
}

/// Search for the one object of whose id a text is a part.
struct PartSearch<'a, Id> {
    noun: &'static str,
    part: &'a str,
    found: Vec<(Id, String)>,
    seen: usize,
    /// Whether there are objects that were not looked at.
    is_cut: bool,
    is_damaged: bool,
}

impl<'a, Id: Display> PartSearch<'a, Id> {
    fn new(noun: &'static str, part: &'a str) -> Self {
        Self { noun, part, found: Vec::new(), seen: 0, is_cut: false, is_damaged: false }
    }

    fn look_at(&mut self, id: Id, title: String) {
        self.seen += 1;
        let text = id.to_string();
        if text.starts_with(self.part) || text.ends_with(self.part) {
            self.found.push((id, title));
        }
    }

    fn is_decided(&self) -> bool {
        self.seen >= SEARCHED || self.found.len() > LISTED
    }

    /// Returns the object, if there is one alone. `list` is the command that lists the objects.
    fn end(mut self, list: &str) -> Result<(Id, String)> {
        let (noun, part) = (self.noun, self.part);
        let found = self.found.pop();
        match found {
            Some(found) if self.found.is_empty() => return Ok(found),
            Some(last) => self.found.push(last),
            None => {
                let place = match self.is_cut {
                    true => format!("of the {} most recently used {noun}s none", self.seen),
                    false => format!("no {noun}"),
                };
                let whole = match (self.is_cut, self.is_damaged) {
                    (true, _) => format!("; give the whole id of an older {noun}"),
                    (_, true) => format!("; give the whole id of a damaged {noun}"),
                    _ => String::new(),
                };
                return Err(Failure::absent(format!(
                    "{place} has an id that begins or ends with {part}{whole}; `{list}` lists the {noun}s"
                )));
            }
        }
        let more = if self.found.len() > LISTED { "\n  …" } else { "" };
        let lines = self.found.iter().take(LISTED).map(|(id, title)| format!("\n  {id}  {title}"));
        let lines: String = lines.collect();
        let text = format!(
            "the ids of several {noun}s begin or end with {part}; give more characters, or one of these:{lines}{more}"
        );
        Err(Failure::new(1, "ambiguous", text))
    }
}
